//! The options of a limiter.

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, mpsc};
use tollgate::{Clock, Quota, RateLimiter};

use super::counters::Counters;
use super::distributed_limiter::{DistributedLimiter, Inner};
use super::keeper::Keeper;
use super::plan::Plans;
use super::report::Reported;
use super::shared::Shared;
use super::shared_rule::SharedRule;
use super::slot::key_state::KeyState;
use super::slots::Slots;
use crate::key::StoreKey;
use crate::law::spec::InvalidSpec;
use crate::lease::terms::{Leasing, Terms};
use crate::outage::policy::OnOutage;
use crate::store::op::Store;

/// The longest name, in bytes. With it, the digest of a key fits into [`MAX_KEY`](crate::MAX_KEY)
/// bytes.
const MAX_NAME: usize = 64;

/// The longest horizon of a lease. Tokens mature within that time. So the clock of a lease goes
/// back by less than the 4 s that a bucket takes for a stale reading.
const MAX_HORIZON: Duration = Duration::from_secs(1);

/// The options of a [`DistributedLimiter`].
///
/// By default the limiter takes leases for 100 ms and waits 50 ms for the store. During an outage
/// each process then grants up to the whole quota.
#[must_use = "`.build()` makes the limiter"]
pub struct DistributedBuilder<K, S, R = Quota> {
    rule: R,
    store: S,
    name: String,
    clock: Clock,
    /// The time of a lease; `None` in the exact mode.
    horizon: Option<Duration>,
    least_lease: u64,
    deadline: Duration,
    probes: (Duration, Duration),
    on_outage: OnOutage,
    max_keys: usize,
    max_waiting: usize,
    local: Option<Quota>,
    key: PhantomData<fn(K)>,
}

/// An option of a limiter that is out of its bounds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InvalidOption {
    /// The store cannot count the rule.
    Spec(InvalidSpec),
    /// The name is missing or empty, longer than 64 bytes, or has a `:`.
    Name(String),
    /// The share of [`OnOutage::Local`] is not above 0 and at most 1.
    Share(f64),
    /// A time is out of its bounds: its name, its value, and the least and the greatest time.
    Time(&'static str, Duration, Duration, Duration),
    /// The limiter was not built inside of a tokio runtime, which runs the background task.
    NoRuntime,
}

impl<K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static, S: Store> DistributedLimiter<K, S> {
    /// Returns the options of a limiter whose buckets, or windows, are in a store.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Window;
    /// use tollgate_distributed::{DistributedLimiter, MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new(|| 1_767_225_600_000_000);
    /// let daily = DistributedLimiter::<String, _>::builder(Window::per_day(1_000).utc(), store);
    /// let daily = daily.name("daily").build()?;
    /// assert_eq!(daily.key("ada").n(400).ask().await?.remaining(), 600);
    /// let gold = daily.plan(Window::per_day(5_000).utc())?;
    /// // The plan has the same count.
    /// assert_eq!(daily.key("ada").n(100).under(&gold).ask().await?.remaining(), 4_500);
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder<R: SharedRule>(rule: R, store: S) -> DistributedBuilder<K, S, R> {
        DistributedBuilder {
            rule,
            store,
            name: String::new(),
            clock: Clock::new(),
            horizon: Some(Duration::from_millis(100)),
            least_lease: 1,
            deadline: Duration::from_millis(50),
            probes: (Duration::from_millis(100), Duration::from_millis(500)),
            on_outage: OnOutage::Local { share: 1.0 },
            max_keys: 100_000,
            max_waiting: 65_536,
            local: None,
            key: PhantomData,
        }
    }
}

impl<K, S, R> DistributedBuilder<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    /// Names the limiter: 1 to 64 bytes without a `:`. Each limiter needs a name. A key is stored
    /// behind it, so limiters of one name on one store share their buckets.
    pub fn name(self, name: impl Into<String>) -> Self {
        DistributedBuilder { name: name.into(), ..self }
    }

    /// Asks the store for the tokens of each request, and takes no leases.
    ///
    /// In any interval of length `t` the fleet is granted at most `burst + rate * t` tokens. Tokens
    /// of a late answer, of a dropped request and of a refund go back to the store at once: they
    /// are not granted from here while the bucket refills. A request that does not wait
    /// ([`try_acquire_local`](DistributedLimiter::try_acquire_local)) is granted tokens that the
    /// store granted up to a second before: for it alone each process adds at most the tokens of
    /// one request.
    ///
    /// A request for tokens that cannot be there is refused without a call, for up to a second.
    ///
    /// A [window](tollgate::Window) grants the fleet at most its limit in each window by the clock
    /// of the store: with late and lost answers, and through a change of the limit. A request of
    /// more than the tokens left is refused without a call until the window ends. But one request
    /// asks the store again after 2 s, when the idle leases of other processes have come back.
    pub fn exact(self) -> Self {
        DistributedBuilder { horizon: None, ..self }
    }

    /// Takes leases for `horizon`, from 10 ms to 1 s. This is the default, with 100 ms. Zero is an
    /// error: [`exact`](Self::exact) takes no leases.
    ///
    /// A process calls the store about once in this time for each busy key. From the first use of a
    /// bucket on, the fleet is granted at most `burst + rate * t` tokens in `t`, and a token's
    /// rounding. In a later interval it may also be granted the tokens that leases held unused at
    /// its start: of each process at most `rate * horizon` and a token, and the tokens of late
    /// answers, dropped requests and refunds of the last second or two horizons.
    ///
    /// Tokens of a [window](tollgate::Window) end with it, so the fleet is granted at most the
    /// limit in each window. It may be granted less, by the tokens that leases hold unused at the
    /// end: of each process at most those that it uses in a horizon. A lease takes at most half of
    /// the tokens left. The horizon is at most a fourth of the window, or of the sub-window of a
    /// sliding one; one that is shorter than 10 ms by that is the [exact](Self::exact) mode.
    pub fn leased(self, horizon: Duration) -> Self {
        DistributedBuilder { horizon: Some(horizon), ..self }
    }

    /// Sets the fewest tokens of a lease; by default 1. A process whose demand for a key is less in
    /// a horizon asks the store for each of its requests, as in the [exact](Self::exact) mode.
    ///
    /// Leases save calls from some 20 tokens on. Below that they keep tokens from other processes,
    /// and a `remaining` of one process does not count what the others hold. It has no effect in
    /// the exact mode. 0 is the same as 1.
    pub fn least_lease(self, tokens: u64) -> Self {
        DistributedBuilder { least_lease: tokens.max(1), ..self }
    }

    /// Sets a limit of this process in front of the shared one. It refuses without a call. Its
    /// tokens stay taken if the shared limit refuses.
    pub fn local_first(self, quota: Quota) -> Self {
        DistributedBuilder { local: Some(quota), ..self }
    }

    /// Sets the longest wait of a request for a call of the store, from 1 ms to 10 s. The default
    /// is 50 ms.
    pub fn deadline(self, deadline: Duration) -> Self {
        DistributedBuilder { deadline, ..self }
    }

    /// Sets the policy while the store does not answer. The default is `Local { share: 1.0 }`.
    pub fn on_outage(self, policy: OnOutage) -> Self {
        DistributedBuilder { on_outage: policy, ..self }
    }

    /// Sets the pause before the first probe of a store that does not answer, and the longest pause
    /// before a later one: 1 ms to 1 h, and `first <= last`. The defaults are 100 and 500 ms. The
    /// pause doubles with each probe, and its jitter shortens it by up to a half. Limiters on one
    /// handle of a store share its probes: the pauses are those of the limiter that sends one.
    pub fn probes(self, first: Duration, last: Duration) -> Self {
        DistributedBuilder { probes: (first, last), ..self }
    }

    /// Sets the most keys that this process keeps, at about 2.4 KB each. The default is 100,000. Of
    /// a key without a request for some seconds only the level is kept, in about 0.3 KB, until its
    /// bucket is full: of at most as many keys.
    ///
    /// For a key beyond them, [`ask`](DistributedLimiter::ask) calls the store for each request,
    /// [`try_acquire_local`](DistributedLimiter::try_acquire_local) refuses with
    /// [`Reason::Full`](tollgate::Reason::Full), and a refund is lost. During an outage all such
    /// keys share one bucket of [`OnOutage::Local`].
    pub fn max_keys(self, max_keys: usize) -> Self {
        DistributedBuilder { max_keys, ..self }
    }

    /// Sets the most requests of this process that wait for the store at a time. The default is
    /// 65,536.
    ///
    /// A request beyond them is decided by the policy of an outage.
    pub fn max_waiting(self, max_waiting: usize) -> Self {
        DistributedBuilder { max_waiting, ..self }
    }

    /// Sets the clock of this process, for tests. The clock of the store is another one.
    pub fn clock(self, clock: Clock) -> Self {
        DistributedBuilder { clock, ..self }
    }

    /// Builds the limiter, and starts its background task.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`] names the option and its bounds. [`InvalidOption::NoRuntime`] outside of a
    /// tokio runtime.
    pub fn build(self) -> Result<DistributedLimiter<K, S, R>, InvalidOption> {
        let runtime = Handle::try_current().map_err(|_| InvalidOption::NoRuntime)?;
        self.check()?;
        let horizon = self.horizon.unwrap_or_default();
        let leasing = Leasing { horizon, least: self.least_lease };
        let terms = Terms::of_limiter(self.rule.into(), leasing, None).map_err(InvalidOption::Spec)?;
        let origin = self.clock.now();
        let local = self.local.map(|quota| {
            RateLimiter::<K>::builder(quota).max_keys(self.max_keys).clock(self.clock.clone()).build()
        });
        let lanes = self.store.lanes();
        let shared = Arc::new(Shared {
            store: self.store,
            name: self.name,
            clock: self.clock,
            origin,
            deadline: self.deadline,
            on_outage: self.on_outage,
            probes: self.probes,
            lanes,
            overflow: KeyState::default(),
            counters: Counters::default(),
            waiting: Arc::new(Semaphore::new(self.max_waiting.min(Semaphore::MAX_PERMITS))),
            process: std::process::id(),
            runtime: runtime.clone(),
            freed: Notify::new(),
            closed: Semaphore::new(0),
            reported: Reported::default(),
            store_ahead_us: AtomicU64::new(0),
        });
        let slots = Arc::new(Slots::new(self.max_keys));
        let (queue, waiting) = mpsc::unbounded_channel();
        let idle = (horizon * 2).max(Duration::from_secs(1));
        let keeper = Keeper::new(shared.clone(), slots.clone(), waiting, idle);
        let inner = Inner {
            shared,
            slots,
            queue,
            keeper: Mutex::new(Some(runtime.spawn(keeper.run()))),
            rule: Mutex::new((self.rule, Arc::new(terms))),
            plans: Plans::new(),
            leasing,
            local,
            without_room: AtomicU64::new(0),
        };
        Ok(DistributedLimiter { inner: Arc::new(inner) })
    }

    fn check(&self) -> Result<(), InvalidOption> {
        if self.name.is_empty() || self.name.len() > MAX_NAME || self.name.contains(':') {
            return Err(InvalidOption::Name(self.name.clone()));
        }
        if let OnOutage::Local { share } = self.on_outage
            && !(share > 0.0 && share <= 1.0)
        {
            return Err(InvalidOption::Share(share));
        }
        let (ms, ten, hour) = (Duration::from_millis(1), Duration::from_secs(10), Duration::from_secs(3_600));
        let horizon = self.horizon.unwrap_or(MAX_HORIZON);
        let times = [
            ("horizon", horizon, ms * 10, MAX_HORIZON),
            ("deadline", self.deadline, ms, ten),
            ("first probe", self.probes.0, ms, hour),
            ("last probe", self.probes.1, self.probes.0, hour),
        ];
        match times.into_iter().find(|(_, time, least, most)| !(least..=most).contains(&time)) {
            Some((name, time, least, most)) => Err(InvalidOption::Time(name, time, least, most)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidOption::Spec(spec) => spec.fmt(f),
            InvalidOption::Name(name) if name.is_empty() => {
                f.write_str("a limiter needs a name: limiters of one name on one store share their buckets")
            }
            InvalidOption::Name(name) => {
                write!(f, "the name {name:?} is not of 1 to {MAX_NAME} bytes without a \":\"")
            }
            InvalidOption::Share(share) => write!(f, "a share of {share} is not above 0 and at most 1"),
            InvalidOption::Time(name, time, least, most) => {
                write!(f, "a {name} of {time:?} is not between {least:?} and {most:?}")
            }
            InvalidOption::NoRuntime => f.write_str("a limiter is built inside of a tokio runtime"),
        }
    }
}

impl Error for InvalidOption {}

impl<K, S, R: SharedRule> fmt::Debug for DistributedBuilder<K, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedBuilder")
            .field("rule", &self.rule.into())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
