//! The edges and the layout of a window, and the check of its bounds.

use std::time::Duration;

use crate::rule::calendar;
use crate::rule::counts::Counting;
use crate::rule::error::InvalidRule;
use crate::rule::period::DAY;
use crate::rule::window::{Kind, Window};
use crate::rule::window_layout::{MIN_SUB_WINDOWS, WindowError, WindowLayout, check};

impl Window {
    /// Returns the nanoseconds to add to Unix time so that edges are at multiples of the period;
    /// `None` if the edges are not by the calendar.
    pub(crate) const fn anchor(&self) -> Option<i64> {
        match self.kind {
            Kind::Utc(offset) => {
                // 1970-01-01 was a Thursday.
                let monday = if self.nanos.is_multiple_of(7 * DAY) { 3 * DAY as i64 } else { 0 };
                Some((offset.nanos() + monday).rem_euclid(self.nanos as i64))
            }
            Kind::Month(offset) => Some(offset.nanos()),
            _ => None,
        }
    }

    /// Returns whether all tokens come back at one moment.
    ///
    /// That is a window from the first use or by the calendar. A token of a
    /// [sliding](Window::sliding) or a [weighted](Window::weighted) window comes back by itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Window;
    ///
    /// assert!(Window::per_hour(5).has_edges() && Window::per_month(5).has_edges());
    /// assert!(!Window::per_hour(5).sliding().has_edges());
    /// ```
    #[must_use]
    pub fn has_edges(&self) -> bool {
        matches!(self.kind, Kind::FirstUse | Kind::Utc(_) | Kind::Month(_))
    }

    /// Returns the begin and the end of the window at a time since 1970, if its edges are by the
    /// calendar: of a window by [`utc`](Window::utc) or of civil months. `None` for the others.
    ///
    /// Begins before 1970 are 1970.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Window;
    ///
    /// const DAY: Duration = Duration::from_secs(86_400);
    /// // 1970-02-10, at two in the morning.
    /// let at = 40 * DAY + DAY / 12;
    /// assert_eq!(Window::per_day(9).utc().edges_at(at), Some((40 * DAY, 41 * DAY)));
    /// assert_eq!(Window::per_month(9).edges_at(at), Some((31 * DAY, 59 * DAY)));
    /// assert_eq!(Window::per_day(9).edges_at(at), None);
    /// ```
    #[must_use]
    pub fn edges_at(&self, unix: Duration) -> Option<(Duration, Duration)> {
        let anchor = i128::from(self.anchor()?);
        let at = unix.as_nanos() as i128 + anchor;
        let edge = |nanos: i128| {
            let nanos = u128::try_from(nanos - anchor).unwrap_or(0);
            Duration::new((nanos / 1_000_000_000) as u64, (nanos % 1_000_000_000) as u32)
        };
        if let Kind::Month(_) = self.kind {
            let month = calendar::month_at(u64::try_from(at.max(0)).unwrap_or(u64::MAX));
            let begin = |month| edge(calendar::month_start(month).into());
            return Some((begin(month), begin(month + 1)));
        }
        let period = i128::from(self.nanos);
        let begin = at - at.rem_euclid(period);
        Some((edge(begin), edge(begin + period)))
    }

    /// Returns this window with the limit in force; 0 while it is blocked.
    pub(crate) fn limited_to(self, limit: u64) -> Window {
        let top = if limit == 0 { self.top } else { limit };
        Window { limit, top, ..self }
    }

    /// Returns the limit of this window for words that were built for another limit of the same.
    pub(crate) fn limit_of(self, built: Window) -> Result<u64, InvalidRule> {
        match (self.nanos, self.kind) == (built.nanos, built.kind) {
            true => Ok(self.limit),
            false => Err(InvalidRule::another_window(&self, &built)),
        }
    }

    /// Returns this window with room in its word for limits up to `top` too.
    pub(crate) fn headroom(self, top: u64) -> Result<Window, WindowError> {
        Window { top: top.max(self.top), ..self }.check()
    }

    /// Returns the layout of the word.
    pub(crate) const fn layout(&self) -> Result<WindowLayout, WindowError> {
        let Window { limit, top, nanos, .. } = *self;
        if nanos == 0 {
            return Err(WindowError::MonthWithoutEdges);
        }
        if let Kind::Utc(offset) | Kind::Month(offset) = self.kind
            && let Err(flaw) = offset.check()
        {
            return Err(flaw);
        }
        if let Err(flaw) = check(top, nanos as u128) {
            return Err(flaw);
        }
        let layout = match self.kind {
            Kind::FirstUse => WindowLayout::fixed(Counting::FirstUse, limit, nanos, top),
            Kind::Utc(_) => WindowLayout::fixed(Counting::SubWindows, limit, nanos, top),
            Kind::Month(_) => WindowLayout::fixed(Counting::Months, limit, nanos, top),
            Kind::Weighted => WindowLayout::weighted(limit, nanos, top),
            Kind::Sliding | Kind::SlidingBy(_) => WindowLayout::sliding(limit, nanos, top),
        };
        let Some(layout) = layout else {
            return Err(WindowError::NoLayout(top, nanos));
        };
        let subs = layout.sub_windows();
        match self.kind {
            Kind::Sliding if subs < MIN_SUB_WINDOWS => Err(WindowError::FewSubWindows(top, nanos, subs)),
            Kind::SlidingBy(0) => Err(WindowError::NoGranularity),
            Kind::SlidingBy(longest) if nanos.div_ceil(subs) > longest => {
                Err(WindowError::CoarseSubWindows(top, nanos, subs, longest))
            }
            _ => Ok(layout),
        }
    }

    pub(super) const fn check(self) -> Result<Window, WindowError> {
        match self.layout() {
            Ok(_) => Ok(self),
            Err(flaw) => Err(flaw),
        }
    }
}
