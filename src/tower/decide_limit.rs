//! The decision of one limit of a layer.

use std::hash::Hash;
use std::sync::Arc;

use super::ban::Bans;
use super::chain::{Adjust, Ban, Decider, DynLimit, LayerRequest, LimitChain, LimitOutcome, Pass, next};
use super::key_future::{Found, FoundKey, SearchFuture};
use super::limit_by::{LimitBy, OnMissingKey};
use super::limiter::{LimiterRequest, Question};
use super::said::Said;
use super::stats::{LimitStats, count};
use crate::http::{Head, Policy};
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::PlanTerms;

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DynLimit for LimitBy<K> {
    fn decide<'a>(
        &'a self,
        asked: &mut LayerRequest<'a>,
        rest: &'a [Arc<dyn DynLimit>],
        chain: Option<&LimitChain<'_>>,
    ) -> LimitOutcome {
        if !self.plain && !self.applies_to(asked.head) {
            return next(asked, rest, chain);
        }
        let key = self.key.key_from(asked.head);
        // The first limit's key is sampled, even if only other limits apply.
        if let Some(key) = &key
            && asked.sampled
            && rest.len() + 1 == asked.limits
        {
            asked.hash = self.limiter.hash(key);
        }
        if asked.counted.iter().any(|id| *id == self.limiter.id()) {
            return next(asked, rest, chain);
        }
        let index = chain.map_or(0, |chain| chain.index + 1);
        if key.is_none() {
            self.count_keyless(asked);
            match self.missing {
                OnMissingKey::Share => {}
                OnMissingKey::Allow => return next(asked, rest, chain),
                // In shadow mode the limit refuses no request.
                OnMissingKey::Reject if self.enforced == 0 => return next(asked, rest, chain),
                OnMissingKey::Reject => return self.no_key(asked),
            }
        }
        // A limiter that is asked was told the plan.
        let choose = self.plan.as_ref().filter(|_| self.plain || !self.asks());
        let plan = key.as_ref().and(choose).and_then(|choose| choose(asked.head));
        let mut request = LimiterRequest { key, plan, n: asked.cost, reply: None };
        if !self.plain {
            self.add_reply(&mut request, asked, rest.len());
            if self.is_shadow_for(request.key.as_ref()) {
                return self.decide_in_shadow(asked, rest, chain, request);
            }
            if let Some(denied) = self.check_ban(request.key.as_ref()) {
                return self.refuse_by_ban(asked, &request, index, denied);
            }
        }
        if matches!(asked.pass, Pass::InLine(_)) {
            return self.decide_in_line(asked, rest, chain, request, index);
        }
        let mut outcome = if rest.is_empty() && chain.is_none() {
            LimitOutcome::Decided(self.limiter.try_acquire(&request), index)
        } else {
            let mut outcome = LimitOutcome::Free;
            self.limiter.with(&request, &mut |limit| {
                outcome = next(asked, rest, Some(&LimitChain { limit, before: chain, index }));
            });
            outcome
        };
        self.finish(asked, request, index, &mut outcome);
        outcome
    }

    fn id(&self) -> u64 {
        self.limiter.id()
    }

    fn is_plain(&self) -> bool {
        self.plain
    }

    fn searches(&self) -> bool {
        self.find_key.is_some() || self.asks()
    }

    fn asks(&self) -> bool {
        self.limiter.is_asked()
    }

    fn search(self: Arc<Self>, head: Head<'_>, cost: u64, counted: &[u64]) -> Option<SearchFuture> {
        // A limit that does not apply needs no key.
        if !self.applies_to(head) {
            return None;
        }
        let search = self.find_key.as_ref().map(|find| find(head));
        match self.asks() && !counted.contains(&self.limiter.id()) {
            true => Some(self.ask(head, cost, search)),
            false => search,
        }
    }

    fn examine(&self, head: Head<'_>, said: &Said) {
        if let Some(check) = self.key.check(head) {
            said.say(self.policy.name(), check);
        }
    }

    fn stats(&self) -> LimitStats {
        let limiter = self.limiter.stats();
        let mut stats = LimitStats {
            policy: self.policy.name().to_owned(),
            keys: limiter.keys,
            evicted: limiter.evicted,
            without_room: limiter.shared + limiter.refused_full + limiter.allowed_full,
            ..LimitStats::of(&self.counters)
        };
        if let Some(bans) = &self.bans {
            bans.add_to(&mut stats);
        }
        stats
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LimitBy<K> {
    /// Asks for a request, once the search for its key has ended.
    fn ask(self: Arc<Self>, head: Head<'_>, cost: u64, search: Option<SearchFuture>) -> SearchFuture {
        let key = if search.is_none() { self.key.key_from(head) } else { None };
        let plan = self.plan.as_ref().and_then(|choose| choose(head));
        Box::pin(async move {
            let (mut found, mut key) = (Found::default(), key);
            if let Some(search) = search {
                found = search.await;
                key = found.key.as_ref().and_then(FoundKey::key);
            }
            if let Some(question) = self.question(key, plan, cost) {
                found.reply = Some(question.await);
            }
            found
        })
    }

    /// Begins the question for a request, unless it is decided without: it has no key, or a banned
    /// one.
    fn question(&self, key: Option<K>, plan: Option<PlanTerms>, cost: u64) -> Option<Question> {
        if key.is_none() && self.missing != OnMissingKey::Share || self.check_ban(key.as_ref()).is_some() {
            return None;
        }
        let plan = key.as_ref().and(plan);
        self.limiter.ask(LimiterRequest { key, plan, n: cost, reply: None })
    }

    /// Adds the reply of the limiter, and the plan that it was asked for.
    fn add_reply(&self, request: &mut LimiterRequest<K>, asked: &LayerRequest<'_>, after: usize) {
        let place = asked.limits - 1 - after;
        if let Some(reply) = asked.replies.and_then(|replies| replies.of(place)) {
            request.plan = reply.plan();
            request.reply = Some(reply);
        }
    }

    #[cold]
    fn no_key<'a>(&'a self, asked: &mut LayerRequest<'a>) -> LimitOutcome {
        asked.decider = Some(self.decider(self.policy.clone()));
        LimitOutcome::NoKey { check: self.key.check(asked.head) }
    }

    /// Counts a request without a key. The 1st, 2nd, 4th, 8th and so on are examined for faults.
    #[cold]
    fn count_keyless(&self, asked: &LayerRequest<'_>) {
        let again = matches!(asked.pass, Pass::InLine(_));
        if !again && count(&self.counters.keyless).is_power_of_two() {
            self.examine(asked.head, asked.said);
        }
    }

    fn decider(&self, policy: Arc<Policy>) -> Decider<'_> {
        Decider { policy, counters: &self.counters, ban: Ban::None }
    }

    #[cold]
    fn applies_to(&self, head: Head<'_>) -> bool {
        self.applies.as_ref().is_none_or(|applies| applies(head))
    }

    /// Returns whether this limit is in shadow mode for a key.
    fn is_shadow_for(&self, key: Option<&K>) -> bool {
        // The upper half, since the map's buckets have the same hash.
        key.map_or(0, |key| self.limiter.hash(key)) >> 32 >= self.enforced
    }

    /// Returns the refusal of a banned key.
    #[inline]
    fn check_ban(&self, key: Option<&K>) -> Option<Denied> {
        self.bans.as_ref()?.check(key?)
    }

    /// Notes the decision at this limit, and at all limits if it is the decider.
    #[inline(always)]
    fn finish<'a>(
        &'a self,
        asked: &mut LayerRequest<'a>,
        request: LimiterRequest<K>,
        index: usize,
        outcome: &mut LimitOutcome,
    ) {
        let LimitOutcome::Decided(result, which) = outcome else { return };
        let decided = *which == index;
        let policy = self.policy_of(self.limiter.rule(request.plan.as_ref()));
        match (&mut *result, decided) {
            (_, false) => asked.also.push(policy),
            (Ok(_), true) => asked.decider = Some(self.decider(policy)),
            (Err(denied), true) => asked.decider = Some(self.refused(asked, &request, policy, denied)),
        }
        if let (Some(adjusts), Ok(_)) = (&mut asked.adjusts, result) {
            adjusts.push(self.adjust(request, decided));
        }
    }

    /// Returns this limit as the one that refused.
    #[inline(always)]
    fn refused(
        &self,
        asked: &LayerRequest<'_>,
        request: &LimiterRequest<K>,
        mut policy: Arc<Policy>,
        denied: &mut Denied,
    ) -> Decider<'_> {
        let mut ban = Ban::None;
        if let Some(key) = &request.key {
            policy = self.spread_over(key, policy);
            if asked.pass.is_final() {
                self.top.note(key);
                if self.bans.is_some() || self.see_refusal.is_some() {
                    ban = self.strike(key, request.n, &policy, denied);
                }
            }
        } else if self.see_refusal.is_some() && asked.pass.is_final() {
            self.show_refused(None, &policy, denied, Ban::None);
        }
        Decider { ban, ..self.decider(policy) }
    }

    /// Returns the policy for a refusal of a key.
    #[inline(always)]
    fn spread_over(&self, key: &K, policy: Arc<Policy>) -> Arc<Policy> {
        if policy.spread == 0 { policy } else { Arc::new(policy.for_key(self.limiter.hash(key))) }
    }

    /// Counts a refused key for a ban, which makes its wait longer, and shows it.
    #[cold]
    fn strike(&self, key: &K, n: u64, policy: &Policy, denied: &mut Denied) -> Ban {
        let counts = |bans: &&Bans<K>| match denied.reason() {
            Reason::TooMany => true,
            Reason::Unavailable => false,
            Reason::Full => bans.is_over_own(key, policy.rule(), n),
            // A key without an entry was refused by a bucket that other keys emptied.
            _ => self.limiter.holds(key) || bans.is_over_own(key, policy.rule(), n),
        };
        let banned = self.bans.as_ref().filter(counts).and_then(|bans| bans.strike(key));
        let ban = if banned.is_some() { Ban::Begins } else { Ban::None };
        *denied = banned.unwrap_or(*denied);
        self.show_refused(Some(key), policy, denied, ban);
        ban
    }

    #[cold]
    fn show_refused(&self, key: Option<&K>, policy: &Policy, denied: &Denied, ban: Ban) {
        if let Some(see) = &self.see_refusal {
            see(key, policy, denied, ban);
        }
    }

    /// Refuses a request whose key is banned.
    #[cold]
    fn refuse_by_ban<'a>(
        &'a self,
        asked: &mut LayerRequest<'a>,
        request: &LimiterRequest<K>,
        index: usize,
        denied: Denied,
    ) -> LimitOutcome {
        let mut policy = self.policy_of(self.limiter.rule(request.plan.as_ref()));
        if let Some(key) = &request.key {
            policy = self.spread_over(key, policy);
            if asked.pass.is_final() {
                self.top.note(key);
                self.show_refused(Some(key), &policy, &denied, Ban::Refuses);
            }
        }
        asked.decider = Some(Decider { ban: Ban::Refuses, ..self.decider(policy) });
        LimitOutcome::Decided(Err(denied), index)
    }

    /// Decides by the rest of the limits, then tries this one, whose refusal is not enforced.
    #[cold]
    fn decide_in_shadow<'a>(
        &'a self,
        asked: &mut LayerRequest<'a>,
        rest: &'a [Arc<dyn DynLimit>],
        chain: Option<&LimitChain<'_>>,
        request: LimiterRequest<K>,
    ) -> LimitOutcome {
        let outcome = next(asked, rest, chain);
        match &outcome {
            LimitOutcome::Decided(Ok(_), _) | LimitOutcome::Free => {}
            LimitOutcome::Decided(Err(_), _) if asked.silent => {}
            _ => return outcome,
        }
        // No limit decided that is enforced, so this one stands for the layer.
        let alone = matches!(outcome, LimitOutcome::Free) && chain.is_none();
        let banned = self.check_ban(request.key.as_ref());
        let mut result = match banned {
            Some(denied) => Err(denied),
            None => self.limiter.try_acquire(&request),
        };
        let mut decider = self.decider(self.policy_of(self.limiter.rule(request.plan.as_ref())));
        match &mut result {
            Ok(_) => {
                if let Some(adjusts) = &mut asked.adjusts {
                    adjusts.push(self.adjust(request, alone));
                }
            }
            Err(denied) => {
                decider.ban = match (&request.key, banned) {
                    // A refusal by a ban does not count for the next one.
                    (key, Some(_)) => {
                        self.show_refused(key.as_ref(), &decider.policy, denied, Ban::Refuses);
                        Ban::Refuses
                    }
                    (Some(key), None) => self.strike(key, request.n, &decider.policy, denied),
                    (None, None) => {
                        self.show_refused(None, &decider.policy, denied, Ban::None);
                        Ban::None
                    }
                };
                if let Some(key) = &request.key {
                    self.top.note(key);
                }
                // One refusal in shadow mode stands for the request.
                if !alone && asked.over.is_none() && !matches!(outcome, LimitOutcome::Decided(Err(_), _)) {
                    asked.over = Some(Box::new((*denied, decider)));
                    return outcome;
                }
            }
        }
        if !alone {
            return outcome;
        }
        asked.silent = true;
        asked.decider = Some(decider);
        // No link of the chain has this number.
        LimitOutcome::Decided(result, usize::MAX)
    }

    /// Decides at this limit and the rest by places in line.
    #[cold]
    fn decide_in_line<'a>(
        &'a self,
        asked: &mut LayerRequest<'a>,
        rest: &'a [Arc<dyn DynLimit>],
        chain: Option<&LimitChain<'_>>,
        request: LimiterRequest<K>,
        index: usize,
    ) -> LimitOutcome {
        let Pass::InLine(line) = &mut asked.pass else { return LimitOutcome::Free };
        let mut outcome = match self.limiter.place(&request, (line.max_wait, line.max_waiting)) {
            Err(denied) => LimitOutcome::Decided(Err(denied), index),
            Ok((granted, place)) => {
                line.places.push(place);
                let mut others = LimitOutcome::Free;
                self.limiter.with(&request, &mut |limit| {
                    others = next(asked, rest, Some(&LimitChain { limit, before: chain, index }));
                });
                self.tighter(asked, granted, others, index)
            }
        };
        self.finish(asked, request, index, &mut outcome);
        outcome
    }

    /// Returns the outcome of the other limits, or of this one if it has fewer tokens left.
    fn tighter<'a>(
        &'a self,
        asked: &mut LayerRequest<'a>,
        granted: Granted,
        others: LimitOutcome,
        index: usize,
    ) -> LimitOutcome {
        match others {
            LimitOutcome::Decided(Ok(other), _) if other.remaining() >= granted.remaining() => {
                asked.also.extend(asked.decider.take().map(|decider| decider.policy));
                LimitOutcome::Decided(Ok(granted), index)
            }
            LimitOutcome::Free => LimitOutcome::Decided(Ok(granted), index),
            others => others,
        }
    }

    /// Returns the way to change the take of a granted request.
    #[cold]
    fn adjust(&self, request: LimiterRequest<K>, decided: bool) -> Adjust {
        let limiter = self.limiter.clone();
        Box::new(move |adjustment| {
            limiter.adjust(&request, adjustment);
            decided.then(|| limiter.peek(&request))
        })
    }
}
