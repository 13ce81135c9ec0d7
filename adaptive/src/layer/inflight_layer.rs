//! The layer of requests in flight, and its builder.

use std::fmt;
use std::sync::Arc;

use http::Response;
use tower_layer::Layer;

use super::service::LimitInflight;
use super::state::{Admission, Admitted, InflightState, Until};
use super::stats::InflightLayerStats;
use super::unavailable::Unavailable;
use crate::count::priority::Priority;
use crate::gate::inflight::Inflight;
use crate::gate::overloaded::Overloaded;
use crate::signals::outcome::Outcome;
use tollgate::Quota;
use tollgate_http::{Exempt, Head, InvalidName, Policy, RefusalBody, ResponseHead};

/// A layer that limits the requests in flight by an [`Inflight`].
///
/// A request takes a place when the service is called, or is refused at once: 503 with
/// `Retry-After: 1`, or `UNAVAILABLE` for gRPC. The response's future holds the place until the
/// head of the response, or [until the body ends](InflightLayerBuilder::until). A future that is
/// dropped, or whose inner service panics, leaves. A refused request does not reach the inner
/// service.
///
/// A clone is the same layer, with the same counts. Layers may share an `Inflight`, each with
/// counts of its own.
///
/// # Where it goes
///
/// ```text
/// client -> RateLimitLayer -> InflightLayer -> timeout -> client of an upstream
///           429: its share    503: no place
/// ```
///
/// * Inside a [`RateLimitLayer`](tollgate_http::RateLimitLayer): a request over its quota takes
///   no place, and is no sample.
/// * One `Inflight` for each upstream: a slow upstream does not fill the limit of the others.
/// * Outside of a timeout, which should be longer than twice the target. A request that times out
///   then counts as overloaded.
/// * Inside retries and hedges: each try takes a place.
/// * [Skip](InflightLayerBuilder::skip) health checks, long polls and WebSockets: else they hold a
///   place for as long as they last, and their latency says nothing.
///
/// # Readiness
///
/// `poll_ready` is always ready, as that of a [`RateLimit`](tollgate_http::RateLimit). An
/// admitted request polls the inner service for readiness in its future, while it holds its place.
/// Otherwise a refusal would keep a permit of a `ConcurrencyLimit`, or a slot of a `Buffer`. And
/// requests in front of a busy service would wait without a bound, uncounted. So the inner service
/// must be `Clone`, and a wait for its readiness is a part of the latency.
///
/// # tonic
///
/// ```ignore
/// // A server. A refusal is `UNAVAILABLE` with the time to wait.
/// let layer = InflightLayer::new(Inflight::adaptive(Duration::from_millis(300), 1_000).build()?);
/// Server::builder().layer(layer).add_service(greeter).serve(address).await?;
///
/// // A client, with a limit for its upstream.
/// let channel = ServiceBuilder::new().layer(layer_of_upstream).service(channel);
/// let client = GreeterClient::new(channel);
/// ```
///
/// # Examples
///
/// ```
/// use http::{Request, Response};
/// use tollgate_adaptive::InflightLayer;
/// use tollgate_adaptive::{Inflight, Priority};
/// # use std::future::{Ready, ready};
/// # use std::task::{Context, Poll};
/// # #[derive(Clone)]
/// # struct Hello;
/// # impl tower_service::Service<Request<()>> for Hello {
/// #     type Response = Response<String>;
/// #     type Error = std::convert::Infallible;
/// #     type Future = Ready<Result<Response<String>, Self::Error>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> { Poll::Ready(Ok(())) }
/// #     fn call(&mut self, _: Request<()>) -> Self::Future { ready(Ok(Response::new("hello".to_owned()))) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// let layer = InflightLayer::builder(Inflight::fixed(1))
///     .priority(|head| match head.uri.path() {
///         "/pay" => Priority::Critical,
///         _ => Priority::Default,
///     })
///     .build();
/// let mut service = layer.layer(Hello);
///
/// // It is in flight, and not polled yet.
/// let first = service.call(Request::new(()));
/// let refused = service.call(Request::new(())).await.unwrap();
/// assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &1.into()));
/// assert_eq!(first.await.unwrap().status(), 200);
/// assert_eq!(service.call(Request::new(())).await.unwrap().status(), 200);
/// # }
/// ```
#[derive(Clone)]
pub struct InflightLayer {
    state: Arc<InflightState>,
}

impl InflightLayer {
    /// Creates a layer without options.
    pub fn new(inflight: impl Into<Arc<Inflight>>) -> InflightLayer {
        InflightLayer::builder(inflight).build()
    }

    /// Begins a layer on a limit, which may be shared in an `Arc`.
    pub fn builder(inflight: impl Into<Arc<Inflight>>) -> InflightLayerBuilder {
        let state = InflightState {
            inflight: inflight.into(),
            name: "default".to_owned(),
            priority: None,
            classify: None,
            on_error: Outcome::Overloaded,
            until: Until::Head,
            exempt: Vec::new(),
            reject: None,
            counters: Arc::default(),
        };
        InflightLayerBuilder { state }
    }

    /// Returns the limit.
    #[must_use]
    pub fn inflight(&self) -> &Arc<Inflight> {
        &self.state.inflight
    }

    /// Decides on a request by its head, without a service: for a framework that is not of tower.
    ///
    /// It is the decision of the layer's service, with its options and its counts. Only
    /// [`until`](InflightLayerBuilder::until) and
    /// [`classify_errors`](InflightLayerBuilder::classify_errors) have no effect: the caller ends
    /// the request.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tollgate_adaptive::{Admission, Inflight, InflightLayer};
    ///
    /// let layer = InflightLayer::new(Inflight::fixed(1));
    /// let request = Request::new(());
    /// let Admission::Admitted(admitted) = layer.decide(&request) else { panic!("no place") };
    /// let Admission::Refused(refusal) = layer.decide(&request) else { panic!("two places") };
    /// assert_eq!((refusal.status().as_u16(), &refusal.headers()["retry-after"]), (503, &1.into()));
    /// // At the head of the response. The place is held until the end of its body.
    /// let flight = admitted.answer(&Response::new(()), true);
    /// assert_eq!(layer.stats().answered, 1);
    /// # drop(flight);
    /// ```
    pub fn decide<'a>(&self, head: impl Into<Head<'a>>) -> Admission {
        self.state.admit(head.into())
    }

    /// Takes a place for a request that no service of the layer carries, such as that of a proxy,
    /// and counts it.
    ///
    /// The other options of the layer do not apply.
    ///
    /// # Errors
    ///
    /// [`Overloaded`] if the share of the priority is used up.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_adaptive::InflightLayer;
    /// use tollgate_adaptive::{Inflight, Outcome, Priority};
    ///
    /// let layer = InflightLayer::new(Inflight::fixed(1));
    /// let admitted = layer.try_enter(Priority::Critical).unwrap();
    /// assert!(layer.try_enter(Priority::Critical).is_err());
    /// // At the head of the response. The place is held until the end of its body.
    /// let flight = admitted.end(Outcome::Answered, true);
    /// let stats = layer.stats();
    /// assert_eq!((stats.inflight.in_flight, stats.answered, stats.refused), (1, 1, 1));
    /// # drop(flight);
    /// ```
    pub fn try_enter(&self, priority: Priority) -> Result<Admitted, Overloaded> {
        self.state.enter(priority, priority)
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn stats(&self) -> InflightLayerStats {
        self.state.stats()
    }
}

impl<T> Layer<T> for InflightLayer {
    type Service = LimitInflight<T>;

    fn layer(&self, inner: T) -> LimitInflight<T> {
        LimitInflight { inner, state: self.state.clone() }
    }
}

impl fmt::Debug for InflightLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InflightState { name, inflight, .. } = &*self.state;
        f.debug_struct("InflightLayer")
            .field("name", name)
            .field("inflight", inflight)
            .finish_non_exhaustive()
    }
}

/// The builder of an [`InflightLayer`].
#[must_use = "a builder is no layer: `.build()` makes one"]
pub struct InflightLayerBuilder {
    state: InflightState,
}

impl InflightLayerBuilder {
    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> InflightLayer {
        InflightLayer { state: Arc::new(self.state) }
    }

    /// Names the layer in its statistics, such as by its upstream: `default` by default.
    ///
    /// # Errors
    ///
    /// `name` is not of 1 to 64 printable ASCII characters.
    pub fn name(mut self, name: &str) -> Result<Self, InvalidName> {
        // A policy has the same rule for names.
        self.state.name = Policy::new(name, Quota::per_second(1))?.name().to_owned();
        Ok(self)
    }

    /// Counts on from another layer, such as one whose limit this layer's replaces. Both have the
    /// same counts from then on.
    pub fn count_on(mut self, layer: &InflightLayer) -> Self {
        self.state.counters = layer.state.counters.clone();
        self
    }

    /// Sets the priorities of requests. Without this, each request may use all of the limit, and
    /// counts as [`Priority::Default`].
    ///
    /// As the requests in flight grow, those of lower priorities are refused first. Derive the
    /// priority from the route or the account: a client can write any header.
    pub fn priority(mut self, priority: impl Fn(Head<'_>) -> Priority + Send + Sync + 'static) -> Self {
        self.state.priority = Some(Box::new(priority));
        self
    }

    /// Sets the outcomes of responses: by default `Outcome::from` of the head.
    ///
    /// # Examples
    ///
    /// An upstream that says 420 where it is overloaded:
    ///
    /// ```
    /// use tollgate_adaptive::InflightLayer;
    /// use tollgate_adaptive::{Inflight, Outcome};
    ///
    /// let layer = InflightLayer::builder(Inflight::fixed(64))
    ///     .classify(|answer| match answer.status.as_u16() {
    ///         420 => Outcome::Overloaded,
    ///         _ => answer.into(),
    ///     })
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn classify(
        mut self,
        classify: impl Fn(ResponseHead<'_>) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        self.state.classify = Some(Box::new(classify));
        self
    }

    /// Sets the outcome of an error of the inner service: by default [`Outcome::Overloaded`], as
    /// for a timeout or a refused connection.
    pub fn classify_errors(mut self, outcome: Outcome) -> Self {
        self.state.on_error = outcome;
        self
    }

    /// Sets the end of a place: by default [`Until::Head`].
    pub fn until(mut self, until: Until) -> Self {
        self.state.until = until;
        self
    }

    /// Lets requests pass without a place, by a closure. They count as `skipped`.
    ///
    /// This is for long polls, WebSockets and health checks. A client chooses the path and the
    /// headers of its requests, so skip only requests that are cheap in any case.
    pub fn skip(self, skip: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.exempt(Exempt::when(skip))
    }

    /// Lets requests pass without a place, by a list. They count as `skipped`.
    ///
    /// A further call adds to the list.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_adaptive::Inflight;
    /// use tollgate_http::Exempt;
    /// use tollgate_adaptive::InflightLayer;
    ///
    /// let layer = InflightLayer::builder(Inflight::fixed(64))
    ///     .exempt(Exempt::paths(["/health", "/events/*"])?)
    ///     .build();
    /// # assert_eq!(layer.stats().skipped, 0);
    /// # Ok::<(), tollgate_http::InvalidPath>(())
    /// ```
    pub fn exempt(mut self, exempt: Exempt) -> Self {
        self.state.exempt.push(exempt);
        self
    }

    /// Makes the responses to refused requests by a closure: by default an empty 503, or
    /// `UNAVAILABLE` for gRPC.
    ///
    /// The body is a [`RefusalBody`]: bytes, a text, or a whole body of a framework, such as that
    /// of axum's `Json`. A response whose body is not whole is replaced by the default. A
    /// `Retry-After: 1` is added to a response without one, unless the request is gRPC, and
    /// `Cache-Control: no-store` to one without a `Cache-Control`. For gRPC, use
    /// [`grpc_response`](Unavailable::grpc_response), as [`problem`](Unavailable::problem) does.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_adaptive::Inflight;
    /// use tollgate_adaptive::InflightLayer;
    ///
    /// let layer = InflightLayer::builder(Inflight::fixed(64))
    ///     .reject_with(|refusal| refusal.response(format!("{}\n", refusal.overloaded())))
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn reject_with<T: RefusalBody<Form>, Form>(
        mut self,
        respond: impl Fn(&Unavailable<'_>) -> Response<T> + Send + Sync + 'static,
    ) -> Self {
        self.state.reject = Some(Box::new(move |refusal| {
            let (head, body) = respond(refusal).into_parts();
            body.into_bytes().map_or_else(|| refusal.bare(), |bytes| Response::from_parts(head, bytes))
        }));
        self
    }
}

impl fmt::Debug for InflightLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InflightLayerBuilder").field("name", &self.state.name).finish_non_exhaustive()
    }
}
