//! The layer of `tollgate` over a shared limiter, in virtual time and over a file.

mod fleet;
mod keys;
mod outage;
mod serving;
mod together;
