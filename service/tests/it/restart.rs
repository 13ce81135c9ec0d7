// promise: state
//! Counts that outlive their process in the file of `--state`.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::client::Service;
use tollgate_common::testing::until;

/// A value that is fixed, others that are not, and a text: each has a table of its own.
const RULES: &str = "domain: d
descriptors:
- {key: fixed, value: a, rate_limit: {unit: year, requests_per_unit: 2}}
- {key: open, rate_limit: {unit: year, requests_per_unit: 2}}
- {key: text, rate_limit: {limit: 1/7d burst 2}}
- {key: many, rate_limit: {unit: year, requests_per_unit: 10}}
";

/// Starts the service on the rules, with its state beside them.
fn start(folder: &Path, options: &[&str]) -> Service {
    try_start(folder, options).unwrap_or_else(|error| panic!("{error}"))
}

/// The error has all lines of the log.
fn try_start(folder: &Path, options: &[&str]) -> Result<Service, String> {
    fs::create_dir_all(folder.join("rules")).expect("a folder");
    fs::write(folder.join("rules/d.yaml"), RULES).expect("it is written");
    let state = folder.join("state");
    let mut options = [&["--lame-duck", "0s", "--drain", "0s"], options].concat();
    if !options.contains(&"--state") {
        options.extend(["--state", state.to_str().expect("ASCII")]);
    }
    Service::start(&folder.join("rules"), &options, &[])
}

/// Returns the hits of a key of the table that is not fixed.
fn hits(service: &Service, value: &str) -> usize {
    let told = service.http(true, "GET", &format!("/explain?domain=d&descriptor=many={value}"), None);
    let told = told["body"].as_str().expect("text");
    let (before, _) = told.split_once(" hits of 10").unwrap_or_else(|| panic!("no hits in {told}"));
    before.rsplit(' ').next().expect("a word").parse().expect("a number")
}

/// Takes one hit of a key. Returns whether it is granted.
fn take(service: &Service, value: &str) -> bool {
    let entries = json!({"entries": [{"key": "many", "value": value}]});
    service.should_rate_limit(&json!({"domain": "d", "descriptors": [entries]}))["code"] == "OK"
}

fn metric(service: &Service, name: &str) -> u64 {
    let page = service.http(true, "GET", "/metrics", None);
    let line = page["body"].as_str().expect("text").lines().find_map(|line| line.strip_prefix(name));
    line.expect("a metric").trim().parse().expect("a number")
}

/// Returns the verdict on a request by each table.
fn ask(service: &Service, value: &str) -> Vec<String> {
    let code = |key: &str| {
        let entries = json!({"entries": [{"key": key, "value": value}]});
        let answer = service.should_rate_limit(&json!({"domain": "d", "descriptors": [entries]}));
        answer["code"].as_str().expect("a code").to_owned()
    };
    ["fixed", "open", "text"].map(code).to_vec()
}

#[test]
fn each_table_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut service = start(folder.path(), &[]);
    for wanted in ["OK", "OK", "OVER_LIMIT"] {
        assert_eq!(ask(&service, "a"), [wanted; 3]);
    }
    // The client keeps connections without a request, which the drain may cut.
    assert!(service.stop("-TERM").is_some());
    let mut restarted = start(folder.path(), &[]);
    assert_eq!(ask(&restarted, "a"), ["OVER_LIMIT"; 3]);
    assert_eq!(ask(&restarted, "b"), ["OK"; 3]);
    assert!(restarted.stop("-TERM").is_some());
    // The secret is the same a third time.
    assert_eq!(ask(&start(folder.path(), &[]), "a"), ["OVER_LIMIT"; 3]);
}

#[test]
fn counts_before_the_last_save_outlive_a_crash() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut service = start(folder.path(), &["--state-interval", "5ms"]);
    for wanted in ["OK", "OK"] {
        assert_eq!(ask(&service, "a"), [wanted; 3]);
    }
    let state = || fs::read(folder.path().join("state")).unwrap_or_default();
    // The first save may have begun before the last request.
    for _ in 0..2 {
        let before = state();
        until("saved", || state() != before);
    }
    service.kill();
    assert_eq!(ask(&start(folder.path(), &[]), "a"), ["OVER_LIMIT"; 3]);
}

#[test]
fn a_file_of_another_version_is_kept_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("state"), "tollgate state 2").expect("it is written");
    let service = start(folder.path(), &[]);
    assert_eq!(ask(&service, "a"), ["OK"; 3]);
    assert_eq!(fs::read(folder.path().join("state.bad")).expect("it is kept"), b"tollgate state 2");
}

/// Replicas that are replaced one at a time: first without an overlap, and then with one.
#[test]
fn a_process_that_is_replaced_forgets_nothing_of_the_old_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut old = start(folder.path(), &[]);
    assert!((0..4).all(|_| take(&old, "a")));
    assert_eq!((metric(&old, "tollgate_serve_counts_restored"), hits(&old, "a")), (0, 4));
    let began = metric(&old, "tollgate_serve_counts_began_timestamp_seconds");
    assert!(old.stop("-TERM").is_some());
    old = start(folder.path(), &[]);
    for turn in 0..3 {
        // The old one saves no more until its end, and the new one often.
        let mut new = start(folder.path(), &["--state-interval", "5ms"]);
        let before = hits(&new, "a");
        assert!(take(&old, "a") && take(&old, &format!("b{turn}")));
        assert!(take(&new, &format!("c{turn}")));
        assert!(old.stop("-TERM").is_some());
        until("merged", || hits(&new, "a") == before + 1);
        // Neither lost nor counted twice.
        for key in 0..=turn {
            assert_eq!((hits(&new, &format!("b{key}")), hits(&new, &format!("c{key}"))), (1, 1), "{turn}");
        }
        assert_eq!(metric(&new, "tollgate_serve_counts_restored"), 1);
        assert_eq!(metric(&new, "tollgate_serve_counts_began_timestamp_seconds"), began);
        assert!(new.stop("-TERM").is_some());
        old = start(folder.path(), &[]);
        assert_eq!(hits(&old, "a"), before + 1);
    }
    let granted = (0..9).filter(|_| take(&old, "a")).count();
    assert_eq!(granted, 10 - 4 - 3);
}

/// A volume that comes late, and a start that cannot read its state.
#[test]
fn a_good_state_is_never_replaced_by_one_with_less() {
    let [source, folder] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let mut service = start(source.path(), &[]);
    assert_eq!(ask(&service, "a"), ["OK"; 3]);
    assert!(service.stop("-TERM").is_some());
    let (late, state) =
        (fs::read(source.path().join("state")).expect("it is saved"), folder.path().join("state"));
    let service = start(folder.path(), &["--state-interval", "5ms"]);
    until("saved", || state.exists());
    fs::copy(source.path().join("state"), folder.path().join("late")).expect("a copy");
    fs::rename(folder.path().join("late"), &state).expect("it is moved");
    let line = service.line_with("it is kept as ").expect("a line");
    assert!(line.contains("it is of other counts, and was not there at the start"), "{line}");
    assert_eq!(fs::read(folder.path().join("state.aside")).expect("it is kept"), late);
    drop(service);
    for (path, part) in
        [(folder.path().join("missing/state"), "No such file"), (folder.path().into(), "a folder")]
    {
        let told = try_start(folder.path(), &["--state", path.to_str().expect("ASCII")]).map(|_| ());
        let told = told.expect_err("a mistake");
        assert!(told.contains("error: the state cannot be ") && told.contains(part), "{told}");
    }
}

#[test]
fn the_start_says_whether_counts_go_on_or_begin_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    // It fails after the line.
    let told =
        || try_start(folder.path(), &["--grpc", "unix:/missing/socket"]).map(|_| ()).expect_err("a mistake");
    let (state, first) = (folder.path().join("state"), told());
    assert!(first.contains(&format!("{}: counts begin anew: it is not there", state.display())), "{first}");
    let mut service = start(folder.path(), &[]);
    assert_eq!(ask(&service, "a"), ["OK"; 3]);
    assert!(service.stop("-TERM").is_some());
    let second = told();
    assert!(second.contains(": 3 keys are restored, which were saved at 2"), "{second}");
    fs::write(&state, "no state").expect("it is written");
    let third = told();
    assert!(third.contains("counts begin anew: it is no state of this program"), "{third}");
}
