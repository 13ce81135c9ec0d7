//! The report of made-up results, whose numbers are known.

use std::fs;
use std::path::Path;

use serde_json::json;
use tollgate_benches::report;
use tollgate_benches::results::{Case, Results, Times};

#[test]
fn a_ratio_is_computed_in_each_round() {
    let times = [times("tollgate", &[11.0, 21.0, 10.0]), times("std mutex", &[41.0, 201.0, 20.0])];
    let [page, csv] = written("ratio", &Results { times: times.to_vec(), ..Results::default() });
    // Net of a loop of 1 ns: 10/40, 20/200, 9/19.
    let row = "| 2 threads | std mutex | 40 (29.5 to 120) | 41 (30.5 to 121) | 0.250 (0.175 to 0.362) |";
    assert_has(&page, row);
    let line = "one bucket, granted\",2 threads,std mutex,tollgate / this one,0.250,0.175,0.362,\n";
    assert_has(&csv, line);
}

#[test]
fn a_loss_is_listed_and_only_like_is_compared() {
    let all = [
        ("tollgate", 15.0),
        ("tollgate, pinned", 20.0),
        ("tollgate, coarse clock", 10.0),
        ("governor", 11.0),
        ("ratelimit", 20.0),
        ("governor, upkeep clock", 9.0),
        ("rate-net, coarse clock", 30.0),
        ("tollgate, spread", 9.0),
        ("tollgate, reading at hand", 7.0),
        ("better-bucket, reading at hand", 8.0),
        ("none: the two readings", 2.0),
    ];
    let times = all.map(|(contender, ns)| times(contender, &[ns; 3])).to_vec();
    let [page, _] = written("loss", &Results { times, ..Results::default() });
    let (_, losses) = page.split_once("## Where it loses: 2 of 7 comparisons\n").expect("two are faster");
    assert_has(losses, "granted, 2 threads | tollgate / governor | 1.400 (1.400 to 1.400) |");
    assert_has(losses, "| tollgate, coarse clock / governor, upkeep clock | 1.125 ");
    assert!(!losses.contains("pinned") && !losses.contains("none:"));
}

#[test]
fn each_scenario_has_a_table_and_all_numbers_are_in_the_csv() {
    let case = json!({ "what": "one bucket", "path": "granted", "threads": 16, "keys": 1 });
    let quantiles: Vec<_> = (0..=60).map(|n| (f64::from(n) / 60.0, n + 20)).collect();
    let results = json!({
        "laws": [{ "kind": "keyed", "contender": "tollgate", "threads": 2, "granted": 21_000, "least": 19e3, "most": 20e3 }],
        "times": [times("tollgate", &[17.0; 3])],
        "latencies": [{ "case": case, "contender": "tollgate", "quantiles": quantiles, "p999": [70.0],
            "decisions": 5_000, "notes": [["keys held", "7"]] }],
        "shares": [{ "case": case, "contender": "tollgate", "jain": [0.9], "least": [0.8] }],
        "memory": [{ "contender": "tollgate", "kind": "u64", "keys": 1_000, "counted": 48_000, "resident": 55_500,
            "allocations": 0, "held": 1_000 }],
        "rooms": [{ "load": 0.6, "slots": 1 << 20, "tables": 9, "inserts": 5_700_000, "refused": 17,
            "last_inserts": 90_000, "last_refused": 1 }],
        "transfers": [60.0, 61.0, 62.0],
        "starts": [{ "contender": "tollgate", "made": [9.0], "first": [80.0], "second": [6.0] }],
        "proxies": [{ "limiter": "none", "requests": [51e3], "p50": [20.0], "p99": [90.0] }],
        "levels": [(0.0, 10.0), (0.1, 0.0), (1.1, 10.0)],
    });
    let results: Results = serde_json::from_value(results).unwrap();
    let [page, csv] = written("all", &results);
    for (title, row) in [
        ("Do they limit?", "| keyed, 2 threads | tollgate | 21000 | 19000 | 20000 | **more than it may** |"),
        (
            "Decisions back to back: one bucket, granted",
            "| 2 threads | tollgate | 16 (16 to 16) | 17 (17 to 17) |",
        ),
        (
            "Single decisions: one bucket, granted",
            "| 16 threads | tollgate | 50 | 80 | 80 | 80 | 80 | 5000 | 7 |",
        ),
        ("Fairness", "| one bucket, granted, 16 threads | tollgate | 0.900 (0.900 to 0.900) | 0.800 "),
        ("Memory", "| u64, 1,000 keys | tollgate | 48 | 55.5 | 0 | 1000 |"),
        ("Room in a table", "| 60 % of the slots in use | tollgate, inline | 5700000 | 17 | 90000 | 1 |"),
        ("A cache line between two processors", "| 2 threads | none | 61 (60.5 to 61.5) |"),
        ("Cold start", "| a process of its own | tollgate | 9 (9 to 9) | 80 (80 to 80) | 6 (6 to 6) |"),
        ("A proxy under load", "| wrk, 32 connections | none | 51000 (51000 to 51000) | 20 "),
    ] {
        let (_, table) = page.split_once(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("no {title}"));
        assert_has(table.split("\n## ").next().unwrap_or_default(), row);
        assert_has(&csv, title.split(": ").next().unwrap_or_default());
    }
    for plot in ["throughput", "latency", "memory", "tokens"] {
        assert_has(&page, &format!("(performance/{plot}.svg)"));
        let svg = folder("all").join(format!("performance/{plot}.svg"));
        assert_has(&fs::read_to_string(svg).unwrap(), "<svg width=\"800\"");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"));
    assert!(csv.lines().all(|line| line.matches(',').count() >= 8), "each line has nine fields");
}

#[test]
fn a_scenario_without_data_is_left_out() {
    let [page, csv] = written("nothing", &Results::default());
    assert!(!page.contains("\n## ") && csv.lines().count() == 1);
    assert_eq!(fs::read_dir(folder("nothing").join("performance")).unwrap().count(), 0);
}

#[track_caller]
fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in:\n{text}");
}

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name)
}

/// Returns the page and the CSV file of a report, which is written anew.
fn written(name: &str, results: &Results) -> [String; 2] {
    let folder = folder(name);
    // A first run has none.
    let _ = fs::remove_dir_all(&folder);
    report::write(results, &folder).unwrap();
    ["md", "csv"].map(|kind| fs::read_to_string(folder.join(format!("performance.{kind}"))).unwrap())
}

/// Returns times with a loop of 1 ns in them.
fn times(contender: &str, raw: &[f64]) -> Times {
    let loops = vec![1.0; raw.len()];
    let case = Case { what: "one bucket".to_owned(), path: "granted".to_owned(), threads: 2, keys: 1 };
    Times { case, contender: contender.to_owned(), raw: raw.to_vec(), loops, notes: Vec::new() }
}
