//! The plots of the page.

use std::io;

use tollgate_benches::report::plots::{Axis, Line, Panel, draw};

use crate::rows::Rows;
use crate::scenarios::outage::{END, FROZEN, OVER_TIME, POLICIES, THAWED};
use crate::simulation;

/// Returns the names and the images of all plots that have data.
pub(super) fn all(rows: &Rows) -> io::Result<Vec<(&'static str, String)>> {
    let plots = [
        ("outage", outage(rows)),
        ("demand", demand(rows)),
        ("processes", processes(rows)),
        ("overshoot", overshoot(rows)),
        ("horizon", horizon(rows)),
    ];
    let plots = plots.into_iter().filter(|(_, panels)| !panels.is_empty());
    plots.map(|(name, panels)| Ok((name, draw(&panels).map_err(io::Error::other)?))).collect()
}

fn outage(rows: &Rows) -> Vec<Panel> {
    let lines = |measure: &str, scale: f64| {
        let line = |(policy, _): (&str, _)| {
            let case = format!("{policy}, leased");
            let points = rows
                .0
                .iter()
                .filter(|row| row.section == OVER_TIME && row.case == case && row.measure == measure);
            let points = points.filter_map(|row| {
                Some((row.contender.parse().ok()?, row.value.clone().ok()?.median * scale))
            });
            Line { points: points.collect(), marks: Some(Vec::new()), ..Line::new(policy) }
        };
        POLICIES.map(line).to_vec()
    };
    let x = || Axis::linear("seconds", [0.0, END].into_iter());
    let frozen = |most: f64, least: f64| {
        let points = vec![(FROZEN, least), (FROZEN, most), (THAWED, most), (THAWED, least)];
        Line { points, marks: Some(Vec::new()), ..Line::new("the server is frozen, and goes on") }
    };
    let panel = |title: &str, y: Axis, mut lines: Vec<Line>, [least, most]: [f64; 2]| {
        lines.push(frozen(most, least));
        Panel::new(title, x(), y, lines)
    };
    let ends = [200.0, 200e6];
    let times = lines("p99", 1e3);
    let has_data = times.iter().any(|line| !line.points.is_empty());
    let y = Axis::log("p99 of a decision", ends.into_iter()).in_time();
    let first = panel("leased, by policy", y, times, ends);
    let y = Axis::linear("granted in a second", [0.0, 2_200.0].into_iter());
    let second = panel("leased, by policy", y, lines("granted", 1.0), [0.0, 2_200.0]);
    if has_data { first.into_iter().chain(second).collect() } else { Vec::new() }
}

/// Returns a line of a mode: the name of a case as a number, and a measure.
fn line(
    rows: &Rows,
    name: &str,
    [section, mode, measure]: [&str; 3],
    x: impl Fn(&str) -> Option<f64>,
) -> Line {
    // A grant that a request of the last moment did not wait for may make a loss less than none.
    let value = |case: &str| Some((x(case)?, rows.find([section, case, mode, measure])?.median.max(0.0)));
    Line { points: rows.cases(section).into_iter().filter_map(value).collect(), ..Line::new(name) }
}

fn of_lines(title: &str, x: &'static str, y: &'static str, is_log: bool, lines: Vec<Line>) -> Option<Panel> {
    let points: Vec<(f64, f64)> = lines.iter().flat_map(|line| line.points.clone()).collect();
    let (xs, ys) = (points.iter().map(|point| point.0), points.iter().map(|point| point.1));
    let y = if is_log { Axis::log(y, ys) } else { Axis::linear(y, ys) };
    Panel::new(title, Axis::log(x, xs), y, lines)
}

fn demand(rows: &Rows) -> Vec<Panel> {
    let lines = |measure: &str| {
        ["leased", "exact"]
            .map(|mode| line(rows, mode, [simulation::DEMAND, mode, measure], |case| case.parse().ok()))
            .to_vec()
    };
    let x = "demand / rate";
    let trips = of_lines("4 processes, 1,000/s", x, "round trips a second", true, lines("round trips"));
    let under = of_lines("4 processes, 1,000/s", x, "% not granted", false, lines("under"));
    trips.into_iter().chain(under).collect()
}

fn processes(rows: &Rows) -> Vec<Panel> {
    let lines = |measure: &str| {
        let names = ["leased", "exact", "leased, 10,000/s", "exact, 10,000/s"];
        let line = |name: &str| {
            let (mode, rate) =
                if name.ends_with("10,000/s") { (&name[..name.len() - 10], "10000") } else { (name, "1000") };
            let of = |case: &str| case.split_once(" on ").filter(|(_, of)| *of == rate)?.0.parse().ok();
            line(rows, name, [simulation::PROCESSES, mode, measure], of)
        };
        names.map(line).to_vec()
    };
    let x = "processes";
    let trips = of_lines("twice the rate", x, "round trips a second", true, lines("round trips"));
    let under = of_lines("twice the rate", x, "% not granted", false, lines("under"));
    trips.into_iter().chain(under).collect()
}

fn overshoot(rows: &Rows) -> Vec<Panel> {
    let lines = |modes: &[&str], measure: &str| {
        let section = simulation::OVERSHOOT;
        let of = |mode: &&str| line(rows, mode, [section, mode, measure], |case| case.parse().ok());
        modes.iter().map(of).collect::<Vec<_>>()
    };
    let (title, x) = ("0.6 s of load, 1.2 s of none", "processes");
    let over = lines(&["leased", "exact"], "over");
    let over = of_lines(title, x, "tokens above burst + rate x time", false, over);
    let trips = of_lines(title, x, "round trips a second", true, lines(&["leased", "exact"], "round trips"));
    over.map(|panel| panel.with_rule(100.0, "rate x horizon")).into_iter().chain(trips).collect()
}

fn horizon(rows: &Rows) -> Vec<Panel> {
    let lines = |measure: &str| {
        vec![line(rows, "leased", [simulation::HORIZON, "leased", measure], |case| case.parse().ok())]
    };
    let x = "horizon, ms";
    let trips = of_lines("4 x 500/s on 1,000/s", x, "round trips a second", true, lines("round trips"));
    let under = of_lines("4 x 500/s on 1,000/s", x, "% not granted", false, lines("under"));
    trips.into_iter().chain(under).collect()
}
