//! The tokens of a bucket over time.

use std::time::Duration;

use tollgate::{Clock, Quota, TokenBucket};

/// Returns seconds and tokens, at 10 tokens/s and a burst of 20 on a mock clock: a burst that
/// empties the bucket, refusals, 5 requests a second, then a pause until it is full.
pub fn tokens_over_time() -> Vec<(f64, f64)> {
    const STEP: Duration = Duration::from_millis(10);
    let (clock, mock) = Clock::mock();
    let bucket = TokenBucket::builder(Quota::per_second(10).burst(20)).clock(clock).build();
    let mut levels = Vec::new();
    for step in 0_u32..800 {
        let seconds = f64::from(step) * STEP.as_secs_f64();
        let asks = match step {
            // 100 requests a second, more than the burst and the rate bear.
            100..200 => true,
            // 20 a second, of which the rate grants half.
            200..400 => step % 5 == 0,
            // 5 a second.
            400..600 => step % 20 == 0,
            _ => false,
        };
        if asks {
            // The plot shows the tokens, not the outcome.
            let _ = bucket.try_acquire();
        }
        levels.push((seconds, bucket.peek().remaining() as f64));
        mock.advance(STEP);
    }
    levels
}
