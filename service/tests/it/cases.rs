//! The cases of the semantics of envoyproxy/ratelimit, run against the process.
//!
//! A case is run once, and its answers are compared with its expectations after that. So a changed
//! expectation needs no other run. A run that meets the end of a window is repeated.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::client::Service;
use crate::expect::{changed, difference};

/// The numbers of the committed file: a case that is not read would be no failure.
const CASES: usize = 95;
const STEPS: usize = 156;
const BOTH: usize = 90;

fn cases() -> Vec<Value> {
    let path = std::env::var("RLS_CASES")
        .unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/rls_cases.json").into());
    let text = fs::read_to_string(path).expect("the file of the cases");
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    file["cases"].as_array().expect("a list").clone()
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

/// The case with each of its expectations changed.
fn with_a_fault(case: &Value) -> Vec<Value> {
    let mut faulty = Vec::new();
    if let Some(error) = case["load"]["error"].as_str() {
        let mut other = case.clone();
        other["load"]["error"] = json!(format!("{error}?"));
        faulty.push(other);
    }
    let asked = steps(case).iter().enumerate().filter(|(_, step)| step["wait"].is_null());
    for (index, step) in asked {
        let name = if step["counters"].is_null() { "expect" } else { "counters" };
        for change in changed(expected(step)) {
            let mut other = case.clone();
            other["steps"][index][name] = change;
            faulty.push(other);
        }
    }
    faulty
}

/// Runs cases on four threads, as most of their time is the start of a process.
fn run_all(cases: &[Value], options: &[&str]) -> Vec<String> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
                    let got = run(case, options);
                    let faults = with_a_fault(case).into_iter().filter(|case| judge(case, &got).is_none());
                    let faults = faults.map(|case| format!("passes with a fault: {}", case["steps"]));
                    let found: Vec<String> = judge(case, &got).into_iter().chain(faults).collect();
                    let found = found.into_iter().map(|text| format!("{}: {text}", text_of(case)));
                    failed.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    failed.into_inner().expect("no panic")
}

fn text_of(case: &Value) -> &str {
    text(case, "id")
}

#[test]
fn each_case_is_answered_as_it_asks_and_none_passes_with_a_changed_expectation() {
    let cases = cases();
    let all = cases.iter().map(|case| steps(case).len()).sum::<usize>();
    if std::env::var_os("RLS_CASES").is_none() {
        assert_eq!((cases.len(), all), (CASES, STEPS));
    }
    let failed = run_all(&cases, &[]);
    assert!(failed.is_empty(), "{} faults:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_token_bucket_answers_the_cases_of_both() {
    let mut cases = cases();
    cases.retain(|case| case["semantics"] == "both");
    if std::env::var_os("RLS_CASES").is_none() {
        assert_eq!(cases.len(), BOTH);
    }
    let failed = run_all(&cases, &["--algorithm", "token_bucket"]);
    assert!(failed.is_empty(), "{} faults:\n{}", failed.len(), failed.join("\n"));
}
