//! Several shared limits, all or nothing.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;

use tollgate::{AllDenied, Denied, Granted, ToKey};

use super::distributed_limiter::{DistributedLimiter, Next};
use super::joint::{Joint, JointAnswer, JointPart};
use super::plan::SharedPlan;
use super::shared::SharedDecision;
use super::shared_rule::SharedRule;
use super::slot::Slot;
use super::sourced::{Source, Sourced};
use crate::key::StoreKey;
use crate::store::lanes::Lanes;
use crate::store::op::Store;

/// A request for tokens of one shared limit, for [`all_of`]; from
/// [`SharedAsk::request`](crate::SharedAsk::request).
#[derive(Clone)]
pub struct Request(Arc<dyn Ask>);

/// A request of any limiter.
trait Ask: Send + Sync {
    /// Decides from the tokens at hand.
    fn take(&self) -> SharedDecision;
    /// Decides from the tokens at hand, or returns the slot that is to ask the store.
    fn begin(&self) -> Next;
    /// Decides by a call of the slot.
    fn ask<'a>(&'a self, slot: &'a Arc<Slot>) -> Pin<Box<dyn Future<Output = SharedDecision> + Send + 'a>>;
    /// Decides by the policy of an outage.
    fn without_store(&self, slot: &Slot) -> SharedDecision;
    /// Returns the lanes of the store, and the number of the lane of a slot.
    fn lane(&self, slot: &Slot) -> (&Lanes, u32);
    /// Takes some of the tokens at hand, and returns the part of a joint call for the others.
    fn part(&self, slot: &Arc<Slot>) -> Option<JointPart>;
    /// Starts a joint call on the store of this request.
    fn call(&self, parts: Vec<JointPart>) -> Option<JointAnswer>;
    /// Counts the decision of a joint call.
    fn decided(&self, decided: Result<Granted, Denied>) -> SharedDecision;
    fn give_back(&self);
}

struct Of<K, S, R> {
    limiter: DistributedLimiter<K, S, R>,
    key: Option<K>,
    n: u64,
    plan: Option<SharedPlan<R>>,
}

impl<K, S, R> Ask for Of<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    fn take(&self) -> SharedDecision {
        match self.begin() {
            Next::Decided(decision) => decision,
            Next::Ask(slot) => self.limiter.inner.want(&slot, self.n),
        }
    }

    fn begin(&self) -> Next {
        self.limiter.at_hand(self.key.as_ref(), self.n, self.plan.as_ref())
    }

    fn ask<'a>(&'a self, slot: &'a Arc<Slot>) -> Pin<Box<dyn Future<Output = SharedDecision> + Send + 'a>> {
        Box::pin(self.limiter.inner.ask(slot, self.n))
    }

    fn without_store(&self, slot: &Slot) -> SharedDecision {
        self.limiter.inner.shared.without_store(slot, self.n)
    }

    fn lane(&self, slot: &Slot) -> (&Lanes, u32) {
        let shared = &self.limiter.inner.shared;
        (&shared.lanes, shared.store.lane(&slot.key.stored))
    }

    fn part(&self, slot: &Arc<Slot>) -> Option<JointPart> {
        let inner = &self.limiter.inner;
        let count = slot.terms.window().and_then(|window| inner.shared.spec_of(window));
        JointPart::new(slot, inner.queue.clone(), slot.law_of_one(count)?, self.n)
    }

    fn call(&self, parts: Vec<JointPart>) -> Option<JointAnswer> {
        self.limiter.inner.shared.call_jointly(parts)
    }

    fn decided(&self, decided: Result<Granted, Denied>) -> SharedDecision {
        let shared = &self.limiter.inner.shared;
        match decided {
            Ok(granted) => shared.granted(granted, Source::Store),
            Err(denied) => shared.denied(denied, Source::Store),
        }
    }

    fn give_back(&self) {
        self.limiter.give_back(self.key.as_ref(), self.n, self.plan.as_ref());
    }
}

impl<K, S, R> DistributedLimiter<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    /// Returns a request for `n` tokens of a key, as one of several; see
    /// [`SharedAsk::request`](crate::SharedAsk::request).
    pub fn request<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q, n: u64) -> Request {
        self.key(key).n(n).request()
    }

    /// Returns a request of a key, or of the requests without one.
    pub(crate) fn request_of(&self, key: Option<K>, n: u64, plan: Option<SharedPlan<R>>) -> Request {
        Request(Arc::new(Of { limiter: self.clone(), key, n, plan }))
    }
}

/// Takes the tokens of all requests, or of none, from those at hand, without a wait.
///
/// The requests are decided in order. A refusal gives the tokens of the earlier ones back, as
/// [`refund`](DistributedLimiter::refund) does. So the keys may be in several stores, and on
/// several nodes of a cluster. Returns the grant with the fewest tokens left; `None` without
/// requests.
///
/// # Errors
///
/// [`AllDenied`] names the request that was refused.
pub fn all_of(requests: &[Request]) -> Result<Option<Sourced<Granted>>, Sourced<AllDenied>> {
    let mut taken = Taken::new(requests);
    for (which, request) in requests.iter().enumerate() {
        taken.note(which, request.0.take())?;
    }
    Ok(tightest(taken.keep()))
}

/// Takes the tokens of all requests, or of none, by one call of the store for those that are not at
/// hand; see [`all_of`].
///
/// Requests of limiters on one handle of a store are one call, with one deadline: the store takes
/// the tokens of all or of none. Those of several stores, or of several nodes of a cluster, are
/// calls at the same time, and a refusal gives the tokens of the others back. If a call has no
/// answer, the policy of each limit decides. A future that is dropped before its end gives back the
/// tokens that it has taken.
///
/// # Errors
///
/// [`AllDenied`] names a request that was refused.
pub async fn ask_all_of(requests: &[Request]) -> Result<Option<Sourced<Granted>>, Sourced<AllDenied>> {
    let mut taken = Taken::new(requests);
    let mut missing = Vec::new();
    for (which, request) in requests.iter().enumerate() {
        match request.0.begin() {
            Next::Decided(decision) => taken.note(which, decision)?,
            Next::Ask(slot) => missing.push((which, slot)),
        }
    }
    taken.ask(missing).await?;
    Ok(tightest(taken.keep()))
}

/// Takes the tokens of all requests, or of none, by calls of these slots. Returns the grants, in
/// the order of the requests.
#[cfg(feature = "http")]
pub(crate) async fn ask_slots(
    asked: Vec<(Request, Arc<Slot>)>,
) -> Result<Vec<Sourced<Granted>>, Sourced<AllDenied>> {
    let (requests, slots): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    let mut taken = Taken::new(&requests);
    taken.ask(slots.into_iter().enumerate().collect()).await?;
    Ok(taken.keep())
}

/// Returns the grant with the fewest tokens left.
fn tightest(granted: Vec<Sourced<Granted>>) -> Option<Sourced<Granted>> {
    granted.into_iter().min_by_key(|granted| granted.remaining())
}

/// The requests of a joint call, with their slots.
type Group = Vec<(usize, Arc<Slot>)>;

/// Returns the requests of each joint call: those of one lane, and of a key one at most.
fn groups(requests: &[Request], missing: Group) -> Vec<Group> {
    let lane = |(which, slot): &(usize, Arc<Slot>)| requests[*which].0.lane(slot);
    let mut groups: Vec<Group> = Vec::new();
    for of in missing {
        let (lanes, number) = lane(&of);
        let fits = |group: &&mut Group| {
            let (others, other) = lane(&group[0]);
            others.is_same(lanes)
                && other == number
                && group.iter().all(|(_, slot)| slot.key.stored != of.1.key.stored)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(of),
            None => groups.push(vec![of]),
        }
    }
    groups
}

/// Starts the call of a group; `None` if none can be sent.
fn call(requests: &[Request], of: &Group) -> Option<JointAnswer> {
    let part = |(which, slot): &(usize, Arc<Slot>)| requests[*which].0.part(slot);
    let parts = of.iter().map(part).collect::<Option<Vec<_>>>()?;
    requests[of[0].0].0.call(parts)
}

/// The requests that were granted. A drop gives their tokens back.
struct Taken<'a> {
    requests: &'a [Request],
    granted: Vec<(usize, Sourced<Granted>)>,
}

impl<'a> Taken<'a> {
    fn new(requests: &'a [Request]) -> Taken<'a> {
        Taken { requests, granted: Vec::new() }
    }

    fn note(&mut self, which: usize, decision: SharedDecision) -> Result<(), Sourced<AllDenied>> {
        let refused = |denied: Sourced<Denied>| denied.map(|denied| AllDenied::from_parts(which, denied));
        let granted = decision.map_err(refused)?;
        self.granted.push((which, granted));
        Ok(())
    }

    /// Asks for the tokens of the missing requests: one by the call of its slot, which others may
    /// share, and several by joint calls.
    async fn ask(&mut self, missing: Group) -> Result<(), Sourced<AllDenied>> {
        let requests = self.requests;
        if let [(which, slot)] = &missing[..] {
            return self.note(*which, requests[*which].0.ask(slot).await);
        }
        let calls: Vec<_> =
            groups(requests, missing).into_iter().map(|of| (call(requests, &of), of)).collect();
        for (call, of) in calls {
            let answer = match call {
                Some(call) => call.answer().await,
                None => None,
            };
            self.note_answer(&of, answer)?;
        }
        Ok(())
    }

    /// Notes the answer of a joint call; without one the policy of each limit decides.
    fn note_answer(&mut self, of: &Group, answer: Option<Joint>) -> Result<(), Sourced<AllDenied>> {
        match answer {
            None => of
                .iter()
                .try_for_each(|(which, slot)| self.note(*which, self.requests[*which].0.without_store(slot))),
            Some(Err((place, denied))) => {
                let which = of[place].0;
                self.note(which, self.requests[which].0.decided(Err(denied)))
            }
            Some(Ok(tokens)) => of.iter().zip(tokens.keep()).try_for_each(|((which, _), granted)| {
                self.note(*which, self.requests[*which].0.decided(Ok(granted)))
            }),
        }
    }

    /// Keeps the tokens. Returns the grants, in the order of the requests.
    fn keep(mut self) -> Vec<Sourced<Granted>> {
        let mut granted = std::mem::take(&mut self.granted);
        granted.sort_by_key(|(which, _)| *which);
        granted.into_iter().map(|(_, granted)| granted).collect()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.granted.iter().for_each(|(which, _)| self.requests[*which].0.give_back());
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}
