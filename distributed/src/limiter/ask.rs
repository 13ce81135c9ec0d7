//! A request: a key, the tokens, the options, and every verb.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::timeout;
use tollgate::{AnyRule, Denied, Granted, Reason, Snapshot, ToKey};

use super::all_of::Request;
use super::distributed_limiter::{DistributedLimiter, Next};
use super::plan::SharedPlan;
use super::shared::SharedDecision;
use super::shared_rule::SharedRule;
use super::slots::Lookup;
use super::sourced::{Source, Sourced};
use crate::key::StoreKey;
use crate::law::amount::{Amount, StoreAnswer};
use crate::law::any_law::Law;
use crate::lease::gate::Gate;
use crate::lease::terms::TermsKind;
use crate::store::op::{Op, Store};

/// A request for tokens of a key: from [`DistributedLimiter::key`].
///
/// It is for one token, under the limiter's own rule. Options change that; a verb decides. The
/// value is `Copy` and takes nothing by itself: each verb decides anew.
///
/// # Options and verbs
///
/// | | calls of the store | [`n`](Self::n) | [`under`](Self::under) | [`within`](Self::within) |
/// |---|---|---|---|---|
/// | [`try_acquire_local`](Self::try_acquire_local) | none | all or none | the plan decides | waits 0 |
/// | [`ask`](Self::ask) | at most one | all or none | the plan decides | waits for that call, up to the deadline |
/// | [`acquire`](Self::acquire) | one after each wait | all of them | the plan decides | longest wait |
/// | [`refund`](Self::refund), [`charge`](Self::charge) | one in the background | they come back; they are spent | by the plan's rate | - |
/// | [`give_back`](Self::give_back) | one; two of a window | they come back | by the plan's rate | - |
/// | [`request`](Self::request) | none: [`ask_all_of`](crate::ask_all_of) has them | all or none | the plan decides | - |
/// | [`known`](Self::known) | none | - | as seen under the plan | - |
/// | [`peek`](Self::peek) | one | - | as seen under the plan | - |
///
/// # Examples
///
/// ```
/// use tollgate::Quota;
/// use tollgate_distributed::{DistributedLimiter, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new(|| 1_000_000);
/// let builder = DistributedLimiter::<String, _>::builder(Quota::per_hour(10), store);
/// let limiter = builder.name("uploads").build()?;
/// let gold = limiter.plan(Quota::per_hour(100))?;
/// let upload = limiter.key("ada").n(30).under(&gold);
/// assert_eq!(upload.ask().await?.remaining(), 70);
/// upload.refund();
/// assert_eq!(upload.known().remaining(), 100);
/// # Ok(())
/// # }
/// ```
#[must_use = "a request takes nothing before a verb"]
pub struct SharedAsk<'a, K, S, R, Q: ?Sized> {
    limiter: &'a DistributedLimiter<K, S, R>,
    key: &'a Q,
    n: u64,
    plan: Option<&'a SharedPlan<R>>,
    within: Duration,
}

impl<K, S, R, Q: ?Sized> Clone for SharedAsk<'_, K, S, R, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, S, R, Q: ?Sized> Copy for SharedAsk<'_, K, S, R, Q> {}

/// The verbs of one token, and of options that are not set.
impl<K, S, R> DistributedLimiter<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    /// Returns a request for a token of a key; see [`SharedAsk`].
    #[inline]
    pub fn key<'a, Q>(&'a self, key: &'a Q) -> SharedAsk<'a, K, S, R, Q>
    where
        Q: ToKey<K> + StoreKey + ?Sized,
    {
        SharedAsk { limiter: self, key, n: 1, plan: None, within: Duration::MAX }
    }

    /// Takes one of the tokens at hand, without a call; see [`SharedAsk::try_acquire_local`]. The
    /// first request of a key is refused, as no token is at hand: [`ask`](Self::ask) asks the
    /// store.
    #[inline]
    pub fn try_acquire_local<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q) -> SharedDecision {
        self.key(key).try_acquire_local()
    }

    /// Takes one token, by one call of the store if it is not at hand; see [`SharedAsk::ask`].
    pub async fn ask<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q) -> SharedDecision {
        self.key(key).ask().await
    }

    /// Waits for a token, and takes it; see [`SharedAsk::acquire`].
    pub async fn acquire<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q) -> SharedDecision {
        self.key(key).acquire().await
    }

    /// Gives back `n` tokens that were granted and not used; see [`SharedAsk::refund`].
    pub fn refund<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q, n: u64) {
        self.key(key).n(n).refund();
    }

    /// Takes `n` tokens that are already spent; see [`SharedAsk::charge`].
    pub fn charge<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q, n: u64) {
        self.key(key).n(n).charge();
    }

    /// Returns the tokens of a key as this process knows them, without a call; see
    /// [`SharedAsk::known`].
    pub fn known<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q) -> Snapshot {
        self.key(key).known()
    }

    /// Reads the bucket of a key by a call of the store, and takes nothing; see
    /// [`SharedAsk::peek`].
    ///
    /// # Errors
    ///
    /// [`Reason::Unavailable`] as of [`SharedAsk::peek`].
    pub async fn peek<Q>(&self, key: &Q) -> Result<Sourced<Snapshot>, Sourced<Denied>>
    where
        Q: ToKey<K> + StoreKey + ?Sized,
    {
        self.key(key).peek().await
    }
}

impl<'a, K, S, R, Q> SharedAsk<'a, K, S, R, Q>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
    Q: ToKey<K> + StoreKey + ?Sized,
{
    /// Sets the number of tokens; by default 1.
    #[inline]
    pub fn n(self, n: u64) -> Self {
        SharedAsk { n, ..self }
    }

    /// Sets the plan: a [`SharedPlan`] or `None`, by a reference or an option of one. Under `None`,
    /// as by default, the rule of the limiter decides.
    #[inline]
    pub fn under(self, plan: impl Into<Option<&'a SharedPlan<R>>>) -> Self {
        SharedAsk { plan: plan.into(), ..self }
    }

    /// Sets the longest wait of [`acquire`](Self::acquire); by default it is not bounded.
    #[inline]
    pub fn within(self, max_wait: Duration) -> Self {
        SharedAsk { within: max_wait, ..self }
    }

    /// Takes tokens that this process holds, all or none, without a call or a wait.
    ///
    /// A request of a key without a lease is refused, and a background call asks the store for the
    /// tokens. A later request finds them, about a round trip later, if the store has them. Tokens
    /// without a request are given back after a second, or after two horizons if that is longer. A
    /// new key beyond `max_keys` is refused with [`Reason::Full`].
    ///
    /// # Errors
    ///
    /// [`Denied`], with the place of the decision.
    #[inline(always)]
    pub fn try_acquire_local(self) -> SharedDecision {
        match self.limiter.at_hand(Some(self.key), self.n, self.plan) {
            Next::Decided(decision) => decision,
            Next::Ask(slot) => self.limiter.inner.want(&slot, self.n),
        }
    }

    /// Takes the tokens, all or none, by one call of the store if they are not at hand.
    ///
    /// The request waits for the answer, up to the [deadline](crate::DistributedBuilder::deadline),
    /// and never for tokens to be earned. Requests of one process for one key share a call. A
    /// future that is dropped gives its tokens back, as [`refund`](Self::refund) does.
    ///
    /// # Errors
    ///
    /// [`Denied`], with the place of the decision.
    pub async fn ask(self) -> SharedDecision {
        match self.limiter.at_hand(Some(self.key), self.n, self.plan) {
            Next::Decided(decision) => decision,
            Next::Ask(slot) => self.limiter.inner.ask(&slot, self.n).await,
        }
    }

    /// Waits for the tokens, and takes them, if they are there [within](Self::within) the longest
    /// wait.
    ///
    /// A refused request sleeps for its `retry_after`, at least 1 ms, and asks again. Requests are
    /// served in no order: a later one of any process may be first.
    ///
    /// # Errors
    ///
    /// [`Reason::Deadline`] as soon as the tokens would come later than the longest wait: its
    /// `retry_after` is the time until the same call may be granted. Others at once: for a request
    /// of more than the burst, and when the limiter is closed.
    pub async fn acquire(self) -> SharedDecision {
        let shared = &self.limiter.inner.shared;
        let begun = shared.now();
        loop {
            let denied = match self.ask().await {
                Ok(granted) => return Ok(granted),
                Err(denied) => denied,
            };
            let waited = Duration::from_nanos(shared.now().saturating_sub(begun));
            let left = self.within.saturating_sub(waited);
            match denied.retry_after() {
                None => return Err(denied),
                Some(_) if shared.closed.is_closed() => return Err(denied),
                Some(wait) if wait > left => {
                    let late = Some(wait - left);
                    let late = Denied::from_parts(Reason::Deadline, self.n, denied.remaining(), late);
                    return Err(Sourced::new(late, denied.source()));
                }
                // The wait, or the end of the limiter.
                Some(wait) => {
                    let _ = timeout(wait.max(Duration::from_millis(1)), shared.closed.acquire()).await;
                }
            }
        }
    }

    /// Returns the request as one of several, for [`all_of`](crate::all_of) and
    /// [`ask_all_of`](crate::ask_all_of). It owns its key and its plan.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, Window};
    /// use tollgate_distributed::{DistributedLimiter, MemoryStore, ask_all_of};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new(|| 1_000_000);
    /// let users = DistributedLimiter::<String, _>::builder(Quota::per_second(5), store.clone());
    /// let users = users.name("users").build()?;
    /// let days = DistributedLimiter::<String, _>::builder(Window::per_day(100).utc(), store);
    /// let days = days.name("days").build()?;
    /// let gold = days.plan(Window::per_day(500).utc())?;
    /// let day = days.key("ada").under(&gold).request();
    /// // One round trip.
    /// let granted = ask_all_of(&[users.key("ada").request(), day.clone()]).await?;
    /// assert_eq!(granted.map(|granted| granted.remaining()), Some(4));
    /// assert_eq!(ask_all_of(&[day]).await?.map(|granted| granted.remaining()), Some(498));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "a request takes nothing before a verb"]
    pub fn request(self) -> Request {
        self.limiter.request_of(Some(self.key.to_key()), self.n, self.plan.cloned())
    }

    /// Gives back tokens that were granted and not used.
    ///
    /// They are at hand for the next requests of this process, up to the burst and the debt
    /// together. After a second without a request they go to the store; in the exact mode they go
    /// there at once. Of a window come back at most as many as the process was granted in it and
    /// has used: those of a window that is over are lost.
    pub fn refund(self) {
        self.limiter.give_back(Some(self.key), self.n, self.plan);
    }

    /// Takes tokens that are already spent, such as those of a request that cost more than it took.
    ///
    /// Tokens at hand are taken at once, and the others from the store by a call in the background.
    /// The bucket may go into debt for them, by one burst at most; a charge beyond that is lost. A
    /// window may count up to its limit more; a charge that no call has told the store before the
    /// window ends is dropped.
    pub fn charge(self) {
        self.limiter.take_spent(Some(self.key), self.n, self.plan);
    }

    /// Gives back tokens by a call of the store, whichever process was granted them, and returns
    /// the level after it.
    ///
    /// [`refund`](Self::refund) takes back what this process was granted, and its caller waits for
    /// no call. This is for tokens of another process, and for a level that has to be right at
    /// once. A bucket takes them up to its burst, and a window at most as many as are used in it:
    /// those of a window that ends meanwhile are lost. Of a window it is two calls, as the first
    /// one tells which window runs. Another process that has refused the key asks the store
    /// again when it would have without this.
    ///
    /// # Errors
    ///
    /// [`Reason::Unavailable`] as of [`peek`](Self::peek). The tokens may have gone back then.
    pub async fn give_back(self) -> Result<Sourced<Snapshot>, Sourced<Denied>> {
        let back = -i64::try_from(self.n).unwrap_or(i64::MAX);
        let is_window = matches!(self.rule(), AnyRule::Window(_));
        let of_us = if is_window { self.look(Amount::default()).await?.1.edge_us } else { 0 };
        let (key, n, slots) = (self.key, self.n, &self.limiter.inner.slots);
        let (seen, _) = self.look(Amount { max: back, of_us, ..Amount::default() }).await?;
        slots.put_back(&Lookup(Some(key)), n);
        Ok(seen)
    }

    /// Returns the tokens of the key as this process knows them, without a call: those at hand, and
    /// those that the store had at its last answer.
    ///
    /// A key that this process does not keep has a full bucket.
    pub fn known(self) -> Snapshot {
        Snapshot::from(self.limiter.look(Some(self.key), self.rule()))
    }

    fn rule(&self) -> AnyRule {
        self.plan.map_or_else(|| self.limiter.rule(), SharedPlan::rule).into()
    }

    /// Reads the bucket of the key by a call of the store, and takes nothing.
    ///
    /// Tokens that processes hold count as taken.
    ///
    /// # Errors
    ///
    /// [`Reason::Unavailable`] if the call fails or has no answer within the deadline, and at once
    /// while the breaker is open.
    pub async fn peek(self) -> Result<Sourced<Snapshot>, Sourced<Denied>> {
        Ok(self.look(Amount::default()).await?.0)
    }

    /// Reads the bucket by a call that takes no token.
    async fn look(self, amount: Amount) -> Result<(Sourced<Snapshot>, StoreAnswer), Sourced<Denied>> {
        let inner = &self.limiter.inner;
        let shared = &inner.shared;
        if inner.gate_under(self.plan) != Gate::Counted {
            return Ok((Sourced::new(self.known(), Source::Lease), StoreAnswer::default()));
        }
        let (key, terms) = (self.limiter.stored(Some(self.key)), inner.terms_under(self.plan));
        let unavailable = || {
            let rtt = shared.lane(&key).rtt();
            let denied = Denied::from_parts(Reason::Unavailable, 0, 0, Some(rtt));
            Sourced::new(denied, Source::Store)
        };
        let law: Law = match &terms.kind {
            TermsKind::Bucket(bucket) => bucket.spec.into(),
            TermsKind::Window(window) => shared.spec_of(*window).ok_or_else(unavailable)?.into(),
        };
        let mut ops = [Op::new(&key, law, amount)];
        let called = match shared.is_away(&key) {
            true => None,
            false => timeout(shared.deadline, shared.store.acquire(&mut ops)).await.ok(),
        };
        if let Some(Err(error)) = &called {
            shared.report_permanent(error);
        }
        if !matches!(called, Some(Ok(()))) {
            return Err(unavailable());
        }
        let (left, reset) = law.level(ops[0].answer);
        let seen = Snapshot::from(Granted::from_parts(0, left, reset));
        Ok((Sourced::new(seen, Source::Store), ops[0].answer))
    }
}

/// Never prints the key.
impl<K, S, R, Q: ?Sized> fmt::Debug for SharedAsk<'_, K, S, R, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedAsk").field("n", &self.n).field("within", &self.within).finish_non_exhaustive()
    }
}
