//! The documented bound of a cell of a window, and the grants of its runs beside it.
//!
//! A window has at most its limit. Another limit is added for each restart without data in it, and
//! a part of one for each outage that begins or ends in it. The shares of an outage are the limit
//! together, but an answer before it may be old, and the tokens of its last window are charged
//! late. Windows that each process begins by itself lie otherwise in an outage.

use std::time::Duration;

use tollgate::Window;

use super::cell::{Cell, CellRule, Failure, MOVED, Rule};
use super::law::{Figures, Interval};
use super::load::{Event, Record, Times};

/// Returns the figures of one key.
pub(crate) fn figures(
    cell: Cell,
    key: u64,
    times: Times,
    outages: &[(f64, f64)],
    record: &Record,
    events: &[Event],
) -> Figures {
    let own = || record.grants.iter().filter(|grant| grant.key == key);
    // A request at an edge is in neither window.
    let within = |(from, to): (f64, f64)| {
        let inside = own().filter(|grant| grant.begun >= from && grant.at < to);
        let granted = inside.map(|grant| grant.n).sum::<i64>() as f64;
        Interval { from, to, granted, bound: bound(cell, key, times, (from, to), outages) }
    };
    let windows = match cell.rule {
        // Each interval that begins with a grant.
        Rule::Sliding => own().map(|grant| (grant.begun, grant.begun + times.period)).collect(),
        Rule::FirstUse => of_first_use(key, times, record),
        _ => by_calendar(cell, times, record.begun_us),
    };
    let nearest = windows.into_iter().map(within).min_by(|one, other| one.left().total_cmp(&other.left()));
    let nearest = nearest.unwrap_or_else(|| within((0.0, times.period)));
    let granted = own().map(|grant| grant.n).sum();
    let ideal = ideal(cell, key, times, record, events) as i64;
    Figures { granted, ideal, sound: [granted, ideal], whole: nearest, window: nearest, local: None }
}

/// Returns the windows of the calendar in a run, in its seconds.
fn by_calendar(cell: Cell, times: Times, begun_us: u64) -> Vec<(f64, f64)> {
    let [window, _] = Window::of(cell, times);
    let second = |unix: Duration| unix.as_micros() as f64 / 1e6 - begun_us as f64 / 1e6;
    let (mut windows, mut at) = (Vec::new(), Duration::from_micros(begun_us));
    while second(at) < times.end {
        let (from, to) = window.edges_at(at).unwrap();
        windows.push((second(from), second(to)));
        at = to;
    }
    windows
}

/// Returns the windows in which the store granted tokens of a key, in seconds of the run.
fn of_first_use(key: u64, times: Times, record: &Record) -> Vec<(f64, f64)> {
    let own = record.windows.iter().filter(|(of, _)| *of == key);
    let ends = own.map(|(_, edge_us)| (*edge_us as f64 - record.begun_us as f64) / 1e6);
    ends.map(|end| (end - times.period, end)).collect()
}

/// Returns the most tokens of a window. An outage without an end is one that may begin and end at
/// any time.
fn bound(cell: Cell, key: u64, times: Times, (from, to): (f64, f64), outages: &[(f64, f64)]) -> f64 {
    let limit = cell.limit(times) as f64;
    if cell.failure == Failure::OneKeyBroken && key != MOVED {
        return limit;
    }
    let is_local = !matches!(cell.rule, Rule::Utc | Rule::Month);
    let concerns = |&&(begun, ended): &&(f64, f64)| {
        let is_within = |at: f64| (from - 0.1..to + 0.1).contains(&at);
        let is_any = ended == f64::MAX || is_local && begun < to && ended > from;
        // The end of an outage has the moment at which each process notices it before it.
        let ends = begun < to && is_within(times.fails.1) && ended < times.end;
        is_any || ends || is_within(begun) || is_within(ended)
    };
    let part = times.adds[usize::from(is_local)];
    let each = if cell.failure == Failure::RestartedEmpty { part.max(1.0) } else { part };
    limit * (1.0 + each * outages.iter().filter(concerns).count() as f64)
}

/// Returns the tokens that one process without failures would grant.
fn ideal(cell: Cell, key: u64, times: Times, record: &Record, events: &[Event]) -> f64 {
    let limit = cell.limit(times) as f64;
    let demand = |from: f64, to: f64| -> f64 {
        let own = events.iter().filter(|of| of.key == key && of.back_after().is_none());
        own.filter(|of| (from..to).contains(&of.at)).map(|of| of.n as f64).sum()
    };
    let (period, end) = (times.period, times.end);
    match cell.rule {
        // A little more than a period for each.
        Rule::FirstUse => (limit * end / (1.045 * period)).min(demand(0.0, end)),
        Rule::Sliding => (limit * (1.0 + (end / period - 1.0) / 1.0625)).min(demand(0.0, end)),
        _ => {
            let windows = by_calendar(cell, times, record.begun_us);
            windows.into_iter().map(|(from, to)| demand(from, to).min(limit)).sum()
        }
    }
}
