//! The service, and the response to come.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::counters::{Counters, count};
use super::decision::{Counted, Decision};
use super::gate::{Asked, Decider, Outcome, Refund, Verdict, next};
use super::layer::{RefundOn, State, WHOLE};
use crate::decision::Granted;
use crate::http::{Bare, Fields, Head, Policy, Refusal, Reject};

/// A service behind a limit, from a [`RateLimitLayer`](super::RateLimitLayer).
///
/// A clone counts together with it.
pub struct RateLimit<T, R = Bare> {
    pub(crate) inner: T,
    pub(crate) state: Arc<State<R>>,
}

impl<T, R> RateLimit<T, R> {
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

impl<T: Clone, R> Clone for RateLimit<T, R> {
    fn clone(&self) -> Self {
        RateLimit { inner: self.inner.clone(), state: self.state.clone() }
    }
}

impl<T: fmt::Debug, R> fmt::Debug for RateLimit<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// What is to be done with a request.
enum Ruling<B> {
    /// It is passed on, with what is said of the decision, to it and to its response.
    Pass(Option<Decision>, After),
    Refuse(Response<B>),
}

impl<R> State<R> {
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

    fn rule<B>(&self, head: Head<'_>) -> Ruling<B>
    where
        R: Reject<B>,
    {
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
                let tell = enforced.then_some((tell, granted));
                Ruling::Pass(Some(decision), After { tell, refund })
            }
            (Err(denied), true) => {
                self.suspect(&counters.refused, head);
                let refusal = Refusal::new(head, Some(&denied), &tell.policy);
                let mut response = self.reject.reject(&refusal);
                if !refusal.is_grpc() {
                    tell.add(&mut response, denied.headers(&tell.policy));
                }
                Ruling::Refuse(response)
            }
            (Err(_), false) => {
                self.suspect(&counters.shadow_refused, head);
                Ruling::Pass(Some(decision), After::NOTHING)
            }
        }
    }

    fn skipped<B>(&self) -> Ruling<B> {
        count(&self.skipped);
        Ruling::Pass(None, After::NOTHING)
    }
}

impl<T, R, A, B> Service<Request<A>> for RateLimit<T, R>
where
    T: Service<Request<A>, Response = Response<B>>,
    R: Reject<B>,
{
    type Response = Response<B>;
    type Error = T::Error;
    type Future = ResponseFuture<T::Future, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        match self.state.rule(Head::from(&request)) {
            Ruling::Refuse(response) => ResponseFuture { kind: Kind::Refused { response: Some(response) } },
            Ruling::Pass(decision, after) => {
                if let Some(decision) = decision {
                    request.extensions_mut().insert(decision);
                }
                ResponseFuture { kind: Kind::Passed { inner: self.inner.call(request), after } }
            }
        }
    }
}

/// What clients are told of, beside the decision.
struct Tell {
    policy: Arc<Policy>,
    also: Vec<Arc<Policy>>,
}

impl Tell {
    fn add<B>(&self, response: &mut Response<B>, fields: Fields) {
        for policy in self.also.iter().rev() {
            policy.append_to(response.headers_mut());
        }
        fields.append_to(response.headers_mut());
    }
}

/// What is done when the response is there.
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
            refunds.into_iter().for_each(|refund| refund());
        }
        if let Some((tell, granted)) = self.tell.take() {
            let fields = granted.headers(&tell.policy);
            // Whoever is told to wait would wait before it goes where it is sent.
            let waits = status.is_redirection() && granted.remaining() == 0;
            tell.add(response, if waits { fields.without_rest() } else { fields });
        }
    }
}

pin_project! {
    /// The response of a [`RateLimit`]: that of the service within, or a refusal, which is ready.
    #[must_use = "futures do nothing unless they are polled"]
    pub struct ResponseFuture<F, B> {
        #[pin]
        kind: Kind<F, B>,
    }
}

pin_project! {
    #[project = Projected]
    enum Kind<F, B> {
        Passed {
            #[pin]
            inner: F,
            after: After,
        },
        Refused {
            response: Option<Response<B>>,
        },
    }
}

impl<F: Future<Output = Result<Response<B>, E>>, B, E> Future for ResponseFuture<F, B> {
    type Output = Result<Response<B>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project().kind.project() {
            Projected::Passed { inner, after } => ready!(inner.poll(context)).map(|mut response| {
                after.act(&mut response);
                response
            }),
            Projected::Refused { response } => {
                Ok(response.take().expect("it is not polled when it is ready"))
            }
        })
    }
}

impl<F, B> fmt::Debug for ResponseFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
