// promise: law, never-late
//! Holds and moments from before.

use std::collections::VecDeque;

use super::*;

/// A hold of an earlier window gives nothing back to the present one, by each handle and in windows
/// of each kind. A hold of the present window gives its excess back.
#[test]
fn a_hold_of_an_earlier_window_gives_nothing_back() {
    for text in ["5/m fixed", "5/m fixed utc", "5/month fixed utc", "5/m sliding", "5/m weighted"] {
        let window: Window = text.parse().unwrap();
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_secs(1_795_500_000));
        let counter = WindowCounter::builder(window).clock(clock.clone()).build();
        let limiters = [false, true].map(|inline| {
            let builder = RateLimiter::<u64, _>::builder(window).clock(clock.clone());
            if inline { builder.max_keys(8).inline().unwrap() } else { builder }.build()
        });
        let [map, table] = &limiters;
        let hold = |n| {
            [counter.ask().n(n).hold(), map.key(&1).n(n).hold(), table.key(&1).n(n).hold()]
                .map(Result::unwrap)
        };
        let left = || [counter.peek(), map.peek(&1), table.peek(&1)].map(|peek| peek.remaining());
        let holds = hold(5);
        mock.advance(5 * window.period());
        // All of the present window is used.
        assert!(
            [counter.try_acquire_n(5), map.try_acquire_n(&1, 5), table.try_acquire_n(&1, 5)]
                .iter()
                .all(Result::is_ok)
        );
        assert_eq!(holds.map(|hold| hold.settle(0)), [0; 3]);
        assert_eq!(left(), [0; 3], "{text}");
        mock.advance(5 * window.period());
        let holds = hold(3);
        assert_eq!((holds.map(|hold| hold.settle(1)), left()), ([0; 3], [4; 3]), "{text}");
    }
}

/// A window from the first use that a hold began is over a period later, whatever the hold came to.
/// It is over at once if no other caller took.
#[test]
fn a_window_is_over_a_period_after_a_hold_that_is_settled_at_nothing() {
    let second = Duration::from_secs(1);
    for (cost, taken) in [(0, 2), (1, 2), (0, 0)] {
        let (clock, mock) = Clock::mock();
        let window = Window::per_minute(5);
        let counter = WindowCounter::builder(window).clock(clock.clone()).build();
        let build = || RateLimiter::<u64, _>::builder(window).clock(clock.clone());
        let [map, table] = [build().build(), build().max_keys(8).inline().unwrap().build()];
        let [hold, of_map, of_table] =
            [counter.ask().n(2).hold(), map.key(&1).n(2).hold(), table.key(&1).n(2).hold()];
        let take = |n| [counter.try_acquire_n(n), map.try_acquire_n(&1, n), table.try_acquire_n(&1, n)];
        mock.advance(10 * second);
        assert!(take(taken).iter().all(Result::is_ok));
        mock.advance(40 * second);
        assert_eq!([hold, of_map, of_table].map(|hold| hold.unwrap().settle(cost)), [0; 3]);
        let rest = 5 - taken - cost;
        assert!(take(rest).iter().all(Result::is_ok), "the others came back");
        // The window began at 0 s; that of the third row at 50 s.
        let left = if taken + cost == 0 { 60 } else { 10 };
        for denied in take(1).map(Result::unwrap_err) {
            let wait = denied.retry_after().unwrap();
            assert!(wait >= left * second && wait <= left * second + second / 100, "{wait:?} for {left} s");
        }
        mock.advance(left * second + second / 100);
        assert!(take(5).iter().all(Result::is_ok));
    }
}

/// Takes are as many as the limit allows beside holds that come to nothing, if all that is counted
/// at any time is below the limit.
#[test]
fn holds_that_come_to_nothing_lengthen_no_window() {
    let (clock, mock) = Clock::mock();
    let counter = WindowCounter::builder(Window::per_minute(20)).clock(clock).build();
    let mut holds = VecDeque::new();
    for second in 0..3_600_u64 {
        if second % 7 == 0 {
            holds.push_back((second + 13, counter.ask().hold().expect("at most 18 are counted")));
        }
        while holds.front().is_some_and(|(until, _)| *until == second) {
            let (_, hold) = holds.pop_front().expect("it was seen");
            assert_eq!(hold.settle(0), 0);
        }
        // At most 16 in a window, and 2 are held.
        if second % 4 == 0 {
            assert!(counter.try_acquire().is_ok(), "at {second} s");
        }
        mock.advance(Duration::from_secs(1));
    }
}

/// The excess of a hold comes back to a bucket as far as the bucket would have it without the hold,
/// if no other caller took.
#[test]
fn a_late_hold_of_a_bucket_gives_back_what_did_not_spill() {
    let second = Duration::from_secs(1);
    // Held at a full bucket of 5, or at one with 3 left; one token comes each second.
    for (before, after, back) in
        [(0, 0, 4), (0, 1, 4), (0, 3, 2), (0, 300, 0), (2, 1, 3), (2, 3, 2), (2, 6, 0)]
    {
        let (clock, mock) = Clock::mock();
        let bucket = TokenBucket::builder(Quota::per_second(1).burst(5)).clock(clock.clone()).build();
        let limiter = RateLimiter::<u64>::builder(Quota::per_second(1).burst(5)).clock(clock).build();
        let take = |n| assert!(bucket.try_acquire_n(n).is_ok() && limiter.try_acquire_n(&1, n).is_ok());
        take(before);
        let n = 5 - before;
        let holds = [bucket.ask().n(n).hold().unwrap(), limiter.key(&1).n(n).hold().unwrap()];
        mock.advance(after * second);
        let there = bucket.peek().remaining();
        take(there);
        let cost = n.saturating_sub(4);
        assert_eq!(holds.map(|hold| hold.settle(cost)), [0; 2]);
        let left = [bucket.peek(), limiter.peek(&1)].map(|peek| peek.remaining());
        assert_eq!(left, [back; 2], "{before} taken, held for {after} s");
    }
}

/// An earlier reading of any age grants nothing on a bucket that is empty now, whatever the range
/// of its stamp is.
#[test]
fn an_old_moment_fills_no_bucket_whatever_its_age() {
    let mut seed = 5_u64;
    let mut random = move |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 16) % bound
    };
    for (rate, burst) in
        [(100, 200), (1_000_000, 1_000_000), (1_000_000_000, 1 << 30), (100_000_000_000, 1 << 36), (1, 1)]
    {
        let quota = Quota::per_second(rate).burst(burst);
        for walk in 0..200 {
            let (clock, mock) = Clock::mock();
            let bucket = TokenBucket::builder(quota).clock(clock.clone()).build();
            let builder = RateLimiter::<u64>::builder(quota).clock(clock.clone());
            let limiter = if walk % 2 == 0 { builder.max_keys(8).inline().unwrap() } else { builder }.build();
            let mut moments: Vec<Moment> = Vec::new();
            for _ in 0..40 {
                // Up to 2^58 ns, 9 years, in all scales.
                let most = 1 << (10 + random(43));
                mock.advance(Duration::from_nanos(random(most)));
                moments.push(clock.now());
            }
            let (all, pinned) = (quota.capacity(), limiter.pin());
            while bucket.ask().n(all).acquire_up_to().tokens()
                + limiter.key(&1).n(all).acquire_up_to().tokens()
                > 0
            {}
            for then in moments {
                let taken = [
                    bucket.ask().at(then).try_acquire(),
                    limiter.key(&1).at(then).try_acquire(),
                    pinned.key(&1).at(then).try_acquire(),
                    bucket.try_acquire(),
                    limiter.try_acquire(&1),
                ];
                let age = clock.now().since(then);
                assert!(taken.iter().all(Result::is_err), "{quota}: {taken:?} at a moment {age:?} ago");
            }
        }
    }
}

/// A moment of before the clock was set back opens no window of its own time, in turn with
/// decisions of now. Up to two ticks ahead, a reading is that of another core.
#[test]
fn a_moment_of_before_the_clock_was_set_back_opens_no_window() {
    for text in [
        "5/m fixed",
        "5/m sliding",
        "5/m weighted",
        "5/m fixed utc",
        "5/d fixed",
        "5/d fixed utc",
        "5/month fixed utc",
    ] {
        for back in [3, 10, 100] {
            let window: Window = text.parse().unwrap();
            let (clock, mock) = Clock::mock();
            mock.advance(Duration::from_secs(1_795_500_000));
            let counter = WindowCounter::builder(window).clock(clock.clone()).build();
            let limiter = RateLimiter::<u64, _>::builder(window).clock(clock.clone()).build();
            let before = clock.now();
            mock.rewind(window.period() * back);
            let mut granted = [0; 2];
            for _ in 0..5 {
                granted[0] += counter.ask().n(5).acquire_up_to().tokens();
                granted[1] += limiter.key(&1).n(5).acquire_up_to().tokens();
                granted[0] +=
                    counter.ask().n(5).at(before).try_acquire().map_or(0, |granted| granted.tokens());
                granted[1] +=
                    limiter.key(&1).n(5).at(before).try_acquire().map_or(0, |granted| granted.tokens());
            }
            assert_eq!(granted, [5, 5], "{text}, {back} periods back");
        }
    }
}

/// The figures of the page of `Clock`: up to two periods (or 4 s) back counts as behind the latest
/// decision, up to two more (or an hour) in the window of the earlier time, and beyond as unused.
#[test]
fn a_clock_that_is_set_back_counts_as_its_page_says() {
    let (minute, hour, day) = (60, 3_600, 86_400);
    for (text, period, least) in [
        ("5/m fixed utc", minute, 62 * minute),
        ("5/h fixed utc", hour, 4 * hour),
        ("5/d fixed utc", day, 4 * day),
        ("5/month fixed utc", 31 * day, 4 * 28 * day),
    ] {
        for (back, unused) in [(1, false), (2 * period, false), (least, false), (least + 4 * period, true)] {
            let (clock, mock) = Clock::mock();
            mock.advance(Duration::from_secs(1_795_500_000));
            let counter = WindowCounter::builder(text.parse().unwrap()).clock(clock).build();
            assert!(counter.try_acquire_n(5).is_ok());
            mock.rewind(Duration::from_secs(back));
            let left = if unused { 5 } else { 0 };
            assert_eq!(counter.peek().remaining(), left, "{text}, {back} s back");
            assert_eq!(counter.try_acquire().is_ok(), unused, "{text}, {back} s back");
        }
    }
    // An hour, also where the stamp of the word wraps after 19.5 hours.
    for text in ["5/ms sliding", "5/ms fixed", "5/ms fixed utc", "5/ms weighted", "5/m fixed", "5/d fixed"] {
        for (back, unused) in [(1, false), (4, false), (3_599, false), (hour, false), (hour + 10, true)] {
            let (clock, mock) = Clock::mock();
            mock.advance(Duration::from_secs(1_795_500_000));
            let counter = WindowCounter::builder(text.parse().unwrap()).clock(clock).build();
            assert!(counter.try_acquire_n(5).is_ok());
            mock.rewind(Duration::from_secs(back));
            let left = if unused { 5 } else { 0 };
            assert_eq!(counter.peek().remaining(), left, "{text}, {back} s back");
        }
    }
    // A bucket: an hour, or a 64th of the range of its word, which is 18 minutes at the least.
    for (rate, burst, most) in [(100, 200, hour), (1_000_000_000_000, 1 << 40, 18 * minute)] {
        for (back, refilled) in [(most, false), (hour + 5, true)] {
            let (clock, mock) = Clock::mock();
            mock.advance(Duration::from_secs(1_795_500_000));
            let bucket = TokenBucket::builder(Quota::per_second(rate).burst(burst)).clock(clock).build();
            assert!(bucket.try_acquire_n(burst).is_ok());
            mock.rewind(Duration::from_secs(back));
            let left = if refilled { burst } else { 0 };
            assert_eq!(bucket.peek().remaining(), left, "{rate}/s, {back} s back");
        }
    }
}
