//! The types that are used together, and no modules: `use tollgate::prelude::*`.
//!
//! `use tollgate::*` also imports the modules `http` and `tower`, so the names of the crates `http`
//! and `tower` become ambiguous:
//!
//! ```compile_fail,E0659
//! use tollgate::*;
//! use http::Request;
//! ```
//!
//! # Examples
//!
//! ```
//! use tollgate::prelude::*;
//!
//! let limiter = RateLimiter::<u64>::new(Quota::per_second(1));
//! assert!(limiter.try_acquire(&7).is_ok());
//! ```

#[cfg(feature = "http")]
pub use crate::http::{ClientIp, Head, HeaderKey, Headers, KeyFrom, Problem, Refusal, key_fn};
#[cfg(feature = "tower")]
pub use crate::tower::{LimitBy, OnMissingKey, RateLimitLayer};
pub use crate::{Clock, Denied, Granted, Quota, RateLimiter, TokenBucket, all_of};
