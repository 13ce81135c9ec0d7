//! The guard of a place in flight, and the admission that makes one.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::count::priority::Priority;
use crate::gate::inflight::Inflight;
use crate::gate::overloaded::Overloaded;
use crate::signals::counters::Answered;
use crate::signals::outcome::Outcome;

/// The place of a request in flight, from [`Inflight::try_enter`].
///
/// The place is free again when the flight is dropped, also by a panic or with a cancelled future.
/// A flight that is dropped without an outcome counts as given up: as
/// [`overloaded`](Flight::overloaded) if it took longer than the target, else as no sample. The
/// place of a flight that is forgotten by [`mem::forget`](std::mem::forget) is never free again.
///
/// `L` is the handle of the limit: a reference, or the `Arc` of an [`OwnedFlight`].
// The handle is a parameter: with one type for both handles an admission and its end took 59
// instructions, and 27 with this.
#[must_use = "a flight that is dropped leaves"]
pub struct Flight<'a, L: Deref<Target = Inflight> = &'a Inflight> {
    limit: L,
    start: u64,
    answer: Option<Answered>,
    of: PhantomData<&'a Inflight>,
}

/// A [`Flight`] that owns its limit, for a task; from [`Inflight::try_enter_owned`].
pub type OwnedFlight = Flight<'static, Arc<Inflight>>;

impl<L: Deref<Target = Inflight>> Flight<'_, L> {
    #[inline]
    fn new(limit: L, start: u64) -> Self {
        Flight { limit, start, answer: None, of: PhantomData }
    }
}

impl Inflight {
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
        self.admit(priority).map(|start| Flight::new(self, start))
    }

    /// Takes a place that a task can own.
    ///
    /// # Errors
    ///
    /// [`Overloaded`] if its share of the limit is used up.
    pub fn try_enter_owned(self: &Arc<Self>, priority: Priority) -> Result<OwnedFlight, Overloaded> {
        let start = self.admit(priority)?;
        Ok(Flight::new(self.clone(), start))
    }
}

impl<L: Deref<Target = Inflight>> Flight<'_, L> {
    /// Leaves after an answer. The latency is a sample.
    #[inline]
    pub fn answered(self) {
        self.end(Outcome::Answered);
    }

    /// Leaves after a failure by a lack of capacity, such as a timeout, a refused connection, or
    /// 503. It is a sample as slow as can be.
    #[inline]
    pub fn overloaded(self) {
        self.end(Outcome::Overloaded);
    }

    /// Leaves after another failure, such as 500. It is no sample: a fast error does not raise the
    /// limit.
    #[inline]
    pub fn failed(self) {
        self.end(Outcome::Failed);
    }

    /// Leaves after an outcome.
    ///
    /// The first outcome of a request counts, so this one is ignored after [`note`](Flight::note).
    #[inline]
    pub fn end(mut self, outcome: Outcome) {
        self.answer.get_or_insert(outcome.answered());
    }

    /// Notes an outcome, and holds the place until the flight is dropped.
    ///
    /// This is for the head of a response whose body takes longer. Returns the latency until now;
    /// `None` if the limit is fixed, as such a limit reads no clock. A second outcome is ignored,
    /// and returns `None`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Clock;
    /// use tollgate_adaptive::{Inflight, Outcome};
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
    /// # Ok::<(), tollgate_adaptive::InvalidLimit>(())
    /// ```
    pub fn note(&mut self, outcome: Outcome) -> Option<Duration> {
        if self.answer.replace(Answered::Noted).is_some() {
            return None;
        }
        self.limit.note(self.start, outcome.answered())
    }
}

impl<L: Deref<Target = Inflight>> Drop for Flight<'_, L> {
    #[inline]
    fn drop(&mut self) {
        self.limit.leave(self.start, self.answer);
    }
}

impl<L: Deref<Target = Inflight>> fmt::Debug for Flight<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").finish_non_exhaustive()
    }
}
