//! The service under load. `FULL` in the environment gives each test its full size, which is
//! a step of `scripts/verify-full`.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::client::{Caller, Service};
use tollgate_common::testing::{Authority, Folder, open_any};
use tollgate_testing::size;

/// Limits that no test reaches, of which each has the name of the version.
fn rules(version: u64) -> String {
    let limit = format!("{{unit: year, requests_per_unit: {}, name: v{version}}}", 1_000_000_000 + version);
    format!("domain: d\ndescriptors:\n- {{key: a, rate_limit: {limit}}}\n- {{key: b, rate_limit: {limit}}}\n")
}

fn request(value: &str) -> Value {
    let of = |key| json!({"entries": [{"key": key, "value": value}]});
    json!({"domain": "d", "descriptors": [of("a"), of("b")]})
}

/// Asks until the stop. Each answer has the limits of one version, not older than that of the
/// answer before, and the count of all calls so far. Returns the number of the calls.
async fn ask_until(stop: &AtomicBool, address: SocketAddr, value: &str) -> u64 {
    let (mut caller, request) = (Caller::connect(address).await, request(value));
    let (mut calls, mut newest) = (0, 0);
    while !stop.load(Relaxed) {
        let answer = caller.should_rate_limit(&request).await;
        calls += 1;
        let limit = answer["statuses"][0]["limit"]["requestsPerUnit"].as_u64().expect("a limit");
        let version = limit - 1_000_000_000;
        assert!(version >= newest, "{version} after {newest}");
        newest = version;
        for status in [&answer["statuses"][0], &answer["statuses"][1]] {
            let told = (&status["limit"]["requestsPerUnit"], &status["limit"]["name"]);
            assert_eq!(told, (&json!(limit), &json!(format!("v{version}"))), "{answer}");
            assert_eq!(status["remaining"], limit - calls, "{answer}");
        }
    }
    calls
}

/// The end of the load, also where a test panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Puts a folder of rules behind the link, as a ConfigMap is mounted.
fn link(folder: &Path, version: u64) {
    let of_version = folder.join(format!("..{version}"));
    fs::create_dir(&of_version)
        .and_then(|()| fs::write(of_version.join("a.yaml"), rules(version)))
        .expect("written");
    let before = fs::read_link(folder.join("..data"));
    symlink(&of_version, folder.join("..new")).expect("a link");
    fs::rename(folder.join("..new"), folder.join("..data")).expect("moved");
    if let Ok(before) = before {
        fs::remove_dir_all(before).expect("removed");
    }
}

#[test]
fn reloads_under_load_mix_no_answer_and_lose_no_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, file) = (folder.path(), folder.path().join("a.yaml"));
    link(path, 0);
    symlink("..data/a.yaml", &file).expect("a link");
    let service = Service::start(path, &[], &[]).unwrap_or_else(|error| panic!("{error}"));
    let (stop, address, runtime) = (AtomicBool::new(false), service.grpc(), Runtime::new().expect("threads"));
    let calls: u64 = thread::scope(|scope| {
        let (stop, runtime) = (&stop, &runtime);
        let clients =
            ["x", "y"].map(|value| scope.spawn(move || runtime.block_on(ask_until(stop, address, value))));
        let ends = Ends(stop);
        for version in 1..=size(60, 10_000) as u64 {
            match version % 4 {
                0 => fs::write(&file, rules(version)).expect("written"),
                1 => {
                    fs::write(&file, rules(version).replace("unit: year", "unit: century")).expect("written")
                }
                // Half of a limit is no YAML.
                2 => fs::write(&file, &rules(version)[..60]).expect("written"),
                _ => link(path, version),
            }
            assert_eq!(service.reload(), matches!(version % 4, 0 | 3), "version {version}");
        }
        drop(ends);
        clients.into_iter().map(|client| client.join().expect("each answer is right")).sum()
    });
    let counters = service.counters();
    for name in ["a", "b"] {
        assert_eq!(counters[format!("rate_limit.d.{name}.total_hits")], calls, "{counters}");
    }
    assert!(calls > 0);
}

#[test]
fn many_connections_at_once_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a.yaml"), rules(0)).expect("written");
    let service = Service::start(folder.path(), &[], &[]).unwrap_or_else(|error| panic!("{error}"));
    // With 20,000 files of a process, each listener has 9,900 connections, and one address two
    // thirds of them.
    let (count, request) = (size(300, 6_600), request("x"));
    Runtime::new().expect("threads").block_on(async {
        let mut callers = Vec::new();
        for _ in 0..count {
            callers.push(Caller::connect(service.grpc()).await);
        }
        for calls in 0..2 {
            for (before, caller) in callers.iter_mut().enumerate() {
                let answer = caller.should_rate_limit(&request).await;
                let asked = calls * count + before + 1;
                assert_eq!(answer["statuses"][1]["remaining"], 1_000_000_000 - asked, "{answer}");
            }
        }
    });
}

#[test]
fn certificates_are_replaced_under_load() {
    let (folder, authorities) = (Folder::new(), [Authority::new(), Authority::new()]);
    let [old, new] = authorities.each_ref().map(Authority::der);
    let certificates = authorities.map(|authority| authority.sign("localhost"));
    let (chain, key) = certificates[0].write(&folder);
    folder.write("a.yaml", rules(0));
    let options = ["--tls-cert", &chain, "--tls-key", &key];
    let service = Service::start(folder.path("").as_ref(), &options, &[]);
    let service = service.unwrap_or_else(|error| panic!("{error}"));
    let (stop, address, runtime) = (AtomicBool::new(false), service.grpc(), Runtime::new().expect("threads"));
    let open = async |trusted: &[_]| Caller::over(open_any(trusted, address).await.expect("TLS")).await;
    let mut kept = runtime.block_on(open(std::slice::from_ref(&old)));
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            runtime.block_on(async {
                let (request, mut calls) = (request("x"), 0);
                while !stop.load(Relaxed) {
                    for caller in [&mut kept, &mut open(&[old.clone(), new.clone()]).await] {
                        calls += 1;
                        let answer = caller.should_rate_limit(&request).await;
                        assert_eq!(answer["statuses"][0]["remaining"], 1_000_000_000 - calls, "{answer}");
                    }
                }
            });
        });
        let ends = Ends(&stop);
        for turn in 0..size(10, 1_000) {
            let now = (turn + 1) % 2;
            certificates[now].write(&folder);
            assert!(service.reload());
            runtime.block_on(open(std::slice::from_ref([&old, &new][now])));
            // A key that cannot be read changes nothing.
            folder.write("key.pem", "");
            assert!(!service.reload());
            runtime.block_on(open(std::slice::from_ref([&old, &new][now])));
        }
        drop(ends);
        load.join().expect("each call is answered");
    });
}

#[test]
fn a_second_stop_signal_ends_at_once() {
    for (options, line) in [(["--lame-duck", "1h"], "accepting for another 1h"), (["--lame-duck", "0s"], "")]
    {
        let options = [&options[..], &["--drain", "1h"]].concat();
        let mut service = Service::of_the_example(&options);
        // The head of a call whose message does not come.
        let mut held = tollgate_common::testing::Frames::connect(service.grpc(), &[]);
        held.post(1);
        held.ping();
        service.signal("-TERM");
        match line {
            "" => {
                while held.next().expect("GOAWAY comes first").0 != tollgate_common::testing::frames::GONE {}
            }
            line => drop(service.line_with(line).expect("it goes on")),
        }
        assert_eq!(service.stop("-TERM"), Some(1), "{options:?}");
    }
}
