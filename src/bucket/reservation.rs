//! Tokens taken before they are used: reservations, which may be given back, and holds, which are
//! settled.

use std::fmt;
use std::time::Duration;

use crate::time::clock::{Moment, nanos_of};
use crate::word::decision::{Denied, Granted, Wait};
use crate::word::plan::Plan;
use crate::word::state::{Left, Origin, Outcome};
use crate::word::terms::{Reading, Refill};
use crate::word::verb::Give;

/// A record of one take: the units, and the bucket before and after it.
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    pub(crate) origin: Origin,
    pub(crate) plan: Option<Plan>,
    pub(crate) units: u64,
    /// Tick at which the bucket would be empty, after the take.
    pub(crate) empty_at: u64,
    /// Units in the bucket before the take.
    pub(crate) before: u64,
    /// Tick of the take.
    pub(crate) since: u64,
    /// Number of removals in the key's shard before the take.
    pub(crate) removals: u64,
    /// Time from the take until all of its tokens are earned.
    delay: Duration,
    made: Moment,
}

impl Receipt {
    pub(crate) fn new<P: Refill>(outcome: Outcome, reading: &Reading<P>, plan: Option<Plan>) -> Receipt {
        let Outcome { taken, level, lag, origin, .. } = outcome;
        let (refill, since) = (&reading.refill, reading.tick.wrapping_add(lag));
        // A take of 0 is due immediately, even if the bucket is in debt.
        let due = if taken > 0 { refill.terms().empty_level } else { 0 };
        Receipt {
            origin,
            plan,
            units: taken,
            empty_at: refill.terms().empty_at(since, level),
            before: level + taken,
            since,
            removals: 0,
            delay: Wait::until(due, level, lag, reading).duration(),
            made: Moment(reading.nanos()),
        }
    }

    /// Adds the `leased` units that were out on lease to the recorded level.
    pub(crate) fn beside(self, leased: u64) -> Receipt {
        Receipt { before: self.before + leased, ..self }
    }

    /// Sets the number of removals that the key's shard had before the take.
    pub(crate) fn counted_from(self, removals: u64) -> Receipt {
        Receipt { removals, ..self }
    }

    /// Returns the bucket as the take left it.
    ///
    /// In a limiter with plans `empty_at` alone does not identify that, so the stamp is added.
    pub(crate) fn left(&self, plans: bool) -> Left {
        Left { empty_at: self.empty_at, stamp: plans.then_some(self.since) }
    }

    pub(crate) fn giving_back(&self, plans: bool) -> Give {
        Give::Cancel { units: self.units, left: self.left(plans) }
    }

    /// Returns the undo step for a bucket whose capacity leases reduce by `less` units.
    ///
    /// The same reduction is applied to the level before the take: leases had that room then, too.
    pub(crate) fn undoing(&self, plans: bool, less: u64) -> Give {
        let Receipt { units, before, since, .. } = *self;
        Give::Undo { units, left: self.left(plans), before: before.saturating_sub(less), since }
    }

    /// Returns the receipt of a take that was not counted.
    pub(crate) fn void(made: Moment) -> Receipt {
        let delay = Duration::ZERO;
        Receipt {
            origin: Origin::Nowhere,
            plan: None,
            units: 0,
            empty_at: 0,
            before: 0,
            since: 0,
            removals: 0,
            delay,
            made,
        }
    }
}

/// A limiter that gives back and charges by receipt.
pub(crate) trait Ledger {
    /// Gives back the whole take, if no tokens were taken since.
    fn give_back(&self, receipt: &Receipt);
    /// Gives back `n` tokens of the take.
    fn refund(&self, receipt: &Receipt, n: u64);
    /// Takes up to `n` tokens more, on credit if need be, and returns the number taken.
    fn charge(&self, receipt: &Receipt, n: u64) -> u64;
}

/// Tokens that are promised for a future time, from [`reserve`](crate::TokenBucket::reserve).
///
/// Wait for [`delay`](Reservation::delay), then [`commit`](Reservation::commit). The time is
/// promised: no later caller is served first, and a change of quota does not move it.
///
/// **Dropped** without a commit, a reservation gives all of its tokens back if it is still the last
/// in line. It is the last if no tokens were taken or given back since, or if all that were taken
/// since came back. Otherwise it gives nothing back: later reservations were promised their times
/// on top of it, and the bucket would be granted twice.
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
/// let bucket = TokenBucket::with_clock(Quota::per_second(10).burst(2), clock);
/// let _ = bucket.try_acquire_n(2)?;
///
/// let first = bucket.reserve(1)?;
/// let second = bucket.reserve(1)?;
/// assert_eq!(first.delay(), Duration::from_millis(100));
/// assert_eq!(second.delay(), Duration::from_millis(200));
///
/// drop(second); // the last in line
/// assert_eq!(bucket.reserve(1)?.delay(), Duration::from_millis(200));
/// let _ = first.commit();
/// # Ok::<(), tollgate::Denied>(())
/// ```
#[must_use = "a reservation that is dropped gives its tokens back"]
pub struct Reservation<'a> {
    ledger: &'a (dyn Ledger + Send + Sync),
    receipt: Receipt,
    granted: Granted,
}

impl<'a> Reservation<'a> {
    pub(crate) fn new(
        ledger: &'a (dyn Ledger + Send + Sync),
        receipt: Receipt,
        granted: Granted,
    ) -> Reservation<'a> {
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
            self.ledger.give_back(&self.receipt);
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

/// Tokens taken for an estimated cost, from [`hold`](crate::TokenBucket::hold).
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
/// let bytes = TokenBucket::with_clock(Quota::per_second(1_000), clock);
///
/// let hold = bytes.hold(300)?;
/// assert_eq!(hold.settle(100), 0); // 200 came back
/// assert_eq!(bytes.peek().remaining(), 900);
///
/// let hold = bytes.hold(300)?;
/// assert_eq!(hold.settle(2_000), 100); // 900 were there and 1,000 are owed: a bucket owes one burst at most
/// assert_eq!(bytes.peek().remaining(), 0);
/// # Ok::<(), tollgate::Denied>(())
/// ```
#[must_use = "a hold is settled when the cost is known"]
pub struct Hold<'a> {
    ledger: &'a (dyn Ledger + Send + Sync),
    receipt: Receipt,
    granted: Granted,
}

impl<'a> Hold<'a> {
    pub(crate) fn new(
        ledger: &'a (dyn Ledger + Send + Sync),
        receipt: Receipt,
        granted: Granted,
    ) -> Hold<'a> {
        Hold { ledger, receipt, granted }
    }

    /// Returns the decision on the estimate.
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// Counts `actual` tokens instead of the estimate, and returns the tokens that are not counted.
    ///
    /// An excess is refunded; it is lost if the key [shares](crate::WhenFull::Share) its bucket. A
    /// shortfall is taken, on credit up to the bound on debt. The part beyond that bound is
    /// returned.
    ///
    /// On a key that was forgotten meanwhile nothing changes: its bucket had been full for 2 s. The
    /// whole shortfall is then returned. If the key is back in the same entry, the hold is settled
    /// with its new bucket, unless the key was [removed](crate::RateLimiter::remove).
    pub fn settle(self, actual: u64) -> u64 {
        let estimate = self.granted.tokens();
        match actual.checked_sub(estimate) {
            None => {
                self.ledger.refund(&self.receipt, estimate - actual);
                0
            }
            Some(0) => 0,
            Some(more) => more - self.ledger.charge(&self.receipt, more),
        }
    }
}

impl fmt::Debug for Hold<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("tokens", &self.granted.tokens()).finish_non_exhaustive()
    }
}

/// The reservation of a waiting verb, before the wait.
pub(crate) type Reserved<'a> = Result<Reservation<'a>, Denied>;
