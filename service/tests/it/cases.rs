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
#[cfg(feature = "redis")]
use tollgate_test_servers::any::Engine;

/// Returns the cases that need a process, or all.
fn cases(all: bool) -> Vec<Value> {
    let other = std::env::var("RLS_CASES").ok();
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/rls_cases.json");
    let text = fs::read_to_string(other.as_deref().unwrap_or(committed)).expect("the file of the cases");
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    let mut cases = file["cases"].as_array().expect("a list").clone();
    if other.is_none() && !all {
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

/// The answers to a step: one for each call. Several services are replicas, asked in turn.
fn answers(services: &mut [Service], folder: &Path, step: &Value) -> Vec<Value> {
    if !step["call"].is_null() {
        let times = step["times"].as_u64().unwrap_or(1);
        let ask = |_| {
            services.rotate_left(1);
            services[0].should_rate_limit(&step["call"])
        };
        return (0..times).map(ask).collect();
    }
    if !step["http"].is_null() {
        services.rotate_left(1);
        let http = &step["http"];
        return vec![services[0].http(
            false,
            text(http, "method"),
            text(http, "path"),
            http["body"].as_str(),
        )];
    }
    if !step["write"].is_null() {
        let before: Vec<_> = services.iter().map(Service::counters).collect();
        write(folder, &step["write"]);
        let loads = services.iter().zip(&before).map(|(service, before)| service.await_load(before));
        let loads: Vec<_> = loads.collect();
        assert!(loads.iter().all(|load| *load == loads[0]), "{loads:?}");
        return vec![json!(loads[0])];
    }
    if let Some(service_name) = step["grpcHealth"].as_str() {
        return vec![services[0].health(service_name)];
    }
    if !step["counters"].is_null() {
        return vec![sum_of(services.iter().map(Service::counters))];
    }
    thread::sleep(Duration::from_secs_f64(step["wait"].as_f64().expect("the last kind of step")));
    vec![]
}

fn expected(step: &Value) -> &Value {
    if step["counters"].is_null() { &step["expect"] } else { &step["counters"] }
}

/// The outcome of a case: the answers to each step, or the error of its load.
type Got = Result<Vec<Vec<Value>>, String>;

/// Returns the sums of counters.
fn sum_of(counters: impl Iterator<Item = Value>) -> Value {
    let mut sums = serde_json::Map::new();
    for (name, count) in counters.flat_map(|counters| counters.as_object().expect("an object").clone()) {
        let sum = sums.entry(name).or_insert(json!(0));
        *sum = json!(sum.as_u64().expect("a number") + count.as_u64().expect("a number"));
    }
    Value::Object(sums)
}

/// Runs a case. The second value is false if a window has ended between two steps.
fn run_once(case: &Value, replicas: usize, options: &[&str]) -> (Got, bool) {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), &case["files"]);
    let none = serde_json::Map::new();
    let env = case["env"].as_object().unwrap_or(&none).iter();
    let env: Vec<(&str, &str)> = env.map(|(name, value)| (&**name, value.as_str().expect("text"))).collect();
    let started = (0..replicas).map(|_| Service::start(folder.path(), options, &env));
    let mut services = match started.collect::<Result<Vec<_>, _>>() {
        Ok(services) => services,
        Err(error) => return (Err(error), true),
    };
    let window = if case["files"].to_string().contains("unit: second") { 1 } else { 60 };
    let mut one_window = true;
    let mut now = seconds() / window;
    let answers = steps(case).iter().map(|step| {
        let got = answers(&mut services, folder.path(), step);
        let then = seconds() / window;
        one_window &= then == now || !step["wait"].is_null();
        now = then;
        got
    });
    (Ok(answers.collect()), one_window)
}

/// Runs a case, by replicas on a store or by a service alone.
fn run(case: &Value, options: &[&str], store: Option<&str>) -> Got {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    for _ in 0..100 {
        let name = RUNS.fetch_add(1, Relaxed).to_string();
        let with_store =
            ["--store", store.unwrap_or("none"), "--store-name", &name, "--store-deadline", "5s"];
        let (replicas, options) = match store {
            Some(_) => (2, [options, &with_store].concat()),
            None => (1, options.to_vec()),
        };
        if let (got, true) = run_once(case, replicas, &options) {
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
fn run_all(cases: &[Value], options: &[&str], store: Option<&str>) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
                    let fault = judge(case, &run(case, options, store));
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
    run_all(&cases(false), &[], None);
}

#[test]
fn a_token_bucket_answers_the_cases_of_both() {
    let mut cases = cases(false);
    cases.retain(|case| case["semantics"] == "both");
    run_all(&cases, &["--algorithm", "token_bucket"], None);
}

/// Two replicas on a store, asked in turn. `FULL` runs all cases on each engine.
fn by_replicas(store: &str) {
    let all = std::env::var_os("FULL").is_some();
    let mut cases = cases(all);
    run_all(&cases, &[], Some(store));
    cases.retain(|case| case["semantics"] == "both");
    run_all(&cases, &["--algorithm", "token_bucket"], Some(store));
}

#[test]
#[cfg(feature = "sqlite")]
fn two_replicas_on_sqlite_answer_each_case() {
    let folder = tempfile::tempdir().expect("a folder");
    by_replicas(&format!("sqlite:{}", folder.path().join("counts").display()));
}

#[test]
fn two_replicas_on_servers_answer_each_case() {
    for engine in crate::replicas::ENGINES {
        if let Some(server) = engine.start().expect("the server starts") {
            by_replicas(&server.url());
        }
    }
}

/// The keys of envoyproxy/ratelimit have no unit and no text.
#[test]
#[cfg(feature = "redis")]
fn two_replicas_in_the_layout_of_envoy_answer_each_case() {
    let Some(server) = Engine::Redis.start().expect("the server starts") else { return };
    let mut cases = cases(std::env::var_os("FULL").is_some());
    cases.retain(|case| !case["files"].to_string().contains("limit:"));
    run_all(&cases, &["--store-layout", "envoy"], Some(&server.url()));
}
