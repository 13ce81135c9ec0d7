//! The numbers of a run as rows of its CSV file.

use crate::contenders::{FLOOR, OURS};
use crate::numbers::{Spread, count};
use crate::results::{About, Case, Latencies, Law, Results};
use crate::rows::Rows;
use crate::scenarios;

/// The section of the processor and of all versions.
pub const MACHINE: &str = "Machine";

/// Adds the machine and the day.
pub fn add_machine(rows: &mut Rows, about: &About) {
    let processors = about.processors.to_string();
    let texts = [
        ("processor", &about.processor),
        ("processors", &processors),
        ("kernel", &about.kernel),
        ("pauses", &about.pauses),
        ("rustc", &about.rustc),
        ("commit", &about.commit),
        ("date", &about.date),
    ];
    texts.into_iter().for_each(|(name, value)| rows.text([MACHINE, "", "", name], value));
}

/// Returns the numbers of each scenario that has data.
#[must_use]
pub fn rows(results: &Results) -> Rows {
    let mut rows = Rows::default();
    of_laws(&mut rows, &results.laws);
    of_times(&mut rows, results);
    for of in &results.shares {
        let place = |measure| ["Fairness", &name(&of.case), &of.contender, measure].map(str::to_owned);
        add(&mut rows, place("Jain's index"), "", &of.jain);
        add(&mut rows, place("the least part of a fair share"), "", &of.least);
    }
    of_memory(&mut rows, results);
    for of in &results.starts {
        let place =
            |measure: &str| ["Cold start", "a process of its own", &of.contender, measure].map(str::to_owned);
        let both: Vec<f64> = of.made.iter().zip(&of.first).map(|(made, first)| made + first).collect();
        add(&mut rows, place("made, ns"), "ns", &of.made);
        add(&mut rows, place("first decision, ns"), "ns", &of.first);
        add(&mut rows, place("made and first decision, ns"), "ns", &both);
        add(&mut rows, place("second decision, ns"), "ns", &of.second);
    }
    rows.rounds(
        ["A cache line between two processors", "2 threads", "none", "ns a transfer"],
        "ns",
        &results.transfers,
    );
    of_proxies(&mut rows, results);
    rows
}

fn add(rows: &mut Rows, place: [String; 4], unit: &str, values: &[f64]) {
    rows.rounds(place.each_ref().map(String::as_str), unit, values);
}

fn of_laws(rows: &mut Rows, laws: &[Law]) {
    for law in laws {
        let case = format!("{}, {}", law.kind, count(law.threads, "thread"));
        let mut number =
            |measure, value| rows.number(["Do they limit?", &case, &law.contender, measure], "tokens", value);
        number("granted", law.granted as f64);
        number("owed", law.least.round());
        number("allowed", law.most.round());
        let verdict = match (law.is_kept(), law.is_prompt()) {
            (true, true) => "kept",
            (true, false) => "less than it owes",
            (false, _) => "more than it may",
        };
        rows.text(["Do they limit?", &case, &law.contender, "the law"], verdict);
    }
}

fn of_times(rows: &mut Rows, results: &Results) {
    for of in &results.times {
        let (section, case, net) = ("Decisions back to back", name(&of.case), of.net());
        rows.rounds([section, &case, &of.contender, "ns a decision, net"], "ns", &net);
        rows.rounds([section, &case, &of.contender, "raw"], "ns", &of.raw);
        let forms = results.times.iter().filter(|ours| ours.case == of.case);
        let forms = forms.map(|ours| (ours.contender.as_str(), ours.net()));
        add_ratios(rows, [section, &case, &of.contender], forms, &net);
        add_notes(rows, [section, &case, &of.contender], &of.notes);
    }
    for of in &results.latencies {
        let (section, case) = ("Single decisions", name(&of.case));
        let parts = [("p50, ns", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)];
        for (measure, part) in parts {
            rows.spread([section, &case, &of.contender, measure], "ns", quantile(of, part));
        }
        let forms = results.latencies.iter().filter(|ours| ours.case == of.case);
        let forms = forms.map(|ours| (ours.contender.as_str(), ours.p999.clone()));
        add_ratios(rows, [section, &case, &of.contender], forms, &of.p999);
        rows.number([section, &case, &of.contender, "decisions"], "", of.decisions as f64);
        add_notes(rows, [section, &case, &of.contender], &of.notes);
    }
}

/// Adds the ratios of tollgate's forms to this contender: of the default form to all, of the others
/// to those that the page has. A ratio is taken in each round.
fn add_ratios<'a>(
    rows: &mut Rows,
    [section, case, contender]: [&str; 3],
    forms: impl Iterator<Item = (&'a str, Vec<f64>)>,
    rounds: &[f64],
) {
    let is_on_page = [OURS, "tollgate, inline", "governor", FLOOR].contains(&contender);
    for (form, ours) in forms.filter(|(form, _)| *form != contender) {
        if form == OURS || is_on_page && form.starts_with(OURS) {
            let measure = format!("{form} / this one");
            rows.spread([section, case, contender, &measure], "", Spread::of_ratios(&ours, rounds));
        }
    }
}

fn add_notes(rows: &mut Rows, [section, case, contender]: [&str; 3], notes: &[(String, String)]) {
    notes.iter().for_each(|(measure, value)| rows.text([section, case, contender, measure], value));
}

fn of_memory(rows: &mut Rows, results: &Results) {
    for of in results.memory.iter().filter(|of| of.keys > 0) {
        let case = format!("{}, {}", of.kind, count(of.keys, "key"));
        let mut number =
            |measure, unit, value| rows.number(["Memory", &case, &of.contender, measure], unit, value);
        number("bytes a key, counted", "bytes", of.counted as f64 / of.keys as f64);
        number("resident", "bytes", of.resident as f64 / of.keys as f64);
        number("allocations a decision", "", of.allocations as f64 / 1e6);
        number("keys held", "", of.held as f64);
    }
    for of in &results.rooms {
        let case = format!("{:.0} % of the slots in use", of.load * 100.0);
        let mut number = |measure, value: u64| {
            rows.number(["Room in a table", &case, "tollgate, inline", measure], "", value as f64);
        };
        number("newcomers until then", of.inserts);
        number("refused", of.refused);
        number("newcomers in the last hundredth", of.last_inserts);
        number("refused in the last hundredth", of.last_refused);
    }
}

fn of_proxies(rows: &mut Rows, results: &Results) {
    let none = results.proxies.iter().find(|of| of.limiter == "none");
    for of in &results.proxies {
        let place = |measure| ["A proxy under load", "wrk, 32 connections", of.limiter.as_str(), measure];
        rows.rounds(place("requests/s"), "1/s", &of.requests);
        rows.rounds(place("p50, µs"), "µs", &of.p50);
        rows.rounds(place("p99, µs"), "µs", &of.p99);
        let none = none.filter(|none| none.limiter != of.limiter);
        let ratio = none.and_then(|none| Spread::of_ratios(&of.requests, &none.requests));
        rows.spread(place("requests/s of this one / of none"), "", ratio);
    }
}

/// Returns the nanoseconds within which this part of the decisions was made.
fn quantile(of: &Latencies, part: f64) -> Option<Spread> {
    let (_, nanos) = of.quantiles.iter().find(|quantile| quantile.0 >= part - 1e-12)?;
    Spread::of(&[*nanos])
}

/// Returns the name of a case: `keyed, uniform, granted, 1,000 keys, 2 threads`. One bucket has no
/// keys.
fn name(case: &Case) -> String {
    let is_alone = ["one bucket", "window"].contains(&case.what.as_str());
    let keys = if is_alone { String::new() } else { count(case.keys, "key") };
    let parts = [&case.what, &case.path, &keys, &count(case.threads, "thread")];
    parts.into_iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ")
}

/// Returns the numbers of the mock clock, which are the same in each run.
#[must_use]
pub fn simulated() -> Rows {
    let mut rows = Rows::default();
    let levels = scenarios::tokens_over_time();
    for (n, (seconds, tokens)) in levels.iter().enumerate() {
        let is_flat =
            n > 0 && levels.get(n + 1).is_some_and(|next| next.1 == *tokens) && levels[n - 1].1 == *tokens;
        if !is_flat {
            rows.number(["Tokens over time", &seconds.to_string(), "bucket", "tokens"], "", *tokens);
        }
    }
    for of in scenarios::clients() {
        for (seconds, tokens) in of.over_time() {
            rows.number([of.client, &seconds.to_string(), of.algorithm, "granted"], "", tokens);
        }
    }
    rows
}
