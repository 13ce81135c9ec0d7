// promise: law, never-late
//! A window counter beside a window that is spelled out, and beside the log of its grants.

use std::time::Duration;

use tollgate::{Clock, InvalidWindow, MockClock, Reason, Window, WindowCounter};

use crate::spelled_window::{Kind, Spelled};
use crate::support::Random;

/// A counter, its clock and the window that it should be.
struct Pair {
    counter: WindowCounter,
    mock: MockClock,
    spelled: Spelled,
    now: u64,
    period: u64,
}

impl Pair {
    fn new(window: Window, kind: Kind, top: u64) -> Pair {
        let (clock, mock) = Clock::mock();
        let counter = WindowCounter::builder(window).headroom(top).unwrap().clock(clock).build();
        let period = window.period().as_nanos() as u64;
        Pair { counter, mock, spelled: Spelled::new(window.limit(), period, kind), now: 0, period }
    }

    fn advance(&mut self, nanos: u64) {
        self.mock.advance(Duration::from_nanos(nanos));
        self.now += nanos;
    }

    /// Takes `n` tokens of both. Compares the decision, the wait and the tokens left.
    fn take(&mut self, n: u64, random: &mut Random) {
        let Pair { spelled, now, .. } = self;
        match self.counter.try_acquire_n(n) {
            Ok(granted) => {
                assert!(spelled.grants(*now, n), "{n} of {spelled:?} at {now}");
                spelled.count_in(*now, n);
                assert_eq!(granted.remaining(), spelled.remaining(*now), "{spelled:?} at {now}");
                self.reset_is_exact(granted.reset_after());
            }
            Err(denied) if denied.reason() == Reason::TooMany => assert!(n > spelled.limit),
            Err(denied) => {
                assert!(!spelled.grants(*now, n), "{n} of {spelled:?} at {now}");
                assert_eq!(denied.remaining(), spelled.remaining(*now));
                let wait = denied.retry_after().expect("the tokens come").as_nanos() as u64;
                assert!(spelled.grants(*now + wait, n), "{n} of {spelled:?} at {now} + {wait}");
                assert!(!spelled.grants(*now + wait - 1, n), "{n} of {spelled:?} at {now} + {wait} - 1");
                if random.below(4) == 0 {
                    self.advance(wait - 1);
                    assert!(self.counter.try_acquire_n(n).is_err());
                    self.advance(1);
                    self.take(n, random);
                }
            }
        }
    }

    fn reset_is_exact(&self, reset: Duration) {
        let full = self.now + reset.as_nanos() as u64;
        assert_eq!(self.spelled.used(full), 0, "{:?} at {} until {full}", self.spelled, self.now);
        assert!(reset.is_zero() || self.spelled.used(full - 1) > 0, "{:?} until {full}", self.spelled);
    }

    /// Holds the laws of the table in the docs against the log of all grants.
    fn holds_its_law(&self, kind: Kind) {
        let Pair { spelled, now, period, .. } = self;
        match kind {
            Kind::Sliding(_) => assert!(spelled.granted_in(*period, *now) <= spelled.limit),
            Kind::Aligned | Kind::Weighted => {
                assert!(spelled.granted_in(now % period + 1, *now) <= spelled.limit);
            }
            Kind::FirstUse => assert!(spelled.granted_in(*period, *now) < 2 * spelled.limit),
        }
    }
}

fn window(kind: Kind, limit: u64, period: u64) -> Result<Window, InvalidWindow> {
    let window = Window::try_per(limit, Duration::from_nanos(period))?;
    match kind {
        Kind::FirstUse => Ok(window),
        Kind::Aligned => window.try_utc_offset(0),
        Kind::Sliding(_) => window.granularity(Duration::MAX),
        Kind::Weighted => window.try_weighted(),
    }
}

/// Returns the number of sub-windows, by the public length of one.
fn subs(window: Window) -> u64 {
    let sub = window.sub_window().expect("it slides").as_nanos() as u64;
    (window.period().as_nanos() as u64).div_ceil(sub)
}

const KINDS: [Kind; 4] = [Kind::FirstUse, Kind::Aligned, Kind::Sliding(0), Kind::Weighted];

/// Takes random steps in a random window, and returns their number.
fn run(random: &mut Random, kind: Kind, steps: u32, changes: bool) -> u32 {
    let most = [3, 20, 100, 1_000, 1 << 20][random.below(5) as usize];
    // 2^16 ticks or parts of a window are exact to the nanosecond up to a reading of 2^47.
    let exact = if let Kind::FirstUse | Kind::Weighted = kind { 1 << 37 } else { 1 << 45 };
    let longest = [1_000, 1 << 30, exact][random.below(3) as usize];
    let (limit, period) = (1 + random.below(most), 1_000_000 + random.below(longest));
    let top = if changes { limit + random.below(limit + 5) } else { limit };
    let (Ok(made), Ok(with_room)) = (window(kind, limit, period), window(kind, top, period)) else {
        // A large limit in a short period.
        assert!(limit > 1_000 && period < 1 << 31);
        return 0;
    };
    let kind = if let Kind::Sliding(_) = kind { Kind::Sliding(subs(with_room)) } else { kind };
    let mut pair = Pair::new(made, kind, top);
    for _ in 0..steps {
        let by = match random.below(7) {
            0..3 => 0,
            3 => random.below(period / 8),
            4 => period - pair.now % period - random.below(2),
            5 => random.below(period),
            _ => 2 * period + random.below(period),
        };
        pair.advance(by);
        match random.below(10) {
            0 => {
                let n = random.below(pair.spelled.limit + 2);
                let taken = pair.counter.acquire_up_to(n).tokens();
                assert_eq!(taken, n.min(pair.spelled.remaining(pair.now)));
                pair.spelled.count_in(pair.now, taken);
            }
            1 if changes => {
                let n = 1 + random.below(limit);
                pair.counter.refund(n);
                pair.spelled.refund(pair.now, n);
                pair.spelled.log.clear();
            }
            2 if changes => {
                pair.spelled.limit = 1 + random.below(top);
                pair.counter.set_limit(pair.spelled.limit).unwrap();
                pair.spelled.log.clear();
            }
            _ => {
                let most = if random.below(3) == 0 { pair.spelled.limit + 1 } else { 1 + limit / 8 };
                pair.take(1 + random.below(most), random);
            }
        }
        let look = pair.counter.peek();
        assert_eq!(look.remaining(), pair.spelled.remaining(pair.now), "{:?}", pair.spelled);
        pair.reset_is_exact(look.reset_after());
        if !changes {
            pair.holds_its_law(kind);
        }
    }
    steps
}

/// Takes 430,000 steps in windows of each kind; fewer in a fast run.
fn decide(random: &mut Random, changes: bool) {
    let few = std::env::var_os("FEW_CASES").is_some();
    for kind in KINDS {
        let mut steps = 0;
        while steps < if few { 10_000 } else { 430_000 } {
            steps += run(random, kind, 120, changes);
        }
    }
}

#[test]
fn a_window_decides_as_one_that_is_spelled_out() {
    let mut random = Random(1);
    decide(&mut random, false);
}

#[test]
fn a_window_keeps_its_counts_under_other_limits_and_refunds() {
    let mut random = Random(2);
    decide(&mut random, true);
}

#[test]
fn the_text_of_a_window_is_read_as_it_is_written() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let windows = [
        (Window::per_hour(100), "100/h fixed"),
        (Window::per_day(1_000).utc(), "1000/d fixed utc"),
        (Window::per_day(1_000).utc_offset(2), "1000/d fixed utc+2"),
        (Window::per_day(1_000).utc_offset(-11), "1000/d fixed utc-11"),
        (Window::per_month(50_000), "50000/month fixed utc"),
        (Window::per_month(50_000).utc_offset(-3), "50000/month fixed utc-3"),
        (Window::per(5, minutes(15)).sliding(), "5/15m sliding"),
        (Window::per_minute(1_000).granularity(minutes(1) / 3).unwrap(), "1000/m sliding 20s"),
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
    ] {
        assert_eq!(text.parse::<Window>().map(|window| window.to_string()), Ok(same.to_owned()), "{text}");
    }
}

#[test]
fn a_text_or_a_number_out_of_bounds_is_one_sentence() {
    let form = |text: &str| format!("{text:?} is not \"1000/d fixed utc\" or \"5/15m sliding\"");
    for (text, error) in [
        ("100/h", form("100/h")),
        ("100 an hour", form("100 an hour")),
        ("100/h often", form("100/h often")),
        ("100/h fixed gmt", form("100/h fixed gmt")),
        ("100/h fixed utc2", form("100/h fixed utc2")),
        ("100/h fixed utc+200", form("100/h fixed utc+200")),
        ("100/h weighted utc", form("100/h weighted utc")),
        ("100/h fixed utc now", form("100/h fixed utc now")),
        ("x/h fixed", "\"x\" is not a whole number under 2^64".into()),
        ("-1/h fixed", "\"-1\" is not a whole number under 2^64".into()),
        ("1/fortnight fixed", "\"fortnight\" is not a unit: ns, us, ms, s, m, h, d or its word".into()),
        ("0/h fixed", "a limit of 0 tokens grants nothing: the least is 1".into()),
        (
            "1099511627777/h fixed",
            "a limit of 1099511627777 is over the bound of 2^40 = 1099511627776 tokens".into(),
        ),
        ("1/999us fixed", "a window of 999000 ns is under the bound of 1 ms".into()),
        ("1/60000d fixed", "a window of 5184000000000000000 ns is over the bound of 2^62 ns (146 years)".into()),
        ("1/99999999999w fixed", "a window of 60479999999395200000000000 ns is over the bound of 2^62 ns (146 years)".into()),
        ("1/d fixed utc+15", "an offset of 15 hours is out of the bounds from -12 to 14".into()),
        ("1/month sliding", "a civil month is a fixed window by the calendar: say utc".into()),
        (
            "10000000/s weighted",
            "a limit of 10000000 every 1s leaves one word a time range below the bound of 2^46 ns (19.5 hours)".into(),
        ),
    ] {
        assert_eq!(text.parse::<Window>().map_err(|error| error.to_string()), Err(error), "{text}");
    }
    assert!(Window::per_month(5).try_sliding().is_err() && Window::per_month(5).try_weighted().is_err());
}

/// A reading of the window before is behind the latest grant, by jitter between cores.
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
        let counter = WindowCounter::with_clock(window, clock);
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
        assert_eq!(counter.acquire_up_to(10).tokens(), left, "{window}");
    }
}
