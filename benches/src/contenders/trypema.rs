//! trypema: a sliding window of stamped counts, behind a lock of a key.

use std::sync::Arc;

use trypema::local::LocalRateLimiterProvider;
use trypema::{RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

use super::bucket::{bucket, in_seconds};

bucket! {
    /// Its exact limiter in one process, with the bucket size that it has by default.
    Local((Arc<LocalRateLimiterProvider>, RateLimit)),
    |setup| {
        let (limit, seconds) = in_seconds(setup.quota);
        let builder = LocalRateLimiterProvider::builder().window_size(WindowSize::seconds_or_panic(seconds));
        let rate = RateLimit::per_second_or_panic(limit as f64 / seconds as f64);
        (builder.disable_cleanup().build().expect("the window has a bucket"), rate)
    },
    |window| matches!(window.0.absolute().inc("key", &window.1, 1), RateLimitDecision::Allowed)
}
