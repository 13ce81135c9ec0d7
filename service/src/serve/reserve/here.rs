//! Reservations whose amounts are counted in this process.

use std::collections::HashSet;
use std::time::Duration;

use tollgate::{AnyRule, Hold, Moment};

use super::id::{Part, Parts, ReservationId};
use super::settlement::{Change, Settlement};
use crate::rules::tree::Unit;
use crate::serve::counts::{Counted, LimitCounts, UnixTime, Verb};
use crate::serve::decide::{Answering, Decision, Found};
use crate::serve::limiters::{CountKey, Hits, MOST, TextLimiter, Windows};
use crate::serve::lists::Limits;
use crate::serve::loaded::Counter;
use crate::serve::messages::{Code, RateLimitDescriptor, RateLimitResponse};

/// The least time to the end of a window in which hits are given back. A thread that sleeps longer
/// between its reading of the clock and the give-back counts them again.
const MARGIN: u64 = 5_000_000;

/// An amount that is counted under a limit, and may go back at once.
pub(super) struct Held<'a> {
    hold: Hold<'a>,
    part: Part,
}

impl<'a> Decision<'a> {
    /// Counts an amount under the limit of each descriptor, or under none of them if one of them
    /// refuses the request.
    ///
    /// A limit in shadow mode, and a quota beside others, refuses nothing: where its count has no
    /// room, nothing is counted. Each limit is asked, so that the statistics have all refusals.
    /// The parts are `None` if nothing is to be settled: no limit counts, or one refuses.
    pub(super) fn reserve(&self, amount: u64) -> (Code, Option<Parts>) {
        let mut limits = self.limits();
        limits.change(|found| Found::adding(found, amount));
        let (mut counted, mut all) = (Vec::new(), Vec::new());
        for (index, (place, _, found)) in limits.each().enumerate() {
            let held = match found {
                Some(limit) => self.counts.hold(&limit.counter, limit.key, amount, self.now),
                None => None,
            };
            let (result, held) = held.unzip();
            counted.push(result);
            all.extend(held.flatten().map(|held| (index, place, held)));
        }
        let mut answering = Answering::of(self.request);
        limits.tell(self, &counted, &mut answering);
        let code = self.end(answering).overall_code();
        if code == Code::OverLimit {
            // Each hold gives back those hits alone that it has counted.
            for (index, _, held) in all {
                held.hold.settle(0);
                self.record_back(&limits.list[index], counted[index].as_ref());
            }
            return (code, None);
        }
        // A hold that is dropped stays charged.
        let parts = all.iter().map(|(_, place, held)| (*place, held.part)).collect();
        (code, counted.iter().any(Option::is_some).then_some(parts))
    }

    /// Counts hits in the statistics that went back to a limit, as another one refuses them.
    pub(super) fn record_back(
        &self,
        (descriptor, found): &(&RateLimitDescriptor, Option<Found<'_>>),
        counted: Option<&Counted>,
    ) {
        if let (Some(found), Some(counted)) = (found, counted) {
            self.record(descriptor, &Found { is_negative: true, ..found.clone() }, counted, false);
        }
    }

    /// Decides with hits that are looked at, or are added in any case.
    pub(super) fn answer_by(&self, verb: Verb) -> RateLimitResponse {
        let mut limits = self.limits();
        let count =
            |found: &Found<'_>| self.counts.counted(&found.counter, found.key, found.used_by(verb), self.now);
        let counted: Vec<_> = limits.each().map(|(_, _, found)| found.and_then(count)).collect();
        limits.change(|found| found.told_by(verb));
        let mut answering = Answering::of(self.request);
        limits.tell(self, &counted, &mut answering);
        self.end(answering)
    }

    /// Brings the count of each limit from the reserved amount to the actual one.
    pub(super) fn settle(&self, id: &ReservationId, settlement: Settlement) {
        let (limits, mut answering) = (self.limits(), Answering::of(self.request));
        let kinds = limits.kinds();
        for (place, descriptor, found) in limits.each() {
            let Some(found) = found else { continue };
            let kind = found.counter.kind();
            let change = settlement.change(id.amount, id.part(place, kind, &kinds), kind);
            let (verb, hits, is_negative) = match change {
                None => continue,
                Some(Change::More(hits)) => ((Verb::Charge, hits), hits, false),
                Some(Change::Back(hits, part)) => {
                    let hits = self.counts.give_back_of(&found.counter, found.key, hits, part);
                    ((Verb::Look, 0), hits, true)
                }
            };
            let counted = self.counts.counted(&found.counter, found.key, verb, self.now);
            let found = Found { hits, is_negative, ..found.clone() };
            self.add_status(descriptor, Some(&found), counted, &[], &mut answering);
        }
        // No request waits for the answer.
        drop(answering);
    }
}

impl LimitCounts {
    /// Counts hits. A plain decision keeps its own copy inlined.
    #[inline(never)]
    fn counted(&self, counter: &Counter, key: CountKey, verb: (Verb, u64), now: UnixTime) -> Option<Counted> {
        self.count(counter, key, verb, now)
    }

    /// Adds all hits, or none if they are beyond the limit. Returns the result, and the hits that
    /// are held; `None` without a limit.
    pub(super) fn hold<'c>(
        &'c self,
        counter: &'c Counter,
        key: CountKey,
        hits: u64,
        now: UnixTime,
    ) -> Option<(Counted, Option<Held<'c>>)> {
        if hits == 0 {
            return Some((self.counted(counter, key, (Verb::Look, 0), now)?, None));
        }
        // Read before the hits are counted: the end that it leads to is never too late.
        let began = self.of(Unit::Second).keys.now();
        let (counted, hold, wait, placed) = match counter {
            Counter::Unlimited => return None,
            Counter::Window { unit, requests, state } => {
                let placed = self.key_of(counter, state, key, Verb::Add);
                let (hits, hold) = self.of(*unit).hold(placed.key, hits, (*requests).into(), began);
                let wait = hold.as_ref().map_or(Duration::ZERO, |hold| hold.granted().reset_after());
                (Counted::in_window(hits, *requests, *unit, now), hold, wait, placed)
            }
            Counter::Text { limiter, state, .. } => {
                let placed = self.key_of(counter, state, key, Verb::Add);
                let (taken, hold) = limiter.table.hold(placed.key, hits);
                let wait = match limiter.earns(hits) {
                    Some(earned) => taken.wait.min(earned),
                    None => taken.wait.saturating_sub(limiter.fades_for()),
                };
                (Counted::by_text(limiter, taken, hits), hold, wait, placed)
            }
        };
        self.begin(counted.hits, &placed, Verb::Add);
        let until = began.as_nanos().saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        // A bucket takes no more than it has room for, so its time is rounded up.
        let is_bucket = matches!(counter, Counter::Text { limiter, .. } if limiter.is_bucket());
        let until_us = if is_bucket { until.div_ceil(1_000) } else { until / 1_000 };
        let part = Part { until_us, kind: counter.kind() };
        Some((counted, hold.map(|hold| Held { hold, part })))
    }

    /// Gives hits of a reservation back, as far as the count would have them without it. Returns
    /// the number of those that went back.
    fn give_back_of(&self, counter: &Counter, key: CountKey, hits: u64, part: Part) -> u64 {
        let until = part.until_us.saturating_mul(1_000);
        let left = until.saturating_sub(self.nanos());
        let (state, limiter) = match counter {
            Counter::Unlimited => return 0,
            Counter::Window { state, .. } => (state, None),
            Counter::Text { limiter, state, .. } => (state, Some(limiter)),
        };
        let placed = self.key_of(counter, state, key, Verb::GiveBack);
        match (counter, limiter.map(|limiter| limiter.rule)) {
            (_, Some(AnyRule::Quota(quota))) => {
                let hits = hits.min(tokens_of(left, quota.tokens(), quota.period()));
                limiter.iter().for_each(|limiter| _ = limiter.table.give_back(placed.key, hits));
                return hits;
            }
            _ if left < MARGIN => return 0,
            (Counter::Window { unit, .. }, _) => _ = self.of(*unit).give_back(placed.key, hits),
            _ => limiter.iter().for_each(|limiter| _ = limiter.table.give_back(placed.key, hits)),
        }
        if self.nanos() < until {
            return hits;
        }
        // The window ended meanwhile, so hits of others may have gone back.
        self.counted(counter, key, (Verb::Charge, hits), UnixTime(0));
        0
    }
}

/// Returns the tokens that a bucket earns in a time: those that it has room for before it is full.
pub(super) fn tokens_of(nanos: u64, tokens: u64, period: Duration) -> u64 {
    let earned = u128::from(nanos) * u128::from(tokens) / period.as_nanos().max(1);
    u64::try_from(earned).unwrap_or(u64::MAX)
}

impl Windows {
    /// Adds all hits, or none if they are beyond a limit. Returns the hits that were added, or
    /// those that would have been.
    ///
    /// A look comes first, so that hits which have no room are not counted for a moment.
    fn hold(&self, key: CountKey, hits: u64, limit: u64, now: Moment) -> (Hits, Option<Hold<'_>>) {
        let ask = self.keys.key(&key).at(now);
        let looked = Hits::of(MOST - ask.peek().remaining(), hits);
        if looked.after > limit {
            return (looked, None);
        }
        let Ok(hold) = ask.n(hits).hold() else { return (Hits { after: u64::MAX, ..looked }, None) };
        let after = MOST - hold.granted().remaining();
        let added = Hits { before: after - hits, after };
        if after <= limit {
            return (added, Some(hold));
        }
        // Others were faster.
        hold.settle(0);
        (added, None)
    }
}

impl TextLimiter {
    pub(super) fn is_bucket(&self) -> bool {
        matches!(self.rule, AnyRule::Quota(_))
    }

    /// Returns the time in which a bucket earns tokens; `None` of a window.
    ///
    /// A reservation gives back no tokens after it, as others may have filled the bucket meanwhile.
    pub(in crate::serve) fn earns(&self, tokens: u64) -> Option<Duration> {
        let AnyRule::Quota(quota) = self.rule else { return None };
        let nanos =
            quota.period().as_nanos().saturating_mul(tokens.into()).div_ceil(quota.tokens().max(1).into());
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Returns the time for which tokens count after the end of their window or sub-window.
    fn fades_for(&self) -> Duration {
        let AnyRule::Window(window) = self.rule else { return Duration::ZERO };
        let is_sliding = window.sub_window().is_some() || window.span() >= 2 * window.period();
        if is_sliding { window.period() } else { Duration::ZERO }
    }
}

impl Limits<'_> {
    /// Returns the kind of each limit with its descriptor.
    pub(super) fn kinds(&self) -> HashSet<(u32, u32)> {
        self.each()
            .filter_map(|((descriptor, _), _, found)| Some((descriptor, found?.counter.kind())))
            .collect()
    }
}

impl Counter {
    /// Returns the kind of the limit in the ids of reservations.
    pub(super) fn kind(&self) -> u32 {
        match self {
            Counter::Unlimited => 0,
            Counter::Window { unit, .. } => *unit as u32,
            Counter::Text { limiter, .. } => limiter.kind,
        }
    }
}

impl Found<'_> {
    /// Returns the limit with hits that are added, whatever its descriptor says.
    pub(super) fn adding(found: Self, hits: u64) -> Self {
        Found { hits, is_negative: false, ..found }
    }

    /// Returns the use of the hits by a request that looks, or whose hits count in any case.
    pub(super) fn used_by(&self, verb: Verb) -> (Verb, u64) {
        (if self.is_negative { Verb::GiveBack } else { verb }, self.hits)
    }

    /// Returns the limit with the hits of the statistics: those of a look are none.
    pub(super) fn told_by(self, verb: Verb) -> Self {
        let hits = if verb == Verb::Look { 0 } else { self.hits };
        Found { hits, ..self }
    }
}
