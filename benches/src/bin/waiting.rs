//! Callers that wait and give up, in real time: tollgate beside governor and leaky-bucket.
//!
//! `cargo run --release --features waiting --bin waiting`. For 8 s, 500 callers a second come to a
//! limiter of 100 a second, and each gives up after half a second. A limiter that serves all that
//! it earns serves 900 of them, and some 50 more that wait on at the end.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::{Quota as GovernorQuota, RateLimiter as Governor};
use leaky_bucket::RateLimiter as LeakyBucket;
use tollgate::{Quota, TokenBucket};

const RATE: u32 = 100;
const CALLERS: u32 = 500;
const SECONDS: u32 = 8;
const PATIENCE: Duration = Duration::from_millis(500);

/// Runs the callers, and returns the number of those that were served.
async fn served<L, F>(limiter: L, wait: fn(Arc<L>) -> F) -> usize
where
    L: Send + Sync + 'static,
    F: Future<Output = bool> + Send + 'static,
{
    let (limiter, start) = (Arc::new(limiter), Instant::now());
    let tasks: Vec<_> = (0..CALLERS * SECONDS)
        .map(|caller| {
            let (limiter, comes) = (limiter.clone(), Duration::from_secs(1) * caller / CALLERS);
            tokio::spawn(async move {
                tokio::time::sleep_until((start + comes).into()).await;
                tokio::time::timeout(PATIENCE, wait(limiter)).await == Ok(true)
            })
        })
        .collect();
    let mut served = 0;
    for task in tasks {
        served += usize::from(task.await.expect("no task panics"));
    }
    served
}

#[tokio::main]
async fn main() {
    let rate = NonZeroU32::new(RATE).expect("it is not 0");
    let ours = TokenBucket::new(Quota::per_second(RATE.into()));
    let told = TokenBucket::new(Quota::per_second(RATE.into()));
    let governor = Governor::direct(GovernorQuota::per_second(rate));
    let leaky = LeakyBucket::builder()
        .refill(1)
        .interval(Duration::from_secs(1) / RATE)
        .max(RATE as usize)
        .initial(RATE as usize)
        .build();
    let all = CALLERS * SECONDS;
    let (ours, told, governor, leaky) = tokio::join!(
        served(ours, |bucket| async move { bucket.ask().acquire().await.is_ok() }),
        served(told, |bucket| async move { bucket.ask().within(PATIENCE).acquire().await.is_ok() }),
        served(governor, |limiter| async move {
            limiter.until_ready().await;
            true
        }),
        served(leaky, |limiter| async move {
            limiter.acquire_one().await;
            true
        }),
    );
    for (name, served) in [
        ("tollgate, acquire", ours),
        ("tollgate, acquire_within", told),
        ("governor, until_ready", governor),
        ("leaky-bucket, acquire_one", leaky),
    ] {
        println!("{name}: {served} of {all} served");
    }
}
