// promise: law
//! The calendar, the shift to the wall clock, the layouts of windows, and windows beside windows
//! that are spelled out.

use std::cell::Cell;
use std::time::Duration;

use super::random::Random;
use super::walk::{Choose, KINDS, Walk};
use crate::quota::window::Window;
use crate::time::wall::WallShift;
use crate::word::calendar::{first_day, month_at, month_of, month_start};
use crate::{Clock, WindowCounter};

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
        let counter = WindowCounter::with_clock(window, clock);
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

/// Takes 430,000 steps in windows of each kind; fewer in a fast run.
fn decide(seed: u64, changes: bool) {
    let few = std::env::var_os("FEW_CASES").is_some();
    let mut random = Random(seed);
    let choose: Choose<'_> = &mut |bound| random.below(bound);
    for kind in KINDS {
        let mut steps = 0;
        while steps < if few { 10_000 } else { 430_000 } {
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
