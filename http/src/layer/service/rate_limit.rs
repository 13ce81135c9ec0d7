//! The service and its response future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::ResponseBody;
use crate::layer::decide::after::After;
use crate::layer::decide::decision::Decision;
use crate::layer::decide::line::WaitingLine;
use crate::layer::decide::passed::{Passed, Verdict, upstream_field};
use crate::layer::decide::request::Pending;
use crate::layer::decide::state::LayerState;
use crate::request::key::Head;

/// A service behind a limit, from a [`RateLimitLayer`](crate::RateLimitLayer), with its counts.
pub struct RateLimit<T> {
    pub(crate) inner: T,
    pub(crate) state: Arc<LayerState>,
    /// The line of a [`DelayLayer`](crate::DelayLayer).
    pub(crate) line: Option<Arc<WaitingLine>>,
}

impl<T> RateLimit<T> {
    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the inner service, without the limit.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T: Clone> Clone for RateLimit<T> {
    fn clone(&self) -> Self {
        RateLimit { inner: self.inner.clone(), state: self.state.clone(), line: self.line.clone() }
    }
}

impl<T: fmt::Debug> fmt::Debug for RateLimit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<T, A, B> Service<Request<A>> for RateLimit<T>
where
    T: Service<Request<A>, Response = Response<B>> + Clone,
{
    type Response = Response<ResponseBody<B>>;
    type Error = T::Error;
    type Future = ResponseFuture<T, A>;

    /// Returns ready at once, without a poll of the inner service.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        if self.state.may_wait() || self.line.is_some() {
            return self.resume(request);
        }
        match (self.state.decide_at_once)(&self.state, Head::from(&request)) {
            Verdict::Passed(passed) => {
                let after = note(&mut request, passed);
                self.pass(request, after)
            }
            Verdict::Refused(refusal) => ResponseFuture::answered(Ok(refusal)),
        }
    }
}

/// Notes the decision on a request that is passed on. Returns the work on its response.
#[inline]
fn note<A>(request: &mut Request<A>, passed: Passed) -> After {
    let Passed { decision, after, tells } = passed;
    if tells {
        tell_upstream(request, decision.as_ref());
    }
    if let Some(decision) = decision {
        request.extensions_mut().insert(decision);
    }
    after
}

/// Tells the upstream whether a request is over a limit. A client's own claim is removed.
#[cold]
fn tell_upstream<A>(request: &mut Request<A>, decision: Option<&Decision>) {
    match upstream_field(true, decision) {
        Some((name, Some(value))) => _ = request.headers_mut().insert(name, value),
        Some((name, None)) => _ = request.headers_mut().remove(name),
        None => {}
    }
}

impl<T: Clone> RateLimit<T> {
    /// Goes on with a request whose decision has begun.
    ///
    /// Without an answer at once no task waits yet: the future polls again.
    fn resume<A>(&mut self, request: Request<A>) -> ResponseFuture<T, A>
    where
        T: Service<Request<A>>,
    {
        let mut pending = self.state.begin(self.line.as_ref());
        let mut context = Context::from_waker(Waker::noop());
        match self.state.decide(Head::from(&request), &mut pending, &mut context) {
            Poll::Ready(verdict) => self.act(request, verdict),
            Poll::Pending => self.wait(request, Stage::Deciding(pending)),
        }
    }

    /// Passes the request on, or refuses it.
    pub(super) fn act<A>(&mut self, mut request: Request<A>, verdict: Verdict) -> ResponseFuture<T, A>
    where
        T: Service<Request<A>>,
    {
        match verdict {
            Verdict::Passed(passed) => {
                let after = note(&mut request, passed);
                self.pass(request, after)
            }
            Verdict::Refused(refusal) => ResponseFuture::answered(Ok(refusal)),
        }
    }

    #[inline(always)]
    fn pass<A>(&mut self, request: Request<A>, after: After) -> ResponseFuture<T, A>
    where
        T: Service<Request<A>>,
    {
        // No task waits: the future polls a service again that is not ready.
        match self.inner.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {
                ResponseFuture { kind: ResponseKind::Passed { inner: self.inner.call(request), after } }
            }
            Poll::Ready(Err(error)) => ResponseFuture::answered(Err(error)),
            Poll::Pending => self.wait(request, Stage::Ready(after)),
        }
    }

    /// Moves the service into the future with its place in a queue, and leaves a clone without one.
    #[cold]
    fn wait<A>(&mut self, request: Request<A>, stage: Stage) -> ResponseFuture<T, A>
    where
        T: Service<Request<A>>,
    {
        let clone = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, clone);
        let (state, stage) = (self.state.clone(), Mutex::new(stage));
        let waiting = Some(Box::new(Waiting { service, request, state, stage }));
        ResponseFuture { kind: ResponseKind::Waiting { waiting } }
    }
}

/// The end of a request that is not passed on.
type Answered<E> = Result<Response<Bytes>, E>;

/// A request that is not passed on yet.
struct Waiting<T, A> {
    service: T,
    request: Request<A>,
    state: Arc<LayerState>,
    /// No thread locks it: it makes a future [`Sync`] whose search is not.
    stage: Mutex<Stage>,
}

/// The reason for which a request waits.
enum Stage {
    /// For its keys and answers.
    Deciding(Box<Pending<'static>>),
    /// For the inner service.
    Ready(After),
}

impl<T: Service<Request<A>>, A> Waiting<T, A> {
    /// Waits until the inner service takes the request, or the request is refused.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Answered<T::Error>>> {
        let stage = self.stage.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Deciding(pending) = stage {
            match ready!(self.state.decide(Head::from(&self.request), pending, context)) {
                Verdict::Passed(passed) => *stage = Stage::Ready(note(&mut self.request, passed)),
                Verdict::Refused(refusal) => return Poll::Ready(Err(Ok(refusal))),
            }
        }
        self.service.poll_ready(context).map_err(Err)
    }

    /// Passes the request on.
    fn pass(mut self) -> (T::Future, After) {
        let after = match self.stage.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Stage::Ready(after) => after,
            Stage::Deciding(_) => After::NOTHING,
        };
        (self.service.call(self.request), after)
    }
}

pin_project! {
    /// The response of a [`RateLimit`]: that of the inner service, or a refusal, which is ready.
    ///
    /// While the inner service is not ready, the future of a granted request holds it and its place
    /// in a queue. A dropped future gives up the place, and no tokens.
    #[must_use = "futures do nothing unless they are polled"]
    pub struct ResponseFuture<T, A>
    where
        T: Service<Request<A>>,
    {
        #[pin]
        kind: ResponseKind<T, A>,
    }
}

pin_project! {
    #[project = ResponseProjection]
    enum ResponseKind<T, A>
    where
        T: Service<Request<A>>,
    {
        Passed {
            #[pin]
            inner: T::Future,
            after: After,
        },
        // In a box: only a request that waits costs an allocation, and others have a small future.
        Waiting {
            waiting: Option<Box<Waiting<T, A>>>,
        },
        Answered {
            answer: Option<Result<Response<Bytes>, T::Error>>,
        },
    }
}

impl<T: Service<Request<A>>, A> ResponseFuture<T, A> {
    fn answered(answer: Result<Response<Bytes>, T::Error>) -> Self {
        ResponseFuture { kind: ResponseKind::Answered { answer: Some(answer) } }
    }
}

const DONE: &str = "it is not polled when it is ready";

impl<T, A, B> Future for ResponseFuture<T, A>
where
    T: Service<Request<A>, Response = Response<B>>,
{
    type Output = Result<Response<ResponseBody<B>>, T::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut kind = self.as_mut().project().kind;
            match kind.as_mut().project() {
                ResponseProjection::Passed { inner, after } => {
                    let mut response = ready!(inner.poll(context))?;
                    let meter = after.act(&mut response);
                    return Poll::Ready(Ok(response.map(|body| ResponseBody::metered(body, meter))));
                }
                ResponseProjection::Answered { answer } => {
                    return Poll::Ready(
                        answer.take().expect(DONE).map(|refusal| refusal.map(ResponseBody::from)),
                    );
                }
                ResponseProjection::Waiting { waiting } => {
                    match ready!(waiting.as_mut().expect(DONE).poll(context)) {
                        Ok(()) => {
                            let (inner, after) = waiting.take().expect(DONE).pass();
                            kind.set(ResponseKind::Passed { inner, after });
                        }
                        Err(answer) => {
                            *waiting = None;
                            kind.set(ResponseKind::Answered { answer: Some(answer) });
                        }
                    }
                }
            }
        }
    }
}

impl<T: Service<Request<A>>, A> fmt::Debug for ResponseFuture<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
