//! Several upstreams.

use super::NO_LIMIT;
use super::process::{Proxy, recording_upstream, refusing, url};
use super::support::{await_count, count};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[test]
fn upstreams_take_turns() {
    let upstreams = [0; 3].map(|_| recording_upstream(OK));
    let urls = [0, 1, 2].map(|number: usize| url(upstreams[number].0));
    let options: Vec<&str> = urls.iter().flat_map(|url| ["--upstream", url]).collect();
    let proxy = Proxy::start(&[&["--limit", NO_LIMIT], &*options].concat());
    let mut client = proxy.connect();
    for turn in 1..=4 {
        (0..3).for_each(|_| assert_eq!(client.get("/").status, 200));
        for (_, requests) in &upstreams {
            assert_eq!(requests.try_iter().count(), 1, "turn {turn}");
        }
    }
}

#[test]
fn an_upstream_that_cannot_be_reached_is_passed_over() {
    let (open, requests) = recording_upstream(OK);
    let (closed, open) = (url(refusing()), url(open));
    let options = ["--limit", NO_LIMIT, "--upstream", &closed, "--upstream", &open, "--admin", "127.0.0.1:0"];
    let proxy = Proxy::start(&options);
    let mut client = proxy.connect();
    for _ in 0..10 {
        assert_eq!(client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").status, 200);
    }
    assert_eq!(requests.try_iter().count(), 10);
    assert!(count(&proxy, "upstream_retries") >= 1);
    await_count(&proxy, "upstream_errors", 0);
}
