//! Whether a contender limits: its grants on the real clock, against `burst + rate * T`.

use std::time::{Duration, Instant};

use tollgate::Quota;

use crate::results::Law;
use crate::timing::on_threads;
use crate::{Contender, Setup};

/// The quota. A bucket takes a second to fill, so it loses no tokens in a pause of all threads.
const QUOTA: Quota = Quota::per_second(RATE).burst(BURST);
const RATE: u64 = 100_000;
const BURST: u64 = 100_000;

/// Decisions asked for at once through the timed loop, few enough that the clock moves on between
/// two batches.
const BATCH: usize = 100;

/// Returns the tokens that `threads` threads get of `key`'s bucket in `span`, asking without a
/// pause.
pub fn measure<K: Clone + Sync>(contender: &Contender<K>, key: &K, threads: usize, span: Duration) -> Law {
    let limiter = (contender.make)(Setup { quota: QUOTA, keys: 1 });
    let batch = vec![key.clone(); BATCH];
    let take = || limiter.count_granted(&batch);
    let take_all = || {
        let mut all = 0;
        // A limiter that grants all would never end it.
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
    let take_for_a_while = |_| {
        let mut granted = 0;
        while empty.elapsed() < span {
            granted += take();
        }
        granted
    };
    granted += on_threads(threads, take_for_a_while).iter().sum::<u64>();
    // A pause of all threads at the end earns more than a batch.
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

/// Returns the tokens that `threads` threads get of one window of 1,000 a second within 1.2 s,
/// asking without a pause. The slowest contender, without optimization, asks for more.
///
/// A bucket and the windows of each kind grant between one limit and four: the last second has two
/// edges, and a reading may be late.
pub fn of_windows(contender: &Contender<()>, threads: usize) -> Law {
    const LIMIT: u64 = 1_000;
    let limiter = (contender.make)(Setup { quota: Quota::per_second(LIMIT).burst(LIMIT), keys: 1 });
    let start = Instant::now();
    let take = |_| {
        let mut granted = 0;
        while start.elapsed() < Duration::from_millis(1_200) {
            granted += limiter.count_granted(&[(); BATCH]);
        }
        granted
    };
    Law {
        kind: String::new(),
        contender: contender.name.to_owned(),
        threads,
        granted: on_threads(threads, take).iter().sum(),
        least: LIMIT as f64,
        most: 4.0 * LIMIT as f64,
    }
}

/// Measures up to three times, until the law is kept.
///
/// A clock that a thread keeps is late while that thread gets no processor, and grants the tokens
/// of that time on top. A contender that breaks the law does so each time.
pub fn with_patience<K: Clone + Sync>(
    contender: &Contender<K>,
    key: &K,
    threads: usize,
    span: Duration,
) -> Law {
    let again = || measure(contender, key, threads, span);
    (1..3).fold(again(), |law, _| if law.holds() { law } else { again() })
}

impl Law {
    /// Returns whether the grants are neither more than allowed nor less than owed.
    pub fn holds(&self) -> bool {
        self.is_kept() && self.is_prompt()
    }

    /// Returns whether the grants are at most those allowed. A tick, a reading and the difference
    /// of two clocks may add a token in 1,000.
    pub fn is_kept(&self) -> bool {
        self.granted as f64 <= self.most * 1.001
    }

    /// Returns whether the grants are at least 98 in 100 of those owed. A whole token, or the last
    /// tick of a clock of milliseconds, may be missing.
    pub fn is_prompt(&self) -> bool {
        self.granted as f64 >= self.least * 0.98
    }
}
