//! The limit on requests in flight: its word, and the requests that hold a place.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::adapt::Adapt;
use super::atomic_word::AtomicFlightWord;
use super::invalid_limit::InvalidLimit;
use super::outcome::Outcome;
use super::priority::Priority;
use super::signals::Answered;
use super::word::FlightWord;
use crate::fault::{Fault, injected};
use crate::sync::const_fn;

/// A limit on the requests in flight: fixed, or one that follows the latency of the answers.
///
/// The limit and the count are one atomic word. A request takes a place by one compare-and-swap,
/// holds it as a [`Flight`], and leaves when the flight is dropped. A refusal changes no count.
///
/// **The law.** At each admission the count is at most the limit, both as of that instant. A lower
/// limit ends no request: the count falls as requests leave.
///
/// A limit is [`fixed`](Inflight::fixed), or [adapts](Inflight::adaptive) so that nine tenths of
/// the requests are answered within a target.
///
/// # Orderings
///
/// A request that takes a place sees the memory effects of each request that left before it
/// (`Acquire` of the compare-and-swap, `Release` of the subtraction on the same word; checked by
/// `a_place_hands_over_its_work` in `src/tests/models/inflight.rs`). The signals of the controller
/// are relaxed.
///
/// # Examples
///
/// ```
/// use tollgate::Inflight;
///
/// static UPLOADS: Inflight = Inflight::fixed(2);
///
/// let first = UPLOADS.try_enter().unwrap();
/// let second = UPLOADS.try_enter().unwrap();
/// assert_eq!(UPLOADS.try_enter().unwrap_err().to_string(), "2 requests are in flight, and the limit is 2");
/// drop(first);
/// assert!(UPLOADS.try_enter().is_ok());
/// # drop(second);
/// ```
pub struct Inflight {
    pub(crate) word: AtomicFlightWord,
    pub(crate) adapt: Option<Box<Adapt>>,
}

impl Inflight {
    const_fn! {
        /// Returns a limit that stays until it is [set](Inflight::set_limit).
        ///
        /// # Panics
        ///
        /// Panics if the limit is 0; in a constant that is an error at compile time.
        #[must_use]
        #[track_caller]
        pub const fn fixed(limit: u32) -> Inflight {
            assert!(limit > 0, "a limit of 0 requests in flight admits none");
            Inflight { word: AtomicFlightWord::new(limit), adapt: None }
        }
    }

    /// Takes a place, as [`Priority::Critical`]: the request may use all of the limit.
    ///
    /// # Errors
    ///
    /// [`Overloaded`] if the limit is used up.
    #[inline]
    pub fn try_enter(&self) -> Result<Flight<'_>, Overloaded> {
        self.try_enter_as(Priority::Critical)
    }

    /// Takes a place for a request of a priority.
    ///
    /// # Errors
    ///
    /// [`Overloaded`] if its share of the limit is used up.
    #[inline]
    pub fn try_enter_as(&self, priority: Priority) -> Result<Flight<'_>, Overloaded> {
        self.admit(priority).map(|start| Flight { inflight: self, start, answer: None })
    }

    /// Takes a place that a task can own.
    ///
    /// # Errors
    ///
    /// [`Overloaded`] if its share of the limit is used up.
    pub fn try_enter_owned(self: &Arc<Self>, priority: Priority) -> Result<OwnedFlight, Overloaded> {
        let start = self.admit(priority)?;
        Ok(OwnedFlight { inflight: self.clone(), start, answer: None })
    }

    /// Takes a place, and returns the reading of the clock, or 0 where the limit is fixed.
    #[inline]
    fn admit(&self, priority: Priority) -> Result<u64, Overloaded> {
        let share = priority.share();
        let Some(adapt) = &self.adapt else {
            return self.word.enter(share).map(|_| 0).map_err(Overloaded::by);
        };
        // A refusal reads the clock at some calls only.
        let word = self.word.load();
        if word.entered(share).is_none() {
            adapt.note_refused(&self.word);
            return Err(Overloaded::by(word));
        }
        self.admit_now(adapt, share)
    }

    /// Takes a place that was there a moment ago. It is apart from `admit`, so that a refusal saves
    /// no registers.
    #[inline(never)]
    fn admit_now(&self, adapt: &Adapt, share: u16) -> Result<u64, Overloaded> {
        let start = adapt.tick(&self.word);
        match self.word.enter(share) {
            Ok(word) => {
                adapt.signals.note_peak(word.count());
                Ok(start)
            }
            Err(word) => {
                adapt.note_refused(&self.word);
                Err(Overloaded::by(word))
            }
        }
    }

    #[inline]
    fn leave(&self, start: u64, answer: Option<Answered>) {
        if !injected(Fault::LeakOnDrop) || answer.is_some() {
            self.word.leave();
        }
        if let Some(adapt) = &self.adapt
            && answer != Some(Answered::Noted)
        {
            adapt.note(&self.word, start, answer);
        }
    }

    /// Sets the limit. Requests in flight stay.
    ///
    /// A limit that adapts goes on from the new one: falls from before do not count. A longer
    /// [target](Inflight::target) stays in force.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the limit is 0, or outside of the floor and the ceiling of a limit that
    /// adapts.
    pub fn set_limit(&self, limit: u32) -> Result<(), InvalidLimit> {
        match &self.adapt {
            None => {
                InvalidLimit::check("a limit", limit, (1, u32::MAX.into()))?;
                self.word.put_limit(limit);
                Ok(())
            }
            Some(adapt) => adapt.set(&self.word, limit),
        }
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.word.load().limit()
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.word.load().count()
    }
}

impl fmt::Debug for Inflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load();
        f.debug_struct("Inflight")
            .field("limit", &word.limit())
            .field("in_flight", &word.count())
            .finish_non_exhaustive()
    }
}

/// Declares the guard of a place, which leaves when it is dropped.
macro_rules! flight {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)?, $inflight:ty) => {
        $(#[$doc])*
        #[must_use = "a flight that is dropped leaves"]
        pub struct $name $(<$life>)? {
            inflight: $inflight,
            start: u64,
            answer: Option<Answered>,
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// Leaves after an answer. The latency is a sample.
            #[inline]
            pub fn answered(self) {
                self.end(Outcome::Answered);
            }

            /// Leaves after a failure by a lack of capacity, such as a timeout, a refused
            /// connection, or 503. It is a sample as slow as can be.
            #[inline]
            pub fn overloaded(self) {
                self.end(Outcome::Overloaded);
            }

            /// Leaves after another failure, such as 500. It is no sample: a fast error does not
            /// raise the limit.
            #[inline]
            pub fn failed(self) {
                self.end(Outcome::Failed);
            }

            /// Leaves after an outcome.
            ///
            /// The first outcome of a request counts, so this one is ignored after
            #[doc = concat!("[`note`](", stringify!($name), "::note).")]
            #[inline]
            pub fn end(mut self, outcome: Outcome) {
                self.answer.get_or_insert(outcome.answered());
            }

            /// Notes an outcome, and holds the place until the flight is dropped.
            ///
            /// This is for the head of a response whose body takes longer. Returns the latency
            /// until now; `None` if the limit is fixed, as such a limit reads no clock. A second
            /// outcome is ignored, and returns `None`.
            ///
            /// # Examples
            ///
            /// ```
            /// use std::time::Duration;
            /// use tollgate::{Clock, Inflight, Outcome};
            ///
            /// let (clock, mock) = Clock::mock();
            /// let limit = Inflight::adaptive(Duration::from_millis(300), 10).clock(clock).build()?;
            /// let mut flight = limit.try_enter().unwrap();
            /// mock.advance(Duration::from_millis(20));
            /// assert_eq!(flight.note(Outcome::Answered), Some(Duration::from_millis(20)));
            /// // The body takes a second.
            /// mock.advance(Duration::from_secs(1));
            /// assert_eq!((limit.in_flight(), flight.note(Outcome::Failed)), (1, None));
            /// drop(flight);
            /// assert_eq!(limit.in_flight(), 0);
            /// # Ok::<(), tollgate::InvalidLimit>(())
            /// ```
            pub fn note(&mut self, outcome: Outcome) -> Option<Duration> {
                if self.answer.replace(Answered::Noted).is_some() {
                    return None;
                }
                let Inflight { word, adapt } = &*self.inflight;
                let nanos = adapt.as_ref()?.note(word, self.start, Some(outcome.answered()));
                Some(Duration::from_nanos(nanos))
            }
        }

        impl $(<$life>)? Drop for $name $(<$life>)? {
            #[inline]
            fn drop(&mut self) {
                self.inflight.leave(self.start, self.answer);
            }
        }

        impl $(<$life>)? fmt::Debug for $name $(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

flight! {
    /// The place of a request in flight, from [`Inflight::try_enter`].
    ///
    /// A flight that is dropped without an outcome counts as given up: as
    /// [`overloaded`](Flight::overloaded) if it took longer than the target, else as no sample. The
    /// place of a flight that is forgotten by [`mem::forget`](std::mem::forget) is never free
    /// again.
    Flight<'a>, &'a Inflight
}

flight! {
    /// A [`Flight`] that owns its limit, for a task; from [`Inflight::try_enter_owned`].
    OwnedFlight, Arc<Inflight>
}

/// The refusal of a request that found no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Overloaded {
    limit: u32,
    in_flight: u32,
}

impl Overloaded {
    #[inline]
    fn by(word: FlightWord) -> Overloaded {
        Overloaded { limit: word.limit(), in_flight: word.count() }
    }

    /// Returns the limit at the refusal. The priority of the request has a share of it.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

impl Error for Overloaded {}

impl fmt::Display for Overloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests are in flight, and the limit is {}", self.in_flight, self.limit)
    }
}
