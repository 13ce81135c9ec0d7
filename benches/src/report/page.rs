//! The page: the runs beside each other, read from their CSV files.

use std::path::Path;
use std::{fs, io, iter};

use super::csv::{NET, THIS_ONE, fields};
use super::numbers::{Spread, count, short};
use crate::contenders::{FLOOR, OURS};

/// The sections whose cases are compared: a name, the measure, and the start of a case's name.
const COMPARED: &[(&str, &str, &str)] = &[
    ("Decisions back to back", NET, ""),
    ("Single decisions", "p99.9", "p99.9"),
    ("Fairness", "Jain's index", FAIRNESS),
    ("Memory", "resident", "resident bytes a key"),
    ("Cold start", "made and first decision, ns", "cold start"),
];
const FAIRNESS: &str = "fairness (Jain's index)";

/// The forms whose decisions have a like among the peers. A pinned handle and a batch have none.
const DECIDING: &[&str] =
    &[OURS, "tollgate, inline", "tollgate, spread", "tollgate, coarse clock", "tollgate, reading at hand"];

/// A run, as its CSV file has it.
struct Run {
    /// Its letter on the page.
    name: char,
    file: String,
    /// Names and values of the machine.
    machine: Vec<(String, String)>,
    cells: Vec<Cell>,
}

/// A compared measure of a contender, or a ratio of a form to it.
struct Cell {
    scenario: String,
    /// The scenario and the size.
    case: String,
    contender: String,
    /// Empty, or `tollgate / this one`.
    ratio: String,
    spread: Spread,
}

/// A case of a form that has peers, and the ratio to the peer furthest ahead of those it lost to.
struct Match<'a> {
    of: &'a Cell,
    lost: Option<(Spread, &'a str)>,
}

/// Writes `performance.md` from all CSV files in `performance`, the newest first. Its words and the
/// cases of its tables are in `page.md`.
///
/// # Errors
///
/// If a file cannot be read or written.
pub fn page(folder: &Path) -> io::Result<()> {
    let data = folder.join("performance");
    let names = fs::read_dir(&data)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut files = names.collect::<io::Result<Vec<_>>>()?;
    files.retain(|file| file.ends_with(".csv"));
    files.sort_by(|one, other| other.cmp(one));
    let read = |(file, name)| Ok(Run::read(name, fs::read_to_string(data.join(&file))?, file));
    let runs = files.into_iter().zip('A'..).map(read).collect::<io::Result<Vec<_>>>()?;
    let (mut others, mut page) = (Vec::new(), Vec::new());
    for line in include_str!("page.md").lines() {
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
        match (line, cells.as_slice()) {
            ("{runs}", _) => page.extend(runs.iter().map(Run::about)),
            ("{losses}", _) => page.extend(losses(&runs)),
            (_, ["case", names @ ..]) => {
                others = names.to_vec();
                page.extend(head(&runs, |run| {
                    let ratios = names.iter().map(move |other| format!("{run} / {other}"));
                    iter::once(run.to_string()).chain(ratios).collect()
                }));
            }
            (_, [case]) if line.starts_with('|') => page.extend(ratios(&runs, case, &others)),
            _ => page.push(line.to_owned()),
        }
    }
    fs::write(folder.join("performance.md"), page.join("\n") + "\n")
}

/// Returns the first lines of a table.
fn head(runs: &[Run], columns: impl Fn(char) -> Vec<String>) -> [String; 2] {
    let columns: Vec<_> = runs.iter().flat_map(|run| columns(run.name)).collect();
    [row("case", &columns), format!("|---|{}", "--:|".repeat(columns.len()))]
}

fn row(name: &str, values: &[String]) -> String {
    format!("| {name} | {} |", values.join(" | "))
}

/// Returns the values of a case and their ratios to the others, or nothing if no run has it.
fn ratios(runs: &[Run], name: &str, others: &[&str]) -> Option<String> {
    let (form, case) = match name.split_once(": ") {
        Some((way, case)) => (format!("{OURS}, {way}"), case),
        None => (OURS.to_owned(), name),
    };
    let values = |run: &Run| -> Vec<_> {
        let value = run.find(case, &form, "").map(|cell| cell.spread);
        iter::once(value).chain(others.iter().map(|other| run.ratio(case, &form, other))).collect()
    };
    let values: Vec<Option<Spread>> = runs.iter().flat_map(values).collect();
    let written = |of: &Option<Spread>| of.map_or(String::new(), |of| short(of.median));
    values.iter().any(Option::is_some).then(|| row(name, &values.iter().map(written).collect::<Vec<_>>()))
}

/// Returns a row for each scenario of the default form that is lost somewhere, and one for each
/// form.
fn losses(runs: &[Run]) -> Vec<String> {
    let values = |form: &str, scenario: &str| -> Vec<String> {
        let values = |run: &Run| {
            let mut matches = run.matches(form);
            matches.retain(|one| one.of.scenario.starts_with(scenario));
            let mut lost: Vec<_> = matches.iter().filter_map(|one| Some((one.of, one.lost?))).collect();
            lost.sort_by(|(_, one), (_, other)| other.0.median.total_cmp(&one.0.median));
            let clear = lost.iter().filter(|(_, (ratio, _))| !ratio.is_undecided()).count();
            let most = lost.first().map(|(of, (ratio, peer))| {
                let size = of.case.trim_start_matches(scenario).trim_start_matches(", ");
                format!("{} {peer}, {size}", short(ratio.median))
            });
            let counts = format!("{} ({clear}) of {}", lost.len(), matches.len());
            [if matches.is_empty() { String::new() } else { counts }, most.unwrap_or_default()]
        };
        runs.iter().flat_map(values).collect()
    };
    let mut scenarios: Vec<&str> = Vec::new();
    for one in runs.iter().flat_map(|run| run.matches(OURS)).filter(|one| one.lost.is_some()) {
        if !scenarios.contains(&one.of.scenario.as_str()) {
            scenarios.push(&one.of.scenario);
        }
    }
    let of_scenarios = scenarios.iter().map(|name| row(name, &values(OURS, name)));
    let of_forms = DECIDING.iter().map(|form| row(&format!("all of {form}"), &values(form, "")));
    let head = head(runs, |run| vec![format!("{run}: lost"), format!("{run}: most")]);
    head.into_iter().chain(of_scenarios).chain(of_forms).collect()
}

impl Run {
    fn read(name: char, csv: String, file: String) -> Run {
        let mut run = Run { name, file, machine: Vec::new(), cells: Vec::new() };
        for line in csv.lines().map(fields) {
            let [section, table, size, contender, measure, value, low, high, ..] = line.as_slice() else {
                continue;
            };
            if section == "Machine" {
                run.machine.push((measure.clone(), value.clone()));
            }
            let Some((_, main, name)) = COMPARED.iter().find(|(name, ..)| name == section) else { continue };
            let is_ratio = measure.ends_with(THIS_ONE);
            let Some(median) = value.parse().ok().filter(|_| is_ratio || measure == main) else { continue };
            let [low, high] = [low, high].map(|end| end.parse().unwrap_or(median));
            let join = |parts: &[&str]| {
                parts.iter().copied().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
            };
            run.cells.push(Cell {
                scenario: join(&[name, table]),
                case: join(&[name, table, size]),
                contender: contender.clone(),
                ratio: if is_ratio { measure.clone() } else { String::new() },
                spread: Spread { low, median, high },
            });
        }
        run
    }

    /// Returns the machine and the file, in three lines of a list.
    fn about(&self) -> String {
        let value = |name| self.machine.iter().find(|(of, _)| of == name).map_or("", |(_, value)| value);
        let code = match value("commit") {
            "" => "code of an unknown commit".to_owned(),
            commit => format!("code of {commit}"),
        };
        format!(
            "* **{}**: {}, {}, {},\n  {}, {}, {code}, {} run:\n  [all numbers](performance/{})",
            self.name,
            value("processor"),
            count(value("processors").parse().unwrap_or(0), "processor"),
            value("kernel"),
            value("rustc"),
            value("date"),
            value("effort"),
            self.file
        )
    }

    fn find(&self, case: &str, contender: &str, ratio: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.case == case && cell.contender == contender && cell.ratio == ratio)
    }

    /// Returns the ratio that was taken in each round, or that of the medians with the widest
    /// quartiles.
    fn ratio(&self, case: &str, ours: &str, theirs: &str) -> Option<Spread> {
        if let Some(cell) = self.find(case, theirs, &format!("{ours}{THIS_ONE}")) {
            return Some(cell.spread);
        }
        let (mut ours, mut theirs) = (self.find(case, ours, "")?, self.find(case, theirs, "")?);
        // More is better.
        if ours.scenario == FAIRNESS {
            (ours, theirs) = (theirs, ours);
        }
        let (ours, theirs) = (ours.spread, theirs.spread);
        Some(Spread {
            low: ours.low / theirs.high,
            median: ours.median / theirs.median,
            high: ours.high / theirs.low,
        })
    }

    /// Returns the cases of a form that a peer has too. Fairness is lost if the quartiles are above
    /// 1, because rounds differ more there than contenders do.
    fn matches(&self, form: &str) -> Vec<Match<'_>> {
        let mut matches = Vec::new();
        for of in self.cells.iter().filter(|cell| cell.contender == form && cell.ratio.is_empty()) {
            let is_peer = |cell: &&Cell| {
                cell.case == of.case && cell.ratio.is_empty() && are_alike(form, &cell.contender)
            };
            let peers = self.cells.iter().filter(is_peer);
            let ratios: Vec<_> =
                peers.filter_map(|peer| Some((self.ratio(&of.case, form, &peer.contender)?, peer))).collect();
            let is_lost =
                |ratio: &Spread| ratio.median >= 1.0005 && (of.scenario != FAIRNESS || !ratio.is_undecided());
            let lost = ratios.iter().filter(|(ratio, _)| is_lost(ratio));
            let lost = lost.max_by(|one, other| one.0.median.total_cmp(&other.0.median));
            if !ratios.is_empty() {
                matches.push(Match { of, lost: lost.map(|(ratio, peer)| (*ratio, peer.contender.as_str())) });
            }
        }
        matches
    }
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
