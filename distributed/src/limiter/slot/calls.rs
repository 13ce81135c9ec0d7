//! The calls of a slot: the tokens that each asks for, and the use of its answer.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Slot, State};
use crate::law::amount::{Amount, StoreAnswer};
use crate::law::any_law::Law;
use crate::law::count_spec::CountSpec;
use crate::law::spec::Spec;
use crate::lease::lease_time::nanos;
use crate::lease::terms::{BucketTerms, LEAST_LEASE, TermsKind};
use crate::lease::tokens::Lease;

/// The part of its debt in which a bucket is deep in debt. Requests that take no debt, and a lease
/// now and then, do not bring it there. With a half, a process of few requests had a third of its
/// part beside a busy one.
const DEEP: u64 = 8;

/// The part of a call that is for one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The rule, with the debt that the call may take.
    pub(crate) law: Law,
    pub(crate) amount: Amount,
    /// The local time from which the spent tokens count in no window.
    pub(crate) spent_until: u64,
}

impl Slot {
    /// Begins a call for this key. Returns its part; `None` if there is nothing to ask for, or if
    /// the call before is under way. While that one is late, waiting requests end undecided.
    /// `count` is the window as the store counts it now, if the rule is one.
    pub(crate) fn begin(&self, count: Option<CountSpec>) -> Option<Part> {
        let now = self.lease.now();
        let mut state = self.state();
        if state.late {
            state.give_up();
        }
        if state.calling {
            return None;
        }
        let part = match (&self.terms.kind, count) {
            (TermsKind::Bucket(bucket), _) => self.bucket_part(bucket, &mut state, now),
            (TermsKind::Window(_), Some(spec)) => self.count_part(spec, &mut state, now),
            (TermsKind::Window(_), None) => None,
        };
        state.calling = part.is_some();
        part
    }

    /// Returns the part of the next call.
    ///
    /// A request alone takes no token on credit: the token would mature too late for it, and be
    /// missing until it goes back. But while other processes hold the bucket deep in debt by their
    /// leases, it would find no token at all: then it takes one for the next request.
    fn bucket_part(&self, bucket: &BucketTerms, state: &mut State, now: u64) -> Option<Part> {
        let terms = &*self.terms;
        let part = |spec: Spec, amount| Some(Part { law: spec.into(), amount, spent_until: u64::MAX });
        if state.back > 0 {
            let spent = self.key.spent.swap(0, Relaxed);
            return part(bucket.spec, Amount { max: -(state.back as i64), spent, ..Amount::default() });
        }
        let demand = state.demand.note(self.asked(), now, terms.horizon).min(terms.rate);
        let held = self.lease.held(terms);
        let wanted = demand * nanos(terms.horizon) as f64;
        let lease = self.lease_of(wanted, wanted, held);
        let wanted = std::mem::take(&mut state.wanted);
        state.keep = state.keep.min(held).max(wanted);
        let asked = state.waiting + wanted.saturating_sub(held);
        let max = asked.max(lease);
        let spent = self.key.spent.swap(0, Relaxed);
        if max == 0 && spent == 0 {
            return None;
        }
        let first = state.waiters.front().map_or(wanted, |waiter| waiter.n).max(1);
        let spec = if lease > 0 || state.is_deep { bucket.spec } else { bucket.without_debt };
        let min = if max == 0 { 0 } else { self.least_lease(&spec).min(max).max(first) };
        let max = max.max(min).min(terms.capacity);
        part(spec, Amount { min: min.min(max) as i64, max: max as i64, spent, of_us: 0 })
    }

    /// Returns the tokens that are to be leased, when a horizon's demand is `wanted`.
    ///
    /// A key with less than one request in a horizon takes no lease, unless the limiter asks for
    /// more: each process would hold a token that another one waits for. The key may have been
    /// queued before the last answer: a lease is due only if few tokens are held. A slot that left
    /// the map would find no request.
    pub(super) fn lease_of(&self, demand: f64, wanted: f64, held: u64) -> u64 {
        let is_low = held <= self.low.load(Relaxed) && !self.left.load(Relaxed);
        let is_worth = demand >= self.terms.least && wanted >= 1.0 && is_low;
        if is_worth { (wanted.ceil() as u64).saturating_sub(held) } else { 0 }
    }

    /// Returns the fewest tokens of a lease that is worth a call; 0 for a call without debt.
    fn least_lease(&self, spec: &Spec) -> u64 {
        if spec.debt() > 0 { (self.terms.rate * nanos(LEAST_LEASE) as f64) as u64 } else { 0 }
    }

    /// Ends an answered call. Returns whether there is more to ask for.
    pub(crate) fn end(&self, part: Part, answer: StoreAnswer, sent: u64, rtt: Duration) -> bool {
        let mut state = self.state();
        let is_late = state.late;
        (state.calling, state.late) = (false, false);
        *self.key.fallback() = None;
        match (part.law, &self.terms.kind) {
            (Law::Bucket(spec), TermsKind::Bucket(bucket)) => {
                self.end_of_bucket(&mut state, (&spec, bucket, part.amount), answer, (sent, rtt, is_late))
            }
            _ => self.end_of_count(&mut state, part.amount, answer, (sent, rtt, is_late)),
        }
    }

    /// Ends a call of a bucket. The times are those of its begin and of a round trip, and whether
    /// it is late.
    fn end_of_bucket(
        &self,
        state: &mut State,
        (spec, bucket, amount): (&Spec, &BucketTerms, Amount),
        answer: StoreAnswer,
        (sent, rtt, is_late): (u64, Duration, bool),
    ) -> bool {
        state.is_deep = answer.credits < -((bucket.spec.debt_credits() / DEEP) as i64);
        self.key.shadow.tell(&bucket.spec, answer.credits, sent);
        if amount.max < 0 {
            self.returned.fetch_add(amount.max.unsigned_abs(), Relaxed);
            state.back = state.back.saturating_sub(amount.max.unsigned_abs());
            return self.has_more(state);
        }
        let granted = u64::try_from(answer.granted).unwrap_or(0);
        self.put_granted(&bucket.spec, answer, granted);
        self.set_low(state.demand.rate().min(self.terms.rate), rtt);
        let blocked = if granted == 0 && amount.max > 0 { time_until(spec, answer, amount.min) } else { 0 };
        // A refused lease does not block requests: the store may have enough for one of fewer
        // tokens.
        let least = amount.min.unsigned_abs();
        let blocks = if least > self.least_lease(spec) { least } else { 0 };
        self.key.block(blocks, blocked, self.lease.now());
        let refused = if blocked > 0 { blocks } else { u64::MAX };
        if state.wanted >= refused {
            // The requests that came during the call are refused by its answer, too.
            state.wanted = 0;
        }
        self.serve(state, spec, answer, refused);
        self.keep_wanted(state, is_late)
    }

    /// Gives back the tokens that no later request finds. In the exact mode only those stay that
    /// requests without a wait ask for. Returns whether there is more to ask for.
    pub(super) fn keep_wanted(&self, state: &mut State, is_late: bool) -> bool {
        let keep = match self.terms.is_leased() {
            _ if self.left.load(Relaxed) => 0,
            true => u64::MAX,
            false if is_late => 0,
            false => state.keep,
        };
        self.give_back(state, self.lease.take_up_to(self.lease.matured().saturating_sub(keep)));
        self.has_more(state)
    }

    /// Puts granted tokens into the lease. Those that the bucket had are valid at once, and those
    /// on credit mature.
    fn put_granted(&self, spec: &Spec, answer: StoreAnswer, granted: u64) {
        let before = answer.credits.saturating_add((granted.saturating_mul(spec.per_token())) as i64);
        let at_once = spec.tokens(before).min(granted);
        self.granted.fetch_add(granted, Relaxed);
        self.lease.put(at_once);
        let full = self.lease.now().saturating_add(nanos(spec.wait(answer.credits, 0)));
        if let Lease::Bucket(tokens) = &self.lease {
            tokens.put_later(&self.terms, granted - at_once, full);
        }
    }

    /// Sets the held tokens at which the next lease is due: the demand of three round trips.
    pub(super) fn set_low(&self, demand: f64, rtt: Duration) {
        self.low.store((demand * nanos(rtt * 3) as f64).ceil() as u64, Relaxed);
    }

    /// Answers the waiting requests in order, up to the first that another call may serve: the
    /// store has the tokens for it, and none are held here. A request of `refused` tokens or more
    /// is refused.
    fn serve(&self, state: &mut State, spec: &Spec, answer: StoreAnswer, refused: u64) {
        while let Some(waiter) = state.waiters.pop_front() {
            let n = waiter.n;
            let decided = match self.take(n) {
                Ok((granted, _)) => Ok(granted),
                Err(denied) => {
                    let wait = time_until(spec, answer, n as i64);
                    let is_held = self.lease.held(&self.terms) >= n;
                    if wait == 0 && n < refused && !is_held {
                        return state.waiters.push_front(waiter);
                    }
                    let matures = denied.retry_after().filter(|_| is_held);
                    Err(self.deny(n, matures.unwrap_or(Duration::from_nanos(wait))))
                }
            };
            state.waiting -= n;
            let granted = decided.is_ok();
            if !waiter.answer(Some(decided)) && granted {
                self.lease.put(n);
            }
        }
    }

    /// Ends a failed call, which may have had an effect. Returns `false`: nothing is asked for
    /// until the next request.
    ///
    /// The spent tokens are charged again: a charge that counts twice refuses requests, and one
    /// that was lost would forgive a debt.
    pub(crate) fn fail(&self, Part { amount, spent_until, .. }: Part) -> bool {
        let mut state = self.state();
        (state.calling, state.late) = (false, false);
        state.wanted = 0;
        match self.terms.kind {
            TermsKind::Bucket(_) => _ = self.key.spent.fetch_add(amount.spent, Relaxed),
            TermsKind::Window(_) => self.spend_again(amount, spent_until),
        }
        if amount.max < 0 {
            // Whether or not the store has them, no request may use the tokens.
            state.back = state.back.saturating_sub(amount.max.unsigned_abs());
            state.of_window = state.of_window.saturating_sub(amount.max.unsigned_abs());
            self.returned.fetch_add(amount.max.unsigned_abs(), Relaxed);
        }
        state.give_up();
        false
    }
}

/// Returns the nanoseconds from an answer until the store may grant `n` tokens to a call.
pub(super) fn time_until(spec: &Spec, answer: StoreAnswer, n: i64) -> u64 {
    let need = n.saturating_mul(spec.per_token() as i64);
    nanos(spec.wait(answer.credits + spec.debt_credits() as i64, need))
}
