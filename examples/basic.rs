//! Three requests of one client under a quota of two, and a refusal that says when to try again.
//!
//! ```text
//! cargo run --release --example basic
//! ```

use std::net::{IpAddr, Ipv4Addr};

use tollgate::{Quota, RateLimiter};

fn main() {
    // A map. For many clients: `builder(quota).max_keys(100_000).inline()?.build()`, a table.
    let limiter = RateLimiter::<IpAddr>::new(Quota::per_second(2));
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for request in 1..=3 {
        match limiter.try_acquire(&client) {
            Ok(granted) => println!("request {request}: granted, {} left", granted.remaining()),
            Err(denied) => println!("request {request}: {denied}"),
        }
    }
}
