// promise: law, never-late
//! Windows: their text, their edges, and keys that come and go.

mod handles;
mod moments;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate::{
    Ask, Asked, Clock, Denied, Granted, Moment, Quota, RateLimiter, Reason, TokenBucket, WhenFull, Window,
    WindowCounter, all_of,
};

use crate::support::{panic_of, size};

#[test]
fn the_text_of_a_window_is_read_as_it_is_written() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let windows = [
        (Window::per_hour(100), "100/h fixed"),
        (Window::per_day(1_000).utc(), "1000/d fixed utc"),
        (Window::per_day(1_000).utc_offset(2 * 60), "1000/d fixed utc+2"),
        (Window::per_day(1_000).utc_offset(-11 * 60), "1000/d fixed utc-11"),
        (Window::per_day(1_000).utc_offset(5 * 60 + 45), "1000/d fixed utc+5:45"),
        (Window::per_month(50_000).utc_offset(-3 * 60 - 30), "50000/month fixed utc-3:30"),
        (Window::per_day(1_000).utc_offset(-15), "1000/d fixed utc-0:15"),
        (Window::per_month(50_000), "50000/month fixed utc"),
        (Window::per_month(50_000).utc_offset(-3 * 60), "50000/month fixed utc-3"),
        (Window::per(5, minutes(15)).sliding(), "5/15m sliding"),
        (Window::per_minute(1_000).granularity(minutes(1) / 3).unwrap(), "1000/m sliding 20s"),
        (Window::per_minute(1_000).granularity(minutes(1) / 4).unwrap(), "1000/m sliding 15s"),
        (Window::per_minute(100).weighted(), "100/m weighted"),
        (Window::per(7, Duration::from_millis(1)), "7/ms fixed"),
    ];
    for (window, text) in windows {
        assert_eq!(window.to_string(), text);
        assert_eq!(text.parse(), Ok(window), "{text}");
    }
    for (text, same) in [
        (" 100 / 2w  fixed   utc ", "100/14d fixed utc"),
        ("100/week fixed", "100/7d fixed"),
        ("100/10 minutes sliding", "100/10m sliding"),
        ("1/day fixed utc+0", "1/d fixed utc"),
        ("1/day fixed utc-0:00", "1/d fixed utc"),
        ("1/day fixed utc+05:00", "1/d fixed utc+5"),
    ] {
        assert_eq!(text.parse::<Window>().map(|window| window.to_string()), Ok(same.to_owned()), "{text}");
    }
}

#[test]
fn a_text_or_a_number_out_of_bounds_is_one_sentence() {
    let bounds = "quarter hours from utc-12 to utc+14";
    let offset = |text: &str| format!("{text:?} is not \"utc\", \"utc+2\" or \"utc-3:30\": {bounds}");
    let far = |text: &str| {
        format!("an offset of {text} is out of the bounds from utc-12 to utc+14, in quarter hours")
    };
    for (text, error) in [
        ("100/h fixed gmt", offset("gmt")),
        ("100/h fixed utc2", offset("utc2")),
        ("100/h fixed utc+2.5", offset("utc+2.5")),
        ("100/h fixed utc+5:60", offset("utc+5:60")),
        ("100/h fixed utc+5:3", offset("utc+5:3")),
        ("100/h fixed utc+-5", offset("utc+-5")),
        ("100/h fixed utc+", offset("utc+")),
        ("100/h fixed utc+5:", offset("utc+5:")),
        ("100/h fixed utc-99999", offset("utc-99999")),
        ("100/h fixed utc+200", far("utc+200")),
        ("100/h fixed utc+999", offset("utc+999")),
        ("100/month fixed utc-12:15", far("utc-12:15")),
        ("100/h fixed utc+5:20", far("utc+5:20")),
        ("x/h fixed", "\"x\" is not a whole number under 2^64".into()),
        ("-1/h fixed", "\"-1\" is not a whole number under 2^64".into()),
        ("1/fortnight fixed", "\"fortnight\" is not a unit: ns, us, ms, s, m, h, d, w or its word".into()),
        ("0/h fixed", "a limit of 0 tokens grants nothing: the least is 1".into()),
        (
            "1099511627777/h fixed",
            "a limit of 1099511627777 is over the bound of 2^40 = 1099511627776 tokens".into(),
        ),
        ("1/nss fixed", "\"nss\" is not a unit: ns, us, ms, s, m, h, d, w or its word".into()),
        ("1/999us fixed", "a window of 999000 ns is under the bound of 1 ms".into()),
        ("1/60000d fixed", "a window of 5184000000000000000 ns is over the bound of 2^62 ns (146 years)".into()),
        ("1/99999999999w fixed", "a period of 60479999999395200000000000 ns is over the bound of 2^62 ns (146 years)".into()),
        ("1/d fixed utc+15", far("utc+15")),
        (
            "1000/m sliding 14s",
            "a limit of 1000 leaves 4 sub-windows of 15s, over the bound of 14s: say \"1000/m sliding 15s\", or \"at most 1000/m burst 100\"".into(),
        ),
        ("1/month sliding", "a civil month is a fixed window by the calendar: 1/month fixed utc".into()),
        (
            "10000000/s weighted",
            "a limit of 10000000 every 1s leaves one word a time range below the bound of 2^46 ns (19.5 hours)".into(),
        ),
    ] {
        let form = "a window such as \"1000/d fixed utc\" or \"5/15m sliding\"";
        let told = text.parse::<Window>().unwrap_err().to_string();
        assert_eq!(told, format!("cannot read {text:?} as {form}: {error}"));
    }
    assert!(Window::per_month(5).try_sliding().is_err() && Window::per_month(5).try_weighted().is_err());
}

/// A reading in the window before the latest grant's is behind by jitter between cores.
#[test]
fn a_reading_from_before_an_edge_counts_after_it() {
    let minute = Duration::from_secs(60);
    let second = Duration::from_secs(1);
    for (window, left, wait) in [
        (Window::per_minute(10).utc(), 5, 61 * second),
        // The tokens of the window before count in full.
        (Window::per_minute(10).weighted(), 0, 13 * second),
        (Window::per_minute(10).sliding(), 0, 33 * second),
    ] {
        let (clock, mock) = Clock::mock();
        let counter = WindowCounter::builder(window).clock(clock).build();
        mock.advance(30 * second);
        assert!(counter.try_acquire_n(5).is_ok());
        mock.advance(minute - 30 * second);
        assert!(counter.try_acquire_n(5).is_ok());
        mock.rewind(second);
        let denied = counter.try_acquire_n(left + 1).unwrap_err();
        assert_eq!(
            (denied.remaining(), denied.retry_after().map(|wait| wait.as_secs())),
            (left, Some(wait.as_secs())),
            "{window}"
        );
        assert_eq!(counter.ask().n(10).acquire_up_to().tokens(), left, "{window}");
    }
}

/// A key is evicted 2 s after its tokens are forgotten, and no nanosecond before. A tick may be a
/// month.
#[test]
fn a_window_is_evicted_when_its_tokens_are_forgotten() {
    for text in
        ["5/d fixed utc", "5/month fixed utc", "5/h fixed", "5/15m sliding", "5/m weighted", "5/5ms sliding"]
    {
        for inline in [false, true] {
            let (clock, mock) = Clock::mock();
            let builder = RateLimiter::<u64, Window>::builder(text.parse().unwrap()).clock(clock);
            let limiter = if inline { builder.max_keys(8).inline().unwrap() } else { builder }.build();
            mock.advance(Duration::from_secs(1_795_500_000));
            assert!(limiter.try_acquire(&1).is_ok());
            let reset = limiter.peek(&1).reset_after();
            mock.advance(reset + Duration::from_nanos(2_000_000_000 - 1));
            assert_eq!((limiter.evict_idle(), limiter.len()), (0, 1), "{text} {inline}");
            mock.advance(Duration::from_nanos(1));
            assert_eq!((limiter.evict_idle(), limiter.len()), (1, 0), "{text} {inline}");
        }
    }
}

/// A newcomer takes the room of a key whose window is over, in either store, and not before.
#[test]
fn a_newcomer_takes_the_room_of_a_window_that_is_over() {
    for inline in [false, true] {
        let (clock, mock) = Clock::mock();
        let builder = RateLimiter::<u64, _>::builder(Window::per_day(5).utc()).clock(clock);
        let builder = if inline { builder.max_keys(6).inline().unwrap() } else { builder.max_keys(8) };
        let limiter = builder.when_full(WhenFull::Deny).build();
        let granted =
            |keys: std::ops::Range<u64>| keys.filter(|key| limiter.try_acquire(key).is_ok()).count();
        assert_eq!(granted(0..64), 8);
        mock.advance(Duration::from_secs(86_400 + 2) - Duration::from_nanos(1));
        assert_eq!(granted(100..164), 0, "{inline}");
        mock.advance(Duration::from_nanos(1));
        assert_eq!(granted(100..164), 8, "{inline}");
        assert_eq!((limiter.len(), limiter.stats().evicted), (8, 8));
    }
}

/// A million keys fill no more than the room, and no earlier key gets another token in its window.
#[test]
fn a_flood_of_keys_is_bounded_and_resets_no_window() {
    for inline in [false, true] {
        let (clock, mock) = Clock::mock();
        let builder = RateLimiter::<u64, _>::builder(Window::per_hour(3).sliding()).clock(clock);
        let builder =
            if inline { builder.max_keys(6_000).inline().unwrap() } else { builder.max_keys(8_000) };
        let limiter = builder.when_full(WhenFull::Deny).build();
        let clients = 1_u64 << 32..(1 << 32) + 100;
        assert!(clients.clone().all(|client| limiter.try_acquire_n(&client, 3).is_ok()));
        let mut granted = 0;
        let keys = size(50_000, 1_000_000);
        for key in 0..keys {
            granted += usize::from(limiter.try_acquire(&key).is_ok());
            // 59 minutes in all.
            mock.advance(Duration::from_secs(59 * 60) / keys as u32);
        }
        assert_eq!((granted, limiter.len()), (7_900, 8_000), "{inline}");
        assert_eq!(limiter.stats().evicted, 0);
        for client in clients {
            assert!(limiter.try_acquire(&client).is_err(), "{client}");
        }
    }
}

/// Keys without room share a window, and one that gets room later brings its tokens with it.
#[test]
fn a_key_that_shares_a_window_stays_limited() {
    let (clock, mock) = Clock::mock();
    let window = Window::per_minute(3).sliding();
    let limiter = RateLimiter::<u64, _>::builder(window).clock(clock).max_keys(1).build();
    assert!(limiter.try_acquire(&1).is_ok());
    mock.advance(Duration::from_secs(50));
    let cap = limiter.plan(window.with_limit(2).unwrap()).unwrap();
    assert!(limiter.try_acquire_n(&2, 2).is_ok());
    assert!(limiter.key(&2).under(&cap).try_acquire().is_err());
    assert_eq!(limiter.stats().shared, 2);
    // The first key's minute and sub-window are over, and the second's are not.
    mock.advance(Duration::from_secs(25));
    assert!(limiter.try_acquire_n(&2, 2).is_err());
    assert!(limiter.try_acquire(&2).is_ok());
    assert_eq!((limiter.len(), limiter.stats().evicted), (1, 1));
    assert!(limiter.try_acquire(&2).is_err());
}

/// A removed key of a table starts anew at once, and so do all after `clear`. The place stays
/// occupied until the window is over.
#[test]
fn a_removed_key_of_a_table_keeps_its_slot() {
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::<u64, _>::builder(Window::per_day(2).utc())
        .clock(clock)
        .max_keys(6)
        .inline()
        .unwrap()
        .build();
    let hold = limiter.key(&1).n(2).hold().unwrap();
    assert!(limiter.remove(&1));
    assert_eq!((limiter.len(), limiter.peek(&1).remaining()), (1, 2));
    assert!(limiter.try_acquire(&1).is_ok());
    // The hold is from the window before the removal.
    drop(hold);
    assert_eq!(limiter.peek(&1).remaining(), 1);
    limiter.clear();
    assert_eq!((limiter.len(), limiter.peek(&1).remaining()), (1, 2));
    mock.advance(Duration::from_secs(86_402));
    assert_eq!(limiter.evict_idle(), 1);
}

#[test]
fn a_limiter_of_windows_has_shadow_mode_hooks_and_a_janitor() {
    let (clock, _mock) = Clock::mock();
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    let window = Window::per_hour(2);
    let builder = RateLimiter::<u64, _>::builder(window).clock(clock).shadow(true);
    let limiter = builder.on_decision(move |_| _ = count.fetch_add(1, Relaxed)).build();
    assert!((0..3).all(|_| limiter.try_acquire(&1).is_ok()));
    assert_eq!((limiter.stats().overruled, seen.load(Relaxed)), (1, 3));
    assert!(limiter.janitor(Duration::from_secs(1)).is_running());
    assert_eq!(limiter.rule(), window);
    let less = window.with_limit(1).unwrap();
    assert_eq!(limiter.plan(less).map(|cap| cap.rule()), Ok(less));
    let over = window.with_limit(1_000).unwrap();
    for error in [limiter.plan(over).map(drop), limiter.clone().set_rule(over)] {
        assert_eq!(
            error.unwrap_err().to_string(),
            "a limit of 1000 is over the bound of 2 tokens that there is room for"
        );
    }
    // Another window is another count.
    for other in [window.utc(), window.sliding(), Window::per_day(2)] {
        assert!(limiter.plan(other).is_err() && limiter.set_rule(other).is_err(), "{other}");
    }
    assert_eq!(limiter.rule(), window);
    let other = RateLimiter::<u64, _>::new(window).plan(window).unwrap();
    assert_eq!(limiter.key(&1).under(&other).peek().remaining(), 0);
}

/// A day begins at midnight of its offset, and a week at midnight before Monday.
#[test]
fn a_day_begins_at_midnight_and_a_week_on_monday() {
    let minute = 60;
    // 2026-11-23 00:00:00 UTC.
    let monday = 1_795_392_000;
    for (days, offset) in
        [1, 7].into_iter().flat_map(|days| [0, 120, 330, 345, 840, -210, -720].map(|offset| (days, offset)))
    {
        let (clock, mock) = Clock::mock();
        let period = Duration::from_secs(days * 86_400);
        let window = Window::per(5, period).utc_offset(offset);
        let counter = WindowCounter::builder(window).clock(clock).build();
        let edge = (monday as i64 - i64::from(offset) * minute) as u64;
        mock.advance(Duration::from_secs(edge) - Duration::from_nanos(1));
        assert!(counter.try_acquire_n(5).is_ok());
        assert_eq!(counter.try_acquire().unwrap_err().retry_after(), Some(Duration::from_nanos(1)));
        mock.advance(Duration::from_nanos(1));
        assert!(counter.try_acquire_n(5).is_ok());
        assert_eq!(counter.peek().reset_after(), period, "{window}");
    }
}

/// A window is taken together with other limits, or nothing is taken of any.
#[test]
fn a_window_is_taken_with_other_limits_or_not_at_all() {
    let (clock, _mock) = Clock::mock();
    let limiter = RateLimiter::<u64, _>::builder(Window::per_hour(10)).clock(clock.clone()).build();
    let full = RateLimiter::<u64, _>::builder(Window::per_day(10)).clock(clock.clone());
    let full = full.max_keys(0).when_full(WhenFull::Deny).build();
    let counter = WindowCounter::builder(Window::per_minute(5)).clock(clock).build();
    let left = || (limiter.peek(&1).remaining(), counter.peek().remaining());
    let (three, two) = (limiter.key(&1).n(3), counter.ask().n(2));
    assert_eq!(all_of((three, two)).try_acquire().map(|granted| granted.remaining()), Ok(3));
    assert_eq!(left(), (7, 3));
    // No look shows that a limiter has no room. Only its take does.
    assert_eq!(all_of((three, two, full.key(&1))).try_acquire().unwrap_err().which(), 2);
    assert_eq!(left(), (7, 3));
    let denied = all_of((counter.ask().n(4), limiter.key(&1).n(8))).try_acquire().unwrap_err();
    assert_eq!((denied.which(), left()), (1, (7, 3)), "the wait of an hour is the longer one");
}

/// A part of a limit, or of a cap, is kept in a take of several limits as well.
#[test]
fn a_kept_part_of_a_window_stays_in_a_take_of_several() {
    let (clock, _mock) = Clock::mock();
    let limiter = RateLimiter::<u64, _>::builder(Window::per_hour(10)).clock(clock.clone()).build();
    let full = RateLimiter::<u64, _>::builder(Window::per_day(10)).clock(clock);
    let full = full.max_keys(0).when_full(WhenFull::Deny).build();
    let cap = limiter.plan(Window::per_hour(6)).unwrap();
    let left = || (limiter.peek(&1).remaining(), limiter.peek(&2).remaining());
    let (whole, capped) = (limiter.key(&1).n(3).keep(50), limiter.key(&2).n(2).under(&cap).keep(50));
    assert!(all_of((whole, capped)).try_acquire().is_ok());
    assert_eq!(left(), (7, 8));
    assert_eq!(all_of((whole, capped)).try_acquire().unwrap_err().which(), 0);
    assert!(capped.try_acquire().is_err() && limiter.key(&1).n(2).keep(50).try_acquire().is_ok());
    assert_eq!(left(), (5, 8));
    let both = all_of((limiter.key(&2).n(1).under(&cap).keep(50), full.key(&1)));
    assert_eq!((both.try_acquire().unwrap_err().which(), left()), (1, (5, 8)));
}

/// A guard keeps a part of each key's limit, now and at an earlier reading.
#[test]
fn a_guard_of_windows_leaves_a_kept_part() {
    let (clock, _mock) = Clock::mock();
    let limiter = RateLimiter::<u64, _>::builder(Window::per_hour(10)).clock(clock.clone()).build();
    let (pinned, now) = (limiter.pin(), clock.now());
    let half = |key, n| pinned.key(key).n(n).keep(50);
    let left = |taken: Result<Granted, Denied>| taken.map(|granted| granted.remaining()).ok();
    assert_eq!([6, 5, 1].map(|n| left(half(&1, n).try_acquire())), [None, Some(5), None]);
    assert_eq!(left(pinned.try_acquire(&1)), Some(4));
    assert_eq!([6, 5, 1].map(|n| left(half(&2, n).at(now).try_acquire())), [None, Some(5), None]);
}

#[test]
fn a_window_with_headroom_has_room_for_higher_limits() {
    let [five, eighty, ninety, hundred] = [5, 80, 90, 100].map(Window::per_hour);
    let counter = WindowCounter::builder(five).headroom(hundred).unwrap().build();
    let limiter = RateLimiter::<u64, _>::builder(five).headroom(hundred).unwrap().build();
    assert_eq!((counter.rule(), limiter.rule()), (five, five));
    assert_eq!(limiter.plan(ninety).map(|cap| cap.rule()), Ok(ninety));
    assert_eq!((counter.set_rule(eighty), limiter.set_rule(eighty)), (Ok(()), Ok(())));
    assert_eq!((counter.rule(), limiter.rule()), (eighty, eighty));
    assert!(counter.try_acquire_n(80).is_ok() && limiter.try_acquire_n(&1, 80).is_ok());
    assert!(counter.try_acquire().is_err() && limiter.try_acquire(&1).is_err());
}

#[test]
fn a_window_in_shadow_mode_counts_its_refusals() {
    let builder = WindowCounter::builder(Window::per_hour(2)).clock(Clock::mock().0).shadow(true);
    assert!(format!("{builder:?}").contains("2/h fixed"));
    let counter = builder.build();
    assert!((0..5).all(|_| counter.try_acquire().is_ok()));
    assert_eq!((counter.overruled(), counter.peek().remaining()), (3, 0));
    let text = format!("{counter:?}");
    assert!(text.contains("2/h fixed") && text.contains("remaining: 0"), "{text}");
    let limiter = RateLimiter::<u64, _>::new(Window::per_hour(2));
    let (cap, limiter) = (limiter.plan(Window::per_hour(1)).unwrap(), format!("{limiter:?}"));
    assert_eq!(format!("{cap:?}"), "Plan(1/h fixed)");
    assert!(limiter.contains("2/h fixed"), "{limiter}");
}

#[test]
fn another_limit_of_a_window_is_checked() {
    let window = Window::per_minute(10).sliding();
    assert_eq!(window.with_limit(20).map(|window| window.to_string()), Ok("20/m sliding".into()));
    assert_eq!(window.with_limit(0), Window::try_per(0, Duration::from_secs(60)));
    assert_eq!(
        window.with_limit(1_000_000).unwrap_err().to_string(),
        "a limit of 1000000 leaves 1 sub-windows of 1m, under the bound of 4: tokens would come back up to 1m late. \
         Say \"1000000/m sliding 1m\", or \"at most 1000000/m burst 100000\""
    );
}

#[test]
fn a_builder_of_windows_keeps_its_settings() {
    let builder = RateLimiter::<u64, _>::builder(Window::per_hour(2)).presize(17).unwrap();
    let text = format!("{:?}", builder.max_keys(19).inline().unwrap().when_full(WhenFull::Allow));
    for part in ["2/h fixed", "presize: 17", "max_keys: 19", "inline: true", "when_full: Allow"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A constant cannot print a number, so its panic is a sentence without one.
#[test]
fn a_window_out_of_bounds_is_one_sentence_in_a_constant() {
    type Build = fn() -> Window;
    let builds: [(Build, &str); 9] = [
        (|| Window::per_hour(0), "a limit of 0 tokens grants nothing: the least is 1"),
        (|| Window::per_hour((1 << 40) + 1), "a limit is at most 2^40 tokens"),
        (|| Window::per(1, Duration::from_micros(999)), "a window is at least 1 ms long"),
        (|| Window::per(1, Duration::MAX), "a window is at most 2^62 ns (146 years) long"),
        (|| Window::per_month(5).sliding(), "a civil month is a fixed window by the calendar: say utc"),
        (
            || Window::per_day(1).utc_offset(841),
            "an offset is a number of quarter hours, from -12 to 14 hours",
        ),
        (
            || Window::per_day(1).utc_offset(-721),
            "an offset is a number of quarter hours, from -12 to 14 hours",
        ),
        (
            || Window::per(1 << 40, Duration::from_millis(1)).weighted(),
            "a window of this limit and this period does not fit into one word",
        ),
        (
            || Window::per_second(100_000).sliding(),
            "this limit leaves fewer than 4 sub-windows: say granularity, or take Quota::at_most",
        ),
    ];
    for (build, sentence) in builds {
        assert_eq!(panic_of(build), sentence);
    }
}
