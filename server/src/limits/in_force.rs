//! The limits: one for everything, and one for each route, behind a layer each.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};
use tollgate::http::{ClientIpStats, Exempt, Head, Refusal};
use tollgate::tower::{Decision, LayerStats, RateLimitLayer};
use tollgate::{Priority, Rule};
use tollgate_distributed::DistributedStats;
use tower::{Layer, Service};

use super::keys::{Client, Key, Keys};
use super::limiter::Limiter;
use super::past::Past;
use super::prefixes::Prefixes;
use super::store::{Fleet, give_back};
use super::tally::Tally;
use crate::config::settings::{Exemptions, Route, Settings};
use crate::counters::{Counters, Event};

/// The key of a request, and when its decision began.
#[derive(Clone, Copy)]
struct Asked {
    key: Key,
    at: Instant,
    exempt: bool,
}

/// One rule, with the keys' buckets or windows.
pub(crate) struct Limit {
    pub(crate) name: String,
    /// Tokens of a request. Read at each, so that another cost needs no other layer.
    cost: Arc<AtomicU64>,
    limiter: Limiter,
    /// The buckets that a reload has replaced by these.
    past: Arc<Past>,
    layer: RateLimitLayer<Key>,
    pub(crate) shadow: bool,
}

impl Limit {
    fn over(
        limiter: Limiter,
        past: Arc<Past>,
        name: &str,
        cost: u64,
        shadow: bool,
        tally: &Arc<Tally>,
    ) -> Limit {
        let cost = Arc::new(AtomicU64::new(cost));
        let (costs, tally) = (cost.clone(), tally.clone());
        let layer = RateLimitLayer::builder(limiter.any())
            .key(|head: Head<'_>| head.extensions.get().map(|asked: &Asked| asked.key))
            .name(name)
            .expect("it was checked when the file was read")
            .cost(move |_| costs.load(Relaxed))
            .exempt(Exempt::when(|head| head.extensions.get().is_some_and(|asked: &Asked| asked.exempt)))
            .shadow(shadow)
            .on_decision(move |head: Head<'_>, decision: &Decision| {
                let asked = head.extensions.get().map(|asked: &Asked| asked.at);
                tally.note(decision, asked.map_or(Duration::ZERO, |at| at.elapsed()));
            })
            .reject_with(refuse)
            .build();
        Limit { name: name.to_owned(), cost, limiter, past, layer, shadow }
    }

    /// The same buckets, where refusals are only counted, or no longer so. Its own counts begin
    /// anew.
    fn with_shadow(&self, shadow: bool, tally: &Arc<Tally>) -> Limit {
        Limit::over(self.limiter.clone(), self.past.clone(), &self.name, self.cost(), shadow, tally)
    }

    pub(crate) fn rule(&self) -> Rule {
        self.limiter.rule()
    }

    /// The largest rule that there is room for.
    pub(crate) fn most(&self) -> Rule {
        self.limiter.most()
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost.load(Relaxed)
    }

    pub(crate) fn stats(&self) -> LayerStats {
        self.layer.stats()
    }

    /// The counts of the limiter that a fleet shares, if it is one.
    pub(crate) fn shared_stats(&self) -> Option<DistributedStats> {
        self.limiter.shared().map(|limiter| limiter.stats())
    }

    /// Up to `n` keys that were refused most, with how often, and the tokens left to each.
    pub(crate) fn top_refused(&self, n: usize) -> impl Iterator<Item = (Key, u64, u64)> {
        let top = self.layer.top_refused(n).into_iter();
        top.map(|(key, refused)| (key, refused, self.limiter.left(&key)))
    }
}

/// One line; the headers that tell of the limit are added to it.
fn refuse(refusal: &Refusal<'_>) -> Response<Bytes> {
    refusal.grpc_response().unwrap_or_else(|| {
        let rule = refusal.policy().rule();
        let line = match refusal.retry_after() {
            Some(wait) if refusal.is_unavailable() => {
                format!("The limit of {rule} is not available; try again in {} s.\n", wait.as_secs())
            }
            Some(wait) => {
                format!("Too many requests: the limit is {rule}; try again in {} s.\n", wait.as_secs())
            }
            None => format!("Too many requests: the limit is {rule}, and this one is over its burst.\n"),
        };
        let mut response = refusal.response(line.into());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    })
}

/// A limit for requests whose path is the prefix, or under it.
pub(crate) struct Routed {
    pub(crate) prefix: String,
    pub(crate) limit: Arc<Limit>,
    priority: Priority,
}

/// The limits in force.
pub(crate) struct InForce {
    keys: Keys,
    exempt: Exemptions,
    tally: Arc<Tally>,
    prefixes: Prefixes,
    /// The store of the limits, if a fleet shares them.
    pub(crate) fleet: Option<Fleet>,
    /// The most keys of each limit, if there is a number.
    most_keys: Option<usize>,
    /// For requests that are under no route.
    pub(crate) everywhere_else: Option<Arc<Limit>>,
    pub(crate) routes: Vec<Routed>,
    pub(crate) shadow: bool,
}

impl InForce {
    /// The limit for everything else, and those of the routes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Limit> {
        let routes = self.routes.iter().map(|route| &*route.limit);
        self.everywhere_else.iter().map(|limit| &**limit).chain(routes)
    }

    /// The addresses of clients as the forwarding headers had them.
    pub(crate) fn client_stats(&self) -> ClientIpStats {
        self.keys.stats()
    }

    /// Returns the limit of a path, and the priority of its requests.
    fn limit_of(&self, path: &str) -> (Option<&Limit>, Priority) {
        let route = if self.routes.is_empty() { None } else { self.prefixes.find(path) };
        match route.map(|route| &self.routes[route]) {
            Some(route) => (Some(&route.limit), route.priority),
            None => (self.everywhere_else.as_deref(), Priority::Critical),
        }
    }
}

/// A limit as new settings have it.
struct Change<'a> {
    name: &'a str,
    rule: Rule,
    cost: u64,
    shadow: bool,
    most_keys: Option<usize>,
    /// Whether the number of keys is another one than before.
    has_other_room: bool,
    fleet: Option<&'a Fleet>,
    buckets: Buckets,
}

/// The buckets under new settings.
#[derive(Clone, Copy)]
enum Buckets {
    /// Those of before, in the store or in this process.
    Stay,
    /// Those of before, and the store is used in another way.
    StayInStore,
    Elsewhere,
}

impl Buckets {
    fn of(before: Option<&Fleet>, after: Option<&Fleet>) -> Buckets {
        match (before, after) {
            _ if before == after => Buckets::Stay,
            (Some(before), Some(after)) if before.has_buckets_of(after) => Buckets::StayInStore,
            _ => Buckets::Elsewhere,
        }
    }
}

/// All limits, which can be replaced while requests are decided.
pub(crate) struct Limits {
    tally: Arc<Tally>,
    counters: Arc<Counters>,
    in_force: RwLock<Arc<InForce>>,
    /// Held by a change.
    changing: Mutex<()>,
}

impl Limits {
    pub(crate) fn new(
        settings: &Settings,
        fleet: Option<Fleet>,
        counters: Arc<Counters>,
    ) -> Result<Limits, String> {
        let tally = Arc::<Tally>::default();
        let nothing = InForce {
            keys: Keys::new(settings),
            exempt: Exemptions::default(),
            tally: tally.clone(),
            prefixes: Prefixes::new(&[], None, true),
            fleet: None,
            most_keys: None,
            everywhere_else: None,
            routes: Vec::new(),
            shadow: settings.shadow,
        };
        let in_force = RwLock::new(Arc::new(nothing));
        let limits = Limits { tally, counters, in_force, changing: Mutex::default() };
        limits.put_in_force(settings, fleet)?;
        Ok(limits)
    }

    pub(crate) fn in_force(&self) -> Arc<InForce> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Changes the rule for everything else, of all keys at once. They keep the tokens they have.
    /// `None`: there is no such limit.
    pub(crate) fn set_rule(&self, rule: Rule) -> Option<Result<(), String>> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.in_force().everywhere_else.clone()?;
        let outcome = limit.limiter.set_rule(rule);
        if outcome.is_ok() {
            self.counters.add(Event::LimitChanged);
        }
        Some(outcome)
    }

    /// Puts the limits of these settings in force. A limit that stays, by its name and its store,
    /// keeps its buckets and its counts. Says each change in a line.
    pub(crate) fn replace(&self, settings: &Settings, fleet: Option<Fleet>) -> Result<Vec<String>, String> {
        let said = self.put_in_force(settings, fleet)?;
        said.iter().for_each(|_| self.counters.add(Event::LimitChanged));
        Ok(said)
    }

    /// Gives the tokens of all leases back to the store.
    pub(crate) async fn give_back(&self) {
        let in_force = self.in_force();
        give_back(in_force.all().filter_map(|limit| limit.limiter.shared()).cloned()).await;
    }

    fn put_in_force(&self, settings: &Settings, fleet: Option<Fleet>) -> Result<Vec<String>, String> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.in_force();
        let (mut said, shadow) = (Vec::new(), settings.shadow);
        let most_keys = settings.bounds.keys_per_limit;
        let has_other_room = fleet.is_none() && most_keys != before.most_keys;
        let buckets = Buckets::of(before.fleet.as_ref(), fleet.as_ref());
        let mut limit = |known: Option<&Arc<Limit>>, name, rule, cost| {
            let change = Change {
                name,
                rule,
                cost,
                shadow,
                most_keys,
                has_other_room,
                fleet: fleet.as_ref(),
                buckets,
            };
            self.limit(known, change, &mut said)
        };
        let known = before.everywhere_else.as_ref();
        let everywhere_else = settings.limit.map(|rule| limit(known, "default", rule, 1)).transpose()?;
        let mut routes = Vec::new();
        for Route { name, prefix, rule, cost, priority } in &settings.routes {
            let known = before.routes.iter().find(|route| route.limit.name == *name);
            let limit = limit(known.map(|route| &route.limit), name, *rule, *cost)?;
            routes.push(Routed { prefix: prefix.clone(), limit, priority: *priority });
        }
        for old in &before.routes {
            if routes.iter().all(|route| route.limit.name != old.limit.name) {
                said.push(format!("limit {}: gone", old.limit.name));
            }
        }
        let in_force = InForce {
            keys: Keys::new(settings),
            exempt: settings.exempt.clone(),
            tally: self.tally.clone(),
            prefixes: Prefixes::new(&settings.routes, settings.limit, settings.case_sensitive),
            fleet,
            most_keys: settings.bounds.keys_per_limit,
            everywhere_else,
            routes,
            shadow,
        };
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(in_force);
        Ok(said)
    }

    fn limit(
        &self,
        known: Option<&Arc<Limit>>,
        change: Change<'_>,
        said: &mut Vec<String>,
    ) -> Result<Arc<Limit>, String> {
        let Change { name, rule, cost, shadow, most_keys, has_other_room, fleet, buckets } = change;
        let after = |past| -> Result<Arc<Limit>, String> {
            let limiter = Limiter::new(name, rule, most_keys, fleet)?;
            Ok(Arc::new(Limit::over(limiter, past, name, cost, shadow, &self.tally)))
        };
        let anew = || after(Past::none());
        let (limit, fate) = match (known, buckets) {
            (None, _) => (anew()?, "new".to_owned()),
            (Some(_), Buckets::Elsewhere) => {
                (anew()?, "all buckets anew, since they are elsewhere".to_owned())
            }
            (Some(_), Buckets::StayInStore) => (anew()?, "tokens are kept in the store".to_owned()),
            (Some(limit), Buckets::Stay) if limit.rule() == rule && !has_other_room => {
                (limit.clone(), String::new())
            }
            (Some(limit), Buckets::Stay) => match limit.limiter.set_rule(rule) {
                Ok(()) if has_other_room => {
                    let past = Past::of(limit.limiter.clone(), limit.past.clone());
                    (after(past)?, "tokens are carried over to other buckets".to_owned())
                }
                Ok(()) => (limit.clone(), "tokens are kept".to_owned()),
                Err(why) if fleet.is_some() => (anew()?, format!("all buckets anew, since {why}")),
                Err(why) => {
                    let past = Past::of(limit.limiter.clone(), limit.past.clone());
                    (after(past)?, format!("tokens are carried over to other buckets, since {why}"))
                }
            },
        };
        if !fate.is_empty() {
            said.push(format!("limit {name}: {rule}, {fate}"));
        }
        limit.cost.store(cost, Relaxed);
        let limit =
            if limit.shadow == shadow { limit } else { Arc::new(limit.with_shadow(shadow, &self.tally)) };
        Ok(limit)
    }

    /// Finds the client of a request.
    pub(crate) fn ask(&self, peer: IpAddr, request: &mut Request<Incoming>) -> Asking {
        let (at, in_force) = (Instant::now(), self.in_force());
        request.extensions_mut().insert(peer);
        let head = Head::from(&*request);
        let client = in_force.keys.client(peer, head);
        let exempt = in_force.exempt.applies(client.address, head);
        Asking { in_force, client, at, exempt }
    }
}

/// A request whose client is known, and whose limit is not yet asked.
pub(crate) struct Asking {
    in_force: Arc<InForce>,
    pub(crate) client: Client,
    at: Instant,
    /// Whether the request is on the allow list.
    exempt: bool,
}

impl Asking {
    /// Passes the request and its client to `forward` if its limit allows.
    pub(crate) async fn send<F, B>(
        self,
        mut request: Request<Incoming>,
        forward: impl Fn(Client, Request<Incoming>) -> F + Clone,
    ) -> Response<B>
    where
        F: Future<Output = Response<B>>,
        B: From<Bytes>,
    {
        let Asking { in_force, mut client, at, exempt } = self;
        let (limit, priority) = in_force.limit_of(request.uri().path());
        client.priority = priority;
        let Some(limit) = limit else {
            return forward(client, request).await;
        };
        if exempt {
            in_force.tally.note_exempt();
        }
        limit.past.carry(&client.key, &limit.limiter);
        request.extensions_mut().insert(Asked { key: client.key, at, exempt });
        let answer = limit.layer.layer(Passed { client, forward }).call(request);
        let Ok(response) = answer.await;
        response.map(|body| body.into_inner_or_else(B::from))
    }
}

/// The service behind a limit.
#[derive(Clone)]
struct Passed<F> {
    client: Client,
    forward: F,
}

impl<F, T> Service<Request<Incoming>> for Passed<F>
where
    F: Fn(Client, Request<Incoming>) -> T,
    T: Future,
{
    type Response = T::Output;
    type Error = Infallible;
    type Future = futures_util::future::Map<T, fn(T::Output) -> Result<T::Output, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        futures_util::FutureExt::map((self.forward)(self.client, request), Ok)
    }
}
