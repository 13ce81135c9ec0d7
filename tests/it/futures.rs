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
    drop(send(bucket.ask().acquire()));
    drop(send(bucket.ask().n(2).acquire()));
    drop(send(bucket.ask().within(patience).acquire()));
    drop(send(bucket.ask().n(2).within(patience).acquire()));
    drop(send(limiter.key("ada").acquire()));
    drop(send(limiter.key("ada").n(2).acquire()));
    drop(send(limiter.key("ada").within(patience).acquire()));
    drop(send(limiter.key("ada").n(2).within(patience).acquire()));
    let limited = bucket.ask().limited(async |n: u64| n);
    drop(send(limited.call(1)));
    // No future was polled.
    assert_eq!((bucket.peek().remaining(), limiter.len()), (10, 0));
}
