//! Reservations whose amounts are counted in a store.

use std::time::Duration;

use tollgate::AnyRule;

use super::here::tokens_of;
use super::id::{Part, ReservationId};
use super::settlement::{Change, Settlement};
use crate::serve::counts::Verb;
use crate::serve::decide::{Answering, Decision, Found};
use crate::serve::loaded::Counter;
use crate::serve::messages::{Code, RateLimitResponse};
use crate::serve::shared::reserved::OWN;
use crate::serve::shared::{SharedCounts, Want};

impl Decision<'_> {
    /// Does as [`reserve`](Decision::reserve) over a store, which decides on each limit.
    pub(super) async fn reserve_shared(
        &self,
        shared: &SharedCounts,
        amount: u64,
    ) -> (Code, Vec<Option<Part>>) {
        let replaced = self.replaced();
        let found = self.request.descriptors.iter().map(|each| self.found(each, &replaced));
        let found: Vec<_> = found.map(|found| Some(Found::adding(found?, amount))).collect();
        let mut wants = self.wants(&found, |_, found| match found.hits {
            0 => (Verb::Look, 0),
            hits => (Verb::Hold, hits),
        });
        shared.count_all(&mut wants, self.now).await;
        let mut answering = Answering::of(self.request);
        for ((descriptor, found), want) in self.request.descriptors.iter().zip(&found).zip(&wants) {
            let counted = want.as_ref().and_then(|want| want.counted);
            self.tell(descriptor, found.as_ref(), counted, &mut answering);
        }
        let code = self.ended(answering).overall_code();
        let is_refused = code == Code::OverLimit;
        // The keys of envoyproxy/ratelimit count a refused amount as well.
        let counts_all = shared.counts_refused();
        let mut parts = Vec::with_capacity(wants.len());
        for want in &mut wants {
            let part = want.as_ref().and_then(|want| part_of(want, false));
            parts.push(part);
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
        (code, if is_refused { Vec::new() } else { parts })
    }

    /// Does as [`answer_by`](Decision::answer_by) over a store.
    pub(super) async fn answer_shared_by(&self, shared: &SharedCounts, verb: Verb) -> RateLimitResponse {
        let (replaced, mut answering) = (self.replaced(), Answering::of(self.request));
        let found: Vec<_> = self.request.descriptors.iter().map(|each| self.found(each, &replaced)).collect();
        let mut wants = self.wants(&found, |_, found| found.used_by(verb));
        shared.count_all(&mut wants, self.now).await;
        let counted: Vec<_> = wants.iter().map(|want| want.as_ref().and_then(|want| want.counted)).collect();
        drop(wants);
        for ((descriptor, found), counted) in self.request.descriptors.iter().zip(found).zip(counted) {
            let found = found.map(|found| found.told_by(verb));
            self.tell(descriptor, found.as_ref(), counted, &mut answering);
        }
        self.ended(answering)
    }

    /// Does as [`settle`](Decision::settle) over a store.
    pub(super) async fn settle_shared(
        &self,
        shared: &SharedCounts,
        id: &ReservationId,
        settlement: Settlement,
    ) {
        let (replaced, mut answering) = (self.replaced(), Answering::of(self.request));
        let (mut found, mut edges) = (Vec::new(), Vec::new());
        for (index, descriptor) in self.request.descriptors.iter().enumerate() {
            let limit = self.found(descriptor, &replaced);
            let part = id.parts.get(index).copied().flatten();
            let change = limit.and_then(|limit| {
                let change = settlement.change(id.amount, part, limit.counter.kind())?;
                Some((limit, change))
            });
            let (limit, edge) = match change {
                None => (None, 0),
                Some((limit, Change::More(hits))) => (Some(Found::adding(limit, hits)), 0),
                Some((limit, Change::Back(hits, part))) => {
                    let hits = self.room_of(&limit.counter, hits, part);
                    (Some(Found { hits, is_negative: true, ..limit }), part.until_us)
                }
            };
            found.push(limit);
            edges.push(edge);
        }
        let verb = |found: &Found<'_>| if found.is_negative { Verb::GiveBack } else { Verb::Charge };
        let mut wants = self.wants(&found, |_, found| (verb(found), found.hits));
        for (want, edge) in wants.iter_mut().zip(edges) {
            want.iter_mut().for_each(|want| want.edge_us = edge);
        }
        shared.count_all(&mut wants, self.now).await;
        for ((descriptor, found), want) in self.request.descriptors.iter().zip(&found).zip(&wants) {
            if let (Some(found), Some(want)) = (found, want) {
                self.tell(descriptor, Some(found), want.counted, &mut answering);
            }
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

/// Returns the marks of a reservation in the store: the right to settle it, and to release it.
pub(super) fn marks_of(id: &ReservationId) -> [Vec<u8>; 2] {
    ["settled", "released"].map(|what| format!("{what}_{:x}_{}", id.process, id.number).into_bytes())
}

/// Returns the time for which a mark has to hold.
pub(super) fn marked_for(id: &ReservationId) -> Duration {
    Duration::from_millis(id.ttl_ms.saturating_mul(2).max(1_000))
}
