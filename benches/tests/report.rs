//! The report of made-up results, whose numbers are known.

use std::fs;
use std::path::Path;

use serde_json::json;
use tollgate_benches::report;
use tollgate_benches::results::{Case, Results, Times};

#[test]
fn a_ratio_is_computed_in_each_round() {
    let times = [times("tollgate", &[11.0, 21.0, 10.0]), times("std mutex", &[41.0, 201.0, 20.0])];
    let results = Results { times: times.to_vec(), ..Results::default() };
    let [_, csv] = written("ratio", &[("2026-11-22", &results)]);
    // Net of a loop of 1 ns: 10/40, 20/200, 9/19.
    assert_has(&csv, "one bucket, granted\",2 threads,std mutex,\"ns a decision, net\",40,29.5,120,ns\n");
    assert_has(&csv, "one bucket, granted\",2 threads,std mutex,tollgate / this one,0.250,0.175,0.362,\n");
}

#[test]
fn a_page_has_all_runs_and_only_like_is_compared() {
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
    let mut results =
        Results { times: all.map(|(name, ns)| times(name, &[ns; 3])).to_vec(), ..Results::default() };
    let before = results.clone();
    results.times[0].raw = vec![9.0; 3];
    results.times.push(times("floor", &[5.0; 3]));
    let [page, _] = written("page", &[("2026-11-22", &before), ("2026-11-23", &results)]);
    for line in [
        "  , 2026-11-22, code of an unknown commit, full run:\n  [all numbers](performance/2026-11-22.csv)",
        "| case | A | A / governor | A / floor | B | B / governor | B / floor |",
        "| one bucket, granted, 2 threads | 8 | 0.800 | 2 | 14 | 1.400 |  |",
        "| spread: one bucket, granted, 2 threads | 8 | 1 | 0.800 | 2 | 8 | 0.571 | 0.800 |  |",
        "| one bucket, granted | 0 (0) of 1 |  | 1 (1) of 1 | 1.400 governor, 2 threads |",
        "| all of tollgate, coarse clock | 1 (1) of 1 | 1.125 governor, upkeep clock, one bucket, granted, 2 threads |",
    ] {
        assert_has(&page, line);
    }
    assert!(!page.contains("none:"));
}

#[test]
fn all_numbers_are_in_the_csv() {
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
    let [page, csv] = written("all", &[("2026-11-22", &results)]);
    for line in [
        "Do they limit?,,\"keyed, 2 threads\",tollgate,the law,more than it may,,,",
        "Decisions back to back,\"one bucket, granted\",2 threads,tollgate,\"ns a decision, net\",16,16,16,ns",
        "Single decisions,\"one bucket, granted\",16 threads,tollgate,p99.9,80,,,ns",
        "Fairness,,\"one bucket, granted, 16 threads\",tollgate,Jain's index,0.900,0.900,0.900,",
        "Memory,,\"u64, 1,000 keys\",tollgate,resident,55.5,,,bytes",
        "Room in a table,,60 % of the slots in use,\"tollgate, inline\",refused,17,,,",
        "A cache line between two processors,,2 threads,none,ns a transfer,61,60.5,61.5,ns",
        "Cold start,,a process of its own,tollgate,\"made and first decision, ns\",89,89,89,ns",
        "A proxy under load,,\"wrk, 32 connections\",none,requests/s,51000,51000,51000,1/s",
    ] {
        assert_has(&csv, line);
    }
    for plot in ["throughput", "latency", "memory", "tokens"] {
        assert_has(&page, &format!("(performance/{plot}.svg)"));
        let svg = folder("all").join(format!("performance/{plot}.svg"));
        assert_has(&fs::read_to_string(svg).unwrap(), "<svg width=\"800\"");
    }
    assert!(!page.contains("NaN") && !page.contains("inf") && !page.contains('{'));
    assert!(csv.lines().all(|line| line.matches(',').count() >= 8), "each line has nine fields");
}

#[test]
fn a_scenario_without_data_is_left_out() {
    let [page, csv] = written("nothing", &[("2026-11-22", &Results::default())]);
    assert!(
        !page.contains("keyed,")
            && csv.lines().all(|line| line.starts_with("Machine") || line.starts_with("section"))
    );
    assert_eq!(fs::read_dir(folder("nothing").join("performance")).unwrap().count(), 1);
}

#[track_caller]
fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in:\n{text}");
}

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name)
}

/// Returns the page of runs of these dates, which is written anew, and the CSV file of the last.
fn written(name: &str, runs: &[(&str, &Results)]) -> [String; 2] {
    let folder = folder(name);
    // A first run has none.
    let _ = fs::remove_dir_all(&folder);
    let mut csv = String::new();
    for &(date, results) in runs {
        let mut results = results.clone();
        results.about.date = date.to_owned();
        report::write(&results, &folder).unwrap();
        csv = fs::read_to_string(folder.join(format!("performance/{date}.csv"))).unwrap();
    }
    [fs::read_to_string(folder.join("performance.md")).unwrap(), csv]
}

/// Returns times with a loop of 1 ns in them.
fn times(contender: &str, raw: &[f64]) -> Times {
    let loops = vec![1.0; raw.len()];
    let case = Case { what: "one bucket".to_owned(), path: "granted".to_owned(), threads: 2, keys: 1 };
    Times { case, contender: contender.to_owned(), raw: raw.to_vec(), loops, notes: Vec::new() }
}
