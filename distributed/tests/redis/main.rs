//! The store on Redis, on servers that are stopped, frozen, killed and that lie.

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

// A key under load is the same on each store. (The network may fail a call of another one.)
#[allow(dead_code)]
#[path = "../sql/bound.rs"]
mod bound;
#[allow(dead_code)]
#[path = "../sql/world.rs"]
mod world;
