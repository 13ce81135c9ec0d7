//! Envoy in front of a service whose rules come from a control plane.

use serde_json::{Value, json};

use super::Edge;
use crate::client::Service;
use crate::control_plane::ControlPlane;

/// Returns the limits of `examples/edge.yaml` that the test asks about.
fn edge(logins: u32) -> [Value; 1] {
    let limit = |requests: u32| json!({"unit": "year", "requests_per_unit": requests});
    let descriptors = json!([
        {"key": "masked_remote_address", "rate_limit": limit(1_000_000)},
        {"key": "path", "value": "/login", "rate_limit": limit(logins)},
    ]);
    [json!({"name": "edge", "domain": "edge", "descriptors": descriptors})]
}

#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn the_limits_of_a_control_plane_hold_and_change_while_requests_run() {
    let plane = ControlPlane::start();
    plane.put("1", &edge(3));
    let at = plane.address.to_string();
    let service = Service::of_paths(&[], &["--xds-server", &at], &[]);
    let service = service.unwrap_or_else(|error| panic!("{error}"));
    // A busy machine shall let none pass.
    let edge_proxy = Edge::start_on(service, |text| text.replace("timeout: 0.1s", "timeout: 10s"));
    assert_eq!(edge_proxy.statuses("/login", &[]), [200, 200, 200, 429]);
    let mut running = Vec::new();
    for turn in 0..50 {
        running.extend([(); 8].map(|()| edge_proxy.runtime.spawn(edge_proxy.request("/", &[]))));
        plane.update(&format!("turn {turn}"), &edge(3 + turn % 2));
    }
    plane.update("last", &edge(10));
    for one in running {
        assert_eq!(edge_proxy.runtime.block_on(one).expect("no panic").0, 200);
    }
    // Three were granted and one refused: the counts have not moved.
    let statuses: [u16; 8] = edge_proxy.statuses("/login", &[]);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 429, 429]);
}
