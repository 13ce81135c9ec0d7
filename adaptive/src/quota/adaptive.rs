//! A quota that follows the latency of the answers, as a share of its ceiling.

use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use crate::controller::control_loop::ControlLoop;
use crate::controller::controllers::Fraction;
use crate::count::atomic_word::AtomicFlightWord;
use crate::signals::counters::Answered;
use crate::time::nanos_of;
use tollgate::InvalidRule;
use tollgate::Quota;
use tollgate::RateLimiter;
use tollgate::TokenBucket;

/// The parts of a ceiling: the unit of a share.
pub(super) const PARTS: u32 = 1 << 24;

/// A quota that follows the latency of the answers, for requests whose end no guard sees.
///
/// The limiter has a share of a ceiling quota: of its rate and, in proportion, of its burst. The
/// caller notes the outcomes. Once an interval, a thread that notes one may put another share in
/// force by `set_rule`, for all keys.
///
/// **The promise.** The quota is never above the ceiling nor below the floor. In an interval it
/// falls by half at most and rises by an eighth at most, whatever the controller decides. (A custom
/// controller may go back at once to the share before the latest falls:
/// [`Next::Return`](crate::Next::Return).)
///
/// A quota that is set by hand, by `set_rule` of the limiter, stays until the controller decides
/// for another share. That decision is dropped, and the controller goes on from the share that the
/// rate by hand has, within the floor and the ceiling.
///
/// The default controller keeps nine tenths of the answers within the target:
///
/// * Slower: the rate becomes 7/8 of the answers a second, at most 7/8 of the present rate.
/// * In time, and a request was refused: the rate rises by a sixteenth.
/// * No answer for four targets and an interval, and a request was refused: the rate falls by half.
///
/// The answers of all keys are counted together. With many keys they exceed the rate of one, so
/// each fall is to 7/8 of the present rate.
///
/// A limit on requests in flight ([`Inflight`](crate::Inflight)) is better wherever a guard can see
/// the end of a request. A queue drains only while fewer requests are admitted than answered. A
/// limit in flight ensures that, and a rate does not.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, RateLimiter};
/// use tollgate_adaptive::{Adaptive, Fraction};
///
/// let ceiling = Quota::per_second(1_000);
/// let (clock, mock) = Clock::mock();
/// let limiter = RateLimiter::<u64>::builder(ceiling).headroom(ceiling)?.clock(clock.clone()).build();
/// let adaptive = Adaptive::new(&limiter, ceiling)?
///     .floor(Fraction::new(1, 10))?
///     .target(Duration::from_millis(300))
///     .clock(clock)
///     .build()?;
/// // Four seconds of answers that take a second each.
/// for _ in 0..400 {
///     mock.advance(Duration::from_millis(10));
///     adaptive.answered(Duration::from_secs(1));
/// }
/// assert!(limiter.rule().tokens() == 1_000 && limiter.rule().period() > Duration::from_secs(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Adaptive {
    pub(super) control: ControlLoop,
    /// The share in force, in [`PARTS`]. The count of the word is not used.
    pub(super) word: AtomicFlightWord,
    pub(super) limiter: AdaptedLimiter,
    pub(super) ceiling: Quota,
    /// The share that the limiter was set to. Relaxed: it orders no other memory.
    pub(super) applied: AtomicU32,
    /// The quota that the limiter had then.
    pub(super) setting: Mutex<Quota>,
    /// Answers so far, samples or not.
    pub(super) answers: Arc<AtomicU64>,
}

impl Adaptive {
    /// Notes a request that was answered, `latency` after it was admitted.
    pub fn answered(&self, latency: Duration) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.note(latency, Answered::InTime);
    }

    /// Notes a request that failed by a lack of capacity, such as by 503 or a timeout, `after` it
    /// was admitted. It is a sample as slow as can be.
    pub fn overloaded(&self, after: Duration) {
        self.note(after, Answered::Overloaded);
    }

    /// Notes a request that failed for another reason. It is an answer, and no sample of latency.
    pub fn failed(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.note(Duration::ZERO, Answered::Failed);
    }

    /// Notes a request that the limiter refused. Without refusals the share does not rise.
    pub fn refused(&self) {
        self.control.signals.note_refused();
        self.control.tick(&self.word);
        self.apply();
    }

    fn note(&self, latency: Duration, answer: Answered) {
        let now = self.control.tick(&self.word);
        // An answer before the clock began is no sample.
        if let Some(start) = now.checked_sub(nanos_of(latency)) {
            let _ = self.control.record(now, start, Some(answer));
        }
        self.apply();
    }

    /// Sets the quota of the limiter if the share has changed. A thread waits only if the quota was
    /// set by hand, for the controller that another thread runs.
    #[inline]
    fn apply(&self) {
        if self.word.load().limit() != self.applied.load(Ordering::Relaxed) {
            self.put();
        }
    }

    #[cold]
    fn put(&self) {
        let mut setting = match self.setting.try_lock() {
            Ok(setting) => setting,
            // A clock that panicked is read again.
            Err(TryLockError::Poisoned(setting)) => setting.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let by_hand = self.limiter.quota();
        if by_hand != *setting {
            let parts = self.control.set_clamped(&self.word, parts_of(by_hand, self.ceiling));
            (*setting, _) = (by_hand, self.applied.store(parts, Ordering::Relaxed));
            return;
        }
        let parts = self.word.load().limit();
        // The floor and the ceiling fit into the limiter, so every quota between them does.
        if let Ok(quota) = part(self.ceiling, share(parts)) {
            let _ = self.limiter.set(quota);
            *setting = self.limiter.quota();
        }
        self.applied.store(parts, Ordering::Relaxed);
    }

    /// Returns the share of the ceiling that is in force.
    #[must_use]
    pub fn share(&self) -> Fraction {
        share(self.word.load().limit())
    }
}

impl fmt::Debug for Adaptive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive")
            .field("ceiling", &format_args!("{}", self.ceiling))
            .field("parts", &format_args!("{}/{PARTS}", self.word.load().limit()))
            .finish_non_exhaustive()
    }
}

fn share(parts: u32) -> Fraction {
    Fraction::new(parts, PARTS)
}

/// Returns a share of a quota: of its rate, and of its burst.
///
/// The rate is rounded down, by a millionth at most, and the burst up, to at least 1.
pub(super) fn part(ceiling: Quota, share: Fraction) -> Result<Quota, InvalidRule> {
    if share >= Fraction::ALL {
        return Ok(ceiling);
    }
    let (tokens, nanos) = (ceiling.tokens(), nanos_of(ceiling.period()));
    let times = (1_u64 << 20).div_ceil(nanos);
    // Tokens are at most 1,000 a nanosecond: below 2^31 where `times` is above 1.
    let tokens = tokens.saturating_mul(times);
    // No burst is larger than 2^40: that many tokens, in a shorter period.
    let down = tokens.div_ceil(1 << 40).max(1);
    let parts = u128::from(share.0.max(1)) * u128::from(down);
    // Below 2^63 and 2^95.
    let nanos = ((u128::from(nanos) * u128::from(times)) << 32).div_ceil(parts);
    let burst = (u128::from(ceiling.capacity()) * u128::from(share.0)).div_ceil(1 << 32).max(1);
    let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
    // At most the ceiling's burst.
    Quota::try_per(tokens / down, Duration::from_nanos(nanos))?.try_burst(burst as u64)
}

/// Returns the rate of a quota in parts of the ceiling's rate, rounded down, at most all of them.
fn parts_of(quota: Quota, ceiling: Quota) -> u32 {
    // Each product is below 2^126.
    let rate = u128::from(quota.tokens()) * u128::from(nanos_of(ceiling.period()));
    let whole = u128::from(ceiling.tokens()) * u128::from(nanos_of(quota.period()));
    let parts = match rate.checked_mul(PARTS.into()) {
        Some(rate) => rate / whole,
        None => rate / (whole / u128::from(PARTS)).max(1),
    };
    parts.min(PARTS.into()) as u32
}

type SetQuota = Box<dyn Fn(Quota) -> Result<(), InvalidRule> + Send + Sync>;

/// A limiter whose quota an [`Adaptive`] sets: a [`RateLimiter`], or a [`TokenBucket`] in an `Arc`
/// or a `static`.
pub struct AdaptedLimiter {
    /// Checks that the words have room for a quota.
    check_room: SetQuota,
    set: SetQuota,
    /// Returns the quota in force.
    quota: Box<dyn Fn() -> Quota + Send + Sync>,
}

impl AdaptedLimiter {
    pub(super) fn check_room(&self, quota: Quota) -> Result<(), InvalidRule> {
        (self.check_room)(quota)
    }

    pub(super) fn set(&self, quota: Quota) -> Result<(), InvalidRule> {
        (self.set)(quota)
    }

    pub(super) fn quota(&self) -> Quota {
        (self.quota)()
    }
}

impl fmt::Debug for AdaptedLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptedLimiter").finish_non_exhaustive()
    }
}

impl<K, S> From<RateLimiter<K, Quota, S>> for AdaptedLimiter
where
    K: Hash + Eq + Send + Sync + 'static,
    S: Send + Sync + 'static,
{
    fn from(limiter: RateLimiter<K, Quota, S>) -> AdaptedLimiter {
        let (room, seen) = (limiter.clone(), limiter.clone());
        AdaptedLimiter {
            quota: Box::new(move || seen.rule()),
            check_room: Box::new(move |quota| room.check_rule(quota)),
            set: Box::new(move |quota| limiter.set_rule(quota)),
        }
    }
}

impl<K, S> From<&RateLimiter<K, Quota, S>> for AdaptedLimiter
where
    K: Hash + Eq + Send + Sync + 'static,
    S: Send + Sync + 'static,
{
    fn from(limiter: &RateLimiter<K, Quota, S>) -> AdaptedLimiter {
        limiter.clone().into()
    }
}

impl From<Arc<TokenBucket>> for AdaptedLimiter {
    fn from(bucket: Arc<TokenBucket>) -> AdaptedLimiter {
        let (room, seen) = (Arc::clone(&bucket), Arc::clone(&bucket));
        AdaptedLimiter {
            quota: Box::new(move || seen.rule()),
            check_room: Box::new(move |quota| room.check_rule(quota)),
            set: Box::new(move |quota| bucket.set_rule(quota)),
        }
    }
}

impl From<&'static TokenBucket> for AdaptedLimiter {
    fn from(bucket: &'static TokenBucket) -> AdaptedLimiter {
        AdaptedLimiter {
            quota: Box::new(move || bucket.rule()),
            check_room: Box::new(move |quota| bucket.check_rule(quota)),
            set: Box::new(move |quota| bucket.set_rule(quota)),
        }
    }
}
