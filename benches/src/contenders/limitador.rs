//! limitador: fixed windows from the first use, by the values of a request.

use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};

use super::bucket::{bucket, in_seconds};

bucket! {
    /// The library of its server, with its counters in memory. It looks for the limits of a
    /// namespace in each decision.
    InMemory((RateLimiter, Namespace)),
    |setup| {
        let (limit, seconds) = in_seconds(setup.quota);
        let limiter = RateLimiter::new(1_000);
        limiter.add_limit(Limit::new("requests", limit, seconds, [], []));
        (limiter, "requests".into())
    },
    |window| {
        let (limiter, requests) = window;
        !limiter.check_rate_limited_and_update(requests, &Context::default(), 1).expect("memory").limited
    }
}
