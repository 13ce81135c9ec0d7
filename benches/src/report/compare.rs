//! Everything that was measured in one form, so that anything is compared with anything in the same way.

use std::fmt;

use super::numbers::{Spread, count};
use crate::results::{Case, Results, Times};

/// What is measured. The less, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Net nanoseconds a decision.
    Time,
    /// The 99.9th percentile of single decisions.
    P999,
    /// Of Jain's index, the inverse.
    Unfairness,
    /// Bytes a key asked of the allocator.
    Counted,
    /// Bytes a key by which the process grew.
    Resident,
    /// Nanoseconds to make a limiter and its first decision.
    Start,
}

/// What is measured, of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) measure: Measure,
    pub(super) case: Case,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = count(self.case.keys, "key");
        match self.measure {
            Measure::Time => write!(f, "{}", described(&self.case)),
            Measure::P999 => write!(f, "p99.9, {}", described(&self.case)),
            Measure::Unfairness => write!(f, "fairness, {}", described(&self.case)),
            Measure::Counted => write!(f, "memory, {}, {keys}, counted", self.case.what),
            Measure::Resident => write!(f, "memory, {}, {keys}, resident", self.case.what),
            Measure::Start => f.write_str(&self.case.what),
        }
    }
}

/// `keyed, uniform, 1,000 keys, granted, 2 threads`; one bucket has no keys.
pub(super) fn described(case: &Case) -> String {
    let keys =
        if case.what == "one bucket" { String::new() } else { format!(" {},", count(case.keys, "key")) };
    let path = if case.path.is_empty() { String::new() } else { format!(" {},", case.path) };
    format!("{},{keys}{path} {}", case.what, count(case.threads, "thread"))
}

/// A case by its parts.
pub(super) fn case(what: &str, keys: usize, path: &str, threads: usize) -> Case {
    Case { what: what.to_owned(), path: path.to_owned(), threads, keys }
}

/// What one contender got in each round.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) subject: Subject,
    pub(super) contender: String,
    pub(super) rounds: Vec<f64>,
}

/// All that is compared.
pub(super) fn samples(results: &Results) -> Vec<Sample> {
    let sample = |measure, case: Case, contender: &str, rounds| Sample {
        subject: Subject { measure, case },
        contender: contender.to_owned(),
        rounds,
    };
    let mut all = Vec::new();
    for times in &results.times {
        all.push(sample(Measure::Time, times.case.clone(), &times.contender, net(times)));
    }
    for of in &results.latencies {
        all.push(sample(Measure::P999, of.case.clone(), &of.contender, of.p999.clone()));
    }
    for of in &results.shares {
        let unfair = of.jain.iter().map(|jain| 1.0 / jain).collect();
        all.push(sample(Measure::Unfairness, of.case.clone(), &of.contender, unfair));
    }
    for of in results.memory.iter().filter(|of| of.keys > 0) {
        let case = case(&of.kind, of.keys, "", 1);
        let a_key = |bytes: u64| vec![bytes as f64 / of.keys as f64];
        all.push(sample(Measure::Counted, case.clone(), &of.contender, a_key(of.counted)));
        all.push(sample(Measure::Resident, case, &of.contender, a_key(of.resident)));
    }
    for of in &results.starts {
        let start = of.made.iter().zip(&of.first).map(|(made, first)| made + first).collect();
        all.push(sample(Measure::Start, case("cold start", 1, "", 1), &of.contender, start));
    }
    all
}

/// Without what the loop takes.
pub(super) fn net(times: &Times) -> Vec<f64> {
    times.raw.iter().zip(&times.loops).map(|(raw, of_loop)| raw - of_loop).collect()
}

/// What `contender` got there.
pub(super) fn rounds<'a>(samples: &'a [Sample], subject: &Subject, contender: &str) -> Option<&'a [f64]> {
    let found = samples.iter().find(|one| one.subject == *subject && one.contender == contender)?;
    Some(&found.rounds)
}

/// `ours / theirs`.
pub(super) fn ratio(samples: &[Sample], subject: &Subject, ours: &str, theirs: &str) -> Option<Spread> {
    Spread::of_ratios(rounds(samples, subject, ours)?, rounds(samples, subject, theirs)?)
}

/// One of ours against a peer that does the same work.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub(super) subject: Subject,
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) ratio: Spread,
}

impl Comparison {
    /// By what is printed, whether the rounds tell or not.
    pub(super) fn is_lost(&self) -> bool {
        self.ratio.median >= 1.0005
    }
}

/// Ours with each peer that has its time from where ours has it, wherever both were measured.
pub(super) fn comparisons(samples: &[Sample]) -> Vec<Comparison> {
    let mut all = Vec::new();
    for ours in samples.iter().filter(|one| is_ours(&one.contender)) {
        for theirs in samples.iter().filter(|one| one.subject == ours.subject) {
            if !is_peer(&theirs.contender) || !are_alike(&ours.subject, &ours.contender, &theirs.contender) {
                continue;
            }
            let ratio = Spread::of_ratios(&ours.rounds, &theirs.rounds);
            // Of fairness the rounds differ more than contenders do.
            let is_told =
                |ratio: &Spread| ours.subject.measure != Measure::Unfairness || !ratio.is_undecided();
            all.extend(ratio.filter(is_told).map(|ratio| Comparison {
                subject: ours.subject.clone(),
                ours: ours.contender.clone(),
                theirs: theirs.contender.clone(),
                ratio,
            }));
        }
    }
    all
}

/// Where a contender has the time of a decision from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    /// A clock, in each decision.
    Read,
    /// A thread writes it down.
    Kept,
    /// The caller has it.
    AtHand,
}

fn clock(contender: &str) -> Clock {
    let is_named = |part| contender.contains(part);
    if is_named("coarse clock") || is_named("upkeep clock") {
        Clock::Kept
    } else if is_named("at hand") {
        Clock::AtHand
    } else {
        Clock::Read
    }
}

/// Whether the two do the same work. A handle that is pinned for many calls, a batch, and a key that is spread have no like among the peers;
/// memory is asked of the process, and of each store; the start of the default alone.
fn are_alike(subject: &Subject, ours: &str, theirs: &str) -> bool {
    let is_compared = match subject.measure {
        Measure::Time | Measure::P999 | Measure::Unfairness => {
            !["pinned", "batches", "hot keys"].iter().any(|way| ours.contains(way))
        }
        Measure::Resident => [OURS, INLINE].contains(&ours),
        Measure::Start => ours == OURS,
        Measure::Counted => false,
    };
    is_compared && clock(ours) == clock(theirs)
}

/// As it is by default.
pub(super) const OURS: &str = "tollgate";

/// Its buckets in a table.
pub(super) const INLINE: &str = "tollgate, inline";

/// The same, asked for 16 keys at a time.
pub(super) const BATCHES: &str = "tollgate, inline, batches of 16";

/// One bucket, with tokens at hand of each core.
pub(super) const SPREAD: &str = "tollgate, spread";

/// Contended keys with the same.
pub(super) const HOT: &str = "tollgate, hot keys spread";

/// What is measured without a limiter is named so, and may go on after it.
pub(super) const NONE: &str = "none";

pub(super) fn is_ours(contender: &str) -> bool {
    contender.starts_with(OURS)
}

fn is_peer(contender: &str) -> bool {
    !is_ours(contender) && !contender.starts_with(NONE)
}

/// Whether it is a peer that does what ours does by default.
pub(super) fn is_peer_by_default(contender: &str) -> bool {
    is_peer(contender) && clock(contender) == Clock::Read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_is_compared_with_like() {
        let compared = |measure, ours, theirs| {
            are_alike(&Subject { measure, case: case("one bucket", 1, "granted", 1) }, ours, theirs)
        };
        assert!(compared(Measure::Time, "tollgate", "ratelimit, quanta"));
        assert!(!compared(Measure::Time, "tollgate", "governor, upkeep clock"));
        assert!(!compared(Measure::P999, "tollgate", "rate-net, coarse clock"));
        assert!(!compared(Measure::Time, "tollgate", "better-bucket, reading at hand"));
        assert!(compared(Measure::Time, "tollgate, coarse clock", "governor, upkeep clock"));
        assert!(!compared(Measure::Time, "tollgate, coarse clock", "governor"));
        assert!(compared(Measure::Time, "tollgate, reading at hand", "better-bucket, reading at hand"));
        assert!(!compared(Measure::Time, "tollgate, pinned", "governor"));
        assert!(compared(Measure::Resident, "tollgate", "governor, its hasher"));
        assert!(compared(Measure::Time, "tollgate, inline", "governor"));
        assert!(compared(Measure::Resident, "tollgate, inline", "governor"));
        assert!(!compared(Measure::Time, "tollgate, inline, batches of 16", "governor"));
        assert!(!compared(Measure::Time, "tollgate, hot keys spread", "governor"));
        assert!(compared(Measure::Time, "tollgate, spread", "governor"));
        assert!(!compared(Measure::Time, "tollgate, spread", "governor, upkeep clock"));
        assert!(!compared(Measure::Counted, "tollgate", "governor"));
        assert!(!compared(Measure::Start, "tollgate, coarse clock", "governor, upkeep clock"));
        assert!(!is_peer("none: the two readings"));
    }
}
