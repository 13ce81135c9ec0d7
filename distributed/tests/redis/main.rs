//! The store on Redis, with servers that are stopped, frozen or killed, and one that sends false
//! answers.

mod clock;
mod cluster;
mod errors;
mod exact;
mod failover;
mod fake;
mod helpers;
mod log;
mod model;
mod restart;
mod scripts;
mod silence;

// The load on one key, and the keys of a limiter, are common to all stores.
#[expect(dead_code, reason = "the tests of SQL use the rest")]
#[path = "../sql/bound.rs"]
mod bound;
#[path = "../sql/keys.rs"]
mod keys;
#[expect(dead_code, reason = "the tests of SQL use the rest")]
#[path = "../sql/world.rs"]
mod world;
