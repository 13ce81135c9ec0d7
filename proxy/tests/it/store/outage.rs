//! The server of the store is killed and started again, or the file of SQLite is locked for a time.

use std::time::{Duration, Instant};

use super::engines::{Server, others, servers};
use crate::support::{Connection, PATIENCE, Proxy, until};

const DEADLINE: Duration = Duration::from_millis(50);
/// A busy machine may delay a response, but not each of twenty by this time.
const DELAY: Duration = Duration::from_millis(500);

/// Starts a proxy whose store may be down. The first calls of a busy machine may come too late.
fn start(server: &Server, policy: &str) -> Proxy {
    let store = format!("--store {} --store-mode exact --store-on-outage {policy}", server.url());
    Proxy::start(&format!("--limit 1000000/s {store}"))
}

/// Reads the log up to a line with this text.
fn await_line(proxy: &Proxy, part: &str) -> String {
    std::iter::repeat_with(|| proxy.error()).find(|line| line.contains(part)).expect("it goes on")
}

/// Waits until the store decides.
fn await_store(proxy: &Proxy, client: &mut Connection, what: &str) {
    let by_store = "tollgate_shared_decisions_total{policy=\"default\",source=\"store\"}";
    until(&format!("decided by the store, {what}"), || {
        let before = proxy.metric(by_store);
        let status = client.get("/").status;
        proxy.metric(by_store) > before && status == 200
    });
}

#[test]
fn each_policy_decides_while_the_store_is_away_and_no_longer() {
    for mut server in servers() {
        let name = server.name();
        let policies = [("deny", 503), ("allow", 200), ("local", 200)];
        let proxies = policies.map(|(policy, _)| start(&server, policy));
        let mut clients = proxies.each_ref().map(|proxy| proxy.connect());
        for (proxy, client) in proxies.iter().zip(&mut clients) {
            await_store(proxy, client, name);
        }
        server.take_away();
        for ((proxy, client), (policy, expected)) in proxies.iter().zip(&mut clients).zip(policies) {
            // A request that is on its way may still be answered by the store.
            let begun = Instant::now();
            while proxy.metric("tollgate_store_down{policy=\"default\"}") == 0 {
                let status = client.get("/").status;
                assert!(status == expected || status == 200, "{name}, {policy}: {status}");
                assert!(begun.elapsed() < PATIENCE, "{name}, {policy}: the outage is not seen");
            }
            let mut fastest = PATIENCE;
            for _ in 0..20 {
                let asked = Instant::now();
                let response = client.get("/");
                fastest = fastest.min(asked.elapsed());
                assert_eq!(response.status, expected, "{name}, {policy}");
                if expected == 503 {
                    assert_eq!(response.header("retry-after"), Some("1"));
                    let line = "The limit of 1000000/s burst 1000000 is not available; try again in 1 s.\n";
                    assert_eq!(response.body, line);
                }
            }
            assert!(fastest < DEADLINE + DELAY, "{name}, {policy}: {fastest:?}");
            let line = await_line(proxy, "the store does not answer");
            assert!(line.contains("WARN") && line.to_lowercase().contains(policy), "{name}: {line}");
            assert!(proxy.metric("tollgate_store_outages_total{policy=\"default\"}") > 0, "{name}");
            let event = proxy.later_event().to_string();
            assert!(event.contains("\"down\":true"), "{name}: {event}");
        }
        server.bring_back();
        for (proxy, client) in proxies.iter().zip(&mut clients) {
            await_store(proxy, client, name);
            assert_eq!(proxy.metric("tollgate_store_down{policy=\"default\"}"), 0, "{name}");
            await_line(proxy, "the store answers again");
        }
    }
}

#[test]
fn a_share_of_the_limit_is_granted_without_the_store() {
    for mut server in others() {
        server.take_away();
        let proxy = Proxy::start(&format!("--limit 8/h --store {} --store-share 0.25", server.url()));
        let statuses = proxy.statuses("/");
        assert_eq!(statuses, [200, 200, 429, 429], "{}", server.name());
    }
}

/// Its tables are made once the server is there.
#[test]
fn a_proxy_starts_without_its_store_and_finds_it_later() {
    for mut server in others() {
        let name = server.name();
        server.take_away();
        let proxy = start(&server, "deny");
        let mut client = proxy.connect();
        assert_eq!(client.get("/").status, 503, "{name}");
        server.bring_back();
        await_store(&proxy, &mut client, name);
    }
}
