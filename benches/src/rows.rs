//! The numbers of a run as CSV, a line for each.

use std::collections::HashSet;
use std::path::Path;
use std::{fs, io};

use crate::numbers::{Spread, short};

const HEAD: &str = "section,case,contender,measure,value,quartile_low,quartile_high,unit";

/// A number, its place on the page, and its quartiles over the rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Part of the run: `Redis`, `Outage`.
    pub section: String,
    /// Load, or the value on the axis of a curve.
    pub case: String,
    /// Contender, or mode of ours.
    pub contender: String,
    /// Name of the number.
    pub measure: String,
    /// Number, or a text: the name of the processor.
    pub value: Result<Spread, String>,
    /// Unit of the number.
    pub unit: String,
}

/// All numbers of a run.
#[derive(Clone, Debug, Default)]
pub struct Rows(pub Vec<Row>);

impl Rows {
    /// Adds a number of rounds. Nothing is added without rounds.
    pub fn rounds(&mut self, place: [&str; 4], unit: &str, values: &[f64]) {
        self.spread(place, unit, Spread::of(values));
    }

    /// Adds one number.
    pub fn number(&mut self, place: [&str; 4], unit: &str, value: f64) {
        self.rounds(place, unit, &[value]);
    }

    /// Adds a text.
    pub fn text(&mut self, place: [&str; 4], value: &str) {
        self.add(place, "", Err(value.to_owned()));
    }

    /// Adds a measurement of rounds, or nothing if there are none.
    pub fn spread(&mut self, place: [&str; 4], unit: &str, spread: Option<Spread>) {
        spread.into_iter().for_each(|spread| self.add(place, unit, Ok(spread)));
    }

    fn add(&mut self, place: [&str; 4], unit: &str, value: Result<Spread, String>) {
        let [section, case, contender, measure] = place.map(str::to_owned);
        self.0.push(Row { section, case, contender, measure, value, unit: unit.to_owned() });
    }

    /// Returns the number at a place.
    #[must_use]
    pub fn find(&self, place: [&str; 4]) -> Option<Spread> {
        let is_there =
            |row: &&Row| [&row.section, &row.case, &row.contender, &row.measure] == place.map(|name| name);
        self.0.iter().find(is_there)?.value.clone().ok()
    }

    /// Returns the text of a measure of a section.
    #[must_use]
    pub fn text_of(&self, section: &str, measure: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|row| row.section == section && row.measure == measure);
        found.find_map(|row| row.value.as_ref().err().map(String::as_str))
    }

    /// Puts the numbers of a later run in place of those of the same sections and cases.
    pub fn replace(&mut self, later: Rows) {
        let places: HashSet<_> = later.0.iter().map(|row| (&row.section, &row.case)).collect();
        self.0.retain(|row| !places.contains(&(&row.section, &row.case)));
        self.0.extend(later.0);
    }

    /// Writes all numbers into a file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let lines = self.0.iter().map(Row::line);
        fs::write(path, [HEAD.to_owned()].into_iter().chain(lines).collect::<Vec<_>>().join("\n") + "\n")
    }

    /// Reads the numbers of a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read(path: &Path) -> io::Result<Rows> {
        Ok(Rows(fs::read_to_string(path)?.lines().skip(1).filter_map(Row::read).collect()))
    }
}

/// Returns a field. None has a quotation mark in it.
fn field(text: &str) -> String {
    if text.contains(',') { format!("\"{text}\"") } else { text.to_owned() }
}

/// Returns the fields of a line.
fn fields(line: &str) -> Vec<String> {
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

impl Row {
    fn line(&self) -> String {
        let [value, low, high] = match &self.value {
            Ok(Spread { low, median, high }) if low == high => [short(*median), String::new(), String::new()],
            Ok(Spread { low, median, high }) => [median, low, high].map(|of| short(*of)),
            Err(text) => [text.clone(), String::new(), String::new()],
        };
        let names = [&self.section, &self.case, &self.contender, &self.measure];
        let all = names.into_iter().chain([&value, &low, &high, &self.unit]);
        all.map(|text| field(text)).collect::<Vec<_>>().join(",")
    }

    fn read(line: &str) -> Option<Row> {
        let fields: [String; 8] = fields(line).try_into().ok()?;
        let [section, case, contender, measure, value, low, high, unit] = fields;
        let value = match value.parse() {
            Ok(median) => Ok(Spread {
                median,
                low: low.parse().unwrap_or(median),
                high: high.parse().unwrap_or(median),
            }),
            Err(_) => Err(value),
        };
        Some(Row { section, case, contender, measure, value, unit })
    }
}
