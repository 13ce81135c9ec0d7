//! The layer of `tollgate` over a shared limiter, in virtual time and over a file.

mod fleet;
mod keys;
mod outage;
mod serving;
#[path = "../virtual_time/world.rs"]
#[expect(dead_code, reason = "the tests of virtual time use the rest")]
mod world;
