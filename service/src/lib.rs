//! A rate limit service for Envoy and others, on the rate limiter tollgate.
//!
//! The library is the program `tollgate` without its `main`: for its tests, for fuzzing and for
//! counting. It is not published, and promises nothing beyond the program.
#![allow(
    missing_docs,
    rustdoc::private_intra_doc_links,
    reason = "its only users are the programs of this repository"
)]

mod arguments;
pub mod check;
pub mod command;
mod files;
pub mod replay;
pub mod rules;
pub mod serve;
