// promise: law
//! The calendar, the shift to the wall clock, the layouts of windows, and windows beside windows
//! that are spelled out.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::reference::windows::{Choose, KINDS, Walk};
use crate::bucket::receipt::Receipt;
use crate::limiter::all_of::TakeOne;
use crate::rule::calendar::{first_day, month_at, month_of, month_start};
use crate::rule::window_layout::WindowLayout;
use crate::time::wall::WallShift;
use crate::{Ask, Asked, Clock, Denied, Granted, Moment, RateLimiter, Window, WindowCounter, all_of};
use tollgate_testing::{Random, size};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Returns the first days of the months from January 1970 to December 2399, counted one by one.
fn months() -> Vec<u64> {
    let mut first = 0;
    let mut months = vec![];
    for year in 1970_u64..2400 {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        for days in [31, 28 + u64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            months.push(first);
            first += days;
        }
    }
    months.push(first);
    months
}

#[test]
fn each_day_is_in_its_month() {
    let months = months();
    assert_eq!(months.last(), Some(&157_054));
    for (month, days) in (0..).zip(months.windows(2)) {
        assert_eq!(first_day(month), days[0]);
        assert!((days[0]..days[1]).all(|day| month_of(day) == month), "{month}");
    }
    // 2026-11-24 is in month 56 * 12 + 10.
    assert_eq!(month_at(1_795_478_400 * SECOND), 682);
    assert_eq!(month_start(682), 1_793_491_200 * SECOND);
}

#[test]
fn a_month_begins_on_the_first_at_midnight() {
    for offset in [0_i16, 2 * 60, -5 * 60, 5 * 60 + 30, -3 * 60 - 30] {
        let (clock, mock) = Clock::mock();
        let window = Window::per_month(10).utc_offset(offset);
        let counter = WindowCounter::builder(window).clock(clock).build();
        let edges = months().into_iter().skip(1).take(40);
        // The clock starts a day after 1970 began, so that no offset leads to an earlier time.
        let mut now = DAY;
        mock.advance(Duration::from_nanos(now));
        for edge in edges.map(|day| (day * DAY).wrapping_add_signed(i64::from(-offset) * 60 * SECOND as i64))
        {
            assert!(counter.try_acquire_n(10).is_ok());
            let denied = counter.try_acquire().unwrap_err();
            assert_eq!(denied.retry_after(), Some(Duration::from_nanos(edge - now)));
            assert_eq!(counter.peek().reset_after(), Duration::from_nanos(edge - now));
            mock.advance(Duration::from_nanos(edge - now - 1));
            assert!(counter.try_acquire().is_err());
            mock.advance(Duration::from_nanos(1));
            now = edge;
        }
    }
}

/// The shift follows a wall clock that is set while the process runs, beside a monotonic clock that
/// drifts. It is looked up once a second.
#[test]
fn the_shift_follows_the_wall_clock_within_a_second() {
    let (shift, looks) = (WallShift::new(), Cell::new(0));
    let (start, mut wall_set, mut set_at) = (1_795_478_400 * SECOND, 0_i64, 0);
    let (mut followed, mut late) = (0, 0);
    for step in 0..100_000_u64 {
        // The monotonic clock is 200 ppm fast. The wall clock is set by hours at times, at each
        // phase between two looks.
        let real = step * SECOND / 7;
        let now = real + real / 5_000;
        if step % 1_003 == 1_002 {
            wall_set += [3_600, -7_200, 18_000][(step / 1_003) as usize % 3] * SECOND as i64;
            set_at = now;
        }
        let wall = (start + real).wrapping_add_signed(wall_set);
        let unix = shift.unix_at(
            now,
            || now,
            || {
                looks.set(looks.get() + 1);
                wall
            },
        );
        let right = unix.abs_diff(wall) < SECOND / 1_000;
        assert!(right || set_at > 0 && now - set_at < SECOND, "{step}: {unix} {wall}");
        followed += u64::from(right);
        late += u64::from(!right);
    }
    // Of seven readings after the clock was set, three come before the next look, on average.
    assert!(followed > 99_000 && late > 200, "{followed} {late}");
    let seconds = 100_000 / 7;
    assert!((seconds - seconds / 10..=seconds + seconds / 100).contains(&looks.get()), "{}", looks.get());
}

/// Readings of a coarse clock, up to 1.5 s old, go through the same shift as fresh ones. Each
/// becomes the Unix time at which it was read, to the drift of a second, and no later one.
#[test]
fn a_stale_reading_shifts_no_other_one_and_is_never_early() {
    let (shift, mut random) = (WallShift::new(), Random(7));
    let start = 1_795_478_400 * SECOND;
    // The wall clock is 200 ppm slower.
    let wall = |now: u64| start + now - now / 5_000;
    let (mut line, mut late) = (3 * SECOND, 0);
    for step in 0..200_000 {
        line += random.below(SECOND / 10);
        let stale = if step % 3 == 0 { 0 } else { random.below(3 * SECOND / 2) };
        // A thread may be stopped between its readings of both clocks.
        let stopped = if random.below(10) == 0 { SECOND / 50 } else { 0 };
        let unix = shift.unix_at(line - stale, || line + stopped, || wall(line));
        let (right, drift) = (wall(line - stale), 2 * SECOND / 5_000);
        assert!(unix <= right + drift, "{step}: {} ns early, {stale} ns old", unix - right);
        assert!(unix + SECOND / 50 + drift >= right, "{step}: {} ns late, {stale} ns old", right - unix);
        late = late.max(right.saturating_sub(unix));
    }
    assert!(late >= SECOND / 50, "no thread was stopped");
}

#[test]
fn the_most_sub_windows_that_fit_are_taken() {
    // The sub-windows by limit, for periods of 1 s, 1 min, 15 min, 1 h and 1 day.
    let periods = [1, 60, 900, 3_600, 86_400];
    for (limit, subs) in [
        (1, [41, 47, 51, 51, 51]),
        (5, [13, 15, 16, 16, 16]),
        (10, [10, 11, 12, 12, 12]),
        (20, [7, 9, 9, 9, 9]),
        (60, [6, 7, 8, 8, 8]),
        (100, [5, 6, 6, 6, 6]),
        (200, [4, 5, 5, 5, 5]),
        (500, [4, 4, 5, 5, 5]),
        (1_000, [3, 4, 4, 4, 4]),
        (5_000, [2, 3, 3, 3, 3]),
        (1_000_000, [1, 1, 1, 1, 1]),
    ] {
        for (period, subs) in periods.into_iter().zip(subs) {
            let window = Window::per(limit, Duration::from_secs(period));
            let layout = window.granularity(Duration::MAX).unwrap().layout().unwrap();
            assert_eq!(layout.sub_windows(), subs, "{limit} in {period} s");
            assert_eq!(window.try_sliding().is_ok(), subs >= 4, "{limit} in {period} s");
        }
    }
}

/// Takes 430,000 steps in windows of each kind; fewer in a quick run.
fn decide(seed: u64, changes: bool) {
    let mut random = Random(seed);
    let choose: Choose<'_> = &mut |bound| random.below(bound);
    for kind in KINDS {
        let mut steps = 0;
        while steps < size(20_000, 430_000) {
            let Some(mut walk) = Walk::new(choose, kind, changes) else { continue };
            for _ in 0..120 {
                walk.step(choose);
                steps += 1;
            }
        }
    }
}

#[test]
fn a_window_decides_as_one_that_is_spelled_out() {
    decide(1, false);
}

#[test]
fn a_window_keeps_its_counts_under_other_limits_and_refunds() {
    decide(2, true);
}

/// The windows of a walk over long idle times: a counter, or a limiter of two keys, of which key 0
/// may be the requests without a key.
enum Alone {
    Counter(Box<WindowCounter>),
    Keys { limiter: RateLimiter<u64, Window>, without_key: bool },
}

/// Takes the tokens of a request, in one of three ways.
fn take_by<'a>(ask: Ask<'a, impl Asked<'a, Rule = Window>>, n: u64, now: Moment, how: u64) -> bool {
    let ask = ask.n(n);
    match how {
        0 => ask.at(now).try_acquire().is_ok(),
        1 => ask.peek().remaining() >= n && ask.acquire_up_to().tokens() == n,
        _ => all_of([ask]).try_acquire().is_ok(),
    }
}

impl Alone {
    fn take(&self, key: u64, n: u64, how: u64) -> bool {
        match (self, how) {
            (Alone::Counter(counter), 0..3) => take_by(counter.ask(), n, counter.now(), how),
            (Alone::Counter(counter), _) => counter.try_acquire_n(n).is_ok(),
            (Alone::Keys { limiter, without_key: true }, _) if key == 0 => {
                take_by(limiter.shared(), n, limiter.now(), how % 3)
            }
            (Alone::Keys { limiter, .. }, 0..3) => take_by(limiter.key(&key), n, limiter.now(), how),
            (Alone::Keys { limiter, .. }, 3) => limiter.pin().try_acquire_n(&key, n).is_ok(),
            (Alone::Keys { limiter, .. }, _) => limiter.try_acquire_n(&key, n).is_ok(),
        }
    }
}

/// Returns a window of any kind; `None` if no word holds it.
fn any_window(random: &mut Random) -> Option<Window> {
    let most = [1, 6, 30, 150, 1_100, 1 << 20, 1 << 40][random.below(7) as usize];
    let limit = 1 + random.below(most);
    let unit =
        [SECOND / 1_000, SECOND, 60 * SECOND, 900 * SECOND, 3_600 * SECOND, DAY][random.below(6) as usize];
    let window = Window::try_per(limit, Duration::from_nanos(unit * (1 + random.below(9)))).ok()?;
    match random.below(6) {
        0 => Some(window),
        1 => window.try_utc_offset(random.below(8) as i16 * 15).ok(),
        2 => window.try_weighted().ok(),
        3 => Some(Window::per_month(limit)),
        _ => window.granularity(Duration::MAX).ok(),
    }
}

/// Returns the range of the stamp in nanoseconds, at most 2^62.
fn range_of(window: Window) -> u128 {
    let WindowLayout { widths, numbers } = window.layout().unwrap();
    let range = (window.period().as_nanos() << widths.stamp.min(60)) / u128::from(numbers.tokens);
    range.min(1 << 62)
}

/// Leaves keys alone for up to 100 ranges of their stamps, while another key of the limiter is used
/// now and then or not at all. Returns the number of grants.
///
/// Each take that an exact log of the window's [span](Window::span) grants is granted, and no more
/// than the law allows.
fn walk_alone(random: &mut Random) -> u64 {
    let Some(window) = any_window(random) else { return 0 };
    // February is the shortest month.
    let months = window.to_string().contains("month");
    let period = if months { 28 * DAY } else { window.period().as_nanos() as u64 };
    let (limit, range) = (window.limit(), range_of(window));
    // A window from the first use may be late by two of its ticks.
    let span = window.span().as_nanos() as u64 + period / (1 << 15);
    let (clock, mock) = Clock::mock();
    let alone = match random.below(3) {
        0 => Alone::Counter(Box::new(WindowCounter::builder(window).clock(clock).build())),
        store => {
            let builder = RateLimiter::builder(window).clock(clock);
            let limiter =
                if store == 1 { builder.max_keys(8).inline().unwrap() } else { builder.max_keys(8) }.build();
            Alone::Keys { limiter, without_key: random.below(3) == 0 }
        }
    };
    let (mut now, mut log, mut grants) = (random.below(1 << 60), Vec::new(), 0);
    mock.advance(Duration::from_nanos(now));
    let last = 1 << 62;
    for _ in 0..8 {
        let idle = match random.below(8) {
            0 => 0,
            1 => random.below(period),
            2 => random.below(2 * span),
            // To a few ticks: the stamp reads as one of now.
            3 => (range * u128::from(1 + random.below(4)) - u128::from(random.below(span))) as u64 % last,
            _ => {
                ((range * u128::from(1 + random.below(100)) * u128::from(random.below(1 << 16))) >> 16) as u64
                    % last
            }
        };
        let idle = idle.min(last - now);
        let steps = 1 + random.below(4);
        for step in 0..steps {
            let by = idle / steps + if step == 0 { idle % steps } else { 0 };
            mock.advance(Duration::from_nanos(by));
            if let Alone::Keys { .. } = alone {
                alone.take(1, 1 + random.below(limit), random.below(6));
            }
        }
        now += idle;
        for _ in 0..3 {
            let n = if random.below(2) == 0 { limit } else { 1 + random.below(limit) };
            let used = |span| log.iter().filter(|(at, _)| now - at < span).map(|(_, n)| n).sum::<u64>();
            let (in_span, in_period) = (used(span), used(period));
            let how = random.below(6);
            let granted = alone.take(0, n, how);
            assert!(granted || in_span + n > limit, "{window}: {n} refused after {in_span}, idle {idle}");
            let most = if window.sub_window().is_some() { limit } else { 2 * limit };
            assert!(!granted || in_period + n <= most, "{window}: {n} granted after {in_period}");
            if granted {
                log.push((now, n));
                grants += 1;
            }
        }
    }
    grants
}

#[test]
fn a_window_that_was_left_alone_for_any_time_reads_as_unused() {
    let walks = size(2_000, 1_000_000);
    let (mut random, mut grants) = (Random(11), 0);
    for _ in 0..walks {
        grants += walk_alone(&mut random);
    }
    println!("{walks} walks, {grants} grants");
    assert!(grants > 4 * walks);
}

/// An earlier reading of any age grants nothing on a window that is used up now.
#[test]
fn an_old_moment_opens_no_window_whatever_its_age() {
    let (mut random, mut ages) = (Random(13), 0);
    for _ in 0..3_000 {
        let Some(window) = any_window(&mut random) else { continue };
        let (clock, mock) = Clock::mock();
        let store = random.below(3);
        let builder = RateLimiter::<u64, _>::builder(window).clock(clock.clone());
        let limiter = if store == 1 { builder.max_keys(8).inline().unwrap() } else { builder }.build();
        let counter = WindowCounter::builder(window).clock(clock).build();
        let range = range_of(window);
        let now = (1 << 61) + random.below(1 << 59);
        mock.advance(Duration::from_nanos(now));
        let limit = window.limit();
        assert!(counter.try_acquire_n(limit).is_ok() && limiter.try_acquire_n(&1, limit).is_ok());
        for _ in 0..20 {
            let turns = (range * u128::from(random.below(40)) * u128::from(1 + random.below(1 << 10))) >> 10;
            let age = turns + u128::from(random.below(3) * random.below(1 << 40));
            let Ok(age) = u64::try_from(age) else { continue };
            if age >= now {
                continue;
            }
            let then = Moment(counter.now().0 - age);
            let taken = match store {
                0 => counter.ask().at(then).try_acquire().is_ok() || counter.try_acquire().is_ok(),
                _ => limiter.key(&1).at(then).try_acquire().is_ok() || limiter.try_acquire(&1).is_ok(),
            };
            assert!(!taken, "{window}: granted at a moment {age} ns ago");
            ages += 1;
        }
    }
    assert!(ages > 10_000, "{ages}");
}

/// A limit that lets others take while it is asked, and refuses.
struct Refuses<F>(Clock, F);

impl<F: Fn()> TakeOne for Refuses<F> {
    fn clock(&self) -> &Clock {
        &self.0
    }

    fn look(&self, _: Moment) -> Result<(), Denied> {
        Ok(())
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        (self.1)();
        Err(Denied::full(1, 0, None))
    }

    fn undo(&self, _: &Receipt) {}
}

/// A take of 1 at 0 s is undone at 50 s, after another caller took 5. From the first grant that any
/// caller had, a minute has 6 tokens.
#[test]
fn an_undone_take_leaves_no_start_behind() {
    let second = Duration::from_secs(1);
    let (clock, mock) = Clock::mock();
    let counter = WindowCounter::builder(Window::per_minute(6)).clock(clock.clone()).build();
    let refuses = Refuses(clock, || {
        mock.advance(50 * second);
        assert!(counter.try_acquire_n(5).is_ok());
    });
    assert!(all_of((counter.ask(), &refuses)).try_acquire().is_err());
    assert!(counter.try_acquire().is_ok());
    mock.advance(20 * second);
    let denied = counter.try_acquire_n(6).expect_err("11 in 20 s");
    let wait = denied.retry_after().unwrap();
    assert!(wait >= 40 * second && wait < 40 * second + second / 100, "{wait:?}");
    mock.advance(wait);
    assert!(counter.try_acquire_n(6).is_ok());
}

/// In windows of each kind, and in buckets, an undone take changes no other grant: each is as in a
/// twin that never had it, or is refused for the time that the undone one stood.
#[test]
fn an_undone_take_grants_nothing_more_than_its_absence() {
    let (mut random, mut undone) = (Random(17), 0);
    for _ in 0..4_000 {
        let Some(window) = any_window(&mut random) else { continue };
        if window.limit() > 1 << 30 {
            continue;
        }
        let (clock, mock) = Clock::mock();
        // February is the shortest month.
        let months = window.to_string().contains("month");
        let period = if months { 28 * DAY } else { window.period().as_nanos() as u64 };
        let limit = window.limit();
        mock.advance(Duration::from_nanos(random.below(1 << 44)));
        let (counter, log) =
            (WindowCounter::builder(window).clock(clock.clone()).build(), RefCell::new(Vec::new()));
        let now = || counter.now().0;
        let take = |n: u64| {
            if counter.try_acquire_n(n).is_ok() {
                log.borrow_mut().push((now(), n));
            }
        };
        for _ in 0..12 {
            mock.advance(Duration::from_nanos(random.below(period)));
            take(1 + random.below(limit));
            let inner = RefCell::new(&mut random);
            let refuses = Refuses(clock.clone(), || {
                let random = &mut *inner.borrow_mut();
                for _ in 0..random.below(3) {
                    mock.advance(Duration::from_nanos(random.below(period / 2)));
                    take(1 + random.below(limit));
                }
            });
            let n = 1 + inner.borrow_mut().below(limit);
            assert!(all_of((counter.ask().n(n), &refuses)).try_acquire().is_err());
            undone += 1;
            // The law counts the grants that were not undone.
            let log = log.borrow();
            for (from, _) in log.iter() {
                let granted: u64 =
                    log.iter().filter(|(at, _)| (*from..from + period).contains(at)).map(|(_, n)| n).sum();
                let most = match window.sub_window() {
                    Some(_) => limit,
                    None if window.has_edges() && window.anchor().is_some() => 2 * limit,
                    None => 2 * limit - 1,
                };
                assert!(granted <= most, "{window}: {granted} in a period, {log:?}");
            }
        }
    }
    assert!(undone > 10_000, "{undone}");
}
