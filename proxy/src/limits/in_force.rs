//! The limits: those for everything, and those of each route, which a reload replaces.

use std::array;
use std::convert::Infallible;
use std::future::{Future, ready};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Either;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tollgate::AnyRule;
use tollgate_adaptive::Priority;
use tollgate_http::Head;
use tower::{Layer, Service, service_fn};

use super::hasher::KeyHasher;
use super::keys::{Client, Key, KeySource, Keys};
use super::limit::{Asked, Limit, Terms, Together};
use super::limiter::{BuiltBy, KeyPlace, Limiter};
use super::prefixes::Prefixes;
use super::store::{Fleet, give_back};
use super::tally::Tally;
use crate::config::settings::{Exemptions, Route, Settings};
use tollgate_common::past::Left;
use tollgate_common::state_file::{SavedPart, Writer};

/// The limits of requests whose path is the prefix, or under it, and of no other route.
pub(crate) struct Routed {
    /// `None` is for requests under no route.
    pub(crate) prefix: Option<String>,
    pub(crate) limits: Arc<Together>,
    /// The sources of the keys of the limits.
    sources: Vec<KeySource>,
    priority: Priority,
}

impl Routed {
    /// Puts limits that decide together behind one layer, which stays if they are the same.
    fn new(
        settings: &Settings,
        before: Option<&InForce>,
        tally: &Arc<Tally>,
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
        let is_shared = settings.store.is_some() || settings.state.is_some();
        let parts = limits.iter().map(|(route, _)| settings.key_of(*route).to_vec());
        let sources = parts.map(|parts| KeySource { parts, is_shared }).collect();
        let limits: Vec<_> = limits.into_iter().map(|(_, limit)| limit).collect();
        let mut known = before.into_iter().flat_map(InForce::all).map(|routed| &routed.limits);
        let is_same = |known: &&Arc<Together>| {
            known.limits.iter().map(Arc::as_ptr).eq(limits.iter().map(Arc::as_ptr)) && known.terms == terms
        };
        let limits = match known.find(is_same) {
            Some(known) => known.clone(),
            None => Arc::new(Together::new(limits, terms, tally)),
        };
        let priority = first.map_or(Priority::Critical, |route| route.priority);
        Routed { prefix: first.map(|route| route.prefix.clone()), limits, sources, priority }
    }
}

/// The limits in force.
pub(crate) struct InForce {
    pub(crate) keys: Keys,
    exempt: Exemptions,
    pub(crate) tally: Arc<Tally>,
    prefixes: Prefixes,
    /// The store of the limits, if a fleet shares them.
    pub(crate) fleet: Option<Fleet>,
    /// The home of the keys of each limit.
    key_place: KeyPlace,
    /// For requests that are under no route.
    pub(crate) everywhere_else: Option<Routed>,
    pub(crate) routes: Vec<Routed>,
    /// The indices in `routes` of the routes of the settings.
    indices: Vec<usize>,
    pub(crate) shadow: bool,
    /// The limits that are gone, while the tokens that keys have used may count.
    gone: Vec<(Arc<Limit>, Left<Limiter>)>,
}

impl InForce {
    /// Returns the limits of these settings, with a line for each change. A limit that stays, by
    /// its name and its store, keeps its buckets and its counts.
    fn new(
        settings: &Settings,
        fleet: Option<Fleet>,
        hasher: KeyHasher,
        before: Option<&InForce>,
    ) -> Result<(InForce, Vec<String>), String> {
        let moved = match (before.and_then(|before| before.fleet.as_ref()), fleet.as_ref()) {
            (before, after) if before == after => None,
            // The store is used in another way.
            (Some(before), Some(after)) if before.has_buckets_of(after) => {
                Some("tokens are kept in the store")
            }
            _ => Some("all buckets anew, since they are elsewhere"),
        };
        let key_place = KeyPlace { most: settings.bounds.keys_per_limit, hasher };
        let mut change = Change { before, fleet: fleet.as_ref(), key_place, moved, said: Vec::new() };
        let tally = before.map(|before| before.tally.clone()).unwrap_or_default();
        let default = settings.limit.map(|rule| change.limit("default", rule, 1)).transpose()?;
        let (mut together, mut indices) = (Vec::<Vec<_>>::new(), Vec::<usize>::new());
        for route in &settings.routes {
            let first = settings.routes.iter().position(|first| first.prefix == route.prefix);
            let index = first.and_then(|first| indices.get(first)).copied().unwrap_or(together.len());
            together.resize_with(together.len().max(index + 1), Vec::new);
            together[index].push((Some(route), change.limit(&route.name, route.rule, route.cost)?));
            indices.push(index);
        }
        let mut said = change.said;
        let is_gone = |old: &Limit| match &*old.name {
            "default" => settings.limit.is_none(),
            name => settings.routes.iter().all(|route| route.name != *name),
        };
        let old = before.into_iter().flat_map(InForce::limits).filter(|old| is_gone(old));
        let mut gone: Vec<_> = old.map(|old| (old.clone(), Left::of(old.limiter.clone()))).collect();
        let said_gone = gone.iter().filter(|(old, _)| old.name != "default");
        said.extend(said_gone.map(|(old, _)| format!("limit {}: gone", old.name)));
        // A store keeps its own.
        gone.retain(|(old, _)| old.limiter.shared().is_none() && moved.is_none());
        let before_that = before.into_iter().flat_map(|before| &before.gone);
        gone.extend(
            before_that
                .filter(|(old, left)| is_gone(old) && !(left.is_over() && old.past.left().is_empty()))
                .cloned(),
        );
        let routed = |limits| Routed::new(settings, before, &tally, limits);
        let in_force = InForce {
            keys: Keys::new(settings),
            exempt: settings.exempt.clone(),
            prefixes: Prefixes::new(&settings.routes, settings.limit, settings.case_sensitive),
            key_place,
            everywhere_else: default.map(|limit| routed(vec![(None, limit)])),
            routes: together.into_iter().map(routed).collect(),
            indices,
            shadow: settings.shadow,
            tally,
            fleet,
            gone,
        };
        Ok((in_force, said))
    }

    /// The limits for everything else, and those of the routes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Routed> {
        self.everywhere_else.iter().chain(&self.routes)
    }

    /// All limits, one by one.
    pub(crate) fn limits(&self) -> impl Iterator<Item = &Arc<Limit>> {
        self.all().flat_map(|routed| &routed.limits.limits)
    }

    /// Returns the limits of a path.
    fn limits_of(&self, path: &str) -> Option<&Routed> {
        let route = if self.routes.is_empty() { None } else { self.prefixes.find(path) };
        route.map_or(self.everywhere_else.as_ref(), |route| self.routes.get(self.indices[route]))
    }

    /// Finds the limits and the client of a request.
    pub(crate) fn ask(&self, peer: IpAddr, request: &mut Request<Incoming>) -> Asking<'_> {
        let at = Instant::now();
        request.extensions_mut().insert(peer);
        let head = Head::from(&*request);
        let (address, network) = self.keys.client(peer, head);
        let routed = self.limits_of(head.uri.path());
        let (mut key, mut others, mut priority) = (Key::Address(network), Vec::new(), Priority::Critical);
        if let Some(routed) = routed {
            let mut keys = routed.sources.iter().map(|source| source.key(head, network));
            key = keys.next().unwrap_or(key);
            others.extend(keys);
            priority = routed.priority;
        }
        let exempt = self.exempt.applies(address, head);
        let client = Client { address, network, key, priority };
        Asking { in_force: self, routed, client, asked: Asked { key, others, owner: network, at, exempt } }
    }
}

/// The change from the limits in force to those of new settings.
struct Change<'a> {
    before: Option<&'a InForce>,
    fleet: Option<&'a Fleet>,
    key_place: KeyPlace,
    /// What becomes of the tokens of all limits, unless their buckets stay where they are.
    moved: Option<&'static str>,
    /// A line for each limit that changes.
    said: Vec<String>,
}

impl Change<'_> {
    /// Returns the limit of this name: the one of before if it can stay.
    fn limit(&mut self, name: &str, rule: AnyRule, cost: u64) -> Result<Arc<Limit>, String> {
        let with = |left| -> Result<Arc<Limit>, String> {
            let limiter = Limiter::new(name, rule, self.key_place, self.fleet)?;
            Ok(Arc::new(Limit::new(name, cost, limiter, left)))
        };
        let anew = || with(Vec::new());
        let carried = |limit: &Limit| with(limit.homes());
        // A limit that was gone is another one, of the same buckets.
        let stay = |limit: Arc<Limit>| match limit.is_replaced() {
            true => Arc::new(Limit::new(name, cost, limit.limiter.clone(), limit.past.left())),
            false => limit,
        };
        let known = |before: &'_ InForce| {
            let gone = before.gone.iter().map(|(limit, _)| limit);
            before.limits().chain(gone).find(|limit| limit.name == *name).cloned()
        };
        let has_other_room = self.fleet.is_none()
            && self.before.is_some_and(|before| before.key_place.most != self.key_place.most);
        let (limit, fate) = match (self.before.and_then(known), self.moved) {
            (None, _) => (anew()?, "new".to_owned()),
            (Some(_), Some(fate)) => (anew()?, fate.to_owned()),
            (Some(limit), None) if limit.limiter.rule() == rule && !has_other_room => {
                let fate = if limit.is_replaced() { "new, tokens are kept" } else { "" };
                (stay(limit), fate.to_owned())
            }
            (Some(limit), None) => match limit.limiter.set_rule(rule) {
                Ok(()) if has_other_room => {
                    (carried(&limit)?, "tokens are carried over to other buckets".to_owned())
                }
                Ok(()) => (stay(limit), "tokens are kept".to_owned()),
                Err(why) if self.fleet.is_some() => (anew()?, format!("all buckets anew, since {why}")),
                Err(why) => {
                    (carried(&limit)?, format!("tokens are carried over to other buckets, since {why}"))
                }
            },
        };
        if !fate.is_empty() {
            self.said.push(format!("limit {name}: {rule}, {fate}"));
        }
        limit.cost.store(cost, Relaxed);
        Ok(limit)
    }
}

/// All limits, which can be replaced while requests are decided. Changes come one at a time.
pub(crate) struct Limits {
    in_force: RwLock<Arc<InForce>>,
}

impl Limits {
    pub(crate) fn new(
        settings: &Settings,
        fleet: Option<Fleet>,
        hasher: KeyHasher,
    ) -> Result<Limits, String> {
        let (first, _) = InForce::new(settings, fleet, hasher, None)?;
        Ok(Limits { in_force: RwLock::new(Arc::new(first)) })
    }

    pub(crate) fn in_force(&self) -> Arc<InForce> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes the secret of the keys' hasher, and the buckets of all limits.
    pub(crate) fn save(&self, to: &mut Writer) -> io::Result<()> {
        let in_force = self.in_force();
        in_force.key_place.hasher.save(to)?;
        in_force.limits().try_for_each(|limit| limit.save(to))
    }

    /// Returns the number of the keys that are held.
    pub(crate) fn keys(&self) -> usize {
        self.in_force().all().map(|routed| routed.limits.layer.stats().keys).sum()
    }

    /// Restores the buckets of a limit, before the first decision.
    pub(crate) fn restore(&self, part: &SavedPart) -> Result<(), String> {
        // A name may have the sign between the fields, and no other field has it.
        let mut fields = part.name.rsplitn(4, " | ");
        let [rule, keys, first, name] = array::from_fn(|_| fields.next().unwrap_or_default());
        let in_force = self.in_force();
        let limit = in_force.limits().find(|limit| limit.name == name).ok_or("there is no such limit")?;
        let rule_of = |text: &str| text.parse::<AnyRule>().map_err(|why| why.to_string());
        let number = || keys.parse().map_err(|_| format!("{keys:?} is no number of keys"));
        let keys = if keys == "none" { None } else { Some(number()?) };
        let built_by = BuiltBy { rule: rule_of(first)?, keys };
        limit.restore(built_by, rule_of(rule)?, in_force.key_place.hasher, &part.bytes)
    }

    /// Changes the rule for everything else, of all keys at once. They keep the tokens they have.
    /// `None`: there is no such limit.
    pub(crate) fn set_rule(&self, rule: AnyRule) -> Option<Result<(), String>> {
        Some(self.in_force().everywhere_else.as_ref()?.limits.limits[0].limiter.set_rule(rule))
    }

    /// Puts the limits of these settings in force. A limit that stays, by its name and its store,
    /// keeps its buckets and its counts. Says each change in a line.
    pub(crate) fn replace(&self, settings: &Settings, fleet: Option<Fleet>) -> Result<Vec<String>, String> {
        let before = self.in_force();
        let hasher = before.key_place.hasher;
        let (after, said) = InForce::new(settings, fleet, hasher, Some(&before))?;
        // A request whose decision is void asks for the limits in force, and waits for them here.
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        let stays = |old: &&Arc<Limit>| after.limits().any(|limit| Arc::ptr_eq(limit, old));
        before.limits().filter(|old| !stays(old)).for_each(|old| old.replace());
        fence(SeqCst);
        *in_force = Arc::new(after);
        Ok(said)
    }

    /// Gives the tokens of all leases back to the store.
    pub(crate) async fn give_back(&self) {
        let in_force = self.in_force();
        give_back(in_force.limits().filter_map(|limit| limit.limiter.shared()).cloned()).await;
    }
}

/// The position of a request whose limits were replaced.
#[derive(Default)]
pub(crate) struct Again(Mutex<Option<Box<Request<Incoming>>>>);

impl Again {
    #[cold]
    fn put(&self, request: Request<Incoming>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(request));
    }

    /// Returns the request that is to ask the limits in force.
    pub(crate) fn take(&self) -> Option<Request<Incoming>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map(|request| *request)
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
    /// Passes the request and its client to `forward` if its limits allow.
    ///
    /// A request whose limits were replaced before it was passed on is put into `again`, and its
    /// response says nothing. An `async fn` would have room for each argument twice, and its future
    /// is moved for each request.
    pub(crate) fn send<F, B>(
        self,
        mut request: Request<Incoming>,
        again: &Again,
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
        limits.limits.iter().zip(keys).for_each(|(limit, key)| limit.carry(key));
        request.extensions_mut().insert(asked);
        let passed = service_fn(move |request| {
            if limits.are_replaced() {
                again.put(request);
                return Either::Left(ready(Ok(Response::new(B::from(Bytes::new())))));
            }
            Either::Right(forward(client, request).map(Ok::<_, Infallible>))
        });
        let mut limited = limits.layer.layer(passed);
        let answer = match &limits.delay {
            None => Either::Left(limited.call(request)),
            Some(delay) => Either::Right(delay.layer(limited).call(request)),
        };
        Either::Right(answer.map(|Ok(response)| response.map(|body| body.into_inner_or_else(B::from))))
    }
}

#[cfg(test)]
mod tests;
