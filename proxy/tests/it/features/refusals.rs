//! Refusals: their lines in the log, bans, and waits instead of them.

use serde_json::Value;

use crate::support::{GET, Message, Proxy, Reloaded};

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_refusal_has_a_line_with_its_limit_and_key() {
    let proxy = Proxy::start("--limit 1/h --log-refusals --log json");
    assert_eq!(proxy.statuses("/"), [200, 429, 429]);
    for _ in 0..2 {
        let line = json(&proxy.error());
        assert_eq!((&line["message"], &line["level"]), (&"refused".into(), &"INFO".into()), "{line}");
        assert_eq!((&line["policy"], &line["key"]), (&"default".into(), &"127.0.0.1".into()), "{line}");
        assert!(line["retry_after_ms"].as_u64().is_some_and(|wait| wait > 3_500_000), "{line}");
        assert_eq!(line["banned"], false);
    }
    // A value that a client has sent may be a secret.
    let proxy = Proxy::start("--limit 1/h --log-refusals --key header:x-key");
    let secret = "X-Key: hunter2\r\n";
    assert_eq!([0; 2].map(|_| proxy.connect().get_with("/", secret).status), [200, 429]);
    let line = proxy.error();
    assert!(line.contains(" refused policy=\"default\" key=\"#") && !line.contains("hunter2"), "{line}");
}

#[test]
fn a_flood_of_refusals_is_a_few_lines() {
    let on = "limit = \"1/h\"\n[log]\nrefusals = true\n";
    let proxy = Reloaded::start(on);
    let begin = std::time::Instant::now();
    proxy.statuses::<500>("/");
    assert_eq!(proxy.read(&on.replace("true", "false")), ["log.refusals: off, was on"]);
    proxy.statuses::<50>("/");
    let seconds = begin.elapsed().as_secs() + 1;
    let lines = proxy.last_words();
    let lines: Vec<_> = lines.iter().filter(|line| line.contains(" refused policy=")).collect();
    assert!((1..=10 + 5 * seconds as usize).contains(&lines.len()), "{} lines in {seconds} s", lines.len());
}

/// A ban outlives the want of tokens, and is of one address.
#[test]
fn a_key_that_is_refused_too_often_is_banned() {
    let proxy = Proxy::start("--limit 1/h --ban 2/h&for&2h --exempt-path /health");
    let mut client = proxy.connect();
    assert_eq!([0; 3].map(|_| client.get("/").status), [200, 429, 429]);
    assert_eq!(proxy.ask_admin("POST", "/limit", "10/h").status, 204);
    let reply = client.get("/");
    assert_eq!(reply.status, 429);
    let wait: u64 = reply.header("retry-after").expect("a wait").parse().expect("a number");
    assert!((7_000..=7_200).contains(&wait), "{wait} s");
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(proxy.connect_from([127, 0, 0, 2]).get("/").status, 200);
    proxy.await_metric("tollgate_bans_total{policy=\"default\"}", 1);
    proxy.await_metric("tollgate_decisions_total{policy=\"default\",result=\"banned\"}", 1);
}

/// A reload that leaves the limit and its ban as they are leaves the banned keys as well.
#[test]
fn a_ban_outlives_a_reload() {
    let proxy = Reloaded::start("limit = \"1/h\"\nban = \"1/h for 2h\"\n");
    let wait = || -> u64 {
        let reply = proxy.get("/");
        assert_eq!(reply.status, 429);
        reply.header("retry-after").expect("a wait").parse().expect("a number")
    };
    assert_eq!(proxy.statuses("/"), [200, 429]);
    assert!(wait() > 3_600);
    proxy.read("limit = \"2/h\"\nban = \"1/h for 2h\"\ncase_sensitive = true\n");
    assert!(wait() > 3_600);
    proxy.read("limit = \"2/h\"\nban = \"none\"\n");
    assert!(wait() <= 3_600);
}

#[test]
fn a_request_waits_for_its_tokens() {
    let proxy = Proxy::start("--limit 50/s&burst&1 --delay 10s");
    let mut client = proxy.connect();
    let replies = [0; 5].map(|_| client.get("/"));
    assert_eq!(replies.each_ref().map(|reply| reply.status), [200; 5]);
    let waited = |reply: &&Message| reply.header("server-timing").is_some();
    assert!(replies.iter().filter(waited).count() > 0);
}

/// The wait has a bound, in time and in requests; and a stop does not wait for it.
#[test]
fn a_wait_has_its_bounds() {
    let proxy = Proxy::start("--limit 1/h --delay 1h --max-waiting 1 --drain 10ms");
    assert_eq!(proxy.get("/").status, 200);
    let waiting = proxy.write(GET);
    proxy.await_metric("tollgate_waiting{policy=\"default\"}", 1);
    assert_eq!(proxy.get("/").status, 429);
    // A client that leaves gives its place back.
    drop(waiting);
    proxy.await_metric("tollgate_waiting{policy=\"default\"}", 0);
    let _waiting = proxy.write(GET);
    proxy.await_metric("tollgate_waiting{policy=\"default\"}", 1);
    assert_eq!(proxy.stop("-TERM"), Some(1));
    // In shadow mode no request waits.
    let proxy = Proxy::start("--limit 1/h --delay 1h --shadow");
    assert_eq!(proxy.statuses("/"), [200; 3]);
}

/// A client that makes up keys holds half of the line, and others behind its proxy find a place.
#[test]
fn no_client_fills_the_line_by_made_up_keys() {
    let proxy = Proxy::start(
        "--limit 1/h --delay 1h --max-waiting 4 --key header:x-key --trust-proxy 127.0.0.1 --drain 10ms",
    );
    let ask = |client: u8, key: &str| {
        let head = format!("Host: a\r\nX-Key: {key}\r\nX-Forwarded-For: 203.0.113.{client}\r\n\r\n");
        proxy.write(&format!("GET / HTTP/1.1\r\n{head}"))
    };
    let mut line = Vec::new();
    for (client, key, waits) in [(1, "a", 1), (1, "b", 2), (1, "c", 2), (2, "d", 3), (2, "e", 3), (3, "f", 4)]
    {
        assert_eq!(ask(client, key).read().status, 200);
        let mut asked = ask(client, key);
        if waits > line.len() {
            line.push(asked);
        } else {
            assert_eq!(asked.read().status, 429, "{client} {key}");
        }
        proxy.await_metric("tollgate_waiting{policy=\"default\"}", waits as u64);
    }
}
