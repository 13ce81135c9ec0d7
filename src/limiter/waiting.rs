//! Waiting for tokens: a place in line, a timer, and the caller's turn.
//!
//! A [`Waiter`] has no timer of its own: a task polls it beside tokio's, and a thread parks. It is
//! served in order of arrival. If it is dropped before its turn, all callers behind it move up.

use std::ops::Deref;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::bucket::engine::Engine;
use crate::bucket::line::caller_line::LineTurn;
use crate::limiter::hook::DecisionHook;
use crate::limiter::ticket::{LineTicket, Promise};
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted};

/// Longest wait of a caller that set none, in nanoseconds.
pub(crate) const NO_LIMIT: u64 = u64::MAX;

/// Longest wait of a caller that is turned away for those before it. They join again when they are
/// polled, and one may never be.
const BEHIND: u64 = 1_000_000_000;

/// The tokens of a request, and the line in which it waits for them.
///
/// The functions are those of [`Target`](crate::limiter::asked::Target), with every type erased.
pub(crate) trait WaitsInLine {
    /// Takes the tokens now, or joins the line if they come within `max_wait` nanoseconds.
    ///
    /// A request that keeps a part joins no line: it is told the time after which it tries again.
    fn join(&self, max_wait: u64, waker: &Waker) -> Result<Promise, Denied>;
    fn look(&self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64);
    fn leave(&self, ticket: &LineTicket);
    fn granted(&self, ticket: &LineTicket) -> Granted;
    fn engine(&self) -> &Engine;
    fn hook(&self) -> &DecisionHook;
    fn jitter(&self) -> Jitter;
    /// Returns the longest wait from now on, in nanoseconds.
    fn patience(&self) -> u64;
}

/// A request with every type erased.
pub(crate) type AnyRequest<'a> = Box<dyn WaitsInLine + Send + Sync + 'a>;

impl<T: Deref<Target: WaitsInLine>> WaitsInLine for T {
    fn join(&self, max_wait: u64, waker: &Waker) -> Result<Promise, Denied> {
        (**self).join(max_wait, waker)
    }

    fn look(&self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64) {
        (**self).look(ticket, fired, waker)
    }

    fn leave(&self, ticket: &LineTicket) {
        (**self).leave(ticket);
    }

    fn granted(&self, ticket: &LineTicket) -> Granted {
        (**self).granted(ticket)
    }

    fn engine(&self) -> &Engine {
        (**self).engine()
    }

    fn hook(&self) -> &DecisionHook {
        (**self).hook()
    }

    fn jitter(&self) -> Jitter {
        (**self).jitter()
    }

    fn patience(&self) -> u64 {
        (**self).patience()
    }
}

/// The next step of a caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NextStep {
    /// The wait is over.
    Done(Result<Granted, Denied>),
    /// Sets the timer anew, to this time from now.
    Sets(Duration),
    /// Waits on, for its timer or a wake-up. Never the step of a caller whose timer is over.
    Waits,
}

/// A caller that waits for its tokens. Dropped before its turn, it leaves the line.
pub(crate) struct Waiter<T: WaitsInLine> {
    request: T,
    /// Nanoseconds that the caller is ready to wait.
    max_wait: u64,
    stage: WaitStage,
    /// The place from which the caller was turned away, until it has joined again.
    left: Option<LineTicket>,
}

#[derive(Clone, Copy)]
enum WaitStage {
    New,
    /// Out of line, until the timer is over.
    Later {
        /// The clock reading up to which the caller is ready to wait.
        until: u64,
    },
    InLine {
        ticket: LineTicket,
        /// The clock reading up to which the caller is ready to wait.
        until: u64,
    },
    /// The tokens are taken, and the jitter is slept.
    Jitter(Granted),
    Done,
}

impl<T: WaitsInLine> Waiter<T> {
    pub(crate) fn new(request: T) -> Waiter<T> {
        Waiter { max_wait: request.patience(), request, stage: WaitStage::New, left: None }
    }

    /// Goes on with the wait, and returns the next step of the caller.
    ///
    /// `fired`: the timer of the latest [`NextStep::Sets`] is over. `waker` is woken when the
    /// caller has to poll before its timer is over.
    ///
    /// * The first poll takes the tokens, or joins the line. A wait beyond the caller's longest one
    ///   is refused at once, or later if a change of the rule makes it longer.
    /// * A later poll of a caller in line serves all callers that are due. Extra polls do no harm.
    /// * A caller that is turned away, or that keeps a part, begins again with the rest of its
    ///   time.
    /// * A caller that is served sleeps the jitter, but not beyond its longest wait.
    ///
    /// # Panics
    ///
    /// Panics if it is called again after [`NextStep::Done`].
    pub(crate) fn poll(&mut self, fired: bool, waker: &Waker) -> NextStep {
        loop {
            match &mut self.stage {
                WaitStage::New => {
                    let joined = self.request.join(self.max_wait, waker);
                    self.let_next_join();
                    match joined {
                        Ok(Promise::Waits(ticket)) => {
                            self.stage = WaitStage::InLine { ticket, until: self.until() };
                            return NextStep::Sets(Duration::from_nanos(ticket.waits.wait));
                        }
                        Ok(Promise::Later(wait)) => {
                            self.stage = WaitStage::Later { until: self.until() };
                            let wait = self.request.jitter().added_to(Duration::from_nanos(wait));
                            return NextStep::Sets(wait.min(Duration::from_nanos(self.max_wait)));
                        }
                        Ok(Promise::Granted(granted)) => return self.done(Ok(granted)),
                        Err(denied) => return self.done(Err(denied)),
                    }
                }
                WaitStage::Later { until } if fired => {
                    let until = *until;
                    self.begin_again(until);
                }
                WaitStage::Later { .. } => return NextStep::Waits,
                WaitStage::InLine { ticket, until } => {
                    let (turn, version) = self.request.look(ticket, fired, waker);
                    match turn {
                        LineTurn::Waits => return NextStep::Waits,
                        LineTurn::Paused => {
                            ticket.waits.version = version;
                            let (n, until) = (ticket.n, *until);
                            return match self.left_until(until) {
                                0 => self.give_up(n, Denied::blocked(n)),
                                left => NextStep::Sets(Duration::from_nanos(left)),
                            };
                        }
                        LineTurn::Behind => {
                            ticket.waits.version = version;
                            let until = *until;
                            return NextStep::Sets(Duration::from_nanos(self.left_until(until).min(BEHIND)));
                        }
                        LineTurn::Sets { wait } => {
                            let now = self.request.engine().clock.nanos();
                            let due = now.saturating_add(wait);
                            if due > *until && version != ticket.waits.version {
                                // A change of quota made the wait too long.
                                let (n, over) = (ticket.n, due - *until);
                                return self.give_up(n, Denied::late(n, over));
                            }
                            (ticket.waits.version, ticket.waits.wait) = (version, wait);
                            return NextStep::Sets(Duration::from_nanos(wait));
                        }
                        LineTurn::Served => {
                            let granted = self.request.granted(ticket);
                            return self.serve(granted);
                        }
                        LineTurn::Joins => {
                            let until = *until;
                            self.left = Some(*ticket);
                            self.begin_again(until);
                        }
                    }
                }
                WaitStage::Jitter(granted) if fired => {
                    let granted = *granted;
                    self.stage = WaitStage::Done;
                    return NextStep::Done(Ok(granted));
                }
                WaitStage::Jitter(_) => return NextStep::Waits,
                WaitStage::Done => unreachable!("a wait that is over is not polled again"),
            }
        }
    }

    /// Returns the clock reading up to which the caller is ready to wait.
    fn until(&self) -> u64 {
        match self.max_wait {
            NO_LIMIT => NO_LIMIT,
            max_wait => self.request.engine().clock.nanos().saturating_add(max_wait),
        }
    }

    /// Returns the rest of the time, in nanoseconds.
    fn left_until(&self, until: u64) -> u64 {
        match until {
            NO_LIMIT => NO_LIMIT,
            until => until.saturating_sub(self.request.engine().clock.nanos()),
        }
    }

    /// Begins again, with the rest of the time.
    fn begin_again(&mut self, until: u64) {
        self.max_wait = self.left_until(until);
        self.stage = WaitStage::New;
    }

    /// Leaves the place from which the caller was turned away: the next one there joins again.
    fn let_next_join(&mut self) {
        if let Some(ticket) = self.left.take() {
            self.request.leave(&ticket);
        }
    }

    fn done(&mut self, decision: Result<Granted, Denied>) -> NextStep {
        self.stage = WaitStage::Done;
        NextStep::Done(decision)
    }

    /// Ends the wait in line by a refusal.
    #[cold]
    fn give_up(&mut self, n: u64, denied: Denied) -> NextStep {
        self.leave();
        let decision = self.request.hook().observe(n, Err(denied));
        self.done(decision)
    }

    fn leave(&mut self) {
        self.let_next_join();
        if let WaitStage::InLine { ticket, .. } = &self.stage {
            self.request.leave(ticket);
        }
    }

    /// Takes the tokens, and sleeps the jitter.
    fn serve(&mut self, granted: Granted) -> NextStep {
        let granted = self.request.hook().observe(granted.tokens(), Ok(granted)).unwrap_or(granted);
        let WaitStage::InLine { until, .. } = self.stage else { return self.done(Ok(granted)) };
        let jitter = self.request.jitter().added_to(Duration::ZERO);
        // Jitter never makes the wait longer than the caller is ready for.
        let jitter = jitter.min(Duration::from_nanos(self.left_until(until)));
        if jitter.is_zero() {
            return self.done(Ok(granted));
        }
        self.stage = WaitStage::Jitter(granted);
        NextStep::Sets(jitter)
    }
}

impl<T: WaitsInLine> Drop for Waiter<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Unparks a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static UNPARK: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

/// Waits in this thread.
pub(crate) fn block<T: WaitsInLine>(request: T) -> Result<Granted, Denied> {
    let waker = UNPARK.with(Waker::clone);
    let mut waiter = Waiter::new(request);
    // `None` before the first timer, and beyond all times.
    let mut timer: Option<Instant> = None;
    loop {
        let now = Instant::now();
        let fired = timer.is_some_and(|timer| timer <= now);
        match waiter.poll(fired, &waker) {
            NextStep::Done(decision) => return decision,
            NextStep::Sets(wait) => timer = now.checked_add(wait),
            NextStep::Waits => {}
        }
        match timer {
            Some(timer) => thread::park_timeout(timer.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}
