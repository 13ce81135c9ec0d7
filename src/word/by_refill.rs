//! The refill of a word, selected once for each attempt.
//!
//! A type for each refill, and not a closure: a closure cannot be told to be inlined, and out of
//! line a decision took a quarter longer.

use crate::rule::counts::CountWidths;
use crate::word::places::PlaceTerms;
use crate::word::plan::{PlanTerms, Planned};
use crate::word::state::{Reading, Refill};
use crate::word::terms::Terms;
use crate::word::window::WindowTerms;

/// A refill that readings are seen by.
pub(crate) trait ByRefill: Copy {
    type Refill: Refill;
    /// The same under a plan.
    type Under<'a>: ByRefill;

    /// Returns a reading of the terms with this refill; `None` if only the loop decides by it.
    ///
    /// The ticks of the reading count from the tick `begun`.
    fn at(self, reading: Reading, begun: u64) -> Option<Reading<Self::Refill>>;

    fn under(self, plan: &PlanTerms) -> Self::Under<'_>;
}

/// The refill of the terms themselves.
#[derive(Clone, Copy)]
pub(crate) struct OwnRefill;

impl ByRefill for OwnRefill {
    type Refill = Terms;
    type Under<'a> = PlannedRefill<'a>;

    #[inline(always)]
    fn at(self, reading: Reading, _: u64) -> Option<Reading> {
        Some(reading)
    }

    #[inline(always)]
    fn under(self, plan: &PlanTerms) -> PlannedRefill<'_> {
        PlannedRefill(plan)
    }
}

/// The refill under a plan. Its numbers are loaded where they are used.
#[derive(Clone, Copy)]
pub(crate) struct PlannedRefill<'p>(&'p PlanTerms);

impl ByRefill for PlannedRefill<'_> {
    type Refill = Planned;
    type Under<'a> = PlannedRefill<'a>;

    #[inline(always)]
    fn at(self, reading: Reading, begun: u64) -> Option<Reading<Planned>> {
        reading.attempted_under(self.0, begun)
    }

    #[inline(always)]
    fn under(self, plan: &PlanTerms) -> PlannedRefill<'_> {
        PlannedRefill(plan)
    }
}

/// The refill of a word that counts windows in one way, in fields of these widths.
#[derive(Clone, Copy)]
pub(crate) struct CountedRefill<const COUNTING: u8>(pub(crate) CountWidths);

impl<const COUNTING: u8> ByRefill for CountedRefill<COUNTING> {
    type Refill = WindowTerms<COUNTING>;
    type Under<'a> = CappedRefill<COUNTING>;

    #[inline(always)]
    fn at(self, reading: Reading, _: u64) -> Option<Reading<WindowTerms<COUNTING>>> {
        Some(WindowTerms::at(reading, self.0))
    }

    #[inline(always)]
    fn under(self, plan: &PlanTerms) -> CappedRefill<COUNTING> {
        CappedRefill(self.0, plan.capacity)
    }
}

/// The refill of a word that counts windows, under a cap of this limit.
#[derive(Clone, Copy)]
pub(crate) struct CappedRefill<const COUNTING: u8>(CountWidths, u64);

impl<const COUNTING: u8> ByRefill for CappedRefill<COUNTING> {
    type Refill = WindowTerms<COUNTING>;
    type Under<'a> = CappedRefill<COUNTING>;

    #[inline(always)]
    fn at(self, reading: Reading, _: u64) -> Option<Reading<WindowTerms<COUNTING>>> {
        let refill = Terms { capacity: self.1, ..reading.refill };
        Some(WindowTerms::at(Reading { refill, ..reading }, self.0))
    }

    #[inline(always)]
    fn under(self, plan: &PlanTerms) -> CappedRefill<COUNTING> {
        CappedRefill(self.0, plan.capacity)
    }
}

/// The refill of a word that counts places in use, under a plan's limit if there is one.
#[derive(Clone, Copy)]
pub(crate) struct PlacesRefill(pub(crate) Option<u64>);

impl ByRefill for PlacesRefill {
    type Refill = PlaceTerms;
    type Under<'a> = PlacesRefill;

    #[inline(always)]
    fn at(self, reading: Reading, _: u64) -> Option<Reading<PlaceTerms>> {
        Some(PlaceTerms::of(reading, self.0))
    }

    #[inline(always)]
    fn under(self, plan: &PlanTerms) -> PlacesRefill {
        PlacesRefill(Some(plan.capacity))
    }
}

/// The kinds of words that a caller may have, as bits: the refills among which an attempt selects.
pub(crate) const BUCKETS: u8 = 1;
pub(crate) const WINDOWS: u8 = 2;
pub(crate) const PLACES: u8 = 4;

/// Runs an expression with the refill of words of these kinds, in this way of counting; another one
/// where attempts do not know the refill.
///
/// A macro, so that an attempt can return from its function: then one call is after all of the
/// attempts, and the compiler keeps their answers in registers. With a call after each, an answer
/// went through memory: 5 instructions.
macro_rules! attempt_by {
    ($words:expr, $counting:expr, $counts:expr, |$by:ident| $run:expr, $otherwise:expr) => {
        match $counting {
            Some($crate::rule::counts::Counting::Bucket)
                if $words & $crate::word::by_refill::BUCKETS != 0 =>
            {
                let $by = $crate::word::by_refill::OwnRefill;
                $run
            }
            Some($crate::rule::counts::Counting::SubWindows)
                if $words & $crate::word::by_refill::WINDOWS != 0 =>
            {
                let $by =
                    $crate::word::by_refill::CountedRefill::<{ $crate::word::window::SUB_WINDOWS }>($counts);
                $run
            }
            Some($crate::rule::counts::Counting::FirstUse)
                if $words & $crate::word::by_refill::WINDOWS != 0 =>
            {
                let $by =
                    $crate::word::by_refill::CountedRefill::<{ $crate::word::window::FIRST_USE }>($counts);
                $run
            }
            Some($crate::rule::counts::Counting::Weighted)
                if $words & $crate::word::by_refill::WINDOWS != 0 =>
            {
                let $by =
                    $crate::word::by_refill::CountedRefill::<{ $crate::word::window::WEIGHTED }>($counts);
                $run
            }
            Some($crate::rule::counts::Counting::Places) if $words & $crate::word::by_refill::PLACES != 0 => {
                let $by = $crate::word::by_refill::PlacesRefill(None);
                $run
            }
            _ => $otherwise,
        }
    };
}
pub(crate) use attempt_by;
