//! The tables of a run, one for each scenario, as Markdown and as CSV.

use super::OURS;
use super::losses::{DECIDING, STORES};
use super::numbers::{Spread, count, short};
use crate::results::{Case, Latencies, Law, Results, Times};

/// The measurements of one scenario.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) section: &'static str,
    pub(super) title: String,
    pub(super) rows: Vec<Row>,
}

/// The measurements of one contender in one case.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) case: String,
    pub(super) contender: String,
    cells: Vec<Cell>,
    /// Rounds that are compared with those of other contenders. Less is better.
    pub(super) rounds: Vec<f64>,
    /// Forms of tollgate that are compared.
    pub(super) forms: &'static [&'static str],
}

/// A measurement as text, with its quartiles if it has rounds.
#[derive(Debug)]
struct Cell {
    measure: String,
    unit: &'static str,
    value: String,
    quartiles: Option<(String, String)>,
}

impl Row {
    pub(super) fn new(case: impl Into<String>, contender: impl Into<String>) -> Row {
        Row { case: case.into(), contender: contender.into(), cells: vec![], rounds: vec![], forms: &[] }
    }

    fn text(mut self, measure: &str, unit: &'static str, value: impl Into<String>) -> Row {
        self.cells.push(Cell { measure: measure.to_owned(), unit, value: value.into(), quartiles: None });
        self
    }

    fn compared(self, rounds: Vec<f64>, forms: &'static [&'static str]) -> Row {
        Row { rounds, forms, ..self }
    }

    fn number(self, measure: &str, unit: &'static str, value: f64) -> Row {
        self.text(measure, unit, short(value))
    }

    fn rounds(self, measure: &str, unit: &'static str, values: &[f64]) -> Row {
        self.spread(measure, unit, Spread::of(values))
    }

    /// Adds a measurement of rounds, or nothing if there are none.
    pub(super) fn spread(mut self, measure: &str, unit: &'static str, spread: Option<Spread>) -> Row {
        self.cells.extend(spread.map(|spread| Cell {
            measure: measure.to_owned(),
            unit,
            value: short(spread.median),
            quartiles: Some((short(spread.low), short(spread.high))),
        }));
        self
    }

    fn notes(self, notes: &[(String, String)]) -> Row {
        notes.iter().fold(self, |row, (name, value)| row.text(name, "", value))
    }
}

impl Table {
    /// Returns a heading and the table, a column for each measure.
    pub(super) fn markdown(&self) -> String {
        let mut measures: Vec<&str> = Vec::new();
        for cell in self.rows.iter().flat_map(|row| &row.cells) {
            if !measures.contains(&cell.measure.as_str()) {
                measures.push(&cell.measure);
            }
        }
        let (head, rule) = (measures.join(" | "), "--:|".repeat(measures.len()));
        let title = if self.title.is_empty() { String::new() } else { format!(": {}", self.title) };
        let mut text =
            format!("\n## {}{title}\n\n| case | contender | {head} |\n|---|---|{rule}\n", self.section);
        for row in &self.rows {
            text += &format!("| {} | {} |", row.case, row.contender);
            for measure in &measures {
                text += &match row.cells.iter().find(|cell| cell.measure == *measure) {
                    Some(Cell { value, quartiles: Some((low, high)), .. }) => {
                        format!(" {value} ({low} to {high}) |")
                    }
                    Some(cell) => format!(" {} |", cell.value),
                    None => " - |".to_owned(),
                };
            }
            text.push('\n');
        }
        text
    }
}

/// Returns a line for each measurement of each table.
pub(super) fn csv(tables: &[Table]) -> String {
    let head = "section,table,case,contender,measure,value,quartile_low,quartile_high,unit\n";
    let mut text = head.to_owned();
    for table in tables {
        for (row, cell) in table.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell))) {
            let (low, high) = cell.quartiles.clone().unwrap_or_default();
            let of = [table.section, &table.title, &row.case, &row.contender, &cell.measure];
            let fields = of.into_iter().chain([cell.value.as_str(), &low, &high, cell.unit]);
            text += &(fields.map(field).collect::<Vec<_>>().join(",") + "\n");
        }
    }
    text
}

fn field(text: &str) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// Adds a row to the table of that section and title, which is made if there is none.
fn add(tables: &mut Vec<Table>, section: &'static str, title: String, row: Row) {
    match tables.iter_mut().find(|table| table.section == section && table.title == title) {
        Some(table) => table.rows.push(row),
        None => tables.push(Table { section, title, rows: vec![row] }),
    }
}

/// Returns the tables of all scenarios that have data.
pub(super) fn all(results: &Results) -> Vec<Table> {
    let mut tables = Vec::new();
    for law in &results.laws {
        let case = format!("{}, {}", law.kind, count(law.threads, "thread"));
        let row = Row::new(case, &law.contender)
            .number("granted", "tokens", law.granted as f64)
            .number("owed", "tokens", law.least.round())
            .number("allowed", "tokens", law.most.round())
            .text("the law", "", verdict(law));
        add(&mut tables, "Do they limit?", String::new(), row);
    }
    for of in &results.times {
        let is_ours = |ours: &&Times| ours.case == of.case && ours.contender == OURS;
        let ours = results.times.iter().find(is_ours).filter(|_| of.contender != OURS);
        let net = of.net();
        let row = Row::new(size(&of.case), &of.contender)
            .rounds("ns a decision, net", "ns", &net)
            .rounds("raw", "ns", &of.raw)
            .spread("tollgate / this one", "", ours.and_then(|ours| Spread::of_ratios(&ours.net(), &net)))
            .notes(&of.notes)
            .compared(net, DECIDING);
        add(&mut tables, "Decisions back to back", kind(&of.case), row);
    }
    for of in &results.latencies {
        let is_ours = |ours: &&Latencies| ours.case == of.case && ours.contender == OURS;
        let ours = results.latencies.iter().find(is_ours).filter(|_| of.contender != OURS);
        let mut row = Row::new(size(&of.case), &of.contender);
        for (name, part) in
            [("p50, ns", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)]
        {
            row = row.number(name, "ns", quantile(of, part).unwrap_or(f64::NAN));
        }
        let ratio = ours.and_then(|ours| Spread::of_ratios(&ours.p999, &of.p999));
        let row = row.spread("p99.9 of tollgate / this one", "", ratio);
        let row = row
            .number("decisions", "", of.decisions as f64)
            .notes(&of.notes)
            .compared(of.p999.clone(), DECIDING);
        add(&mut tables, "Single decisions", kind(&of.case), row);
    }
    for of in &results.shares {
        let row = Row::new(described(&of.case), &of.contender)
            .rounds("Jain's index", "", &of.jain)
            .rounds("the least part of a fair share", "", &of.least)
            .compared(of.jain.iter().map(|jain| 1.0 / jain).collect(), DECIDING);
        add(&mut tables, "Fairness", String::new(), row);
    }
    for of in results.memory.iter().filter(|of| of.keys > 0) {
        let a_key = |bytes: u64| bytes as f64 / of.keys as f64;
        let row = Row::new(format!("{}, {}", of.kind, count(of.keys, "key")), &of.contender)
            .number("bytes a key, counted", "bytes", a_key(of.counted))
            .number("resident", "bytes", a_key(of.resident))
            .text("allocations a decision", "", (of.allocations as f64 / 1e6).to_string())
            .number("keys held", "", of.held as f64)
            .compared(vec![of.resident as f64], STORES);
        add(&mut tables, "Memory", String::new(), row);
    }
    for of in &results.rooms {
        let row = Row::new(format!("{:.0} % of the slots in use", of.load * 100.0), "tollgate, inline")
            .number("newcomers until then", "", of.inserts as f64)
            .number("refused", "", of.refused as f64)
            .number("newcomers in the last hundredth", "", of.last_inserts as f64)
            .number("refused in the last hundredth", "", of.last_refused as f64);
        add(&mut tables, "Room in a table", String::new(), row);
    }
    if !results.transfers.is_empty() {
        let row = Row::new("2 threads", "none").rounds("ns a transfer", "ns", &results.transfers);
        add(&mut tables, "A cache line between two processors", String::new(), row);
    }
    for of in &results.starts {
        let row = Row::new("a process of its own", &of.contender)
            .rounds("made, ns", "ns", &of.made)
            .rounds("first decision, ns", "ns", &of.first)
            .rounds("second decision, ns", "ns", &of.second)
            .compared(of.made.iter().zip(&of.first).map(|(made, first)| made + first).collect(), &[OURS]);
        add(&mut tables, "Cold start", String::new(), row);
    }
    let none = results.proxies.iter().find(|of| of.limiter == "none");
    for of in &results.proxies {
        let none = none.filter(|none| none.limiter != of.limiter);
        let ratio = none.and_then(|none| Spread::of_ratios(&of.requests, &none.requests));
        let row = Row::new("wrk, 32 connections", &of.limiter)
            .rounds("requests/s", "1/s", &of.requests)
            .rounds("p50, µs", "µs", &of.p50)
            .rounds("p99, µs", "µs", &of.p99)
            .spread("requests/s of this one / of none", "", ratio);
        add(&mut tables, "A proxy under load", String::new(), row);
    }
    for (name, version) in &results.about.versions {
        add(&mut tables, "Versions", String::new(), Row::new("", name).text("version", "", version));
    }
    tables
}

fn verdict(law: &Law) -> &'static str {
    match (law.is_kept(), law.is_prompt()) {
        (true, true) => "kept",
        (true, false) => "**less than it owes**",
        (false, _) => "**more than it may**",
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
    let keys =
        if case.what == "one bucket" { String::new() } else { format!("{}, ", count(case.keys, "key")) };
    keys + &count(case.threads, "thread")
}

/// Returns the scenario and the size of a case.
fn described(case: &Case) -> String {
    format!("{}, {}", kind(case), size(case))
}
