//! The service over a limit on the requests in flight, and its response future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::state::{Admission, Admitted, InflightState};
use tollgate_http::{Head, ResponseBody};

/// A service behind a limit on the requests in flight, from an
/// [`InflightLayer`](crate::InflightLayer), with its counts.
pub struct LimitInflight<T> {
    pub(crate) inner: T,
    pub(crate) state: Arc<InflightState>,
}

impl<T> LimitInflight<T> {
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

impl<T: Clone> Clone for LimitInflight<T> {
    fn clone(&self) -> Self {
        LimitInflight { inner: self.inner.clone(), state: self.state.clone() }
    }
}

impl<T: fmt::Debug> fmt::Debug for LimitInflight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitInflight").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<T, A, B> Service<Request<A>> for LimitInflight<T>
where
    T: Service<Request<A>, Response = Response<B>> + Clone,
{
    type Response = Response<ResponseBody<B>>;
    type Error = T::Error;
    type Future = InflightFuture<T, A>;

    /// Returns ready at once, without a poll of the inner service.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let admitted = match self.state.admit(Head::from(&request)) {
            Admission::Admitted(admitted) => Some(admitted),
            Admission::Exempt => None,
            Admission::Refused(response) => return InflightFuture::answered(Ok(response)),
        };
        // No task is registered: if the service is not ready, the future polls it again.
        match self.inner.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {
                InflightFuture { kind: FlightKind::Passed { inner: self.inner.call(request), admitted } }
            }
            Poll::Ready(Err(error)) => {
                if let Some(admitted) = admitted {
                    admitted.error();
                }
                InflightFuture::answered(Err(error))
            }
            Poll::Pending => self.wait(request, admitted),
        }
    }
}

impl<T: Clone> LimitInflight<T> {
    /// Moves the polled service into the future, with its place in a queue, and leaves a clone that
    /// was not polled.
    #[cold]
    fn wait<A>(&mut self, request: Request<A>, admitted: Option<Admitted>) -> InflightFuture<T, A>
    where
        T: Service<Request<A>>,
    {
        let clone = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, clone);
        let waiting = Some(Box::new(InFlightWaiting { service, request, admitted }));
        InflightFuture { kind: FlightKind::Waiting { waiting } }
    }
}

/// A request that has its place, and waits for the inner service.
struct InFlightWaiting<T, A> {
    service: T,
    request: Request<A>,
    admitted: Option<Admitted>,
}

pin_project! {
    /// The response of a [`LimitInflight`]. Dropped, it leaves its place.
    #[must_use = "futures do nothing unless they are polled"]
    pub struct InflightFuture<T, A>
    where
        T: Service<Request<A>>,
    {
        #[pin]
        kind: FlightKind<T, A>,
    }
}

pin_project! {
    #[project = FlightProjection]
    enum FlightKind<T, A>
    where
        T: Service<Request<A>>,
    {
        Passed {
            #[pin]
            inner: T::Future,
            admitted: Option<Admitted>,
        },
        Waiting {
            waiting: Option<Box<InFlightWaiting<T, A>>>,
        },
        Answered {
            answer: Option<Result<Response<Bytes>, T::Error>>,
        },
    }
}

impl<T: Service<Request<A>>, A> InflightFuture<T, A> {
    fn answered(answer: Result<Response<Bytes>, T::Error>) -> Self {
        InflightFuture { kind: FlightKind::Answered { answer: Some(answer) } }
    }
}

const DONE: &str = "it is not polled when it is ready";

impl<T, A, B> Future for InflightFuture<T, A>
where
    T: Service<Request<A>, Response = Response<B>>,
{
    type Output = Result<Response<ResponseBody<B>>, T::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut kind = self.as_mut().project().kind;
            match kind.as_mut().project() {
                FlightProjection::Passed { inner, admitted } => {
                    let result = ready!(inner.poll(context));
                    return Poll::Ready(finish(result, admitted.take()));
                }
                FlightProjection::Waiting { waiting } => {
                    let ready = ready!(waiting.as_mut().expect(DONE).service.poll_ready(context));
                    let InFlightWaiting { mut service, request, admitted } = *waiting.take().expect(DONE);
                    if let Err(error) = ready {
                        if let Some(admitted) = admitted {
                            admitted.error();
                        }
                        return Poll::Ready(Err(error));
                    }
                    kind.set(FlightKind::Passed { inner: service.call(request), admitted });
                }
                FlightProjection::Answered { answer } => {
                    let answer = answer.take().expect(DONE);
                    return Poll::Ready(answer.map(|response| response.map(ResponseBody::from)));
                }
            }
        }
    }
}

/// Leaves at the head of a response or at an error, or gives the place to the body.
fn finish<B, E>(
    result: Result<Response<B>, E>,
    admitted: Option<Admitted>,
) -> Result<Response<ResponseBody<B>>, E> {
    match (result, admitted) {
        (Ok(response), admitted) => {
            let flight = admitted.and_then(|admitted| admitted.until_end(&response));
            Ok(response.map(|body| match flight {
                Some(flight) => ResponseBody::holding(body, flight),
                None => ResponseBody::new(body),
            }))
        }
        (Err(error), admitted) => {
            if let Some(admitted) = admitted {
                admitted.error();
            }
            Err(error)
        }
    }
}

impl<T: Service<Request<A>>, A> fmt::Debug for InflightFuture<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InflightFuture").finish_non_exhaustive()
    }
}
