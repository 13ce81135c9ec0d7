//! A layer that lets requests wait for their turn.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::account::account;
use super::action::Action;
use super::body::ResponseBody;
use super::line::{Timer, Turn, WaitingLine};
use super::request::{Pending, Role, Ruling};
use super::service::{RateLimit, ResponseFuture};
use super::state::LayerState;
use super::stats::count;
use crate::http::Head;
use crate::limiter::place::Place;
use crate::time::clock::nanos_of;
use crate::word::decision::{Denied, Granted, Reason};

/// A layer that lets requests over their limits wait for their turn, instead of a refusal. It goes
/// directly over a [`RateLimit`], whose limits and options it uses.
///
/// Each waiting request has a place in line at each limit: requests of a key are passed on in the
/// order in which they came, at the limit's rate. A window has no tokens to come: a request over a
/// window is refused.
///
/// * A request that would wait longer is refused at once. Its `Retry-After` is the time until the
///   limit that refused would let it wait. (A lower quota that is set meanwhile may make a wait
///   longer.)
/// * At most [`max_waiting`](DelayLayer::max_waiting) requests of the rate limit wait at a time,
///   and of each key at most [`max_waiting_per_key`](DelayLayer::max_waiting_per_key). The next one
///   is refused.
/// * A request that is exempt, of a banned key, or of a key that is not enforced does not wait.
/// * A client that goes away, so that the response's future is dropped, gives its place to the
///   requests behind it. If the request waits for several limits, the tokens of those whose time
///   has come are spent.
/// * A request whose key is removed while it waits without a place is decided on again.
/// * The response tells the longest wait, as of its arrival: `Server-Timing: ratelimit;dur=250`, in
///   milliseconds (<https://www.w3.org/TR/server-timing/>). The service inside finds it in
///   [`Decision::delay`](super::Decision::delay).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::http::ClientIp;
/// use tollgate::tower::{DelayLayer, RateLimitLayer};
/// use tollgate::{Quota, RateLimiter};
///
/// let limits = RateLimitLayer::builder(RateLimiter::new(Quota::per_second(10)))
///     .key(ClientIp::peer())
///     .build();
/// // Over the limits: `delay.layer(limits.layer(service))`.
/// let delay = DelayLayer::by_timer(Duration::from_millis(500), |wait| async move {
///     // The timer of a runtime.
///     # let _ = wait;
/// });
/// # let _ = (limits, delay.max_waiting(100));
/// ```
#[derive(Clone)]
pub struct DelayLayer {
    line: WaitingLine,
}

impl DelayLayer {
    /// Lets requests wait for up to `max_delay`, by a given timer.
    pub fn by_timer<F>(
        max_delay: Duration,
        sleep: impl Fn(Duration) -> F + Send + Sync + 'static,
    ) -> DelayLayer
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let sleep = std::sync::Arc::new(move |delay| -> Timer { Box::pin(sleep(delay)) });
        DelayLayer { line: WaitingLine::new(max_delay, sleep) }
    }

    /// Sets the most requests that wait for their turn at a time: 1,024 by default.
    #[must_use]
    pub fn max_waiting(mut self, max_waiting: usize) -> DelayLayer {
        self.line.max_waiting = max_waiting;
        self
    }

    /// Sets the most requests of one key that wait for their turn at a time: by default an eighth
    /// of [`max_waiting`](DelayLayer::max_waiting), at least 16.
    ///
    /// Without such a bound a few busy keys fill the line, and requests of all other keys are
    /// refused that could wait. It is the `burst` of nginx's `limit_req`, which counts for each key
    /// as well. Requests without a key have one line, to which only `max_waiting` applies.
    #[must_use]
    pub fn max_waiting_per_key(mut self, max_waiting: usize) -> DelayLayer {
        self.line.max_waiting_per_key = Some(max_waiting);
        self
    }
}

impl<T> Layer<RateLimit<T>> for DelayLayer {
    type Service = Delay<T>;

    fn layer(&self, inner: RateLimit<T>) -> Delay<T> {
        Delay { inner, line: self.line.clone() }
    }
}

impl fmt::Debug for DelayLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayLayer").field("max_delay", &self.line.max_delay).finish_non_exhaustive()
    }
}

/// A rate limit whose requests wait for their turn, from a [`DelayLayer`].
#[derive(Clone)]
pub struct Delay<T> {
    inner: RateLimit<T>,
    line: WaitingLine,
}

impl<T: fmt::Debug> fmt::Debug for Delay<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delay").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<T, A, B> Service<Request<A>> for Delay<T>
where
    T: Service<Request<A>, Response = Response<B>> + Clone,
{
    type Response = Response<ResponseBody<B>>;
    type Error = T::Error;
    type Future = DelayFuture<T, A>;

    /// Returns ready at once, as a [`RateLimit`] does.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let mut waiter = Delayed { pending: Box::new(self.inner.state.pending()), turn: None };
        let mut context = Context::from_waker(Waker::noop());
        // No task waits yet: the future polls again.
        let kind = match waiter.decide(&self.inner.state, &self.line, Head::from(&request), &mut context) {
            Poll::Ready(Some(action)) => DelayKind::Passed { response: self.inner.act(request, action) },
            _ => {
                let (service, line) = (self.inner.clone(), self.line.clone());
                let waiting = DelayedRequest { service, line, request, waiter: Mutex::new(waiter) };
                DelayKind::Waiting { waiting: Some(Box::new(waiting)) }
            }
        };
        DelayFuture { kind }
    }
}

/// A request before it is passed to the rate limit.
struct DelayedRequest<T, A> {
    service: RateLimit<T>,
    line: WaitingLine,
    request: Request<A>,
    /// No thread locks it: it makes a future [`Sync`] whose search or timer is not.
    waiter: Mutex<Delayed>,
}

/// A request that is decided on, or that waits for its turn.
struct Delayed {
    pending: Box<Pending<'static>>,
    /// The turn, and the decision that is applied then.
    turn: Option<(Turn, Action)>,
}

impl Delayed {
    /// Decides on the request. Returns the next step, or `None` if the request waits for its turn.
    fn decide(
        &mut self,
        state: &LayerState,
        line: &WaitingLine,
        head: Head<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Action>> {
        let (first, pending) = (&*state.limits[0], &mut *self.pending);
        let mut ruling = ready!(state.rule(first, head, pending, context));
        let turn = state.wait(line, pending, &mut ruling);
        let action = account(state, first, head, pending, ruling);
        let Some(turn) = turn else { return Poll::Ready(Some(action)) };
        self.turn = Some((turn, action));
        Poll::Ready(None)
    }

    /// Waits until the decision can be applied.
    fn poll(
        &mut self,
        state: &LayerState,
        line: &WaitingLine,
        head: Head<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Action> {
        loop {
            let Some((turn, _)) = &mut self.turn else {
                match ready!(self.decide(state, line, head, context)) {
                    Some(action) => return Poll::Ready(action),
                    None => continue,
                }
            };
            let ended = ready!(turn.poll(context));
            if let (Ok(()), Some((turn, action))) = (ended, self.turn.take()) {
                turn.commit();
                self.pending.spend(Role::Enforced);
                return Poll::Ready(action);
            }
            // Its key was removed, or its cost is above the burst by now.
            *self.pending = state.pending();
        }
    }
}

impl LayerState {
    /// Decides again on a refused request, by its places in line. Returns its turn if it has to
    /// wait.
    #[cold]
    fn wait(
        &self,
        line: &WaitingLine,
        pending: &mut Pending<'_>,
        ruling: &mut Option<Ruling>,
    ) -> Option<Turn> {
        let is_refused = matches!(ruling, Some(Ruling::Decided { banned: false, .. }))
            && matches!(pending.decision, Some(Err(_)));
        if !is_refused || !self.enforces(pending) {
            return None;
        }
        let in_line = line.enter(&self.counters.waiting);
        let max_wait = if in_line.is_some() { line.max_wait() } else { 0 };
        let (at, decision, places) = self.places(pending, (max_wait, line.of_a_key()));
        let decision = decision.map_err(|denied| match in_line {
            None if denied.reason() == Reason::Empty => denied.of_full_line(line.max_waiting),
            _ => denied,
        });
        pending.decision = Some(decision);
        *ruling = Some(Ruling::Decided { at, banned: false });
        let waits = places.iter().any(|place| place.first_timer().is_some());
        match in_line.filter(|_| waits) {
            Some(in_line) => {
                count(&self.counters.delayed);
                let turn = line.wait(in_line, places);
                pending.delay = nanos_of(turn.delay());
                Some(turn)
            }
            None => {
                places.into_iter().for_each(Place::commit);
                if decision.is_ok() {
                    pending.spend(Role::Enforced);
                }
                None
            }
        }
    }

    /// Takes a place in line at each limit, or at none. Returns the limit that decides.
    fn places(
        &self,
        pending: &Pending<'_>,
        wait: (u64, usize),
    ) -> (usize, Result<Granted, Denied>, Vec<Place>) {
        let (mut places, mut tightest) = (Vec::new(), None::<(usize, Granted)>);
        for at in pending.with_role(Role::Enforced) {
            let part = pending.part(at);
            let placed = self.limits[at].place(part, pending.cost, wait);
            let granted = match (placed, part.answer()) {
                (Some(Ok((granted, place))), _) => {
                    places.push(place);
                    granted
                }
                (None, Some(Ok(granted))) => granted,
                (Some(Err(denied)), _) | (None, Some(Err(denied))) => return (at, Err(denied), Vec::new()),
                // A banned key was not asked for.
                (None, None) => {
                    let none = Denied::from_parts(Reason::Unavailable, pending.cost, 0, None);
                    return (at, Err(none), Vec::new());
                }
            };
            if tightest.is_none_or(|(_, tightest)| granted.remaining() < tightest.remaining()) {
                tightest = Some((at, granted));
            }
        }
        let (at, granted) = tightest.expect("a limit refused the request");
        (at, Ok(granted), places)
    }
}

pin_project! {
    /// The response of a [`Delay`].
    ///
    /// If it is dropped while the request waits for its turn, its place goes to the requests behind
    /// it.
    #[must_use = "futures do nothing unless they are polled"]
    pub struct DelayFuture<T, A>
    where
        T: Service<Request<A>>,
    {
        #[pin]
        kind: DelayKind<T, A>,
    }
}

pin_project! {
    #[project = DelayProjection]
    enum DelayKind<T, A>
    where
        T: Service<Request<A>>,
    {
        Waiting {
            waiting: Option<Box<DelayedRequest<T, A>>>,
        },
        Passed {
            #[pin]
            response: ResponseFuture<T, A>,
        },
    }
}

impl<T, A, B> Future for DelayFuture<T, A>
where
    T: Service<Request<A>, Response = Response<B>> + Clone,
{
    type Output = Result<Response<ResponseBody<B>>, T::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut kind = self.as_mut().project().kind;
            let waiting = match kind.as_mut().project() {
                DelayProjection::Passed { response } => return response.poll(context),
                DelayProjection::Waiting { waiting } => waiting,
            };
            let DelayedRequest { service, line, request, waiter } = &mut **waiting.as_mut().expect(DONE);
            let waiter = waiter.get_mut().unwrap_or_else(PoisonError::into_inner);
            let action = ready!(waiter.poll(&service.state, line, Head::from(&*request), context));
            let DelayedRequest { mut service, request, .. } = *waiting.take().expect(DONE);
            let response = service.act(request, action);
            kind.set(DelayKind::Passed { response });
        }
    }
}

const DONE: &str = "it is not polled when it is ready";

impl<T: Service<Request<A>>, A> fmt::Debug for DelayFuture<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayFuture").finish_non_exhaustive()
    }
}
