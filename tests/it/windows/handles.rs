// promise: law, never-late
//! Each verb by each handle.

use super::*;

type Take<'a> = &'a dyn Fn(u64) -> Result<Granted, Denied>;

/// Runs each verb on a window with 10 tokens: by a request, and by a short verb.
fn each_verb<'a, B: Asked<'a, Rule = Window>>(ask: Ask<'a, B>, take: Take<'_>, earlier: Moment, now: Moment) {
    let left = || ask.peek().remaining();
    let take_at = |now, n| ask.n(n).at(now).try_acquire();
    let remaining = |decision: Result<Granted, Denied>| decision.map(|granted| granted.remaining());
    assert_eq!((left(), remaining(take(1)), left()), (10, Ok(9), 9));
    assert_eq!((remaining(take(3)), left()), (Ok(6), 6));
    assert_eq!((remaining(take_at(now, 2)), left()), (Ok(4), 4));
    assert_eq!((ask.n(3).acquire_up_to().tokens(), left()), (3, 1));
    ask.n(4).refund();
    assert_eq!(left(), 5);
    let denied = take(6).unwrap_err();
    assert_eq!((denied.reason(), denied.remaining(), left()), (Reason::Empty, 5, 5));
    assert_eq!(take(11).unwrap_err().reason(), Reason::TooMany);
    // A wait counts from the reading.
    let wait = |decision: Result<Granted, Denied>| decision.unwrap_err().retry_after().unwrap();
    assert_eq!(wait(take_at(earlier, 6)), wait(take_at(now, 6)) + now.since(earlier));
    assert_eq!(wait(take_at(now, 6)), wait(take(6)));
    assert_eq!((ask.n(9).acquire_up_to().tokens(), left()), (5, 0));
    assert!(take(1).is_err() && take(0).is_ok());
    ask.refund();
    assert_eq!((remaining(ask.try_acquire()), left()), (Ok(0), 0));
}

/// Each verb does the same by each handle, in windows of each kind and in either store.
#[test]
fn every_handle_of_a_window_takes_and_gives() {
    for text in KINDS {
        let window: Window = text.parse().unwrap();
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_secs(1_795_500_000));
        let counter = WindowCounter::builder(window).clock(clock.clone()).build();
        assert!(counter.try_acquire_n(0).is_ok());
        let earlier = counter.now();
        mock.advance(Duration::from_secs(1));
        let take = |n| if n == 1 { counter.try_acquire() } else { counter.try_acquire_n(n) };
        each_verb(counter.ask(), &take, earlier, counter.now());
        for inline in [false, true] {
            let builder = RateLimiter::<u64, _>::builder(window).clock(clock.clone());
            let limiter = if inline { builder.max_keys(8).inline().unwrap() } else { builder }.build();
            let earlier = limiter.now();
            mock.advance(Duration::from_secs(1));
            let now = limiter.now();
            assert_eq!((limiter.is_empty(), limiter.len()), (true, 0));
            let take = |n| if n == 1 { limiter.try_acquire(&1) } else { limiter.try_acquire_n(&1, n) };
            each_verb(limiter.key(&1), &take, earlier, now);
            assert_eq!((limiter.is_empty(), limiter.len()), (false, 1));
            let pinned = limiter.pin();
            let take = |n| if n == 1 { pinned.try_acquire(&2) } else { pinned.try_acquire_n(&2, n) };
            each_verb(pinned.key(&2), &take, earlier, now);
            assert_eq!(limiter.len(), 2);
        }
    }
}

const KINDS: [&str; 5] =
    ["10/h fixed", "10/d fixed utc", "10/month fixed utc", "10/15m sliding", "10/h weighted"];

/// A removed key has all tokens again. In a table its entry stays until the window is over.
#[test]
fn a_removal_forgets_the_tokens() {
    for (inline, stays) in [(false, false), (true, true)] {
        let builder = RateLimiter::<u64, _>::builder(Window::per_hour(10)).clock(Clock::mock().0);
        let limiter = if inline { builder.max_keys(8).inline().unwrap() } else { builder }.build();
        assert!(!limiter.remove(&1), "it is unknown");
        assert!(limiter.try_acquire_n(&1, 4).is_ok());
        assert!(limiter.remove(&1));
        assert_eq!(limiter.peek(&1).remaining(), 10);
        assert_eq!(limiter.remove(&1), stays);
    }
}

/// A hold takes its estimate, and gives back the tokens above the cost.
#[test]
fn every_handle_of_a_window_holds_an_estimate() {
    let (window, clock) = (Window::per_hour(10), Clock::mock().0);
    let counter = WindowCounter::builder(window).clock(clock.clone()).build();
    let limiter = RateLimiter::<u64, _>::builder(window).clock(clock).build();
    let left = || [counter.peek(), limiter.peek(&1), limiter.peek(&2)].map(|peek| peek.remaining());
    let pinned = limiter.pin();
    let holds = [counter.ask().n(4).hold(), limiter.key(&1).n(4).hold(), pinned.key(&2).n(4).hold()];
    let holds = holds.map(Result::unwrap);
    assert_eq!(left(), [6; 3]);
    assert_eq!(holds.map(|hold| hold.settle(1)), [0; 3], "all of the cost is counted");
    assert_eq!(left(), [9; 3]);
}
