//! A request for a key's window as a value, and a limiter of windows with a guard.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use crate::bucket::receipt::Receipt;
use crate::bucket::reservation::Hold;
use crate::keyed::key::ToKey;
use crate::limiter::all_of::{Internal, Limit};
use crate::limiter::key_call::CallOptions;
use crate::limiter::key_limit::KeyLimit;
use crate::limiter::pinned::Pinned;
use crate::limiter::verbs::{InFull, UpTo};
use crate::time::clock::{Clock, Moment};
use crate::word::by_refill::WINDOWS;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::Plan;

/// Another limit for some of the keys of a limiter of windows, from
/// [`WindowLimiter::cap`](crate::WindowLimiter::cap).
///
/// A cap is a plain value and `Copy`: nothing is registered. A key is under the cap that a call
/// names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cap(pub(crate) Plan);

impl Cap {
    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.capacity
    }
}

impl fmt::Debug for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cap").field(&self.limit()).finish()
    }
}

/// Some tokens of a key's window, from [`WindowLimiter::key`](crate::WindowLimiter::key).
///
/// One token, or [`n`](WindowKey::n); up to the limiter's own limit, or [`under`](WindowKey::under)
/// a cap. It has the verbs of the limiter that take or give. [`all_of`](crate::all_of) takes it.
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, TokenBucket, Window, WindowLimiter, all_of};
///
/// let service = TokenBucket::new(Quota::per_second(10_000));
/// let daily = WindowLimiter::<String>::new(Window::per_day(1_000).utc());
/// let both = all_of((service.n(1), daily.key("ada").n(3)));
/// assert_eq!(both.try_acquire()?.remaining(), 997);
/// # Ok::<(), tollgate::AllDenied>(())
/// ```
pub struct WindowKey<'a, K, Q: ?Sized, S>(pub(super) KeyLimit<'a, K, Q, S>);

impl<'a, K, Q: ?Sized, S> WindowKey<'a, K, Q, S> {
    /// Sets the number of tokens.
    #[inline]
    #[must_use]
    pub fn n(self, n: u64) -> Self {
        WindowKey(self.0.n(n))
    }

    /// Sets the cap. Under a cap of another limiter every take is refused.
    #[inline]
    #[must_use]
    pub fn under(self, cap: &'a Cap) -> Self {
        WindowKey(self.0.under(&cap.0))
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> WindowKey<'_, K, Q, S> {
    /// Takes the tokens, all or none; see
    /// [`WindowLimiter::try_acquire_n`](crate::WindowLimiter::try_acquire_n).
    #[inline]
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        self.0.decide::<WINDOWS, _>(InFull(self.0.n))
    }

    /// Takes the tokens, all or none, at an earlier reading; see
    /// [`WindowLimiter::try_acquire_at`](crate::WindowLimiter::try_acquire_at).
    #[inline]
    pub fn try_acquire_at(&self, now: Moment) -> Result<Granted, Denied> {
        self.0.at(now).decide::<WINDOWS, _>(InFull(self.0.n))
    }

    /// Takes the tokens that are left, up to `n`.
    #[inline]
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to(&self) -> Granted {
        self.0.decide::<WINDOWS, _>(UpTo(self.0.n))
    }

    /// Gives the tokens back, the newest first.
    pub fn refund(&self) {
        self.0.refund();
    }

    /// Returns the tokens that are left, and takes none.
    pub fn peek(&self) -> Snapshot {
        self.0.peek()
    }
}

impl<'a, K, Q, S> WindowKey<'a, K, Q, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync,
{
    /// Takes the tokens as an estimate; see
    /// [`WindowLimiter::hold`](crate::WindowLimiter::hold).
    pub fn hold(&self) -> Result<Hold<'a>, Denied> {
        self.0.hold()
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> Limit for WindowKey<'_, K, Q, S> {
    fn clock(&self) -> &Clock {
        self.0.clock()
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        self.0.look(now)
    }

    fn take(&self, _: Internal) -> Result<(Granted, Receipt), Denied> {
        self.0.take(Internal)
    }

    fn undo(&self, receipt: &Receipt) {
        self.0.undo(receipt);
    }
}

impl<K, Q: ?Sized, S> Clone for WindowKey<'_, K, Q, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, Q: ?Sized, S> Copy for WindowKey<'_, K, Q, S> {}

/// Never prints the key.
impl<K, Q: ?Sized, S> fmt::Debug for WindowKey<'_, K, Q, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowKey").field("n", &self.0.n).finish_non_exhaustive()
    }
}

/// A [`WindowLimiter`](crate::WindowLimiter) with a guard that serves many calls; see
/// [`RateLimiter::pin`](crate::RateLimiter::pin).
pub struct PinnedWindows<'a, K, S = RandomState>(pub(super) Pinned<'a, K, S>);

impl<K: Hash + Eq, S: BuildHasher> PinnedWindows<'_, K, S> {
    /// Takes one token of the key's window, if one is left.
    #[inline]
    pub fn try_acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.try_acquire_n(key, 1)
    }

    /// Takes `n` tokens of the key's window, all or none.
    #[inline]
    pub fn try_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.0.decide::<WINDOWS, _, _>(key, InFull(n), CallOptions::NOW)
    }

    /// Takes `n` tokens, all or none, at an earlier reading.
    #[inline]
    pub fn try_acquire_at<Q>(&self, now: Moment, key: &Q, n: u64) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.0.decide::<WINDOWS, _, _>(key, InFull(n), CallOptions::at(now))
    }

    /// Takes the tokens that are left, up to `n`.
    #[inline]
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Granted {
        self.0.decide::<WINDOWS, _, _>(key, UpTo(n), CallOptions::NOW)
    }

    /// Gives up to `n` tokens back, the newest first.
    pub fn refund<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) {
        self.0.refund(key, n);
    }

    /// Returns the tokens that are left, and takes none.
    pub fn peek<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Snapshot {
        self.0.peek(key)
    }

    /// Forgets the tokens that the key has used, and returns whether it had an entry.
    pub fn remove<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> bool {
        self.0.remove(key)
    }
}

impl<K, S> fmt::Debug for PinnedWindows<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedWindows").finish_non_exhaustive()
    }
}
