//! The slot of a key: its part of a limiter in this process, under one rule.

pub(crate) mod calls;
mod count_calls;
mod in_window;
mod joint;
pub(crate) mod key_state;
mod key_window;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tollgate::{Denied, Granted, Reason};

use self::key_state::KeyState;
use crate::lease::demand::Demand;
use crate::lease::lease_time::nanos;
use crate::lease::terms::{Role, Terms, TermsKind};
use crate::lease::tokens::Lease;

/// The lease, the calls and the waiting requests of one key under its terms. Another quota or plan
/// has another slot, with the same [`KeyState`].
pub(crate) struct Slot {
    pub(crate) key: Arc<KeyState>,
    pub(crate) terms: Arc<Terms>,
    /// Whether the slot is in the map; else it serves one request of a key beyond `max_keys`.
    pub(crate) has_room: bool,
    pub(crate) lease: Lease,
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
    /// Whether the slot is in the queue of the background task.
    pub(crate) queued: AtomicBool,
    /// Whether it is there for a request: before the slots that give tokens back or charge some.
    pub(crate) urgent: AtomicBool,
    /// Whether the slot left the map with tokens or calls. Its tokens go back as they come.
    pub(crate) left: AtomicBool,
    state: Mutex<State>,
}

/// The answer to a waiting request; `None` if no call decided it.
pub(crate) type Decided = Option<Result<Granted, Denied>>;

/// A request that waits for an answer of the store.
struct Waiter {
    n: u64,
    sender: oneshot::Sender<Decided>,
}

impl Waiter {
    /// Answers the request. Returns whether it still waited.
    fn answer(self, decided: Decided) -> bool {
        self.sender.send(decided).is_ok()
    }
}

#[derive(Default)]
struct State {
    waiters: VecDeque<Waiter>,
    /// The tokens of all waiters.
    waiting: u64,
    /// The most tokens of a request that does not wait.
    wanted: u64,
    /// Tokens to give back to the store.
    back: u64,
    /// The end of the window of these tokens, by the clock of the store; 0 of a bucket.
    back_of: u64,
    /// The tokens that the store granted in the window of `back_of`, less those given back.
    of_window: u64,
    /// The most tokens at hand for requests that do not wait, in the exact mode.
    keep: u64,
    /// The tokens that the counts of the limiter have: granted, used, returned.
    counted: [u64; 3],
    calling: bool,
    /// Whether the call under way is past its deadline.
    late: bool,
    /// Whether the bucket was deep in debt at its last answer.
    is_deep: bool,
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
}

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
    pub(crate) fn new(key: Arc<KeyState>, has_room: bool, terms: Arc<Terms>, lease: Lease) -> Slot {
        let now = lease.now();
        let state = State { demand: Demand::new(now), seen: (0, now), ..State::default() };
        Slot {
            key,
            terms,
            has_room,
            lease,
            low: AtomicU64::new(0),
            by_lease: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
            left: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Returns whether the slot is for requests under the terms of a plan; `None` is the rule of
    /// the limiter.
    #[inline]
    pub(crate) fn is_under(&self, plan: Option<&Arc<Terms>>) -> bool {
        plan.map_or(self.terms.role == Role::Own, |plan| {
            Arc::ptr_eq(&self.terms, plan) || self.terms == *plan
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes tokens at hand. Returns the grant, and the matured tokens that are left.
    #[inline(always)]
    pub(crate) fn take(&self, n: u64) -> Result<(Granted, u64), Denied> {
        let left = self.lease.take(n)?.remaining();
        Ok((self.told(n, left.saturating_add(self.key.shadow.last() as u64)), left))
    }

    /// Returns a grant after which `there` tokens are known, here and in the store.
    #[inline(always)]
    fn told(&self, n: u64, there: u64) -> Granted {
        let capacity = self.terms.capacity;
        let remaining = there.min(capacity);
        let reset = match &self.lease {
            Lease::Bucket(_) => self.terms.earning((capacity - remaining) as f64),
            Lease::Window(tokens) => Duration::from_nanos(tokens.rest()),
        };
        Granted::from_parts(n, remaining, reset)
    }

    /// Returns the known tokens: those at hand, and those in the store at its last answer.
    pub(crate) fn known(&self) -> Granted {
        let level = match self.terms.kind {
            TermsKind::Bucket(_) => self.key.shadow.last() as u64,
            TermsKind::Window(_) => {
                self.key.window_level(&self.terms, self.lease.now()).unwrap_or_default() as u64
            }
        };
        let there = self.lease.matured().saturating_add(level);
        self.told(0, there.saturating_sub(self.key.spent.load(Relaxed)))
    }

    /// Takes spent tokens from those at hand. Returns the number of the others.
    pub(crate) fn charge(&self, n: u64) -> u64 {
        n - self.lease.take_up_to(n)
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
            && self.key.blocked(self.least_refused(), self.lease.now()).is_none()
    }

    /// Returns the tokens of a refused request after which no lease is due: a lease of a window may
    /// have one token.
    fn least_refused(&self) -> u64 {
        match self.lease {
            Lease::Bucket(_) => u64::MAX,
            Lease::Window(_) => 1,
        }
    }

    /// Returns the refusal of a request that no call can serve now. The flag is false if its tokens
    /// are held and mature later, and true if the store cannot have them.
    pub(crate) fn refusal(&self, n: u64, denied: &Denied) -> Option<(Denied, bool)> {
        let now = self.lease.now();
        if let Lease::Window(tokens) = &self.lease {
            // The tokens at hand, and those left in the store.
            self.key.blocked(n.saturating_sub(tokens.held()), now)?;
            let (_, until) = self.key.edge(now)?;
            return Some((self.deny(n, Duration::from_nanos(until - now)), true));
        }
        let (wait, by_shadow) = if self.lease.held(&self.terms) >= n {
            (denied.retry_after().unwrap_or_default(), false)
        } else {
            (self.key.shadow.wait(&self.terms, n, now).max(self.key.blocked(n, now))?, true)
        };
        Some((self.deny(n, wait), by_shadow))
    }

    fn deny(&self, n: u64, wait: Duration) -> Denied {
        self.refused.fetch_add(n, Relaxed);
        Denied::from_parts(Reason::Empty, n, self.lease.matured(), Some(wait))
    }

    /// Adds a request that waits for the next call. Returns the channel of its answer.
    pub(crate) fn wait(&self, n: u64) -> oneshot::Receiver<Decided> {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state();
        state.waiting += n;
        state.waiters.push_back(Waiter { n, sender });
        answer
    }

    /// Takes tokens back. They go to the store in the exact mode, as its bucket refills meanwhile,
    /// and if their window ends before they would be idle.
    pub(crate) fn put_back(self: &Arc<Slot>, n: u64, queue: &UnboundedSender<Arc<Slot>>) {
        let mut state = self.state();
        let n = self.of_window(&mut state, n);
        if self.terms.is_leased() && !self.ends_soon() {
            return self.lease.put(n);
        }
        self.give_back(&mut state, n);
        drop(state);
        self.enqueue(queue);
    }

    fn has_more(&self, state: &State) -> bool {
        let asks = !state.waiters.is_empty() || state.wanted > 0;
        asks || state.back > 0 || self.key.spent.load(Relaxed) > 0
    }

    /// Marks tokens to go back to the store. It can have them at its next answer.
    fn give_back(&self, state: &mut State, n: u64) {
        if n > 0 {
            state.back = state.back.saturating_add(n).min(self.terms.capacity + self.terms.debt());
            self.key.put(n);
        }
    }

    /// Puts the slot into the queue of the background task.
    pub(crate) fn enqueue(self: &Arc<Slot>, queue: &UnboundedSender<Arc<Slot>>) {
        if !self.queued.swap(true, SeqCst) {
            // Without the task, later requests are decided by the policy.
            let _ = queue.send(self.clone());
        }
    }

    /// Puts the slot into that queue for a request.
    pub(crate) fn enqueue_request(self: &Arc<Slot>, queue: &UnboundedSender<Arc<Slot>>) {
        if !self.urgent.swap(true, SeqCst) {
            self.queued.store(true, SeqCst);
            let _ = queue.send(self.clone());
        }
    }

    /// Asks the next call for tokens that a later request takes.
    pub(crate) fn want(&self, n: u64) {
        let mut state = self.state();
        state.wanted = state.wanted.max(n);
    }

    /// Returns the tokens asked for so far: used and refused. The caller holds the state.
    fn asked(&self) -> u64 {
        self.drop_ended();
        let used = self.granted.load(Relaxed).saturating_sub(self.returned.load(Relaxed));
        used.saturating_sub(self.lease.held(&self.terms)) + self.refused.load(Relaxed)
    }

    /// Ends the wait of all requests at the deadline. The call goes on.
    pub(crate) fn give_up(&self) {
        let mut state = self.state();
        state.late = state.calling;
        state.give_up();
    }

    /// Marks all matured tokens to go back to the store, and later those of calls under way.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        self.left.store(true, Relaxed);
        self.give_back(&mut state, self.lease.take_all());
    }

    /// Returns the state of the key. After `idle` without a request, its matured tokens are marked
    /// to go back.
    pub(crate) fn sweep(&self, idle: Duration) -> Sweep {
        let now = self.lease.now();
        let mut state = self.state();
        let asked = self.asked();
        if asked != state.seen.0 {
            state.seen = (asked, now);
        }
        let busy = state.calling || !state.waiters.is_empty() || self.queued.load(Relaxed);
        if busy || now.saturating_sub(state.seen.1) < nanos(idle) {
            return Sweep::Used;
        }
        if self.key.spent.load(Relaxed) > 0 {
            return Sweep::GivesBack;
        }
        self.give_back(&mut state, self.lease.take_all());
        match state.back {
            0 if self.lease.held(&self.terms) == 0 => Sweep::Empty,
            0 => Sweep::Used,
            _ => Sweep::GivesBack,
        }
    }

    /// Returns the numbers of tokens that the store granted, that requests used, and that went
    /// back. Tokens on their way back are not used. A refund of tokens that another slot granted
    /// makes the second number negative: it wraps.
    pub(crate) fn tokens(&self) -> [u64; 3] {
        self.tokens_in(&self.state())
    }

    fn tokens_in(&self, state: &State) -> [u64; 3] {
        self.drop_ended();
        let (granted, returned) = (self.granted.load(Relaxed), self.returned.load(Relaxed));
        let unused = returned + state.back + self.lease.held(&self.terms);
        [granted, granted.wrapping_sub(unused), returned]
    }

    /// Returns the changes of these numbers since the last time. They wrap.
    pub(crate) fn tokens_since(&self) -> [u64; 3] {
        let mut state = self.state();
        let tokens = self.tokens_in(&state);
        let before = std::mem::replace(&mut state.counted, tokens);
        std::array::from_fn(|of| tokens[of].wrapping_sub(before[of]))
    }
}
