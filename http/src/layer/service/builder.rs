//! The builder of a layer.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use crate::layer::decide::decision::Decision;
use crate::layer::decide::order::decide_at_once;
use crate::layer::decide::settle::Cost;
use crate::layer::decide::state::LayerState;
use crate::layer::limit::ban::{Ban, BanAfter};
use crate::layer::limit::dyn_limit::DynLimit;
use crate::layer::limit::limit_by::{LimitBy, OnMissingKey};
use crate::layer::limit::limiter::LayerPlan;
use crate::layer::limit::reported::Reported;
use crate::layer::limit::share::Share;
use crate::request::check::Check;
use crate::request::exempt::Exempt;
use crate::request::key::Head;
use crate::response::head::ResponseHead;
use crate::response::policy::{Headers, Policy};
use crate::response::policy_name::InvalidName;
use crate::response::refusal::{Bare, Refusal, Reject};
use crate::response::refusal_body::RefusalBody;

/// Completes a limit by the first limit's policy, which says how to report it.
pub(super) type Finish = Box<dyn FnOnce(&Policy) -> Arc<dyn DynLimit> + Send + Sync>;

/// The builder of a [`RateLimitLayer`](crate::RateLimitLayer).
#[must_use]
pub struct LayerBuilder<K> {
    pub(super) first: LimitBy<K>,
    pub(super) others: Vec<Finish>,
    /// The layer's state, still without the limits.
    pub(super) state: LayerState,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LayerBuilder<K> {
    /// Chooses a plan of the first limit for each request; see [`LimitBy::plan`].
    pub fn plan<P: Into<LayerPlan>>(
        self,
        choose: impl Fn(Head<'_>) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        self.with_first(|first| first.plan(choose))
    }

    /// Sets the treatment of requests without a key of the first limit: by default a rejection.
    ///
    /// After [`shared`](crate::NeedsKey::shared) the default is [`Share`](OnMissingKey::Share),
    /// because no request has a key.
    pub fn on_missing_key(self, missing: OnMissingKey) -> Self {
        self.with_first(|first| first.on_missing_key(missing))
    }

    /// Names the first limit; see [`LimitBy::name`].
    ///
    /// # Errors
    ///
    /// `name` is not of 1 to 64 printable ASCII characters.
    pub fn name(self, name: &str) -> Result<Self, InvalidName> {
        Ok(LayerBuilder { first: self.first.name(name)?, ..self })
    }

    /// Adds a limit. A request is granted by all limits, or takes from none.
    pub fn and<L: Hash + Eq + Clone + Send + Sync + 'static>(mut self, limit: LimitBy<L>) -> Self {
        self.others.push(Box::new(|first| Arc::new(limit.with_form_of(first))));
        self
    }

    /// Sets the tokens that a request costs, 1 by default. A cost of 0 is always granted, and one
    /// above the burst never.
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.state.cost = Some(Box::new(cost));
        self
    }

    /// Exempts requests from all limits and bans.
    ///
    /// They are exempt by the client's network, the path, the method or a closure: see [`Exempt`].
    /// Called again, this adds to the list.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_http::{ClientIp, Exempt};
    /// use tollgate_http::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let layer = RateLimitLayer::builder(RateLimiter::new(Quota::per_second(10)))
    ///     .key(ClientIp::peer())
    ///     .exempt(Exempt::paths(["/health", "/static/*"])?)
    ///     .exempt(Exempt::preflights())
    ///     .build();
    /// # assert_eq!(layer.stats().exempt, 0);
    /// # Ok::<(), tollgate_http::InvalidPath>(())
    /// ```
    pub fn exempt(mut self, exempt: Exempt) -> Self {
        self.state.exempt.push(exempt);
        self
    }

    /// Applies the first limit only to requests by a closure; see [`LimitBy::when`].
    pub fn when(self, applies: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.with_first(|first| first.when(applies))
    }

    /// Bans a key that the first limit refuses too often; see [`LimitBy::ban_after`].
    pub fn ban_after(self, refusals: u64, window: Duration) -> BanAfter<Self> {
        BanAfter::new(refusals, window, self, |layer, rule| {
            let first = layer.first.with_bans(&rule)?;
            Ok(LayerBuilder { first, ..layer })
        })
    }

    /// Settles the cost of a request by its response: the bytes of its body, or the tokens of a
    /// model.
    ///
    /// The request takes the tokens of [`cost`](LayerBuilder::cost) as an estimate. A lower
    /// [`Cost`] is refunded. A higher one is taken on credit, up to the bound on
    /// [debt](tollgate::Builder::max_debt), a burst by default: the next request of the key is
    /// refused until the debt is earned, and is told the time. A window has no debt: it takes the
    /// tokens that are left, and gives none back once the window of the request has ended.
    ///
    /// A request costs its estimate if it is dropped before its response, or if the inner service
    /// fails. The closure sees the responses whose status does not refund the tokens by
    /// [`refund_on`](LayerBuilder::refund_on). The tokens are settled with the bucket that the
    /// key has then.
    ///
    /// # Examples
    ///
    /// A megabyte a second of bodies, and a kilobyte at the least for each request:
    ///
    /// ```
    /// use tollgate_http::ClientIp;
    /// use tollgate_http::{Cost, RateLimitLayer};
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let quota = Quota::per_second(1_000_000).burst(20_000_000);
    /// let layer = RateLimitLayer::builder(RateLimiter::new(quota))
    ///     .key(ClientIp::peer())
    ///     .settle_on(|_| Cost::bytes().at_least(1_000))
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn settle_on(mut self, cost: impl Fn(ResponseHead<'_>) -> Cost + Send + Sync + 'static) -> Self {
        self.state.settle_on = Some(Arc::new(cost));
        self
    }

    /// Notes in a request that it is over a limit and passed on, for the upstream.
    ///
    /// A limit passes it on in shadow mode, or since its key is not enforced. The header is
    /// `x-ratelimit-exceeded: 1`. A client's own header of this name is removed from each request.
    pub fn tell_upstream(mut self) -> Self {
        self.state.forwards_headers = true;
        self
    }

    /// Lets scripts of other origins read the fields that report the limits.
    ///
    /// Responses to requests with an `Origin` name the fields in `Access-Control-Expose-Headers`
    /// (<https://fetch.spec.whatwg.org/#http-access-control-expose-headers>).
    pub fn expose_headers(mut self) -> Self {
        self.state.exposes = true;
        self
    }

    /// Enforces the refusals of the layer for `percent` hundredths of the first limit's keys.
    ///
    /// They are always the same keys. 100 and above is all keys, the default. `enforce(0)` is
    /// shadow mode, a dry run: each request is passed on, and no headers are added. A request
    /// within its limits takes tokens as usual. A request over a limit takes none, and
    /// counts as `shadow_refused`. A request that would be rejected for want of a key takes none,
    /// and counts as `skipped`.
    ///
    /// Between 0 and 100, the keys that are not enforced are in shadow mode.
    pub fn enforce(mut self, percent: u8) -> Self {
        self.state.enforced = Share::of_percent(percent);
        self
    }

    /// Gives the tokens back if a closure accepts the response's status, as of a successful login.
    ///
    /// The tokens stay taken until then, so concurrent requests may be refused that would be
    /// granted one after the other. A request that is dropped, or ends in an error of the inner
    /// service, gives nothing back, and nor does one whose window has ended.
    pub fn refund_on(mut self, refund: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.state.refund_on = Some(Arc::new(refund));
        self
    }

    /// Turns off the report of a fault of the setup. May be called for several faults.
    ///
    /// # Examples
    ///
    /// Clients in the same private network, some of which send `X-Forwarded-For`:
    ///
    /// ```
    /// use tollgate_http::{Check, ClientIp};
    /// use tollgate_http::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let layer = RateLimitLayer::builder(RateLimiter::new(Quota::per_second(100)))
    ///     .key(ClientIp::peer())
    ///     .silence(Check::PeerIsProxy)
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn silence(self, check: Check) -> Self {
        self.state.reported.mark(check);
        self
    }

    /// Sets the headers of responses; by default [`Headers::Ietf`].
    pub fn headers(self, form: Headers) -> Self {
        self.with_policy(|policy| policy.form(form))
    }

    /// Reports the remaining tokens of any limit only below `percent` hundredths of its `q`.
    ///
    /// See [`Policy::only_below`].
    pub fn only_below(self, percent: u8) -> Self {
        self.with_policy(|policy| policy.only_below(percent))
    }

    /// Adds up to `most` to the waits that refusals of all limits state: by default nothing.
    ///
    /// See [`Policy::spread_retries`].
    pub fn spread_retries(self, most: Duration) -> Self {
        self.with_policy(|policy| policy.spread_retries(most))
    }

    fn with_policy(self, set: impl FnOnce(Policy) -> Policy) -> Self {
        self.with_first(|first| first.with_policy(set))
    }

    /// Calls a hook with each decision, before the request is passed on or refused.
    ///
    /// Called again, this adds another hook.
    pub fn on_decision(self, hook: impl Fn(Head<'_>, &Decision) + Send + Sync + 'static) -> Self {
        self.with_hook(move |head, decision, _, _| hook(head, decision))
    }

    pub(super) fn with_first(self, set: impl FnOnce(LimitBy<K>) -> LimitBy<K>) -> Self {
        LayerBuilder { first: set(self.first), ..self }
    }

    pub(super) fn with_hook(
        mut self,
        hook: impl Fn(Head<'_>, &Decision, &Policy, Ban) + Send + Sync + 'static,
    ) -> Self {
        self.state.hooks.push(Box::new(hook));
        self
    }

    /// Makes the responses to refused requests by a closure. By default they are empty.
    ///
    /// The body is a [`RefusalBody`]: bytes, a text, or a whole body of a framework. So in axum the
    /// closure may return `(StatusCode::TOO_MANY_REQUESTS, Json(value)).into_response()`. A body
    /// that fails, or whose bytes are not all there at once, makes the response [`Bare`].
    ///
    /// The headers that report the limit are added, and `Cache-Control: no-store` to a response
    /// without a `Cache-Control`. For gRPC the closure begins with
    /// [`grpc_response`](Refusal::grpc_response).
    ///
    /// # Examples
    ///
    /// A text, and the body of a framework:
    ///
    /// ```
    /// use http::Response;
    /// use http::header::CONTENT_TYPE;
    /// use http_body_util::Full;
    /// use tollgate_http::{Refusal, RateLimitLayer};
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limit = || RateLimitLayer::builder(RateLimiter::<()>::new(Quota::per_second(1))).shared();
    /// let layer = limit().reject_with(|refusal| refusal.response("Come back later.\n")).build();
    /// # let _ = layer;
    ///
    /// fn json(refusal: &Refusal<'_>) -> Response<Full<bytes::Bytes>> {
    ///     let text = format!(r#"{{"limit":"{}"}}"#, refusal.policy().rule());
    ///     let mut response = refusal.response(Full::from(text));
    ///     response.headers_mut().insert(CONTENT_TYPE, "application/json".parse().unwrap());
    ///     response
    /// }
    /// let layer = limit().reject_with(json).build();
    /// # let _ = layer;
    /// ```
    pub fn reject_with<T: RefusalBody<Form>, Form>(
        self,
        respond: impl Fn(&Refusal<'_>) -> Response<T> + Send + Sync + 'static,
    ) -> Self {
        self.reject_as(move |refusal: &Refusal<'_>| {
            let (head, body) = respond(refusal).into_parts();
            match body.into_bytes() {
                Some(bytes) => Response::from_parts(head, bytes),
                None => Bare.reject(refusal),
            }
        })
    }

    /// Makes the responses to refused requests by a [`Reject`], such as a
    /// [`Problem`](crate::Problem).
    pub fn reject_as(mut self, reject: impl Reject<Bytes> + 'static) -> Self {
        self.state.reject = Some(Box::new(reject));
        self
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> From<LimitBy<K>> for LayerBuilder<K> {
    fn from(first: LimitBy<K>) -> LayerBuilder<K> {
        let state = LayerState {
            limits: Box::default(),
            decide_at_once: decide_at_once::<K>,
            ids: Vec::new().into(),
            cost: None,
            exempt: Vec::new(),
            hooks: Vec::new(),
            refund_on: None,
            settle_on: None,
            searches: false,
            asks: false,
            bans: false,
            shadows: false,
            forwards_headers: false,
            exposes: false,
            enforced: Share::ALL,
            reject: None,
            counters: Default::default(),
            reported: Reported::default(),
        };
        LayerBuilder { first, others: Vec::new(), state }
    }
}

impl<K> fmt::Debug for LayerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBuilder").field("policy", &self.first.policy).finish_non_exhaustive()
    }
}
