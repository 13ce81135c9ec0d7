//! Outcomes that are timed apart.

use std::time::Duration;

use tollgate::Quota;

/// The outcome of the decisions in a timed loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Path {
    /// Grants only: 10^9 tokens/s into a bucket of 10^9, which refills faster than the threads of
    /// one machine take. It takes a second to fill: some peers refuse a thread that paused longer
    /// than that between its reading of the clock and its decision.
    Granted,
    /// Grants only, of buckets that are never full again: a token in 400 s into a bucket of 8
    /// million. A limiter that forgets idle keys finds none, however long it takes to set up all
    /// keys.
    GrantedNeverIdle,
    /// Like [`Path::GrantedNeverIdle`], with a bucket that fills within a year: a plan needs that.
    GrantedUnderPlans,
    /// Grants only, of windows that are over after 5 ms: a million tokens, which the threads of one
    /// machine do not take in that time.
    GrantedInWindows,
    /// Refusals only: a token an hour into a bucket of 1, which was taken before.
    Refused,
    /// Grants and refusals: that number of tokens a second, into a bucket that is mostly empty.
    Mixed(u64),
}

impl Path {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Path::Granted | Path::GrantedNeverIdle | Path::GrantedUnderPlans | Path::GrantedInWindows => {
                "granted"
            }
            Path::Refused => "refused",
            Path::Mixed(_) => "90 % refused",
        }
    }

    /// Returns the quota of its limiters.
    pub fn quota(self) -> Quota {
        match self {
            Path::Granted => Quota::per_second(1_000_000_000).burst(1_000_000_000),
            Path::GrantedNeverIdle => Quota::every(Duration::from_secs(400)).burst(1 << 23),
            Path::GrantedUnderPlans => Quota::every(Duration::from_secs(400)).burst(1 << 16),
            Path::GrantedInWindows => Quota::per(1_000_000, Duration::from_millis(5)).burst(1_000_000),
            Path::Refused => Quota::per_hour(1).burst(1),
            Path::Mixed(rate) => Quota::per_second(rate).burst(100),
        }
    }

    /// Returns whether all of `decisions`, made after a first token was taken, had this outcome.
    pub fn was_kept(self, decisions: u64, granted: u64) -> bool {
        match self {
            Path::Refused => granted == 0,
            Path::Mixed(_) => true,
            _ => granted == decisions,
        }
    }
}
