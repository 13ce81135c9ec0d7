//! The calls of the store that reservations need: exact ones of windows, and marks.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::{Quota, Window};
use tollgate_distributed::{Amount as Tokens, CountSpec, OwnedOp, Spec, StoreAnswer};

use super::by_limiter::under;
use super::settings::Layout;
use super::{Key, Leased, SharedCounts, Want};
use crate::serve::counts::Verb;
use crate::serve::limiters::{MOST, Taken, TextLimiter};

/// The window of a mark in the keys of envoyproxy/ratelimit, in seconds.
const MARKED: u64 = 3_600;
/// In place of the end of a window: the hits are those that this process took a moment ago, or took
/// without the store. They go back to its tokens at hand.
pub(in crate::serve) const OWN: u64 = 1;

/// The most marks without an answer that are kept, so that an outage takes a few MiB.
const MOST_UNSURE: usize = 1 << 16;

/// A mark in the store, and the time for which it has to hold.
pub(in crate::serve) type StoreMark = (Vec<u8>, Duration);

impl SharedCounts {
    /// Returns whether the store counts hits that are refused.
    pub(in crate::serve) fn counts_refused(&self) -> bool {
        self.settings.layout == Layout::Envoy
    }

    /// Returns the call on the window of a limit.
    fn op_on(&self, by: &Leased, key: &Key, amount: Tokens) -> Option<OwnedOp> {
        let Leased::Window(windows, plan) = by else { return None };
        let law = CountSpec::new(plan.rule(), self.clock.unix_time()).ok()?;
        Some(OwnedOp { key: windows.store_key(key), law: law.into(), amount })
    }

    /// Takes all hits under the rule of a text, or none. Returns the result and, in microseconds
    /// since 1970, the end of the window, or the time at which the bucket is full.
    pub(super) async fn hold(
        &self,
        by: &Leased,
        key: &Key,
        limiter: &TextLimiter,
        hits: u64,
    ) -> (Taken, u64) {
        let most = i64::try_from(hits).unwrap_or(i64::MAX);
        let exact = self.op_on(by, key, Tokens { min: most, max: most, ..Tokens::default() });
        if let Some(op) = exact.filter(|_| hits <= limiter.capacity)
            && let Some(answer) = self.buckets.call(vec![op]).await.pop().flatten()
        {
            let wait = Duration::from_micros(answer.edge_us.saturating_sub(answer.now_us));
            let remaining = u64::try_from(answer.credits).unwrap_or(0);
            return (Taken { is_granted: answer.granted == most, remaining, wait }, answer.edge_us);
        }
        let began = self.clock.unix_time();
        let (taken, _) = self.by_text(by, key, limiter, (Verb::Hold, hits, 0, false)).await;
        let Some(earned) = limiter.earns(hits) else { return (taken, OWN) };
        let full = began.saturating_add(taken.wait.min(earned)).as_nanos().div_ceil(1_000);
        (taken, u64::try_from(full).unwrap_or(u64::MAX))
    }

    /// Gives hits of a reservation back, and returns whether the want is of such hits. Those of a
    /// window go back to that window alone.
    pub(super) async fn give_back_to(&self, by: &Leased, key: &Key, want: &Want<'_>) -> bool {
        let is_bucket = matches!(by, Leased::Quota(..));
        if want.edge_us == OWN && (self.is_away() || !is_bucket) {
            under!(by, key, ask => ask.n(want.hits).refund());
            return true;
        }
        let back = -(want.hits.min(MOST) as i64);
        let amount = Tokens { max: back, of_us: want.edge_us, ..Tokens::default() };
        let Some(op) = self.op_on(by, key, amount).filter(|_| want.edge_us > 0) else { return false };
        self.buckets.call(vec![op]).await;
        true
    }

    /// Sets marks at a time, and returns for each whether it was not set before; `None` if the
    /// store does not answer. Replicas share them.
    ///
    /// A call without an answer may have had its effect: a mark that is then set already is that of
    /// this process.
    pub(in crate::serve) async fn mark(&self, marks: &[StoreMark], now: Duration) -> Vec<Option<bool>> {
        let ops: Option<Vec<_>> = marks.iter().map(|mark| self.op_of_mark(mark, now)).collect();
        let Some(ops) = ops else { return vec![None; marks.len()] };
        let answers = self.marks.call(ops).await;
        let is_new = |(mark, answer): (&StoreMark, Option<StoreAnswer>)| match answer {
            None => {
                self.note_unsure(mark, now);
                None
            }
            Some(answer) => Some(self.unsure().remove(&mark.0).is_some() || answer.granted == 1),
        };
        marks.iter().zip(answers).map(is_new).collect()
    }

    /// Notes that a mark may be that of this process, if those noted are not too many.
    pub(in crate::serve) fn note_unsure(&self, (mark, holds): &StoreMark, now: Duration) {
        let mut unsure = self.unsure();
        if unsure.len() < MOST_UNSURE {
            unsure.insert(mark.clone(), now.saturating_add(*holds));
        }
    }

    pub(super) fn unsure(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Duration>> {
        self.unsure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn op_of_mark(&self, (mark, holds): &StoreMark, now: Duration) -> Option<OwnedOp> {
        let amount = Tokens { min: 1, max: 1, ..Tokens::default() };
        Some(match self.settings.layout {
            Layout::Tollgate => {
                let law = Spec::new(Quota::try_per(1, *holds).ok()?, 0).ok()?;
                OwnedOp { key: self.marks.store_key(mark), law: law.into(), amount }
            }
            Layout::Envoy => {
                let window = Window::try_per(1, Duration::from_secs(MARKED)).ok()?.utc();
                let law = CountSpec::new(window, now).ok()?.from_1970();
                OwnedOp { key: [&b"tollgate_"[..], mark, b"_"].concat(), law: law.into(), amount }
            }
        })
    }

    /// Returns whether a mark of a reservation of one time holds until the other. The keys of
    /// envoyproxy/ratelimit end with their window.
    pub(in crate::serve) fn is_marked_until(&self, made: Duration, now: Duration) -> bool {
        self.settings.layout == Layout::Tollgate || made.as_secs() / MARKED == now.as_secs() / MARKED
    }
}
