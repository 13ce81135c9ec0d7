//! A limiter on a clock of the program: no thread, no system clock. So it also runs on
//! wasm32-unknown-unknown, where std has no clock.
//!
//! ```text
//! cargo run --example own_clock
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::{Clock, Quota, RateLimiter};

/// Milliseconds since some fixed moment, as the host of the program tells them: in a browser
/// `performance.now()`, in a Worker `Date.now()`.
static HOST_MILLIS: AtomicU64 = AtomicU64::new(0);

fn main() {
    let clock = Clock::from_fn(|| Duration::from_millis(HOST_MILLIS.load(Ordering::Relaxed)));
    let limiter = RateLimiter::<u32>::builder(Quota::per_second(2)).clock(clock).build();
    let tenant = 7;

    assert!(limiter.try_acquire(&tenant).is_ok() && limiter.try_acquire(&tenant).is_ok());
    let denied = limiter.try_acquire(&tenant).expect_err("both tokens are taken");
    println!("{denied}");
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(500)));

    HOST_MILLIS.fetch_add(500, Ordering::Relaxed);
    assert!(limiter.try_acquire(&tenant).is_ok());
    println!("granted half a second later");
}
