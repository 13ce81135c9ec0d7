//! The cases in which a peer that does the same work is faster, smaller or fairer than tollgate.

use super::OURS;
use super::numbers::{Spread, count};
use super::tables::{Row, Table};
use crate::contenders::FLOOR;

/// The forms of tollgate whose decisions have a like among the peers. A pinned handle, a batch and
/// a hot key that is spread have none.
pub(super) const DECIDING: &[&str] =
    &[OURS, "tollgate, inline", "tollgate, spread", "tollgate, coarse clock", "tollgate, reading at hand"];

/// The forms whose stores differ.
pub(super) const STORES: &[&str] = &[OURS, "tollgate, inline"];

/// Returns a row for each comparison whose median ratio is above 1. Fairness needs decided rounds
/// too, because rounds differ more there than contenders do.
pub(super) fn table(tables: &[Table]) -> Option<Table> {
    let (mut lost, mut all) = (Vec::new(), 0);
    for table in tables {
        for ours in table.rows.iter().filter(|row| row.forms.contains(&row.contender.as_str())) {
            for theirs in table.rows.iter().filter(|row| row.case == ours.case) {
                let Some(ratio) = Spread::of_ratios(&ours.rounds, &theirs.rounds) else { continue };
                if !are_alike(&ours.contender, &theirs.contender) {
                    continue;
                }
                all += 1;
                let is_told = table.section != "Fairness" || !ratio.is_undecided();
                if ratio.median >= 1.0005 && is_told {
                    let case = [table.section, &table.title, &ours.case];
                    let case: Vec<_> = case.into_iter().filter(|part| !part.is_empty()).collect();
                    let pair = format!("{} / {}", ours.contender, theirs.contender);
                    lost.push(Row::new(case.join(", "), pair).spread("ratio", "", Some(ratio)));
                }
            }
        }
    }
    let title = format!("{} of {}", lost.len(), count(all, "comparison"));
    (!lost.is_empty()).then_some(Table { section: "Where it loses", title, rows: lost })
}

/// Returns whether the second contender is a peer that has its time from the same place.
fn are_alike(ours: &str, theirs: &str) -> bool {
    let is_peer = !theirs.starts_with(OURS) && !theirs.starts_with("none") && theirs != FLOOR;
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
