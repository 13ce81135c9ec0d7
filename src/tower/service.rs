//! The service, and the response to come.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::ResponseBody;
use super::counters::{Counters, count};
use super::decision::{Counted, Decision};
use super::gate::{Asked, Decider, Outcome, Refund, Verdict, next};
use super::layer::{RefundOn, State, WHOLE};
use crate::http::{Fields, Head, Headers, Policy, Refusal};
use crate::word::decision::{Denied, Granted};

/// A service behind a limit, from a [`RateLimitLayer`](super::RateLimitLayer).
///
/// A clone counts together with it.
pub struct RateLimit<T> {
    pub(crate) inner: T,
    pub(crate) state: Arc<State>,
}

impl<T> RateLimit<T> {
    /// The service within.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// The service within.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// The service within.
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

/// The next step of a request.
enum Ruling {
    /// It is passed on: the decision is told to the service, and the response to come is worked on.
    Pass(Option<Decision>, After),
    Refuse(Response<Bytes>),
}

impl State {
    /// Counts a request that was refused. The 1st, 2nd, 4th, 8th of these and so on are examined for
    /// faults of the setup.
    fn suspect(&self, counter: &AtomicU64, head: Head<'_>) {
        if count(counter).is_power_of_two() {
            self.examine(Some(head));
        }
    }

    /// Says each fault that a request shows and that was not said before.
    #[cold]
    pub(crate) fn examine(&self, head: Option<Head<'_>>) {
        for gate in &self.gates {
            gate.examine(head, &self.said);
        }
    }

    fn rule(&self, head: Head<'_>) -> Ruling {
        if self.skip.as_ref().is_some_and(|skip| skip(head)) {
            return self.skipped();
        }
        let before = head.extensions.get::<Decision>().map(|decision| &decision.counted);
        let asked = Asked {
            head,
            cost: self.cost.as_ref().map_or(1, |cost| cost(head)),
            limits: self.gates.len(),
            said: &self.said,
            counted: before,
            sampled: (1..WHOLE).contains(&self.enforced),
            refundable: self.refund_on.is_some(),
        };
        let Verdict { outcome, decider, also, refunds, hash, .. } = next(&asked, &self.gates, None);
        // The upper half: the map's buckets have the same hash.
        let enforced = hash.unwrap_or(0) >> 32 < self.enforced;
        let (result, Decider { policy, counters }) = match (outcome, decider) {
            (Outcome::Decided(result), Some(decider)) => (result, decider),
            (Outcome::NoKey { check }, Some(Decider { policy, counters })) if enforced => {
                self.suspect(&counters.rejected, head);
                let refusal = Refusal::new(head, None, &policy).with_check(check);
                return Ruling::Refuse(self.reject.reject(&refusal));
            }
            _ => return self.skipped(),
        };
        let before = before.map(|counted| Arc::new(counted.clone()));
        let counted = Counted { ids: self.ids.clone(), before };
        let decision = Decision { result, cost: asked.cost, counted };
        if let Some(hook) = &self.hook {
            hook(head, &decision);
        }
        let tell = Tell { policy, also };
        match (result, enforced) {
            (Ok(granted), _) => {
                count(&counters.granted);
                let refund = self.refund_on.clone().map(|on| (on, refunds, counters.clone()));
                let tell = (enforced && tell.has_grants()).then_some((tell, granted));
                Ruling::Pass(Some(decision), After { tell, refund })
            }
            (Err(denied), true) => {
                self.suspect(&counters.refused, head);
                Ruling::Refuse(self.refuse(&Refusal::new(head, Some(&denied), &tell.policy), &tell, denied))
            }
            (Err(_), false) => {
                self.suspect(&counters.shadow_refused, head);
                Ruling::Pass(Some(decision), After::NOTHING)
            }
        }
    }

    fn skipped(&self) -> Ruling {
        count(&self.skipped);
        Ruling::Pass(None, After::NOTHING)
    }

    fn refuse(&self, refusal: &Refusal<'_>, tell: &Tell, denied: Denied) -> Response<Bytes> {
        let mut response = self.reject.reject(refusal);
        if !refusal.is_grpc() && tell.policy.form != Headers::None {
            tell.add(&mut response, denied.headers(&tell.policy));
        }
        response
    }
}

impl<T, A, B> Service<Request<A>> for RateLimit<T>
where
    T: Service<Request<A>, Response = Response<B>> + Clone,
{
    type Response = Response<ResponseBody<B>>;
    type Error = T::Error;
    type Future = ResponseFuture<T, A>;

    /// Is ready at once, and asks nothing of the service within.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let kind = match self.state.rule(Head::from(&request)) {
            Ruling::Refuse(response) => Kind::Answered { answer: Some(Ok(response)) },
            Ruling::Pass(decision, after) => {
                if let Some(decision) = decision {
                    request.extensions_mut().insert(decision);
                }
                // No task is to be woken: one that is not ready is polled again by the future.
                match self.inner.poll_ready(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Ok(())) => Kind::Passed { inner: self.inner.call(request), after },
                    Poll::Ready(Err(error)) => Kind::Answered { answer: Some(Err(error)) },
                    Poll::Pending => self.wait(request, after),
                }
            }
        };
        ResponseFuture { kind }
    }
}

impl<T: Clone> RateLimit<T> {
    /// Moves the service into the future, with its place in a queue, and leaves a clone that has reserved nothing.
    #[cold]
    fn wait<A>(&mut self, request: Request<A>, after: After) -> Kind<T, A>
    where
        T: Service<Request<A>>,
    {
        let clone = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, clone);
        Kind::Waiting { waiting: Some(Box::new(Waiting { service, request, after })) }
    }
}

/// What clients are told of, beside the decision.
struct Tell {
    policy: Arc<Policy>,
    also: Vec<Arc<Policy>>,
}

impl Tell {
    /// Whether granted requests are told of their limits.
    fn has_grants(&self) -> bool {
        !matches!(self.policy.form, Headers::None | Headers::RetryAfterOnly)
    }

    fn add<B>(&self, response: &mut Response<B>, fields: Fields) {
        for policy in self.also.iter().rev() {
            policy.append_to(response.headers_mut());
        }
        fields.append_to(response.headers_mut());
    }
}

/// The work on a response when it is there.
struct After {
    tell: Option<(Tell, Granted)>,
    refund: Option<(RefundOn, Vec<Refund>, Arc<Counters>)>,
}

impl After {
    const NOTHING: After = After { tell: None, refund: None };

    fn act<B>(&mut self, response: &mut Response<B>) {
        let status = response.status();
        if let Some((on, refunds, counters)) = self.refund.take()
            && on(status)
        {
            count(&counters.refunded);
            self.give_back(refunds);
        }
        if let Some((tell, granted)) = self.tell.take() {
            // A client that is told to wait would wait before it follows the redirection.
            if status.is_redirection() && granted.remaining() == 0 {
                tell.add(response, granted.headers(&tell.policy).without_rest());
            } else {
                tell.add(response, granted.headers(&tell.policy));
            }
        }
    }

    /// Gives back the tokens. The response tells of the tokens that are left then.
    fn give_back(&mut self, refunds: Vec<Refund>) {
        for left in refunds.into_iter().filter_map(|refund| refund()) {
            if let Some((_, granted)) = &mut self.tell {
                *granted = left;
            }
        }
    }
}

/// A granted request whose service is not ready yet.
struct Waiting<T, A> {
    service: T,
    request: Request<A>,
    after: After,
}

pin_project! {
    /// The response of a [`RateLimit`]: that of the service within, or a refusal, which is ready.
    ///
    /// While the service is not ready, the future of a granted request holds the service and its place in a queue. A
    /// dropped future gives up the place, and no tokens.
    #[must_use = "futures do nothing unless they are polled"]
    pub struct ResponseFuture<T, A>
    where
        T: Service<Request<A>>,
    {
        #[pin]
        kind: Kind<T, A>,
    }
}

pin_project! {
    #[project = Projected]
    enum Kind<T, A>
    where
        T: Service<Request<A>>,
    {
        Passed {
            #[pin]
            inner: T::Future,
            after: After,
        },
        // In a box: only a service that is not ready costs an allocation, and others have a small future.
        Waiting {
            waiting: Option<Box<Waiting<T, A>>>,
        },
        Answered {
            answer: Option<Result<Response<Bytes>, T::Error>>,
        },
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
                Projected::Passed { inner, after } => {
                    let mut response = ready!(inner.poll(context))?;
                    after.act(&mut response);
                    return Poll::Ready(Ok(response.map(ResponseBody::inner)));
                }
                Projected::Answered { answer } => {
                    return Poll::Ready(
                        answer.take().expect(DONE).map(|refusal| refusal.map(ResponseBody::from)),
                    );
                }
                Projected::Waiting { waiting } => {
                    let polled = waiting.as_mut().expect(DONE).service.poll_ready(context);
                    let ready = ready!(polled);
                    let Waiting { mut service, request, after } = *waiting.take().expect(DONE);
                    ready?;
                    kind.set(Kind::Passed { inner: service.call(request), after });
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
