//! Guards over a limit on the requests in flight of each key.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use tollgate::{Denied, Hold, Places, RateLimiter, Reason, ToKey};

use crate::gate::overloaded::Overloaded;

/// The largest limit, under which a look counts every place in use.
const MOST: Places = Places::new(1 << 20);

/// Guards of a limit on the requests in flight of each key: a [`RateLimiter`] under [`Places`].
///
/// A request takes a place of its key, holds it as a [`KeyFlight`], and leaves when the flight is
/// dropped. A refusal changes no count.
///
/// * **The law.** At each admission a key has at most the limit in flight, the new request
///   included. The count is exact, and no clock is read.
/// * At most [`max_keys`](tollgate::Builder::max_keys) keys are held. A key with a request in
///   flight is never forgotten. A key without one may be forgotten at any time, to make room or by
///   [`evict_idle`](RateLimiter::evict_idle). A new key without room is refused
///   ([`Overloaded::is_full`]).
/// * No decision on a known key allocates.
/// * A key under a plan has another limit. Its guard is the [`KeyFlight`] of the request's
///   [`hold`](tollgate::Ask::hold).
///
/// # Examples
///
/// ```
/// use tollgate::{Places, RateLimiter};
/// use tollgate_adaptive::Enter;
///
/// let uploads = RateLimiter::<String, _>::new(Places::new(2));
/// let first = uploads.try_enter("ada")?;
/// let second = uploads.try_enter("ada")?;
/// let refused = uploads.try_enter("ada").unwrap_err();
/// assert_eq!(refused.to_string(), "2 requests are in flight, and the limit is 2");
/// assert!(uploads.try_enter("bob").is_ok());
/// drop(first);
/// assert_eq!(uploads.in_flight("ada"), 1);
/// # drop(second);
/// # Ok::<(), tollgate_adaptive::Overloaded>(())
/// ```
pub trait Enter<K> {
    /// Takes a place of a key.
    ///
    /// # Errors
    ///
    /// [`Overloaded`] if the key's limit is in flight, or if the key is new and has no room.
    fn try_enter<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<KeyFlight<'_>, Overloaded>;

    /// Takes a place of a key that a task can own.
    ///
    /// # Errors
    ///
    /// As [`try_enter`](Self::try_enter).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Places, RateLimiter};
    /// use tollgate_adaptive::Enter;
    ///
    /// let uploads = RateLimiter::<u64, _>::new(Places::new(1));
    /// let flight = uploads.try_enter_owned(&1)?;
    /// std::thread::spawn(move || drop(flight)).join().unwrap();
    /// assert_eq!(uploads.in_flight(&1), 0);
    /// # Ok::<(), tollgate_adaptive::Overloaded>(())
    /// ```
    fn try_enter_owned<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<KeyFlight<'static>, Overloaded>;

    /// Returns the number of a key's requests in flight. A new key has none, and gets no entry.
    #[must_use]
    fn in_flight<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> u32;
}

impl<K, S> Enter<K> for RateLimiter<K, Places, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn try_enter<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<KeyFlight<'_>, Overloaded> {
        self.key(key).hold().map(KeyFlight::from).map_err(|denied| refusal(self, key, denied))
    }

    fn try_enter_owned<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<KeyFlight<'static>, Overloaded> {
        self.key(key).hold_owned().map(KeyFlight::from).map_err(|denied| refusal(self, key, denied))
    }

    fn in_flight<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> u32 {
        let most = self.plan(MOST).expect("each word has room for the largest limit");
        // At most 2^20.
        (u64::from(MOST.limit()) - self.key(key).under(&most).peek().remaining()) as u32
    }
}

#[cold]
fn refusal<K, Q, S>(limiter: &RateLimiter<K, Places, S>, key: &Q, denied: Denied) -> Overloaded
where
    K: Hash + Eq + Send + Sync + 'static,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync + 'static,
{
    let limit = limiter.rule().limit();
    // After a fall of the limit there may be more. Some may have left since the refusal.
    let in_flight = if denied.reason() == Reason::Full { 0 } else { limiter.in_flight(key).max(limit) };
    Overloaded::new(limit, in_flight)
}

/// The place of a key's request in flight, from [`Enter::try_enter`], or the places of a
/// [`Hold`]. A `KeyFlight<'static>` owns its limiter, for a task.
///
/// The place is free again when this is dropped, also by a panic or with a cancelled future. The
/// place of a flight that is forgotten by [`mem::forget`](std::mem::forget) is never given back.
///
/// # Examples
///
/// ```
/// use tollgate::{Places, RateLimiter};
/// use tollgate_adaptive::{Enter, KeyFlight};
///
/// let uploads = RateLimiter::<String, _>::new(Places::new(2));
/// let pro = uploads.plan(Places::new(8))?;
/// let flight = KeyFlight::from(uploads.key("ada").n(3).under(&pro).hold()?);
/// assert_eq!(uploads.in_flight("ada"), 3);
/// drop(flight);
/// assert_eq!(uploads.in_flight("ada"), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// A type of its own: a hold is ten times as large as a `Flight`, whose calls took twice the
// instructions as one type with this.
#[must_use = "a flight that is dropped leaves"]
pub struct KeyFlight<'a>(Option<Hold<'a>>);

impl<'a> From<Hold<'a>> for KeyFlight<'a> {
    /// Returns the guard of the held places, with all options of their request.
    fn from(hold: Hold<'a>) -> KeyFlight<'a> {
        KeyFlight(Some(hold))
    }
}

impl Drop for KeyFlight<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            hold.settle(0);
        }
    }
}

/// Prints no key.
impl fmt::Debug for KeyFlight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFlight").finish_non_exhaustive()
    }
}
