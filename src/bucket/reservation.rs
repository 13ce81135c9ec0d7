//! Tokens that were taken before they are used: reservations, which may be given back, and holds, which are settled.

use std::fmt;
use std::time::Duration;

use crate::time::clock::{Moment, nanos_of};
use crate::word::decision::{Denied, Granted, Wait};
use crate::word::plan::Plan;
use crate::word::state::{Left, Origin, Outcome};
use crate::word::terms::{Reading, Refill};
use crate::word::verb::Give;

/// What was taken, and how the bucket was left.
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    pub(crate) origin: Origin,
    pub(crate) plan: Option<Plan>,
    pub(crate) units: u64,
    /// Where the bucket stood after it.
    pub(crate) empty_at: u64,
    /// What was there before it.
    pub(crate) before: u64,
    /// The tick it was taken at.
    pub(crate) since: u64,
    /// The removals of its key's shard before it was taken.
    pub(crate) removals: u64,
    /// Until all of it is earned.
    delay: Duration,
    made: Moment,
}

impl Receipt {
    pub(crate) fn new<P: Refill>(outcome: Outcome, reading: &Reading<P>, plan: Option<Plan>) -> Receipt {
        let Outcome { taken, level, lag, origin, .. } = outcome;
        let (refill, since) = (&reading.refill, reading.tick.wrapping_add(lag));
        // Nothing is due at once, whoever waits for the rest.
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

    /// Beside what was there, so many units were leased.
    pub(crate) fn beside(self, leased: u64) -> Receipt {
        Receipt { before: self.before + leased, ..self }
    }

    /// The same for a key of a shard that had this count of removals before.
    pub(crate) fn counted_from(self, removals: u64) -> Receipt {
        Receipt { removals, ..self }
    }

    /// How the bucket was left. Of a limiter with plans the mark alone does not tell.
    pub(crate) fn left(&self, plans: bool) -> Left {
        Left { empty_at: self.empty_at, stamp: plans.then_some(self.since) }
    }

    pub(crate) fn giving_back(&self, plans: bool) -> Give {
        Give::Cancel { units: self.units, left: self.left(plans) }
    }

    /// How to undo it where the bucket has room for `less` units less: the room that leases take was
    /// not there before, either.
    pub(crate) fn undoing(&self, plans: bool, less: u64) -> Give {
        let Receipt { units, before, since, .. } = *self;
        Give::Undo { units, left: self.left(plans), before: before.saturating_sub(less), since }
    }

    /// For what nothing counted.
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

/// What takes back, and charges later, by receipt.
pub(crate) trait Ledger {
    /// Gives back all of it, if nobody has taken since.
    fn give_back(&self, receipt: &Receipt);
    /// Gives back `n` tokens of it.
    fn refund(&self, receipt: &Receipt, n: u64);
    /// Takes up to `n` tokens more, on credit if need be, and tells how many.
    fn charge(&self, receipt: &Receipt, n: u64) -> u64;
}

/// Tokens that are yours at a time to come, from [`reserve`](crate::TokenBucket::reserve).
///
/// Wait for [`delay`](Reservation::delay), then [`commit`](Reservation::commit). The time is promised: nobody
/// who comes later is before you, and a change of quota does not move it.
///
/// **Dropped** without a commit it gives all of its tokens back if it is still the last in line, that is if nobody
/// has taken or given back since (or has given back just what was taken since). Otherwise it gives nothing back: those behind were promised their times on top of it, and
/// the bucket would be granted twice.
///
/// * A limiter with plans gives nothing back once the key was used at a later time, also where those
///   tokens came back. Under another plan the bucket may stand where it stood, and hold less.
/// * A key that was [removed](crate::RateLimiter::remove) gets nothing back: its next bucket is full.
///   Two or more removals of other keys may void a reservation as well, if all of them fall into the
///   same one of 1,024 shards by hash.
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

    /// From the making of the reservation until its tokens are earned; zero if they were there.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.receipt.delay
    }

    /// When its tokens are earned, on the limiter's clock.
    #[must_use]
    pub fn ready_at(&self) -> Moment {
        Moment(self.receipt.made.0.saturating_add(nanos_of(self.receipt.delay)))
    }

    /// Uses the tokens. It does not wait: they count from [`ready_at`](Reservation::ready_at) on.
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

/// Tokens taken for what is only estimated, from [`hold`](crate::TokenBucket::hold): bytes of a response, tokens of a
/// model.
///
/// Dropped without [`settle`](Hold::settle) it stays as it was estimated.
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

    /// The decision on the estimate.
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// Counts `actual` tokens instead of the estimate. What was too much is refunded (lost, if the key
    /// [shares](crate::WhenFull::Share) its bucket); what was too little is taken, on credit up to the bound on debt. Returns the
    /// rest, which is not counted.
    ///
    /// On a key that was forgotten meanwhile nothing changes: its bucket had been full for 2 s. What
    /// was too little is then the rest. (If it is back, in the very place it had, it is settled with its new bucket. A key
    /// that was [removed](crate::RateLimiter::remove) is not.)
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

/// What a waiting verb resolves to before it waits.
pub(crate) type Reserved<'a> = Result<Reservation<'a>, Denied>;
