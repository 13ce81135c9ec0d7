//! The limits: one for everything, and one for each route of the file, behind a layer each.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http_body_util::{Either, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};
use tollgate::http::{ClientIp, Digest, Head, HeaderKey, KeyFrom, Refusal};
use tollgate::tower::{Decision, LayerStats, RateLimitLayer};
use tollgate::{InvalidQuota, Quota, RateLimiter};
use tower_layer::Layer;
use tower_service::Service;

use crate::routes::{Entry, is_under, plain};
use crate::upstream::Body;

/// How far up a limit may go while it is in use, in rate and burst: a bucket's word is laid out for it.
const HEADROOM: [u64; 3] = [16, 4, 2];

/// Who is limited. A value of a header that looks like an address is not that address: the types differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Address(IpAddr),
    Header(Digest),
}

/// An address as it is, a value as the beginning of its digest: it may be a secret.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Address(address) => address.fmt(f),
            Key::Header(digest) => write!(f, "#{:.12}", digest.to_string()),
        }
    }
}

/// Who asks, and since when.
#[derive(Clone, Copy)]
struct Asked {
    peer: IpAddr,
    at: Instant,
}

/// The peer's address, which [`Limits::send`] tells.
pub(crate) fn peer() -> ClientIp {
    ClientIp::peer_from(|asked: &Asked| asked.peer)
}

/// What all limits have in common.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) client: ClientIp,
    pub(crate) header: Option<HeaderKey>,
    /// Refuse nobody.
    pub(crate) shadow: bool,
}

impl Setup {
    /// The header's value if it is there just once, else the address.
    fn key(&self, head: Head<'_>) -> Option<Key> {
        let by_header = self.header.as_ref().and_then(|header| header.key_from(head)).map(Key::Header);
        by_header.or_else(|| self.client.key_from(head).map(Key::Address))
    }
}

/// Sums over all limits, of those that are gone as well. For people to read: nothing is concluded from one about another.
#[derive(Default)]
pub(crate) struct Tally {
    granted: AtomicU64,
    refused: AtomicU64,
    nanos: AtomicU64,
}

impl Tally {
    fn note(&self, head: Head<'_>, decision: &Decision) {
        let time = head.extensions.get().map_or(Duration::ZERO, |asked: &Asked| asked.at.elapsed());
        // No decision takes half a millennium.
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        let sum = if decision.result().is_ok() { &self.granted } else { &self.refused };
        sum.fetch_add(1, Relaxed);
    }
}

/// What a [`Tally`] had come to. In shadow mode `refused` is what would have been.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sums {
    pub(crate) granted: u64,
    pub(crate) refused: u64,
    nanos: u64,
}

impl Sums {
    pub(crate) fn since(self, before: Sums) -> Sums {
        Sums {
            granted: self.granted - before.granted,
            refused: self.refused - before.refused,
            nanos: self.nanos - before.nanos,
        }
    }

    /// The mean nanoseconds of a decision. `None` without any.
    pub(crate) fn mean_nanos(self) -> Option<u64> {
        self.nanos.checked_div(self.granted + self.refused)
    }
}

/// One quota, with the keys' buckets.
pub(crate) struct Limit {
    pub(crate) name: String,
    /// What a request costs. Read at each, so that another cost needs no other layer, and counts go on.
    cost: Arc<AtomicU64>,
    limiter: Arc<RateLimiter<Key>>,
    layer: RateLimitLayer<Key>,
    /// The most that there is room for.
    pub(crate) most: Quota,
}

impl Limit {
    fn new(name: &str, quota: Quota, cost: u64, setup: &Setup, tally: &Arc<Tally>) -> Limit {
        let (limiter, most) = with_headroom(quota);
        let limiter = Arc::new(limiter);
        let cost = Arc::new(AtomicU64::new(cost));
        let (costs, keys, tally) = (cost.clone(), setup.clone(), tally.clone());
        let layer = RateLimitLayer::builder(limiter.clone())
            .key(move |head: Head<'_>| keys.key(head))
            .name(name)
            .expect("it was checked when the file was read")
            .cost(move |_| costs.load(Relaxed))
            .shadow(setup.shadow)
            .on_decision(move |head: Head<'_>, decision: &Decision| tally.note(head, decision))
            .reject_with(refuse)
            .build();
        Limit { name: name.to_owned(), cost, limiter, layer, most }
    }

    pub(crate) fn quota(&self) -> Quota {
        self.limiter.quota()
    }

    /// Changes the quota of all keys. Tokens in hand are kept.
    pub(crate) fn set_quota(&self, quota: Quota) -> Result<(), InvalidQuota> {
        self.limiter.set_quota(quota)
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost.load(Relaxed)
    }

    pub(crate) fn stats(&self) -> LayerStats {
        self.layer.stats()
    }

    /// Up to `n` keys that were refused most, with how often, and what is left to each.
    pub(crate) fn top_refused(&self, n: usize) -> impl Iterator<Item = (Key, u64, u64)> {
        let top = self.layer.top_refused(n).into_iter();
        top.map(|(key, refused)| (key, refused, self.limiter.peek(&key).remaining()))
    }
}

fn with_headroom(quota: Quota) -> (RateLimiter<Key>, Quota) {
    let larger = |times: &u64| {
        let tokens = quota.tokens().checked_mul(*times)?;
        Quota::try_per(tokens, quota.period(), quota.capacity().checked_mul(*times)?).ok()
    };
    let fits = |most| Some((RateLimiter::builder(quota).headroom(most).ok()?.build(), most));
    let with = HEADROOM.iter().filter_map(larger).find_map(fits);
    with.unwrap_or_else(|| (RateLimiter::new(quota), quota))
}

/// One line; the headers that tell of the limit are added to it.
fn refuse(refusal: &Refusal<'_>) -> Response<String> {
    refusal.grpc_response(String::new).unwrap_or_else(|| {
        let quota = refusal.policy().quota();
        let line = match refusal.retry_after() {
            Some(wait) => {
                format!("Too many requests: the limit is {quota}; try again in {} s.\n", wait.as_secs())
            }
            None => format!("Too many requests: the limit is {quota}, and this one is over its burst.\n"),
        };
        let mut response = refusal.response(line);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    })
}

/// A limit for requests whose path is the prefix, or under it.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) prefix: String,
    pub(crate) limit: Arc<Limit>,
}

/// All limits.
pub(crate) struct Limits {
    setup: Setup,
    tally: Arc<Tally>,
    /// For requests that are under no route.
    pub(crate) everywhere_else: Option<Limit>,
    /// Longest prefix first.
    routes: RwLock<Arc<[Route]>>,
}

impl Limits {
    pub(crate) fn new(quota: Option<Quota>, setup: Setup) -> Limits {
        let tally = Arc::default();
        let limit = |quota| Limit::new("default", quota, 1, &setup, &tally);
        let everywhere_else = quota.map(limit);
        Limits { setup, tally, everywhere_else, routes: RwLock::default() }
    }

    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    pub(crate) fn routes(&self) -> Arc<[Route]> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The limit for everything else, and those of the routes.
    pub(crate) fn with_all<T>(&self, read: impl FnMut(&Limit) -> T) -> Vec<T> {
        let routes = self.routes();
        self.everywhere_else.iter().chain(routes.iter().map(|route| &*route.limit)).map(read).collect()
    }

    pub(crate) fn sums(&self) -> Sums {
        let Tally { granted, refused, nanos } = &*self.tally;
        Sums { granted: granted.load(Relaxed), refused: refused.load(Relaxed), nanos: nanos.load(Relaxed) }
    }

    /// Puts what the file says in place of the routes there are. A route that stays, by its name, keeps its buckets and its
    /// counts. Says what has changed, a line each.
    pub(crate) fn set_routes(&self, entries: Vec<Entry>) -> Vec<String> {
        let before = self.routes();
        let mut said = Vec::new();
        let mut routes = Vec::new();
        for Entry { name, prefix, quota, cost } in entries {
            let known = before.iter().find(|route| route.limit.name == name).map(|route| &route.limit);
            let anew = || Arc::new(Limit::new(&name, quota, cost, &self.setup, &self.tally));
            let limit = match known {
                None => {
                    said.push(format!("route {name}: {quota}, new"));
                    anew()
                }
                Some(limit) if limit.quota() == quota => limit.clone(),
                Some(limit) => match limit.set_quota(quota) {
                    Ok(()) => {
                        said.push(format!("route {name}: {quota}, tokens are kept"));
                        limit.clone()
                    }
                    Err(why) => {
                        said.push(format!("route {name}: {quota}, all buckets anew, since {why}"));
                        anew()
                    }
                },
            };
            limit.cost.store(cost, Relaxed);
            routes.push(Route { prefix, limit });
        }
        let gone = before.iter().filter(|old| routes.iter().all(|route| route.limit.name != old.limit.name));
        said.extend(gone.map(|route| format!("route {}: gone", route.limit.name)));
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = routes.into();
        said
    }

    /// Passes a request to `forward` if its limit allows.
    pub(crate) async fn send<A, F>(
        &self,
        peer: IpAddr,
        mut request: Request<A>,
        forward: impl Fn(Request<A>) -> F + Clone,
    ) -> Response<Body>
    where
        F: Future<Output = Response<Body>>,
    {
        let routes = self.routes();
        let route = (!routes.is_empty()).then(|| plain(request.uri().path())).and_then(|path| {
            routes.iter().find(|route| is_under(&path, &route.prefix)).map(|route| &*route.limit)
        });
        let Some(limit) = route.or(self.everywhere_else.as_ref()) else { return forward(request).await };
        request.extensions_mut().insert(Asked { peer, at: Instant::now() });
        let answer = limit.layer.layer(Passed(forward)).call(request);
        let Ok(response) = answer.await;
        response.map(|body| body.into_inner_or_else(|line| Either::Right(Full::new(line))))
    }
}

/// The service behind a limit.
#[derive(Clone)]
struct Passed<F>(F);

impl<A, F, T> Service<Request<A>> for Passed<F>
where
    F: Fn(Request<A>) -> T,
    T: Future<Output = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = futures_util::future::Map<T, fn(Response<Body>) -> Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        futures_util::FutureExt::map((self.0)(request), Ok)
    }
}
