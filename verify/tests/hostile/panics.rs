// promise: hostile-keys
//! Keys whose `Hash`, `Eq`, `Clone` and `Drop` panic one time in 37.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, exit};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, iter};

use tollgate::{Clock, Quota, RateLimiter, WhenFull};
use tollgate_testing::Random;
use tollgate_verify::watchdog::Watchdog;

const THREADS: u64 = 8;
const CALLS: u64 = 200_000;
const ONE_IN: u64 = 37;

#[derive(Clone, Copy)]
enum In {
    Hash,
    Eq,
    Clone,
    Drop,
}

/// Calls of each method, and panics in it.
static CALLED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static PANICS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

thread_local! {
    /// Whether keys panic on this thread.
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static RANDOM: RefCell<Random> = const { RefCell::new(Random(0)) };
}

fn may_panic(place: In) {
    CALLED[place as usize].fetch_add(1, Relaxed);
    // A second panic, in a drop during unwinding, would end the process by Rust's rule.
    if ARMED.get() && !thread::panicking() && RANDOM.with_borrow_mut(|random| random.below(ONE_IN)) == 0 {
        PANICS[place as usize].fetch_add(1, Relaxed);
        // The panic prints no message.
        resume_unwind(Box::new("planted"));
    }
}

struct Rough(u64);

impl Hash for Rough {
    fn hash<H: Hasher>(&self, state: &mut H) {
        may_panic(In::Hash);
        self.0.hash(state);
    }
}

impl PartialEq for Rough {
    fn eq(&self, other: &Rough) -> bool {
        may_panic(In::Eq);
        self.0 == other.0
    }
}

impl Eq for Rough {}

impl Clone for Rough {
    fn clone(&self) -> Rough {
        may_panic(In::Clone);
        Rough(self.0)
    }
}

impl Drop for Rough {
    fn drop(&mut self) {
        may_panic(In::Drop);
    }
}

/// Calls with keys that panic. Returns `None` if one did.
fn armed<R>(call: impl FnOnce() -> R) -> Option<R> {
    ARMED.set(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    ARMED.set(false);
    match result {
        Ok(result) => Some(result),
        Err(panic) if panic.downcast_ref() == Some(&"planted") => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Returns a key to ask by, which is not dropped.
fn ask(key: u64) -> ManuallyDrop<Rough> {
    ManuallyDrop::new(Rough(key))
}

const HOT: u64 = 64;
const ROOM: usize = 20_000;
const BURST: u64 = 5;
const TOKEN: Duration = Duration::from_secs(10);
/// Longer than the time to fill and the margin.
const LEAP: Duration = Duration::from_secs(60);

/// Mixes keys that come again and again with others that come once, so that the map grows and
/// buckets are evicted. A key may have a burst at first, and one for each leap of the clock, once
/// in `between` calls.
fn survives(policy: WhenFull, between: u64, inline: bool) {
    let (clock, mock) = Clock::mock();
    let quota = Quota::every(TOKEN).burst(BURST);
    let limiter = RateLimiter::<Rough>::builder(quota).clock(clock).when_full(policy);
    // A table has twice the room, so that every key finds a place.
    let limiter =
        if inline { limiter.max_keys(2 * ROOM).inline().unwrap() } else { limiter.max_keys(ROOM) }.build();
    let granted: Vec<_> = (0..HOT).map(|_| AtomicU64::new(0)).collect();
    let calls = AtomicU64::new(0);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (limiter, mock, granted, calls) = (&limiter, &mock, &granted, &calls);
            scope.spawn(move || {
                RANDOM.set(Random(index));
                let mut random = Random(!index);
                loop {
                    let call = calls.fetch_add(1, Relaxed);
                    if call >= CALLS {
                        return;
                    }
                    if call % between == between - 1 {
                        mock.advance(LEAP);
                    }
                    let once = ask(HOT + call);
                    let _ = match random.below(1_000) {
                        0 => armed(|| limiter.evict_idle() > 0),
                        // A key that came before, if it was let in.
                        1..50 => armed(|| limiter.remove(&*ask(HOT + random.below(call + 1)))),
                        50..500 => {
                            let key = random.below(HOT);
                            let decision = armed(|| limiter.try_acquire(&*ask(key)).is_ok());
                            granted[key as usize].fetch_add(u64::from(decision == Some(true)), Relaxed);
                            decision
                        }
                        500..550 => armed(|| limiter.key(&*once).n(2).reserve().is_ok()),
                        _ => armed(|| limiter.try_acquire(&*once).is_ok()),
                    };
                }
            });
        }
    });

    let most = BURST * (CALLS / between + 1);
    let granted: Vec<_> = granted.into_iter().map(AtomicU64::into_inner).collect();
    let all: u64 = granted.iter().sum();
    println!("{policy:?}, inline {inline}: {all} granted of {}, {:?}", most * HOT, limiter.stats());
    for (key, granted) in granted.iter().enumerate() {
        assert!(*granted <= most, "key {key}: {granted} granted, not {most}");
    }

    // The limiter still works: every place can be had, and each key gets its burst, to the token.
    mock.advance(LEAP);
    limiter.evict_idle();
    assert!(limiter.is_empty(), "{} keys are stuck", limiter.len());
    for key in 0..ROOM as u64 {
        for left in (0..BURST).rev() {
            let decision = limiter.try_acquire(&*ask(key)).map(|granted| granted.remaining());
            assert_eq!(decision, Ok(left), "key {key}");
        }
        assert!(limiter.try_acquire(&*ask(key)).is_err(), "key {key}");
    }
    assert_eq!(limiter.len(), ROOM);
    mock.advance(LEAP);
    assert_eq!(limiter.evict_idle(), ROOM);
}

#[test]
fn a_limiter_survives_keys_that_panic() {
    let _watchdog = Watchdog::of("keys that panic", 600);
    // With few leaps each key takes all it may, and with many leaps few keys are dropped at a time.
    for (policy, between) in [(WhenFull::Share, 2_000), (WhenFull::Deny, 2_000), (WhenFull::Share, 100)] {
        survives(policy, between, false);
    }
    // A table calls `Hash` alone, and has no keys to drop.
    survives(WhenFull::Share, 2_000, true);
    survives(WhenFull::Deny, 100, true);
    let [called, panics] =
        [&CALLED, &PANICS].map(|counts| counts.each_ref().map(|count| count.load(Relaxed)));
    println!("Hash, Eq, Clone and Drop: {called:?} calls, {panics:?} panics");
    // The map drops keys many at a time. The first panic ends that, and the rest leak, so drops
    // rarely panic.
    assert!(panics[..3].iter().all(|panics| *panics > 1_000) && panics[3] > 10, "{panics:?}");
}

const CHILD: &str = "TOLLGATE_VERIFY_PLAIN_MAP";
/// The exit code of a child in which no call returns any more.
const HANGS: i32 = 3;

/// The control: the plain map hangs with the same keys.
///
/// A panic in `Hash` while the map moves to a larger table leaves an entry as being moved for ever.
/// A thread that writes to that entry waits. (With keys that never panic the same work ends.)
#[test]
fn a_plain_map_with_such_keys_hangs() {
    let _watchdog = Watchdog::of("the control", 600);
    let child = |armed: &str| {
        let program = env::current_exe().expect("a test is a program");
        let child = ["--exact", "panics::plain_map", "--ignored", "--nocapture"];
        Command::new(program).args(child).env(CHILD, armed).status().expect("it starts").code()
    };
    assert_eq!(child("no"), Some(0), "without panics it ends");
    assert_eq!(child("yes"), Some(HANGS), "with panics it hangs");
}

#[test]
#[ignore = "the child of the control: it hangs on purpose"]
fn plain_map() {
    let Ok(word) = env::var(CHILD) else { return };
    let map = papaya::HashMap::<Rough, u64>::new();
    let (calls, returned) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (map, calls, returned, word) = (&map, &calls, &returned, &word);
            scope.spawn(move || {
                RANDOM.set(Random(index));
                let mut random = Random(!index);
                loop {
                    let call = calls.fetch_add(1, Relaxed);
                    if call >= CALLS {
                        return;
                    }
                    let insert = |key| {
                        map.pin().insert(Rough(key), key);
                    };
                    // A new key, or a known one.
                    let key = if random.below(2) == 0 { call } else { random.below(call + 1) };
                    match word.as_str() {
                        "yes" => armed(|| insert(key)).unwrap_or_default(),
                        _ => insert(key),
                    }
                    returned.fetch_add(1, Relaxed);
                }
            });
        }
        // A call takes microseconds. If none has returned for 10 s, the others never will.
        let mut last = (0, Instant::now());
        for now in iter::repeat_with(|| returned.load(Relaxed)) {
            if now == CALLS {
                break;
            }
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > Duration::from_secs(10) {
                println!("of {CALLS} calls {now} returned, and no more do");
                exit(HANGS);
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
}
