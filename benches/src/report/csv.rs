//! All numbers of a run as CSV, a line for each measurement.

use super::numbers::{Spread, count, short};
use crate::contenders::{FLOOR, OURS};
use crate::results::{Case, Latencies, Law, Results};

/// The measure of decisions back to back.
pub(super) const NET: &str = "ns a decision, net";
/// The end of a ratio's name, after the form of tollgate.
pub(super) const THIS_ONE: &str = " / this one";

/// The measurements of one contender in one case, a line for each.
struct Row {
    contender: String,
    /// The first fields of each line: section, table, case and contender.
    start: String,
    lines: String,
}

impl Row {
    fn new(section: &str, table: &str, case: &str, contender: &str) -> Row {
        let start = [section, table, case, contender].map(field).join(",");
        Row { contender: contender.to_owned(), start, lines: String::new() }
    }

    fn line(mut self, measure: &str, value: &str, quartiles: [String; 2], unit: &str) -> Row {
        let [low, high] = quartiles;
        let end = [measure, value, &low, &high, unit].map(field).join(",");
        self.lines += &format!("{},{end}\n", self.start);
        self
    }

    fn text(self, measure: &str, unit: &str, value: impl AsRef<str>) -> Row {
        self.line(measure, value.as_ref(), [String::new(), String::new()], unit)
    }

    fn number(self, measure: &str, unit: &str, value: f64) -> Row {
        self.text(measure, unit, short(value))
    }

    fn rounds(self, measure: &str, unit: &str, values: &[f64]) -> Row {
        self.spread(measure, unit, Spread::of(values))
    }

    /// Adds a measurement of rounds, or nothing if there are none.
    fn spread(self, measure: &str, unit: &str, spread: Option<Spread>) -> Row {
        let Some(Spread { low, median, high }) = spread else { return self };
        self.line(measure, &short(median), [short(low), short(high)], unit)
    }

    /// Adds the ratios of tollgate's forms to this contender: of the default form to all, of the
    /// others to those that the page has.
    fn ratios<'a>(self, forms: impl Iterator<Item = (&'a str, Vec<f64>)>, rounds: &[f64]) -> Row {
        let is_on_page = [OURS, "tollgate, inline", "governor", FLOOR].contains(&self.contender.as_str());
        forms.fold(self, |row, (form, ours)| {
            let is_wanted = form == OURS || is_on_page && form.starts_with(OURS);
            let ratio = Spread::of_ratios(&ours, rounds).filter(|_| is_wanted && form != row.contender);
            row.spread(&format!("{form}{THIS_ONE}"), "", ratio)
        })
    }

    fn notes(self, notes: &[(String, String)]) -> Row {
        notes.iter().fold(self, |row, (name, value)| row.text(name, "", value))
    }
}

/// Returns a field. None has a quotation mark in it.
pub fn field(text: &str) -> String {
    if text.contains(',') { format!("\"{text}\"") } else { text.to_owned() }
}

/// Returns the fields of a line. No field has a quotation mark in it.
pub fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    for (n, part) in line.split('"').enumerate() {
        let is_quoted = n % 2 == 1;
        for (n, piece) in part.split(|c| c == ',' && !is_quoted).enumerate() {
            if n > 0 {
                fields.push(String::new());
            }
            *fields.last_mut().expect("there is one") += piece;
        }
    }
    fields
}

/// Returns the lines of each scenario that has data.
pub(super) fn lines(results: &Results) -> String {
    let head = "section,table,case,contender,measure,value,quartile_low,quartile_high,unit\n";
    let mut text = head.to_owned();
    let mut add = |row: Row| text += &row.lines;
    let about = &results.about;
    let machine = Row::new("Machine", "", "", "")
        .text("processor", "", &about.processor)
        .text("processors", "", about.processors.to_string())
        .text("kernel", "", &about.kernel)
        .text("rustc", "", &about.rustc)
        .text("commit", "", &about.commit)
        .text("date", "", &about.date)
        .text("effort", "", if about.quick { "quick" } else { "full" })
        .text("seconds", "s", about.seconds.to_string());
    add(machine);
    for law in &results.laws {
        let case = format!("{}, {}", law.kind, count(law.threads, "thread"));
        let row = Row::new("Do they limit?", "", &case, &law.contender)
            .number("granted", "tokens", law.granted as f64)
            .number("owed", "tokens", law.least.round())
            .number("allowed", "tokens", law.most.round())
            .text("the law", "", verdict(law));
        add(row);
    }
    for of in &results.times {
        let net = of.net();
        let forms = results.times.iter().filter(|ours| ours.case == of.case);
        let row = Row::new("Decisions back to back", &kind(&of.case), &size(&of.case), &of.contender)
            .rounds(NET, "ns", &net)
            .rounds("raw", "ns", &of.raw)
            .ratios(forms.map(|ours| (ours.contender.as_str(), ours.net())), &net)
            .notes(&of.notes);
        add(row);
    }
    for of in &results.latencies {
        let mut row = Row::new("Single decisions", &kind(&of.case), &size(&of.case), &of.contender);
        for (name, part) in
            [("p50, ns", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)]
        {
            row = row.number(name, "ns", quantile(of, part).unwrap_or(f64::NAN));
        }
        let forms = results.latencies.iter().filter(|ours| ours.case == of.case);
        let row = row
            .ratios(forms.map(|ours| (ours.contender.as_str(), ours.p999.clone())), &of.p999)
            .number("decisions", "", of.decisions as f64)
            .notes(&of.notes);
        add(row);
    }
    for of in &results.shares {
        let row = Row::new("Fairness", "", &format!("{}, {}", kind(&of.case), size(&of.case)), &of.contender)
            .rounds("Jain's index", "", &of.jain)
            .rounds("the least part of a fair share", "", &of.least);
        add(row);
    }
    for of in results.memory.iter().filter(|of| of.keys > 0) {
        let a_key = |bytes: u64| bytes as f64 / of.keys as f64;
        let row = Row::new("Memory", "", &format!("{}, {}", of.kind, count(of.keys, "key")), &of.contender)
            .number("bytes a key, counted", "bytes", a_key(of.counted))
            .number("resident", "bytes", a_key(of.resident))
            .text("allocations a decision", "", (of.allocations as f64 / 1e6).to_string())
            .number("keys held", "", of.held as f64);
        add(row);
    }
    for of in &results.rooms {
        let row = Row::new(
            "Room in a table",
            "",
            &format!("{:.0} % of the slots in use", of.load * 100.0),
            "tollgate, inline",
        )
        .number("newcomers until then", "", of.inserts as f64)
        .number("refused", "", of.refused as f64)
        .number("newcomers in the last hundredth", "", of.last_inserts as f64)
        .number("refused in the last hundredth", "", of.last_refused as f64);
        add(row);
    }
    if !results.transfers.is_empty() {
        let row = Row::new("A cache line between two processors", "", "2 threads", "none").rounds(
            "ns a transfer",
            "ns",
            &results.transfers,
        );
        add(row);
    }
    for of in &results.starts {
        let both: Vec<f64> = of.made.iter().zip(&of.first).map(|(made, first)| made + first).collect();
        let row = Row::new("Cold start", "", "a process of its own", &of.contender)
            .rounds("made, ns", "ns", &of.made)
            .rounds("first decision, ns", "ns", &of.first)
            .rounds("made and first decision, ns", "ns", &both)
            .rounds("second decision, ns", "ns", &of.second);
        add(row);
    }
    let none = results.proxies.iter().find(|of| of.limiter == "none");
    for of in &results.proxies {
        let none = none.filter(|none| none.limiter != of.limiter);
        let ratio = none.and_then(|none| Spread::of_ratios(&of.requests, &none.requests));
        let row = Row::new("A proxy under load", "", "wrk, 32 connections", &of.limiter)
            .rounds("requests/s", "1/s", &of.requests)
            .rounds("p50, µs", "µs", &of.p50)
            .rounds("p99, µs", "µs", &of.p99)
            .spread("requests/s of this one / of none", "", ratio);
        add(row);
    }
    for (name, version) in &results.about.versions {
        add(Row::new("Versions", "", "", name).text("version", "", version));
    }
    text
}

fn verdict(law: &Law) -> &'static str {
    match (law.is_kept(), law.is_prompt()) {
        (true, true) => "kept",
        (true, false) => "less than it owes",
        (false, _) => "more than it may",
    }
}

/// Returns the nanoseconds within which this part of the decisions was made.
pub(super) fn quantile(of: &Latencies, part: f64) -> Option<f64> {
    of.quantiles.iter().find(|quantile| quantile.0 >= part - 1e-12).map(|quantile| quantile.1)
}

/// Returns the scenario of a case: `keyed, uniform, granted`.
fn kind(case: &Case) -> String {
    if case.path.is_empty() { case.what.clone() } else { format!("{}, {}", case.what, case.path) }
}

/// Returns the size of a case: `1,000 keys, 2 threads`. One bucket has no keys.
fn size(case: &Case) -> String {
    let alone = ["one bucket", "window"].contains(&case.what.as_str());
    let keys = if alone { String::new() } else { format!("{}, ", count(case.keys, "key")) };
    keys + &count(case.threads, "thread")
}
