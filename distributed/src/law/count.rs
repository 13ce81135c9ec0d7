//! One step of a shared count: the law of every store, for windows.
//!
//! Tests compare the steps in Lua and in SQL with this function, number by number.

use std::error::Error;
use std::fmt;

use super::amount::{Amount, StoreAnswer};
use super::count_spec::{CountSpec, Edges};
use super::spec::{MAX_CREDITS, MAX_SKEW_US};

/// A count as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The begin of the present window, or of the present sub-window of a sliding one, in
    /// microseconds since 1970.
    pub start_us: u64,
    /// The tokens used in the present sub-window, and in each one before it that still counts. A
    /// fixed window has one number.
    pub used: Box<[u64]>,
    /// The time from which no token counts any more, in microseconds since 1970.
    pub end_us: u64,
}

/// The error of a store whose clock is outside of the months of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideOfMonths {
    now_us: u64,
    months: [u64; 3],
}

/// The window of a call: its begin, the next edge, and the tokens that count in it.
struct Present {
    start_us: u64,
    edge_us: u64,
    used: Box<[u64]>,
    /// Whether the clock went back by more than the longest step after which a count stays where it
    /// is.
    went_back: bool,
}

impl Count {
    /// Decides a call. Returns the count to store, unless the call changes nothing. A key that is
    /// not stored has used no token.
    ///
    /// A count stays in its window after a step back of the clock by a second or less. After a
    /// longer one it keeps its tokens, and they belong to the window of the new time. Neither frees
    /// a token. A count of another number of sub-windows, or of another length, is taken into the
    /// present one: its tokens come back later, and none does early.
    ///
    /// # Errors
    ///
    /// [`OutsideOfMonths`] if the spec has [`Edges::Given`], and the time is not between them.
    pub fn step(
        stored: Option<&Count>,
        spec: &CountSpec,
        now_us: u64,
        amount: Amount,
    ) -> Result<(Option<Count>, StoreAnswer), OutsideOfMonths> {
        let Present { start_us, edge_us, mut used, went_back } = Present::of(stored, spec, now_us)?;
        let mut total: u64 = used.iter().sum();
        let is_of_window = amount.of_us == edge_us;
        let counts = is_of_window || amount.of_us == 0;
        let spent = if counts { amount.spent.min(MAX_CREDITS - total) } else { 0 };
        used[0] += spent;
        total += spent;
        let granted = if amount.max < 0 {
            let back = amount.max.unsigned_abs().min(used[0]);
            -(if is_of_window { back as i64 } else { 0 })
        } else {
            let there = spec.limit().saturating_sub(total) as i64;
            let share = if spec.halves(amount) { amount.min.max(there / 2) } else { there };
            if there >= amount.min { amount.max.min(share) } else { 0 }
        };
        // At most as many tokens go back as are used in the present sub-window.
        used[0] = used[0].wrapping_add_signed(granted);
        total = total.wrapping_add_signed(granted);
        // Both are below 2^53.
        let credits = spec.limit() as i64 - total as i64;
        let freed = used[used.len() - 1];
        let changed = granted != 0 || spent > 0 || went_back;
        let end_us = edge_us + (edge_us - start_us) * (used.len() as u64 - 1);
        let count = changed.then_some(Count { start_us, used, end_us });
        Ok((count, StoreAnswer { granted, credits, now_us, edge_us, freed }))
    }

    /// Returns whether the numbers are those of a count: their sum is below 2^53, and each time is.
    pub(crate) fn is_sound(&self) -> bool {
        let total = self.used.iter().try_fold(0_u64, |total, used| total.checked_add(*used));
        !self.used.is_empty()
            && total.is_some_and(|total| total <= MAX_CREDITS)
            && self.start_us <= self.end_us
            && self.end_us <= MAX_CREDITS
    }
}

impl Present {
    fn of(stored: Option<&Count>, spec: &CountSpec, now_us: u64) -> Result<Present, OutsideOfMonths> {
        let now_us = now_us.min(MAX_CREDITS);
        let (start_us, edge_us) = window_at(spec, now_us)?;
        let new = |used| Present { start_us, edge_us, used, went_back: false };
        let Some(count) = stored.filter(|count| now_us < count.end_us && count.is_sound()) else {
            return Ok(new(vec![0; spec.counts()].into()));
        };
        let behind = count.start_us.saturating_sub(now_us);
        let went_back = behind > MAX_SKEW_US;
        if !count.is_under(spec, edge_us - start_us) {
            let mut used = vec![0; spec.counts()];
            used[0] = count.used.iter().sum();
            return Ok(Present { went_back, ..new(used.into()) });
        }
        let used = count.used.clone();
        if went_back {
            return Ok(Present { went_back, ..new(used) });
        }
        if let Edges::FirstUse { period_us } = spec.edges() {
            let edge_us = count.start_us + period_us;
            return Ok(match edge_us > now_us {
                true => Present { start_us: count.start_us, edge_us, used, went_back },
                // The period is a shorter one now.
                false => new(vec![0; 1].into()),
            });
        }
        if behind > 0 {
            let edge_us = count.start_us + (count.end_us - count.start_us) / used.len() as u64;
            return Ok(Present { start_us: count.start_us, edge_us, used, went_back });
        }
        let passed = match used.len() {
            1 => 0,
            _ => start_us.saturating_sub(count.start_us) / (edge_us - start_us),
        };
        let later = std::iter::repeat_n(0, passed as usize).chain(used.iter().copied());
        Ok(new(later.take(used.len()).collect()))
    }
}

impl Count {
    /// Tells whether the numbers are those of a spec's sub-windows, which are `width_us` long.
    fn is_under(&self, spec: &CountSpec, width_us: u64) -> bool {
        let counts = spec.counts();
        let length_us = self.end_us - self.start_us;
        self.used.len() == counts && (counts == 1 || length_us == width_us * counts as u64)
    }
}

/// Returns the begin and the end of the window or sub-window at a time.
fn window_at(spec: &CountSpec, now_us: u64) -> Result<(u64, u64), OutsideOfMonths> {
    match spec.edges() {
        Edges::FirstUse { period_us } => Ok((now_us, now_us + period_us)),
        Edges::Every { period_us, offset_us } => {
            // Times and periods are below 2^53.
            let (now, period) = (now_us as i64, period_us as i64);
            let start = now - (now - offset_us).rem_euclid(period);
            Ok((start.max(0) as u64, (start + period) as u64))
        }
        Edges::Given(months) => {
            let at = |n: usize| {
                (months[n] <= now_us && now_us < months[n + 1]).then(|| (months[n], months[n + 1]))
            };
            at(0).or_else(|| at(1)).ok_or(OutsideOfMonths { now_us, months })
        }
    }
}

impl fmt::Display for OutsideOfMonths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutsideOfMonths { now_us, months: [first, _, last] } = self;
        write!(
            f,
            "the clock of the store is at {now_us} us since 1970, and the caller asks for months from {first} to \
             {last}: the clocks are weeks apart"
        )
    }
}

impl Error for OutsideOfMonths {}
