//! The limits of a set of paths, behind one layer.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use tollgate::{AnyRule, Quota};
use tollgate_http::{
    Decision, DelayLayer, Exempt, Head, InvalidName, LayerBuilder, LimitBy, RateLimitLayer, Refusal,
};

use super::hasher::KeyHasher;
use super::keys::Key;
use super::limiter::{BuiltBy, KeyPlace, Limiter};
use super::tally::Tally;
use crate::config::settings::Ban;
use tollgate_common::past::{Left, Moves, Past};
use tollgate_common::state_file::Writer;

/// The keys of a request, and when its decision began.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) key: Key,
    /// The keys of the limits after the first.
    pub(super) others: Vec<Key>,
    /// The client's address, which owns its positions in line, whatever its keys are.
    pub(super) owner: IpAddr,
    pub(super) at: Instant,
    pub(super) exempt: bool,
}

impl Asked {
    /// Returns the key of the limit at an index of its layer.
    fn key(head: Head<'_>, index: usize) -> Option<Key> {
        let asked: &Asked = head.extensions.get()?;
        if index == 0 { Some(asked.key) } else { asked.others.get(index - 1).copied() }
    }
}

/// One rule, with the keys' buckets or windows.
pub(crate) struct Limit {
    pub(crate) name: String,
    /// Tokens of a request. Read at each, so that another cost needs no other layer.
    pub(crate) cost: Arc<AtomicU64>,
    pub(crate) limiter: Limiter,
    /// The buckets that a reload has replaced by these.
    pub(super) past: Past<Limiter>,
    pub(super) moves: Moves,
    /// Whether another limit is in force instead, or none. Its decisions are void: the key may
    /// have left.
    is_replaced: AtomicBool,
}

impl Limit {
    /// Returns a limit whose keys have left some homes.
    pub(super) fn new(name: &str, cost: u64, limiter: Limiter, left: Vec<Left<Limiter>>) -> Limit {
        let past = Past::default();
        left.into_iter().for_each(|left| past.put(left, Some(&limiter)));
        let (name, cost) = (name.to_owned(), Arc::new(cost.into()));
        Limit { name, cost, limiter, past, moves: Moves::default(), is_replaced: AtomicBool::default() }
    }

    /// Charges a key with its use in the buckets that these have replaced.
    #[inline]
    pub(super) fn carry(&self, key: &Key) {
        self.past.carry(key, &self.limiter, &self.moves);
    }

    /// Returns the homes in which keys of this limit may have used tokens.
    pub(super) fn homes(&self) -> Vec<Left<Limiter>> {
        let mut homes = self.past.left();
        homes.push(Left::of(self.limiter.clone()));
        homes
    }

    /// Makes the decisions of this limit void, before those that replace it.
    pub(super) fn replace(&self) {
        self.is_replaced.store(true, Relaxed);
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Relaxed)
    }

    /// Writes the buckets of all keys, and those that are replaced.
    pub(super) fn save(&self, to: &mut Writer) -> io::Result<()> {
        let past = self.past.left();
        let limiters: Vec<&Limiter> = past.iter().map(|left| &left.home).chain([&self.limiter]).collect();
        let state = |limiter: &&Limiter| Some((limiter.rule(), limiter.save()?));
        let saved: Vec<_> = match past[..] {
            [] => limiters.iter().filter_map(state).collect(),
            _ => {
                let _still = self.moves.stop();
                limiters.iter().filter_map(state).collect()
            }
        };
        for (rule, (BuiltBy { rule: first, keys }, state)) in saved {
            let keys = keys.map_or("none".to_owned(), |keys| keys.to_string());
            to.put(&format!("{} | {first} | {keys} | {rule}", self.name), &state)?;
        }
        Ok(())
    }

    /// Restores buckets of a rule, by the hasher of the save. Those of another rule or number of
    /// keys than now become ones that are replaced.
    pub(super) fn restore(
        &self,
        built_by: BuiltBy,
        rule: AnyRule,
        hasher: KeyHasher,
        state: &[u8],
    ) -> Result<(), String> {
        if self.limiter.is_built_by(built_by) && self.limiter.rule() == rule {
            return self.limiter.restore(state);
        }
        let keys = KeyPlace { most: built_by.keys, hasher };
        let before = Limiter::new(&self.name, built_by.rule, keys, None)?;
        before.set_rule(rule)?;
        before.restore(state)?;
        // The keys of an earlier rule are gone once their buckets are full.
        if before.has_keys() {
            self.past.put(Left::of(before), Some(&self.limiter));
        }
        Ok(())
    }

    /// Returns this limit of a layer, by the keys at its index.
    fn of_layer(&self, index: usize, terms: &Terms) -> Result<LimitBy<Key>, InvalidName> {
        let limit = LimitBy::new(self.limiter.any()).key(move |head: Head<'_>| Asked::key(head, index));
        let mut limit = limit.name(&self.name)?;
        if terms.log {
            limit = limit.log_refusals_by(Quota::per_second(5).burst(10), Key::to_string);
        }
        Ok(match terms.bans.get(index).copied().flatten() {
            None => limit,
            Some(ban) => {
                let limit = limit.ban_after(ban.refusals, ban.window).for_(ban.time);
                limit.expect("it was checked when the file was read")
            }
        })
    }
}

/// The settings of a layer. Other ones need another layer.
#[derive(Clone, PartialEq)]
pub(super) struct Terms {
    pub(super) shadow: bool,
    pub(super) log: bool,
    pub(super) delay: Option<Duration>,
    pub(super) max_waiting: usize,
    /// The ban of each limit.
    pub(super) bans: Vec<Option<Ban>>,
}

/// Limits that decide together: a request is granted by all of them, or takes of none.
pub(crate) struct Together {
    /// At least one.
    pub(crate) limits: Vec<Arc<Limit>>,
    pub(crate) layer: RateLimitLayer<Key>,
    /// Lets requests wait for their tokens.
    pub(super) delay: Option<DelayLayer>,
    pub(super) terms: Terms,
}

impl Together {
    pub(super) fn new(limits: Vec<Arc<Limit>>, terms: Terms, tally: &Arc<Tally>) -> Together {
        let named = "it was checked when the file was read";
        let mut of_layer =
            limits.iter().enumerate().map(|(at, limit)| limit.of_layer(at, &terms).expect(named));
        let first = of_layer.next().expect("there is a limit");
        let layer = of_layer.fold(LayerBuilder::from(first), LayerBuilder::and);
        let (costs, tally) = (limits[0].cost.clone(), tally.clone());
        let layer = layer
            .cost(move |_| costs.load(Relaxed))
            .exempt(Exempt::when(|head| head.extensions.get().is_some_and(|asked: &Asked| asked.exempt)))
            .enforce(if terms.shadow { 0 } else { 100 })
            .on_decision(move |head: Head<'_>, decision: &Decision| {
                let asked = head.extensions.get().map(|asked: &Asked| asked.at);
                tally.note(decision, asked.map_or(Duration::ZERO, |at| at.elapsed()));
            })
            .reject_with(refuse);
        let owner = |head: Head<'_>| head.extensions.get().map(|asked: &Asked| asked.owner);
        let delay = |longest| DelayLayer::new(longest).max_waiting(terms.max_waiting).owner(owner);
        let delay = terms.delay.map(delay);
        Together { layer: layer.build(), delay, limits, terms }
    }

    /// Returns whether a decision of now is void: the limits in force are to be asked.
    ///
    /// A take is before the fence, and the flag after it; [`Limits::replace`] sets the flag before
    /// its fence, and a key leaves after that. So a take that the leaving key has not seen is void.
    ///
    /// [`Limits::replace`]: super::in_force::Limits::replace
    pub(super) fn are_replaced(&self) -> bool {
        fence(SeqCst);
        self.limits.iter().any(|limit| limit.is_replaced())
    }

    /// Up to `n` keys of each limit that were refused most, with how often, and the tokens left.
    pub(crate) fn top_refused(&self, n: usize) -> impl Iterator<Item = (&Limit, Key, u64, u64)> {
        self.limits.iter().flat_map(move |limit| {
            let named = self.layer.limit::<Key>(&limit.name);
            let top = named.map(|named| named.top_refused(n)).unwrap_or_default();
            top.into_iter().map(|(key, refused)| (&**limit, key, refused, limit.limiter.left(&key)))
        })
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
