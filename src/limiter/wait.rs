//! Waiting for tokens: a position in line, a timer, and the caller's turn.
//!
//! A [`Waiter`] has no timer of its own: a task polls it beside a timer, and a thread parks. It is
//! served in order of arrival. If it is dropped before its turn, all callers behind it move up. A
//! request that keeps a part has no position: it tries again by its timer.

#[cfg(feature = "tokio")]
mod tokio;

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::bucket::line::caller_line::{InLine, LineTurn};
use crate::keyed::lines::LineId;
use crate::limiter::ask::Ask;
use crate::limiter::asked::{Asked, Frame, Target};
use crate::limiter::call::Joined;
use crate::rule::rate::Quota;
use crate::word::decision::{Denied, Granted};

/// Longest wait of a caller that set none, in nanoseconds.
pub(crate) const NO_LIMIT: u64 = u64::MAX;

/// Longest wait of a caller that is turned away for those before it. They join again when they are
/// polled, and one may never be.
const BEHIND: u64 = 1_000_000_000;

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
pub(crate) struct Waiter<'k, B: Target> {
    request: Ask<'k, B>,
    /// Nanoseconds that the caller is ready to wait.
    max_wait: u64,
    stage: WaitStage,
    /// The line from which the caller was turned away, until it has joined again.
    left: Option<(LineId, InLine)>,
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
        line: LineId,
        caller: InLine,
        /// The clock reading up to which the caller is ready to wait.
        until: u64,
    },
    /// The tokens are taken, and the jitter is slept.
    Jitter(Granted),
    Done,
}

impl<'k, B: Target> Waiter<'k, B> {
    pub(crate) fn new(request: Ask<'k, B>) -> Waiter<'k, B> {
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
                        Ok(Joined::Waits(line, caller)) => {
                            self.stage = WaitStage::InLine { line, caller, until: self.until() };
                            return NextStep::Sets(Duration::from_nanos(caller.wait));
                        }
                        Ok(Joined::Later(wait)) => {
                            self.stage = WaitStage::Later { until: self.until() };
                            let wait = self.frame().jitter.added_to(Duration::from_nanos(wait));
                            return NextStep::Sets(wait.min(Duration::from_nanos(self.max_wait)));
                        }
                        Ok(Joined::Granted(granted)) => return self.done(Ok(granted)),
                        Err(denied) => return self.done(Err(denied)),
                    }
                }
                WaitStage::Later { until } if fired => {
                    let until = *until;
                    self.begin_again(until);
                }
                WaitStage::Later { .. } => return NextStep::Waits,
                WaitStage::InLine { line, caller, until } => {
                    let (turn, version) = self.request.turn(line, caller, fired, waker);
                    match turn {
                        LineTurn::Waits => return NextStep::Waits,
                        LineTurn::Paused => {
                            caller.version = version;
                            let until = *until;
                            return match self.left_until(until) {
                                0 => self.give_up(Denied::blocked),
                                left => NextStep::Sets(Duration::from_nanos(left)),
                            };
                        }
                        LineTurn::Behind => {
                            caller.version = version;
                            let until = *until;
                            return NextStep::Sets(Duration::from_nanos(self.left_until(until).min(BEHIND)));
                        }
                        LineTurn::Sets { wait } => {
                            let now = self.request.bucket.frame().engine.clock.nanos();
                            let due = now.saturating_add(wait);
                            if due > *until && version != caller.version {
                                // A change of quota made the wait too long.
                                let over = due - *until;
                                return self.give_up(|n| Denied::late(n, over));
                            }
                            (caller.version, caller.wait) = (version, wait);
                            return NextStep::Sets(Duration::from_nanos(wait));
                        }
                        LineTurn::Served => {
                            let granted = self.request.served(line);
                            return self.serve(granted);
                        }
                        LineTurn::Joins => {
                            let until = *until;
                            self.left = Some((*line, *caller));
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

    fn frame(&self) -> Frame<'_> {
        self.request.bucket.frame()
    }

    /// Returns the clock reading up to which the caller is ready to wait.
    fn until(&self) -> u64 {
        match self.max_wait {
            NO_LIMIT => NO_LIMIT,
            max_wait => self.frame().engine.clock.nanos().saturating_add(max_wait),
        }
    }

    /// Returns the rest of the time, in nanoseconds.
    fn left_until(&self, until: u64) -> u64 {
        match until {
            NO_LIMIT => NO_LIMIT,
            until => until.saturating_sub(self.frame().engine.clock.nanos()),
        }
    }

    /// Begins again, with the rest of the time.
    fn begin_again(&mut self, until: u64) {
        self.max_wait = self.left_until(until);
        self.stage = WaitStage::New;
    }

    /// Leaves the line from which the caller was turned away: the next one there joins again.
    fn let_next_join(&mut self) {
        if let Some((line, caller)) = self.left.take() {
            self.request.leave(&line, &caller);
        }
    }

    fn done(&mut self, decision: Result<Granted, Denied>) -> NextStep {
        self.stage = WaitStage::Done;
        NextStep::Done(decision)
    }

    /// Ends the wait in line by a refusal.
    #[cold]
    fn give_up(&mut self, denied: impl FnOnce(u64) -> Denied) -> NextStep {
        self.leave();
        let n = self.request.n;
        let decision = self.frame().hook.observe(n, Err(denied(n)));
        self.done(decision)
    }

    fn leave(&mut self) {
        self.let_next_join();
        if let WaitStage::InLine { line, caller, .. } = &self.stage {
            self.request.leave(line, caller);
        }
    }

    /// Shows the grant to the hook, and starts the jitter. The tokens are taken already.
    fn serve(&mut self, granted: Granted) -> NextStep {
        let granted = self.frame().hook.observe(granted.tokens(), Ok(granted)).unwrap_or(granted);
        let WaitStage::InLine { until, .. } = self.stage else { return self.done(Ok(granted)) };
        let jitter = self.frame().jitter.added_to(Duration::ZERO);
        // Jitter never makes the wait longer than the caller is ready for.
        let jitter = jitter.min(Duration::from_nanos(self.left_until(until)));
        if jitter.is_zero() {
            return self.done(Ok(granted));
        }
        self.stage = WaitStage::Jitter(granted);
        NextStep::Sets(jitter)
    }
}

impl<B: Target> Drop for Waiter<'_, B> {
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
fn block<B: Target>(request: Ask<'_, B>) -> Result<Granted, Denied> {
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

/// Waits for the tokens of a request in a task. A dropped future leaves the line.
async fn wait<T: Future<Output = ()>>(
    request: Ask<'_, impl Target>,
    sleep: impl Fn(Duration) -> T,
) -> Result<Granted, Denied> {
    let mut waiter = Waiter::new(request);
    let mut timer = pin!(None::<T>);
    poll_fn(|cx| {
        loop {
            // No timer is polled after its end: `Waits` is the step of a timer that has not fired.
            let fired = timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready());
            match waiter.poll(fired, cx.waker()) {
                NextStep::Done(decision) => return Poll::Ready(decision),
                NextStep::Sets(wait) => timer.set(Some(sleep(wait))),
                NextStep::Waits => return Poll::Pending,
            }
        }
    })
    .await
}

impl<'a, B: Asked<'a, Rule = Quota>> Ask<'_, B> {
    /// Waits for the tokens in this thread, and takes them.
    ///
    /// The length of the sleep is computed on the limiter's clock. The sleep itself is on the
    /// system's clock.
    ///
    /// Threads are served first come, first served, beside tasks that [wait](crate::_guide#wait).
    /// Any number may wait, unless [`max_waiting`](crate::LimitBuilder::max_waiting) is set. A
    /// change of the rule moves the times of waiting threads.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a sleep, if the line is full, if the tokens are more than the
    /// burst (see [`hold`](Self::hold) for a cost that is larger), or if the wait is longer than
    /// [`within`](Self::within). After a lower rate was set, such a wait is refused late. A limiter
    /// may also refuse a new key, with [`Reason::Full`](crate::Reason::Full).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, Reason, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(1_000).burst(1));
    /// for _ in 0..3 {
    ///     bucket.ask().blocking_acquire()?; // the second and third a millisecond later each
    /// }
    ///
    /// let slow = TokenBucket::new(Quota::per_hour(1));
    /// assert!(slow.ask().blocking_acquire().is_ok());
    /// let denied = slow.ask().within(Duration::from_millis(5)).blocking_acquire().unwrap_err();
    /// assert_eq!(denied.reason(), Reason::Deadline); // now, not in 5 ms
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn blocking_acquire(self) -> Result<Granted, Denied> {
        block(self)
    }

    /// Waits for the tokens in this task by the caller's timer, and takes them.
    ///
    /// `sleep(wait)` returns a future that ends after `wait`, which is at most 584 years. A change
    /// of the rule, and a caller in front that leaves the line, make another one. A future that
    /// never ends leaves its task asleep after its tokens are due. With feature `tokio`, `acquire`
    /// has tokio's timer.
    ///
    /// Tokens that are there are taken without a timer, and so is a request for 0 tokens.
    ///
    /// The first poll takes a place in line. Tasks and threads are served first come, first served.
    /// A future that is dropped while it waits leaves the line, and all behind it move up. After
    /// its time has come it has spent its tokens, even if it was not polled since. Any number may
    /// wait, unless [`max_waiting`](crate::LimitBuilder::max_waiting) is set.
    ///
    /// # Errors
    ///
    /// As [`blocking_acquire`](Ask::blocking_acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Denied> {
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(1_000).burst(1));
    /// limiter.key(&7).acquire_by(tokio::time::sleep).await?;
    /// limiter.key(&7).acquire_by(tokio::time::sleep).await?; // a millisecond later
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_by<T>(self, sleep: impl Fn(Duration) -> T) -> Result<Granted, Denied>
    where
        T: Future<Output = ()>,
    {
        wait(self, sleep).await
    }
}

/// A function that is called at a limited rate; from [`Ask::limited`].
///
/// Each call takes the tokens of the request. [`try_call`](Limited::try_call) is refused if there
/// is none; [`blocking_call`](Limited::blocking_call) and (feature `tokio`) `call` wait for it.
pub struct Limited<'k, B, F> {
    request: Ask<'k, B>,
    action: F,
}

impl<'k, 'a, B: Asked<'a, Rule = Quota>> Ask<'k, B> {
    /// Returns a function of one argument that keeps to this limit: for the calls of a client. It
    /// may be async.
    ///
    /// Each call takes the tokens of the request, and waits for at most [`within`](Ask::within).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter, TokenBucket};
    ///
    /// static CALLS: TokenBucket = TokenBucket::new(Quota::per_minute(2));
    ///
    /// let ask = CALLS.ask().limited(|question: &str| question.len());
    /// assert_eq!(ask.try_call("who?"), Ok(4));
    /// assert_eq!(ask.try_call("where?"), Ok(6));
    /// assert!(ask.try_call("when?").is_err());
    ///
    /// let per_host = RateLimiter::<String>::new(Quota::per_minute(1));
    /// let fetch = per_host.key("example.org").limited(|path: &str| format!("https://example.org{path}"));
    /// assert!(fetch.try_call("/").is_ok());
    /// assert!(fetch.try_call("/again").is_err());
    /// ```
    pub fn limited<F>(self, action: F) -> Limited<'k, B, F> {
        Limited { request: self, action }
    }
}

impl<'a, B: Asked<'a>, F> Limited<'_, B, F> {
    /// Calls the function if there is a token now.
    ///
    /// # Errors
    ///
    /// [`Denied`] tells when a token is back. The function was not called.
    pub fn try_call<A, T>(&self, argument: A) -> Result<T, Denied>
    where
        F: Fn(A) -> T,
    {
        self.request.join(0, Waker::noop())?;
        Ok((self.action)(argument))
    }

    /// Waits for a token in this thread, then calls the function.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a wait or a call, if the line is
    /// [full](crate::LimitBuilder::max_waiting). A limiter may also refuse a new key, with
    /// [`Reason::Full`](crate::Reason::Full).
    pub fn blocking_call<A, T>(&self, argument: A) -> Result<T, Denied>
    where
        F: Fn(A) -> T,
    {
        let _ = block(self.request)?;
        Ok((self.action)(argument))
    }
}

impl<B, F> fmt::Debug for Limited<'_, B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").finish_non_exhaustive()
    }
}
