// On docs.rs each item shows its feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(feature = "sqlite", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "sqlite"),
    doc = "One limit for a whole fleet: the buckets of `tollgate`, shared through a store."
)]

mod any_store;
#[cfg(feature = "http")]
mod http;
mod key;
mod law;
mod lease;
mod limiter;
#[cfg(feature = "mysql")]
mod mysql;
mod outage;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod sync;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod tokens;

pub use any_store::AnyStore;
pub use key::StoreKey;
pub use law::amount::{Amount, StoreAnswer};
pub use law::any_law::Law;
pub use law::bucket::Bucket;
pub use law::count::{Count, OutsideOfMonths};
pub use law::count_spec::{CountSpec, Edges};
pub use law::spec::{InvalidSpec, Spec};
pub use limiter::all_of::{Request, all_of, ask_all_of};
pub use limiter::ask::SharedAsk;
pub use limiter::builder::{DistributedBuilder, InvalidOption};
pub use limiter::distributed_limiter::DistributedLimiter;
pub use limiter::plan::SharedPlan;
pub use limiter::shared::SharedDecision;
pub use limiter::shared_rule::SharedRule;
pub use limiter::sourced::{Source, Sourced};
pub use limiter::stats::DistributedStats;
pub use outage::policy::OnOutage;
pub use store::error::{StoreError, StoreErrorKind};
pub use store::lanes::Lanes;
pub use store::memory::MemoryStore;
pub use store::op::{MAX_KEY, Op, OwnedOp, Store};

#[cfg(all(any(doc, doctest), feature = "sqlite"))]
#[doc = include_str!("../docs/guide.md")]
pub mod _guide {}

#[cfg(all(any(doc, doctest), feature = "sqlite"))]
#[doc = include_str!("../docs/from-incr.md")]
pub mod _from_incr {}

#[cfg(feature = "redis")]
#[doc(hidden)]
pub use crate::redis::fuzzing as redis_fuzzing;
#[cfg(feature = "redis")]
pub use crate::redis::{builder::RedisStoreBuilder, incr::IncrStore, store::RedisStore};
#[cfg(feature = "http")]
pub use http::shared_key::{SharedDigest, SharedHeaderKey};
#[cfg(feature = "mysql")]
#[doc(hidden)]
pub use mysql::fuzzing as mysql_fuzzing;
#[cfg(feature = "mysql")]
pub use mysql::options::MySqlOptions;
#[cfg(feature = "mysql")]
pub use mysql::store::MySqlStore;
#[cfg(feature = "postgres")]
pub use postgres::options::PostgresOptions;
#[cfg(feature = "postgres")]
pub use postgres::store::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sqlite::store::SqliteStore;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use tokens::requester::{TokenRequester, TokenTable};
