//! The slot of a key: its part of a limiter in this process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::{Clock, Denied, Granted, Moment, Reason};

use super::plan::Plan;
use super::waiter::Waiter;
use crate::credits::bucket::{Amount, Answer};
use crate::lease::demand::Demand;
use crate::lease::lease_time::nanos;
use crate::lease::shadow::Shadow;
use crate::lease::terms::Terms;
use crate::lease::tokens::Lease;
use crate::outage::fallback::Fallback;

/// The shortest time for which a lease is worth a call.
const LEAST_LEASE: Duration = Duration::from_millis(10);

/// The longest life of a refusal by the store, in nanoseconds: an operator may reset the bucket
/// meanwhile.
const MAX_BLOCK: u64 = 1_000_000_000;

/// The tokens, the bounds and the waiting requests of one key.
pub(crate) struct Slot {
    /// The key in the form of the store.
    pub(crate) key: Box<[u8]>,
    pub(crate) terms: Arc<Terms>,
    /// Whether the terms are of a plan.
    pub(crate) is_planned: bool,
    /// Whether the slot is in the map; else it serves one request of a key beyond `max_keys`.
    pub(crate) has_room: bool,
    pub(crate) lease: Lease,
    pub(crate) shadow: Shadow,
    /// The time until which the store has too few tokens, for a request of `blocks` or more.
    blocked: AtomicU64,
    /// The fewest tokens of a request that `blocked` refuses.
    blocks: AtomicU64,
    /// The tokens in the store at its last answer.
    elsewhere: AtomicU64,
    /// The number of held tokens at or below which the next lease is due.
    low: AtomicU64,
    /// Grants by the lease.
    pub(crate) by_lease: AtomicU64,
    /// Tokens of refused requests.
    refused: AtomicU64,
    /// Tokens that the store granted.
    granted: AtomicU64,
    /// Tokens that were given back to the store.
    returned: AtomicU64,
    /// Tokens that were granted or charged without the store, and that the store does not know of.
    pub(crate) spent: AtomicU64,
    /// Whether the slot is in the queue of the background task.
    pub(crate) queued: AtomicBool,
    pub(crate) fallback: Mutex<Option<Fallback>>,
    state: Mutex<State>,
}

struct State {
    waiters: VecDeque<Waiter>,
    /// The tokens of all waiters.
    waiting: u64,
    /// The most tokens of a request that does not wait.
    wanted: u64,
    /// Tokens to give back to the store.
    back: u64,
    calling: bool,
    /// Whether the call under way is past its deadline.
    late: bool,
    demand: Demand,
    /// The tokens asked for up to the last sweep, and the time since which the number is the same.
    seen: (u64, u64),
}

impl State {
    /// Ends the wait of all requests, without a decision.
    fn give_up(&mut self) {
        self.waiting = 0;
        for waiter in self.waiters.drain(..) {
            waiter.answer(None);
        }
    }

    fn has_more(&self) -> bool {
        !self.waiters.is_empty() || self.wanted > 0
    }
}

/// The error of a slot whose call is under way beyond the deadline.
#[derive(Debug)]
pub(crate) struct Late;

/// The state of a slot at a sweep.
#[derive(Debug, PartialEq)]
pub(crate) enum Sweep {
    Used,
    /// Idle, with tokens to give back or to charge by a call.
    GivesBack,
    /// Idle and empty.
    Empty,
}

impl Slot {
    pub(crate) fn new(
        key: Box<[u8]>,
        plan: Option<&Plan>,
        has_room: bool,
        terms: Arc<Terms>,
        clock: Clock,
        origin: Moment,
    ) -> Slot {
        let lease = Lease::new(&terms, clock, origin);
        let now = lease.now();
        let state = State {
            waiters: VecDeque::new(),
            waiting: 0,
            wanted: 0,
            back: 0,
            calling: false,
            late: false,
            demand: Demand::new(now),
            seen: (0, now),
        };
        Slot {
            key,
            terms,
            is_planned: plan.is_some(),
            has_room,
            lease,
            shadow: Shadow::new(),
            blocked: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            elsewhere: AtomicU64::new(0),
            low: AtomicU64::new(0),
            by_lease: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            fallback: Mutex::new(None),
            state: Mutex::new(state),
        }
    }

    /// Returns whether the slot is for requests under `plan`; `None` is the quota of the limiter.
    #[inline]
    pub(crate) fn is_under(&self, plan: Option<&Plan>) -> bool {
        plan.map_or(!self.is_planned, |plan| Arc::ptr_eq(&self.terms, &plan.0) || self.terms == plan.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes tokens at hand. Returns the grant, and the matured tokens that are left.
    #[inline(always)]
    pub(crate) fn take(&self, n: u64) -> Result<(Granted, u64), Denied> {
        let left = self.lease.take(n)?.remaining();
        Ok((self.told(n, left.saturating_add(self.elsewhere.load(Relaxed))), left))
    }

    /// Returns a grant after which `there` tokens are known, here and in the store.
    #[inline(always)]
    fn told(&self, n: u64, there: u64) -> Granted {
        let capacity = self.terms.quota().capacity();
        let remaining = there.min(capacity);
        Granted::from_parts(n, remaining, self.terms.about_time_of(capacity - remaining))
    }

    /// Returns the known tokens: those at hand, and those in the store at its last answer.
    pub(crate) fn known(&self) -> Granted {
        let there = self.lease.matured().saturating_add(self.elsewhere.load(Relaxed));
        self.told(0, there.saturating_sub(self.spent.load(Relaxed)))
    }

    /// Takes spent tokens from those at hand, and notes the others for the store. Returns the
    /// number of the others.
    pub(crate) fn charge(&self, n: u64) -> u64 {
        let rest = n - self.lease.take_up_to(n);
        self.spent.fetch_add(rest, Relaxed);
        rest
    }

    /// Returns whether the next lease is due, with `left` matured tokens left.
    #[inline]
    pub(crate) fn is_low(&self, left: u64) -> bool {
        left <= self.low.load(Relaxed) && self.terms.is_leased() && self.holds_little()
    }

    #[cold]
    fn holds_little(&self) -> bool {
        !self.queued.load(Relaxed)
            && self.lease.held(&self.terms) <= self.low.load(Relaxed)
            && self.lease.now() >= self.blocked.load(Relaxed)
    }

    /// Returns the refusal of a request that no call can serve now. The flag is false if its tokens
    /// are held and mature later, and true if the store cannot have them.
    pub(crate) fn refusal(&self, n: u64, denied: &Denied) -> Option<(Denied, bool)> {
        let now = self.lease.now();
        let (wait, by_shadow) = if self.lease.held(&self.terms) >= n {
            (denied.retry_after().unwrap_or_default(), false)
        } else {
            let blocked = self.blocked.load(Relaxed).saturating_sub(now);
            let is_blocked = blocked > 0 && n >= self.blocks.load(Relaxed);
            let blocked = is_blocked.then(|| Duration::from_nanos(blocked));
            (self.shadow.wait(&self.terms, n, now).max(blocked)?, true)
        };
        Some((self.deny(n, wait), by_shadow))
    }

    fn deny(&self, n: u64, wait: Duration) -> Denied {
        self.refused.fetch_add(n, Relaxed);
        Denied::from_parts(Reason::Empty, n, self.lease.matured(), Some(wait))
    }

    /// Adds a request that waits for the next call.
    pub(crate) fn wait(&self, waiter: Waiter) {
        let mut state = self.state();
        state.waiting += waiter.n;
        state.waiters.push_back(waiter);
    }

    /// Asks the next call for tokens that a later request takes.
    pub(crate) fn want(&self, n: u64) {
        let mut state = self.state();
        state.wanted = state.wanted.max(n);
    }

    /// Returns the tokens asked for so far: used and refused.
    fn asked(&self) -> u64 {
        let used = self.granted.load(Relaxed).saturating_sub(self.returned.load(Relaxed));
        used.saturating_sub(self.lease.held(&self.terms)) + self.refused.load(Relaxed)
    }

    /// Begins a call for this key. Returns its amount; `None` if there is nothing to ask for.
    ///
    /// # Errors
    ///
    /// The call before is under way, and late. All waiting requests end without a decision.
    pub(crate) fn begin(&self) -> Result<Option<Amount>, Late> {
        let now = self.lease.now();
        let mut state = self.state();
        match (state.calling, state.late && !state.waiters.is_empty()) {
            (false, _) => {}
            (true, false) => return Ok(None),
            (true, true) => {
                state.give_up();
                return Err(Late);
            }
        }
        let amount = match state.back {
            0 => self.amount(&mut state, now),
            back => Some(Amount { max: -(back as i64), ..Amount::default() }),
        };
        state.calling = amount.is_some();
        Ok(amount)
    }

    fn amount(&self, state: &mut State, now: u64) -> Option<Amount> {
        let terms = &*self.terms;
        let demand = state.demand.note(self.asked(), now, terms.horizon).min(terms.rate);
        let held = self.lease.held(terms);
        let lease = self.lease_of(demand * nanos(terms.horizon) as f64, held);
        let wanted = std::mem::take(&mut state.wanted);
        let asked = state.waiting + wanted.saturating_sub(held);
        let max = asked.max(lease);
        let spent = self.spent.swap(0, Relaxed);
        if max == 0 && spent == 0 {
            return None;
        }
        let first = state.waiters.front().map_or(wanted, |waiter| waiter.n).max(1);
        let min = if max == 0 { 0 } else { self.least_lease().min(max).max(first) };
        let max = max.max(min).min(terms.quota().capacity());
        Some(Amount { min: min.min(max) as i64, max: max as i64, spent })
    }

    /// Returns the tokens that are to be leased, when a horizon's demand is `wanted`.
    ///
    /// A key with less than one request in a horizon takes no lease: each process would hold a
    /// token that another one waits for. The key may have been queued before the last answer: a
    /// lease is due only if few tokens are held.
    fn lease_of(&self, wanted: f64, held: u64) -> u64 {
        let is_worth = wanted >= 1.0 && held <= self.low.load(Relaxed);
        if is_worth { (wanted.ceil() as u64).saturating_sub(held) } else { 0 }
    }

    /// Returns the fewest tokens of a lease that is worth a call; 0 in the exact mode.
    fn least_lease(&self) -> u64 {
        let terms = &*self.terms;
        if terms.is_leased() { (terms.rate * nanos(LEAST_LEASE) as f64) as u64 } else { 0 }
    }

    /// Ends an answered call. Returns whether there is more to ask for.
    pub(crate) fn end(&self, amount: Amount, answer: Answer, sent: u64, rtt: Duration) -> bool {
        let mut state = self.state();
        (state.calling, state.late) = (false, false);
        self.shadow.tell(&self.terms, answer.credits, sent);
        self.elsewhere.store(self.terms.spec.tokens(answer.credits), Relaxed);
        if amount.max < 0 {
            self.returned.fetch_add(amount.max.unsigned_abs(), Relaxed);
            state.back = 0;
            return state.has_more();
        }
        let granted = u64::try_from(answer.granted).unwrap_or(0);
        self.put(answer, granted);
        self.set_low(&state, rtt);
        let blocked = if granted == 0 && amount.max > 0 { self.time_until(answer, amount.min) } else { 0 };
        // A refused lease does not block requests: the store may have enough for one of fewer
        // tokens.
        let least = amount.min.unsigned_abs();
        let blocks = if least > self.least_lease() { least } else { 0 };
        self.blocks.store(blocks, Relaxed);
        self.blocked.store(self.lease.now().saturating_add(blocked.min(MAX_BLOCK)), Relaxed);
        let refused = if blocked > 0 { blocks } else { u64::MAX };
        if state.wanted >= refused {
            // The requests that came during the call are refused by its answer, too.
            state.wanted = 0;
        }
        self.serve(&mut state, answer, refused);
        state.has_more()
    }

    /// Puts granted tokens into the lease. Those that the bucket had are valid at once, and those
    /// on credit mature.
    fn put(&self, answer: Answer, granted: u64) {
        let spec = &self.terms.spec;
        let before = answer.credits.saturating_add((granted.saturating_mul(spec.per_token())) as i64);
        let at_once = spec.tokens(before).min(granted);
        self.granted.fetch_add(granted, Relaxed);
        self.lease.put(at_once);
        let full = self.lease.now().saturating_add(nanos(spec.wait(answer.credits, 0)));
        self.lease.put_later(&self.terms, granted - at_once, full);
    }

    fn set_low(&self, state: &State, rtt: Duration) {
        let demand = state.demand.rate().min(self.terms.rate);
        self.low.store((demand * nanos(rtt * 3) as f64).ceil() as u64, Relaxed);
    }

    /// Returns the nanoseconds from an answer until the store may grant `n` tokens.
    fn time_until(&self, answer: Answer, n: i64) -> u64 {
        let spec = &self.terms.spec;
        let need = n.saturating_mul(spec.per_token() as i64);
        nanos(spec.wait(answer.credits + spec.debt_credits() as i64, need))
    }

    /// Answers the waiting requests in order, up to the first that another call may serve: the
    /// store has the tokens for it, and none are held here. A request of `refused` tokens or more
    /// is refused.
    fn serve(&self, state: &mut State, answer: Answer, refused: u64) {
        while let Some(waiter) = state.waiters.pop_front() {
            let n = waiter.n;
            let decided = match self.take(n) {
                Ok((granted, _)) => Ok(granted),
                Err(denied) => {
                    let wait = self.time_until(answer, n as i64);
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

    /// Ends a failed call. `lost` tells whether it may have had an effect.
    pub(crate) fn fail(&self, amount: Amount, lost: bool) {
        let mut state = self.state();
        (state.calling, state.late) = (false, false);
        state.wanted = 0;
        if !lost {
            self.spent.fetch_add(amount.spent, Relaxed);
        }
        if amount.max < 0 {
            // Whether or not the store has them, no request may use the tokens.
            state.back = 0;
            self.returned.fetch_add(amount.max.unsigned_abs(), Relaxed);
        }
        state.give_up();
    }

    /// Ends the wait of all requests at the deadline. The call goes on.
    pub(crate) fn give_up(&self) {
        let mut state = self.state();
        state.late = state.calling;
        state.give_up();
    }

    /// Marks all matured tokens to go back to the store.
    pub(crate) fn abandon(&self) {
        self.state().back += self.lease.take_all();
    }

    /// Returns the state of the key. After `idle` without a request, its matured tokens are marked
    /// to go back.
    pub(crate) fn sweep(&self, idle: Duration) -> Sweep {
        let now = self.lease.now();
        let asked = self.asked();
        let mut state = self.state();
        if asked != state.seen.0 {
            state.seen = (asked, now);
        }
        let busy = state.calling || !state.waiters.is_empty() || self.queued.load(Relaxed);
        if busy || now.saturating_sub(state.seen.1) < nanos(idle) {
            return Sweep::Used;
        }
        if self.spent.load(Relaxed) > 0 {
            return Sweep::GivesBack;
        }
        state.back += self.lease.take_all();
        match state.back {
            0 if self.lease.held(&self.terms) == 0 => Sweep::Empty,
            0 => Sweep::Used,
            _ => Sweep::GivesBack,
        }
    }

    /// Returns the numbers of tokens that the store granted, that requests used, and that went
    /// back.
    pub(crate) fn tokens(&self) -> [u64; 3] {
        let (granted, returned) = (self.granted.load(Relaxed), self.returned.load(Relaxed));
        [granted, granted.saturating_sub(returned + self.lease.held(&self.terms)), returned]
    }
}
