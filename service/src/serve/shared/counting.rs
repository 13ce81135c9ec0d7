//! The wants of a request, from the knowledge of their keys or by one call of the store.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::join_all;
use tollgate_distributed::{Amount as Tokens, CountSpec, OnOutage, OwnedOp, StoreAnswer};

use super::known::{Known, Lending};
use super::settings::Layout;
use super::{Counts, Id, Leased, OF_TEXTS, SharedCounts, Want, of_unit, store_key};
use crate::rules::tree::Unit;
use crate::serve::counts::{Counted, UnixTime, Verb};
use crate::serve::limiters::{Hits, MOST};
use crate::serve::loaded::Counter;

/// The most keys of which the store is told later, and the most bytes of one.
const MOST_LENT: usize = 1 << 16;
const MOST_OF_A_KEY: usize = 1_024;

/// The steps of a request that are done at the same time.
#[derive(Default)]
struct Round<'s> {
    keys: Vec<Id>,
    calls: Vec<Call<'s>>,
    leased: Vec<(usize, Leased)>,
    later: Vec<usize>,
}

/// A part of a call of the store, for the wants of one key. If its request is dropped before the
/// answer, the hits that the call tells are told once more: they may count twice, and none is lost.
struct Call<'s> {
    shared: &'s SharedCounts,
    op: OwnedOp,
    law: CountSpec,
    id: Id,
    verb: Verb,
    sent: u64,
    /// The places of the wants, in their order.
    wants: Vec<usize>,
    was_lent: bool,
    is_ended: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.is_ended && self.op.amount.spent > 0 {
            self.shared.not_told(self);
        }
    }
}

/// The next step of a want, by the knowledge of its key.
enum Planned {
    /// It is over its limit: the hits before.
    Known(u64),
    Busy,
    Call(Tokens, bool),
    /// The hits that go back wait for the store: those that are left.
    Owed(u64),
}

impl SharedCounts {
    /// Counts all wants, and writes their results. The wants of one key are one call, if all of
    /// them add hits to windows; else the later ones wait for those before.
    pub(in crate::serve) async fn count_all(&self, wants: &mut [Option<Want<'_>>], now: UnixTime) {
        let mut left: Vec<usize> = (0..wants.len()).collect();
        while !left.is_empty() {
            let mut round = Round::default();
            for place in left {
                if let Some(want) = &mut wants[place] {
                    self.plan(place, want, &mut round, now);
                }
            }
            let Round { mut calls, leased, later, .. } = round;
            let asked = leased.iter().filter_map(|(place, by)| {
                let want = wants[*place].as_ref()?;
                Some(async move { (*place, self.ask(want, by, now).await) })
            });
            let (answers, asked) = tokio::join!(self.call(&calls), join_all(asked));
            for (place, counted) in asked {
                let Some(want) = &mut wants[place] else { continue };
                if let Some((counted, edge_us)) = counted {
                    (want.counted, want.edge_us) = (Some(counted), edge_us);
                }
            }
            for (call, answer) in calls.iter_mut().zip(answers) {
                call.is_ended = true;
                self.end(call, answer, wants, now);
            }
            left = later;
        }
    }

    /// Plans the next step of a want: a result at hand, a lease, or a part of a call.
    fn plan<'s>(&'s self, place: usize, want: &mut Want<'_>, round: &mut Round<'s>, now: UnixTime) {
        let (unit, requests, gives_back) = match want.counter {
            Counter::Unlimited => return,
            Counter::Window { unit, requests, state } => (*unit, *requests, &state.gives_back),
            Counter::Text { limiter, .. } => {
                return self.by_rule(
                    place,
                    Counts::Rule(limiter.rule),
                    (want.key, OF_TEXTS * want.place),
                    round,
                );
            }
        };
        let id = (want.key, unit as u32);
        let joins = !matches!(want.verb, Verb::GiveBack | Verb::Hold);
        let same = |call: &&mut Call<'_>| call.id == id && call.verb == want.verb && joins;
        if let Some(call) = round.calls.iter_mut().find(same) {
            let (max, added) = (&mut call.op.amount.max, if want.verb.adds() { want.hits } else { 0 });
            *max = max.saturating_add_unsigned(added.min(MOST)).min(MOST as i64);
            return call.wants.push(place);
        }
        if round.keys.contains(&id) {
            return round.later.push(place);
        }
        // Held hits may go back.
        if matches!(want.verb, Verb::GiveBack | Verb::Hold) {
            gives_back.store(true, Relaxed);
        }
        let is_exact = gives_back.load(Relaxed);
        let (at, limit, is_away) = (self.now(), u64::from(requests), self.buckets.is_away());
        let allows = self.settings.on_outage == OnOutage::Allow;
        let ends = at.saturating_add(self.rest_of(unit));
        let planned = self.with_known(id, |known| {
            known.under(limit);
            let before = match want.verb {
                // It is never granted.
                Verb::Hold if want.hits > limit => return Planned::Known(known.used(at).unwrap_or(0)),
                Verb::Hold => {
                    let (hits, was_lent) = (want.hits as i64, known.lent > 0);
                    let told = known.untold(at);
                    return Planned::Call(Tokens { min: hits, max: hits, ..told }, was_lent);
                }
                Verb::GiveBack if want.edge_us != 0 && known.edge(at) != Some(want.edge_us) => {
                    return match known.edge(at) {
                        // Its window is over.
                        Some(_) => Planned::Known(known.used(at).unwrap_or(0)),
                        None => Planned::Call(Known::back(want.hits, want.edge_us), false),
                    };
                }
                Verb::GiveBack => {
                    return match (known.take_back(want.hits, at), self.settings.layout, known.edge(at)) {
                        (0, ..) if want.hits > 0 => Planned::Known(known.used(at).unwrap_or(0)),
                        (rest, _, Some(_)) if is_away => {
                            known.owe_back(rest);
                            Planned::Owed(known.used(at).unwrap_or(0))
                        }
                        (rest, Layout::Envoy, _) => Planned::Call(Known::back(rest, want.edge_us), false),
                        (rest, Layout::Tollgate, Some(of_us)) => {
                            let was_lent = known.lent > 0;
                            let told = Tokens { of_us, ..known.untold(at) };
                            Planned::Call(Tokens { max: Known::back(rest, of_us).max, ..told }, was_lent)
                        }
                        // Its window has to be known first.
                        (_, Layout::Tollgate, None) => Planned::Busy,
                    };
                }
                // The policy grants all, also beyond the limit.
                _ if allows && (is_away || known.lent > 0) => None,
                _ if is_exact || !self.caches_over() => None,
                verb if verb.adds() => known.refuse(want.hits, limit, at, self.settings.layout),
                _ => known.used(at).filter(|used| *used >= limit),
            };
            if let Some(before) = before {
                return Planned::Known(before);
            }
            let leases = requests > 0 && !is_exact && self.settings.leases();
            if leases && known.is_leased(at, ends, is_away, want.verb == Verb::Look) {
                return Planned::Busy;
            }
            let was_lent = known.lent > 0;
            let added = if want.verb.adds() { want.hits } else { 0 };
            Planned::Call(known.add(added, at), was_lent)
        });
        match planned {
            Planned::Known(before) => {
                self.by_known.fetch_add(1, Relaxed);
                want.counted = Some(self.in_window(before, want.added(), (unit, requests), now));
            }
            Planned::Owed(used) => {
                want.counted = Some(self.in_window(used, 0, (unit, requests), now));
                if let Some(op) = self.op_of(want, unit, now, Tokens::default()) {
                    self.tell_later(id, &op);
                }
            }
            Planned::Busy => self.by_rule(place, Counts::Unit(unit, requests.max(1)), id, round),
            Planned::Call(amount, was_lent) => {
                let Some((op, law)) = self.op_of(want, unit, now, amount) else { return };
                let (verb, wants) = (want.verb, vec![place]);
                round.keys.push(id);
                let (shared, sent, is_ended) = (self, at, false);
                round.calls.push(Call { shared, op, law, id, verb, sent, wants, was_lent, is_ended });
            }
        }
    }

    /// Returns the operation on a count of a unit.
    pub(super) fn op_of(
        &self,
        want: &Want<'_>,
        unit: Unit,
        now: UnixTime,
        amount: Tokens,
    ) -> Option<(OwnedOp, CountSpec)> {
        let endless = of_unit(unit);
        let window = match (want.verb, want.counter) {
            // The store decides.
            (Verb::Hold, Counter::Window { requests, .. }) => endless.with_limit((*requests).into()).ok()?,
            _ => endless,
        };
        let law = CountSpec::new(window, Duration::from_secs(now.0)).ok()?;
        // A window of the reference begins at a multiple of its length since 1970, also a week.
        let law = if self.settings.layout == Layout::Envoy { law.from_1970() } else { law };
        let key = match self.settings.layout {
            Layout::Tollgate => self.windows(of_unit(unit))?.store_key(&want.store_key()),
            Layout::Envoy => store_key::of_envoy(want.domain, want.entries, want.shared),
        };
        Some((OwnedOp { key, law: law.into(), amount }, law))
    }

    /// Returns the nanoseconds to the end of the window of a unit.
    fn rest_of(&self, unit: Unit) -> u64 {
        let period = u64::from(unit.seconds()) * 1_000_000_000;
        let unix = self.clock.unix_time().as_nanos() as u64;
        period - unix.saturating_add(unit.anchor() * 1_000_000_000) % period
    }

    /// Plans a decision by the shared limiter of the library.
    fn by_rule(&self, place: usize, counts: Counts, id: Id, round: &mut Round<'_>) {
        if round.keys.contains(&id) {
            return round.later.push(place);
        }
        round.keys.push(id);
        round.leased.extend(self.rule(counts).map(|by| (place, by)));
    }

    async fn call(&self, calls: &[Call<'_>]) -> Vec<Option<StoreAnswer>> {
        match calls {
            [] => Vec::new(),
            calls => self.buckets.call(calls.iter().map(|call| call.op.clone()).collect()).await,
        }
    }

    /// Ends a call: its wants have their results.
    fn end(
        &self,
        call: &Call<'_>,
        answer: Option<StoreAnswer>,
        wants: &mut [Option<Want<'_>>],
        now: UnixTime,
    ) {
        let Some(answer) = answer else {
            self.not_told(call);
            let of_call = call.wants.iter();
            return of_call.for_each(|place| self.without_store(call, &mut wants[*place], now));
        };
        let used = self.with_known(call.id, |known| known.tell(&call.law, call.op.amount, answer, call.sent));
        let added = u64::try_from(answer.granted).unwrap_or(0);
        let mut before = used.saturating_sub(added);
        for place in &call.wants {
            let Some(want) = &mut wants[*place] else { continue };
            let Counter::Window { unit, requests, .. } = want.counter else { continue };
            let of = (*unit, *requests);
            want.counted = Some(match want.verb {
                Verb::Hold => {
                    want.edge_us = answer.edge_us;
                    self.decided(before, want.hits, added >= want.hits, of, now)
                }
                _ => self.in_window(before, want.added(), of, now),
            });
            before = before.saturating_add(if want.verb.adds() { want.hits } else { 0 });
        }
    }

    /// Notes the hits again that a call has not told.
    #[cold]
    fn not_told(&self, call: &Call<'_>) {
        let is_lent = self.with_known(call.id, |known| {
            known.not_told(call.op.amount, call.was_lent, self.now());
            known.lent > 0
        });
        if is_lent {
            self.tell_later(call.id, &(call.op.clone(), call.law));
        }
    }

    /// Notes that the store is to be told of a key, if it is not too long, and if those noted are
    /// not too many.
    fn tell_later(&self, id: Id, of: &(OwnedOp, CountSpec)) {
        let mut lent = self.lent();
        if of.0.key.len() <= MOST_OF_A_KEY && (lent.len() < MOST_LENT || lent.contains_key(&id)) {
            lent.insert(id, of.clone());
        }
    }

    /// Decides by the policy of an outage.
    #[cold]
    fn without_store(&self, call: &Call<'_>, want: &mut Option<Want<'_>>, now: UnixTime) {
        let Some(want) = want else { return };
        self.without_store.fetch_add(1, Relaxed);
        let Counter::Window { unit, requests, .. } = want.counter else { return };
        let limit = u64::from(*requests);
        let share = match self.settings.on_outage {
            // They were used.
            _ if want.verb == Verb::Charge => None,
            OnOutage::Local { share } => Some(share),
            OnOutage::Allow => None,
            _ => Some(0.0),
        };
        let lending = Lending { share, limit };
        let (at, unix) = (self.now(), self.clock.unix_time());
        let id = self.lending(call.id);
        let ((before, is_granted), is_lent) = self.with_known(id, |known| {
            let lent = known.lend(want.added(), lending, &call.law, (at, unix), want.verb.adds());
            if want.verb == Verb::Hold {
                want.edge_us = known.edge(at).unwrap_or(0);
            }
            (lent, known.lent > 0)
        });
        if is_lent && id == call.id {
            self.tell_later(id, &(call.op.clone(), call.law));
        }
        want.counted = Some(self.decided(before, want.added(), is_granted, (*unit, *requests), now));
    }

    /// Returns the result of hits that are granted or refused, whatever the hits before. Refused
    /// ones are beyond the limit.
    pub(super) fn decided(
        &self,
        before: u64,
        hits: u64,
        is_granted: bool,
        (unit, requests): (Unit, u32),
        now: UnixTime,
    ) -> Counted {
        let limit = u64::from(requests);
        let is_within = before.saturating_add(hits) <= limit;
        let before = if !is_granted && is_within { limit } else { before };
        Counted { is_over: !is_granted, ..self.in_window(before, hits, (unit, requests), now) }
    }

    /// Returns the result of hits that come after those before.
    fn in_window(&self, before: u64, hits: u64, of: (Unit, u32), now: UnixTime) -> Counted {
        let (unit, requests) = of;
        let counted = Counted::in_window(Hits::of(before, hits), requests, unit, now);
        let period = u64::from(unit.seconds());
        match self.settings.layout {
            Layout::Envoy => Counted { reset: period - now.0 % period, ..counted },
            Layout::Tollgate => counted,
        }
    }
}
