//! Futures that wait in tasks are `Send`.

use tollgate::{Quota, RateLimiter, TokenBucket};

fn send<T: Send>(value: T) -> T {
    value
}

#[test]
fn whatever_waits_can_be_sent() {
    let bucket = TokenBucket::new(Quota::per_second(10));
    let limiter = RateLimiter::<String>::new(Quota::per_second(10));
    let patience = std::time::Duration::from_secs(1);
    drop(send(bucket.acquire()));
    drop(send(bucket.acquire_n(2)));
    drop(send(bucket.acquire_within(patience)));
    drop(send(bucket.acquire_n_within(2, patience)));
    drop(send(limiter.acquire("ada")));
    drop(send(limiter.acquire_n("ada", 2)));
    drop(send(limiter.acquire_within("ada", patience)));
    drop(send(limiter.acquire_n_within("ada", 2, patience)));
    let limited = bucket.limited(async |n: u64| n);
    drop(send(limited.call(1)));
    // No future was polled.
    assert_eq!((bucket.peek().remaining(), limiter.len()), (10, 0));
}
