//! The tables of `adaptive/docs/in-flight.md`, and the numbers of its plots, from the closed loop.
//!
//! ```text
//! closed_loop            prints the tables
//! closed_loop --write    puts them into the page, and writes the numbers that scripts/plot draws
//! closed_loop --check    fails if the page has other figures
//! ```
//!
//! The logarithm and the cosine are those of the system. Those of another system may differ in the
//! last bit, and so may a figure in its last digit. For `--check` two figures are the same within
//! 0.05, or within a tenth.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use tollgate_verify::acceptance::{Figure, Measured, OF_QUOTA, in_digits};
use tollgate_verify::closed_loop::{Outcome, run};
use tollgate_verify::disturbance::SCENARIOS;
use tollgate_verify::policies::{
    AIMD, CLASSES, EIGHT, EIGHT_UNGUARDED, FIXED, FIXED_QUOTA, GRADIENT2, NOTHING, OURS, Policy, Results,
    STEPS, UNGUARDED, scenario,
};

/// The limits of the plots.
const PLOTTED: [Policy; 3] = [FIXED, GRADIENT2, OURS];

struct Table {
    name: &'static str,
    text: String,
}

fn goodput(rows: &[(Policy, &Results)]) -> Table {
    let mut text = String::from("| limit |");
    for scenario in SCENARIOS {
        put(&mut text, format_args!(" {} |", scenario.name));
    }
    put(&mut text, format_args!(" worst |\n|---|{}\n", "--:|".repeat(SCENARIOS.len() + 1)));
    for (policy, results) in rows {
        put(&mut text, format_args!("| {} |", policy.name));
        for scenario in SCENARIOS {
            let goodput = results.mean(scenario.name, |outcome| outcome.goodput);
            put(&mut text, format_args!(" {goodput:.2} |"));
        }
        put(&mut text, format_args!(" {:.2} |\n", results.worst()));
    }
    Table { name: "goodput", text }
}

fn latencies(rows: &[(Policy, &Results)]) -> Table {
    let mut text = String::from("| limit |");
    let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    for name in &names {
        put(&mut text, format_args!(" {name} |"));
    }
    put(&mut text, format_args!("\n|---|{}\n", "--:|".repeat(names.len())));
    for (policy, results) in rows {
        put(&mut text, format_args!("| {} |", policy.name));
        for name in &names {
            put(&mut text, format_args!(" {} |", millis(results.mean(name, |outcome| outcome.p90))));
        }
        text.push('\n');
    }
    Table { name: "p90", text }
}

fn ours(results: &Results, classes: &Results) -> Table {
    let mut text = String::from(
        "| scenario | goodput | median, ms | p90, ms | refused | variation | back, s | critical, default, sheddable |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for scenario in SCENARIOS {
        let of = |figure: fn(&Outcome) -> f64| results.mean(scenario.name, figure);
        let served = |class: usize| classes.mean(scenario.name, |outcome| outcome.classes[class]);
        put(
            &mut text,
            format_args!(
                "| {} | {:.2} | {} | {} | {} | {:.2} | {:.1} | {:.2}, {:.2}, {:.2} |\n",
                scenario.name,
                of(|outcome| outcome.goodput),
                millis(of(|outcome| outcome.median)),
                millis(of(|outcome| outcome.p90)),
                in_digits(of(|outcome| outcome.refused)),
                of(|outcome| outcome.variation),
                of(|outcome| outcome.back),
                served(0),
                served(1),
                served(2),
            ),
        );
    }
    Table { name: "each scenario", text }
}

fn quota(measured: &Measured, fixed: &Results) -> Table {
    let mut text = String::from(
        "| scenario | goodput: 640 a second | the limit in flight | the quota that adapts | p90, ms | least rate | back, s |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for name in OF_QUOTA {
        let goodput = |results: &Results| results.mean(name, |outcome| outcome.goodput);
        let of = |figure: fn(&Outcome) -> f64| measured.quota.mean(name, figure);
        put(
            &mut text,
            format_args!(
                "| {name} | {:.2} | {:.2} | {:.2} | {} | {:.0} | {:.1} |\n",
                goodput(fixed),
                goodput(&measured.ours),
                goodput(&measured.quota),
                millis(of(|outcome| outcome.p90)),
                of(|outcome| outcome.span.0),
                of(|outcome| outcome.back),
            ),
        );
    }
    Table { name: "quota", text }
}

/// The requirements with their figures, and those that are outside of the bound, with the reason.
fn acceptance(figures: &[Figure]) -> [Table; 2] {
    let mut text = String::from("| figure | bound | measured |\n|---|---|---|\n");
    let mut outside =
        String::from("| figure | scenario | bound | measured | reason |\n|---|---|---|--:|---|\n");
    for these in figures.chunk_by(|one, other| one.requirement == other.requirement) {
        let Figure { requirement, bound, .. } = these[0];
        let each: Vec<String> = these
            .iter()
            .map(|Figure { scenario, measured, .. }| format!("{scenario} {}", in_digits(*measured)))
            .collect();
        put(&mut text, format_args!("| {requirement} | {bound} | {} |\n", each.join(", ")));
        for Figure { scenario, measured, known, .. } in these.iter().filter(|figure| figure.is_outside()) {
            let reason = known.map_or("", |(_, reason)| reason);
            let measured = in_digits(*measured);
            put(
                &mut outside,
                format_args!("| {requirement} | {scenario} | {bound} | {measured} | {reason} |\n"),
            );
        }
    }
    [Table { name: "bounds", text }, Table { name: "outside", text: outside }]
}

fn millis(seconds: f64) -> String {
    if seconds.is_finite() { format!("{:.0}", seconds * 1e3) } else { "-".to_owned() }
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a string takes all");
}

fn tables() -> Vec<Table> {
    let measured = Measured::now();
    let [nothing, steps, aimd, gradient2, eight_unguarded, fixed_quota] =
        [NOTHING, STEPS, AIMD, GRADIENT2, EIGHT_UNGUARDED, FIXED_QUOTA].map(Results::of);
    let rows = [
        (NOTHING, &nothing),
        (FIXED, &measured.fixed),
        (STEPS, &steps),
        (AIMD, &aimd),
        (GRADIENT2, &gradient2),
        (UNGUARDED, &measured.unguarded),
        (OURS, &measured.ours),
        (CLASSES, &measured.classes),
        (EIGHT, &measured.eight),
        (EIGHT_UNGUARDED, &eight_unguarded),
    ];
    let mut all = vec![goodput(&rows), latencies(&rows), ours(&measured.ours, &measured.classes)];
    all.push(quota(&measured, &fixed_quota));
    all.extend(acceptance(&measured.figures()));
    all
}

/// Returns the CSV file of the plots, which `scripts/plot` draws: each second of two scenarios, in
/// the columns of `benches/src/rows.rs`.
fn seconds() -> String {
    let mut text = String::from("section,case,contender,measure,value,quartile_low,quartile_high,unit\n");
    for (name, policy) in
        ["capacity", "latency"].iter().flat_map(|name| PLOTTED.map(|policy| (*name, policy)))
    {
        let seconds = run(scenario(name), &(policy.make)(), 0).seconds;
        for (at, second) in seconds.iter().enumerate().skip(50).take(90) {
            let slow = second.p90.map(|slow| slow * 1e3);
            for (measure, value) in
                [("limit", Some(second.limit)), ("p90", slow), ("goodput", Some(second.goodput))]
            {
                // A point stands in the middle of its second. Without an answer there is no tenth.
                let value = value.map_or("none".to_owned(), |value| format!("{value:.3}"));
                put(&mut text, format_args!("{name},{at}.5,{},{measure},{value},,,\n", policy.name));
            }
        }
    }
    text
}

/// Returns the page with other tables.
fn replaced(page: &str, tables: &[Table]) -> Result<String, String> {
    let mut page = page.to_owned();
    for Table { name, text } in tables {
        let begin = format!("<!-- closed_loop: {name} -->\n");
        let missing = || format!("adaptive/docs/in-flight.md has no {begin}");
        let from = page.find(&begin).ok_or_else(missing)? + begin.len();
        let length = page[from..].find("<!-- end -->").ok_or_else(missing)?;
        page.replace_range(from..from + length, text);
    }
    Ok(page)
}

/// Returns whether two texts differ by figures that are nearly the same, at most.
fn is_nearly(one: &str, other: &str) -> bool {
    let parts = |text: &str| -> (String, Vec<f64>) {
        let is_digit = |c: char| c.is_ascii_digit() || c == '.';
        let numbers = text.split(|c| !is_digit(c)).filter_map(|part| part.parse().ok()).collect();
        (text.chars().filter(|c| !is_digit(*c)).collect(), numbers)
    };
    let ((frame, numbers), (other_frame, others)) = (parts(one), parts(other));
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= (a.abs() * 0.1).max(0.05);
    frame == other_frame && numbers.len() == others.len() && numbers.iter().zip(&others).all(near)
}

fn main() -> io::Result<ExitCode> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../adaptive/docs");
    let path = docs.join("in-flight.md");
    let tables = tables();
    match env::args().nth(1).as_deref() {
        None => {
            for Table { name, text } in &tables {
                println!("{name}\n\n{text}");
            }
        }
        Some("--write") => {
            fs::write(&path, replaced(&fs::read_to_string(&path)?, &tables).map_err(io::Error::other)?)?;
            fs::write(docs.join("in-flight/seconds.csv"), seconds())?;
        }
        Some("--check") => {
            let page = fs::read_to_string(&path)?;
            if !is_nearly(&page, &replaced(&page, &tables).map_err(io::Error::other)?) {
                eprintln!("adaptive/docs/in-flight.md has other figures: closed_loop --write");
                return Ok(ExitCode::FAILURE);
            }
        }
        Some(other) => {
            eprintln!("'{other}' is no option: --write, --check");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
