//! Settings shared by both builders.

use std::fmt;

use crate::bucket::engine::Engine;
use crate::keyed::keyspace::{Keyspace, KeyspaceOptions};
use crate::keyed::overflow::WhenFull;
use crate::keyed::table::Table;
use crate::limiter::hook::{DecisionHook, HookFn};
use crate::limiter::rule::Rule;
use crate::rule::error::InvalidRule;
use crate::rule::layout::LayoutOptions;
use crate::rule::rate::Quota;
use crate::time::clock::Clock;
use crate::time::jitter::Jitter;

/// The settings of both builders.
#[derive(Clone)]
pub(crate) struct Settings<R: Rule> {
    pub(crate) rule: R,
    pub(crate) room: R::Room,
    pub(crate) clock: Clock,
    pub(crate) initial: Option<u64>,
    pub(crate) shadow: bool,
    pub(crate) hook: Option<HookFn>,
    pub(crate) jitter: Jitter,
    /// Most callers that wait in a line.
    pub(crate) max_waiting: usize,
}

impl<R: Rule> Settings<R> {
    pub(crate) fn new(rule: R) -> Settings<R> {
        Settings {
            rule,
            room: rule.room(),
            clock: Clock::new(),
            initial: None,
            shadow: false,
            hook: None,
            jitter: Jitter::NONE,
            max_waiting: usize::MAX,
        }
    }

    pub(crate) fn finish(self) -> (R::Built, Engine, DecisionHook) {
        let Settings { rule, room, clock, initial, shadow, hook, .. } = self;
        let (built, engine) = rule.engine(room, clock, initial);
        engine.clock.calibrate();
        (built, engine, DecisionHook::new(shadow, hook))
    }
}

impl Settings<Quota> {
    pub(super) fn set_max_debt(&mut self, tokens: u64) -> Result<(), InvalidRule> {
        let options = LayoutOptions { max_debt: Some(tokens), ..self.room.options };
        Ok(self.room.set(self.rule, options)?)
    }
}

impl<R: Rule> fmt::Debug for Settings<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("rule", &format_args!("{}", self.rule))
            .field("room", &self.room)
            .field("clock", &self.clock)
            .field("initial", &self.initial)
            .field("shadow", &self.shadow)
            .field("hook", &self.hook.is_some())
            .field("jitter", &self.jitter)
            .field("max_waiting", &self.max_waiting)
            .finish()
    }
}

/// Default bound on the keys of a limiter.
const DEFAULT_MAX_KEYS: usize = 1 << 20;
/// Largest bound on the keys of a limiter: a ticket identifies a key by 32 bits. So no `usize` of
/// 32 bits is over it.
const MAX_KEYS: usize = if usize::BITS > 32 { 1 << 32 } else { usize::MAX };
/// Largest number of keys for which memory is allocated at once: 6 GB of a table, or 0.4 GB where
/// an address has 32 bits.
const MAX_AT_ONCE: usize = if usize::BITS > 32 { 1 << 28 } else { 1 << 24 };

/// Settings of a limiter's keys.
#[derive(Clone)]
pub(crate) struct KeySettings<S> {
    pub(crate) hasher: S,
    pub(crate) max_keys: usize,
    /// Whether the keys are in a table, and not in a map.
    pub(crate) inline: bool,
    pub(crate) when_full: WhenFull,
    pub(crate) presize: usize,
}

impl<S: Default> Default for KeySettings<S> {
    fn default() -> KeySettings<S> {
        KeySettings {
            hasher: S::default(),
            max_keys: DEFAULT_MAX_KEYS,
            inline: false,
            when_full: WhenFull::default(),
            presize: 0,
        }
    }
}

impl<S> KeySettings<S> {
    pub(crate) fn hasher<H>(self, hasher: H) -> KeySettings<H> {
        let KeySettings { max_keys, inline, when_full, presize, hasher: _ } = self;
        KeySettings { hasher, max_keys, inline, when_full, presize }
    }

    pub(crate) fn max_keys(self, keys: usize) -> KeySettings<S> {
        KeySettings { max_keys: keys, ..self }
    }

    pub(crate) fn inline(self) -> Result<KeySettings<S>, InvalidRule> {
        InvalidRule::check_keys(self.max_keys, MAX_AT_ONCE)?;
        InvalidRule::check_keys(self.max_keys, Table::most(self.max_keys))?;
        Ok(KeySettings { inline: true, ..self })
    }

    pub(crate) fn presize(self, keys: usize) -> Result<KeySettings<S>, InvalidRule> {
        InvalidRule::check_keys(keys, MAX_AT_ONCE)?;
        Ok(KeySettings { presize: keys, ..self })
    }

    pub(crate) fn keyspace<K>(self, engine: Engine) -> (Keyspace<K>, S) {
        let KeySettings { hasher, max_keys, inline, when_full, presize } = self;
        let max_keys = max_keys.min(if inline { MAX_AT_ONCE } else { MAX_KEYS });
        let options = KeyspaceOptions { engine, inline, presize, max_keys, when_full };
        (Keyspace::new(options), hasher)
    }
}

impl<S> fmt::Debug for KeySettings<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySettings")
            .field("max_keys", &self.max_keys)
            .field("inline", &self.inline)
            .field("when_full", &self.when_full)
            .field("presize", &self.presize)
            .finish_non_exhaustive()
    }
}

/// The setters that both builders have.
macro_rules! common_setters {
    () => {
        /// Sets the clock of all decisions; by default the [processor's counter](Clock::new).
        pub fn clock(self, clock: Clock) -> Self {
            Self { settings: Settings { clock, ..self.settings }, ..self }
        }

        /// Makes room for a later rule: [`set_rule`](Limit::set_rule) may go up to it, and so may
        /// most plans. Called again, it makes room for each of the rules.
        ///
        /// A plan counts by the ticks of the limiter's own rate, of which its burst needs at least
        /// 128. One that is hundreds of times as fast is refused in spite of the headroom. Build
        /// such a limiter by the fastest quota, and make the slower ones plans.
        ///
        /// Of a quota that is its rate and its burst, and of a window its limit. The word has 64
        /// bits, so this costs precision. A tick is then the fraction of a token that fits the
        /// faster rate and the larger burst of both quotas, and a sliding window has fewer
        /// sub-windows. [`Quota::UNLIMITED`] and [`Quota::BLOCKED`] need no room.
        ///
        /// # Errors
        ///
        /// [`InvalidRule`] if no word holds both rules, or `later` is not the same window with
        /// another limit.
        ///
        /// # Examples
        ///
        /// ```
        /// use tollgate::{Quota, TokenBucket};
        ///
        /// let (night, day) = (Quota::per_second(1_000_000), Quota::per_second(100));
        /// let bucket = TokenBucket::builder(day).headroom(night)?.build();
        /// bucket.set_rule(night)?;
        /// assert_eq!(bucket.rule(), night);
        ///
        /// let error = TokenBucket::new(day).set_rule(night).unwrap_err();
        /// assert!(error.to_string().starts_with("a burst of 1000000 is over the bound of 155 tokens"));
        /// # Ok::<(), tollgate::InvalidRule>(())
        /// ```
        pub fn headroom(mut self, later: R) -> Result<Self, InvalidRule> {
            self.settings.rule.make_headroom(&mut self.settings.room, later)?;
            self.tried()
        }

        /// Sets shadow mode, in which no request is refused and no caller waits.
        ///
        /// The [hook](Self::on_decision) sees the overruled refusals, and they are counted. A
        /// decision costs about as much more as with a hook.
        ///
        /// # Examples
        ///
        /// ```
        /// use tollgate::{Quota, TokenBucket};
        ///
        /// let bucket = TokenBucket::builder(Quota::per_hour(1)).shadow(true).build();
        /// assert!(bucket.try_acquire().is_ok());
        /// assert!(bucket.try_acquire().is_ok());
        /// assert_eq!(bucket.overruled(), 1);
        /// ```
        pub fn shadow(self, shadow: bool) -> Self {
            Self { settings: Settings { shadow, ..self.settings }, ..self }
        }

        /// Sets a function that sees every decision, before shadow mode overrules it.
        ///
        /// The function runs in the call that asked. Of an [`all_of`](crate::all_of) it sees the
        /// takes and refusals, but not the undone takes. Of an `acquire_up_to` that takes some of
        /// the tokens, it sees the tokens taken.
        ///
        /// With an empty function a decision on a known key takes 1.6 times the instructions of one
        /// without, and on one bucket 2.5 times. The caller waits for the function, so it should be
        /// short. It may use other limiters. A panic of it goes on in the caller. A reservation, a
        /// hold and the takes of an `all_of` are then undone. The tokens of any other take stay
        /// taken.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::sync::Arc;
        /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
        /// use tollgate::{Quota, TokenBucket};
        ///
        /// let denied = Arc::new(AtomicU64::new(0));
        /// let count = denied.clone();
        /// let bucket = TokenBucket::builder(Quota::per_hour(1))
        ///     .on_decision(move |decision| {
        ///         count.fetch_add(u64::from(decision.is_err()), Relaxed);
        ///     })
        ///     .build();
        /// let _ = (bucket.try_acquire(), bucket.try_acquire());
        /// assert_eq!(denied.load(Relaxed), 1);
        /// ```
        pub fn on_decision(self, hook: impl Fn(&Result<Granted, Denied>) + Send + Sync + 'static) -> Self {
            Self { settings: Settings { hook: Some(Arc::new(hook)), ..self.settings }, ..self }
        }
    };
}

/// The setters of both builders that are of quotas only.
macro_rules! quota_setters {
    () => {
        /// Sets the largest debt in tokens, from 0 to 2^40.
        ///
        /// Debt is promised ahead by `reserve`, or to the callers in line, or owed after a
        /// [`settle`](crate::Hold::settle). Callers in line beyond it wait without a promise. With
        /// a debt below its cost, a plain take may pass the first caller in line.
        ///
        /// The default is one burst of the quota in force, at most the larger burst for which the
        /// bucket was built. It is the tokens of 10 ms if these are more, as far as the word keeps
        /// a range of 13 days, and 0 if no word has room for a burst.
        ///
        /// # Errors
        ///
        /// [`InvalidRule`] if no word holds the burst and the debt.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::time::Duration;
        /// use tollgate::{Clock, Quota, Reason, TokenBucket};
        ///
        /// let (clock, _mock) = Clock::mock();
        /// let builder = TokenBucket::builder(Quota::per_second(10)).max_debt(3)?;
        /// let bucket = builder.initial_tokens(0).clock(clock).build();
        /// assert_eq!(bucket.ask().n(3).reserve()?.commit().tokens(), 3);
        /// let denied = bucket.ask().reserve().unwrap_err();
        /// assert_eq!((denied.reason(), denied.retry_after()), (Reason::Debt, Some(Duration::from_millis(100))));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn max_debt(mut self, tokens: u64) -> Result<Self, InvalidRule> {
            self.settings.set_max_debt(tokens)?;
            self.tried()
        }

        /// Starts a new bucket with `tokens` tokens, at most a full bucket; by default it is full.
        ///
        /// A limiter may evict a key to make room, once its bucket has been full for 2 s. That key
        /// is new when it comes back. With no initial token, a key that is evicted between any two
        /// of its rare requests may never be granted one.
        pub fn initial_tokens(self, tokens: u64) -> Self {
            Self { settings: Settings { initial: Some(tokens), ..self.settings }, ..self }
        }

        /// Sets the most callers that wait in the line of a bucket; by default there is no bound.
        ///
        /// A further caller is refused at once, with [`Reason::Line`](crate::Reason::Line): its
        /// `retry_after` is the time until the first in line is served. A waiting caller takes
        /// about 64 bytes beside its task or thread. With 0 no caller waits.
        ///
        /// # Examples
        ///
        /// ```
        /// use tollgate::{Quota, Reason, TokenBucket};
        ///
        /// let bucket = TokenBucket::builder(Quota::per_hour(1)).max_waiting(0).build();
        /// assert!(bucket.ask().blocking_acquire().is_ok());
        /// let denied = bucket.ask().blocking_acquire().unwrap_err();
        /// assert_eq!(denied.reason(), Reason::Line);
        /// ```
        pub fn max_waiting(self, callers: usize) -> Self {
            Self { settings: Settings { max_waiting: callers, ..self.settings }, ..self }
        }

        /// Sets a random time that the waiting verbs add to each wait; by default none.
        pub fn jitter(self, jitter: Jitter) -> Self {
            Self { settings: Settings { jitter, ..self.settings }, ..self }
        }
    };
}
pub(crate) use {common_setters, quota_setters};
