//! The decisions of all limits: their counts and their times.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate_http::Decision;

/// The upper bounds of the histogram, in milliseconds. By default a decision that waits for a store
/// ends by 50.
const BOUNDS: [u64; 8] = [1, 2, 5, 10, 20, 50, 60, 100];

/// Sums over all limits, of those that are gone as well. For people to read: nothing is concluded
/// from one about another.
#[derive(Default)]
pub(crate) struct Tally {
    granted: AtomicU64,
    refused: AtomicU64,
    exempt: AtomicU64,
    nanos: AtomicU64,
    /// The decisions up to each bound and above the one before, and those above the last.
    times: [AtomicU64; BOUNDS.len() + 1],
}

/// The state of a [`Tally`]. In shadow mode `refused` counts the requests that would have been.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sums {
    pub(crate) granted: u64,
    pub(crate) refused: u64,
    /// The requests on the allow list that a limit is there for.
    pub(crate) exempt: u64,
}

impl Tally {
    pub(crate) fn note(&self, decision: &Decision, took: Duration) {
        // No decision takes half a millennium.
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        let sum = if decision.result().is_ok() { &self.granted } else { &self.refused };
        sum.fetch_add(1, Relaxed);
        self.times[slot_of(took)].fetch_add(1, Relaxed);
    }

    pub(crate) fn note_exempt(&self) {
        self.exempt.fetch_add(1, Relaxed);
    }

    pub(crate) fn sums(&self) -> Sums {
        let [granted, refused, exempt] =
            [&self.granted, &self.refused, &self.exempt].map(|sum| sum.load(Relaxed));
        Sums { granted, refused, exempt }
    }

    /// Appends the histogram of the times in the text format of Prometheus.
    pub(crate) fn prometheus(&self, text: &mut String) {
        let name = "tollgate_decision_seconds";
        let _ = writeln!(text, "# HELP {name} Times of decisions, with the wait for a store.");
        let _ = writeln!(text, "# TYPE {name} histogram");
        let bounds = BOUNDS.iter().map(|bound| (*bound as f64 / 1e3).to_string()).chain(["+Inf".to_owned()]);
        let mut count = 0;
        for (bound, times) in bounds.zip(&self.times) {
            count += times.load(Relaxed);
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let seconds = self.nanos.load(Relaxed) as f64 / 1e9;
        let _ = writeln!(text, "{name}_sum {seconds}\n{name}_count {count}");
    }
}

/// Returns the slot of a time in the histogram.
fn slot_of(took: Duration) -> usize {
    BOUNDS.iter().position(|bound| took <= Duration::from_millis(*bound)).unwrap_or(BOUNDS.len())
}

impl Sums {
    pub(crate) fn since(self, before: Sums) -> Sums {
        Sums {
            granted: self.granted - before.granted,
            refused: self.refused - before.refused,
            exempt: self.exempt - before.exempt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_counted_up_to_its_bound() {
        for (micros, bound) in
            [(0, Some(1)), (1_000, Some(1)), (1_001, Some(2)), (60_000, Some(60)), (100_001, None)]
        {
            assert_eq!(BOUNDS.get(slot_of(Duration::from_micros(micros))).copied(), bound, "{micros} us");
        }
    }
}
