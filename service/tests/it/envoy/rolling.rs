//! Two replicas behind Envoy that are stopped and started in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use http_body_util::Empty;
use hyper::Request;
use serde_json::Value;

use super::Edge;
use crate::client::Service;
use tollgate_common::testing::until;
use tollgate_testing::size;

/// Each replica is stopped and started again, in turn, until enough requests have been answered.
#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn a_rolling_restart_of_two_replicas_fails_no_request() {
    let options = ["--shadow", "--lame-duck", "1s"];
    let [granted, refused] = rolling_restart(&options);
    assert!(granted >= size(4_000, 100_000) && refused == 0, "{granted}, {refused}");
}

/// The replicas have one limit, whichever is asked, and whichever stops.
#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn a_rolling_restart_of_two_replicas_on_a_store_grants_no_more_than_the_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("counts").display());
    let [granted, refused] =
        rolling_restart(&["--lame-duck", "1s", "--store", &url, "--store-deadline", "5s"]);
    assert!(refused > 0, "{granted} granted, and none refused");
    assert!((LIMIT - LIMIT / 50..=LIMIT).contains(&granted), "{granted} of {LIMIT}");
}

/// The limit of an address in `examples/edge.yaml`.
const LIMIT: usize = 600;

/// Restarts two replicas behind Envoy in turn under load. Returns the requests that were granted
/// and refused: there is no other answer.
fn rolling_restart(options: &[&str]) -> [usize; 2] {
    let mut other = Service::of_the_example(options);
    let other_port = other.grpc().port();
    let mut edge = Edge::start_with(options, |text| {
        let of = |port: u16| {
            format!(
                "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}"
            )
        };
        let checks = "health_checks: [{timeout: 5s, interval: 0.1s, no_traffic_interval: 0.1s, unhealthy_threshold: 1, \
                      healthy_threshold: 1, grpc_health_check: {}}]";
        let changes = [
            (of(8081), format!("{}, {}", of(8081), of(other_port))),
            ("    - name: tollgate\n".to_owned(), format!("    - name: tollgate\n      {checks}\n")),
            ("failure_mode_deny: false".to_owned(), "failure_mode_deny: true".to_owned()),
            ("timeout: 0.1s".to_owned(), "timeout: 10s".to_owned()),
        ];
        changes.iter().fold(text, |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        })
    });
    let wanted = size(4_000, 100_000);
    let (answered, is_over) =
        (Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (client, address) = (edge.client.clone(), edge.address);
            let (answered, is_over) = (answered.clone(), is_over.clone());
            edge.runtime.spawn(async move {
                while !is_over.load(Relaxed) {
                    let request = Request::get(format!("http://{address}/")).body(Empty::new());
                    let response = client.request(request.expect("a request")).await.expect("a response");
                    let is_refused = response.status() == 429;
                    assert!(is_refused || response.status() == 200, "{}", response.status());
                    answered[usize::from(is_refused)].fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let sum = || answered.iter().map(|count| count.load(Relaxed)).sum::<usize>();
    while sum() < wanted {
        for replica in [&mut edge.service, &mut other] {
            restart(replica, options);
            let ends_early = clients.iter().any(|client| client.is_finished());
            assert!(!ends_early, "a request was not answered by a decision");
        }
    }
    is_over.store(true, Relaxed);
    for client in clients {
        edge.runtime.block_on(client).expect("each request is answered by a decision");
    }
    [answered[0].load(Relaxed), answered[1].load(Relaxed)]
}

/// Stops a replica, starts another one at its address, and waits until Envoy asks it.
fn restart(replica: &mut Service, options: &[&str]) {
    let at = replica.grpc().to_string();
    assert_eq!(replica.stop("-TERM"), Some(0), "each call is answered");
    *replica = Service::of_the_example(&[options, &["--grpc", &at]].concat());
    let is_asked = |(name, hits): (&String, &Value)| name.ends_with(".total_hits") && *hits != 0;
    until("asked by Envoy", || replica.counters().as_object().expect("names").iter().any(is_asked));
}
