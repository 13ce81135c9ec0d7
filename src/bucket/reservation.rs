//! Tokens taken before they are used: reservations, which may be given back, and holds, which are
//! settled.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::bucket::receipt::{Receipt, Settle};
use crate::time::clock::{Moment, nanos_of};
use crate::word::decision::Granted;
use crate::word::state::Origin;

/// A limiter that settles takes by receipt.
pub(crate) trait Ledger {
    /// Settles the take of a receipt, and returns the tokens charged.
    fn settle(&self, receipt: &Receipt, settle: Settle<'_>) -> u64;
}

/// The ledger of a guard.
pub(crate) enum LedgerOf<'a> {
    Borrowed(&'a (dyn Ledger + Send + Sync)),
    Owned(Arc<dyn Ledger + Send + Sync>),
}

impl<'a> Deref for LedgerOf<'a> {
    type Target = dyn Ledger + Send + Sync + 'a;

    fn deref(&self) -> &Self::Target {
        match self {
            LedgerOf::Borrowed(ledger) => *ledger,
            LedgerOf::Owned(ledger) => &**ledger,
        }
    }
}

/// Tokens that are promised for a future time, from [`reserve`](crate::Ask::reserve).
///
/// Wait for [`delay`](Reservation::delay), then [`commit`](Reservation::commit). The time is
/// promised: no later caller is served first, and a change of quota does not move it.
///
/// **Dropped** without a commit, a reservation gives all of its tokens back if it is still the
/// last. It is the last if no tokens were taken or given back since, or if all that were taken
/// since came back. Otherwise it gives nothing back: later reservations were promised their times
/// on top of it, and the bucket would be granted twice. A caller that waits and gives up always
/// gives its tokens back, since the callers behind it move up: so a program that only waits takes
/// `within(d).acquire()`, or `timeout` around `acquire`.
///
/// * A limiter with plans gives nothing back once the key was used at a later time, even if those
///   tokens came back. Under another plan the bucket may have the same empty time and hold less.
/// * A key that was [removed](crate::RateLimiter::remove) gets nothing back: its next bucket is
///   full. Two or more removals of other keys may void a reservation as well, if all of them fall
///   into the same one of 1,024 shards by hash.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, TokenBucket};
///
/// let (clock, _mock) = Clock::mock();
/// let bucket = TokenBucket::builder(Quota::per_second(10).burst(2)).clock(clock).build();
/// let _ = bucket.try_acquire_n(2)?;
///
/// let first = bucket.ask().reserve()?;
/// let second = bucket.ask().reserve()?;
/// assert_eq!(first.delay(), Duration::from_millis(100));
/// assert_eq!(second.delay(), Duration::from_millis(200));
///
/// drop(second); // the last in line
/// assert_eq!(bucket.ask().reserve()?.delay(), Duration::from_millis(200));
/// let _ = first.commit();
/// # Ok::<(), tollgate::Denied>(())
/// ```
#[must_use = "a reservation that is dropped gives its tokens back"]
pub struct Reservation<'a> {
    ledger: LedgerOf<'a>,
    receipt: Receipt,
    granted: Granted,
}

impl<'a> Reservation<'a> {
    pub(crate) fn new(ledger: LedgerOf<'a>, receipt: Receipt, granted: Granted) -> Reservation<'a> {
        Reservation { ledger, receipt, granted }
    }

    /// Returns the time from the reservation to its tokens being earned; zero if they were there.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.receipt.delay
    }

    /// Returns the moment at which the tokens are earned, on the limiter's clock.
    #[must_use]
    pub fn ready_at(&self) -> Moment {
        Moment(self.receipt.made.0.saturating_add(nanos_of(self.receipt.delay)))
    }

    /// Uses the tokens, without waiting: they count from [`ready_at`](Reservation::ready_at) on.
    pub fn commit(mut self) -> Granted {
        self.receipt.origin = Origin::Nowhere;
        self.granted
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.receipt.origin != Origin::Nowhere {
            self.ledger.settle(&self.receipt, Settle::Cancel(&self.receipt));
        }
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("tokens", &self.granted.tokens())
            .field("delay", &self.receipt.delay)
            .finish_non_exhaustive()
    }
}

/// Tokens taken for an estimated cost, from [`hold`](crate::Ask::hold).
///
/// The cost may be the bytes of a response, or the tokens of a model.
///
/// A hold that is dropped without [`settle`](Hold::settle) stays charged as estimated.
///
/// # Examples
///
/// ```
/// use tollgate::{Clock, Quota, TokenBucket};
///
/// let (clock, _mock) = Clock::mock();
/// let bytes = TokenBucket::builder(Quota::per_second(1_000)).clock(clock).build();
///
/// let hold = bytes.ask().n(300).hold()?;
/// assert_eq!(hold.settle(100), 0); // 200 came back
/// assert_eq!(bytes.peek().remaining(), 900);
///
/// let hold = bytes.ask().n(300).hold()?;
/// assert_eq!(hold.settle(2_000), 100); // 900 were there and 1,000 are owed: a bucket owes one burst at most
/// assert_eq!(bytes.peek().remaining(), 0);
/// # Ok::<(), tollgate::Denied>(())
/// ```
#[must_use = "a hold is settled when the cost is known"]
pub struct Hold<'a> {
    ledger: LedgerOf<'a>,
    receipt: Receipt,
    granted: Granted,
}

impl<'a> Hold<'a> {
    pub(crate) fn new(ledger: LedgerOf<'a>, receipt: Receipt, granted: Granted) -> Hold<'a> {
        Hold { ledger, receipt, granted }
    }

    /// Returns the grant of the estimate, as `hold` made it.
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// Counts `actual` tokens instead of the estimate, and returns the tokens that are not counted.
    ///
    /// An excess is refunded, as far as the bucket would still have it: tokens by which the bucket
    /// may have been over full since the hold do not come back. So a hold that is settled after the
    /// time to fill the bucket gives nothing back to a bucket that was full, and a hold of an
    /// earlier window gives nothing back to the present one. The excess is lost as well if the key
    /// [shares](crate::WhenFull::Share) its bucket.
    ///
    /// What others gave back since the hold is not known. Tokens that a bucket spilled because of
    /// it come back too: those that are granted in any time are bounded as for
    /// [`refund`](crate::Ask::refund).
    ///
    /// A shortfall is taken, on credit up to the bound on debt. The part beyond that bound is
    /// returned.
    ///
    /// On a key that was forgotten meanwhile nothing changes: its bucket had been full for 2 s. The
    /// whole shortfall is then returned. If the key is back in the same entry, the hold is settled
    /// with its new bucket, unless the key was [removed](crate::RateLimiter::remove).
    pub fn settle(self, actual: u64) -> u64 {
        let estimate = self.granted.tokens();
        match actual.checked_sub(estimate) {
            None => {
                let back = (estimate - actual).min(self.receipt.tokens);
                self.ledger.settle(&self.receipt, Settle::Excess(&self.receipt, back));
                0
            }
            Some(0) => 0,
            Some(more) => more - self.ledger.settle(&self.receipt, Settle::Charge(more)),
        }
    }
}

impl fmt::Debug for Hold<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("tokens", &self.granted.tokens()).finish_non_exhaustive()
    }
}
