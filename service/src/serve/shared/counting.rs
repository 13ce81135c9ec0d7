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

/// The steps of a request that are done at the same time.
#[derive(Default)]
struct Round {
    keys: Vec<Id>,
    calls: Vec<Call>,
    leased: Vec<(usize, Leased)>,
    later: Vec<usize>,
}

/// A part of a call of the store, for the wants of one key.
struct Call {
    op: OwnedOp,
    law: CountSpec,
    id: Id,
    verb: Verb,
    sent: u64,
    /// The places of the wants, in their order.
    wants: Vec<usize>,
    was_lent: bool,
}

/// The next step of a want, by the knowledge of its key.
enum Planned {
    /// It is over its limit: the hits before.
    Known(u64),
    Busy,
    Call(Tokens, bool),
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
            let Round { calls, leased, later, .. } = round;
            let asked = leased.iter().filter_map(|(place, by)| {
                let want = wants[*place].as_ref()?;
                Some(async move { (*place, self.ask(want, by, now).await) })
            });
            let (answers, asked) = tokio::join!(self.call(&calls), join_all(asked));
            for (place, counted) in asked {
                wants[place].iter_mut().for_each(|want| want.counted = counted);
            }
            for (call, answer) in calls.iter().zip(answers) {
                self.end(call, answer, wants, now);
            }
            left = later;
        }
    }

    /// Plans the next step of a want: a result at hand, a lease, or a part of a call.
    fn plan(&self, place: usize, want: &mut Want<'_>, round: &mut Round, now: UnixTime) {
        let (unit, requests, gives_back) = match want.counter {
            Counter::Unlimited => return,
            Counter::Window { unit, requests, state } => (*unit, *requests, &state.gives_back),
            Counter::Text { limiter, .. } => {
                return self.by_rule(place, Counts::Rule(limiter.rule), (want.key, OF_TEXTS), round);
            }
        };
        let id = (want.key, unit as u32);
        let same = |call: &&mut Call| call.id == id && call.verb == Verb::Add && want.verb == Verb::Add;
        if let Some(call) = round.calls.iter_mut().find(same) {
            let max = &mut call.op.amount.max;
            *max = max.saturating_add_unsigned(want.hits.min(MOST)).min(MOST as i64);
            return call.wants.push(place);
        }
        if round.keys.contains(&id) {
            return round.later.push(place);
        }
        if want.verb == Verb::GiveBack {
            gives_back.store(true, Relaxed);
        }
        let is_exact = gives_back.load(Relaxed);
        let (at, limit) = (self.now(), u64::from(requests));
        let planned = self.with_known(id, |known| {
            let before = match want.verb {
                Verb::GiveBack => {
                    return match (known.take_back(want.hits, at), self.settings.layout, known.edge(at)) {
                        (0, ..) if want.hits > 0 => Planned::Known(known.used(at).unwrap_or(0)),
                        (rest, Layout::Envoy, _) => Planned::Call(Known::back(rest, 0), false),
                        (rest, Layout::Tollgate, Some(of_us)) => {
                            let was_lent = known.lent > 0;
                            let told = Tokens { of_us, ..known.untold(at) };
                            Planned::Call(Tokens { max: Known::back(rest, of_us).max, ..told }, was_lent)
                        }
                        // Its window has to be known first.
                        (_, Layout::Tollgate, None) => Planned::Busy,
                    };
                }
                _ if is_exact || !self.settings.caches_over => None,
                Verb::Add => known.refuse(want.hits, limit, at, self.settings.layout),
                _ => known.used(at).filter(|used| *used >= limit),
            };
            if let Some(before) = before {
                return Planned::Known(before);
            }
            if known.is_busy(at, self.buckets.is_away(), want.verb == Verb::Look)
                && requests > 0
                && !is_exact
                && self.settings.leases()
            {
                return Planned::Busy;
            }
            let was_lent = known.lent > 0;
            let added = if want.verb == Verb::Add { want.hits } else { 0 };
            Planned::Call(known.add(added, at), was_lent)
        });
        match planned {
            Planned::Known(before) => {
                self.by_known.fetch_add(1, Relaxed);
                want.counted = Some(Counted::in_window(Hits::of(before, want.added()), requests, unit, now));
            }
            Planned::Busy => self.by_rule(place, Counts::Unit(unit, requests.max(1)), id, round),
            Planned::Call(amount, was_lent) => {
                let Ok(law) = CountSpec::new(of_unit(unit), Duration::from_secs(now.0)) else { return };
                let Some(windows) = self.windows(of_unit(unit)) else { return };
                let key = match self.settings.layout {
                    Layout::Tollgate => windows.store_key(&want.store_key()),
                    Layout::Envoy => store_key::of_envoy(want.domain, want.entries, want.shared),
                };
                let op = OwnedOp { key, law: law.into(), amount };
                let (verb, wants) = (want.verb, vec![place]);
                round.keys.push(id);
                round.calls.push(Call { op, law, id, verb, sent: at, wants, was_lent });
            }
        }
    }

    /// Plans a decision by the shared limiter of the library.
    fn by_rule(&self, place: usize, counts: Counts, id: Id, round: &mut Round) {
        if round.keys.contains(&id) {
            return round.later.push(place);
        }
        round.keys.push(id);
        round.leased.extend(self.rule(counts).map(|by| (place, by)));
    }

    async fn call(&self, calls: &[Call]) -> Vec<Option<StoreAnswer>> {
        match calls {
            [] => Vec::new(),
            calls => self.buckets.call(calls.iter().map(|call| call.op.clone()).collect()).await,
        }
    }

    /// Ends a call: its wants have their results.
    fn end(&self, call: &Call, answer: Option<StoreAnswer>, wants: &mut [Option<Want<'_>>], now: UnixTime) {
        let Some(answer) = answer else {
            let told = call.op.amount;
            self.with_known(call.id, |known| known.not_told(told, call.was_lent, self.now()));
            let of_call = call.wants.iter();
            return of_call.for_each(|place| self.without_store(call, &mut wants[*place], now));
        };
        let used = self.with_known(call.id, |known| known.tell(&call.law, call.op.amount, answer, call.sent));
        let added = u64::try_from(answer.granted).unwrap_or(0);
        let mut before = used.saturating_sub(added);
        for place in &call.wants {
            let Some(want) = &mut wants[*place] else { continue };
            let Counter::Window { unit, requests, .. } = want.counter else { continue };
            want.counted = Some(Counted::in_window(Hits::of(before, want.added()), *requests, *unit, now));
            before = before.saturating_add(want.added());
        }
    }

    /// Decides by the policy of an outage.
    #[cold]
    fn without_store(&self, call: &Call, want: &mut Option<Want<'_>>, now: UnixTime) {
        let Some(want) = want else { return };
        self.without_store.fetch_add(1, Relaxed);
        let Counter::Window { unit, requests, .. } = want.counter else { return };
        let limit = u64::from(*requests);
        let share = match self.settings.on_outage {
            OnOutage::Local { share } => Some(share),
            OnOutage::Allow => None,
            _ => Some(0.0),
        };
        let lending = Lending { share, limit };
        let (at, unix) = (self.now(), self.clock.unix_time());
        let ((before, is_granted), is_lent) = self.with_known(call.id, |known| {
            let lent = known.lend(want.added(), lending, &call.law, (at, unix), want.verb == Verb::Add);
            (lent, known.lent > 0)
        });
        if is_lent {
            let op = OwnedOp { amount: Tokens::default(), ..call.op.clone() };
            self.lent().insert(call.id, (op, call.law));
        }
        want.counted = Some(decided(before, want.added(), is_granted, (*unit, *requests), now));
    }
}

/// Returns the result of hits that are granted or refused, whatever the hits before. Refused ones
/// are beyond the limit.
pub(super) fn decided(
    before: u64,
    hits: u64,
    is_granted: bool,
    (unit, requests): (Unit, u32),
    now: UnixTime,
) -> Counted {
    let limit = u64::from(requests);
    let is_within = before.saturating_add(hits) <= limit;
    let before = if !is_granted && is_within { limit } else { before };
    Counted { is_over: !is_granted, ..Counted::in_window(Hits::of(before, hits), requests, unit, now) }
}
