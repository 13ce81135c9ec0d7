//! The wants that the shared limiter of the library decides: those of texts, and of busy keys.

use std::sync::atomic::Ordering::Relaxed;

use tollgate::{Reason, Snapshot};
use tollgate_distributed::{SharedDecision, Source, Sourced};

use super::known::Known;
use super::settings::Layout;
use super::{Counts, Key, Leased, SharedCounts, Want, store_key};
use crate::serve::counts::{Counted, UnixTime, Verb};
use crate::serve::limiters::{MOST, Taken, TextLimiter};
use crate::serve::loaded::Counter;

/// Does the same with a limiter of either kind, under the plan of the limit.
macro_rules! under {
    ($leased:expr, $key:expr, $ask:ident => $does:expr) => {
        match $leased {
            Leased::Quota(limiter, plan) => {
                let $ask = limiter.key($key).under(plan);
                $does
            }
            Leased::Window(limiter, plan) => {
                let $ask = limiter.key($key).under(plan);
                $does
            }
        }
    };
}

pub(super) use under;

impl SharedCounts {
    /// Decides by the shared limiter of the library.
    ///
    /// Returns the result, and the end of the window of hits that are held.
    pub(super) async fn ask(&self, want: &Want<'_>, by: &Leased, now: UnixTime) -> Option<(Counted, u64)> {
        let key = match self.settings.layout {
            Layout::Tollgate => want.store_key(),
            Layout::Envoy => store_key::of_envoy(want.domain, want.entries, want.shared),
        };
        let (unit, requests) = match want.counter {
            Counter::Unlimited => return None,
            Counter::Window { unit, requests, .. } => (*unit, *requests),
            Counter::Text { limiter, least, is_charged_after, .. } => {
                let terms = (want.verb, want.hits, *least, *is_charged_after);
                if want.verb == Verb::Hold {
                    let (taken, edge_us) = self.hold(by, &key, limiter, want.hits).await;
                    return Some((Counted::by_text(limiter, taken, want.hits), edge_us));
                }
                let is_given = want.verb == Verb::GiveBack && self.give_back_to(by, &key, want).await;
                let terms = if is_given { (Verb::Look, 0, 0, false) } else { terms };
                let (taken, hits) = self.by_text(by, &key, limiter, terms).await;
                return Some((Counted::by_text(limiter, taken, hits), 0));
            }
        };
        let limit = u64::from(requests);
        let (before, hits, is_granted) = match want.verb {
            Verb::Look => {
                let told = under!(by, &key, ask => ask.peek().await.ok().map(Sourced::into_inner));
                let left = self.seen(by, &key, told).remaining();
                (limit.saturating_sub(left), want.hits, want.hits <= left)
            }
            Verb::GiveBack => {
                let seen = under!(by, &key, ask => ask.n(want.hits).give_back().await.ok());
                // The next request asks the store.
                self.with_known((want.key, unit as u32), Known::forget);
                (limit.saturating_sub(seen.map_or(limit, |seen| seen.remaining())), 0, true)
            }
            Verb::Add | Verb::Charge | Verb::Hold => {
                let (taken, left, is_granted) = self.take_up_to(by, &key, want.hits).await;
                (limit.saturating_sub(left).saturating_sub(taken), want.hits, is_granted)
            }
        };
        Some((self.decided(before, hits, is_granted, (unit, requests), now), 0))
    }

    /// Takes hits of a window, or the rest of it: the hits beyond the limit are those that are
    /// refused. Returns the tokens taken, those left, and whether all hits were granted.
    async fn take_up_to(&self, by: &Leased, key: &Key, hits: u64) -> (u64, u64, bool) {
        let mut wanted = hits;
        loop {
            match self.counted(under!(by, key, ask => ask.n(wanted).ask().await)) {
                Ok(granted) => return (wanted, granted.remaining(), wanted == hits),
                Err(denied) if denied.reason() == Reason::Unavailable => return (0, 0, false),
                // Others may take them meanwhile: it asks for fewer each time.
                Err(denied) if denied.remaining() > 0 && wanted > 1 => {
                    wanted = denied.remaining().min(wanted - 1);
                }
                Err(denied) => return (0, denied.remaining(), false),
            }
        }
    }

    /// Gives all hits of a count back. Returns whether the store has them.
    pub(super) async fn give_all_back(&self, want: &Want<'_>, counts: Counts) -> bool {
        let Some(by) = self.rule(counts) else { return false };
        let key = want.store_key();
        under!(&by, &key, ask => ask.n(want.hits).give_back().await.is_ok())
    }

    /// Decides on a rule of a text. Returns the result and the hits that it is about.
    pub(super) async fn by_text(
        &self,
        by: &Leased,
        key: &Key,
        limiter: &TextLimiter,
        (verb, hits, least, is_charged_after): (Verb, u64, u64, bool),
    ) -> (Taken, u64) {
        let taken = |decision: SharedDecision| match decision {
            Ok(granted) => {
                Taken { is_granted: true, remaining: granted.remaining(), wait: granted.reset_after() }
            }
            Err(denied) => {
                let wait = denied.retry_after().unwrap_or(limiter.period);
                Taken { is_granted: false, remaining: denied.remaining(), wait }
            }
        };
        let of = |seen: Snapshot| Taken {
            is_granted: true,
            remaining: seen.remaining(),
            wait: seen.reset_after(),
        };
        match verb {
            Verb::Charge => {
                under!(by, key, ask => ask.n(hits.min(MOST)).charge());
                let seen = under!(by, key, ask => ask.known());
                (of(seen), hits)
            }
            Verb::Add | Verb::Hold => {
                let decision = self.counted(under!(by, key, ask => ask.n(hits).ask().await));
                let is_owed = decision.is_err() && is_charged_after;
                if is_owed {
                    under!(by, key, ask => ask.n(hits.min(MOST)).charge());
                }
                let taken = taken(decision);
                (Taken { remaining: if is_owed { 0 } else { taken.remaining }, ..taken }, hits)
            }
            Verb::Look => {
                let seen = self.seen(
                    by,
                    key,
                    under!(by, key, ask => ask.peek().await.ok().map(Sourced::into_inner)),
                );
                (Taken { is_granted: seen.remaining() >= hits.max(least), ..of(seen) }, 0)
            }
            Verb::GiveBack => {
                let given = under!(by, key, ask => ask.n(hits).give_back().await);
                (of(self.seen(by, key, given.ok().map(Sourced::into_inner))), 0)
            }
        }
    }

    /// Returns the level that the store told, or the one that is known here.
    fn seen(&self, by: &Leased, key: &Key, told: Option<Snapshot>) -> Snapshot {
        told.unwrap_or_else(|| {
            self.without_store.fetch_add(1, Relaxed);
            under!(by, key, ask => ask.known())
        })
    }

    /// Counts a decision by its place.
    fn counted(&self, decision: SharedDecision) -> SharedDecision {
        let source = decision.as_ref().map_or_else(|denied| denied.source(), |granted| granted.source());
        match source {
            Source::Fallback | Source::FailOpen => _ = self.without_store.fetch_add(1, Relaxed),
            _ => {}
        }
        decision
    }
}
