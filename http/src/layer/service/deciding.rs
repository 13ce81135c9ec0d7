//! The decision of a layer without a service: on the head of a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::boxed::BoxRateLimitLayer;
use super::delay::DelayLayer;
use super::rate_limit_layer::RateLimitLayer;
use crate::layer::decide::passed::Verdict;
use crate::layer::decide::request::Pending;
use crate::layer::decide::state::LayerState;
use crate::request::key::Head;

impl<K> RateLimitLayer<K> {
    /// Decides on a request by its head, without a service: for a framework that is not of tower.
    ///
    /// It is the decision of the layer's service, with all options of the layer and its counts.
    /// [`Head::with_peer`] is for a server that keeps the peer's address apart from the request.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use http::{Request, Response};
    /// use tollgate::{Quota, RateLimiter};
    /// use tollgate_http::{ClientIp, Head, RateLimitLayer, Verdict};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limiter = RateLimiter::new(Quota::per_second(1));
    /// let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    ///
    /// let (head, ()) = Request::get("/").body(()).unwrap().into_parts();
    /// let head = Head::from(&head).with_peer(IpAddr::from([192, 0, 2, 1]));
    /// let Verdict::Passed(passed) = layer.decide(head).await else { panic!("a burst is 1") };
    /// // The response of the program.
    /// let mut response = Response::new("hello");
    /// assert!(passed.respond(&mut response).is_none());
    /// assert_eq!(response.headers()["ratelimit"], r#""default";r=0;t=1"#);
    ///
    /// let Verdict::Refused(refusal) = layer.decide(head).await else { panic!("no time passed") };
    /// assert_eq!((refusal.status().as_u16(), &refusal.headers()["retry-after"]), (429, &1.into()));
    /// # }
    /// ```
    pub fn decide<'a>(&'a self, head: impl Into<Head<'a>>) -> Deciding<'a> {
        Deciding::new(&self.state, head.into())
    }
}

impl BoxRateLimitLayer {
    /// Decides on a request by its head, without a service; see
    /// [`RateLimitLayer::decide`](crate::RateLimitLayer::decide).
    #[inline]
    pub fn decide<'a>(&'a self, head: impl Into<Head<'a>>) -> Deciding<'a> {
        Deciding::new(&self.state, head.into())
    }
}

/// The decision on a request, from [`RateLimitLayer::decide`](crate::RateLimitLayer::decide).
///
/// The first poll decides if all limiters are [at hand](crate::LayerLimiter::is_at_hand), no
/// [key](crate::NeedsKey::key_async) is searched for, and no request [waits](Deciding::delayed_by).
/// Such a decision needs no executor, and allocates nothing for a request that one limit grants. A
/// decision that is dropped before its end takes no tokens, or gives them back.
#[must_use = "a decision that is not awaited takes no tokens"]
pub struct Deciding<'a> {
    state: &'a LayerState,
    head: Head<'a>,
    line: Option<&'a DelayLayer>,
    pending: Option<Box<Pending<'static>>>,
}

impl<'a> Deciding<'a> {
    #[inline]
    fn new(state: &'a LayerState, head: Head<'a>) -> Deciding<'a> {
        Deciding { state, head, line: None, pending: None }
    }

    /// Lets the request wait for its turn, as a [`DelayLayer`] over the layer's service does.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::Request;
    /// use tollgate::{Quota, RateLimiter};
    /// use tollgate_http::{DelayLayer, RateLimitLayer, Verdict};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limiter = RateLimiter::<()>::new(Quota::per_second(10).burst(1));
    /// let layer = RateLimitLayer::builder(limiter).shared().build();
    /// let delay = DelayLayer::by_timer(Duration::from_secs(1), |wait| async move {
    ///     // The timer of a runtime.
    ///     # std::thread::sleep(wait);
    /// });
    /// let (head, ()) = Request::new(()).into_parts();
    /// for _ in 0..2 {
    ///     let verdict = layer.decide(&head).delayed_by(&delay).await;
    ///     assert!(matches!(verdict, Verdict::Passed(_)));
    /// }
    /// # }
    /// ```
    pub fn delayed_by(self, delay: &'a DelayLayer) -> Deciding<'a> {
        Deciding { line: Some(delay), ..self }
    }

    /// Begins a decision that may wait, or goes on with it.
    #[cold]
    fn poll_pending(&mut self, context: &mut Context<'_>) -> Poll<Verdict> {
        let Deciding { state, head, line, pending } = self;
        let pending = pending.get_or_insert_with(|| state.begin(line.map(DelayLayer::line)));
        state.decide(*head, pending, context)
    }
}

impl Future for Deciding<'_> {
    type Output = Verdict;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.state.may_wait() || this.line.is_some() {
            return this.poll_pending(context);
        }
        Poll::Ready((this.state.decide_at_once)(this.state, this.head))
    }
}

impl fmt::Debug for Deciding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciding").finish_non_exhaustive()
    }
}
