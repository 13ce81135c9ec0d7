//! The files of `packaging/`, read as their programs would read them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_common::testing::until;
use tollgate_test_servers::redis::{Redis, redis_is_installed};

use crate::client::Service;

fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name);
    fs::read_to_string(path).expect("a file of the repository")
}

/// The store of replicas. A drop of this value ends its server.
struct Store {
    url: String,
    is_there: bool,
    _server: Option<Redis>,
    _folder: TempDir,
}

impl Store {
    /// A Redis, as the manifest has one; without the program a file. A program without that engine
    /// starts without its store, and says so.
    fn start() -> Store {
        let folder = tempfile::tempdir().expect("a folder");
        let server = (cfg!(feature = "redis") && redis_is_installed())
            .then(|| Redis::start(&[]).unwrap_or_else(|error| panic!("{error}")));
        let file = || format!("sqlite:{}", folder.path().join("counts").display());
        let (url, is_there) = match &server {
            Some(server) => (server.url(), true),
            None if cfg!(feature = "sqlite") => (file(), true),
            None => ("redis://127.0.0.1:1".to_owned(), false),
        };
        Store { url, is_there, _server: server, _folder: folder }
    }
}

/// A replica of the service, as the manifest starts it: with its options, its variables and its map
/// of files. Its minute is a year, so that no window ends under a test.
fn replica(store: &Store) -> Service {
    let manifest = packaged("kubernetes.yaml");
    let (_, map) = manifest.split_once("  edge.yaml: |\n").expect("a map of files");
    let (map, _) = map.split_once("---").expect("another document");
    let folder = tempfile::tempdir().expect("a folder");
    let lines = map.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line)));
    let rules = lines.collect::<String>().replace("unit: minute", "unit: year");
    fs::write(folder.path().join("edge.yaml"), rules).expect("it is written");
    let args = manifest.lines().find_map(|line| line.trim().strip_prefix("args: [serve, /etc/tollgate, "));
    assert_eq!(
        args,
        Some("--admin, \"0.0.0.0:6070\", --admin-public]"),
        "`Service::start` gives the address"
    );
    // A restart of both replicas has one that is ready at each time.
    let (_, pods) = manifest.split_once("kind: Deployment").expect("a Deployment");
    for part in ["replicas: 2", "maxUnavailable: 0", "kind: PodDisruptionBudget", "path: /readyz"] {
        assert!(pods.contains(part), "{part}");
    }
    let (_, variables) = pods.split_once("env:").expect("variables");
    for part in ["name: TOLLGATE_STORE\n", "secretKeyRef:", "{name: TOLLGATE_STORE_SHARE, value: \"0.5\"}"] {
        assert!(variables.contains(part), "{part}");
    }
    // The deadline is for machines that are busy.
    let options = ["--admin-public", "--store-deadline", "10s"];
    let variables = [("TOLLGATE_STORE", &*store.url), ("TOLLGATE_STORE_SHARE", "0.5")];
    let mut service =
        Service::start(folder.path(), &options, &variables).unwrap_or_else(|error| panic!("{error}"));
    service.folder = Some(folder);
    // The tables of an engine may come after the first line.
    until("answered by the store", || {
        service.http(true, "GET", "/explain?domain=edge&descriptor=remote_address=probe", None);
        let page = service.http(true, "GET", "/metrics", None);
        let told = page["body"].as_str().expect("text");
        !store.is_there || !told.contains("tollgate_store_calls_total{outcome=\"answered\"} 0\n")
    });
    service
}

fn request() -> Value {
    json!({"domain": "edge", "descriptors": [{"entries": [{"key": "remote_address", "value": "a"}]}]})
}

#[test]
fn two_replicas_of_the_manifest_have_one_count() {
    let store = Store::start();
    let replicas = [replica(&store), replica(&store)];
    if !store.is_there {
        println!("left out: the count, for want of redis-server or the feature sqlite");
        return;
    }
    for (turn, replica) in replicas.iter().cycle().take(6).enumerate() {
        let answer = replica.should_rate_limit(&request());
        assert_eq!(answer["statuses"][0]["remaining"], 599 - turn, "{answer}");
    }
}

#[test]
fn the_manifest_serves_and_its_probes_are_answered() {
    let store = Store::start();
    let service = replica(&store);
    assert_eq!(service.should_rate_limit(&request())["code"], "OK");
    for probe in ["/readyz", "/healthz"] {
        assert_eq!(service.http(true, "GET", probe, None)["status"], 200, "{probe}");
    }
}

#[test]
fn each_metric_of_the_dashboard_and_of_replicas_is_told() {
    let store = Store::start();
    let service = replica(&store);
    service.should_rate_limit(&request());
    let page = service.http(true, "GET", "/metrics", None);
    let told = page["body"].as_str().expect("text");
    let dashboard: Value = serde_json::from_str(&packaged("dashboard.json")).expect("JSON");
    let mut names = HashSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let words =
                target["expr"].as_str().expect("text").split(|c: char| c != '_' && !c.is_alphanumeric());
            let metrics =
                words.filter(|word| word.starts_with("ratelimit_") || word.starts_with("tollgate_"));
            names.extend(metrics.map(str::to_owned));
        }
    }
    let page = include_str!("../../README.md").lines();
    let of_table = page.filter_map(|line| line.strip_prefix("| `tollgate_")?.split(['`', '{']).next());
    names.extend(of_table.map(|name| format!("tollgate_{name}")));
    assert_eq!(names.len(), 18);
    for name in names {
        let is_told = |line: &str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with([' ', '{']));
        assert!(told.lines().any(is_told), "no {name} in\n{told}");
    }
}
