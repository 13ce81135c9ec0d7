//! The page of numbers that are known.

use std::fs;
use std::path::PathBuf;

use tollgate_distributed_benches::report;
use tollgate_distributed_benches::rows::Rows;

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // A first run has none.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(report::data(&folder)).unwrap();
    folder
}

/// The page and the plots in `docs` have no number of their own.
#[test]
fn the_committed_page_is_that_of_its_files() {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    assert_eq!(report::differs(&docs).unwrap(), None);
}

#[test]
fn numbers_are_those_of_the_file() {
    let folder = folder("file");
    let mut rows = Rows::default();
    rows.rounds(["Redis", "1 key, granted", "exact", "p99"], "us", &[3.0, 1.0, 2.0]);
    rows.number(["Demand", "0.5", "leased", "under"], "%", 0.038);
    rows.number(["Demand", "0.5", "leased", "over"], "tokens", f64::NAN);
    rows.text(["Machine", "", "", "date"], "2026-11-25");
    let path = folder.join("rows.csv");
    rows.write(&path).unwrap();
    let read = Rows::read(&path).unwrap();
    assert_eq!(read.0, rows.0);
    assert_eq!(read.0.len(), 3, "a number that is none is left out");
    let spread = read.find(["Redis", "1 key, granted", "exact", "p99"]).unwrap();
    assert_eq!((spread.low, spread.median, spread.high), (1.5, 2.0, 2.5));
}

#[test]
fn the_page_has_all_tables_and_plots() {
    let folder = folder("page");
    let mut rows = Rows::default();
    for (name, speed) in [("leased", 5e6), ("exact", 2e4)] {
        rows.number(["Redis", "1 key, granted", name, "decisions/s"], "1/s", speed);
        rows.number(["Redis", "1 key, granted", name, "decisions/s / exact"], "", speed / 2e4);
        rows.number(["Demand", "0.5", name, "round trips"], "1/s", 40.0);
        rows.number(["Demand", "2", name, "round trips"], "1/s", 41.0);
    }
    report::replace(&folder, "Redis", rows).unwrap();
    report::write(&folder).unwrap();
    let page = fs::read_to_string(folder.join(report::PAGE)).unwrap();
    for part in ["| leased | 5,000,000 | 250 |", "| exact | 20,000 | 1 |", "| 0.5 | 40 | 40 |"] {
        assert!(page.contains(part), "{part:?} is not in:\n{page}");
    }
    assert!(!page.contains("{store") && !page.contains("there is no table") && !page.contains("NaN"));
    assert_eq!(report::differs(&folder).unwrap(), None);
    fs::write(folder.join(report::PAGE), page.replace("| exact | 20,000 | 1 |", "| exact | 21,000 | 1 |"))
        .unwrap();
    assert_eq!(report::differs(&folder).unwrap(), Some(folder.join(report::PAGE)));
    let svg = fs::read_to_string(report::data(&folder).join("demand.svg")).unwrap();
    assert!(svg.contains("round trips a second"));
}
