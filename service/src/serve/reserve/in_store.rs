//! Reservations whose amounts are counted in a store.

use std::time::Duration;

use tollgate::AnyRule;

use super::here::tokens_of;
use super::id::{Part, Parts, ReservationId};
use super::settlement::{Change, Settlement};
use crate::serve::counts::Verb;
use crate::serve::decide::{Answering, Decision, Found};
use crate::serve::lists::Limits;
use crate::serve::loaded::Counter;
use crate::serve::messages::{Code, RateLimitResponse};
use crate::serve::shared::reserved::{OWN, StoreMark};
use crate::serve::shared::{SharedCounts, Want};

/// The most by which the clocks of replicas may differ.
const SKEW: Duration = Duration::from_secs(60);

impl Decision<'_> {
    /// Does as [`reserve`](Decision::reserve) over a store, which decides on each limit.
    pub(super) async fn reserve_shared(&self, shared: &SharedCounts, amount: u64) -> (Code, Option<Parts>) {
        let mut limits = self.limits();
        limits.change(|found| Found::adding(found, amount));
        let mut wants = self.wants(&limits.list, |_, found| match found.hits {
            0 => (Verb::Look, 0),
            hits => (Verb::Hold, hits),
        });
        shared.count_all(&mut wants, self.now).await;
        let code = self.told(&limits, &wants).overall_code();
        let is_refused = code == Code::OverLimit;
        // The keys of envoyproxy/ratelimit count a refused amount as well.
        let counts_all = shared.counts_refused();
        let is_counted = wants.iter().any(|want| want.as_ref().is_some_and(|want| want.counted.is_some()));
        let mut parts = Vec::with_capacity(wants.len());
        for (index, ((place, ..), want)) in limits.each().zip(&mut wants).enumerate() {
            let part = want.as_ref().and_then(|want| part_of(want, false));
            parts.extend(part.map(|part| (place, part)));
            if is_refused && part.is_some() {
                let counted = want.as_ref().and_then(|want| want.counted.as_ref());
                self.record_back(&limits.list[index], counted);
            }
            let has_counted = want.as_ref().is_some_and(|want| part_of(want, counts_all).is_some());
            let goes_back = has_counted && (is_refused || part.is_none());
            match want {
                Some(want) if goes_back => {
                    (want.verb, want.counted) = (Verb::GiveBack, None);
                    if matches!(want.counter, Counter::Text { limiter, .. } if limiter.is_bucket()) {
                        want.edge_us = OWN;
                    }
                }
                want => *want = None,
            }
        }
        if wants.iter().any(Option::is_some) {
            shared.count_all(&mut wants, self.now).await;
        }
        (code, (is_counted && !is_refused).then_some(parts))
    }

    /// Returns the answer by the results of all limits.
    fn told(&self, limits: &Limits<'_>, wants: &[Option<Want<'_>>]) -> RateLimitResponse {
        let counted: Vec<_> = wants.iter().map(|want| want.as_ref()?.counted).collect();
        let mut answering = Answering::of(self.request);
        limits.tell(self, &counted, &mut answering);
        self.end(answering)
    }

    /// Does as [`answer_by`](Decision::answer_by) over a store.
    pub(super) async fn answer_shared_by(&self, shared: &SharedCounts, verb: Verb) -> RateLimitResponse {
        let mut limits = self.limits();
        let mut wants = self.wants(&limits.list, |_, found| found.used_by(verb));
        shared.count_all(&mut wants, self.now).await;
        let counted: Vec<_> = wants.into_iter().map(|want| want?.counted).collect();
        limits.change(|found| found.told_by(verb));
        let mut answering = Answering::of(self.request);
        limits.tell(self, &counted, &mut answering);
        self.end(answering)
    }

    /// Does as [`settle`](Decision::settle) over a store.
    pub(super) async fn settle_shared(
        &self,
        shared: &SharedCounts,
        id: &ReservationId,
        settlement: Settlement,
    ) {
        let limits = self.limits();
        let kinds = limits.kinds();
        let mut changed = Vec::new();
        let mut edges = Vec::new();
        for (place, descriptor, found) in limits.each() {
            let Some(found) = found else { continue };
            let kind = found.counter.kind();
            let change = settlement.change(id.amount, id.part(place, kind, &kinds), kind);
            let (hits, is_negative, edge) = match change {
                None => continue,
                Some(Change::More(hits)) => (hits, false, 0),
                Some(Change::Back(hits, part)) => {
                    (self.room_of(&found.counter, hits, part), true, part.until_us)
                }
            };
            changed.push((descriptor, Some(Found { hits, is_negative, ..found.clone() })));
            edges.push(edge);
        }
        let verb = |found: &Found<'_>| if found.is_negative { Verb::GiveBack } else { Verb::Charge };
        let mut wants = self.wants(&changed, |_, found| (verb(found), found.hits));
        for (want, edge) in wants.iter_mut().zip(edges) {
            want.iter_mut().for_each(|want| want.edge_us = edge);
        }
        shared.count_all(&mut wants, self.now).await;
        let mut answering = Answering::of(self.request);
        for ((descriptor, found), want) in changed.iter().zip(&wants) {
            let counted = want.as_ref().and_then(|want| want.counted);
            self.add_status(descriptor, found.as_ref(), counted, &[], &mut answering);
        }
    }

    /// Returns the hits for which the count has room. Those of a window are in the store's hand.
    fn room_of(&self, counter: &Counter, hits: u64, part: Part) -> u64 {
        let Counter::Text { limiter, .. } = counter else { return hits };
        let AnyRule::Quota(quota) = limiter.rule else { return hits };
        let left = part.until_us.saturating_mul(1_000).saturating_sub(self.counts.nanos());
        hits.min(tokens_of(left, quota.tokens(), quota.period()))
    }
}

/// Returns the part under a limit whose count has an amount. A refused one is none, unless the
/// store counts it as well.
fn part_of(want: &Want<'_>, counts_refused: bool) -> Option<Part> {
    let counted = want.counted.filter(|_| want.verb == Verb::Hold)?;
    let is_counted = !counted.is_over || (counts_refused && want.edge_us > 0);
    is_counted.then_some(Part { until_us: want.edge_us, kind: want.counter.kind() })
}

/// Returns the marks of a reservation in the store: the right to settle it, and to release it. They
/// hold for longer than a commit counts, as the clocks of replicas differ.
pub(super) fn marks_of(id: &ReservationId) -> [StoreMark; 2] {
    let holds = Duration::from_millis(id.ttl_ms.saturating_mul(2)).saturating_add(SKEW);
    ["settled", "released"].map(|what| (format!("{what}_{:x}_{}", id.process, id.number).into_bytes(), holds))
}
