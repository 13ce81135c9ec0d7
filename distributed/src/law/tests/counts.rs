//! The step of a count against a list of grants.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::Window;

use crate::law::amount::{Amount, StoreAnswer};
use crate::law::count::Count;
use crate::law::count_spec::{CountSpec, Edges};
use crate::law::spec::MAX_CREDITS;

/// 2027-01-15 08:00 UTC.
const NOW: u64 = 1_800_000_000_000_000;
const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

fn spec(window: Window) -> CountSpec {
    CountSpec::new(window, Duration::from_micros(NOW)).unwrap()
}

fn of(text: &str) -> CountSpec {
    spec(text.parse().unwrap())
}

/// A key, and the law of its calls.
struct Key {
    spec: CountSpec,
    stored: Option<Count>,
}

impl Key {
    fn new(text: &str) -> Key {
        Key { spec: of(text), stored: None }
    }

    fn call(&mut self, now_us: u64, amount: Amount) -> StoreAnswer {
        let (count, answer) = Count::step(self.stored.as_ref(), &self.spec, now_us, amount).unwrap();
        self.stored = count.or(self.stored.take());
        answer
    }

    fn take(&mut self, now_us: u64, n: i64) -> i64 {
        self.call(now_us, Amount { min: n, max: n, ..Amount::default() }).granted
    }

    fn look(&mut self, now_us: u64) -> StoreAnswer {
        self.call(now_us, Amount::default())
    }
}

#[test]
fn a_window_is_counted_by_its_edges() {
    let edges = |text| (of(text).parts(), of(text).edges());
    let minute = 60 * SECOND;
    assert_eq!(edges("5/m fixed"), (1, Edges::FirstUse { period_us: minute }));
    assert_eq!(edges("5/m fixed utc"), (1, Edges::Every { period_us: minute, offset_us: 0 }));
    let hours = |hours: i64| Edges::Every { period_us: DAY, offset_us: hours * 3_600 * SECOND as i64 };
    assert_eq!(edges("5/d fixed utc+2"), (1, hours(22)));
    assert_eq!(edges("5/d fixed utc-3"), (1, hours(3)));
    // Weeks begin on a Monday, and 1970-01-05 was one.
    let week = Edges::Every { period_us: 7 * DAY, offset_us: 4 * DAY as i64 };
    assert_eq!(edges("5/w fixed utc"), (1, week));
    // In the core it has 5 sub-windows. In a store it has 16, and so has one of another limit.
    let sliding = Edges::Every { period_us: minute / 16, offset_us: 0 };
    assert_eq!(edges("100/m sliding"), (16, sliding));
    assert_eq!(edges("1000/m sliding"), (16, sliding));
    assert_eq!(edges("1/m sliding"), (64, Edges::Every { period_us: minute / 64, offset_us: 0 }));
}

/// 2026-11 to 2027-03, in days since 1970.
const MONTHS: [u64; 5] = [20_758, 20_788, 20_819, 20_850, 20_878];

/// The two months are those around a time: its own, and the nearer of its neighbours.
#[test]
fn months_are_those_around_the_clock_of_the_process() {
    let [_, december, january, february, march] = MONTHS.map(|day| day * DAY);
    let window: Window = "5/month fixed utc".parse().unwrap();
    let at = |us| CountSpec::new(window, Duration::from_micros(us)).unwrap();
    let early = Edges::Given([december, january, february]);
    let late = Edges::Given([january, february, march]);
    assert_eq!(at(january).edges(), early);
    assert_eq!(at(january + 10 * DAY).edges(), early);
    assert_eq!(at(january + 20 * DAY).edges(), late);
    assert_eq!(at(february - 1).edges(), late);
    let one = Amount { min: 1, max: 1, ..Amount::default() };
    // A store's clock may be two weeks off, and no more than two months.
    for (store_us, edge) in [(january - 14 * DAY, january), (january - 1, january), (january, february)] {
        let (_, answer) = Count::step(None, &at(january), store_us, one).unwrap();
        assert_eq!((answer.granted, answer.edge_us), (1, edge));
    }
    for store_us in [0, december - 1, february] {
        let error = Count::step(None, &at(january), store_us, one).unwrap_err().to_string();
        assert!(error.ends_with("the clocks are weeks apart"), "{error}");
    }
    // An offset moves each edge.
    let east =
        CountSpec::new("5/month fixed utc+2".parse().unwrap(), Duration::from_micros(january)).unwrap();
    let hours = 2 * 3_600 * SECOND;
    assert_eq!(east.edges(), Edges::Given([december - hours, january - hours, february - hours]));
}

#[test]
fn weighted_and_blocked_windows_are_no_counts() {
    for text in ["5/m weighted", "5/m fixed"] {
        let window = text.parse::<Window>().unwrap();
        let window = if text == "5/m fixed" { window.blocked() } else { window };
        let error = CountSpec::new(window, Duration::ZERO).unwrap_err().to_string();
        assert!(error.starts_with("a store counts fixed and sliding windows with a limit"), "{error}");
    }
}

#[test]
fn a_fixed_window_has_its_limit_until_its_edge() {
    let mut key = Key::new("10/m fixed utc");
    assert_eq!((key.take(NOW + 5, 7), key.take(NOW + 6, 4), key.take(NOW + 7, 3)), (7, 0, 3));
    let full = key.look(NOW + 8);
    assert_eq!((full.credits, full.edge_us, full.freed), (0, NOW + 60 * SECOND, 10));
    assert_eq!(key.take(full.edge_us - 1, 1), 0);
    assert_eq!(key.take(full.edge_us, 10), 10);
}

#[test]
fn a_window_from_the_first_use_begins_with_a_grant() {
    let mut key = Key::new("10/m fixed");
    assert_eq!(key.look(NOW).edge_us, NOW + 60 * SECOND);
    assert_eq!(key.stored, None, "a look begins no window");
    assert_eq!(key.take(NOW + 30 * SECOND, 10), 10);
    assert_eq!(key.look(NOW + 40 * SECOND).edge_us, NOW + 90 * SECOND);
    assert_eq!(key.take(NOW + 90 * SECOND - 1, 1), 0);
    assert_eq!(key.take(NOW + 95 * SECOND, 1), 1);
    assert_eq!(key.look(NOW + 95 * SECOND).edge_us, NOW + 155 * SECOND);
}

/// Tokens of yesterday never go into the count of today, and charges of yesterday are dropped.
#[test]
fn tokens_of_another_window_are_dropped() {
    let mut key = Key::new("10/d fixed utc");
    let yesterday = key.call(NOW, Amount { min: 6, max: 6, ..Amount::default() }).edge_us;
    assert_eq!(key.take(yesterday, 5), 5);
    let today = key.look(yesterday).edge_us;
    let back = |of_us| Amount { max: -4, of_us, ..Amount::default() };
    let spent = |of_us| Amount { spent: 2, of_us, ..Amount::default() };
    assert_eq!(key.call(yesterday, back(yesterday)).credits, 5);
    assert_eq!(key.call(yesterday, back(0)).credits, 5, "no window is named");
    assert_eq!(key.call(yesterday, spent(yesterday)).credits, 5);
    let answer = key.call(yesterday, back(today));
    assert_eq!((answer.granted, answer.credits), (-4, 9));
    assert_eq!(key.call(yesterday, spent(today)).credits, 7);
    assert_eq!(key.call(yesterday, spent(0)).credits, 5, "the present window");
    // More than was taken does not come back.
    assert_eq!(key.call(yesterday, Amount { max: -99, of_us: today, ..Amount::default() }).granted, -5);
    // A charge may go beyond the limit, and not into the next window.
    assert_eq!(key.call(yesterday, Amount { spent: 25, ..Amount::default() }).credits, -15);
    assert_eq!(key.look(today).credits, 10);
}

#[test]
fn a_lease_takes_half_of_the_rest_or_the_fewest() {
    let mut key = Key::new("100/d fixed utc");
    key.spec = key.spec.leased();
    let lease = |min, max| Amount { min, max, ..Amount::default() };
    assert_eq!(key.call(NOW, lease(1, 80)).granted, 50);
    assert_eq!(key.call(NOW, lease(1, 20)).granted, 20);
    assert_eq!(key.call(NOW, lease(20, 40)).granted, 20);
    assert_eq!(key.call(NOW, lease(10, 10)).granted, 10);
    assert_eq!(key.call(NOW, lease(1, 10)).granted, 0);
}

/// After a step back of a second or less a count stays in its window. After a longer one it keeps
/// its tokens in the window of the new time.
#[test]
fn a_step_back_of_the_clock_frees_nothing() {
    let mut key = Key::new("10/m fixed utc");
    let minute = NOW + 60 * SECOND;
    assert_eq!(key.take(minute + 10, 10), 10);
    assert_eq!(key.look(minute - SECOND + 10).edge_us, minute + 60 * SECOND);
    assert_eq!(key.take(minute - SECOND + 10, 1), 0);
    assert_eq!(key.take(minute - 2 * SECOND, 1), 0);
    let back = key.look(minute - 2 * SECOND);
    assert_eq!((back.credits, back.edge_us), (0, minute));
    assert_eq!(key.take(minute, 10), 10);

    let mut first = Key::new("10/m fixed");
    assert_eq!(first.take(NOW, 10), 10);
    let hour = NOW - 3_600 * SECOND;
    assert_eq!((first.take(hour, 1), first.look(hour).edge_us), (0, hour + 60 * SECOND));
    assert_eq!(first.take(hour + 60 * SECOND, 1), 1);

    let mut sliding = Key::new("10/m sliding 20s");
    assert_eq!(sliding.take(NOW, 10), 10);
    assert_eq!(sliding.take(NOW - 3_600 * SECOND, 1), 0);
    assert_eq!(sliding.take(NOW - 3_530 * SECOND, 1), 1);
}

/// A limit that changes keeps the count: so do two limits of a rolling deploy.
#[test]
fn a_limit_that_changes_keeps_the_count() {
    for text in ["d fixed utc", "d fixed", "d sliding 6h", "month fixed utc"] {
        let specs = [of(&format!("100/{text}")), of(&format!("60/{text}"))];
        let mut key = Key { spec: specs[0], stored: None };
        assert_eq!(key.take(NOW, 50), 50);
        key.spec = specs[1];
        assert_eq!((key.look(NOW).credits, key.take(NOW, 11), key.take(NOW, 10)), (10, 0, 10), "{text}");
        key.spec = specs[0];
        assert_eq!((key.take(NOW, 41), key.take(NOW, 40)), (0, 40), "{text}");
        key.spec = specs[1];
        assert_eq!((key.look(NOW).credits, key.take(NOW, 1)), (-40, 0), "{text}");
    }
}

/// A count of other sub-windows, or of a longer period, is taken into the present one.
#[test]
fn another_period_frees_nothing_early() {
    let rules = ["9/m sliding", "9/m fixed utc", "9/m fixed", "9/h sliding", "1/m sliding", "9/h fixed utc"];
    for from in rules {
        for to in rules {
            let mut key = Key::new(from);
            assert_eq!(
                key.take(NOW, if from == "1/m sliding" { 1 } else { 9 }),
                if from == "1/m sliding" { 1 } else { 9 }
            );
            key.spec = of(to);
            let left = if from == "1/m sliding" && to != from { 8 } else { 0 };
            assert_eq!(key.take(NOW + 1, left + 1), 0, "from {from} to {to}");
            assert_eq!(key.take(NOW + 1, left), left, "from {from} to {to}");
        }
    }
}

fn windows() -> impl Strategy<Value = Window> {
    let periods = prop_oneof![1_000..100_000_u64, Just(1_000_000), 1_000..1_000_000_000_u64];
    (1..200_u64, periods, 0..5_u8).prop_filter_map("a window", |(limit, micros, kind)| {
        let window = Window::try_per(limit, Duration::from_micros(micros)).ok()?;
        match kind {
            0 => Some(window),
            1 => window.try_utc_offset(0).ok(),
            2 => window.try_utc_offset(90).ok(),
            _ => window.try_sliding().ok(),
        }
    })
}

/// The begin of the window that a list of grants has at a time, and the time from which its tokens
/// are all there again.
fn window_of(window: Window, spec: &CountSpec, grants: &[(u64, i64)], now_us: u64) -> (u64, u64) {
    let period = spec_period(spec) * if spec.parts() == 1 { 1 } else { u64::from(spec.parts()) + 1 };
    match spec.edges() {
        Edges::FirstUse { period_us } => {
            let mut start = None;
            for &(at, _) in grants {
                start = start.filter(|start| at < start + period_us).or(Some(at));
            }
            let start = start.filter(|start| now_us < start + period_us).unwrap_or(now_us);
            (start, start + period_us)
        }
        _ if window.sub_window().is_some() => {
            let edge = now_us - now_us % spec_period(spec) + spec_period(spec);
            (edge.saturating_sub(period), edge)
        }
        _ => {
            let at = Duration::from_micros(now_us);
            let (begin, end) = window.edges_at(at).unwrap();
            (begin.as_micros() as u64, end.as_micros() as u64)
        }
    }
}

fn spec_period(spec: &CountSpec) -> u64 {
    match spec.edges() {
        Edges::Every { period_us, .. } | Edges::FirstUse { period_us } => period_us,
        Edges::Given([first, second, _]) => second - first,
    }
}

proptest! {
    /// While the clock goes on, a count grants what a list of all grants says, number by number.
    #[test]
    fn a_count_is_the_list_of_its_grants(
        window in windows(),
        calls in prop::collection::vec((0..40_u64, 0..60_i64, 0..60_i64), 1..200),
    ) {
        let spec = spec(window);
        let mut key = Key { spec, stored: None };
        let (mut now_us, mut grants): (u64, Vec<(u64, i64)>) = (NOW, Vec::new());
        for (gap, one, other) in calls {
            now_us += spec_period(&spec) * gap / 25;
            let (min, max) = (one.min(other), one.max(other));
            let (begin, edge) = window_of(window, &spec, &grants, now_us);
            let used: i64 = grants.iter().filter(|(at, _)| *at >= begin).map(|(_, n)| n).sum();
            let left = spec.limit() as i64 - used;
            let answer = key.call(now_us, Amount { min, max, ..Amount::default() });
            prop_assert_eq!(answer.granted, if left >= min { max.min(left) } else { 0 });
            prop_assert_eq!((answer.credits, answer.edge_us), (left - answer.granted, edge));
            if answer.granted > 0 {
                grants.push((now_us, answer.granted));
            }
            // In any period of a sliding window there are at most the tokens of its limit.
            if window.sub_window().is_some() {
                let period = window.period().as_micros() as u64;
                let used: i64 = grants.iter().filter(|(at, _)| *at > now_us - period).map(|(_, n)| n).sum();
                prop_assert!(used <= spec.limit() as i64);
            }
        }
    }

    /// Any stored numbers and any amounts are answered, and grant no more than is left.
    #[test]
    fn no_number_panics(
        window in windows(), is_leased in any::<bool>(), start_us in any::<u64>(), end_us in any::<u64>(),
        used in prop::collection::vec(any::<u64>(), 0..70), small in 0..64_u32, now_us in any::<u64>(),
        min in any::<i64>(), max in any::<i64>(), spent in any::<u64>(), of_us in any::<u64>(),
    ) {
        let spec = spec(window);
        let spec = if is_leased { spec.leased() } else { spec };
        let count = Count { start_us, used: used.iter().map(|used| used >> small).collect(), end_us };
        let amount = Amount { min, max, spent, of_us };
        for stored in [None, Some(&count)] {
            let (changed, answer) = Count::step(stored, &spec, now_us, amount).unwrap();
            let left = answer.credits + answer.granted.max(0);
            prop_assert!(answer.granted <= left.max(0) && answer.granted <= max.max(0));
            prop_assert!(changed.is_none_or(|count| count.used.iter().sum::<u64>() <= MAX_CREDITS));
        }
    }
}
