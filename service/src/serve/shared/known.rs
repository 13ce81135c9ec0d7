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
    /// The limit of the last request.
    limit: u64,
    /// Those of them that were granted. The store is told in time.
    pub(super) lent: u64,
    /// The requests of this turn, and its begin.
    asked: u32,
    turn: u64,
    busy_until: u64,
    /// The end of the window in which tokens are leased.
    leased_until: u64,
    /// Hits that are to go back to the window, when the store answers.
    owed_back: u64,
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
    /// Notes the limit of a request.
    pub(super) fn under(&mut self, limit: u64) {
        self.limit = limit;
    }

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

    /// Counts a request, unless it looks, and returns whether leases decide on the key, in a window
    /// that is over at `ends`.
    ///
    /// From the first lease on they do so until the window ends, and no key takes its first one
    /// while the store does not answer, nor before it was told the hits of that time: else a key
    /// would have two shares of its limit, one here and one in its lease.
    pub(super) fn is_leased(&mut self, now: u64, ends: u64, is_away: bool, looks: bool) -> bool {
        if self.lent > 0 || self.telling > 0 {
            return false;
        }
        if now < self.leased_until || is_away || looks {
            return now < self.leased_until;
        }
        if now.saturating_sub(self.turn) >= TURN {
            (self.asked, self.turn) = (0, now);
        }
        self.asked = self.asked.saturating_add(1);
        if self.asked >= BUSY {
            self.busy_until = now.saturating_add(STAYS_BUSY);
        }
        if now < self.busy_until {
            // A window that begins while the key is busy counts none of its first requests.
            self.busy_until = now.saturating_add(STAYS_BUSY);
            self.leased_until = ends;
        }
        now < self.leased_until
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
            self.lent = self.lent.saturating_add(if was_lent { amount.spent } else { 0 });
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

    /// Notes hits that go back when the store answers, as no call was sent.
    pub(super) fn owe_back(&mut self, hits: u64) {
        self.owed_back = self.owed_back.saturating_add(hits).min(MOST);
        self.used = self.used.saturating_sub(hits);
    }

    /// Notes hits again that a call has not given back.
    pub(super) fn owe_again(&mut self, amount: Amount) {
        self.owed_back = self.owed_back.saturating_add(amount.max.min(0).unsigned_abs());
    }

    /// Returns whether the store is to be told something in time.
    pub(super) fn has_news(&self, now: u64) -> bool {
        now < self.until && (self.lent > 0 || self.owed_back > 0)
    }

    /// Returns the next call that tells it, and whether it tells lent hits.
    pub(super) fn news(&mut self, now: u64) -> (Amount, bool) {
        if self.lent == 0 && self.owed_back > 0 {
            return (Known::back(std::mem::take(&mut self.owed_back), self.edge_us), false);
        }
        (self.untold(now), true)
    }

    /// Forgets the window, unless the store is to be told hits of it: the next request asks the
    /// store.
    pub(super) fn forget(&mut self) {
        if self.lent == 0 && self.telling == 0 {
            self.until = 0;
        }
    }

    /// Forgets all hits, also those that the store was not told.
    pub(super) fn clear(&mut self) {
        let Known { limit, has_left, .. } = *self;
        *self = Known { limit, has_left, ..Known::default() };
    }

    /// Returns whether no hit is lost, and no call more made, if it is forgotten before its window
    /// is over.
    pub(super) fn is_dispensable(&self, now: u64) -> bool {
        let is_told = self.untold == 0 && self.telling == 0 && self.owed_back == 0;
        is_told && now >= self.leased_until && self.used < self.limit
    }

    /// Notes the answer to a call that was sent at a time, and returns the hits of the window.
    pub(super) fn tell(&mut self, spec: &CountSpec, told: Amount, answer: StoreAnswer, sent: u64) -> u64 {
        let used = u64::try_from((spec.limit() as i64).saturating_sub(answer.credits)).unwrap_or(0);
        if answer.edge_us < self.edge_us {
            // It is of the window before.
            return used;
        }
        let rest = answer.edge_us.saturating_sub(answer.now_us).saturating_mul(1_000);
        // Others may have been refused here since the call was sent.
        let is_same = answer.edge_us == self.edge_us;
        let (untold, telling) = if is_same { (self.untold, self.telling) } else { (0, 0) };
        let telling = telling.saturating_sub(if told.of_us == self.edge_us { told.spent } else { 0 });
        (self.untold, self.telling, self.lent) = (untold, telling, self.lent.min(untold));
        self.owed_back = if is_same { self.owed_back } else { 0 };
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
        let Known { asked, turn, busy_until, leased_until, limit, .. } = *self;
        *self = Known { edge_us, until, asked, turn, busy_until, leased_until, limit, ..Known::default() };
    }

    /// Returns whether no decision depends on it any more.
    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.until.max(self.busy_until).max(self.leased_until) && now.saturating_sub(self.turn) >= TURN
    }
}
