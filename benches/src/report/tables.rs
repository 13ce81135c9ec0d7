//! The tables of the page. Each is none without data.

use std::fmt::Display;

use super::compare::{Comparison, NONE, OURS, Sample, described, net};
use super::goals;
use super::numbers::{self, Spread, grouped, percent, short};
use super::reasons;
use crate::results::{Case, Latencies, Law, Results, Room};

const MISSING: &str = "-";

/// In Markdown. A column of numbers is on the right.
fn table(head: &[&str], rows: &[Vec<String>]) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let is_number = |cell: &str| cell == MISSING || cell.starts_with(|first: char| first.is_ascii_digit());
    let rule = |column: usize| {
        let is_right = rows.iter().all(|row| is_number(&row[column]));
        if is_right { "--:" } else { "---" }.to_owned()
    };
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head_cells: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let rules: Vec<String> = (0..head.len()).map(rule).collect();
    let mut text = line(&head_cells) + &format!("|{}|\n", rules.join("|"));
    for row in rows {
        text += &line(row);
    }
    Some(text)
}

fn or_missing(value: Option<impl Display>) -> String {
    value.map_or_else(|| MISSING.to_owned(), |value| value.to_string())
}

/// Of tollgate to another.
fn ratio_to(ours: Option<&[f64]>, theirs: &[f64], contender: &str) -> String {
    let ratio = ours.filter(|_| contender != OURS).and_then(|ours| Spread::of_ratios(ours, theirs));
    or_missing(ratio.map(|ratio| ratio.ratio()))
}

pub(super) fn acceptance(results: &Results, samples: &[Sample]) -> Option<String> {
    let rows = goals::rows(results, samples);
    rows.iter().any(|row| row.measured.is_some()).then_some(())?;
    let cells =
        |row: goals::Row| vec![row.case, row.comparison, or_missing(row.measured), row.target, row.verdict];
    let rows: Vec<_> = rows.into_iter().map(cells).collect();
    table(&["case", "ours / theirs", "measured: median (quartiles)", "target", "reached"], &rows)
}

/// A row for each of ours in a case, with all who are faster there.
pub(super) fn losses(comparisons: &[Comparison], laws: &[Law]) -> Option<String> {
    let lost: Vec<&Comparison> = comparisons.iter().filter(|one| one.is_lost()).collect();
    let of_one = |a: &&Comparison, b: &&Comparison| a.subject == b.subject && a.ours == b.ours;
    let cells = |lost: &[&Comparison]| {
        let mut lost = lost.to_vec();
        lost.sort_by(|a, b| b.ratio.median.total_cmp(&a.ratio.median));
        let faster: Vec<String> = lost.iter().map(|one| faster(one)).collect();
        let (case, ours) = (lost[0].subject.to_string(), lost[0].ours.clone());
        vec![case, ours, faster.join(", "), reasons::why(&lost, laws)]
    };
    let rows: Vec<_> = lost.chunk_by(of_one).map(cells).collect();
    table(&["case", "ours", "who is faster: ours / theirs", "why"], &rows)
}

fn faster(one: &Comparison) -> String {
    let (theirs, ratio) = (&one.theirs, one.ratio);
    if ratio.is_undecided() {
        let number = numbers::ratio;
        return format!(
            "`{theirs}` {} ({} to {}: the rounds do not tell)",
            number(ratio.median),
            number(ratio.low),
            number(ratio.high)
        );
    }
    format!("`{theirs}` {}", numbers::ratio(ratio.median))
}

pub(super) fn laws(results: &Results) -> Option<String> {
    let cells = |law: &Law| {
        let verdict = match (law.is_kept(), law.is_prompt()) {
            (true, true) => "kept",
            (true, false) => "**less than it owes**",
            (false, _) => "**more than it may**",
        };
        let share = law.granted as f64 / law.most * 100.0;
        let (granted, allowed) = (grouped(law.granted), grouped(law.most.round() as u64));
        let share = format!("{granted} / {allowed}, {share:.1} %");
        vec![law.kind.clone(), law.contender.clone(), law.threads.to_string(), share, verdict.to_owned()]
    };
    let rows: Vec<_> = results.laws.iter().map(cells).collect();
    table(&["kind", "contender", "threads", "granted / allowed", "the law"], &rows)
}

/// Times of all cases of this kind and path.
pub(super) fn times(results: &Results, what: &str, path: &str) -> Option<String> {
    let is_wanted = |case: &Case| case.what == what && case.path == path;
    let of_ours: Vec<_> = results.times.iter().filter(|of| of.contender == OURS).collect();
    let mut rows = Vec::new();
    let notes = names(results.times.iter().filter(|of| is_wanted(&of.case)).map(|of| &of.notes));
    for case in cases(results.times.iter().map(|of| &of.case).filter(|case| is_wanted(case))) {
        let ours = of_ours.iter().find(|of| of.case == *case).map(|of| net(of));
        for of in results.times.iter().filter(|of| of.case == *case) {
            let net = net(of);
            let mut row = vec![grouped(case.keys as u64), grouped(case.threads as u64)];
            row.push(of.contender.clone());
            row.push(or_missing(Spread::of(&net)));
            row.push(or_missing(Spread::of(&of.raw)));
            row.push(ratio_to(ours.as_deref(), &net, &of.contender));
            row.extend(noted(&notes, &of.notes));
            rows.push(row);
        }
    }
    let mut head = vec!["keys", "threads", "contender", "ns a decision, net", "raw", "tollgate / this one"];
    head.extend(&notes);
    if what == "one bucket" {
        rows.iter_mut().for_each(|row| drop(row.remove(0)));
        return table(&head[1..], &rows);
    }
    table(&head, &rows)
}

/// Of notes, each once.
fn names<'a>(notes: impl Iterator<Item = &'a Vec<(String, String)>>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in notes.flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

/// What there is to say under each of these names.
fn noted(names: &[&str], notes: &[(String, String)]) -> Vec<String> {
    let note = |name: &&str| notes.iter().find(|note| note.0 == **name).map(|note| &note.1);
    names.iter().map(|name| or_missing(note(name))).collect()
}

/// Each once.
fn cases<'a>(all: impl Iterator<Item = &'a Case>) -> Vec<&'a Case> {
    let mut cases: Vec<&Case> = Vec::new();
    for case in all {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

/// Kinds and paths, each once.
pub(super) fn scenarios(results: &Results) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    for of in &results.times {
        let scenario = (of.case.what.as_str(), of.case.path.as_str());
        if !all.contains(&scenario) {
            all.push(scenario);
        }
    }
    all
}

/// The nanoseconds in which this part of decisions was made.
pub(super) fn quantile(of: &Latencies, part: f64) -> Option<f64> {
    let least = |quantile: &&(f64, f64)| quantile.0 >= part - 1e-12;
    of.quantiles.iter().find(least).map(|quantile| quantile.1)
}

/// A table for each case, and its name.
pub(super) fn latencies(results: &Results) -> Vec<(String, String)> {
    let mut tables = Vec::new();
    for case in cases(results.latencies.iter().map(|of| &of.case)) {
        let all: Vec<_> = results.latencies.iter().filter(|of| of.case == *case).collect();
        let ours = all.iter().find(|of| of.contender == OURS).map(|of| &of.p999[..]);
        let notes = names(all.iter().map(|of| &of.notes));
        let cells = |of: &&Latencies| {
            let mut row = vec![of.contender.clone()];
            row.extend([0.5, 0.99, 0.999, 0.9999, 1.0].map(|part| or_missing(quantile(of, part).map(short))));
            row.push(ratio_to(ours, &of.p999, &of.contender));
            row.push(grouped(of.decisions));
            row.extend(noted(&notes, &of.notes));
            row
        };
        let rows: Vec<_> = all.iter().map(cells).collect();
        let mut head = vec!["contender", "p50, ns", "p99", "p99.9", "p99.99", "max"];
        head.extend(["p99.9 of tollgate / this one", "decisions"]);
        head.extend(&notes);
        tables.extend(table(&head, &rows).map(|table| (described(case), table)));
    }
    tables
}

pub(super) fn fairness(results: &Results) -> Option<String> {
    let mut rows = Vec::new();
    for of in &results.shares {
        let mut row = vec![described(&of.case), of.contender.clone()];
        row.extend([&of.jain, &of.least].map(|values| or_missing(Spread::of(values).map(|of| of.ratio()))));
        rows.push(row);
    }
    table(&["case", "contender", "Jain's index", "the least part of a fair share"], &rows)
}

pub(super) fn memory(results: &Results) -> Option<String> {
    let mut rows = Vec::new();
    for of in results.memory.iter().filter(|of| of.keys > 0) {
        let a_key = |bytes: u64| short(bytes as f64 / of.keys as f64);
        let mut row = vec![of.kind.clone(), grouped(of.keys as u64), of.contender.clone()];
        row.extend([a_key(of.counted), a_key(of.resident), (of.allocations as f64 / 1e6).to_string()]);
        row.push(or_missing((of.held > 0).then(|| grouped(of.held as u64))));
        rows.push(row);
    }
    let head = [
        "kind of keys",
        "keys",
        "contender",
        "bytes a key, counted",
        "resident",
        "allocations a decision",
        "keys held",
    ];
    table(&head, &rows)
}

pub(super) fn rooms(results: &Results) -> Option<String> {
    let refused = |refused, of| format!("{} % ({})", percent(refused, of), grouped(refused));
    let cells = |of: &Room| {
        let mut row = vec![format!("{:.0} %", of.load * 100.0)];
        row.extend([grouped(of.inserts), refused(of.refused, of.inserts)]);
        row.extend([grouped(of.last_inserts), refused(of.last_refused, of.last_inserts)]);
        row
    };
    let rows: Vec<_> = results.rooms.iter().map(cells).collect();
    let head =
        ["slots in use", "newcomers until then", "refused", "of them in the last hundredth", "refused"];
    table(&head, &rows)
}

pub(super) fn starts(results: &Results) -> Option<String> {
    let mut rows = Vec::new();
    for of in &results.starts {
        let mut row = vec![of.contender.clone()];
        row.extend([&of.made, &of.first, &of.second].map(|values| or_missing(Spread::of(values))));
        rows.push(row);
    }
    table(&["contender", "made, ns", "first decision, ns", "second decision, ns"], &rows)
}

pub(super) fn proxies(results: &Results) -> Option<String> {
    let without = results.proxies.iter().find(|of| of.limiter == NONE);
    let mut rows = Vec::new();
    for of in &results.proxies {
        let without = without.filter(|_| of.limiter != NONE);
        let ratio = without.and_then(|without| Spread::of_ratios(&of.requests, &without.requests));
        let mut row = vec![of.limiter.clone()];
        row.extend([&of.requests, &of.p50, &of.p99].map(|values| or_missing(Spread::of(values))));
        row.push(or_missing(ratio.map(|ratio| ratio.ratio())));
        rows.push(row);
    }
    let head = ["limiter", "requests/s", "p50, µs", "p99, µs", "requests/s of this one / of none"];
    table(&head, &rows)
}

pub(super) fn versions(results: &Results) -> Option<String> {
    let cells = |(name, version): &(String, String)| vec![name.clone(), version.clone()];
    table(&["peer", "version"], &results.about.versions.iter().map(cells).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_on_the_right() {
        let rows = [vec!["a".to_owned(), "1.0 (0.9 to 1.1)".to_owned(), MISSING.to_owned()]];
        let expected = "| x | y | z |\n|---|--:|--:|\n| a | 1.0 (0.9 to 1.1) | - |\n";
        assert_eq!(table(&["x", "y", "z"], &rows).unwrap(), expected);
        assert_eq!(table(&["x"], &[]), None);
    }
}
