// promise: law, never-late
//! Each verb by each handle.

use super::*;

/// A window by one of its handles, with 10 tokens.
trait Handle {
    fn take(&self) -> Result<Granted, Denied>;
    fn take_n(&self, n: u64) -> Result<Granted, Denied>;
    fn take_at(&self, now: Moment, n: u64) -> Result<Granted, Denied>;
    fn take_up_to(&self, n: u64) -> Granted;
    fn give(&self, n: u64);
    fn look(&self) -> Snapshot;
}

macro_rules! handle {
    ($handle:ty, $window:ident $(, $key:expr)?) => {
        impl Handle for $handle {
            fn take(&self) -> Result<Granted, Denied> {
                self.$window.try_acquire($($key)?)
            }

            fn take_n(&self, n: u64) -> Result<Granted, Denied> {
                self.$window.try_acquire_n($($key,)? n)
            }

            fn take_at(&self, now: Moment, n: u64) -> Result<Granted, Denied> {
                self.$window.try_acquire_at(now, $($key,)? n)
            }

            fn take_up_to(&self, n: u64) -> Granted {
                self.$window.acquire_up_to($($key,)? n)
            }

            fn give(&self, n: u64) {
                self.$window.refund($($key,)? n);
            }

            fn look(&self) -> Snapshot {
                self.$window.peek($($key)?)
            }
        }
    };
}

struct Counter {
    window: WindowCounter,
}

struct Keys {
    window: WindowLimiter<u64>,
}

struct Pinned<'a> {
    window: PinnedWindows<'a, u64>,
}

struct Request<'a> {
    window: WindowKey<'a, u64, u64, RandomState>,
}

handle!(Counter, window);
handle!(Keys, window, &1);
handle!(Pinned<'_>, window, &2);

impl Handle for Request<'_> {
    fn take(&self) -> Result<Granted, Denied> {
        self.window.try_acquire()
    }

    fn take_n(&self, n: u64) -> Result<Granted, Denied> {
        self.window.n(n).try_acquire()
    }

    fn take_at(&self, now: Moment, n: u64) -> Result<Granted, Denied> {
        self.window.n(n).try_acquire_at(now)
    }

    fn take_up_to(&self, n: u64) -> Granted {
        self.window.n(n).acquire_up_to()
    }

    fn give(&self, n: u64) {
        self.window.n(n).refund();
    }

    fn look(&self) -> Snapshot {
        self.window.peek()
    }
}

fn each_verb(handle: &dyn Handle, earlier: Moment, now: Moment) {
    let left = || handle.look().remaining();
    let remaining = |decision: Result<Granted, Denied>| decision.map(|granted| granted.remaining());
    assert_eq!((left(), remaining(handle.take()), left()), (10, Ok(9), 9));
    assert_eq!((remaining(handle.take_n(3)), left()), (Ok(6), 6));
    assert_eq!((remaining(handle.take_at(now, 2)), left()), (Ok(4), 4));
    assert_eq!((handle.take_up_to(3).tokens(), left()), (3, 1));
    handle.give(4);
    assert_eq!(left(), 5);
    let denied = handle.take_n(6).unwrap_err();
    assert_eq!((denied.reason(), denied.remaining(), left()), (Reason::Empty, 5, 5));
    assert_eq!(handle.take_n(11).unwrap_err().reason(), Reason::TooMany);
    // A wait counts from the reading.
    let wait = |decision: Result<Granted, Denied>| decision.unwrap_err().retry_after().unwrap();
    assert_eq!(wait(handle.take_at(earlier, 6)), wait(handle.take_at(now, 6)) + now.since(earlier));
    assert_eq!(wait(handle.take_at(now, 6)), wait(handle.take_n(6)));
    assert_eq!((handle.take_up_to(9).tokens(), left()), (5, 0));
    assert!(handle.take().is_err() && handle.take_n(0).is_ok());
    handle.give(1);
    assert_eq!((remaining(handle.take()), left()), (Ok(0), 0));
}

/// Each verb does the same by each handle, in windows of each kind and in either store.
#[test]
fn every_handle_of_a_window_takes_and_gives() {
    for text in KINDS {
        let window: Window = text.parse().unwrap();
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_secs(1_795_500_000));
        let counter = Counter { window: WindowCounter::builder(window).clock(clock.clone()).build() };
        assert!(counter.window.try_acquire_n(0).is_ok());
        let earlier = counter.window.now();
        mock.advance(Duration::from_secs(1));
        each_verb(&counter, earlier, counter.window.now());
        for inline in [false, true] {
            let builder = WindowLimiter::<u64>::builder(window).clock(clock.clone());
            let limiter = if inline { builder.inline(8).unwrap() } else { builder }.build();
            let earlier = limiter.now();
            mock.advance(Duration::from_secs(1));
            let now = limiter.now();
            assert_eq!((limiter.is_empty(), limiter.len()), (true, 0));
            let keys = Keys { window: limiter.clone() };
            each_verb(&keys, earlier, now);
            assert_eq!((limiter.is_empty(), limiter.len()), (false, 1));
            each_verb(&Pinned { window: limiter.pin() }, earlier, now);
            each_verb(&Request { window: limiter.key(&3) }, earlier, now);
            assert_eq!(limiter.len(), 3);
        }
    }
}

const KINDS: [&str; 5] =
    ["10/h fixed", "10/d fixed utc", "10/month fixed utc", "10/15m sliding", "10/h weighted"];

/// A removed key has all tokens again. In a table its entry stays until the window is over.
#[test]
fn a_removal_forgets_the_tokens_by_every_handle() {
    for (inline, stays) in [(false, false), (true, true)] {
        let builder = WindowLimiter::<u64>::builder(Window::per_hour(10)).clock(Clock::mock().0);
        let limiter = if inline { builder.inline(8).unwrap() } else { builder }.build();
        let remove: [&dyn Fn(&u64) -> bool; 2] =
            [&|key| limiter.remove(key), &|key| limiter.pin().remove(key)];
        for (key, remove) in (0..).zip(remove) {
            assert!(!remove(&key), "it is unknown");
            assert!(limiter.try_acquire_n(&key, 4).is_ok());
            assert!(remove(&key));
            assert_eq!(limiter.peek(&key).remaining(), 10);
            assert_eq!(remove(&key), stays);
        }
    }
}

/// A hold takes its estimate, and gives back the tokens above the cost.
#[test]
fn every_handle_of_a_window_holds_an_estimate() {
    let (window, clock) = (Window::per_hour(10), Clock::mock().0);
    let counter = WindowCounter::builder(window).clock(clock.clone()).build();
    let limiter = WindowLimiter::<u64>::builder(window).clock(clock).build();
    let left = || [counter.peek(), limiter.peek(&1), limiter.peek(&2)].map(|peek| peek.remaining());
    let holds = [counter.hold(4), limiter.hold(&1, 4), limiter.key(&2).n(4).hold()].map(Result::unwrap);
    assert_eq!(left(), [6; 3]);
    assert_eq!(holds.map(|hold| hold.settle(1)), [0; 3], "all of the cost is counted");
    assert_eq!(left(), [9; 3]);
}
