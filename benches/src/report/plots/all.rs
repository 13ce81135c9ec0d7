//! The plots of a run.

use std::io;

use super::axis::Axis;
use super::panel::{Line, Panel, draw};
use crate::report::csv::quantile;
use crate::report::numbers::{Spread, grouped};
use crate::results::{Case, Granted, Latencies, Results};

/// Returns the names and the images of all plots that have data.
pub(in crate::report) fn all(results: &Results) -> io::Result<Vec<(&'static str, String)>> {
    let plots = [
        ("throughput", throughput(results)),
        ("latency", latency(results)),
        ("keys", keys(results)),
        ("memory", memory(results)),
        ("tokens", tokens(results)),
        ("clients", clients(&results.clients, &["takes all it gets", "bursts at edges"])),
        ("clients-poisson", clients(&results.clients, &["Poisson, 50 a minute", "Poisson, 90 a minute"])),
    ];
    let plots = plots.into_iter().filter(|(_, panels)| !panels.is_empty());
    plots.map(|(name, panels)| Ok((name, draw(&panels).map_err(io::Error::other)?))).collect()
}

fn throughput(results: &Results) -> Vec<Panel> {
    let total = |case: &Case, net: f64| (case.threads as f64, case.threads as f64 / net * 1_000.0);
    let panel = |path: &str| {
        let lines = times(results, total, |case| case.what == "one bucket" && case.path == path);
        let x = Axis::log_at("threads on one bucket", &[1.0, 2.0, 4.0, 8.0, 16.0]);
        let y = Axis::log("million decisions/s, all threads", values(&lines));
        Panel::new(path, x, y, lines)
    };
    ["granted", "refused"].into_iter().filter_map(panel).collect()
}

fn keys(results: &Results) -> Vec<Panel> {
    let lines = times(
        results,
        |case, net| (case.keys as f64, net),
        |case| case.what == "keyed, uniform" && case.path == "granted" && case.threads == 1,
    );
    let x = Axis::log("keys", numbers(&lines));
    let y = Axis::log("ns a decision, net", values(&lines));
    Panel::new("granted, 1 thread, uniform keys", x, y, lines).into_iter().collect()
}

/// Returns the medians of net times of the wanted cases, a line for each contender.
fn times(
    results: &Results,
    point: impl Fn(&Case, f64) -> (f64, f64),
    is_wanted: impl Fn(&Case) -> bool,
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for of in results.times.iter().filter(|of| is_wanted(&of.case)) {
        let Some(net) = Spread::of(&of.net()).map(|net| net.median).filter(|&net| net > 0.0) else {
            continue;
        };
        add_point(&mut lines, &of.contender, point(&of.case, net));
    }
    lines
}

fn add_point(lines: &mut Vec<Line>, contender: &str, point: (f64, f64)) {
    let place = lines.iter().position(|line| line.contender == contender).unwrap_or(lines.len());
    if place == lines.len() {
        lines.push(Line::new(contender));
    }
    let line = &mut lines[place];
    line.points.push(point);
    line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
}

/// The rarest part of decisions in a plot: fewer make no line.
const RAREST: f64 = 1e-5;

fn latency(results: &Results) -> Vec<Panel> {
    let is_wanted = |case: &Case| case.what == "one bucket" && case.path == "granted" && case.threads == 16;
    let lines: Vec<Line> = results.latencies.iter().filter(|of| is_wanted(&of.case)).map(tail).collect();
    let x = Axis::log("a decision took longer than", numbers(&lines)).in_time();
    let y = Axis::log("part of decisions", [RAREST, 1.0].into_iter()).in_powers();
    let panel = Panel::new("one bucket, granted, 16 threads", x, y, lines);
    panel.map(|panel| panel.with_rule(1e-3, "p99.9")).into_iter().collect()
}

fn tail(of: &Latencies) -> Line {
    let mut line = Line::new(&of.contender);
    let slower = of.quantiles.iter().map(|&(part, ns)| (ns.max(1.0), 1.0 - part));
    line.points = slower.filter(|&(_, part)| part >= RAREST * 0.999).collect();
    line.marks = Some(quantile(of, 0.999).map(|ns| (ns.max(1.0), 1e-3)).into_iter().collect());
    line
}

fn memory(results: &Results) -> Vec<Panel> {
    let mut lines = Vec::new();
    for of in results.memory.iter().filter(|of| of.keys > 0 && of.resident > 0 && of.kind == "u64") {
        add_point(&mut lines, &of.contender, (of.keys as f64, of.resident as f64 / of.keys as f64));
    }
    let x = Axis::log("u64 keys", numbers(&lines));
    let y = Axis::log("bytes a key", values(&lines));
    Panel::new("resident memory", x, y, lines).into_iter().collect()
}

fn tokens(results: &Results) -> Vec<Panel> {
    let mut line = Line::new("tollgate");
    line.points = results.levels.clone();
    line.marks = Some(Vec::new());
    let lines = vec![line];
    let x = Axis::linear("seconds on a mock clock", numbers(&lines));
    let y = Axis::linear("tokens", values(&lines));
    let most = values(&lines).fold(0.0, f64::max);
    Panel::new(&format!("one bucket of {}", grouped(most as u64)), x, y, lines).into_iter().collect()
}

/// Returns a panel for each client, with a line for each algorithm.
fn clients(results: &[Granted], names: &[&str]) -> Vec<Panel> {
    let panel = |name: &&str| {
        let of = results.iter().filter(|of| of.client == *name);
        let line = |of: &Granted| {
            let mut line = Line::new(&of.algorithm);
            line.points = of.over_time.clone();
            line.marks = Some(Vec::new());
            line
        };
        let lines: Vec<Line> = of.map(line).collect();
        let x = Axis::linear("seconds on a mock clock", numbers(&lines));
        let y = Axis::linear("granted in the last minute", [0.0, 120.0].into_iter());
        Panel::new(name, x, y, lines)
    };
    names.iter().filter_map(panel).collect()
}

fn numbers(lines: &[Line]) -> impl Iterator<Item = f64> {
    lines.iter().flat_map(|line| &line.points).map(|point| point.0)
}

fn values(lines: &[Line]) -> impl Iterator<Item = f64> {
    lines.iter().flat_map(|line| &line.points).map(|point| point.1)
}
