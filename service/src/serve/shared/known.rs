//! What this process knows of the count of a key in the store.

use std::time::Duration;

use tollgate_distributed::{Amount, Count, CountSpec, StoreAnswer};

use super::settings::Layout;
use crate::serve::limiters::MOST;

/// From one look at the rate of a key to the next.
const TURN: u64 = 100_000_000;
/// The requests in a turn from which on tokens of the key are leased: fewer save no calls.
const BUSY: u32 = 20;
/// The time for which a key is busy after that.
const STAYS_BUSY: u64 = 2_000_000_000;

/// The count of a key under the windows of a unit, as of the last answer. Times are nanoseconds of
/// the clock of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// The end of the window by the clock of the store, in microseconds since 1970.
    edge_us: u64,
    /// The same by the clock of this process.
    until: u64,
    /// The hits in the window, with those that the store was not told.
    used: u64,
    /// Hits that the store was not told: they were beyond the limit, so no decision depends on
    /// them, or without the store.
    untold: u64,
    /// Those of a call that is under way.
    telling: u64,
    /// Those of them that were granted. The store is told in time.
    pub(super) lent: u64,
    /// The requests of this turn, and its begin.
    asked: u32,
    turn: u64,
    busy_until: u64,
    /// It has left the table: its user looks again.
    pub(super) has_left: bool,
}

/// The policy and the share of a process while the store does not answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lending {
    /// `None` grants all.
    pub(super) share: Option<f64>,
    pub(super) limit: u64,
}

impl Known {
    /// Returns the hits of the window, if it runs.
    pub(super) fn used(&self, now: u64) -> Option<u64> {
        (now < self.until).then_some(self.used)
    }

    /// Counts hits of a key that is over its limit, without a call. Returns the hits before, if it
    /// is.
    pub(super) fn refuse(&mut self, hits: u64, limit: u64, now: u64, layout: Layout) -> Option<u64> {
        let before = self.used(now).filter(|used| *used >= limit)?;
        if layout == Layout::Envoy {
            // The over-limit cache of the reference counts none of them.
            return Some(before);
        }
        self.used = before.saturating_add(hits);
        self.untold = self.untold.saturating_add(hits);
        Some(before)
    }

    /// Counts a request, unless it looks, and returns whether the key is busy.
    ///
    /// That does not change while the store does not answer, nor before it was told the hits of
    /// that time: else a key would have two shares of its limit, one here and one in its lease.
    pub(super) fn is_busy(&mut self, now: u64, is_away: bool, looks: bool) -> bool {
        if is_away && now < self.busy_until {
            self.busy_until = now.saturating_add(STAYS_BUSY);
            return true;
        }
        if is_away || self.lent > 0 || self.telling > 0 {
            return false;
        }
        if looks {
            return now < self.busy_until;
        }
        if now.saturating_sub(self.turn) >= TURN {
            (self.asked, self.turn) = (0, now);
        }
        self.asked = self.asked.saturating_add(1);
        let is_kept = now < self.busy_until && self.asked * 4 >= BUSY;
        if self.asked >= BUSY || is_kept {
            self.busy_until = now.saturating_add(STAYS_BUSY);
        }
        now < self.busy_until
    }

    /// Returns the call that adds hits, and tells those that the store does not know. A count ends
    /// at [`MOST`], however many hits a client chooses.
    pub(super) fn add(&mut self, hits: u64, now: u64) -> Amount {
        Amount { max: hits.min(MOST) as i64, ..self.untold(now) }
    }

    /// Returns the call that tells the store the hits that it does not know.
    pub(super) fn untold(&mut self, now: u64) -> Amount {
        let spent = if now < self.until { self.untold } else { 0 };
        (self.untold, self.lent) = (0, 0);
        self.telling = self.telling.saturating_add(spent);
        let of_us = if spent > 0 { self.edge_us } else { 0 };
        Amount { spent, of_us, ..Amount::default() }
    }

    /// Notes hits again that no call has told.
    pub(super) fn not_told(&mut self, amount: Amount, was_lent: bool, now: u64) {
        if now < self.until && amount.of_us == self.edge_us {
            self.telling = self.telling.saturating_sub(amount.spent);
            self.untold = self.untold.saturating_add(amount.spent);
            self.lent += if was_lent { amount.spent } else { 0 };
        }
    }

    /// Returns the end of the window by the clock of the store, if it is known.
    pub(super) fn edge(&self, now: u64) -> Option<u64> {
        (now < self.until).then_some(self.edge_us)
    }

    /// Takes hits back that the store was not told. Returns those that it has to give back.
    pub(super) fn take_back(&mut self, hits: u64, now: u64) -> u64 {
        let own = if now < self.until { hits.min(self.untold) } else { 0 };
        self.untold -= own;
        self.lent = self.lent.min(self.untold);
        self.used = self.used.saturating_sub(own);
        hits - own
    }

    /// Returns the call that gives hits of a window back.
    pub(super) fn back(hits: u64, of_us: u64) -> Amount {
        Amount { max: -(hits.min(MOST) as i64), of_us, ..Amount::default() }
    }

    /// Forgets the window: the next request asks the store.
    pub(super) fn forget(&mut self) {
        self.until = 0;
    }

    /// Notes the answer to a call that was sent at a time, and returns the hits of the window.
    pub(super) fn tell(&mut self, spec: &CountSpec, told: Amount, answer: StoreAnswer, sent: u64) -> u64 {
        let used = (spec.limit() as i64).saturating_sub(answer.credits);
        let rest = answer.edge_us.saturating_sub(answer.now_us).saturating_mul(1_000);
        // Others may have been refused here since the call was sent.
        let is_same = answer.edge_us == self.edge_us;
        let (untold, telling) = if is_same { (self.untold, self.telling) } else { (0, 0) };
        let telling = telling.saturating_sub(if told.of_us == self.edge_us { told.spent } else { 0 });
        let used = u64::try_from(used).unwrap_or(0);
        (self.untold, self.telling, self.lent) = (untold, telling, self.lent.min(untold));
        self.used = used.saturating_add(untold).saturating_add(telling);
        (self.edge_us, self.until) = (answer.edge_us, sent.saturating_add(rest));
        used
    }

    /// Grants hits without the store, by the policy. Returns the hits before, and whether they are
    /// granted.
    ///
    /// A look counts none of them.
    pub(super) fn lend(
        &mut self,
        hits: u64,
        by: Lending,
        spec: &CountSpec,
        (now, unix): (u64, Duration),
        counts: bool,
    ) -> (u64, bool) {
        if now >= self.until {
            self.begin(spec, now, unix);
        }
        let (before, own) = (self.used, self.untold.saturating_add(self.telling));
        let told = before.saturating_sub(own);
        let most = by.share.map(|share| (by.limit.saturating_sub(told) as f64 * share) as u64);
        let is_granted = most.is_none_or(|most| own.saturating_add(hits) <= most);
        if is_granted && counts {
            self.used = before.saturating_add(hits);
            self.untold = self.untold.saturating_add(hits);
            self.lent = self.lent.saturating_add(hits);
        }
        (before, is_granted)
    }

    /// Begins the window of a time by the clock of this process, without a hit.
    fn begin(&mut self, spec: &CountSpec, now: u64, unix: Duration) {
        let now_us = unix.as_micros() as u64;
        let step = Count::step(None, spec, now_us, Amount::default());
        let edge_us = step.map_or(now_us, |(_, answer)| answer.edge_us);
        let until = now.saturating_add((edge_us - now_us).saturating_mul(1_000));
        let Known { asked, turn, busy_until, .. } = *self;
        *self = Known { edge_us, until, asked, turn, busy_until, ..Known::default() };
    }

    /// Returns whether no decision depends on it any more.
    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.until && now >= self.busy_until && now.saturating_sub(self.turn) >= TURN
    }
}
