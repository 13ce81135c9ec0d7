//! A limit of tokens in a period, and the way in which the periods follow each other.

use std::time::Duration;

use crate::rule::error::InvalidRule;
use crate::rule::utc_offset::UtcOffset;
use crate::rule::window_layout::{FIRST_USE_TICKS, MONTH, WindowError, WindowLayout, check};

/// A limit of tokens in a period: a fixed, a sliding or a weighted window.
///
/// A window counts the tokens that were used, where the bucket of a [`Quota`](crate::Quota) earns
/// tokens. `L` is the limit, `P` the period, `T` any time.
///
/// | window | never more than |
/// |---|---|
/// | fixed, from the first use | `L` in the `P` after the first grant, `2 L - 1` in any `P` |
/// | [`utc`](Window::utc) | `L` between two edges, `2 L` in any `P` |
/// | [`sliding`](Window::sliding), in `b` sub-windows | `L` in any `P` |
/// | [`weighted`](Window::weighted) | `L` between two edges, `2 L - 1` in any `P` |
///
/// A fixed window grants the rest of its tokens at any time; from the first use it ends up to
/// `P / 2^15` late. A sliding window grants all that an exact log of `P (1 + 1/b)` grants. A
/// weighted window never grants more than the bucket `L` every `P` with burst `L`, and may refuse
/// all that a log grants.
///
/// A window that was left alone for any time reads as unused. In a limiter of many keys one call
/// looks at all of them for that, each 9 hours at the most often: 0.3 s for a million keys in the
/// map. With a [janitor](crate::RateLimiter::janitor) no call does.
///
/// A fixed window is the interval refill of other limiters: the bucket that is filled to its
/// capacity at the end of each interval. It suits quotas that are sold or announced. A sliding
/// window suits strict caps: logins, the limits of third parties. A weighted window is for parity
/// with an upstream that has one; a [`Quota`](crate::Quota) has the same bound and grants more
/// evenly. For a strict cap with a large limit take [`Quota::at_most`](crate::Quota::at_most).
///
/// # Bounds
///
/// These bounds are checked when a `Window` is made:
///
/// * a limit of 1 to 2^40 tokens, and a period of 1 ms to 2^62 ns (146 years);
/// * a sliding window has at least four sub-windows, unless its
///   [`granularity`](Window::granularity) is named. The limit decides: 41 to 51 for a limit of 1, 5
///   to 6 for 100, 3 to 4 for 1,000;
/// * a window with a large limit and a short period may not fit one word.
///
/// # Text
///
/// A window is written `100/h fixed`, `1000/d fixed utc`, `1000/d fixed utc+2`, `1000/d fixed
/// utc-3:30`, `50000/month fixed utc`, `5/15m sliding`, `1000/m sliding 20s` or `100/m weighted`,
/// and read from the same text. A period is a unit or a number of them, as in the [text of a
/// quota](crate::Quota#text); `w` and `week` are units too. An offset is a number of quarter hours,
/// from `utc-12` to `utc+14`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Window;
///
/// const SOLD: Window = Window::per_day(1_000).utc();
/// assert_eq!(SOLD.to_string(), "1000/d fixed utc");
///
/// let logins = Window::per(5, Duration::from_secs(900)).sliding();
/// assert_eq!("5/15m sliding".parse(), Ok(logins));
/// assert_eq!(logins.sub_window(), Some(Duration::from_millis(56_250)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    pub(super) limit: u64,
    /// The largest limit that the word has room for.
    pub(super) top: u64,
    pub(super) nanos: u64,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    FirstUse,
    Utc(UtcOffset),
    Month(UtcOffset),
    Sliding,
    /// The longest sub-window in nanoseconds.
    SlidingBy(u64),
    Weighted,
}

impl Window {
    /// Returns a fixed window of `limit` tokens a second, from the first use.
    ///
    /// # Panics
    ///
    /// Panics if the window is out of [bounds](Window#bounds); in a constant that is an error at
    /// compile time. [`try_per`](Window::try_per) is for numbers that come in at run time.
    #[must_use]
    #[track_caller]
    pub const fn per_second(limit: u64) -> Window {
        Window::per(limit, Duration::from_secs(1))
    }

    /// Returns a fixed window of `limit` tokens a minute, from the first use.
    ///
    /// Panics as [`per_second`](Window::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn per_minute(limit: u64) -> Window {
        Window::per(limit, Duration::from_secs(60))
    }

    /// Returns a fixed window of `limit` tokens an hour, from the first use.
    ///
    /// Panics as [`per_second`](Window::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn per_hour(limit: u64) -> Window {
        Window::per(limit, Duration::from_secs(3_600))
    }

    /// Returns a fixed window of `limit` tokens in 24 hours, from the first use.
    ///
    /// Panics as [`per_second`](Window::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn per_day(limit: u64) -> Window {
        Window::per(limit, Duration::from_secs(86_400))
    }

    /// Returns a fixed window of `limit` tokens a civil month, which begins on the first at
    /// midnight UTC.
    ///
    /// Panics as [`per_second`](Window::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn per_month(limit: u64) -> Window {
        Window { limit, top: limit, nanos: MONTH, kind: Kind::Month(UtcOffset::ZERO) }.held()
    }

    /// Returns a fixed window of `limit` tokens every `period`, from the first use.
    ///
    /// The window of a key begins with the first grant after the last window's end. So keys share
    /// no edge at which all of them come back at once.
    ///
    /// Panics as [`per_second`](Window::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn per(limit: u64, period: Duration) -> Window {
        match Window::checked(limit, period.as_nanos()) {
            Ok(window) => window,
            Err(flaw) => panic!("{}", flaw.sentence()),
        }
    }

    /// Returns a fixed window of `limit` tokens every `period`, for numbers that come in at run
    /// time.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] names the number and the bound it is out of.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Window;
    ///
    /// let error = Window::try_per(0, Duration::from_secs(1)).unwrap_err();
    /// assert_eq!(error.to_string(), "a limit of 0 tokens grants nothing: the least is 1");
    /// ```
    pub fn try_per(limit: u64, period: Duration) -> Result<Window, InvalidRule> {
        Ok(Window::checked(limit, period.as_nanos())?)
    }

    /// Returns the same limit and period with edges by the calendar: multiples of the period since
    /// 1970-01-01 at midnight UTC.
    ///
    /// Periods of whole weeks begin on a Monday. All keys share the edges. The wall clock is read
    /// for them: see [`Clock`](crate::Clock#the-wall-clock).
    ///
    /// Panics as [`per_second`](Window::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn utc(self) -> Window {
        self.with_offset(UtcOffset::ZERO).held()
    }

    /// Returns a window like [`utc`](Window::utc), with edges by a clock that is `minutes` to the
    /// east of UTC: quarter hours from -720 (-12 hours) to 840 (14 hours).
    ///
    /// A time zone with summer time is not a constant offset, and is not offered.
    ///
    /// # Panics
    ///
    /// Panics on other offsets, and as [`per_second`](Window::per_second) does.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Window;
    ///
    /// let (india, newfoundland) = (5 * 60 + 30, -(3 * 60 + 30));
    /// assert_eq!(Window::per_day(9).utc_offset(india).to_string(), "9/d fixed utc+5:30");
    /// assert_eq!("9/d fixed utc-3:30".parse(), Ok(Window::per_day(9).utc_offset(newfoundland)));
    /// ```
    #[must_use]
    #[track_caller]
    pub const fn utc_offset(self, minutes: i16) -> Window {
        self.with_offset(UtcOffset::minutes(minutes)).held()
    }

    /// Returns a window with edges by a clock that is `minutes` to the east of UTC, for numbers
    /// that come in at run time.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] names the number and the bound it is out of.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Window;
    ///
    /// let error = Window::per_day(9).try_utc_offset(15 * 60).unwrap_err().to_string();
    /// assert_eq!(error, "an offset of utc+15 is out of the bounds from utc-12 to utc+14, in quarter hours");
    /// ```
    pub fn try_utc_offset(self, minutes: i16) -> Result<Window, InvalidRule> {
        Ok(self.with_offset(UtcOffset::minutes(minutes)).check()?)
    }

    /// Returns the same limit and period as a sliding window: at most the limit in any period.
    ///
    /// The period is divided into sub-windows, as many as fit one word beside the limit. Tokens
    /// come back a whole period after the end of the sub-window in which they were used.
    ///
    /// # Panics
    ///
    /// Panics if fewer than four sub-windows fit, and as [`per_second`](Window::per_second) does.
    /// [`granularity`](Window::granularity) accepts fewer.
    #[must_use]
    #[track_caller]
    pub const fn sliding(self) -> Window {
        self.of_kind(Kind::Sliding).held()
    }

    /// Returns the same limit and period as a sliding window, for numbers that come in at run time.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] names the number and the bound it is out of.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Window;
    ///
    /// let error = Window::per_hour(5_000).try_sliding().unwrap_err().to_string();
    /// assert_eq!(
    ///     error,
    ///     "a limit of 5000 leaves 3 sub-windows of 20m, under the bound of 4: tokens would come back up to 20m \
    ///      late. Say \"5000/h sliding 20m\", or \"at most 5000/h burst 500\""
    /// );
    /// ```
    pub fn try_sliding(self) -> Result<Window, InvalidRule> {
        Ok(self.of_kind(Kind::Sliding).check()?)
    }

    /// Returns the same limit and period as a sliding window, with sub-windows of at most
    /// `longest`.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] if the limit leaves no room for that many sub-windows.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Window;
    ///
    /// let (hour, minute) = (Duration::from_secs(3_600), Duration::from_secs(60));
    /// let window = Window::per(5_000, hour).granularity(20 * minute)?;
    /// assert_eq!(window.to_string(), "5000/h sliding 20m");
    ///
    /// let error = Window::per(5_000, hour).granularity(minute).unwrap_err().to_string();
    /// assert_eq!(
    ///     error,
    ///     "a limit of 5000 leaves 3 sub-windows of 20m, over the bound of 1m: say \"5000/h sliding 20m\", or \
    ///      \"at most 5000/h burst 500\""
    /// );
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    pub fn granularity(self, longest: Duration) -> Result<Window, InvalidRule> {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Ok(self.of_kind(Kind::SlidingBy(longest)).check()?)
    }

    /// Returns the same limit and period as a weighted window: the sliding window counter of two
    /// windows, of which the earlier one fades evenly.
    ///
    /// Panics as [`per_second`](Window::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn weighted(self) -> Window {
        self.of_kind(Kind::Weighted).held()
    }

    /// Returns the same limit and period as a weighted window, for numbers that come in at run
    /// time.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] names the number and the bound it is out of.
    pub fn try_weighted(self) -> Result<Window, InvalidRule> {
        Ok(self.of_kind(Kind::Weighted).check()?)
    }

    /// Returns the same window with another limit.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] names the number and the bound it is out of.
    pub fn with_limit(self, limit: u64) -> Result<Window, InvalidRule> {
        Ok(Window { limit, top: limit, ..self }.check()?)
    }

    /// Returns the same window with a limit of 0: each request for a token is refused.
    ///
    /// A limiter to which it is [set](crate::RateLimiter::set_rule) keeps its counts, and the
    /// window goes on. The refusals are those of [`Quota::BLOCKED`](crate::Quota::BLOCKED).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Reason, Window, WindowCounter};
    ///
    /// let hour = Window::per_hour(5);
    /// let counter = WindowCounter::new(hour);
    /// assert!(counter.try_acquire_n(2).is_ok());
    /// counter.set_rule(hour.blocked())?;
    /// assert_eq!(counter.try_acquire().unwrap_err().reason(), Reason::Blocked);
    /// counter.set_rule(hour)?;
    /// assert_eq!(counter.peek().remaining(), 3);
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    #[must_use]
    pub const fn blocked(self) -> Window {
        Window { limit: 0, ..self }
    }

    /// Returns the limit, in tokens; 0 of a window that is [blocked](Window::blocked).
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the period; 31 days for civil months.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// Returns the length of a sub-window, if this is a sliding window: the longest time by which
    /// tokens come back later than by an exact log.
    ///
    /// The window of a limiter that was built with headroom may have longer ones.
    #[must_use]
    pub const fn sub_window(&self) -> Option<Duration> {
        match (self.kind, self.layout()) {
            (Kind::Sliding | Kind::SlidingBy(_), Ok(layout)) => {
                Some(Duration::from_nanos(self.nanos.div_ceil(layout.sub_windows())))
            }
            _ => None,
        }
    }

    /// Returns a time in which a client may spend the limit, over and over, and is never refused.
    ///
    /// It is the longest time until the tokens of one moment are forgotten: the period of a window
    /// by the calendar, 2^-16 of it more from the first use, a sub-window more of a sliding window,
    /// and two periods of a weighted one.
    #[must_use]
    pub fn span(&self) -> Duration {
        let late = match self.kind {
            // A tick: the first use may be late in its own.
            Kind::FirstUse => self.nanos.div_ceil(FIRST_USE_TICKS),
            Kind::Utc(_) | Kind::Month(_) => 0,
            Kind::Sliding | Kind::SlidingBy(_) => self.sub_window().unwrap_or_default().as_nanos() as u64,
            Kind::Weighted => self.nanos,
        };
        self.period() + Duration::from_nanos(late)
    }

    const fn checked(limit: u64, nanos: u128) -> Result<Window, WindowError> {
        match check(limit, nanos) {
            Ok(()) => Window { limit, top: limit, nanos: nanos as u64, kind: Kind::FirstUse }.check(),
            Err(flaw) => Err(flaw),
        }
    }

    #[track_caller]
    const fn held(self) -> Window {
        self.held_layout();
        self
    }

    /// Returns the layout of the word.
    ///
    /// # Panics
    ///
    /// Panics if the window is out of bounds: each window was checked when it was made.
    #[track_caller]
    pub(crate) const fn held_layout(&self) -> WindowLayout {
        match self.layout() {
            Ok(layout) => layout,
            Err(flaw) => panic!("{}", flaw.sentence()),
        }
    }

    /// Returns the limit and the period of this window as another kind, unchecked.
    const fn of_kind(self, kind: Kind) -> Window {
        // A month has no other kind: the layout is an error.
        let nanos = if matches!(self.kind, Kind::Month(_)) { 0 } else { self.nanos };
        Window { nanos, kind, ..self }
    }

    const fn with_offset(self, offset: UtcOffset) -> Window {
        match self.kind {
            Kind::Month(_) => Window { kind: Kind::Month(offset), ..self },
            _ => Window { kind: Kind::Utc(offset), ..self },
        }
    }
}
