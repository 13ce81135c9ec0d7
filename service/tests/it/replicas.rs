// promise: replicas
//! Two replicas on one store: its failures, its restart, and the keys of envoyproxy/ratelimit.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tollgate_test_servers::any::{AnyServer, Engine};
use tollgate_test_servers::net::{Cut, Direction, Proxy};
#[cfg(feature = "redis")]
use tollgate_test_servers::wire::Reply;

#[cfg(feature = "redis")]
use crate::client::Caller;
use crate::client::Service;
use tollgate_common::testing::until;

/// The engines whose drivers this build has.
pub(crate) const ENGINES: &[Engine] = &[
    #[cfg(feature = "redis")]
    Engine::Redis,
    #[cfg(feature = "postgres")]
    Engine::Postgres,
    #[cfg(feature = "mysql")]
    Engine::MariaDb,
];

/// A limit whose window ends under no test, and a text.
const RULES: &str = "domain: d
descriptors:
- {key: year, rate_limit: {unit: year, requests_per_unit: 40}}
- {key: busy, rate_limit: {unit: year, requests_per_unit: 3000}}
- {key: text, rate_limit: {limit: 40/7d}}
";
const LIMIT: usize = 40;

/// Two replicas, each with half of the limits while the store does not answer.
struct Pair {
    replicas: Vec<Service>,
    _folder: tempfile::TempDir,
}

impl Pair {
    fn start(store: &str, options: &[&str]) -> Pair {
        let folder = tempfile::tempdir().expect("a folder");
        let is_envoy = options.contains(&"envoy");
        let rules = RULES.lines().filter(|line| !is_envoy || !line.contains("limit: 40/7d"));
        let rules = rules.collect::<Vec<_>>().join("\n");
        fs::write(folder.path().join("d.yaml"), rules).expect("it is written");
        let own = ["--store", store, "--store-share", "0.5", "--lame-duck", "0s", "--drain", "1s"];
        let options = [&own[..], options].concat();
        let start =
            |_| Service::start(folder.path(), &options, &[]).unwrap_or_else(|error| panic!("{error}"));
        Pair { replicas: (0..2).map(start).collect(), _folder: folder }
    }

    /// Asks the replicas in turn. Each answer is a decision. Returns the number of those granted.
    fn ask(&mut self, key: &str, value: &str, requests: usize) -> usize {
        let entries = json!({"entries": [{"key": key, "value": value}]});
        let request = json!({"domain": "d", "descriptors": [entries]});
        let mut granted = 0;
        for _ in 0..requests {
            self.replicas.rotate_left(1);
            let answer = self.replicas[0].should_rate_limit(&request);
            let code = answer["code"].as_str().unwrap_or_else(|| panic!("no decision: {answer}"));
            granted += usize::from(code == "OK");
        }
        granted
    }

    fn metric(&self, name: &str) -> u64 {
        self.replicas.iter().map(|service| metric(service, name)).sum()
    }

    /// Waits until both replicas know that the store answers, or that it does not.
    fn await_store(&self, is_down: bool) {
        until("known", || self.metric("tollgate_store_down ") == if is_down { 2 } else { 0 });
    }
}

/// Returns the sum of the series of a name.
fn metric(service: &Service, name: &str) -> u64 {
    let page = service.http(true, "GET", "/metrics", None);
    let lines = page["body"].as_str().expect("text").lines();
    lines.filter_map(|line| line.strip_prefix(name)?.split(' ').next_back()?.parse::<u64>().ok()).sum()
}

/// The failures of a store, and whether the counts outlive them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    Frozen,
    Killed,
    /// An answer takes 1 s, and the deadline is 60 ms.
    Slow,
    Cut,
    HalfOpen,
    AnswersLost,
}
const FAILURES: [Failure; 6] =
    [Failure::Frozen, Failure::Killed, Failure::Slow, Failure::Cut, Failure::HalfOpen, Failure::AnswersLost];

/// Before, during and after each failure, each answer is a decision, and a limit holds: the
/// replicas have half of the rest each. A Redis that was killed is empty.
#[test]
fn no_failure_of_a_store_is_an_error_or_grants_more_than_the_limit() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for engine in ENGINES {
        let Some(mut server) = engine.start().expect("the server starts") else { continue };
        let proxy = runtime.block_on(Proxy::start(server.port())).expect("a free port");
        let url = server.url().replace(&server.port().to_string(), &proxy.port().to_string());
        for (number, failure) in FAILURES.into_iter().enumerate() {
            let name = format!("{} {failure:?}", engine.name());
            let mut pair =
                Pair::start(&url, &["--store-name", &format!("f{number}"), "--store-deadline", "60ms"]);
            pair.await_store(false);
            // The first calls of a store make connections and tables.
            until("answered by the store", || {
                pair.ask("year", "first", 2);
                let before = pair.metric("tollgate_serve_without_store_total ");
                pair.ask("year", "first", 2);
                pair.metric("tollgate_serve_without_store_total ") == before
            });
            let before = pair.ask("year", "ann", 10) + pair.ask("text", "ann", 10);
            assert_eq!(before, 20, "{name}");
            begin(failure, &mut server, &proxy);
            let (during, of_text) = (pair.ask("year", "ann", LIMIT), pair.ask("text", "ann", LIMIT));
            if failure != Failure::Cut {
                assert!(pair.metric("tollgate_serve_without_store_total ") > 0, "{name}");
            }
            assert!((10..=30).contains(&during), "{name}: {during} of 30");
            assert!((10..=30).contains(&of_text), "{name}: {of_text} of 30");
            end(failure, &mut server, &proxy);
            until("the store answers", || {
                pair.ask("year", "other", 2);
                pair.metric("tollgate_store_down ") == 0
            });
            // It is told the hits that were granted without it. A server that was killed may have
            // lost the earlier ones.
            let told = if let Failure::Killed = failure { during } else { 10 + during };
            until(&format!("told: {name}"), || hits(&pair.replicas[0], "ann") >= told);
            let in_time = pair.metric("tollgate_serve_without_store_total ");
            let after = pair.ask("year", "ann", 2 * LIMIT);
            // On a busy machine a call may miss the deadline: that is an outage of its own.
            let late = pair.metric("tollgate_serve_without_store_total ") - in_time;
            let most = match (failure, engine.name()) {
                (Failure::Killed, "Redis") => LIMIT,
                // Its last commits before a crash are lost, unless `synchronous_commit` is on.
                (Failure::Killed, "PostgreSQL") => LIMIT - during,
                _ => 30 - during,
            };
            assert!(after <= most + late as usize, "{name}: {after} of {most} after {during}, {late} late");
        }
    }
}

fn begin(failure: Failure, server: &mut AnyServer, proxy: &Proxy) {
    match failure {
        Failure::Frozen => server.process().freeze().expect("it stops"),
        Failure::Killed => server.process().kill(),
        Failure::Slow => proxy.delay(Direction::Answers, Duration::from_secs(1)),
        Failure::Cut => proxy.cut(Cut::Reset),
        Failure::HalfOpen => {
            proxy.cut(Cut::HalfOpen);
            proxy.lose(Direction::Answers, true);
        }
        Failure::AnswersLost => proxy.lose(Direction::Answers, true),
    }
}

fn end(failure: Failure, server: &mut AnyServer, proxy: &Proxy) {
    match failure {
        Failure::Frozen => server.process().thaw().expect("it goes on"),
        Failure::Killed => server.restart().expect("it starts"),
        Failure::Slow => proxy.delay(Direction::Answers, Duration::ZERO),
        Failure::Cut => {}
        Failure::HalfOpen | Failure::AnswersLost => {
            proxy.lose(Direction::Answers, false);
            // The bytes that are lost leave no connection of use.
            proxy.cut(Cut::Reset);
        }
    }
}

/// A service starts without its store, decides by its share, and takes the store when it is there.
#[test]
fn a_service_starts_without_its_store() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for engine in ENGINES {
        let Some(server) = engine.start().expect("the server starts") else { continue };
        let proxy = runtime.block_on(Proxy::start(1)).expect("a free port");
        let url = server.url().replace(&server.port().to_string(), &proxy.port().to_string());
        let mut pair = Pair::start(&url, &[]);
        assert_eq!(pair.ask("year", "ann", LIMIT), LIMIT, "{}: each replica has a half", engine.name());
        assert_eq!(pair.ask("year", "ann", 10), 0);
        let ready = pair.replicas[0].http(true, "GET", "/readyz", None);
        assert_eq!(
            (&ready["status"], &ready["body"]),
            (&json!(200), &json!("ready, and the store does not answer\n"))
        );
        proxy.switch(server.port());
        until("the store answers", || {
            pair.ask("year", "other", 2);
            pair.metric("tollgate_store_down ") == 0
        });
        // It was told the hits that were granted: twice, if an answer was late.
        until("told", || hits(&pair.replicas[0], "ann") >= LIMIT);
        assert_eq!(pair.ask("year", "ann", 10), 0);
        assert_eq!(pair.replicas[0].http(true, "GET", "/readyz", None)["body"], "ready\n");
    }
}

/// Returns the hits of a value of the year, as the page of the operator tells them.
fn hits(service: &Service, value: &str) -> usize {
    let page = service.http(true, "GET", &format!("/explain?domain=d&descriptor=year={value}"), None);
    let text = page["body"].as_str().expect("text");
    let (before, _) = text.split_once(" hits of 40").unwrap_or_else(|| panic!("no hits in {text}"));
    before.rsplit(' ').next().expect("a word").parse().expect("a number")
}

/// Leases go back, and hits are told, when a replica ends.
#[test]
fn a_replica_that_ends_leaves_its_counts_in_the_store() {
    for engine in ENGINES {
        let Some(server) = engine.start().expect("the server starts") else { continue };
        let url = server.url();
        let mut pair = Pair::start(&url, &["--store-deadline", "5s"]);
        assert_eq!(pair.ask("busy", "ann", 1_000), 1_000, "{}", engine.name());
        // The connections of these calls answer no PING between the calls, so some are cut.
        pair.replicas.iter_mut().for_each(|replica| assert!(replica.stop("-TERM").is_some()));
        let mut later = Pair::start(&url, &["--store-deadline", "5s"]);
        assert_eq!(later.ask("busy", "ann", 2_500), 2_000, "{}", engine.name());
    }
}

/// Two replicas in the layout of envoyproxy/ratelimit beside a program that does the same as that
/// service, on one Redis: one count, whichever counts.
#[test]
#[cfg(feature = "redis")]
fn the_keys_of_envoy_are_shared_with_a_program_that_writes_them() {
    let Some(server) = Engine::Redis.start().expect("the server starts") else { return };
    let AnyServer::Redis(redis) = &server else { unreachable!("as above") };
    let mut pair = Pair::start(&server.url(), &["--store-layout", "envoy", "--store-deadline", "5s"]);
    // The year begins at a multiple of 365 days since 1970.
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let year = 365 * 86_400;
    let key = format!("d_year_ann_{}", now / year * year);
    let incr = || match redis.command(&["INCRBY", &key, "1"]).expect("an answer") {
        Reply::Number(count) => count,
        other => panic!("{other:?}"),
    };
    let (mut granted, mut own) = (0, 0);
    for request in 0..60 {
        granted += pair.ask("year", "ann", 1);
        if request % 3 == 0 {
            own += 1;
            assert_eq!(incr(), request + 1 + own);
        }
    }
    assert_eq!(granted, 30, "40 in all, of which the program has 10 before the limit");
    let back =
        json!({"entries": [{"key": "year", "value": "ann"}], "hitsAddend": "5", "isNegativeHits": true});
    pair.replicas[0].should_rate_limit(&json!({"domain": "d", "descriptors": [back]}));
    assert_eq!(incr(), 76, "80 less 5, and one more");
    let ttl = redis.command(&["TTL", &key]).expect("an answer");
    assert!(matches!(ttl, Reply::Number(seconds) if seconds > 0), "{ttl:?}");
    assert_eq!(hits(&pair.replicas[0], "ann"), 76);
    let cleared = pair.replicas[1].http(true, "DELETE", "/count?domain=d&descriptor=year=ann", None);
    assert_eq!((&cleared["status"], incr()), (&json!(200), 1), "{cleared}");
    let other = redis.command(&["KEYS", "d_*"]).expect("an answer");
    assert!(matches!(&other, Reply::List(keys) if keys.len() == 1), "{other:?}");
}

/// The commands read the same store as the service.
#[test]
#[cfg(feature = "redis")]
fn the_commands_tell_the_count_and_what_cannot_be_shared() {
    let Some(server) = Engine::Redis.start().expect("the server starts") else { return };
    let mut pair = Pair::start(&server.url(), &["--store-deadline", "5s"]);
    assert_eq!(pair.ask("year", "ann", 7), 7);
    let path = pair._folder.path().to_str().expect("ASCII").to_owned();
    let run = |words: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(words)
            .env_clear()
            .output()
            .expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).expect("text"))
    };
    let url = server.url();
    let (is_right, told) =
        run(&["explain", &path, "--store", &url, "--store-deadline", "5s", "--domain", "d", "year=ann"]);
    assert!(is_right && told.contains("7 hits of 40") && told.contains("4:year3:ann"), "{told}");
    let (is_right, told) = run(&["check", &path, "--store", &url]);
    assert!(is_right, "{told}");
    let (is_right, told) = run(&["check", &path, "--store", &url, "--store-layout", "envoy"]);
    assert!(!is_right && told.contains("d.yaml:5:") && told.contains("no `limit`"), "{told}");
    for (store, why) in [
        ("redis:/x", "expected sqlite:PATH"),
        ("memcached://x", "expected sqlite:PATH"),
        ("redis://user:secret@x:y/", "--store"),
    ] {
        let (is_right, told) = run(&["check", &path, "--store", store]);
        assert!(!is_right && told.contains(why) && !told.contains("secret"), "{told}");
    }
}

/// The figures of a service over a store, on this machine: `cargo test --release -p tollgate-server
/// --test it -- --ignored --nocapture figures`. The ratios are those of one run.
#[test]
#[cfg(feature = "redis")]
#[ignore = "prints figures; it asserts none"]
fn figures_of_a_service_over_a_store() {
    let Some(mut server) = Engine::Redis.start().expect("the server starts") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let rules = "domain: d\ndescriptors:\n- {key: hot, rate_limit: {unit: second, requests_per_unit: 1000000}}\n\
                 - {key: many, rate_limit: {unit: second, requests_per_unit: 1000000}}\n";
    fs::write(folder.path().join("d.yaml"), rules).expect("it is written");
    let url = server.url();
    let alone = Service::start(folder.path(), &[], &[]).unwrap_or_else(|error| panic!("{error}"));
    let leased = Service::start(folder.path(), &["--store", &url], &[]);
    let leased = leased.unwrap_or_else(|error| panic!("{error}"));
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let calls = |service: &Service, number: u64| {
        let before = service.processor_time();
        runtime.block_on(async {
            let mut callers = tokio::task::JoinSet::new();
            for _ in 0..8 {
                let address = service.grpc();
                callers.spawn(async move {
                    let mut caller = Caller::connect(address).await;
                    let entries = json!({"entries": [{"key": "hot", "value": "ann"}]});
                    let request = json!({"domain": "d", "descriptors": [entries]});
                    for _ in 0..number / 8 {
                        assert_eq!(caller.should_rate_limit(&request).await["code"], "OK");
                    }
                });
            }
            callers.join_all().await;
        });
        (service.processor_time() - before) / number as f64 * 1e6
    };
    calls(&alone, 8_000);
    calls(&leased, 8_000);
    let mut ratios: Vec<f64> = (0..9)
        .map(|_| {
            let (own, shared) = (calls(&alone, 24_000), calls(&leased, 24_000));
            println!("a call: {own:.1} us without a store, {shared:.1} us leased");
            shared / own
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("leased / without a store: {:.2} ({:.2} to {:.2})", ratios[4], ratios[0], ratios[8]);

    // The store is frozen for 5 s, at 1,000 calls a second.
    let latencies = |seconds: u64| {
        runtime.block_on(async {
            let mut connections = Vec::new();
            for _ in 0..16 {
                connections
                    .push(std::sync::Arc::new(tokio::sync::Mutex::new(Caller::connect(leased.grpc()).await)));
            }
            let (begin, mut calls) = (std::time::Instant::now(), tokio::task::JoinSet::new());
            for number in 0..seconds * 1_000 {
                tokio::time::sleep_until((begin + Duration::from_millis(number)).into()).await;
                let caller = connections[number as usize % 16].clone();
                calls.spawn(async move {
                    let entries = json!({"entries": [{"key": "hot", "value": "ann"}]});
                    let request = json!({"domain": "d", "descriptors": [entries]});
                    let mut caller = caller.lock().await;
                    let begin = std::time::Instant::now();
                    assert!(caller.should_rate_limit(&request).await["code"].is_string());
                    begin.elapsed()
                });
            }
            let mut latencies = calls.join_all().await;
            latencies.sort();
            latencies
        })
    };
    latencies(2);
    let calm = latencies(5);
    let bound = calm[calm.len() - 1 - calm.len() / 1_000] * 2;
    let slow = |latencies: &[Duration]| latencies.iter().filter(|took| **took > bound).count();
    server.process().freeze().expect("it stops");
    let frozen = latencies(5);
    server.process().thaw().expect("it goes on");
    println!(
        "twice the calm p99.9 is {bound:?}: {} calls are longer in 5 calm seconds, {} while the store is frozen",
        slow(&calm),
        slow(&frozen)
    );

    // Keys that are asked for once.
    let before = leased.resident();
    const KEYS: u64 = 100_000;
    runtime.block_on(async {
        let mut callers = tokio::task::JoinSet::new();
        for part in 0..8 {
            let address = leased.grpc();
            callers.spawn(async move {
                let mut caller = Caller::connect(address).await;
                for number in 0..KEYS / 8 {
                    let entries = json!({"entries": [{"key": "many", "value": format!("{part}-{number}")}]});
                    let request = json!({"domain": "d", "descriptors": [entries]});
                    caller.should_rate_limit(&request).await;
                }
            });
        }
        callers.join_all().await;
    });
    println!("{:.0} bytes a key", (leased.resident() - before) * (1 << 20) as f64 / KEYS as f64);
    until("forgotten", || metric(&leased, "tollgate_serve_keys_known ") == 0);
    println!("no key is known a while after");
}
