//! The limits: those for everything, and those of each route, which a reload replaces.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, Map};
use hyper::body::Incoming;
use hyper::{Request, Response};
use tollgate::http::{ClientIpStats, Head};
use tollgate::{Priority, Rule};
use tower::{Layer, Service};

use super::keys::{Client, Key, KeySource, Keys};
use super::limit::{Asked, Limit, Terms, Together};
use super::limiter::Limiter;
use super::past::Past;
use super::prefixes::Prefixes;
use super::store::{Fleet, give_back};
use super::tally::Tally;
use crate::config::settings::{Exemptions, Route, Settings};
use crate::counters::{Counters, Event};

/// The limits of requests whose path is the prefix, or under it, and of no other route.
pub(crate) struct Routed {
    /// `None` is for requests under no route.
    pub(crate) prefix: Option<String>,
    pub(crate) limits: Arc<Together>,
    /// The sources of the keys of the limits.
    sources: Vec<KeySource>,
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
    pub(crate) everywhere_else: Option<Routed>,
    pub(crate) routes: Vec<Routed>,
    /// The places in `routes` of the routes of the settings.
    places: Vec<usize>,
    pub(crate) shadow: bool,
}

impl InForce {
    /// The limits for everything else, and those of the routes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Routed> {
        self.everywhere_else.iter().chain(&self.routes)
    }

    /// All limits, one by one.
    pub(crate) fn limits(&self) -> impl Iterator<Item = &Arc<Limit>> {
        self.all().flat_map(|routed| &routed.limits.limits)
    }

    /// The addresses of clients as the forwarding headers had them.
    pub(crate) fn client_stats(&self) -> ClientIpStats {
        self.keys.stats()
    }

    /// Returns the limits of a path.
    fn limits_of(&self, path: &str) -> Option<&Routed> {
        let route = if self.routes.is_empty() { None } else { self.prefixes.find(path) };
        route.map_or(self.everywhere_else.as_ref(), |route| self.routes.get(self.places[route]))
    }
}

/// A limit as new settings have it.
struct Change<'a> {
    name: &'a str,
    rule: Rule,
    cost: u64,
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
            places: Vec::new(),
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
        let outcome = self.in_force().everywhere_else.as_ref()?.limits.limits[0].limiter.set_rule(rule);
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
        give_back(in_force.limits().filter_map(|limit| limit.limiter.shared()).cloned()).await;
    }

    fn put_in_force(&self, settings: &Settings, fleet: Option<Fleet>) -> Result<Vec<String>, String> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.in_force();
        let mut said = Vec::new();
        let most_keys = settings.bounds.keys_per_limit;
        let has_other_room = fleet.is_none() && most_keys != before.most_keys;
        let buckets = Buckets::of(before.fleet.as_ref(), fleet.as_ref());
        let mut limit = |name: &str, rule, cost| {
            let known = before.limits().find(|limit| limit.name == *name);
            let change =
                Change { name, rule, cost, most_keys, has_other_room, fleet: fleet.as_ref(), buckets };
            self.limit(known, change, &mut said)
        };
        let default = settings.limit.map(|rule| limit("default", rule, 1)).transpose()?;
        let mut limits = Vec::new();
        for Route { name, rule, cost, .. } in &settings.routes {
            limits.push(limit(name, *rule, *cost)?);
        }
        let gone = |old: &&Arc<Limit>| old.name != "default" && limits.iter().all(|new| new.name != old.name);
        said.extend(before.limits().filter(gone).map(|old| format!("limit {}: gone", old.name)));
        let everywhere_else = default.map(|limit| self.routed(settings, &before, vec![(None, limit)]));
        let (mut together, mut places) = (Vec::<Vec<_>>::new(), Vec::new());
        for (route, limit) in settings.routes.iter().zip(limits) {
            let is_same =
                |(other, _): &(Option<&Route>, _)| other.is_some_and(|other| other.prefix == route.prefix);
            let known = together.iter().position(|routes| routes.iter().any(is_same));
            let place = known.unwrap_or(together.len());
            together.resize_with(together.len().max(place + 1), Vec::new);
            together[place].push((Some(route), limit));
            places.push(place);
        }
        let routes = together.into_iter().map(|limits| self.routed(settings, &before, limits)).collect();
        let in_force = InForce {
            keys: Keys::new(settings),
            exempt: settings.exempt.clone(),
            tally: self.tally.clone(),
            prefixes: Prefixes::new(&settings.routes, settings.limit, settings.case_sensitive),
            fleet,
            most_keys: settings.bounds.keys_per_limit,
            everywhere_else,
            routes,
            places,
            shadow: settings.shadow,
        };
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(in_force);
        Ok(said)
    }

    /// Puts limits that decide together behind one layer, which stays if they are the same.
    fn routed(
        &self,
        settings: &Settings,
        before: &InForce,
        limits: Vec<(Option<&Route>, Arc<Limit>)>,
    ) -> Routed {
        let first = limits[0].0;
        let terms = Terms {
            shadow: settings.shadow,
            log: settings.log.refusals,
            delay: settings.delay_of(first),
            max_waiting: settings.max_waiting,
            bans: limits.iter().map(|(route, _)| settings.ban_of(*route)).collect(),
        };
        let is_shared = settings.store.is_some();
        let source = |(route, _): &(Option<&Route>, _)| KeySource::new(settings.key_of(*route), is_shared);
        let sources = limits.iter().map(source).collect();
        let limits: Vec<_> = limits.into_iter().map(|(_, limit)| limit).collect();
        let known = before.all().find(|routed| routed.limits.is_of(&limits, &terms));
        let limits = match known {
            Some(known) => known.limits.clone(),
            None => Arc::new(Together::new(limits, terms, &self.tally)),
        };
        let priority = first.map_or(Priority::Critical, |route| route.priority);
        Routed { prefix: first.map(|route| route.prefix.clone()), limits, sources, priority }
    }

    fn limit(
        &self,
        known: Option<&Arc<Limit>>,
        change: Change<'_>,
        said: &mut Vec<String>,
    ) -> Result<Arc<Limit>, String> {
        let Change { name, rule, cost, most_keys, has_other_room, fleet, buckets } = change;
        let after = |past| -> Result<Arc<Limit>, String> {
            let limiter = Limiter::new(name, rule, most_keys, fleet)?;
            Ok(Arc::new(Limit { name: name.to_owned(), cost: Arc::new(AtomicU64::new(cost)), limiter, past }))
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
        Ok(limit)
    }

    /// Finds the limits and the client of a request.
    pub(crate) fn ask<'a>(
        in_force: &'a InForce,
        peer: IpAddr,
        request: &mut Request<Incoming>,
    ) -> Asking<'a> {
        let at = Instant::now();
        request.extensions_mut().insert(peer);
        let head = Head::from(&*request);
        let (address, network) = in_force.keys.client(peer, head);
        let routed = in_force.limits_of(head.uri.path());
        let (mut key, mut others, mut priority) = (Key::Address(network), Vec::new(), Priority::Critical);
        if let Some(routed) = routed {
            let mut keys = routed.sources.iter().map(|source| source.key(head, network));
            key = keys.next().unwrap_or(key);
            others.extend(keys);
            priority = routed.priority;
        }
        let exempt = in_force.exempt.applies(address, head);
        let client = Client { address, network, key, priority };
        Asking { in_force, routed, client, asked: Asked { key, others, at, exempt } }
    }
}

/// A request whose limits and client are known, and whose limits are not yet asked.
pub(crate) struct Asking<'a> {
    in_force: &'a InForce,
    routed: Option<&'a Routed>,
    pub(crate) client: Client,
    asked: Asked,
}

impl Asking<'_> {
    /// Passes the request and its client to `forward` if its limits allow. An `async fn` would have
    /// room for each argument twice, and its future is moved for each request.
    pub(crate) fn send<F, B>(
        self,
        mut request: Request<Incoming>,
        forward: impl Fn(Client, Request<Incoming>) -> F + Clone,
    ) -> impl Future<Output = Response<B>>
    where
        F: Future<Output = Response<B>>,
        B: From<Bytes>,
    {
        let Asking { in_force, routed, client, asked } = self;
        let Some(Routed { limits, .. }) = routed else {
            return Either::Left(forward(client, request));
        };
        if asked.exempt {
            in_force.tally.note_exempt();
        }
        let keys = std::iter::once(&asked.key).chain(&asked.others);
        limits.limits.iter().zip(keys).for_each(|(limit, key)| limit.past.carry(key, &limit.limiter));
        request.extensions_mut().insert(asked);
        let answer = limits.layer.layer(Passed { client, forward }).call(request);
        Either::Right(answer.map(|Ok(response)| response.map(|body| body.into_inner_or_else(B::from))))
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
    type Future = Map<T, fn(T::Output) -> Result<T::Output, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        (self.forward)(self.client, request).map(Ok)
    }
}
