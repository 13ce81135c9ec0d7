//! The service and its response future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::ResponseBody;
use super::decide::{Action, After, LayerState};
use crate::http::Head;

/// A service behind a limit, from a [`RateLimitLayer`](super::RateLimitLayer), with its counts.
pub struct RateLimit<T> {
    pub(crate) inner: T,
    pub(crate) state: Arc<LayerState>,
}

impl<T> RateLimit<T> {
    /// Returns the inner service.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the inner service.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T: Clone> Clone for RateLimit<T> {
    fn clone(&self) -> Self {
        RateLimit { inner: self.inner.clone(), state: self.state.clone() }
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
        let (decision, after) = match self.state.rule(Head::from(&request)) {
            Action::Pass(decision, after) => (decision, after),
            Action::Refuse(response) => return ResponseFuture::answered(Ok(response)),
        };
        if let Some(decision) = decision {
            request.extensions_mut().insert(decision);
        }
        // No task waits: the future polls a service again that is not ready.
        match self.inner.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {
                ResponseFuture { kind: ResponseKind::Passed { inner: self.inner.call(request), after } }
            }
            Poll::Ready(Err(error)) => ResponseFuture::answered(Err(error)),
            Poll::Pending => ResponseFuture { kind: self.wait(request, after) },
        }
    }
}

impl<T: Clone> RateLimit<T> {
    /// Moves the service into the future with its place in a queue, and leaves a clone without one.
    #[cold]
    fn wait<A>(&mut self, request: Request<A>, after: After) -> ResponseKind<T, A>
    where
        T: Service<Request<A>>,
    {
        let clone = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, clone);
        ResponseKind::Waiting { waiting: Some(Box::new(Waiting { service, request, after })) }
    }
}

/// A granted request whose service is not ready yet.
struct Waiting<T, A> {
    service: T,
    request: Request<A>,
    after: After,
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
        // In a box: only a service that is not ready costs an allocation, and others have a small
        // future.
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
                    after.act(response.status(), response.headers_mut());
                    return Poll::Ready(Ok(response.map(ResponseBody::inner)));
                }
                ResponseProjection::Answered { answer } => {
                    return Poll::Ready(
                        answer.take().expect(DONE).map(|refusal| refusal.map(ResponseBody::from)),
                    );
                }
                ResponseProjection::Waiting { waiting } => {
                    let polled = waiting.as_mut().expect(DONE).service.poll_ready(context);
                    let ready = ready!(polled);
                    let Waiting { mut service, request, after } = *waiting.take().expect(DONE);
                    ready?;
                    kind.set(ResponseKind::Passed { inner: service.call(request), after });
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
