// promise: law
//! The line of time, from the system's clock to the counter.

use std::cell::Cell;

use proptest::prelude::*;
use tollgate_testing::cases;

use super::plans::public;
use super::terms::quotas;
use crate::bucket::atomic::Order;
use crate::bucket::live_terms::LiveTerms;
use crate::rule::layout::{Layout, LayoutOptions};
use crate::time::clock::Clock;
use crate::time::tsc::{START, TimeLine};
use crate::word::state::{Reading, State};
use crate::word::terms::Terms;

proptest! {
    #![proptest_config(cases(2_000))]

    /// The line is never behind the system's clock. It is ahead by at most the least time between
    /// two readings of the counter, and some counts. It goes on at the counter's rate.
    #[test]
    fn the_line_is_nowhere_behind_the_systems_clock(
        (whole, part) in prop_oneof![(0..1_u64, (1_u64 << 60)..), (1..4_000_u64, any::<u64>())],
        first in any::<u64>(),
        uptime in 0..1_u64 << 50,
        delays in prop::collection::vec(1..50_000_u64, 48),
        later in prop::collection::vec(0..1_u64 << 40, 8),
    ) {
        let nanos_per_count = u128::from(whole) << 64 | u128::from(part);
        // Both clocks are functions of the true time, in nanoseconds.
        let count_at = |time: u64| first.wrapping_add(((u128::from(time) << 64) / nanos_per_count) as u64);
        let system_at = |time: u64| START + time;
        let (time, next) = (Cell::new(uptime), Cell::new(0));
        let step = || {
            time.set(time.get() + delays[next.get()]);
            next.set(next.get() + 1);
            time.get()
        };
        let line = TimeLine::after(|| count_at(step()), || system_at(step()), whole, part);
        let counts = |nanos: u64| nanos + 4 * (whole + 1) + 1;
        let least = delays.chunks(3).map(|of| of[1] + of[2]).min().unwrap();
        for time in later.into_iter().map(|later| time.get() + later) {
            let (told, system) = (line.to_nanos(line.raw(count_at(time))), system_at(time));
            prop_assert!((system..=counts(system + least)).contains(&told), "{told} at {system}, {least} between");
        }
        // A counter that was reset reads as 0, which is before all other times.
        prop_assert_eq!(line.raw(count_at(time.get()).wrapping_sub(1 << 62)), 0);
    }

    /// A count of 0, which stands for a counter that is not calibrated, lets no time pass in any
    /// state of the word.
    #[test]
    fn a_count_of_zero_lets_no_time_pass(asked in quotas(), after in 0..3_600_000_000_000_u64) {
        let Ok(quota) = public(asked) else { return Ok(()) };
        let clock = Clock::new();
        clock.warm();
        let Ok(layout) = Layout::of(quota.numbers(), LayoutOptions::DEFAULT) else { return Ok(()) };
        let terms = LiveTerms::new(quota, layout);
        prop_assert!(!terms.admitted::<Terms>(State::FULL, clock.raw(), Some(Order::WordFirst)).fits, "no reading was counted");
        let reading = Reading::new(Terms::in_layout(quota.numbers(), layout), START + after);
        for level in [0, reading.refill.capacity] {
            let state = State::pack(&reading.refill, level, reading.tick);
            terms.read(&clock, None);
            let zero = terms.admitted::<Terms>(state, 0, Some(Order::WordFirst));
            // The reading may be in the same tick, which may last for years.
            prop_assert!(!zero.fits || zero.reading.tick == reading.tick);
        }
        let now = terms.read(&clock, None);
        prop_assert!(!terms.admitted::<Terms>(State::FULL, 0, Some(Order::WordFirst)).fits);
        let state = State::pack(&now.refill, 0, now.tick);
        prop_assert!(terms.admitted::<Terms>(state, clock.raw(), Some(Order::WordFirst)).fits, "another count does");
    }
}
