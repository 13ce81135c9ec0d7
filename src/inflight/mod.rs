//! A limit on the requests in flight, which may follow the latency of the answers.

pub(crate) mod adapt;
pub(crate) mod atomic_word;
pub(crate) mod builder;
pub(crate) mod controller;
pub(crate) mod gate;
pub(crate) mod histogram;
pub(crate) mod invalid_limit;
pub(crate) mod outcome;
pub(crate) mod priority;
pub(crate) mod seen;
pub(crate) mod signals;
pub(crate) mod stats;
mod word;
