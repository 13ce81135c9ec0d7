//! A limit on requests in flight.

use std::fmt;

use crate::rule::error::InvalidRule;
use crate::rule::window_layout::{MAX_PLACES, WindowError};

/// A rule of places: at most a limit of requests of each key are in flight.
///
/// A grant takes a place until it is given back; no place comes back by time, and no clock is read.
/// [`hold`](crate::Ask::hold) takes a place that [`settle(0)`](crate::Hold::settle) gives back. A
/// place of [`try_acquire`](crate::RateLimiter::try_acquire) is taken for good until
/// [`refund`](crate::RateLimiter::refund). Guards that give their place back when they are dropped
/// are in `tollgate-adaptive`.
///
/// * **The law.** At each grant a key has at most the limit of places in use, the new ones
///   included.
/// * A request for `n` places takes all of them or none. One for 0 places is always granted.
/// * A key with a place in use is never forgotten: not to make room, and not by
///   [`remove`](crate::RateLimiter::remove) or [`clear`](crate::RateLimiter::clear). A key without
///   one may be forgotten at any time.
/// * A new key without room is refused, with [`Reason::Full`](crate::Reason::Full): a place of a
///   bucket that keys share would belong to another key. So a builder has no
///   [`when_full`](crate::Builder::when_full).
/// * The [`retry_after`](crate::Denied::retry_after) of a refusal is 0: the time at which a place
///   is given back is not known. It is `None` for more places than the limit.
/// * [`set_rule`](crate::RateLimiter::set_rule) sets another limit in constant time. Places in use
///   stay, also where they are more than the limit. A [plan](crate::Plan) is another limit for some
///   of the keys.
///
/// # Examples
///
/// ```
/// use tollgate::{Places, RateLimiter};
///
/// let uploads = RateLimiter::<String, _>::new(Places::new(2));
/// let first = uploads.key("ada").hold()?;
/// let second = uploads.key("ada").hold()?;
/// assert!(uploads.key("ada").hold().is_err());
/// assert!(!uploads.remove("ada"));
/// first.settle(0);
/// assert_eq!(uploads.peek("ada").remaining(), 1);
/// second.settle(0);
/// # Ok::<(), tollgate::Denied>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Places(u32);

impl Places {
    /// A pause: each request for a place is refused, until another limit is set. Places in use stay
    /// and come back.
    ///
    /// A key under a [plan](crate::Plan) has the limit of its plan, also in a pause. A pause is no
    /// plan: that is an error. [`limit`](Places::limit) is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Places, RateLimiter, Reason};
    ///
    /// let uploads = RateLimiter::<String, _>::new(Places::new(2));
    /// let hold = uploads.key("ada").hold()?;
    /// uploads.set_rule(Places::BLOCKED)?;
    /// let denied = uploads.key("ada").hold().unwrap_err();
    /// assert_eq!((denied.reason(), denied.retry_after()), (Reason::Blocked, None));
    /// hold.settle(0);
    /// uploads.set_rule(Places::new(2))?;
    /// assert_eq!(uploads.peek("ada").remaining(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const BLOCKED: Places = Places(0);

    /// Returns a limit, from 1 to 2^20. [`try_new`](Self::try_new) is for numbers that come in at
    /// run time.
    ///
    /// # Panics
    ///
    /// Panics if the limit is 0 or above 2^20, in a constant at compile time.
    #[must_use]
    #[track_caller]
    pub const fn new(limit: u32) -> Places {
        assert!(0 < limit && limit <= MAX_PLACES, "a limit of places is from 1 to 2^20");
        Places(limit)
    }

    /// Returns a limit, for a number that comes in at run time.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] if the limit is 0 or above 2^20.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Places;
    ///
    /// assert_eq!(Places::try_new(8)?.limit(), 8);
    /// let error = Places::try_new(0).unwrap_err();
    /// assert_eq!(error.to_string(), "a limit of 0 places is out of the bounds from 1 to 2^20");
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    pub fn try_new(limit: u32) -> Result<Places, InvalidRule> {
        match limit {
            1..=MAX_PLACES => Ok(Places(limit)),
            _ => Err(WindowError::FewOrManyPlaces(limit).into()),
        }
    }

    /// Returns the limit of a word.
    pub(crate) fn of_limit(limit: u64) -> Places {
        // At most 2^20.
        Places(limit as u32)
    }

    /// Returns the most places of a key that are in use at a grant; 0 in a
    /// [pause](Places::BLOCKED).
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.0
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("no places"),
            limit => write!(f, "{limit} places"),
        }
    }
}
