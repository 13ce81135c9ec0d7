//! The files of `packaging/`, read as their programs would read them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::Service;

fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name);
    fs::read_to_string(path).expect("a file of the repository")
}

/// The service, as the manifest starts it: with its options, its variables and its map of files.
fn of_the_manifest() -> Service {
    let manifest = packaged("kubernetes.yaml");
    let (_, map) = manifest.split_once("  edge.yaml: |\n").expect("a map of files");
    let (map, _) = map.split_once("---").expect("another document");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(
        folder.path().join("edge.yaml"),
        map.lines()
            .map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line)))
            .collect::<String>(),
    )
    .expect("it is written");
    let args = manifest.lines().find_map(|line| line.trim().strip_prefix("args: [serve, /etc/tollgate, "));
    assert_eq!(
        args,
        Some("--state, /var/lib/tollgate/state, --admin, \"0.0.0.0:6070\", --admin-public]"),
        "`Service::start` gives the address"
    );
    // Two processes at a time grant each limit twice, and a volume of the pod ends with it.
    assert!(manifest.contains("kind: StatefulSet") && !manifest.contains("maxSurge"));
    let (_, claim) = manifest.split_once("volumeClaimTemplates:").expect("a volume");
    assert!(
        claim.contains("{name: state}") && manifest.contains("{name: state, mountPath: /var/lib/tollgate}")
    );
    let state = folder.path().join("tollgate.state").display().to_string();
    let options = ["--admin-public", "--state", &state];
    let started = Service::start(folder.path(), &options, &[("TOLLGATE_STORE", "memory")]);
    started.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_manifest_serves_and_its_probes_are_answered() {
    let service = of_the_manifest();
    let request =
        json!({"domain": "edge", "descriptors": [{"entries": [{"key": "remote_address", "value": "a"}]}]});
    assert_eq!(service.should_rate_limit(&request)["statuses"][0]["remaining"], 599);
    for probe in ["/readyz", "/healthz"] {
        assert_eq!(service.http(true, "GET", probe, None)["status"], 200, "{probe}");
    }
}

#[test]
fn each_metric_of_the_dashboard_is_told() {
    let service = of_the_manifest();
    let request =
        json!({"domain": "edge", "descriptors": [{"entries": [{"key": "remote_address", "value": "a"}]}]});
    service.should_rate_limit(&request);
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
    assert_eq!(names.len(), 11);
    for name in names {
        let is_told = |line: &str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with([' ', '{']));
        assert!(told.lines().any(is_told), "no {name} in\n{told}");
    }
}
