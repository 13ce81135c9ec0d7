//! The part of one limit in the decision of its layer.

use std::any::Any;
use std::future::ready;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::ban::{Ban, Bans};
use super::counts::{LimitCounters, LimitStats, count};
use super::dyn_limit::{Adjust, Adjustment, DynLimit};
use super::limit_by::{LimitBy, OnMissingKey};
use super::limiter::{Answer, AnswerFuture, LayerRequest, Sleep};
use super::part::{Asked, BucketOf, Lent, LentFuture, Part, Refund, Role, SearchFuture};
use super::reported::Reported;
use super::share::Share;
use crate::request::check::Check;
use crate::request::key::{Head, hash_of};
use crate::response::policy::Policy;
use tollgate::Clock;
use tollgate::Tokens;
use tollgate::{AnyRule, Denied, Granted, Moment, Reason};

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DynLimit for LimitBy<K> {
    fn new_bucket(&self) -> Box<dyn Any + Send + Sync> {
        Box::new(BucketOf::<K>::empty())
    }

    fn id(&self) -> usize {
        self.limiter.id()
    }

    fn has_search(&self) -> bool {
        self.find_key.is_some()
    }

    fn is_at_hand(&self) -> bool {
        self.at_hand
    }

    fn has_bans(&self) -> bool {
        self.bans.is_some()
    }

    fn has_shadow(&self) -> bool {
        self.enforced != Share::ALL
    }

    fn search(&self, head: Head<'_>) -> Option<SearchFuture> {
        let find = self.find_key.as_ref()?;
        self.applies_to(head).then(|| find(head))
    }

    #[inline(always)]
    fn find(
        &self,
        head: Head<'_>,
        counted: &[usize],
        reported: &Reported,
        part: &mut Part<'_>,
    ) -> Result<(), Option<Check>> {
        if !self.applies_to(head) {
            return Ok(());
        }
        let key = match &self.find_key {
            None => self.key.key_from(head),
            Some(_) => part.found().and_then(|found| *found.downcast::<Option<K>>().ok()?),
        };
        let bucket = part.bucket_mut();
        bucket.key = key;
        if !counted.is_empty() && counted.contains(&self.limiter.id()) {
            return Ok(());
        }
        part.role = match &bucket.key {
            Some(key) => {
                if let Some(choose) = &self.plan {
                    bucket.plan = choose(head);
                }
                self.role_for(key)
            }
            None => {
                self.count_keyless(head, reported);
                match self.missing {
                    OnMissingKey::Share if self.enforced == Share::NONE => Role::Shadow,
                    OnMissingKey::Share => Role::Enforced,
                    OnMissingKey::Allow => Role::Absent,
                    // In shadow mode the limit refuses no request.
                    OnMissingKey::Reject if self.enforced == Share::NONE => Role::Absent,
                    OnMissingKey::Reject => return Err(self.key.check(head)),
                }
            }
        };
        Ok(())
    }

    fn hash(&self, part: &Part<'_>) -> u64 {
        part.bucket::<K>().key.as_ref().map_or(0, hash_of)
    }

    fn check_ban(&self, part: &Part<'_>) -> Option<Denied> {
        self.bans.as_ref()?.check(part.bucket().key.as_ref()?)
    }

    fn ask(&self, part: &Part<'_>, n: u64) -> Asked {
        match self.limiter.take(self.request(part, n)) {
            Answer::Now(Ok(granted)) => Asked::Now((Ok(granted), Some(Lent::new(self.refund(part, n))))),
            Answer::Now(Err(denied)) => Asked::Now((Err(denied), None)),
            Answer::Later(answer) => Asked::Later(self.lent_by(part, n, answer)),
            Answer::Together(question) if part.role == Role::Enforced => {
                Asked::Together(question, self.refund(part, n))
            }
            // A refusal in shadow mode takes nothing from the other limits.
            Answer::Together(question) => Asked::Later(self.lent_by(part, n, question.ask_alone())),
        }
    }

    #[inline(always)]
    fn take(&self, part: &Part<'_>, n: u64) -> Result<Granted, Denied> {
        match self.limiter.take(self.request(part, n)) {
            Answer::Now(decision) => decision,
            // The limiter says that it is at hand.
            Answer::Later(_) | Answer::Together(_) => {
                Err(Denied::from_parts(Reason::Unavailable, n, 0, None))
            }
        }
    }

    fn clock(&self) -> Clock {
        self.limiter.clock()
    }

    fn look(&self, part: &Part<'_>, n: u64) -> Option<Denied> {
        let known = self.limiter.peek(self.request(part, n));
        let (left, wait) = (known.remaining(), known.time_to(n));
        let reason = if wait.is_some() { Reason::Empty } else { Reason::TooMany };
        (left < n).then(|| Denied::from_parts(reason, n, left, wait))
    }

    fn with_tokens(&self, part: &Part<'_>, n: u64, then: &mut dyn FnMut(&dyn Tokens)) {
        self.limiter.with_tokens(self.request(part, n), then);
    }

    fn wait(&self, part: &Part<'_>, n: u64, max_wait: Duration, sleep: &Sleep) -> LentFuture {
        let answer: AnswerFuture = match &self.line {
            Some(line) => line.wait(self.request(part, n), max_wait, sleep.clone()),
            None => Box::pin(ready(self.take(part, n))),
        };
        self.lent_by(part, n, answer)
    }

    #[inline(always)]
    fn policy(&self, part: &Part<'_>) -> Arc<Policy> {
        self.policy_of(self.limiter.rule(part.bucket::<K>().plan.as_ref()))
    }

    #[inline(always)]
    fn refused(&self, part: &Part<'_>, n: u64, denied: &mut Denied, banned: bool) -> (Arc<Policy>, Ban) {
        let mut policy = self.policy(part);
        let key = part.bucket().key.as_ref();
        if let Some(key) = key {
            if policy.spread > 0 {
                policy = Arc::new(policy.for_key(hash_of(key)));
            }
            self.top.note(key);
        }
        let ban = match (banned, key) {
            (true, _) => Ban::Refuses,
            (false, Some(key)) => self.strike(key, n, &policy, denied),
            (false, None) => Ban::None,
        };
        if let Some(see) = &self.see_refusal {
            see(key, &policy, denied, ban);
        }
        (policy, ban)
    }

    fn adjust(&self, part: &Part<'_>, decided: bool) -> Adjust {
        let (limiter, bucket) = (self.limiter.clone(), part.bucket::<K>().clone());
        let window = matches!(limiter.rule(bucket.plan.as_ref()), AnyRule::Window(_));
        // The tokens of a window that has ended are there again, and do not come back twice.
        let window = window.then(|| {
            let (clock, left) = (limiter.clock(), limiter.peek(bucket.request(0)).reset_after());
            (clock.now(), left, clock)
        });
        Box::new(move |adjustment| {
            let has_ended =
                |(taken, left, clock): &(Moment, Duration, Clock)| clock.now().since(*taken) >= *left;
            match adjustment {
                Adjustment::Refund(_) if window.as_ref().is_some_and(has_ended) => {}
                Adjustment::Refund(n) => limiter.refund(bucket.request(n)),
                Adjustment::Charge(n) => limiter.charge(bucket.request(n)),
            }
            decided.then(|| limiter.peek(bucket.request(0)))
        })
    }

    #[inline(always)]
    fn counters(&self) -> &Arc<LimitCounters> {
        &self.counters
    }

    fn examine(&self, head: Head<'_>, reported: &Reported) {
        if let Some(check) = self.key.check(head) {
            reported.report(self.policy.name(), check);
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
    #[inline(always)]
    fn request<'a>(&self, part: &'a Part<'_>, n: u64) -> LayerRequest<'a, K> {
        part.bucket().request(n)
    }

    #[inline]
    fn applies_to(&self, head: Head<'_>) -> bool {
        self.applies.as_ref().is_none_or(|applies| applies(head))
    }

    #[inline]
    fn role_for(&self, key: &K) -> Role {
        match self.enforced == Share::ALL || self.enforced.contains(hash_of(key)) {
            true => Role::Enforced,
            false => Role::Shadow,
        }
    }

    /// Counts a request without a key. The 1st, 2nd, 4th, 8th and so on are examined for faults.
    #[cold]
    fn count_keyless(&self, head: Head<'_>, reported: &Reported) {
        if count(&self.counters.keyless).is_power_of_two() {
            self.examine(head, reported);
        }
    }

    /// Lends the tokens of an answer: they go back unless they are spent.
    fn lent_by(&self, part: &Part<'_>, n: u64, answer: AnswerFuture) -> LentFuture {
        let refund = self.refund(part, n);
        Box::pin(async move {
            let decision = answer.await;
            (decision, decision.is_ok().then(|| Lent::new(refund)))
        })
    }

    /// Returns the refund of granted tokens.
    fn refund(&self, part: &Part<'_>, n: u64) -> Refund {
        let (limiter, bucket) = (self.limiter.clone(), part.bucket::<K>().clone());
        Box::new(move || limiter.refund(bucket.request(n)))
    }

    /// Counts a refused key for a ban, which makes its wait longer.
    #[inline]
    fn strike(&self, key: &K, n: u64, policy: &Policy, denied: &mut Denied) -> Ban {
        match &self.bans {
            None => Ban::None,
            Some(bans) => self.strike_for(bans, key, n, policy, denied),
        }
    }

    #[cold]
    fn strike_for(&self, bans: &Bans<K>, key: &K, n: u64, policy: &Policy, denied: &mut Denied) -> Ban {
        let counts = match denied.reason() {
            Reason::TooMany => true,
            Reason::Unavailable => false,
            Reason::Full => bans.is_over_own(key, policy.rule(), n),
            // A key without an entry was refused by a bucket that other keys emptied.
            _ => self.limiter.contains(key) || bans.is_over_own(key, policy.rule(), n),
        };
        match if counts { bans.strike(key) } else { None } {
            Some(banned) => {
                *denied = banned;
                Ban::Begins
            }
            None => Ban::None,
        }
    }
}
