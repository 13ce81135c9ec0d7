//! The documented bound of a cell of a bucket, and the grants of its runs beside it.
//!
//! An interval of `s` seconds has at most `B + r s` tokens of a key, without those that it gives
//! back. These are added:
//!
//! * `B`, if an outage or a restart without data is in it;
//! * in the exact mode, for each process the token of a request that did not wait, and `r h` if
//!   tokens came back after at most `h` seconds: the bucket refilled meanwhile;
//! * with leases, `r tau` and a token for each process, and the tokens of late answers, dropped
//!   requests and refunds that were at hand.
//!
//! From the begin on only the bursts are added, one token's rounding, and where a store of leases
//! restarts without its data `r tau` for each burst: the debt is forgotten.

use std::collections::VecDeque;

use tollgate::Quota;

use super::cell::{Cell, Change, Failure, LOCAL, MOVED, Mode, OTHER, QUOTA, Rule, TAU};
use super::ideal::Ideal;
use super::load::{Event, Grant, Record, Times};
use super::windows;

/// The time from the end of an outage until all processes have charged their tokens: a pause of the
/// breaker, a second without a request, and two sweeps.
const SETTLES: f64 = 2.5;

/// The time for which unused tokens are at hand: a second, and a sweep.
const AT_HAND: f64 = 1.6;

/// The longest times for which a request, and a late call, has tokens that come back.
const HELD: f64 = 0.1;
const LATE: f64 = 0.3;

/// The most tokens of any interval.
#[derive(Clone, Debug)]
pub(crate) struct Law {
    burst: f64,
    rate: f64,
    /// The times of which each gives another burst to the intervals around it.
    more: Vec<(f64, f64)>,
    /// The tokens that processes hold without a request.
    unused: f64,
    /// The debt that restarts forget.
    forgotten: f64,
    /// The tokens that came back, and their times.
    back: Vec<(f64, u64)>,
}

/// An interval beside its bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) granted: f64,
    pub(crate) bound: f64,
}

impl Law {
    /// Returns the law of a key. `more` has the outages and the restarts without data.
    pub(crate) fn of(cell: Cell, key: u64, more: &[(f64, f64)], record: &Record) -> Law {
        let (burst, rate) = cell.quota();
        let processes = cell.processes as f64;
        let of_key = record.back.iter().filter(|(of, _, _)| *of == key).map(|(_, at, n)| (*at, *n));
        let is_concerned = cell.failure != Failure::OneKeyBroken || key == MOVED;
        let more = if is_concerned { more.to_vec() } else { Vec::new() };
        match cell.mode {
            Mode::Exact => {
                // Behind a breaker late tokens come back when it closes.
                let opened = if record.opened { SETTLES } else { 0.0 };
                let unused = processes + rate * (cell.away() + opened);
                Law { burst, rate, more, unused, forgotten: 0.0, back: Vec::new() }
            }
            _ => {
                let lease = rate * TAU.as_secs_f64();
                let is_empty = cell.failure == Failure::RestartedEmpty;
                let forgotten = if is_empty { lease * more.len() as f64 } else { 0.0 };
                let unused = processes * (lease + 1.0);
                Law { burst, rate, more, unused, forgotten, back: of_key.collect() }
            }
        }
    }

    /// Returns the law of an interval from the begin on.
    pub(crate) fn whole(&self) -> Law {
        Law { unused: 1.0 + self.forgotten, back: Vec::new(), ..self.clone() }
    }

    /// Returns the law of a process's limit in front.
    fn of_local(cell: Cell) -> Law {
        let (burst, rate) = (LOCAL.capacity() as f64, LOCAL.tokens() as f64);
        let away = if cell.change == Change::Refunds { HELD } else { 0.0 };
        Law { burst, rate, more: Vec::new(), unused: rate * away, forgotten: 0.0, back: Vec::new() }
    }

    /// Returns the most tokens of an interval.
    pub(crate) fn bound(&self, from: f64, to: f64) -> f64 {
        let more = self.more.iter().filter(|(begun, ended)| *begun <= to && from <= *ended).count();
        let back = self.back.iter().filter(|(at, _)| (from - AT_HAND..=from + HELD + LATE).contains(at));
        let back: u64 = back.map(|(_, n)| n).sum();
        self.burst * (1 + more) as f64 + self.rate * (to - from) + self.unused + back as f64
    }

    /// Returns the interval from a time to any grant that is nearest to its bound.
    pub(crate) fn since(&self, from: f64, grants: &[(f64, i64)]) -> Interval {
        let mut granted = 0;
        let windows = grants.iter().map(|(to, n)| {
            granted += n;
            self.window(from, *to, granted)
        });
        let nearest = windows.min_by(|one, other| one.left().total_cmp(&other.left()));
        nearest.unwrap_or_else(|| self.window(from, from, 0))
    }

    /// Returns the interval that is nearest to its bound, of those that begin and end at a grant.
    pub(crate) fn tightest(&self, grants: &[(f64, i64)]) -> Interval {
        // The end that is nearest does not depend on the begin, but for the ends before it.
        let begun = |to: f64| self.more.iter().filter(|(begun, _)| *begun <= to).count() as f64;
        let mut after: i64 = grants.iter().map(|(_, n)| n).sum();
        let (mut last, mut most) = ((0.0, 0), f64::NEG_INFINITY);
        let mut best = self.window(0.0, 0.0, 0);
        for (at, n) in grants.iter().rev() {
            let above = after as f64 - self.rate * at - self.burst * begun(*at);
            if above > most {
                (last, most) = ((*at, after), above);
            }
            after -= n;
            let window = self.window(*at, last.0, last.1 - after);
            if window.left() < best.left() {
                best = window;
            }
        }
        best
    }

    fn window(&self, from: f64, to: f64, granted: i64) -> Interval {
        Interval { from, to, granted: granted as f64, bound: self.bound(from, to) }
    }
}

impl Interval {
    /// Returns the tokens that are left to the bound.
    pub(crate) fn left(&self) -> f64 {
        self.bound - self.granted
    }

    /// Returns the part of the bound that is left.
    fn margin(&self) -> f64 {
        self.left() / self.bound
    }

    pub(crate) fn holds(&self) -> bool {
        self.left() > -1e-6
    }
}

/// The figures of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) granted: i64,
    /// The grants of ideal buckets, those of them in the seconds without a failure, and the grants
    /// in those seconds.
    pub(crate) ideal: i64,
    pub(crate) sound: [i64; 2],
    /// From the begin on and anywhere, the intervals that are nearest to their bounds, and those of
    /// a limit in front.
    pub(crate) whole: Interval,
    pub(crate) window: Interval,
    pub(crate) local: Option<[Interval; 2]>,
}

impl Figures {
    /// Tells whether no interval is above its bound.
    pub(crate) fn holds(&self) -> bool {
        let local = self.local.into_iter().flatten();
        local.chain([self.whole, self.window]).all(|interval| interval.holds())
    }

    /// Returns the part of the ideal grants, in the seconds without a failure.
    pub(crate) fn useful(&self) -> f64 {
        self.sound[0] as f64 / self.sound[1] as f64
    }

    /// Returns the figures of one key.
    pub(crate) fn of(
        cell: Cell,
        key: u64,
        times: Times,
        more: &[(f64, f64)],
        record: &Record,
        events: &[Event],
    ) -> Figures {
        if cell.rule != Rule::Bucket {
            return windows::figures(cell, key, times, more, record, events);
        }
        let law = Law::of(cell, key, more, record);
        let mut of_key: Vec<_> = record.grants.iter().filter(|grant| grant.key == key).collect();
        let local = (cell.mode == Mode::LocalFirst).then(|| {
            let law = Law::of_local(cell);
            let nearest = |of: &dyn Fn(usize) -> Interval| {
                let windows = (0..cell.processes).map(of);
                windows.min_by(|one, other| one.left().total_cmp(&other.left())).unwrap()
            };
            let by = |process, time: fn(&Grant) -> f64| {
                let own = of_key.iter().filter(move |grant| grant.process == process);
                let mut own: Vec<_> = own.map(|grant| (time(grant), grant.n)).collect();
                own.sort_by(|one, other| one.0.total_cmp(&other.0));
                own
            };
            // The limit in front decides before the answer comes.
            let whole = nearest(&|process| law.since(0.0, &by(process, |grant| grant.at)));
            [whole, nearest(&|process| law.tightest(&by(process, |grant| grant.begun)))]
        });
        of_key.sort_by(|one, other| one.at.total_cmp(&other.at));
        let grants: Vec<_> = of_key.iter().map(|grant| (grant.at, grant.n)).collect();
        let ideal = ideal(cell, key, events);
        let is_sound = |at: f64| cell.is_sound(times, at);
        let sound =
            [&grants, &ideal].map(|of| of.iter().filter(|(at, _)| is_sound(*at)).map(|(_, n)| n).sum());
        let sum = |of: &[(f64, i64)]| of.iter().map(|(_, n)| n).sum();
        Figures {
            granted: sum(&grants),
            ideal: sum(&ideal),
            sound,
            whole: law.whole().since(0.0, &grants),
            window: law.tightest(&grants),
            local,
        }
    }
}

/// The head of the table.
pub(crate) const HEAD: &str =
    "rule     failure        change         mode  processes | granted  ideal | of the bound, from the begin";

/// Returns the figures of a cell: the tokens of all keys, and those of the time from the begin on
/// that is nearest to its bound.
pub(crate) fn row(figures: &[Figures]) -> String {
    let sum = |of: fn(&Figures) -> i64| figures.iter().map(of).sum::<i64>();
    let (granted, ideal, whole) = (sum(|of| of.granted), sum(|of| of.ideal), nearest(figures, |of| of.whole));
    format!("{granted:7} {ideal:6} | {:4} of {:6.1} in {:5.3} s", whole.granted, whole.bound, whole.to)
}

/// Returns the interval that is nearest to its bound, of those with tokens.
pub(crate) fn nearest(figures: &[Figures], of: fn(&Figures) -> Interval) -> Interval {
    let windows = figures.iter().map(of);
    windows.min_by(|one, other| one.margin().total_cmp(&other.margin())).unwrap()
}

impl Cell {
    /// Returns the longest time after which tokens come back.
    fn away(self) -> f64 {
        let held = matches!(self.change, Change::Refunds | Change::DroppedFutures);
        let late = self.failure == Failure::LateAnswers;
        [(held, HELD), (late, LATE)].iter().map(|(is, time)| if *is { *time } else { 0.0 }).sum()
    }

    /// Tells whether all processes should have the tokens of a key: no failure is near, or the
    /// policy gives them the shares of the quota.
    fn is_sound(self, times: Times, at: f64) -> bool {
        match self.failure {
            Failure::LateAnswers | Failure::LostAnswers => at < times.fails.0 || at > times.fails.1 + SETTLES,
            _ => true,
        }
    }
}

/// Returns the grants of ideal buckets, under the lesser of the quotas.
fn ideal(cell: Cell, key: u64, events: &[Event]) -> Vec<(f64, i64)> {
    let is_less = matches!(cell.change, Change::TwoPlans | Change::NewRule);
    let rate = if is_less { OTHER.tokens() } else { QUOTA.tokens() };
    let mut bucket = Ideal::new(Quota::per_second(rate).burst(QUOTA.capacity()));
    let mut local: Vec<_> = (0..cell.processes).map(|_| Ideal::new(LOCAL)).collect();
    let (mut grants, mut back) = (Vec::new(), VecDeque::new());
    for event in events.iter().filter(|event| event.key == key) {
        while let Some(&(at, n, process)) = back.front()
            && at <= event.at
        {
            back.pop_front();
            bucket.put(n, at);
            // The limit in front keeps the tokens of a dropped request.
            let to_local = if cell.change == Change::Refunds { n } else { 0 };
            let local: &mut Ideal = &mut local[process];
            local.put(to_local, at);
        }
        let is_let_in = cell.mode != Mode::LocalFirst || local[event.process].take(event.n, event.at);
        if is_let_in && bucket.take(event.n, event.at) {
            match event.back_after() {
                None => grants.push((event.at, event.n as i64)),
                Some(after) => back.push_back((event.at + after, event.n, event.process)),
            }
        }
    }
    grants
}
