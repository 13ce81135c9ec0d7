//! The tables of the page.

use tollgate_benches::report::numbers::{Spread, grouped, short};

use crate::contenders::ON_REDIS;
use crate::rows::Rows;
use crate::scenarios::outage::{PHASE, PHASES, POLICIES, SOURCES};
use crate::scenarios::stores::SPEED;
use crate::scenarios::{at_hand, attempts};

/// The section of the processor and of all versions.
pub(super) const MACHINE: &str = "Machine";

/// Returns a table of the page by its name: the kind, and the section or the case.
pub(super) fn table(rows: &Rows, name: &str) -> String {
    match name.split_once(": ").unwrap_or((name, "")) {
        ("machine", _) => machine(rows),
        ("store", place) => store(rows, place.split_once("; ").unwrap_or((place, ""))),
        ("lost", _) => lost(rows),
        ("outage", _) => outage(rows),
        ("attempts", _) => attempts(rows, attempts::REFUSED, "store", &ATTEMPTS),
        ("frozen", _) => attempts(rows, attempts::FROZEN, "policy", &FROZEN),
        ("at hand", _) => at_hand_table(rows),
        ("curve", section) => curve(rows, section),
        _ => format!("there is no table {name}"),
    }
}

/// Returns a text of the machine, with a break in each of its lines: it has no line to itself.
fn machine(rows: &Rows) -> String {
    let of = |contender: &str, measure: &str| {
        let mut found = rows.0.iter().filter(|row| row.section == MACHINE && row.measure == measure);
        found.find(|row| row.contender == contender).and_then(|row| row.value.clone().err())
    };
    let processors = rows.find([MACHINE, "", "", "processors"]).map_or(0.0, |of| of.median);
    let text = |measure: &str| of("", measure).unwrap_or_default();
    let (processor, kernel, rustc, date) = (text("processor"), text("kernel"), text("rustc"), text("date"));
    let mut programs = Vec::new();
    for row in rows.0.iter().filter(|row| row.section == MACHINE && row.measure == "version") {
        let version = row.value.clone().err().unwrap_or_default();
        let told = format!("* {} {}", row.contender, digits(&version));
        if !programs.contains(&told) {
            programs.push(told);
        }
    }
    let machine = format!("* {processor}, {processors} processors, {kernel}\n* {rustc}, {date}");
    [machine].into_iter().chain(programs).collect::<Vec<_>>().join("\n")
}

/// Returns the number of a version in a line such as `psql (PostgreSQL) 15.18 (Debian 15.18-0)`.
fn digits(version: &str) -> &str {
    let words = version.split_whitespace().map(|word| word.trim_start_matches("v="));
    words.into_iter().find(|word| word.starts_with(|of: char| of.is_ascii_digit())).unwrap_or(version)
}

fn row(cells: impl IntoIterator<Item = String>) -> String {
    format!("| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "))
}

fn head(first: &str, others: &[String]) -> String {
    let names = row([first.to_owned()].into_iter().chain(others.iter().cloned()));
    format!("{names}\n|---|{}", "--:|".repeat(others.len()))
}

fn cell(spread: Option<Spread>) -> String {
    spread.map_or(String::new(), |of| match of.median {
        large @ 1_000.0.. => grouped(large.round() as u64),
        // No number is -0.
        small => short(small + 0.0),
    })
}

/// The columns of a store: measure, and the title where it differs.
const COLUMNS: [(&str, &str); 11] = [
    (SPEED, ""),
    ("decisions/s / exact", "/ exact"),
    ("keys a call", ""),
    ("p50", "p50, us"),
    ("p99", "p99, us"),
    ("p99.9", "p99.9, us"),
    ("calls", "calls in 1,000"),
    ("keys in calls", "keys in 1,000"),
    ("server", "server, us"),
    ("client", "client, us"),
    ("granted", "granted, %"),
];

/// Returns the contenders of a case. A column without a number is left out.
fn store(rows: &Rows, (store, case): (&str, &str)) -> String {
    let value = |name: &str, measure: &str| rows.find([store, case, name, measure]);
    let has = |measure: &str| ON_REDIS.iter().any(|name| value(name, measure).is_some());
    let columns: Vec<_> = COLUMNS.into_iter().filter(|(measure, _)| has(measure)).collect();
    let titles: Vec<String> = columns
        .iter()
        .map(|(measure, title)| if title.is_empty() { measure } else { title }.to_string())
        .collect();
    let is_there = |name: &&&str| columns.iter().any(|(measure, _)| value(name, measure).is_some());
    let lines = ON_REDIS.iter().filter(is_there);
    let lines = lines.map(|name| {
        let cells = columns.iter().map(|(measure, _)| cell(value(name, measure)));
        row([(*name).to_owned()].into_iter().chain(cells))
    });
    [head("limiter", &titles)].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

fn outage(rows: &Rows) -> String {
    let sources = SOURCES.map(|source| format!("{source:?}"));
    let measures: Vec<&str> =
        ["p50", "p99", "longest", "granted"].into_iter().chain(sources.iter().map(String::as_str)).collect();
    let titles: Vec<String> = ["", "p50, us", "p99, us", "longest, ms", "granted/s"]
        .into_iter()
        .chain(["lease", "shadow", "store", "fallback", "policy"])
        .map(str::to_owned)
        .collect();
    let mut lines = vec![head("policy, mode", &titles)];
    for (policy, _) in POLICIES {
        for mode in ["leased", "exact"] {
            let case = format!("{policy}, {mode}");
            for (place, (phase, ..)) in PHASES.into_iter().enumerate() {
                let cells = measures.iter().map(|measure| {
                    let scale = if *measure == "longest" { 1e-3 } else { 1.0 };
                    let value = rows.find([PHASE, &case, phase, measure]);
                    cell(value.map(|of| Spread { median: of.median * scale, ..of }))
                });
                let name = if place == 0 { case.clone() } else { String::new() };
                lines.push(row([name, phase.to_owned()].into_iter().chain(cells)));
            }
        }
    }
    lines.join("\n")
}

/// The columns of attempts, with their titles.
const ATTEMPTS: [(&str, &str); 6] = [
    ("p50", "p50, ns"),
    ("p99", "p99, ns"),
    ("p99.9", "p99.9, ns"),
    ("calls", "calls/s"),
    ("round trip", "round trip, ms"),
    ("late, at most", "late, at most, ms"),
];
const FROZEN: [(&str, &str); 4] =
    [("p50", "p50, ns"), ("p99", "p99, ns"), ("p99.9", "p99.9, ns"), ("granted", "granted, %")];

fn attempts(rows: &Rows, section: &str, first: &str, columns: &[(&str, &str)]) -> String {
    let titles: Vec<String> = columns.iter().map(|(_, title)| (*title).to_owned()).collect();
    let lines = rows.cases(section).into_iter().map(|case| {
        let cells = columns.iter().map(|(measure, _)| cell(rows.find([section, case, "tollgate", measure])));
        row([case.to_owned()].into_iter().chain(cells))
    });
    [head(first, &titles)].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

/// Measures in which a contender may be better, and whether more is better.
const LOST: [(&str, bool); 7] = [
    (SPEED, true),
    ("p50", false),
    ("p99", false),
    ("p99.9", false),
    ("calls", false),
    ("server", false),
    ("client", false),
];

/// Returns the best contender of each case on Redis that is better than the leased mode, and how
/// many times.
fn lost(rows: &Rows) -> String {
    let better = |case: &str, (measure, is_more): (&str, bool)| {
        let value = |name: &str| Some(rows.find(["Redis", case, name, measure])?.median);
        let ours = value("leased")?;
        let times = |name: &&'static str| {
            let theirs = value(name)?;
            Some((if is_more { theirs / ours } else { ours / theirs }, *name))
        };
        let others = ON_REDIS[2..].iter().filter_map(times);
        others.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|(times, _)| *times > 1.0)
    };
    let lines = rows.cases("Redis").into_iter().map(|case| {
        let cells = LOST.map(|measure| {
            better(case, measure).map_or(String::new(), |(times, name)| format!("{} {name}", short(times)))
        });
        row([case.to_owned()].into_iter().chain(cells))
    });
    let titles = LOST.map(|(measure, _)| measure.to_owned());
    [head("case", &titles)].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

fn at_hand_table(rows: &Rows) -> String {
    let names = ["core", "leased", "leased / core"];
    let lines = rows.cases(at_hand::SECTION).into_iter().map(|case| {
        let spread = |name| rows.find([at_hand::SECTION, case, name, at_hand::NANOS]);
        row([case.to_owned()]
            .into_iter()
            .chain(names.map(|name| spread(name).map_or(String::new(), |of| of.to_string()))))
    });
    let titles = ["`RateLimiter`, ns", "leased, ns", "ratio"].map(str::to_owned);
    [head("case", &titles)].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

/// Returns a curve: the numbers of both modes by the value on the axis.
fn curve(rows: &Rows, section: &str) -> String {
    let columns = [
        ("exact", "round trips", "exact: round trips/s"),
        ("exact", "under", "under, %"),
        ("leased", "round trips", "leased: round trips/s"),
        ("leased", "decisions a round trip", "decisions each"),
        ("leased", "under", "under, %"),
        ("leased", "over", "over, tokens"),
        ("leased", "unused, at most", "on lease, unused, at most"),
    ];
    let has = |of: &&(&str, &str, &str)| {
        rows.cases(section).iter().any(|case| rows.find([section, case, of.0, of.1]).is_some())
    };
    let columns: Vec<_> = columns.iter().filter(has).collect();
    let titles: Vec<String> = columns.iter().map(|(.., title)| (*title).to_owned()).collect();
    let lines = rows.cases(section).into_iter().map(|case| {
        let cells = columns.iter().map(|(mode, measure, _)| cell(rows.find([section, case, mode, measure])));
        row([case.to_owned()].into_iter().chain(cells))
    });
    [head(&section.to_lowercase(), &titles)].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}
