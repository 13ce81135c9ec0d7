//! The CSV file of made-up results, whose numbers are known, and the page of such files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tollgate_benches::report::{self, MACHINE};
use tollgate_benches::results::{
    Case, ColdStart, Latencies, Law, Memory, Proxy, Results, Room, Shares, Times,
};
use tollgate_benches::rows::Rows;

#[test]
fn a_ratio_is_computed_in_each_round() {
    let times = vec![times("tollgate", &[11.0, 21.0, 10.0]), times("std mutex", &[41.0, 201.0, 20.0])];
    let csv = written("ratio", &Results { times, ..Results::default() });
    // Net of a loop of 1 ns: 10/40, 20/200, 9/19.
    assert_has(&csv, "\"one bucket, granted, 2 threads\",std mutex,\"ns a decision, net\",40,29.5,120,ns\n");
    assert_has(&csv, "\"one bucket, granted, 2 threads\",std mutex,tollgate / this one,0.250,0.175,0.362,\n");
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
    let folder = folder("page");
    write(&folder, "2026-11-22", &results);
    results.times[0].raw = vec![9.0; 3];
    results.times.push(times("floor", &[5.0; 3]));
    write(&folder, "2026-11-23", &results);
    let page = "<!-- runs -->\n<!-- end -->\n\n| case | A | A / governor | A / floor |\n|---|--:|--:|--:|\n\
        | one bucket, granted, 2 threads |  |  |  |\n| spread: one bucket, granted, 2 threads |  |  |  |\n\n\
        <!-- losses -->\n<!-- end -->\n";
    fs::write(folder.join("performance.md"), page).unwrap();
    assert!(!tables(&folder, true), "the page has no numbers");
    assert!(tables(&folder, false));
    assert!(tables(&folder, true), "a page that was written is that of its files");
    let page = fs::read_to_string(folder.join("performance.md")).unwrap();
    for line in [
        "  [all numbers](performance/2026-11-22.csv)",
        "| case | A | A / governor | A / floor | B | B / governor | B / floor |",
        "| one bucket, granted, 2 threads | 8 | 0.800 | 2 | 14 | 1.400 |  |",
        "| spread: one bucket, granted, 2 threads | 8 | 0.800 | 2 | 8 | 0.800 |  |",
        "| one bucket, granted | 0 (0) of 1 |  | 1 (1) of 1 | 1.400 governor, 2 threads |",
        "| all of tollgate, coarse clock | 1 (1) of 1 | 1.125 governor, upkeep clock, one bucket, granted, 2 threads |",
    ] {
        assert_has(&page, line);
    }
    assert!(!page.contains("none:"));
}

#[test]
fn all_numbers_are_in_the_csv() {
    let case = || Case { what: "one bucket".into(), path: "granted".into(), threads: 16, keys: 1 };
    let name = || "tollgate".to_owned();
    let results = Results {
        laws: vec![Law {
            kind: "keyed".into(),
            contender: name(),
            threads: 2,
            granted: 21_000,
            least: 19e3,
            most: 20e3,
        }],
        times: vec![times("tollgate", &[17.0; 3])],
        latencies: vec![Latencies {
            case: case(),
            contender: name(),
            quantiles: (0..=60).map(|n| (f64::from(n) / 60.0, f64::from(n) + 20.0)).collect(),
            p999: vec![70.0],
            decisions: 5_000,
            notes: vec![("keys held".into(), "7".into())],
        }],
        shares: vec![Shares { case: case(), contender: name(), jain: vec![0.9], least: vec![0.8] }],
        memory: vec![Memory {
            contender: name(),
            kind: "u64".into(),
            keys: 1_000,
            counted: 48_000,
            resident: 55_500,
            allocations: 0,
            held: 1_000,
        }],
        rooms: vec![Room { load: 0.6, refused: 17, ..Room::default() }],
        transfers: vec![60.0, 61.0, 62.0],
        starts: vec![ColdStart { contender: name(), made: vec![9.0], first: vec![80.0], second: vec![6.0] }],
        proxies: vec![Proxy {
            limiter: "none".into(),
            requests: vec![51e3],
            p50: vec![20.0],
            p99: vec![90.0],
        }],
    };
    let csv = written("all", &results);
    for line in [
        "Do they limit?,\"keyed, 2 threads\",tollgate,the law,more than it may,,,",
        "Decisions back to back,\"one bucket, granted, 2 threads\",tollgate,\"ns a decision, net\",16,,,ns",
        "Single decisions,\"one bucket, granted, 16 threads\",tollgate,p99.9,80,,,ns",
        "Fairness,\"one bucket, granted, 16 threads\",tollgate,Jain's index,0.900,,,",
        "Memory,\"u64, 1,000 keys\",tollgate,resident,55.5,,,bytes",
        "Room in a table,60 % of the slots in use,\"tollgate, inline\",refused,17,,,",
        "A cache line between two processors,2 threads,none,ns a transfer,61,60.5,61.5,ns",
        "Cold start,a process of its own,tollgate,\"made and first decision, ns\",89,,,ns",
        "A proxy under load,\"wrk, 32 connections\",none,requests/s,51000,,,1/s",
    ] {
        assert_has(&csv, line);
    }
    assert!(!csv.contains("NaN") && !csv.contains("inf"));
}

#[test]
fn numbers_are_those_of_the_file() {
    let mut rows = Rows::default();
    rows.rounds(["Redis", "1 key, granted", "exact", "p99"], "us", &[3.0, 1.0, 2.0]);
    rows.number(["Demand", "0.5", "leased", "under"], "%", 0.038);
    rows.number(["Demand", "0.5", "leased", "over"], "tokens", f64::NAN);
    rows.text(["Machine", "", "", "date"], "2026-11-25");
    let path = folder("file").join("rows.csv");
    rows.write(&path).unwrap();
    let mut read = Rows::read(&path).unwrap();
    assert_eq!(read.0, rows.0);
    assert_eq!(read.0.len(), 3, "a number that is none is left out");
    let spread = read.find(["Redis", "1 key, granted", "exact", "p99"]).unwrap();
    assert_eq!((spread.low, spread.median, spread.high), (1.5, 2.0, 2.5));
    // A part that is measured anew replaces its cases, and no other.
    let mut later = Rows::default();
    later.number(["Demand", "0.5", "leased", "under"], "%", 0.5);
    read.replace(later);
    assert_eq!(read.find(["Demand", "0.5", "leased", "under"]).unwrap().median, 0.5);
    assert_eq!(read.0.len(), 3);
}

#[track_caller]
fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in:\n{text}");
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name);
    // A first run has none.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("performance")).unwrap();
    folder
}

/// Writes the CSV file of a run of this date.
fn write(folder: &Path, date: &str, results: &Results) -> String {
    let mut rows = Rows::default();
    for (measure, value) in [("date", date), ("effort", "full")] {
        rows.text([MACHINE, "", "", measure], value);
    }
    rows.number([MACHINE, "", "", "processors"], "", 2.0);
    rows.0.extend(report::rows(results).0);
    let path = folder.join("performance").join(date).with_extension("csv");
    rows.write(&path).unwrap();
    fs::read_to_string(path).unwrap()
}

fn written(name: &str, results: &Results) -> String {
    write(&folder(name), "2026-11-22", results)
}

/// Runs `scripts/tables` on the page of a folder, and returns whether it succeeded.
fn tables(folder: &Path, is_check: bool) -> bool {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/tables");
    let mut command = Command::new(script);
    command.arg(folder).args(is_check.then_some("--check"));
    command.status().expect("python3 is there").success()
}

/// Returns times with a loop of 1 ns in them.
fn times(contender: &str, raw: &[f64]) -> Times {
    let loops = vec![1.0; raw.len()];
    let case = Case { what: "one bucket".to_owned(), path: "granted".to_owned(), threads: 2, keys: 1 };
    Times { case, contender: contender.to_owned(), raw: raw.to_vec(), loops, notes: Vec::new() }
}
