//! Clocks: the calibrated counter, a coarse one, a mock, and a function of the user.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};
use crate::time::periodic::PeriodicThread;
use crate::time::tsc::{self, Tsc};
use crate::time::wall;

/// A monotonic clock: the processor's counter, a coarse copy of it, or a mock.
///
/// A limiter has one clock and reads it in every decision. A clone is the same clock.
///
/// * [`Clock::new`] reads the processor's counter through `quanta` (about 9 ns), or the system's
///   monotonic clock where the counter is not reliable. All such clocks are one, calibrated once in
///   a process: a thread takes 1 to 200 ms for it, from when a limiter is built, or from a decision
///   of a `const` bucket that comes a millisecond after the first. Until then a reading is one of
///   the system's monotonic clock, on the same line of time; [`warm`](Clock::warm) waits for the
///   counter. The counter does not count the time a machine is
///   suspended. Counters of different cores may differ; readings that are up to 4 s behind the
///   latest decision of their bucket neither earn nor lose anything.
/// * [`Clock::coarse`] reads the last reading that a thread stored: a load instead of a counter's
///   reading.
/// * [`Clock::mock`] stands still until it is moved.
/// * [`Clock::from_fn`] reads a function of the user.
///
/// # The wall clock
///
/// A [`Window`](crate::Window) with edges by the calendar needs Unix time. It takes a reading of
/// the processor's counter, or of a coarse clock, and shifts it to the system's wall clock. The
/// shift is looked up again after a second at most, by readings of both clocks. So a coarse clock
/// is late here as elsewhere, never early, and shifts no other clock. The readings of a mock or of
/// a function are taken as times since 1970.
///
/// A wall clock that is set back by up to two periods (or 4 s, if that is longer) grants nothing
/// anew: its readings are behind the latest decision. If it is set back by up to two more periods
/// (or an hour, if that is longer), the window of the earlier time goes on with the tokens that
/// were used. Beyond that the window reads as unused: one of a minute after 62 minutes, of an hour
/// after 4 hours, of a day after 4 days, of a month after 4 months. A clock that is set forward
/// opens the next window.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, TokenBucket};
///
/// let (clock, mock) = Clock::mock();
/// let bucket = TokenBucket::builder(Quota::per_second(1)).clock(clock).build();
/// assert!(bucket.try_acquire().is_ok());
/// assert!(bucket.try_acquire().is_err());
/// mock.advance(Duration::from_secs(1));
/// assert!(bucket.try_acquire().is_ok());
/// ```
#[derive(Clone)]
pub struct Clock(ClockSource);

#[derive(Clone)]
enum ClockSource {
    Tsc,
    Coarse(
        Arc<CachePadded<AtomicU64>>,
        #[expect(dead_code, reason = "held for its drop")] Arc<PeriodicThread>,
    ),
    Mock(Arc<AtomicU64>),
    Custom(Arc<dyn Fn() -> Duration + Send + Sync>),
    /// Unix time, plus an offset in nanoseconds.
    Wall(i64),
    /// Another clock's Unix time, plus an offset in nanoseconds.
    Shifted(Arc<(Clock, i64)>),
}

impl Clock {
    /// Returns a clock that reads the processor's counter. It costs nothing until it is read.
    #[must_use]
    pub const fn new() -> Clock {
        Clock(ClockSource::Tsc)
    }

    /// Returns a clock that stands at 0 until its [`MockClock`] moves it.
    ///
    /// For a window by the calendar, 0 is 1970-01-01 00:00 UTC.
    #[must_use]
    pub fn mock() -> (Clock, MockClock) {
        let nanos = Arc::new(AtomicU64::new(0));
        (Clock(ClockSource::Mock(Arc::clone(&nanos))), MockClock(nanos))
    }

    /// Returns a clock that reads the processor's counter as a thread stored it last, every
    /// `interval`.
    ///
    /// Decisions see time pass in steps of about `interval`, so tokens come up to that much later,
    /// never earlier. The thread stops when the last clone is dropped. An interval below 1 us is
    /// taken as 1 us. If no thread can be started the clock reads the counter itself, which is
    /// slower but right.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let clock = Clock::coarse(Duration::from_millis(1));
    /// let bucket = TokenBucket::builder(Quota::per_second(100)).clock(clock).build();
    /// assert!(bucket.try_acquire().is_ok());
    /// ```
    #[must_use]
    pub fn coarse(interval: Duration) -> Clock {
        let noted = Arc::new(CachePadded::new(AtomicU64::new(tsc::nanos())));
        let note = Arc::clone(&noted);
        let interval = interval.max(Duration::from_micros(1));
        match PeriodicThread::every("tollgate-clock", interval, move || {
            note.store(tsc::nanos(), Ordering::Release);
            true
        }) {
            Ok(thread) => Clock(ClockSource::Coarse(noted, Arc::new(thread))),
            Err(_) => Clock::new(),
        }
    }

    /// Returns a clock that reads `now`: the time since some fixed moment.
    ///
    /// Times above 2^63 - 1 ns (292 years) count as that. `now` should never go back, nor block,
    /// nor use a limiter that is on this clock.
    ///
    /// # Examples
    ///
    /// A clock that stands while tokio's is paused:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let start = tokio::time::Instant::now();
    /// let clock = Clock::from_fn(move || start.elapsed());
    /// let bucket = TokenBucket::builder(Quota::per_second(1)).clock(clock).build();
    /// assert!(bucket.try_acquire().is_ok());
    /// tokio::time::advance(Duration::from_secs(1)).await;
    /// assert!(bucket.try_acquire().is_ok());
    /// # }
    /// ```
    #[must_use]
    pub fn from_fn(now: impl Fn() -> Duration + Send + Sync + 'static) -> Clock {
        Clock(ClockSource::Custom(Arc::new(now)))
    }

    /// Returns the process's Unix time, plus an offset in nanoseconds.
    pub(crate) const fn unix(offset: i64) -> Clock {
        Clock(ClockSource::Wall(offset))
    }

    /// Returns this clock in Unix time, plus an offset in nanoseconds.
    pub(crate) fn in_unix_time(self, offset: i64) -> Clock {
        match self.0 {
            ClockSource::Tsc => Clock::unix(offset),
            _ => Clock(ClockSource::Shifted(Arc::new((self, offset)))),
        }
    }

    /// Returns the Unix time of a reading in nanoseconds. Those of a mock and of a function are
    /// taken as such.
    pub(crate) fn unix_of(&self, nanos: u64) -> u64 {
        match self.0 {
            ClockSource::Tsc | ClockSource::Coarse(..) => wall::unix_at(nanos),
            _ => nanos,
        }
    }

    /// Returns whether the readings count from a fixed time of the calendar.
    pub(crate) fn is_by_calendar(&self) -> bool {
        matches!(self.0, ClockSource::Wall(_) | ClockSource::Shifted(_))
    }

    /// Waits until the processor's counter is calibrated: 1 to 200 ms, once in a process.
    ///
    /// A decision does not wait for that, but takes some 0.1 us more until then.
    ///
    /// # Examples
    ///
    /// ```
    /// tollgate::Clock::new().warm();
    /// ```
    pub fn warm(&self) {
        self.nanos_per_raw();
    }

    /// Reads the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Clock;
    ///
    /// let (clock, mock) = Clock::mock();
    /// let before = clock.now();
    /// mock.advance(Duration::from_millis(5));
    /// assert_eq!(clock.now().since(before), Duration::from_millis(5));
    /// ```
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment(self.nanos())
    }

    /// Returns the time since 1970 by which a window has its edges; see [the wall clock of this
    /// clock](Clock#the-wall-clock).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Window};
    ///
    /// let (clock, mock) = Clock::mock();
    /// mock.advance(Duration::from_secs(90));
    /// let (_, ends) = Window::per_minute(9).utc().edges_at(clock.unix_time()).unwrap();
    /// assert_eq!(ends - clock.unix_time(), Duration::from_secs(30));
    /// ```
    #[must_use]
    pub fn unix_time(&self) -> Duration {
        Duration::from_nanos(self.unix_of(self.nanos()))
    }

    /// Returns the nanoseconds since some fixed moment.
    #[inline(always)]
    pub(crate) fn nanos(&self) -> u64 {
        match &self.0 {
            ClockSource::Tsc => tsc::nanos(),
            ClockSource::Coarse(noted, _) => noted.load(Ordering::Acquire),
            _ => self.other_nanos(),
        }
    }

    // Out of line, so that the common sources cost one or two comparisons.
    #[inline(never)]
    fn other_nanos(&self) -> u64 {
        match &self.0 {
            ClockSource::Tsc | ClockSource::Coarse(..) => self.nanos(),
            // SeqCst: see `bucket/live_terms.rs`.
            ClockSource::Mock(nanos) => nanos.load(Ordering::SeqCst).min(MAX_READING),
            ClockSource::Custom(now) => nanos_of(now()).min(MAX_READING),
            ClockSource::Wall(offset) => wall::unix_now().saturating_add_signed(*offset).min(MAX_READING),
            ClockSource::Shifted(shifted) => {
                let (clock, offset) = &**shifted;
                let nanos = clock.nanos();
                let unix = if let ClockSource::Coarse(..) = clock.0 { wall::unix_at(nanos) } else { nanos };
                unix.saturating_add_signed(*offset).min(MAX_READING)
            }
        }
    }

    /// Returns a reading as its source has it: in nanoseconds, or in raw counter units.
    ///
    /// Before the counter is calibrated, the reading is 0.
    #[inline(always)]
    pub(crate) fn raw(&self) -> u64 {
        match &self.0 {
            ClockSource::Tsc => tsc::raw(),
            ClockSource::Coarse(noted, _) => noted.load(Ordering::Acquire),
            _ => self.other_nanos(),
        }
    }

    /// Starts the calibration of the counter, without a wait for its end.
    pub(crate) fn calibrate(&self) {
        if let ClockSource::Tsc | ClockSource::Wall(_) = self.0 {
            tsc::calibrate();
        }
    }

    /// Returns whether a raw reading tells the time, and [`nanos_per_raw`](Clock::nanos_per_raw)
    /// is known.
    pub(crate) fn is_calibrated(&self) -> bool {
        !matches!(self.0, ClockSource::Tsc) || tsc::is_calibrated()
    }

    /// Returns the nanoseconds per unit of [`raw`](Clock::raw): whole ones, and 2^-64ths of one.
    ///
    /// Waits for the calibration of the counter.
    pub(crate) fn nanos_per_raw(&self) -> (u64, u64) {
        match self.0 {
            ClockSource::Tsc => Tsc::calibrated().nanos_per_raw(),
            _ => (1, 0),
        }
    }

    /// Returns whether both clocks read the same source, so that one reading serves both.
    pub(crate) fn is_same(&self, other: &Clock) -> bool {
        match (&self.0, &other.0) {
            (ClockSource::Tsc, ClockSource::Tsc) => true,
            (ClockSource::Coarse(one, _), ClockSource::Coarse(two, _)) => Arc::ptr_eq(one, two),
            (ClockSource::Mock(one), ClockSource::Mock(two)) => Arc::ptr_eq(one, two),
            (ClockSource::Custom(one), ClockSource::Custom(two)) => Arc::ptr_eq(one, two),
            (ClockSource::Wall(one), ClockSource::Wall(two)) => one == two,
            (ClockSource::Shifted(one), ClockSource::Shifted(two)) => one.1 == two.1 && one.0.is_same(&two.0),
            _ => false,
        }
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ClockSource::Tsc => "Clock(counter)",
            ClockSource::Coarse(..) => "Clock(coarse)",
            ClockSource::Mock(_) => "Clock(mock)",
            ClockSource::Custom(_) => "Clock(custom)",
            ClockSource::Wall(_) => "Clock(wall)",
            ClockSource::Shifted(_) => "Clock(shifted)",
        })
    }
}

/// A reading of a clock, from [`Clock::now`] or of the clock of a limiter, such as
/// [`Limit::now`](crate::Limit::now). It is valid for limiters on the same clock only.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, TokenBucket};
///
/// let (clock, mock) = Clock::mock();
/// let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
/// let before = bucket.now();
/// mock.advance(Duration::from_millis(5));
/// assert_eq!(bucket.now().since(before), Duration::from_millis(5));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub(crate) u64);

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moment").field(&Duration::from_nanos(self.0)).finish()
    }
}

impl Moment {
    /// Returns the nanoseconds of the reading, since some fixed moment of its clock.
    #[inline]
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since an earlier moment; zero if that moment is later.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The largest reading: the highest bit has another use in `bucket/live_terms.rs`. (The counter
/// takes 292 years to reach it.)
const MAX_READING: u64 = (1 << 63) - 1;

/// A handle, for tests, that moves the [`Clock`] it was made with. A clone moves the same clock.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, TokenBucket};
///
/// let (clock, mock) = Clock::mock();
/// let bucket = TokenBucket::builder(Quota::per_second(10).burst(1)).clock(clock).build();
/// mock.advance(Duration::from_secs(60));
/// bucket.try_acquire()?;
/// // A clock that is set back earns nothing.
/// mock.rewind(Duration::from_secs(1));
/// assert!(bucket.try_acquire().is_err());
/// # Ok::<(), tollgate::Denied>(())
/// ```
#[derive(Clone)]
pub struct MockClock(Arc<AtomicU64>);

impl fmt::Debug for MockClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.load(Ordering::SeqCst);
        f.debug_tuple("MockClock").field(&Duration::from_nanos(nanos)).finish()
    }
}

impl MockClock {
    /// Moves the clock forward. It reads 2^63 - 1 ns (292 years) at most.
    pub fn advance(&self, by: Duration) {
        self.set(|nanos| nanos.saturating_add(nanos_of(by)));
    }

    /// Moves the clock back, at most to 0.
    pub fn rewind(&self, by: Duration) {
        self.set(|nanos| nanos.saturating_sub(nanos_of(by)));
    }

    fn set(&self, to: impl Fn(u64) -> u64) {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |nanos| Some(to(nanos)))
            .expect("the update is never declined");
    }
}

pub(crate) fn nanos_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
