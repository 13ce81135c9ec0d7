//! Whether an upstream answers, and the time at which one that does not is asked again.
//!
//! The state is one number: 0 while the upstream answers; else the time at which one request may
//! ask it, and [`ASKED`] while that request waits for the upstream. A response ends that in any
//! case. The time of an upstream is bounded, and a request whose body goes on gives the right back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const ASKED: u64 = u64::MAX;
const LONGEST: Duration = Duration::from_secs(60);

/// The health of an upstream. Times are in milliseconds.
///
/// Relaxed: no other data is read that was written before a change.
#[derive(Default)]
pub(crate) struct Health {
    due: AtomicU64,
    /// The failures in a row of requests that asked.
    failures: AtomicU32,
    answers: AtomicU64,
}

/// The right to ask an upstream that is down. A drop without an outcome gives it back.
pub(crate) struct Probe {
    of: Arc<Health>,
    due: u64,
}

/// Returns the time for which an upstream is passed over after a number of failures in a row: a
/// second, and twice as much after each, up to a minute.
pub(crate) fn back_off(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.saturating_sub(1).min(6)).min(LONGEST)
}

impl Health {
    pub(crate) fn is_up(&self) -> bool {
        self.due() == 0
    }

    /// Returns the time at which a request may ask, or 0 if the upstream answers.
    pub(crate) fn due(&self) -> u64 {
        self.due.load(Relaxed)
    }

    /// Returns the number of responses so far, up to an overflow.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Relaxed)
    }

    /// Takes the right to ask, which one request has at a time.
    pub(crate) fn probe(self: &Arc<Self>, now: u64) -> Option<Probe> {
        let due = self.due();
        let is_due = due != 0 && due <= now;
        let taken = is_due && self.due.compare_exchange(due, ASKED, Relaxed, Relaxed).is_ok();
        taken.then(|| Probe { of: self.clone(), due })
    }

    /// Notes a response. Returns whether the upstream was down.
    pub(crate) fn answered(&self) -> bool {
        self.answers.fetch_add(1, Relaxed);
        if self.is_up() {
            return false;
        }
        self.failures.store(0, Relaxed);
        self.due.swap(0, Relaxed) != 0
    }

    /// Notes a failure of a request. Returns whether the upstream was up. The others of an upstream
    /// that is down change nothing, unless they have the probe.
    pub(crate) fn failed(&self, now: u64, probe: Option<Probe>) -> bool {
        let failures = if probe.is_some() { self.failures.load(Relaxed).saturating_add(1) } else { 1 };
        let pause = u64::try_from(back_off(failures).as_millis()).unwrap_or(0);
        let before = if probe.is_some() { ASKED } else { 0 };
        let noted = self.due.compare_exchange(before, now.saturating_add(pause), Relaxed, Relaxed).is_ok();
        if noted {
            self.failures.store(failures, Relaxed);
        }
        noted && probe.is_none()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // An outcome has changed the number already.
        let _ = self.of.due.compare_exchange(ASKED, self.due, Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance};

    use super::*;

    #[test]
    fn each_failure_doubles_the_pause_up_to_a_minute() {
        let pauses: Vec<u64> = (1..=9).map(|failures| back_off(failures).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!((back_off(0).as_secs(), back_off(u32::MAX).as_secs()), (1, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_asks_an_upstream_that_is_due() {
        let (health, start) = (Arc::<Health>::default(), Instant::now());
        let now = || start.elapsed().as_millis() as u64 + 1;
        assert!(health.is_up() && health.probe(now()).is_none());
        assert!(health.failed(now(), None), "it was up");
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            // Failures of requests that were under way change nothing.
            assert!(!health.failed(now(), None) && !health.is_up());
            advance(Duration::from_millis(seconds * 1_000 - 1)).await;
            assert!(health.probe(now()).is_none(), "before {seconds} s");
            advance(Duration::from_millis(1)).await;
            let first = health.probe(now()).expect("it is due");
            assert!(health.probe(now()).is_none(), "another one asks");
            drop(first);
            let next = health.probe(now()).expect("the first one left");
            assert!(!health.failed(now(), Some(next)));
        }
        assert!(health.answered() && health.is_up(), "it was down");
        assert!(!health.answered() && health.failed(now(), None));
        advance(Duration::from_secs(1)).await;
        assert!(health.probe(now()).is_some(), "the first pause is short again");
    }
}
