//! `tollgate`: servers on the rate limiter of that name.
// Until all modules are connected.
#![allow(dead_code)]

mod proxy;

fn main() {}
