//! The limit on the requests in flight to each upstream, and its numbers for the page.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_adaptive::{Admitted, InflightLayer, InflightLayerStats};
use tollgate_adaptive::{Histogram, Outcome, OwnedFlight, Priority};

use crate::config::settings::InflightLimit;

/// The limit of one upstream. A reload that keeps the numbers keeps the limit, with its count.
pub(crate) struct Gate {
    /// The upstream as the settings name it.
    pub(crate) name: Arc<str>,
    pub(crate) limit: InflightLimit,
    layer: InflightLayer,
    /// Latencies, also where the limit is fixed. An overloaded attempt is as slow as can be.
    pub(crate) latencies: Histogram,
    peak: Peak,
    start: Instant,
}

/// The place of a request at its upstream, until the head of the response. A drop gives it back.
pub(crate) struct Entered<'a> {
    gate: &'a Gate,
    admitted: Admitted,
    began: Instant,
}

impl Gate {
    /// Makes the limit of an upstream, or takes over the one that there is.
    ///
    /// A fixed limit that changes keeps its count. One that adapts to other numbers begins anew at
    /// the limit in force, without the requests that are in flight by then.
    pub(crate) fn new(name: &Arc<str>, limit: InflightLimit, before: Option<&Arc<Gate>>) -> Arc<Gate> {
        if let Some(before) = before.filter(|before| before.limit == limit) {
            return before.clone();
        }
        let fixed = before.filter(|before| limit.target.is_none() && before.limit.target.is_none());
        let layer = if let Some(Gate { layer, .. }) = fixed.map(|before| &**before) {
            // A fixed limit takes any number but 0, and the settings have none.
            let _ = layer.inflight().set_limit(limit.ceiling);
            layer.clone()
        } else {
            let start = before.map(|before| before.layer.inflight().limit());
            let limit = limit.inflight(start).expect("the settings are within its bounds");
            let builder = InflightLayer::builder(limit);
            match before {
                Some(before) => builder.count_on(&before.layer).build(),
                None => builder.build(),
            }
        };
        let (latencies, peak, start) = (Histogram::default(), Peak::default(), Instant::now());
        Arc::new(Gate { name: name.clone(), limit, layer, latencies, peak, start })
    }

    /// Takes a place, if the priority's share of the limit has one.
    pub(crate) fn enter(&self, priority: Priority) -> Option<Entered<'_>> {
        let admitted = self.layer.try_enter(priority).ok()?;
        self.peak.note(self.slot(), self.layer.inflight().in_flight());
        Some(Entered { gate: self, admitted, began: Instant::now() })
    }

    /// Returns the counts so far, under the name of the upstream.
    pub(crate) fn stats(&self) -> InflightLayerStats {
        let mut stats = self.layer.stats();
        stats.name = self.name.to_string();
        stats
    }

    /// Returns the most requests in flight of the last half second, or more.
    pub(crate) fn peak(&self) -> u32 {
        self.peak.of(self.slot()).max(self.layer.inflight().in_flight())
    }

    fn slot(&self) -> u32 {
        // It wraps after 68 years.
        (self.start.elapsed().as_millis() / 500) as u32
    }
}

impl Entered<'_> {
    /// Notes the outcome at the head of the response, or at the failure. The place is held on.
    ///
    /// `sent` is the instant at which the client had sent the last part of its body. If the client
    /// took more than an eighth of the time, the latency tells nothing of the upstream.
    pub(crate) fn end(self, outcome: Outcome, sent: Option<Instant>) -> OwnedFlight {
        let took = self.began.elapsed();
        let client = sent.map_or(Duration::ZERO, |sent| sent.saturating_duration_since(self.began));
        let is_sample = client <= took / 8;
        match outcome {
            Outcome::Answered if is_sample => self.gate.latencies.note(took),
            Outcome::Overloaded => self.gate.latencies.note(Duration::MAX),
            _ => {}
        }
        self.admitted.end(outcome, is_sample)
    }
}

/// The most of a number in the current half second and in the one before: each the number of the
/// half second in the upper 32 bits, and the most in the lower ones.
#[derive(Default)]
struct Peak([AtomicU64; 2]);

impl Peak {
    fn note(&self, slot: u32, count: u32) {
        self.0[slot as usize % 2].fetch_max(u64::from(slot) << 32 | u64::from(count), Relaxed);
    }

    fn of(&self, slot: u32) -> u32 {
        let of = |peak: &AtomicU64| {
            let peak = peak.load(Relaxed);
            // The upper half is a slot, and the lower half a count.
            if (peak >> 32) as u32 + 1 >= slot { peak as u32 } else { 0 }
        };
        self.0.iter().map(of).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_forgotten_after_a_second() {
        let peak = Peak::default();
        for (slot, count, of) in [(0, 5, 5), (0, 3, 5), (1, 2, 5), (2, 1, 2), (3, 1, 1)] {
            peak.note(slot, count);
            assert_eq!(peak.of(slot), of, "{slot}");
        }
        assert_eq!(peak.of(9), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_a_client_that_sent_slowly_is_no_sample() {
        let gate = Gate::new(&"a".into(), InflightLimit { ceiling: 4, target: None }, None);
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let [slow, quick] = [(); 2].map(|()| gate.enter(Priority::Critical).expect("there is a place"));
        tokio::time::advance(8 * second).await;
        let slow = slow.end(Outcome::Answered, Some(begin + 2 * second));
        assert_eq!(gate.latencies.look().quantile(900), None);
        let quick = quick.end(Outcome::Answered, Some(begin + second));
        let tenth = gate.latencies.look().quantile(900).expect("there is a sample");
        assert!(tenth.abs_diff(8 * second) < second, "{tenth:?}");
        assert_eq!(gate.stats().inflight.in_flight, 2);
        drop((slow, quick));
        assert_eq!(gate.stats().inflight.in_flight, 0);
    }
}
