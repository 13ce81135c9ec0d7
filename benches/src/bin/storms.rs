//! Callers that join a line and leave it: the time of 4,000 and of 16,000 beside tokio's
//! `Semaphore`.
//!
//! `cargo run --release --features waiting --bin storms`. All callers come to an empty bucket, and
//! leave before any token is earned: in order, and in a random one. Four times the callers take
//! four times the time, and some more for the logarithm of their number.

use std::future::pending;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tollgate::{Quota, TokenBucket};

/// Runs of which the shortest time of each batch counts: so other programs do not.
const RUNS: usize = 15;
const BATCH: usize = 50;

/// Returns the times in which the batches of callers join and leave.
fn storm<F: Future>(callers: usize, shuffled: bool, mut join: impl FnMut(usize) -> F) -> [Vec<Duration>; 2] {
    let context = &mut Context::from_waker(Waker::noop());
    let mut waiting: Vec<Option<Pin<Box<F>>>> = (0..callers).map(|_| None).collect();
    let batches = |run: &mut dyn FnMut(usize)| {
        let starts = (0..callers).step_by(BATCH);
        let time = |start| {
            let begun = Instant::now();
            (start..start + BATCH).for_each(&mut *run);
            begun.elapsed()
        };
        starts.map(time).collect()
    };
    let joins = batches(&mut |caller| {
        let mut future = Box::pin(join(caller));
        assert!(future.as_mut().poll(context).is_pending());
        waiting[caller] = Some(future);
    });
    let leaves = batches(&mut |caller| {
        // 7,919 is a prime, and divides no number of callers.
        waiting[if shuffled { caller * 7_919 % callers } else { caller }] = None;
    });
    black_box(&waiting);
    [joins, leaves]
}

/// Returns the sums of the shortest times of the batches in some runs, each on its own limiter.
fn shortest(mut run: impl FnMut() -> [Vec<Duration>; 2]) -> [Duration; 2] {
    let mut best = run();
    for _ in 1..RUNS {
        for (best, times) in best.iter_mut().zip(run()) {
            best.iter_mut().zip(times).for_each(|(best, time)| *best = time.min(*best));
        }
    }
    best.map(|times| times.iter().sum())
}

/// Returns the times of a bucket with a bound on its debt, and a reservation behind every `apart`th
/// caller.
fn ours(callers: usize, shuffled: bool, debt: Option<u64>, apart: Option<usize>) -> [Duration; 2] {
    shortest(|| {
        let builder = TokenBucket::builder(Quota::per_hour(1_000).burst(100));
        let bucket = match debt {
            Some(debt) => builder.max_debt(debt).expect("the word has room for it").build(),
            None => builder.build(),
        };
        assert!(bucket.try_acquire_n(100).is_ok());
        storm(callers, shuffled, |caller| {
            if apart.is_some_and(|apart| caller % apart == 0) {
                let _ = bucket.ask().reserve().expect("the debt has room").commit();
            }
            bucket.ask().acquire_by(|_| pending())
        })
    })
}

fn main() {
    let tokios = |callers, shuffled| {
        shortest(|| {
            let semaphore = Semaphore::new(0);
            storm(callers, shuffled, |_| semaphore.acquire())
        })
    };
    let promised = Some(1 << 20);
    let shapes: [(&str, Option<u64>, Option<usize>); 4] = [
        ("the debt is a burst", None, None),
        ("all are promised", promised, None),
        ("a reservation in a hundred", promised, Some(100)),
        ("a reservation between each two", promised, Some(1)),
    ];
    for shuffled in [false, true] {
        let [few, many] = [4_000, 16_000].map(|callers| tokios(callers, shuffled));
        println!("leaving {}:", if shuffled { "in a random order" } else { "in order" });
        let show = |name: &str, [join, leave]: [Duration; 2], [join_many, leave_many]: [Duration; 2]| {
            let each = |time: Duration, callers: u32| time.as_nanos() / u128::from(callers);
            let ratio = |many: Duration, few: Duration| many.as_secs_f64() / few.as_secs_f64();
            println!(
                "  {name:32} join {:4} ns, leave {:4} ns; 16,000 to 4,000: {:.2} and {:.2}; to tokio: {:.1} and {:.1}",
                each(join_many, 16_000),
                each(leave_many, 16_000),
                ratio(join_many, join),
                ratio(leave_many, leave),
                ratio(join_many, many[0]),
                ratio(leave_many, many[1]),
            );
        };
        show("tokio's Semaphore", few, many);
        for (name, debt, apart) in shapes {
            let [few, many] = [4_000, 16_000].map(|callers| ours(callers, shuffled, debt, apart));
            show(name, few, many);
        }
    }
}
