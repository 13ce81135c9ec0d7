//! Whether a contender limits: what it grants on the real clock, against `burst + rate * T`.

use std::thread;
use std::time::{Duration, Instant};

use tollgate::Quota;

use crate::results::Law;
use crate::{Contender, Setup};

/// A second to fill: no pause of all threads makes a bucket lose tokens.
const QUOTA: Quota = Quota::per_second(RATE).burst(BURST);
const RATE: u64 = 100_000;
const BURST: u64 = 100_000;

/// Decisions asked for at once: through the loop that is timed, few enough that the clock moves on between them.
const BATCH: usize = 100;

/// Lets `threads` threads take all there is of `key`'s bucket for `span`, each asking without a pause.
///
/// # Panics
///
/// If a thread does.
#[must_use]
pub fn measure<K: Clone + Sync>(contender: &Contender<K>, key: &K, threads: usize, span: Duration) -> Law {
    let limiter = (contender.make)(Setup { quota: QUOTA, keys: 1 });
    let batch = vec![key.clone(); BATCH];
    let take = || limiter.count_granted(&batch);
    let take_all = || {
        let mut all = 0;
        // Not for ever, of one that grants all.
        for _ in 0..2 * BURST {
            let granted = take();
            all += granted;
            if granted < BATCH as u64 {
                break;
            }
        }
        all
    };

    let start = Instant::now();
    let mut granted = take_all();
    let empty = Instant::now();
    granted += thread::scope(|scope| {
        let take_for_a_while = || {
            let mut granted = 0;
            while empty.elapsed() < span {
                granted += take();
            }
            granted
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(take_for_a_while)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a decision does not panic")).sum::<u64>()
    });
    // What was earned while all threads paused at the end is more than a batch.
    let last = Instant::now();
    granted += take_all();
    let end = Instant::now();

    let earned = |span: Duration| BURST as f64 + RATE as f64 * span.as_secs_f64();
    Law {
        kind: String::new(),
        contender: contender.name.to_owned(),
        threads,
        granted,
        least: earned(last - empty),
        most: earned(end - start),
    }
}

/// As [`measure`], up to three times, until the law is kept.
///
/// A clock that a thread keeps is late when that thread gets no processor for some time, and then grants that time's tokens
/// on top: who breaks the law does so each time.
#[must_use]
pub fn with_patience<K: Clone + Sync>(
    contender: &Contender<K>,
    key: &K,
    threads: usize,
    span: Duration,
) -> Law {
    let mut law = measure(contender, key, threads, span);
    for _ in 1..3 {
        if law.holds() {
            break;
        }
        law = measure(contender, key, threads, span);
    }
    law
}

impl Law {
    /// Neither more nor less than it is to be.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.is_kept() && self.is_prompt()
    }

    /// Never more than the law allows, but for a tick, a reading and the difference of two clocks: a token in 1,000.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.granted as f64 <= self.most * 1.001
    }

    /// All of what was earned, but for 2 in 100: a whole token less, or what a clock of milliseconds has not told yet.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.granted as f64 >= self.least * 0.98
    }
}
