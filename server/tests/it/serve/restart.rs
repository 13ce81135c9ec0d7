// promise: state
//! Counts that outlive their process in the file of `--state`.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::client::Service;
use crate::support::until;

/// A value that is fixed, others that are not, and a text: each has a table of its own.
const RULES: &str = "domain: d
descriptors:
- {key: fixed, value: a, rate_limit: {unit: year, requests_per_unit: 2}}
- {key: open, rate_limit: {unit: year, requests_per_unit: 2}}
- {key: text, rate_limit: {limit: 1/7d burst 2}}
";

/// Starts the service on the rules, with its state beside them.
fn start(folder: &Path, options: &[&str]) -> Service {
    fs::create_dir_all(folder.join("rules")).expect("a folder");
    fs::write(folder.join("rules/d.yaml"), RULES).expect("it is written");
    let state = folder.join("state");
    let options =
        [&["--lame-duck", "0s", "--drain", "0s", "--state", state.to_str().expect("ASCII")], options]
            .concat();
    Service::start(&folder.join("rules"), &options, &[]).unwrap_or_else(|error| panic!("{error}"))
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
