//! Single decisions during a flood of new keys, during evictions and during sweeps.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::Quota;

use super::effort::{Effort, say};
use super::single::{Watch, quantiles};
use super::throughput::held;
use crate::results::{Case, Latencies};
use crate::{Contender, Setup};

/// The times of single decisions, and notes.
type Watched = (Watch, Vec<(String, String)>);

fn each(
    what: &str,
    keys: usize,
    threads: usize,
    contenders: &[Contender<u64>],
    watch: impl Fn(&Contender<u64>) -> Option<Watched>,
) -> Vec<Latencies> {
    let case = Case { what: what.to_owned(), path: "granted".to_owned(), threads, keys };
    let watched = |contender: &Contender<u64>| {
        say(format_args!("{what}, {}", contender.name));
        let (watch, notes) = watch(contender)?;
        Some(Latencies {
            case: case.clone(),
            contender: contender.name.to_owned(),
            quantiles: quantiles(&watch.histogram),
            p999: vec![watch.p999()],
            decisions: watch.histogram.len(),
            notes,
        })
    };
    contenders.iter().filter_map(watched).collect()
}

/// Times decisions on four times as many new keys as a limiter may hold. None is ever idle: each
/// takes its only token of the hour. A limiter without a bound holds them all.
pub fn flooded(effort: &Effort, contenders: &[Contender<u64>]) -> Vec<Latencies> {
    let keys = effort.flood;
    each("flood of new keys", keys, 1, contenders, |contender| {
        let limiter = (contender.make)(Setup { quota: Quota::per_hour(1), keys });
        let mut watch = Watch::new();
        for key in 0..4 * keys as u64 {
            watch.time(|| limiter.try_acquire(&key));
        }
        Some((watch, Vec::from_iter(held(&*limiter))))
    })
}

/// Times decisions on as many new keys as a limiter may hold, while all the keys it holds are idle.
/// A limiter that makes no room by itself is told to evict, in the first decision.
pub fn evicted(effort: &Effort, contenders: &[Contender<u64>]) -> Vec<Latencies> {
    let keys = effort.flood;
    // Full again after a millisecond.
    let setup = Setup { quota: Quota::per_second(1_000).burst(1), keys };
    let full = |contender: &Contender<u64>| {
        let limiter = (contender.make)(setup);
        (0..keys as u64).for_each(|key| {
            limiter.try_acquire(&key);
        });
        limiter
    };
    let limiters: Vec<_> = contenders.iter().map(full).collect();
    // Longer than tollgate waits before it takes a bucket for idle.
    thread::sleep(Duration::from_secs(3));
    let limiters = RefCell::new(limiters.into_iter());
    each("keys being evicted", keys, 1, contenders, |_| {
        let limiter = limiters.borrow_mut().next()?;
        let mut watch = Watch::new();
        for key in keys as u64..2 * keys as u64 {
            watch.time(|| {
                if !limiter.is_bounded() && key == keys as u64 {
                    limiter.evict_idle();
                }
                limiter.try_acquire(&key)
            });
        }
        Some((watch, Vec::from_iter(held(&*limiter))))
    })
}

/// Times decisions on known keys, while another thread looks for idle keys, of which there are
/// none.
pub fn swept(effort: &Effort, contenders: &[Contender<u64>]) -> Vec<Latencies> {
    let keys = effort.flood;
    each("sweep", keys, 2, contenders, |contender| {
        let limiter = (contender.make)(Setup { quota: Quota::per_hour(1_000_000), keys });
        (0..keys as u64).for_each(|key| {
            limiter.try_acquire(&key);
        });
        let end = AtomicBool::new(false);
        let sweep = || {
            let mut longest = Duration::ZERO;
            let begun = Instant::now();
            while begun.elapsed() < effort.long_window * 4 {
                let start = Instant::now();
                if !limiter.evict_idle() {
                    return None;
                }
                longest = longest.max(start.elapsed());
            }
            Some(longest)
        };
        thread::scope(|scope| {
            let sweeper = scope.spawn(|| {
                let longest = sweep();
                end.store(true, Relaxed);
                longest
            });
            let mut watch = Watch::new();
            let mut key = 0;
            while !end.load(Relaxed) {
                // An order that is not that of a table.
                key = (key + 7_919) & (keys as u64 - 1);
                watch.time(|| limiter.try_acquire(&key));
            }
            let longest = sweeper.join().expect("a sweep does not panic")?;
            Some((watch, vec![("a sweep, ms".to_owned(), format!("{:.1}", longest.as_secs_f64() * 1e3))]))
        })
    })
}
