// promise: never-late
//! Waiting on tokio's paused clock: whole runs take no time, and every time is exact.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::{Clock, Quota, RateLimiter, Reason, TokenBucket, WhenFull};

use super::InStore;
use crate::support::Random;

/// Returns a clock that stands while tokio's is paused.
fn tokios() -> Clock {
    let start = Instant::now();
    Clock::from_fn(move || start.elapsed())
}

fn on_a_paused_clock<F: Future>(run: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without a driver for sockets").block_on(run)
}

const BURST: u64 = 10;
const TASKS: u64 = 1_000;
const RATE: u64 = 10_000;

/// Returns a bucket of 10,000 a second and a burst of 10, with room for 1,000 in debt.
fn line(clock: Clock) -> TokenBucket {
    let quota = Quota::per_second(RATE).burst(BURST);
    TokenBucket::builder(quota).max_debt(TASKS).unwrap().clock(clock).build()
}

/// The outcome of a run of [`TASKS`] waiters, some of which leave.
#[derive(Debug, Default)]
struct Run {
    /// Tasks and times of the grants, in order.
    granted: Vec<(u64, Duration)>,
    /// Tasks that were dropped while waiting, in order.
    dropped: Vec<u64>,
}

/// Runs tasks that arrive at once, in order. Task `i` is dropped after `leaves(i)`, if it still
/// waits.
async fn wait_in_line(bucket: Arc<TokenBucket>, leaves: impl Fn(u64) -> Option<Duration>) -> Run {
    let (start, run) = (Instant::now(), Arc::new(Mutex::new(Run::default())));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (bucket, run, leaves) = (bucket.clone(), run.clone(), leaves(task));
            tokio::spawn(async move {
                let patience = sleep(leaves.unwrap_or(Duration::MAX));
                tokio::select! {
                    biased;
                    granted = bucket.ask().acquire() => {
                        assert_eq!(granted.expect("there is room for all").tokens(), 1);
                        run.lock().unwrap().granted.push((task, start.elapsed()));
                    }
                    () = patience => run.lock().unwrap().dropped.push(task),
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task panics");
    }
    Arc::into_inner(run).expect("all tasks have ended").into_inner().unwrap()
}

/// Returns the time at which the token of this place in line has been earned.
fn promised(place: u64) -> Duration {
    Duration::from_micros(100) * u32::try_from((place + 1).saturating_sub(BURST)).unwrap()
}

#[test]
fn a_thousand_waiters_are_served_in_order_of_arrival() {
    on_a_paused_clock(async {
        let bucket = Arc::new(line(tokios()));
        let run = wait_in_line(bucket.clone(), |_| None).await;
        assert!(run.granted.iter().map(|(task, _)| *task).eq(0..TASKS), "{run:?}");
        for (task, at) in &run.granted {
            // Tokio's timer rounds up to a millisecond.
            let due = promised(*task);
            assert!((due..due + Duration::from_millis(1)).contains(at), "task {task} at {at:?}, due {due:?}");
        }
    });
}

/// A third of the tasks leave at random. All behind one that leaves move up, and the tokens at the
/// end go back to the bucket.
#[test]
fn a_third_of_the_waiters_leave() {
    for seed in 0..20 {
        on_a_paused_clock(async {
            let mut random = Random(seed);
            let leaves: Vec<_> = (0..TASKS)
                .map(|_| (random.below(3) == 0).then(|| Duration::from_micros(random.below(100_000))))
                .collect();
            let bucket = Arc::new(line(tokios()));
            let start = bucket.now();
            let run = wait_in_line(bucket.clone(), |task| leaves[task as usize]).await;
            assert_eq!(run.granted.len() + run.dropped.len(), TASKS as usize);
            assert!(run.dropped.len() > 100, "{} left", run.dropped.len());
            // The scheduler orders the tasks that wake at one instant.
            for pair in run.granted.windows(2) {
                assert!(pair[0].0 < pair[1].0 || pair[0].1 == pair[1].1, "{pair:?} of {run:?}");
            }

            // A token for each that was served, and none for the others. A timer may wake a
            // millisecond late.
            let served = run.granted.len() as u64;
            let (_, at) = *run.granted.last().unwrap();
            let (due, late) = (promised(served - 1), Duration::from_millis(1));
            assert!((due..=due + late).contains(&at), "{at:?}, due {due:?}");
            let earned = bucket.now().since(start).as_micros() as u64 / 100;
            let content = (BURST + earned).checked_sub(served).expect("a token for each");
            assert_eq!(bucket.peek().remaining(), content.min(BURST));
        });
    }
}

#[test]
fn a_deadline_fails_at_once() {
    on_a_paused_clock(async {
        let bucket = TokenBucket::builder(Quota::per_second(10).burst(1)).clock(tokios()).build();
        assert!(bucket.ask().acquire().await.is_ok());
        let start = Instant::now();
        let denied = bucket.ask().within(Duration::from_millis(99)).acquire().await.unwrap_err();
        assert_eq!((denied.reason(), start.elapsed()), (Reason::Deadline, Duration::ZERO));
        assert!(bucket.ask().within(Duration::from_millis(100)).acquire().await.is_ok());
        assert_eq!(start.elapsed(), Duration::from_millis(100));
        let denied = bucket.ask().n(2).acquire().await.unwrap_err();
        assert_eq!((denied.reason(), start.elapsed()), (Reason::TooMany, Duration::from_millis(100)));
    });
}

#[test]
fn keys_wait_each_in_a_line_of_their_own() {
    on_a_paused_clock(async {
        let quota = Quota::per_second(10).burst(1);
        let limiter = RateLimiter::<String>::stored(quota).clock(tokios()).build();
        let start = Instant::now();
        let (ada, bob) = tokio::join!(
            async {
                limiter.key("ada").acquire().await.unwrap();
                limiter.key("ada").acquire().await.unwrap();
                start.elapsed()
            },
            async {
                limiter.key("bob").acquire().await.unwrap();
                start.elapsed()
            },
        );
        assert_eq!((ada, bob), (Duration::from_millis(100), Duration::ZERO));
    });
}

/// Tasks that are turned away wait for those before them, and poll no timer meanwhile.
#[test]
fn tasks_keep_their_order_when_their_key_is_forgotten() {
    on_a_paused_clock(async {
        let quota = Quota::per_second(10).burst(1);
        let limiter = Arc::new(RateLimiter::<u64>::stored(quota).clock(tokios()).build());
        limiter.key(&1).acquire().await.unwrap();
        let served = Arc::new(Mutex::new(Vec::new()));
        let tasks = [(); 10].map(|()| limiter.clone()).into_iter().enumerate().map(|(place, limiter)| {
            let served = served.clone();
            tokio::spawn(async move {
                limiter.key(&1).acquire().await.unwrap();
                served.lock().unwrap().push(place);
            })
        });
        let tasks: Vec<_> = tasks.collect();
        for _ in 0..3 {
            sleep(Duration::from_millis(150)).await;
            limiter.remove(&1);
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert!(served.lock().unwrap().is_sorted());
    });
}

/// Each verb of a key waits for its tokens, or refuses a longer wait at once.
#[test]
fn each_verb_of_a_key_waits_as_long_as_it_says() {
    on_a_paused_clock(async {
        let start = Instant::now();
        let limiter = RateLimiter::<String>::stored(Quota::per_second(1).burst(2)).clock(tokios()).build();
        let (short, long) = (Duration::from_millis(999), Duration::from_secs(10));
        assert_eq!(limiter.key("ada").n(2).acquire().await.map(|granted| granted.tokens()), Ok(2));
        let late = [
            limiter.key("ada").within(short).acquire().await,
            limiter.key("ada").n(2).within(short).acquire().await,
        ];
        assert_eq!(late.map(|late| late.unwrap_err().reason()), [Reason::Deadline; 2]);
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(limiter.key("ada").within(long).acquire().await.is_ok());
        assert_eq!(
            limiter.key("ada").n(2).within(long).acquire().await.map(|granted| granted.tokens()),
            Ok(2)
        );
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    });
}

/// An action of a limiter runs when its token comes.
#[test]
fn an_action_keeps_the_pace() {
    on_a_paused_clock(async {
        let start = Instant::now();
        let bucket = TokenBucket::builder(Quota::per_second(1).burst(2)).clock(tokios()).build();
        let double = bucket.ask().limited(async |n: u64| 2 * n);
        for seconds in [0, 0, 1, 2] {
            assert_eq!((double.call(4).await, start.elapsed()), (Ok(8), Duration::from_secs(seconds)));
        }
        // No token ever comes.
        let denies = RateLimiter::<u8>::builder(Quota::per_second(1)).max_keys(0).when_full(WhenFull::Deny);
        let denies = denies.clock(tokios()).build();
        assert!(denies.key(&1).limited(async |n: u64| n).call(4).await.is_err());
    });
}

/// A caller that keeps a part has no place in line: it tries again when its tokens and the part are
/// there. Callers without a part are served first.
#[test]
fn a_caller_that_keeps_a_part_waits_behind_all_others() {
    on_a_paused_clock(async {
        let start = Instant::now();
        let bucket = TokenBucket::builder(Quota::per_second(1).burst(4)).clock(tokios()).build();
        let limiter = RateLimiter::<String>::stored(Quota::per_second(1).burst(4)).clock(tokios()).build();
        let second = Duration::from_secs;
        assert!(bucket.try_acquire_n(4).is_ok() && limiter.try_acquire_n("ada", 4).is_ok());
        // Alone, both wait for one token and two kept ones.
        let waits = tokio::join!(bucket.ask().keep(50).acquire(), limiter.key("ada").keep(50).acquire());
        assert!(waits.0.is_ok_and(|granted| granted.remaining() == 2) && waits.1.is_ok());
        assert_eq!(start.elapsed(), second(3));
        // A longer wait is refused at once, also one that counts from a moment.
        let (then, now) = (bucket.now(), start.elapsed());
        sleep(second(1)).await;
        let ask = bucket.ask().n(2).keep(50);
        let refused =
            [ask.within(second(0)).acquire().await, ask.at(then).within(second(1) * 3 / 2).acquire().await];
        assert_eq!(refused.map(|refused| refused.unwrap_err().reason()), [Reason::Empty, Reason::Deadline]);
        assert_eq!(start.elapsed(), now + second(1));
        // Three tokens are there, and the fourth goes to the other caller.
        let kept = async { (ask.acquire().await.is_ok(), start.elapsed()) };
        let other = async { (bucket.ask().n(4).acquire().await.is_ok(), start.elapsed()) };
        let (kept, other) = tokio::join!(kept, other);
        assert_eq!((other.0, other.1 - now), (true, second(2)));
        assert_eq!((kept.0, kept.1 - now), (true, second(6)));
    });
}
