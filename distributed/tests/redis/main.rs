//! The store on Redis, on servers that are stopped, frozen, killed and lied about.

mod helpers;
mod model;
