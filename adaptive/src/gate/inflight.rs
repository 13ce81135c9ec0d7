//! The limit on requests in flight.

use std::fmt;
use std::time::Duration;

use crate::controller::control_loop::ControlLoop;
use crate::count::atomic_word::AtomicFlightWord;
use crate::count::priority::Priority;
use crate::fault::{Fault, injected};
use crate::gate::overloaded::Overloaded;
use crate::invalid_limit::InvalidLimit;
use crate::signals::counters::Answered;
use crate::sync::const_fn;

/// A limit on the requests in flight: fixed, or one that follows the latency of the answers.
///
/// The limit and the count are one atomic word. A request takes a place by one compare-and-swap,
/// holds it as a [`Flight`](crate::Flight), and leaves when the flight is dropped. A refusal
/// changes no count.
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
/// use tollgate_adaptive::Inflight;
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
    pub(crate) control: Option<Box<ControlLoop>>,
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
            Inflight { word: AtomicFlightWord::new(limit), control: None }
        }
    }

    /// Takes a place, and returns the reading of the clock, or 0 where the limit is fixed.
    #[inline]
    pub(super) fn admit(&self, priority: Priority) -> Result<u64, Overloaded> {
        let share = priority.share();
        let Some(control) = &self.control else {
            return self.word.enter(share).map(|_| 0).map_err(Overloaded::by);
        };
        // A refusal reads the clock at some calls only.
        let word = self.word.load();
        if word.entered(share).is_none() {
            control.note_refused(&self.word);
            return Err(Overloaded::by(word));
        }
        self.admit_now(control, share)
    }

    /// Takes a place that was there a moment ago. It is apart from `admit`, so that a refusal saves
    /// no registers.
    #[inline(never)]
    fn admit_now(&self, control: &ControlLoop, share: u16) -> Result<u64, Overloaded> {
        let start = control.tick(&self.word);
        match self.word.enter(share) {
            Ok(word) => {
                control.signals.note_peak(word.count());
                Ok(start)
            }
            Err(word) => {
                control.note_refused(&self.word);
                Err(Overloaded::by(word))
            }
        }
    }

    #[inline]
    pub(super) fn leave(&self, start: u64, answer: Option<Answered>) {
        if !injected(Fault::LeakOnDrop) || answer.is_some() {
            self.word.leave();
        }
        if let Some(control) = &self.control
            && answer != Some(Answered::Noted)
        {
            control.note(&self.word, start, answer);
        }
    }

    /// Notes the outcome of a request that was admitted at a reading. Returns its latency; `None`
    /// if the limit is fixed.
    pub(super) fn note(&self, start: u64, answer: Answered) -> Option<Duration> {
        let nanos = self.control.as_ref()?.note(&self.word, start, Some(answer));
        Some(Duration::from_nanos(nanos))
    }

    /// Sets the limit. Requests in flight stay. 0 is a pause: no request is admitted until another
    /// limit is set.
    ///
    /// A limit that adapts goes on from the new one: falls from before do not count. A longer
    /// [target](Inflight::target) stays in force.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if a limit that adapts would be outside of its floor and its ceiling. It
    /// has no pause.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_adaptive::Inflight;
    ///
    /// let limit = Inflight::fixed(2);
    /// limit.set_limit(0)?;
    /// assert_eq!(limit.try_enter().unwrap_err().to_string(), "no request is admitted: the limit is 0");
    /// limit.set_limit(2)?;
    /// assert!(limit.try_enter().is_ok());
    /// # Ok::<(), tollgate_adaptive::InvalidLimit>(())
    /// ```
    pub fn set_limit(&self, limit: u32) -> Result<(), InvalidLimit> {
        match &self.control {
            None => {
                self.word.put_limit(limit);
                Ok(())
            }
            Some(control) => control.set(&self.word, limit),
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
