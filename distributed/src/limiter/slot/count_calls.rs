//! The calls of a slot whose rule is a window.
//!
//! A lease is tokens with an end: that of the window, by the time at which the call was sent. Each
//! estimate of the end is early by the way to the store, so no token outlives its window. Nothing
//! calls the store at an edge but a request.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tollgate::{Denied, Granted};

use super::calls::Part;
use super::{Slot, State};
use crate::law::amount::{Amount, StoreAnswer};
use crate::law::count_spec::CountSpec;
use crate::lease::lease_time::nanos;
use crate::lease::tokens::Lease;

/// The time until tokens without a request go back to the store, beside two horizons.
const IDLE: u64 = 1_000_000_000;

/// The time until the call for them has its answer: from the end of `IDLE` to the next sweep, and
/// the way of the call.
pub(super) const GIVEN_BACK: u64 = 1_000_000_000;

impl Slot {
    /// Returns the part of the next call.
    ///
    /// A lease is the demand of one horizon, or of the rest of the window if that is shorter. The
    /// store grants at most half of the tokens left to it.
    pub(super) fn count_part(&self, spec: CountSpec, state: &mut State, now: u64) -> Option<Part> {
        let terms = &*self.terms;
        let edge = self.key.edge(now);
        if edge.is_none_or(|(edge_us, _)| edge_us != state.back_of) {
            // Tokens of a window that is over never go back.
            self.returned.fetch_add(std::mem::take(&mut state.back), Relaxed);
        }
        let (spent, (spent_of, spent_until)) = self.key.take_spent(now);
        let part = |law: CountSpec, min: u64, max: i64, spent, of_us| {
            let amount = Amount { min: min as i64, max, spent, of_us };
            Some(Part { law: law.into(), amount, spent_until })
        };
        if spent > 0 {
            // An operation has one window, so nothing else goes with it.
            return part(spec, 0, 0, spent, spent_of);
        }
        if state.back > 0 {
            return part(spec, 0, -(state.back as i64), 0, state.back_of);
        }
        let rest = edge.map_or(u64::MAX, |(_, until)| until - now).min(nanos(terms.horizon));
        let demand = state.demand.note(self.asked(), now, terms.horizon);
        let held = self.lease.matured();
        // A key stays worth a lease when little is left of its window.
        let of_rest = (demand * rest as f64).min(terms.capacity as f64);
        let lease = self.lease_of(demand * nanos(terms.horizon) as f64, of_rest, held);
        let wanted = std::mem::take(&mut state.wanted);
        state.keep = state.keep.min(held).max(wanted);
        let asked = state.waiting.max(wanted).saturating_sub(held);
        let first = state.waiters.front().map_or(wanted, |waiter| waiter.n);
        let max = asked.max(lease).min(terms.capacity);
        if max == 0 && state.waiters.is_empty() {
            return None;
        }
        let min = first.saturating_sub(held).clamp(1, max.max(1));
        let law = if lease > asked { spec.leased() } else { spec };
        part(law, min, max.max(min) as i64, 0, 0)
    }

    /// Ends a call of a count. The times are those of its begin and of a round trip, and whether it
    /// is late.
    pub(super) fn end_of_count(
        &self,
        state: &mut State,
        amount: Amount,
        answer: StoreAnswer,
        (sent, rtt, is_late): (u64, Duration, bool),
    ) -> bool {
        let now = self.lease.now();
        let rest = answer.edge_us.saturating_sub(answer.now_us).saturating_mul(1_000);
        let until = sent.saturating_add(rest);
        self.key.tell_window(answer, until, sent);
        self.enter(state, answer.edge_us, until);
        if amount.max < 0 {
            self.returned.fetch_add(amount.max.unsigned_abs(), Relaxed);
            state.back = state.back.saturating_sub(amount.max.unsigned_abs());
            state.of_window = state.of_window.saturating_sub(amount.max.unsigned_abs());
            return self.has_more(state);
        }
        let granted = u64::try_from(answer.granted).unwrap_or(0);
        self.granted.fetch_add(granted, Relaxed);
        state.of_window += granted;
        let left = u64::try_from(answer.credits).unwrap_or(0);
        self.set_low(state.demand.rate(), rtt);
        let was_refused = granted == 0 && amount.max > 0;
        self.key.block_window(was_refused, self.idle().saturating_add(GIVEN_BACK), left, now);
        if was_refused && state.wanted > left {
            state.wanted = 0;
        }
        let (pool, back) = self.serve_in_window(state, granted, left, until.saturating_sub(now));
        if now >= until {
            // The window is over: the tokens of its late answer are void.
            self.returned.fetch_add(pool + back, Relaxed);
            return self.has_more(state);
        }
        match self.ends_soon() {
            true => self.give_back(state, back),
            false => self.lease.put(back),
        }
        self.lease.put(pool);
        self.keep_wanted(state, is_late)
    }

    /// Answers the waiting requests in order, by the granted tokens and those at hand, up to the
    /// first that another call may serve. Returns the tokens that are left of the granted ones, and
    /// those of requests that were dropped.
    ///
    /// The store decided the requests of the call within the window, whatever the time is now.
    fn serve_in_window(&self, state: &mut State, mut pool: u64, left: u64, rest: u64) -> (u64, u64) {
        let mut back = 0;
        while let Some(waiter) = state.waiters.pop_front() {
            let n = waiter.n;
            let by_pool = n.min(pool);
            let decided: Result<Granted, Denied> = if by_pool == n || self.lease.take(n - by_pool).is_ok() {
                pool -= by_pool;
                let there = pool.saturating_add(self.lease.matured()).saturating_add(left);
                Ok(self.told(n, there))
            } else {
                let missing = n - by_pool - self.lease.matured().min(n - by_pool);
                if missing <= left || rest == 0 {
                    state.waiters.push_front(waiter);
                    return (pool, back);
                }
                Err(self.deny(n, Duration::from_nanos(rest)))
            };
            state.waiting -= n;
            let granted = decided.is_ok();
            if !waiter.answer(Some(decided)) && granted {
                back += n;
            }
        }
        (pool, back)
    }

    /// Begins the window of an answer, if it is not the present one.
    pub(super) fn enter(&self, state: &mut State, edge_us: u64, until: u64) {
        let Lease::Window(tokens) = &self.lease else { return };
        if state.back_of == edge_us {
            return tokens.extend(until);
        }
        let ended = tokens.begin(until) + std::mem::take(&mut state.back);
        self.returned.fetch_add(ended, Relaxed);
        (state.back_of, state.of_window) = (edge_us, 0);
    }

    /// Drops the tokens of a window that is over.
    pub(super) fn drop_ended(&self) {
        if let Lease::Window(tokens) = &self.lease {
            self.returned.fetch_add(tokens.drop_ended(), Relaxed);
        }
    }

    /// Tells whether the window ends before tokens without a request go back to the store.
    pub(super) fn ends_soon(&self) -> bool {
        let Lease::Window(tokens) = &self.lease else { return false };
        tokens.rest() < self.idle()
    }

    /// Returns the time after which tokens without a request go back to the store, or a longer one.
    pub(super) fn idle(&self) -> u64 {
        IDLE.saturating_add(nanos(self.terms.horizon * 2))
    }

    /// Returns how many of `n` tokens that come back may be of the present window: at most as many
    /// as were granted in it and are used. Those of an earlier window are lost.
    pub(super) fn of_window(&self, state: &mut State, n: u64) -> u64 {
        let Lease::Window(tokens) = &self.lease else { return n };
        if tokens.rest() == 0 {
            return 0;
        }
        n.min(state.of_window.saturating_sub(tokens.held() + state.back))
    }

    /// Notes spent tokens of a call with an unknown effect again, if their window still runs.
    pub(super) fn spend_again(&self, amount: Amount, until: u64) {
        if amount.spent > 0 && self.lease.now() < until {
            self.key.spend_in(amount.spent, (amount.of_us, until), self.terms.capacity);
        }
    }
}
