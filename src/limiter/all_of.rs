//! Several limits, all or nothing.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::bucket::receipt::Receipt;
use crate::limiter::ask::Ask;
use crate::limiter::asked::Target;
use crate::limiter::hook::OnDrop;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Granted};

/// A request as one of several, for [`all_of`]: an [`Ask`], or a reference to one.
///
/// It is a trait object where the limits are of different types: `&dyn Tokens`. Other crates cannot
/// implement it.
#[expect(private_bounds, reason = "sealed")]
pub trait Tokens: TakeOne {}

/// The steps of one request among several.
pub(crate) trait TakeOne {
    fn clock(&self) -> &Clock;
    /// Returns the refusal of a take at a reading, without the take.
    fn look(&self, now: Moment) -> Result<(), Denied>;
    fn take(&self) -> Result<(Granted, Receipt), Denied>;
    /// Gives back the tokens that the bucket would still have without the take.
    fn undo(&self, receipt: &Receipt);
}

impl<T: TakeOne + ?Sized> Tokens for T {}

/// Requests for [`all_of`]: a tuple of up to 8, or an array or slice of up to 64.
///
/// Those of an array or slice may be `&dyn Tokens`. Other crates cannot implement it.
#[expect(private_bounds, reason = "sealed")]
pub trait TokenSet: RequestAt {}

/// The requests of a set in order.
pub(crate) trait RequestAt {
    fn request_at(&self, index: usize) -> Option<&dyn TakeOne>;
}

impl<T: RequestAt + ?Sized> TokenSet for T {}

/// Takes tokens of several limits, all or none.
///
/// A call looks at each limit first, from one reading of the clock. If any refuses, nothing is
/// written. Then the call takes from the limits in order. If another caller wins the tokens of one
/// meanwhile, the takes before it are undone. Nothing is allocated.
///
/// * An undo gives back the tokens that the limit would still have without the take. It mints none,
///   and loses at most the tokens earned meanwhile; none if no other caller took.
/// * An undo gives nothing back if a later reservation waits (its time was promised on top of the
///   take), or if a key of a limiter with plans was used meanwhile (the tokens would spill at
///   another level).
/// * A window from the first use that the undone take began begins anew at the undo, if another
///   caller has taken of it.
/// * Between a take and its undo, another caller may be refused for the lack of these tokens.
/// * The look misses the refusal of a new key that finds no room, or starts with too few tokens.
///   The other limits are then taken and undone.
/// * A panic of the user's code (a hook, a function of plans, a key's `Hash`, `Eq` or `ToKey`)
///   leaves no limit taken: the takes before it are undone, and the panic goes on in the caller.
/// * No verb waits for several limits, and none takes a [`Hold`](crate::Hold) of them. The recipe
///   [A client of a language model](crate::_recipes#a-client-of-a-language-model) does both.
/// * A limit that is named twice is taken twice. Name it once with the sum for a right
///   `retry_after`.
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use tollgate::{Quota, RateLimiter, TokenBucket, all_of};
///
/// let service = TokenBucket::new(Quota::per_second(10_000));
/// let per_ip = RateLimiter::<IpAddr>::new(Quota::per_second(50));
/// let per_user = RateLimiter::<String>::new(Quota::per_hour(100));
///
/// let (ip, cost): (IpAddr, u64) = ("192.0.2.7".parse()?, 60);
/// let all = all_of((service.ask(), per_ip.key(&ip), per_user.key("ada").n(cost)));
/// assert_eq!(all.try_acquire()?.remaining(), 40); // of the tightest
///
/// let denied = all.try_acquire().unwrap_err();
/// assert_eq!(denied.which(), 2); // the user's
/// assert_eq!(per_ip.peek(&ip).remaining(), 49); // nothing was taken
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn all_of<L: TokenSet>(limits: L) -> AllOf<L> {
    AllOf { limits }
}

/// Largest number of limits in a call: each takes a place on the stack.
const MAX_LIMITS: usize = 64;

/// A request for tokens of several limits, made by [`all_of`].
///
/// The value takes nothing. Each [`try_acquire`](AllOf::try_acquire) takes from all of the limits,
/// or from none.
#[derive(Clone, Copy)]
pub struct AllOf<L> {
    limits: L,
}

impl<L: TokenSet> AllOf<L> {
    /// Takes the tokens of all limits, or of none.
    ///
    /// The answer is that of the limit with the fewest tokens left. No limits grant everything.
    ///
    /// # Errors
    ///
    /// [`AllDenied`] names the limit that refused for the longest time, and that time.
    pub fn try_acquire(&self) -> Result<Granted, AllDenied> {
        take_all(&self.limits).map(|(granted, _)| granted)
    }

    /// Takes as [`try_acquire`](AllOf::try_acquire), and returns also the index of the limit with
    /// the fewest tokens left.
    ///
    /// Of equal limits it is the first one. Without limits it is 0, and the grant has 0 tokens and
    /// `u64::MAX` left.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](AllOf::try_acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket, Tokens, all_of};
    ///
    /// let (fast, slow) = (Quota::per_second(100), Quota::per_minute(5));
    /// let limits = [TokenBucket::new(fast), TokenBucket::new(slow)];
    /// let requests = limits.each_ref().map(|limit| limit.ask().n(3));
    /// // The limits of a program may be of several types.
    /// let any: Vec<&dyn Tokens> = requests.iter().map(|request| request as &dyn Tokens).collect();
    /// let (granted, tightest) = all_of(&any[..]).try_acquire_tightest()?;
    /// assert_eq!((granted.remaining(), tightest), (2, 1));
    /// # Ok::<(), tollgate::AllDenied>(())
    /// ```
    pub fn try_acquire_tightest(&self) -> Result<(Granted, usize), AllDenied> {
        take_all(&self.limits)
    }
}

/// Takes of all limits or of none.
///
/// Returns the answer and the index of the limit with the fewest tokens left.
fn take_all<L: RequestAt + ?Sized>(limits: &L) -> Result<(Granted, usize), AllDenied> {
    look(limits)?;
    take_from(limits, 0)
}

/// Returns the refusal with the longest wait, if a limit refuses at one reading for all.
fn look<L: RequestAt + ?Sized>(limits: &L) -> Result<(), AllDenied> {
    let Some(first) = limits.request_at(0) else { return Ok(()) };
    if limits.request_at(MAX_LIMITS).is_some() {
        return Err(AllDenied { which: MAX_LIMITS, denied: Denied::too_many_limits() });
    }
    let now = first.clock().now();
    let limits = (0..).map_while(|index| limits.request_at(index));
    let refusals = limits.enumerate().filter_map(|(which, limit)| {
        let same = which == 0 || limit.clock().is_same(first.clock());
        let now = if same { now } else { limit.clock().now() };
        limit.look(now).err().map(|denied| AllDenied { which, denied })
    });
    let slowest = refusals.reduce(|slowest, next| if next.wait() > slowest.wait() { next } else { slowest });
    slowest.map_or(Ok(()), Err)
}

/// Takes the limits from index `which` on.
///
/// It recurses once for each limit, so the receipts stay on the stack.
fn take_from<L: RequestAt + ?Sized>(limits: &L, which: usize) -> Result<(Granted, usize), AllDenied> {
    let Some(limit) = limits.request_at(which) else {
        return Ok((Granted::anyway(0, u64::MAX), which));
    };
    let (granted, receipt) = limit.take().map_err(|denied| AllDenied { which, denied })?;
    // A refusal of another limit undoes the take, and so does a panic of the user's code.
    let undo = OnDrop(|| limit.undo(&receipt));
    let others = take_from(limits, which + 1)?;
    undo.disarm();
    Ok(if others.0.remaining() < granted.remaining() { others } else { (granted, which) })
}

impl<L> fmt::Debug for AllOf<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllOf").finish_non_exhaustive()
    }
}

/// The refusal of one of several limits. No tokens were taken of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct AllDenied {
    which: usize,
    denied: Denied,
}

impl AllDenied {
    /// Returns a refusal of limits that are not in this crate.
    pub fn from_parts(which: usize, denied: Denied) -> AllDenied {
        AllDenied { which, denied }
    }

    /// Returns the index of the refusing limit; of several, of that with the longest wait.
    ///
    /// If another caller won a limit's tokens after the look, it is the index of that limit.
    #[must_use]
    pub fn which(&self) -> usize {
        self.which
    }

    /// Returns the decision of that limit.
    pub fn denied(&self) -> Denied {
        self.denied
    }

    /// Returns the time until all limits may grant; `None` if they never will.
    ///
    /// Takes of other callers meanwhile make it longer.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.denied.retry_after()
    }

    /// Returns the time until all limits may grant; never counts as the longest.
    fn wait(&self) -> Duration {
        self.retry_after().unwrap_or(Duration::MAX)
    }
}

impl Error for AllDenied {}

impl fmt::Display for AllDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}: {}", self.which, self.denied)
    }
}

impl<B: Target> TakeOne for Ask<'_, B> {
    fn clock(&self) -> &Clock {
        &self.bucket.frame().engine.clock
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        Ask { at: self.at.or(Some(now)), ..*self }.refusal()
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        self.taken()
    }

    fn undo(&self, receipt: &Receipt) {
        Ask::undo(self, receipt);
    }
}

impl<T: TakeOne + ?Sized> TakeOne for &T {
    fn clock(&self) -> &Clock {
        (**self).clock()
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        (**self).look(now)
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        (**self).take()
    }

    fn undo(&self, receipt: &Receipt) {
        (**self).undo(receipt);
    }
}

impl<T: TakeOne> RequestAt for [T] {
    fn request_at(&self, index: usize) -> Option<&dyn TakeOne> {
        self.get(index).map(|request| request as &dyn TakeOne)
    }
}

impl<T: TakeOne, const N: usize> RequestAt for [T; N] {
    fn request_at(&self, index: usize) -> Option<&dyn TakeOne> {
        RequestAt::request_at(self.as_slice(), index)
    }
}

impl<T: RequestAt + ?Sized> RequestAt for &T {
    fn request_at(&self, index: usize) -> Option<&dyn TakeOne> {
        (**self).request_at(index)
    }
}

macro_rules! tuples {
    ($($limit:ident $index:tt)*) => { tuples!(@ [] $($limit $index)*); };
    (@ [$($done:ident $at:tt)*] $limit:ident $index:tt $($rest:tt)*) => {
        impl<$($done: TakeOne,)* $limit: TakeOne> RequestAt for ($($done,)* $limit,) {
            fn request_at(&self, index: usize) -> Option<&dyn TakeOne> {
                match index {
                    $($at => Some(&self.$at),)*
                    $index => Some(&self.$index),
                    _ => None,
                }
            }
        }
        tuples!(@ [$($done $at)* $limit $index] $($rest)*);
    };
    (@ [$($done:tt)*]) => {};
}

tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
