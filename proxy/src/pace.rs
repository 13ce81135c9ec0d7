//! The time that a body may take.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The bounds on the time of a body.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// For the next part.
    pub(crate) longest: Duration,
    /// Bytes a second, if the sender must keep a rate.
    pub(crate) rate: Option<u64>,
    /// For the whole body.
    pub(crate) whole: Duration,
}

/// The patience with the sender of a body.
///
/// A wait for the next part uses patience up, and the parts that arrive give it back: with a least
/// rate one second for each `rate` bytes, and without one all of it. So a body of one byte at a
/// time ends as soon as its waits take `longest` together.
pub(crate) struct Pace {
    of: Patience,
    left: Duration,
    /// The end of the whole body, whatever its rate, from its first look at the clock on.
    end: Option<Instant>,
    parts: u8,
    wait: Option<(Instant, Pin<Box<Sleep>>)>,
}

/// A part that needs no wait looks at the clock this often. Most bodies have fewer parts.
const PARTS_PER_LOOK: u8 = 64;

impl Pace {
    pub(crate) fn new(of: Patience) -> Pace {
        Pace { of, left: of.longest, end: None, parts: 0, wait: None }
    }

    /// Returns ready once the wait for the next part has lasted too long.
    pub(crate) fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (_, sleep) = self.wait.get_or_insert_with(|| {
            let now = Instant::now();
            let end = *self.end.get_or_insert(now + self.of.whole);
            (now, Box::pin(sleep_until(end.min(now + self.left))))
        });
        sleep.as_mut().poll(context)
    }

    /// Notes a part. Returns whether the body has time left.
    pub(crate) fn note(&mut self, bytes: usize) -> bool {
        self.parts = self.parts.wrapping_add(1);
        let wait = self.wait.take();
        let looks = wait.is_some() || self.parts.is_multiple_of(PARTS_PER_LOOK);
        let now = looks.then(Instant::now);
        let waited = wait.zip(now).map_or(Duration::ZERO, |((since, _), now)| now - since);
        self.left = match self.of.rate {
            None => self.of.longest,
            Some(rate) => {
                let earned = Duration::from_secs_f64(bytes as f64 / rate as f64);
                self.of.longest.min(self.left.saturating_sub(waited) + earned)
            }
        };
        now.is_none_or(|now| now < *self.end.get_or_insert(now + self.of.whole))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pace(rate: Option<u64>, whole: Duration) -> Pace {
        Pace::new(Patience { longest: 10 * SECOND, rate, whole })
    }

    /// Returns the time at which a body ends of which `bytes` arrive after each wait of `every`.
    async fn end(mut pace: Pace, bytes: usize, every: Duration) -> Duration {
        let begin = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = poll_fn(|context| pace.poll_wait(context)) => return begin.elapsed(),
                () = tokio::time::sleep(every) => (),
            }
            if !pace.note(bytes) {
                return begin.elapsed();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_under_the_least_rate_ends_and_one_of_that_rate_does_not() {
        for (bytes, every, ends) in [
            (0, 2, 10),
            (1, 2, 10),
            (999, 2, 8_002),
            (1_000, 2, 86_400),
            // A wait is never longer than the patience, whatever came before.
            (1_000_000, 11, 10),
            (1_000_000, 9, 86_400),
        ] {
            let ended = end(pace(Some(500), 86_400 * SECOND), bytes, every * SECOND).await.as_secs();
            assert!(ended.abs_diff(ends) <= 10, "{bytes} bytes each {every} s: {ended} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_each_part_gives_the_whole_patience_back() {
        for (every, ends) in [(9, 3_600), (11, 10)] {
            assert_eq!(end(pace(None, 3_600 * SECOND), 1, every * SECOND).await.as_secs(), ends);
        }
    }

    /// The body never waits.
    #[tokio::test(start_paused = true)]
    async fn a_body_without_an_end_ends() {
        let mut pace = pace(Some(500), 60 * SECOND);
        let mut notes = || (0..PARTS_PER_LOOK).all(|_| pace.note(65_536));
        assert!(notes());
        tokio::time::advance(60 * SECOND).await;
        assert!(!notes());
    }
}
