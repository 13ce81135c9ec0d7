//! The cases of the semantics of envoyproxy/ratelimit that need a process: files that change under
//! it, the health service, pages other than `/json`, errors of gRPC and content types. All of them
//! run without a process, in `serve/tests/cases.rs`. `RLS_CASES` names another file, whose cases
//! all run here.
//!
//! A run that meets the end of a window is repeated.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::client::Service;
use crate::expect::difference;

fn cases() -> Vec<Value> {
    let other = std::env::var("RLS_CASES").ok();
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/rls_cases.json");
    let text = fs::read_to_string(other.as_deref().unwrap_or(committed)).expect("the file of the cases");
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    let mut cases = file["cases"].as_array().expect("a list").clone();
    if other.is_none() {
        cases.retain(|case| steps(case).iter().any(needs_a_process));
        assert_eq!(cases.len(), 13, "a case that is not read would be no failure");
    }
    cases
}

fn needs_a_process(step: &Value) -> bool {
    let is_page = !step["http"].is_null() && step["http"]["path"] != "/json";
    let has_wire = ["error", "contentType"].iter().any(|name| !step["expect"][name].is_null());
    is_page || has_wire || !step["grpcHealth"].is_null() || !step["write"].is_null()
}

fn steps(case: &Value) -> &[Value] {
    case["steps"].as_array().expect("a list")
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn write(folder: &Path, files: &Value) {
    for (name, content) in files.as_object().expect("files") {
        let path = folder.join(name);
        match content.as_str() {
            // By rename, as an editor does it.
            Some(content) => {
                let new = folder.join(format!(".{name}"));
                fs::write(&new, content).and_then(|()| fs::rename(&new, &path)).expect("it is written");
            }
            None => fs::remove_file(&path).expect("it is there"),
        }
    }
}

/// The answers to a step: one for each call.
fn answers(service: &Service, folder: &Path, step: &Value) -> Vec<Value> {
    if !step["call"].is_null() {
        let times = step["times"].as_u64().unwrap_or(1);
        return (0..times).map(|_| service.should_rate_limit(&step["call"])).collect();
    }
    if !step["http"].is_null() {
        let http = &step["http"];
        return vec![service.http(false, text(http, "method"), text(http, "path"), http["body"].as_str())];
    }
    if !step["write"].is_null() {
        let before = service.counters();
        write(folder, &step["write"]);
        return vec![json!(service.await_load(&before))];
    }
    if let Some(service_name) = step["grpcHealth"].as_str() {
        return vec![service.health(service_name)];
    }
    if !step["counters"].is_null() {
        return vec![service.counters()];
    }
    thread::sleep(Duration::from_secs_f64(step["wait"].as_f64().expect("the last kind of step")));
    vec![]
}

fn expected(step: &Value) -> &Value {
    if step["counters"].is_null() { &step["expect"] } else { &step["counters"] }
}

/// The outcome of a case: the answers to each step, or the error of its load.
type Got = Result<Vec<Vec<Value>>, String>;

/// Runs a case. The second value is false if a window has ended between two steps.
fn run_once(case: &Value, options: &[&str]) -> (Got, bool) {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), &case["files"]);
    let none = serde_json::Map::new();
    let env = case["env"].as_object().unwrap_or(&none).iter();
    let env: Vec<(&str, &str)> = env.map(|(name, value)| (&**name, value.as_str().expect("text"))).collect();
    let service = match Service::start(folder.path(), options, &env) {
        Ok(service) => service,
        Err(error) => return (Err(error), true),
    };
    let window = if case["files"].to_string().contains("unit: second") { 1 } else { 60 };
    let mut one_window = true;
    let mut now = seconds() / window;
    let answers = steps(case).iter().map(|step| {
        let got = answers(&service, folder.path(), step);
        let then = seconds() / window;
        one_window &= then == now || !step["wait"].is_null();
        now = then;
        got
    });
    (Ok(answers.collect()), one_window)
}

fn run(case: &Value, options: &[&str]) -> Got {
    for _ in 0..100 {
        if let (got, true) = run_once(case, options) {
            return got;
        }
    }
    panic!("each run of {} meets the end of a window", case["id"]);
}

/// The first difference between the expectations of a case and its answers.
fn judge(case: &Value, got: &Got) -> Option<String> {
    match (got, case["load"]["error"].as_str()) {
        (Ok(_), Some(error)) => return Some(format!("no error, not {error:?}")),
        (Err(got), Some(error)) => {
            return (!got.contains(error)).then(|| format!("{got:?} has no {error:?}"));
        }
        (Err(got), None) => return Some(got.clone()),
        (Ok(_), None) => (),
    }
    let got = got.as_ref().expect("as above");
    steps(case).iter().zip(got).enumerate().find_map(|(index, (step, got))| {
        let found = got.iter().find_map(|got| difference(expected(step), got));
        found.map(|text| format!("step {index}: {text}"))
    })
}

/// Runs cases on four threads, as most of their time is the start of a process.
fn run_all(cases: &[Value], options: &[&str]) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
                    let fault = judge(case, &run(case, options));
                    let fault = fault.map(|text| format!("{}: {text}", case["id"]));
                    failed.lock().expect("no panic").extend(fault);
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty(), "{} faults:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn each_case_is_answered_as_it_asks() {
    run_all(&cases(), &[]);
}

#[test]
fn a_token_bucket_answers_the_cases_of_both() {
    let mut cases = cases();
    cases.retain(|case| case["semantics"] == "both");
    run_all(&cases, &["--algorithm", "token_bucket"]);
}
