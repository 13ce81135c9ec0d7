//! The cases in which a peer that does the same work is faster, smaller or fairer than tollgate.

use super::OURS;
use super::numbers::{Spread, count};
use super::tables::{Row, Table, described};
use crate::results::Results;

/// The forms of tollgate whose decisions have a like among the peers. A pinned handle, a batch and
/// a hot key that is spread have none.
const DECIDING: &[&str] =
    &[OURS, "tollgate, inline", "tollgate, spread", "tollgate, coarse clock", "tollgate, reading at hand"];

/// The forms whose stores differ.
const STORES: &[&str] = &[OURS, "tollgate, inline"];

/// The rounds of one contender. Less is better.
struct Sample<'a> {
    case: String,
    contender: &'a str,
    rounds: Vec<f64>,
    /// Forms of tollgate that are compared in the case.
    forms: &'static [&'static str],
}

/// Returns a row for each comparison whose median ratio is above 1. Fairness needs decided rounds
/// too, because rounds differ more there than contenders do.
pub(super) fn table(results: &Results) -> Option<Table> {
    let (samples, mut rows, mut all) = (samples(results), Vec::new(), 0);
    for ours in samples.iter().filter(|one| one.forms.contains(&one.contender)) {
        for theirs in samples.iter().filter(|one| one.case == ours.case) {
            let Some(ratio) = Spread::of_ratios(&ours.rounds, &theirs.rounds) else { continue };
            if !are_alike(ours.contender, theirs.contender) {
                continue;
            }
            all += 1;
            let is_told = !ours.case.starts_with("fairness") || !ratio.is_undecided();
            if ratio.median >= 1.0005 && is_told {
                let pair = format!("{} / {}", ours.contender, theirs.contender);
                rows.push(Row::new(&ours.case, pair).spread("ratio", "", Some(ratio)));
            }
        }
    }
    let title = format!("{} of {}", rows.len(), count(all, "comparison"));
    (!rows.is_empty()).then_some(Table { section: "Where it loses", title, rows })
}

fn samples(results: &Results) -> Vec<Sample<'_>> {
    let mut all = Vec::new();
    let mut add = |case, contender, rounds, forms| all.push(Sample { case, contender, rounds, forms });
    for of in &results.times {
        add(described(&of.case), of.contender.as_str(), of.net(), DECIDING);
    }
    for of in &results.latencies {
        add(format!("p99.9, {}", described(&of.case)), &of.contender, of.p999.clone(), DECIDING);
    }
    for of in &results.shares {
        let unfair = of.jain.iter().map(|jain| 1.0 / jain).collect();
        add(format!("fairness, {}", described(&of.case)), &of.contender, unfair, DECIDING);
    }
    for of in &results.memory {
        let case = format!("memory, {}, {}, resident", of.kind, count(of.keys, "key"));
        add(case, &of.contender, vec![of.resident as f64], STORES);
    }
    for of in &results.starts {
        let start = of.made.iter().zip(&of.first).map(|(made, first)| made + first).collect();
        add("cold start".to_owned(), &of.contender, start, &[OURS]);
    }
    all
}

/// Returns whether the second contender is a peer that has its time from the same place.
fn are_alike(ours: &str, theirs: &str) -> bool {
    let is_peer = !theirs.starts_with(OURS) && !theirs.starts_with("none");
    is_peer && clock(ours) == clock(theirs)
}

/// Returns where a contender has its time from, by its name.
fn clock(contender: &str) -> &'static str {
    match contender {
        name if name.contains("coarse clock") || name.contains("upkeep clock") => "kept by a thread",
        name if name.contains("at hand") => "at hand",
        _ => "read in each decision",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_is_compared_with_like() {
        assert!(are_alike("tollgate", "ratelimit, quanta") && are_alike("tollgate, inline", "governor"));
        assert!(are_alike("tollgate, coarse clock", "governor, upkeep clock"));
        assert!(are_alike("tollgate, reading at hand", "better-bucket, reading at hand"));
        assert!(!are_alike("tollgate", "governor, upkeep clock"));
        assert!(!are_alike("tollgate, spread", "rate-net, coarse clock"));
        assert!(!are_alike("tollgate", "better-bucket, reading at hand"));
        assert!(!are_alike("tollgate, coarse clock", "governor"));
        assert!(
            !are_alike("tollgate", "tollgate, spread") && !are_alike("tollgate", "none: the two readings")
        );
        assert!(
            !DECIDING.iter().any(|form| ["pinned", "batches", "hot"].iter().any(|way| form.contains(way)))
        );
    }
}
