//! The limit on the requests in flight to each upstream, and its numbers for the page.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hyper::StatusCode;
use tokio::time::Instant;
use tollgate::{Inflight, InflightStats, Outcome, OwnedFlight, Priority};

use crate::config::settings::InflightLimit;

/// The limit of one upstream. A reload that keeps the numbers keeps the limit, with its count.
pub(crate) struct Gate {
    /// The upstream as the settings name it.
    pub(crate) name: Arc<str>,
    pub(crate) limit: InflightLimit,
    inflight: Arc<Inflight>,
    /// Refused requests of each priority, in the order of [`Priority::ALL`].
    refused: [AtomicU64; 4],
    /// Attempts of each outcome, in the order of [`Outcome::ALL`].
    outcomes: [AtomicU64; 3],
    latencies: Latencies,
    peak: Peak,
    start: Instant,
}

/// The place of a request at its upstream. A drop gives it back.
pub(crate) struct Entered {
    gate: Arc<Gate>,
    flight: OwnedFlight,
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
        let kept = before.filter(|before| limit.target.is_none() && before.limit.target.is_none());
        let inflight = match kept {
            Some(before) => before.inflight.clone(),
            None => {
                let start = before.map(|before| before.inflight.limit());
                Arc::new(limit.inflight(start).expect("the settings are within its bounds"))
            }
        };
        // A fixed limit takes any number but 0, and the settings have none.
        let _ = kept.map(|before| before.inflight.set_limit(limit.ceiling));
        let refused = before.map(|before| before.refused()).unwrap_or_default().map(AtomicU64::new);
        let outcomes = before.map(|before| before.outcomes()).unwrap_or_default().map(AtomicU64::new);
        let (latencies, peak, start) = (Latencies::default(), Peak::default(), Instant::now());
        Arc::new(Gate { name: name.clone(), limit, inflight, refused, outcomes, latencies, peak, start })
    }

    /// Takes a place, if the priority's share of the limit has one.
    pub(crate) fn enter(self: &Arc<Self>, priority: Priority) -> Option<Entered> {
        match self.inflight.try_enter_owned(priority) {
            Ok(flight) => {
                self.peak.note(self.slot(), self.inflight.in_flight());
                Some(Entered { gate: self.clone(), flight, began: Instant::now() })
            }
            Err(_) => {
                add(&Priority::ALL, &priority, &self.refused);
                None
            }
        }
    }

    pub(crate) fn stats(&self) -> InflightStats {
        self.inflight.stats()
    }

    /// Returns the numbers of requests that found no place, in the order of [`Priority::ALL`].
    pub(crate) fn refused(&self) -> [u64; 4] {
        self.refused.each_ref().map(|count| count.load(Relaxed))
    }

    fn outcomes(&self) -> [u64; 3] {
        self.outcomes.each_ref().map(|count| count.load(Relaxed))
    }

    /// Returns the most requests in flight of the last half second, or more.
    pub(crate) fn peak(&self) -> u32 {
        self.peak.of(self.slot()).max(self.inflight.in_flight())
    }

    pub(crate) fn latencies(&self) -> Vec<u64> {
        self.latencies.0.iter().map(|count| count.load(Relaxed)).collect()
    }

    fn slot(&self) -> u32 {
        // It wraps after 68 years.
        (self.start.elapsed().as_millis() / 500) as u32
    }
}

impl Entered {
    /// Notes the outcome at the head of the response, or at the failure. The place is held on.
    ///
    /// `sent` is the instant at which the client had sent the last part of its body. If the client
    /// took more than an eighth of the time, the latency tells nothing of the upstream.
    pub(crate) fn note(&mut self, outcome: Outcome, sent: Option<Instant>) {
        let took = self.began.elapsed();
        let client = sent.map_or(Duration::ZERO, |sent| sent.saturating_duration_since(self.began));
        let is_sample = outcome == Outcome::Answered && client <= took / 8;
        match outcome {
            Outcome::Answered if is_sample => self.gate.latencies.note(took),
            Outcome::Overloaded => self.gate.latencies.note(Duration::MAX),
            _ => {}
        }
        add(&Outcome::ALL, &outcome, &self.gate.outcomes);
        let outcome = if outcome == Outcome::Answered && !is_sample { Outcome::Failed } else { outcome };
        self.flight.note(outcome);
    }
}

/// Adds one to the count of a kind, of one count for each kind.
fn add<T: PartialEq>(kinds: &[T], kind: &T, counts: &[AtomicU64]) {
    for (_, count) in kinds.iter().zip(counts).filter(|(other, _)| *other == kind) {
        count.fetch_add(1, Relaxed);
    }
}

/// Returns the outcome that a response tells by its status.
pub(crate) fn outcome(status: StatusCode) -> Outcome {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Outcome::Overloaded
        }
        // The time to an upgrade is that of a handshake: it is no sample.
        status if status.is_server_error() || status == StatusCode::SWITCHING_PROTOCOLS => Outcome::Failed,
        _ => Outcome::Answered,
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

/// Counts of latencies, in buckets of which each is an eighth longer than the one before, or less.
struct Latencies([AtomicU64; BUCKETS]);

/// Eight buckets for each power of two of microseconds, up to two minutes.
const BUCKETS: usize = 8 * 27;

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Latencies {
    fn note(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(8);
        let power = micros.ilog2();
        let eighth = (micros >> (power - 3)) as usize & 7;
        let bucket = (8 * (power as usize - 3) + eighth).min(BUCKETS - 1);
        self.0[bucket].fetch_add(1, Relaxed);
    }
}

/// Returns the time within which nine tenths were answered, from the counts before and after: the
/// upper end of a bucket. `None` if there was no sample.
pub(crate) fn slow_tenth(before: &[u64], after: &[u64]) -> Option<Duration> {
    // After a reload the counts may be those of another limit.
    let counts: Vec<u64> =
        after.iter().enumerate().map(|(at, now)| now.saturating_sub(*before.get(at).unwrap_or(&0))).collect();
    let all: u64 = counts.iter().sum();
    let mut sum = 0;
    let slow = counts.iter().position(|count| {
        sum += count;
        all > 0 && sum * 10 >= all * 9
    })?;
    let (power, eighth) = (slow / 8, slow % 8);
    Some(Duration::from_micros((9 + eighth as u64) << power))
}

/// Appends the numbers of the limits in the text format of Prometheus.
pub(crate) fn prometheus(gates: &[Arc<Gate>], text: &mut String) {
    if gates.is_empty() {
        return;
    }
    let stats: Vec<(String, InflightStats, &Arc<Gate>)> =
        gates.iter().map(|gate| (escaped(&gate.name), gate.stats(), gate)).collect();
    let mut family = |name: &str, kind: &str, help: &str, line: &dyn Fn(&InflightStats, &Gate) -> Lines| {
        let name = format!("tollgate_inflight{name}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (upstream, stats, gate) in &stats {
            for (labels, value) in line(stats, gate) {
                let _ = writeln!(text, "{name}{{name=\"{upstream}\"{labels}}} {value}");
            }
        }
    };
    family("", "gauge", "Requests in flight to the upstream.", &|stats, _| {
        vec![(String::new(), stats.in_flight.to_string())]
    });
    family("_limit", "gauge", "The limit in force.", &|stats, _| {
        vec![(String::new(), stats.limit.to_string())]
    });
    family("_target_seconds", "gauge", "The target in force, of a limit that adapts.", &|stats, _| {
        let target = stats.target.map(|target| (String::new(), target.as_secs_f64().to_string()));
        target.into_iter().collect()
    });
    family("_refused_total", "counter", "Requests that found no place at the upstream.", &|_, gate| {
        let of = |(priority, count): (Priority, u64)| {
            (format!(",priority=\"{}\"", priority.name()), count.to_string())
        };
        Priority::ALL.into_iter().zip(gate.refused()).map(of).collect()
    });
    family("_outcomes_total", "counter", "Attempts at the upstream by their outcome.", &|_, gate| {
        let of = |(outcome, count): (Outcome, u64)| {
            (format!(",outcome=\"{}\"", outcome.name()), count.to_string())
        };
        Outcome::ALL.into_iter().zip(gate.outcomes()).map(of).collect()
    });
    family("_changes_total", "counter", "Changes of a limit that adapts.", &|stats, gate| {
        let InflightStats { rose, fell, in_vain, stalled, .. } = *stats;
        let all = [("rose", rose), ("fell", fell), ("in_vain", in_vain), ("stalled", stalled)];
        let adapts = gate.limit.target.is_some();
        let lines = all.into_iter().filter(|_| adapts);
        lines.map(|(why, count)| (format!(",why=\"{why}\""), count.to_string())).collect()
    });
}

/// More labels, and the value, of each line of a limit.
type Lines = Vec<(String, String)>;

/// Returns the value of a label: the path of a Unix socket may have any byte but 0.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_tenth_is_at_most_an_eighth_above_the_sample() {
        for micros in (8..2_000_000).step_by(997).chain([8, 9, 15, 16, 17, 1 << 20]) {
            let (latencies, took) = (Latencies::default(), Duration::from_micros(micros));
            let before: Vec<u64> = latencies.0.iter().map(|count| count.load(Relaxed)).collect();
            latencies.note(took);
            let after: Vec<u64> = latencies.0.iter().map(|count| count.load(Relaxed)).collect();
            let slow = slow_tenth(&before, &after).expect("there is a sample");
            assert!(slow > took && slow <= took + took / 8 + Duration::from_micros(1), "{took:?}: {slow:?}");
            assert_eq!(slow_tenth(&after, &after), None);
        }
    }

    #[test]
    fn one_slow_answer_in_ten_is_no_slow_tenth_and_two_are() {
        let slow = |fast: usize, slow: usize| {
            let latencies = Latencies::default();
            (0..fast).for_each(|_| latencies.note(Duration::from_millis(1)));
            (0..slow).for_each(|_| latencies.note(Duration::MAX));
            let counts: Vec<u64> = latencies.0.iter().map(|count| count.load(Relaxed)).collect();
            slow_tenth(&[], &counts).expect("there are samples")
        };
        assert!(slow(9, 1) < Duration::from_millis(2));
        assert!(slow(8, 2) > Duration::from_secs(60));
    }

    #[test]
    fn a_peak_is_forgotten_after_a_second() {
        let peak = Peak::default();
        for (slot, count, of) in [(0, 5, 5), (0, 3, 5), (1, 2, 5), (2, 1, 2), (3, 1, 1)] {
            peak.note(slot, count);
            assert_eq!(peak.of(slot), of, "{slot}");
        }
        assert_eq!(peak.of(9), 0);
    }

    #[test]
    fn a_status_tells_whether_there_was_want_of_capacity() {
        for (status, wanted) in [
            (200, Outcome::Answered),
            (404, Outcome::Answered),
            (429, Outcome::Overloaded),
            (500, Outcome::Failed),
            (502, Outcome::Failed),
            (503, Outcome::Overloaded),
            (504, Outcome::Overloaded),
            (101, Outcome::Failed),
        ] {
            assert_eq!(outcome(StatusCode::from_u16(status).expect("a status")), wanted, "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_a_client_that_sent_slowly_is_no_sample() {
        let limit = InflightLimit { ceiling: 4, target: None };
        let gate = Gate::new(&"a".into(), limit, None);
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut slow = gate.enter(Priority::Critical).expect("there is a place");
        let mut quick = gate.enter(Priority::Critical).expect("there is a place");
        tokio::time::advance(8 * second).await;
        slow.note(Outcome::Answered, Some(begin + 2 * second));
        assert_eq!(slow_tenth(&[], &gate.latencies()), None);
        quick.note(Outcome::Answered, Some(begin + second));
        assert!(slow_tenth(&[], &gate.latencies()).is_some_and(|slow| slow >= 8 * second));
        assert_eq!(gate.stats().in_flight, 2);
        drop((slow, quick));
        assert_eq!(gate.stats().in_flight, 0);
    }
}
