//! The file of all cases, without a process: each call and each text of `/json` is decided.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate::{Clock, MockClock};

use crate::rules::error::Finding;
use crate::rules::load::{LoadOptions, load};
use crate::rules::tree::{Rules, Unit};
use crate::serve::counts::{Algorithm, CountOptions, LimitCounts};
use crate::serve::decide::{DecisionOptions, Problem, decide};
use crate::serve::in_store::decide_shared;
use crate::serve::json;
use crate::serve::loaded::LoadedRules;
use crate::serve::messages::{Code, DescriptorStatus, RateLimitRequest, RateLimitResponse};
use crate::serve::options::ServeOptions;
use crate::serve::shared::SharedCounts;
use crate::serve::shared::tests::{self as shared, TestStore, replica};
use crate::serve::sources::load as load_settings;
use crate::serve::xds::tests::from_yaml::{can_be_said, load_said};

const CASES: &str = include_str!("../../../tests/it/rls_cases.json");

#[test]
fn each_case_is_answered_as_it_says() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let (mut steps, mut skipped) = (0, 0);
    for case in cases["cases"].as_array().unwrap() {
        let algorithms: &[Algorithm] = match case["semantics"].as_str() {
            Some("both") => &[Algorithm::FixedWindow, Algorithm::TokenBucket],
            _ => &[Algorithm::FixedWindow],
        };
        for algorithm in algorithms {
            let (ran, left) = run(case, *algorithm, 0, load);
            (steps, skipped) = (steps + ran, skipped + left);
        }
    }
    // Left out: paths other than `/json`, and the health service.
    assert_eq!((steps, skipped), (289, 10));
}

/// Two replicas that are asked in turn answer as one service does.
#[test]
fn each_case_is_answered_by_two_replicas_as_it_says() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let mut steps = 0;
    for case in cases["cases"].as_array().unwrap() {
        let algorithms: &[Algorithm] = match case["semantics"].as_str() {
            Some("both") => &[Algorithm::FixedWindow, Algorithm::TokenBucket],
            _ => &[Algorithm::FixedWindow],
        };
        steps += algorithms.iter().map(|algorithm| run(case, *algorithm, 2, load).0).sum::<u32>();
    }
    assert_eq!(steps, 289);
}

/// The rules come as messages of a control plane, as far as these have the fields.
#[test]
fn each_case_is_answered_by_rules_of_a_control_plane_as_it_says() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let (mut steps, mut skipped, mut left_out) = (0, 0, 0);
    for case in cases["cases"].as_array().unwrap() {
        let written = case["steps"].as_array().unwrap().iter().map(|step| &step["write"]);
        let files = [&case["files"]].into_iter().chain(written).filter_map(Value::as_object);
        if !files.flat_map(texts).all(|(path, text)| can_be_said(&path, &text)) {
            left_out += 1;
            continue;
        }
        let (ran, left) = run(case, Algorithm::FixedWindow, 0, load_said);
        (steps, skipped) = (steps + ran, skipped + left);
    }
    // Left out: files that are no YAML, `limit`, `value_to_metric` and `share_threshold`.
    assert_eq!((steps, skipped, left_out), (129, 5, 16));
}

/// Runs a case by some replicas on one store, or by a service without one. Returns the number of
/// steps that ran, and of those that need a process.
fn run(case: &Value, algorithm: Algorithm, replicas: usize, load: Load) -> (u32, u32) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(async {
        match Case::new(case, algorithm, replicas, load) {
            Some(mut case) => case.run().await,
            None => (0, 0),
        }
    })
}

/// A judge that lets everything pass is no judge: each case with one changed expectation fails.
#[test]
fn no_case_passes_with_a_changed_expectation() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let (mut tried, mut passed) = (0, Vec::new());
    for case in cases["cases"].as_array().unwrap() {
        for other in with_a_change(case) {
            tried += 1;
            let judged = catch_unwind(|| run(&other, Algorithm::FixedWindow, 0, load));
            passed.extend(judged.is_ok().then_some(other));
        }
    }
    assert!(passed.is_empty() && tried > 700, "{} of {tried} pass, as {:?}", passed.len(), passed.first());
}

/// Returns the case with each of its expectations changed.
fn with_a_change(case: &Value) -> Vec<Value> {
    let mut others = Vec::new();
    let mut with = |path: &str, value: Value| {
        let mut other = case.clone();
        *other.pointer_mut(path).unwrap() = value;
        others.push(other);
    };
    if let Some(error) = case["load"]["error"].as_str() {
        with("/load/error", format!("{error}x").into());
    }
    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let name = if step["counters"].is_null() { "expect" } else { "counters" };
        let is_left =
            step["grpcHealth"].is_string() || !step["http"].is_null() && step["http"]["path"] != "/json";
        if step["wait"].is_null() && !is_left {
            changed(&step[name]).into_iter().for_each(|value| with(&format!("/steps/{index}/{name}"), value));
        }
    }
    others
}

/// Returns an expectation with one leaf changed, each in turn.
fn changed(expected: &Value) -> Vec<Value> {
    match expected {
        Value::Array(range) if range.len() == 2 && range.iter().all(Value::is_number) => {
            vec![json!([1_000_000_000, 2_000_000_000])]
        }
        Value::Array(items) => {
            let changed = items.iter().enumerate().flat_map(|(index, item)| {
                changed(item).into_iter().map(move |other| {
                    let mut items = items.clone();
                    items[index] = other;
                    Value::Array(items)
                })
            });
            changed.chain([Value::Array([&items[..], &[json!({ "code": "OK" })]].concat())]).collect()
        }
        Value::Object(fields) => {
            // The rest is of the wire, and compared over a process.
            let decided =
                fields.iter().filter(|(name, _)| !["grpc", "contentType", "body"].contains(&&***name));
            let changed = decided.flat_map(|(name, value)| {
                changed(value).into_iter().map(move |other| {
                    let mut fields = fields.clone();
                    fields.insert(name.clone(), other);
                    Value::Object(fields)
                })
            });
            changed.collect()
        }
        Value::Number(number) => vec![json!(number.as_u64().unwrap() + 1)],
        Value::String(text) if text == "OK" => vec![json!("OVER_LIMIT")],
        Value::String(text) if text == "OVER_LIMIT" => vec![json!("OK")],
        Value::String(text) => vec![json!(format!("{text}x"))],
        Value::Bool(value) => vec![json!(!value)],
        Value::Null => vec![json!("something")],
    }
}

/// The way in which texts become rules.
type Load = fn(&[(String, String)], LoadOptions) -> Result<Rules, Vec<Finding>>;

/// A case with its service.
struct Case<'c> {
    json: &'c Value,
    files: Map<String, Value>,
    load: Load,
    load_options: LoadOptions,
    options: DecisionOptions,
    replicas: Vec<Replica>,
    /// The replica that is asked next.
    next: usize,
    clock: MockClock,
}

/// A service, on a store or without one.
struct Replica {
    rules: LoadedRules,
    counts: LimitCounts,
    shared: Option<Arc<SharedCounts>>,
}

impl<'c> Case<'c> {
    /// Returns the service of a case, unless its files are refused.
    fn new(json: &'c Value, algorithm: Algorithm, replicas: usize, load: Load) -> Option<Case<'c>> {
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_secs(1_790_000_000));
        let store = TestStore::new(&clock);
        let load_options = LoadOptions { merge_domains: json["env"]["MERGE_DOMAIN_CONFIG"] == "true" };
        let files = json["files"].as_object().unwrap().clone();
        let rules = load(&texts(&files), load_options);
        if let Some(told) = json["load"]["error"].as_str() {
            let errors = rules.expect_err(told);
            assert!(errors.iter().any(|error| error.what.contains(told)), "{}: {errors:?}", json["id"]);
            return None;
        }
        rules.unwrap_or_else(|errors| panic!("{}: {errors:?}", json["id"]));
        let replica = |_| {
            let options = CountOptions { clock: clock.clone(), algorithm, max_keys: 1_000 };
            let counts = LimitCounts::new(&options);
            let rules = counts.load(load(&texts(&files), load_options).unwrap()).unwrap();
            let shared = (replicas > 0).then(|| replica(&store, &shared::settings(), &clock));
            Replica { rules, counts, shared }
        };
        let replicas = (0..replicas.max(1)).map(replica).collect();
        let options = options(&json["env"]);
        Some(Case { json, files, load, load_options, options, replicas, next: 0, clock: mock })
    }

    /// Returns the number of steps that ran, and of those that need a process.
    async fn run(&mut self) -> (u32, u32) {
        let (mut ran, mut left) = (0, 0);
        for step in self.json["steps"].as_array().unwrap() {
            match self.step(step).await {
                true => ran += 1,
                false => left += 1,
            }
        }
        (ran, left)
    }

    async fn step(&mut self, step: &Value) -> bool {
        let expect = &step["expect"];
        if let Some(seconds) = step["wait"].as_f64() {
            let time = Duration::from_secs_f64(seconds);
            self.clock.advance(time);
            tokio::time::advance(time).await;
        } else if !step["call"].is_null() {
            let times = step["times"].as_u64().unwrap_or(1);
            for _ in 0..times {
                self.call(&step["call"], expect).await;
            }
        } else if let Some(counters) = step["counters"].as_object() {
            self.counters(counters);
        } else if let Some(written) = step["write"].as_object() {
            self.write(written, expect);
        } else if step["http"]["path"] == "/json" {
            self.http(&step["http"], expect).await;
        } else {
            assert!(step["grpcHealth"].is_string() || step["http"].is_object(), "{step}");
            return false;
        }
        true
    }

    /// Asks the replica whose turn it is.
    async fn decide(&mut self, request: &RateLimitRequest) -> Result<RateLimitResponse, Problem> {
        let Replica { rules, counts, shared } = &self.replicas[self.next];
        self.next = (self.next + 1) % self.replicas.len();
        match shared {
            Some(shared) => decide_shared(rules, counts, shared, &self.options, request, counts.now()).await,
            None => decide(rules, counts, &self.options, request, counts.now()),
        }
    }

    async fn call(&mut self, call: &Value, expect: &Value) {
        let id = format!("{} {call}", self.json["id"]);
        let request = json::request(call.to_string().as_bytes()).unwrap();
        let response = match self.decide(&request).await {
            Ok(response) => response,
            Err(problem) => {
                let told = expect["error"]["message"].as_str().unwrap_or("");
                assert!(expect["error"].is_object() && problem.to_string().contains(told), "{id}: {problem}");
                return;
            }
        };
        assert!(expect["error"].is_null(), "{id}: {response:?}");
        if let Some(code) = expect["code"].as_str() {
            assert_eq!(response.overall_code(), code_of(code), "{id}: {response:?}");
        }
        if let Some(statuses) = expect["statuses"].as_array() {
            assert_eq!(response.statuses.len(), statuses.len(), "{id}");
            for (status, expected) in response.statuses.iter().zip(statuses) {
                check_status(status, expected, &id);
            }
        }
        check_headers(&response, expect, &id);
        if !expect["metadata"].is_null() {
            let mut told: Value = serde_json::from_str(&json::response(&response)).unwrap();
            // The reference has no fields for logs.
            let fields = told["dynamicMetadata"].as_object_mut().unwrap();
            for name in ["decision", "limit", "key"] {
                fields.remove(name);
            }
            assert_eq!(told["dynamicMetadata"], expect["metadata"], "{id}");
        }
    }

    fn counters(&self, counters: &Map<String, Value>) {
        // Each replica has its own.
        let all: Vec<_> = self.replicas.iter().map(|each| each.counts.statistics.lines()).collect();
        for (name, expected) in counters {
            let start = format!("ratelimit.service.{name}: ");
            let count = |line: &str| line.strip_prefix(&start).and_then(|count| count.parse::<u64>().ok());
            let counts: Vec<u64> = all.iter().flat_map(|lines| lines.lines()).filter_map(count).collect();
            let count = (!counts.is_empty()).then(|| counts.iter().sum::<u64>());
            assert_eq!(json!(count), *expected, "{}: {name} in\n{all:?}", self.json["id"]);
        }
    }

    fn write(&mut self, written: &Map<String, Value>, expect: &Value) {
        let mut files = self.files.clone();
        files.extend(written.clone());
        let rules = (self.load)(&texts(&files), self.load_options);
        assert_eq!(rules.is_ok(), *expect == "loaded", "{}", self.json["id"]);
        if rules.is_ok() {
            for Replica { rules, counts, .. } in &mut self.replicas {
                *rules = counts.load((self.load)(&texts(&files), self.load_options).unwrap()).unwrap();
            }
            self.files = files;
        }
    }

    async fn http(&mut self, http: &Value, expect: &Value) {
        let request = json::request(http["body"].as_str().unwrap().as_bytes());
        let decided = match request {
            Ok(request) => self.decide(&request).await.map_err(|problem| problem.to_string()),
            Err(why) => Err(why),
        };
        let status = match decided.as_ref().map(RateLimitResponse::overall_code) {
            Ok(Code::OverLimit) => 429,
            Ok(_) => 200,
            Err(_) => 400,
        };
        assert_eq!(expect["status"], status, "{}: {decided:?}", self.json["id"]);
        if !expect["json"].is_null() {
            let mut told: Value = serde_json::from_str(&json::response(&decided.unwrap())).unwrap();
            for status in told["statuses"].as_array_mut().unwrap() {
                assert!(status["durationUntilReset"].as_str().unwrap().ends_with('s'));
                status["durationUntilReset"] = "*".into();
            }
            assert_eq!(told, expect["json"], "{}", self.json["id"]);
        }
    }
}

/// Returns the files as a load takes them. A file without a text is removed.
fn texts(files: &Map<String, Value>) -> Vec<(String, String)> {
    files.iter().filter_map(|(path, text)| Some((path.clone(), text.as_str()?.to_owned()))).collect()
}

fn options(env: &Value) -> DecisionOptions {
    let given = env.as_object().into_iter().flatten();
    let given = given.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    load_settings(&ServeOptions::default(), &given.collect()).expect("settings of a case").decision
}

fn code_of(text: &str) -> Code {
    if text == "OK" { Code::Ok } else { Code::OverLimit }
}

fn check_status(status: &DescriptorStatus, expected: &Value, id: &str) {
    assert_eq!(status.code(), code_of(expected["code"].as_str().unwrap()), "{id}: {status:?}");
    assert_eq!(Some(status.limit_remaining.into()), expected["remaining"].as_u64(), "{id}: {status:?}");
    let told = status.current_limit.as_ref().map(|limit| {
        let unit = Unit::from_wire(limit.unit).unwrap().name();
        (u64::from(limit.requests_per_unit), unit, &*limit.name)
    });
    let expected_limit = Some(&expected["limit"]).filter(|limit| !limit.is_null()).map(|limit| {
        let name = limit.get("name").map_or("", |name| name.as_str().unwrap());
        (limit["requestsPerUnit"].as_u64().unwrap(), limit["unit"].as_str().unwrap(), name)
    });
    assert_eq!(told, expected_limit, "{id}: {status:?}");
    let reset = status.duration_until_reset.map(|reset| reset.seconds);
    assert_eq!(reset.is_some(), told.is_some(), "{id}: {status:?}");
    if let Some(within) = expected["resetWithin"].as_array() {
        let within = within[0].as_i64().unwrap()..=within[1].as_i64().unwrap();
        assert!(within.contains(&reset.unwrap()), "{id}: {status:?}");
    }
}

/// A header is a text or a range.
fn check_headers(response: &RateLimitResponse, expect: &Value, id: &str) {
    let Some(headers) = expect["headers"].as_object() else {
        return;
    };
    assert_eq!(headers.len(), response.response_headers_to_add.len(), "{id}");
    for header in &response.response_headers_to_add {
        match &headers[&header.key] {
            Value::Array(range) => {
                let range = range[0].as_i64().unwrap()..=range[1].as_i64().unwrap();
                assert!(range.contains(&header.value.parse().unwrap()), "{id}: {header:?}");
            }
            text => assert_eq!(*text, *header.value, "{id}: {header:?}"),
        }
    }
}
