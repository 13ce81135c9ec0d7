//! Bans: keys that are refused too often are refused for a while.

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::counts::{LimitStats, count};
use super::own_quota::OwnQuotas;
use tollgate::AnyRule;
use tollgate::Clock;
use tollgate::InvalidRule;
use tollgate::Quota;
use tollgate::RateLimiter;
use tollgate::WhenFull;
use tollgate::Window;
use tollgate::{Denied, Reason};

/// The rule of a ban, before its duration: from [`LimitBy::ban_after`](crate::LimitBy::ban_after)
/// or [`LayerBuilder::ban_after`](crate::LayerBuilder::ban_after).
#[must_use = "a ban has a duration: `.for_(duration)`"]
pub struct BanAfter<T> {
    refusals: u64,
    window: Duration,
    max_keys: usize,
    apply: fn(T, BanRule) -> Result<T, InvalidBan>,
    to: T,
}

/// The part of a ban in a refusal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ban {
    None,
    /// The refusal of the limit begins a ban.
    Begins,
    /// The key is banned.
    Refuses,
}

/// The numbers of a ban.
pub(crate) struct BanRule {
    refusals: u64,
    window: Duration,
    duration: Duration,
    max_keys: usize,
}

/// The most keys that each of a ban's stores holds, unless it is set.
const MAX_BAN_KEYS: usize = 1 << 20;

impl<T> BanAfter<T> {
    pub(crate) fn new(
        refusals: u64,
        window: Duration,
        to: T,
        apply: fn(T, BanRule) -> Result<T, InvalidBan>,
    ) -> Self {
        BanAfter { refusals, window, max_keys: MAX_BAN_KEYS, apply, to }
    }

    /// Sets the most keys whose refusals are counted, the most that are banned at a time, and the
    /// most that are measured while the limiter has no room for them: 1,048,576 of each by default.
    ///
    /// Without room a refusal is not counted, and a key is not banned: see
    /// [`LimitStats::unbanned_full`](crate::LimitStats::unbanned_full). No other key loses its ban.
    pub fn max_keys(self, max_keys: usize) -> Self {
        BanAfter { max_keys, ..self }
    }

    /// Sets the duration of a ban, from the refusal that begins it.
    ///
    /// # Errors
    ///
    /// [`InvalidBan`] names the number that is out of its bounds, or says that any client can write
    /// the [key](crate::LimitBy::ban_after) of another one.
    pub fn for_(self, duration: Duration) -> Result<T, InvalidBan> {
        let BanAfter { refusals, window, max_keys, apply, to } = self;
        apply(to, BanRule { refusals, window, duration, max_keys })
    }
}

impl<T> fmt::Debug for BanAfter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BanAfter { refusals, window, .. } = self;
        f.debug_struct("BanAfter").field("refusals", refusals).field("window", window).finish_non_exhaustive()
    }
}

/// The bans of a limit.
///
/// All stores are those of limiters, so memory is bounded, and a flood of keys cannot evict a key
/// that counts: a sliding window holds the refusals that precede the last one, and a bucket of one
/// token, which fills in the duration, is empty while its key is banned. A key for which the
/// limiter has no room is measured by a quota of its own.
pub(crate) struct Bans<K> {
    /// `None` if the first refusal bans.
    strikes: Option<RateLimiter<K, Window>>,
    banned: RateLimiter<K>,
    own: OwnQuotas<K>,
    begun: AtomicU64,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Bans<K> {
    pub(crate) fn new(rule: &BanRule, clock: Clock) -> Result<Bans<K>, InvalidBan> {
        let BanRule { refusals, window, duration, max_keys } = *rule;
        if max_keys == 0 {
            return Err(InvalidBan(BanFlaw::NoRoom));
        }
        let before = refusals.checked_sub(1).ok_or(InvalidBan(BanFlaw::NoRefusals))?;
        let builder = |quota| RateLimiter::builder(quota).clock(clock.clone());
        let quota = Quota::try_per(1, duration).map_err(|why| InvalidBan(BanFlaw::Duration(why)))?;
        let sliding = |window: Window| {
            let by = |parts| window.granularity(window.period() / parts);
            window.try_sliding().or_else(|_| by(2)).or_else(|_| by(1))
        };
        let strikes = match before {
            0 => None,
            _ => {
                let window = Window::try_per(before, window).and_then(sliding);
                let window = window.map_err(|why| InvalidBan(BanFlaw::Window(why)))?;
                let builder = RateLimiter::builder(window).clock(clock.clone());
                Some(builder.max_keys(max_keys).when_full(WhenFull::Deny).build())
            }
        };
        let banned = builder(quota).max_keys(max_keys).when_full(WhenFull::Deny).build();
        Ok(Bans { strikes, banned, own: OwnQuotas::new(clock, max_keys), begun: AtomicU64::new(0) })
    }

    /// Returns the refusal of a banned key, with the rest of its ban as the wait.
    pub(crate) fn check(&self, key: &K) -> Option<Denied> {
        // Before the first ban, a check costs one load.
        if self.begun.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.look(key)
    }

    fn look(&self, key: &K) -> Option<Denied> {
        let seen = self.banned.peek(key);
        (seen.remaining() == 0).then(|| Denied::from_parts(Reason::Empty, 1, 0, seen.retry_after()))
    }

    /// Returns whether a key without a bucket of its own is refused for its own requests: it has
    /// asked for more than a bucket of its own would have granted.
    pub(crate) fn is_over_own(&self, key: &K, rule: AnyRule, n: u64) -> bool {
        self.own.refuses(key, rule, n)
    }

    /// Counts a refusal of a key. Returns the refusal by its ban if that makes one.
    pub(crate) fn strike(&self, key: &K) -> Option<Denied> {
        let is_last = |denied: Denied| denied.reason() == Reason::Empty;
        if let Some(strikes) = &self.strikes
            && !strikes.try_acquire(key).is_err_and(is_last)
        {
            return None;
        }
        if self.banned.try_acquire(key).is_ok() {
            count(&self.begun);
        }
        // Not `check`: the thread that begins the first ban may still have to count it.
        self.look(key)
    }

    /// Ends the ban of a key, and forgets its refusals. Returns whether the key was banned.
    pub(crate) fn unban(&self, key: &K) -> bool {
        let was = self.check(key).is_some();
        self.banned.remove(key);
        if let Some(strikes) = &self.strikes {
            strikes.remove(key);
        }
        self.own.forget(key);
        was
    }

    pub(crate) fn add_to(&self, stats: &mut LimitStats) {
        let banned = self.banned.stats();
        let strikes = self.strikes.as_ref().map(RateLimiter::stats).unwrap_or_default();
        stats.bans = self.begun.load(Ordering::Relaxed);
        stats.ban_keys = banned.keys + strikes.keys + self.own.keys();
        stats.unbanned_full = banned.refused_full + strikes.refused_full + self.own.uncounted();
    }
}

/// The numbers of a ban that are out of their bounds, or a key that any client can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidBan(pub(super) BanFlaw);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BanFlaw {
    NoRefusals,
    NoRoom,
    Unproved,
    Window(InvalidRule),
    Duration(InvalidRule),
}

impl Error for InvalidBan {}

impl fmt::Display for InvalidBan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            BanFlaw::NoRefusals => f.write_str("a ban after 0 refusals bans every key: the least is 1"),
            BanFlaw::NoRoom => f.write_str("a ban with room for 0 keys bans none: the least is 1"),
            BanFlaw::Unproved => f.write_str(
                "a ban by the values of a header bans clients whose values others write: take the key of a \
                 client that was authenticated, by `Extension`, or a pair with an address, or say `proved()` \
                 if a server in front has checked the value",
            ),
            BanFlaw::Window(why) => write!(f, "the window of a ban: {why}"),
            BanFlaw::Duration(why) => write!(f, "the duration of a ban: {why}"),
        }
    }
}
