//! Refusals: their lines in the log, bans, and waits instead of them.

use serde_json::Value;

use super::process::Proxy;
use super::support::{Folder, await_metric, connect_from};

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_refusal_has_a_line_with_its_limit_and_key() {
    let proxy = Proxy::start(&["--limit", "1/h", "--log-refusals", "--log", "json"]);
    let mut client = proxy.connect();
    assert_eq!([0; 3].map(|_| client.get("/").status), [200, 429, 429]);
    for _ in 0..2 {
        let line = json(&proxy.error());
        assert_eq!((&line["message"], &line["level"]), (&"refused".into(), &"INFO".into()), "{line}");
        assert_eq!((&line["policy"], &line["key"]), (&"default".into(), &"127.0.0.1".into()), "{line}");
        assert!(line["retry_after_ms"].as_u64().is_some_and(|wait| wait > 3_500_000), "{line}");
        assert_eq!(line["banned"], false);
    }
    // A value that a client has sent may be a secret.
    let proxy = Proxy::start(&["--limit", "1/h", "--log-refusals", "--key", "header:x-key"]);
    let secret = "X-Key: hunter2\r\n";
    assert_eq!([0; 2].map(|_| proxy.connect().get_with("/", secret).status), [200, 429]);
    let line = proxy.error();
    assert!(line.contains(" refused policy=\"default\" key=\"#") && !line.contains("hunter2"), "{line}");
}

#[test]
fn a_flood_of_refusals_is_a_few_lines() {
    let (folder, on) = (Folder::new(), "limit = \"1/h\"\n[log]\nrefusals = true\n");
    let file = folder.write("tollgate.toml", on);
    let proxy = Proxy::start(&["--config", &file]);
    let mut client = proxy.connect();
    let begin = std::time::Instant::now();
    for _ in 0..500 {
        client.get("/");
    }
    folder.write("tollgate.toml", &on.replace("true", "false"));
    assert_eq!(proxy.reload(), ["log.refusals: off, was on"]);
    for _ in 0..50 {
        client.get("/");
    }
    let seconds = begin.elapsed().as_secs() + 1;
    let lines = proxy.last_words();
    let lines: Vec<_> = lines.iter().filter(|line| line.contains(" refused policy=")).collect();
    assert!((1..=10 + 5 * seconds as usize).contains(&lines.len()), "{} lines in {seconds} s", lines.len());
}

/// A ban outlives the want of tokens, and is of one address.
#[test]
fn a_key_that_is_refused_too_often_is_banned() {
    let proxy = Proxy::start(&[
        "--limit",
        "1/h",
        "--ban",
        "2/h for 2h",
        "--exempt-path",
        "/health",
        "--admin",
        "127.0.0.1:0",
    ]);
    let mut client = proxy.connect();
    assert_eq!([0; 3].map(|_| client.get("/").status), [200, 429, 429]);
    assert_eq!(proxy.ask_admin("POST", "/limit", "10/h").status, 204);
    let reply = client.get("/");
    assert_eq!(reply.status, 429);
    let wait: u64 = reply.header("retry-after").expect("a wait").parse().expect("a number");
    assert!((7_000..=7_200).contains(&wait), "{wait} s");
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(connect_from([127, 0, 0, 2], proxy.address).get("/").status, 200);
    await_metric(&proxy, "tollgate_bans_total{policy=\"default\"} 1");
    await_metric(&proxy, "tollgate_decisions_total{policy=\"default\",result=\"banned\"} 1");
}

/// A reload that leaves the limit and its ban as they are leaves the banned keys as well.
#[test]
fn a_ban_outlives_a_reload() {
    let (folder, text) = (Folder::new(), "limit = \"1/h\"\nban = \"1/h for 2h\"\n");
    let file = folder.write("tollgate.toml", text);
    let proxy = Proxy::start(&["--config", &file]);
    let wait = || -> u64 {
        let reply = proxy.connect().get("/");
        assert_eq!(reply.status, 429);
        reply.header("retry-after").expect("a wait").parse().expect("a number")
    };
    assert_eq!([0; 2].map(|_| proxy.connect().get("/").status), [200, 429]);
    assert!(wait() > 3_600);
    folder.write("tollgate.toml", "limit = \"2/h\"\nban = \"1/h for 2h\"\ncase_sensitive = true\n");
    proxy.reload();
    assert!(wait() > 3_600);
    folder.write("tollgate.toml", "limit = \"2/h\"\nban = \"none\"\n");
    proxy.reload();
    assert!(wait() <= 3_600);
}

#[test]
fn a_request_waits_for_its_tokens() {
    let proxy = Proxy::start(&["--limit", "50/s burst 1", "--delay", "10s", "--admin", "127.0.0.1:0"]);
    let mut client = proxy.connect();
    let replies = [0; 5].map(|_| client.get("/"));
    assert_eq!(replies.each_ref().map(|reply| reply.status), [200; 5]);
    let waited = |reply: &&super::process::Message| reply.header("server-timing").is_some();
    assert!(replies.iter().filter(waited).count() > 0);
}

/// The wait has a bound, in time and in requests; and a stop does not wait for it.
#[test]
fn a_wait_has_its_bounds() {
    let options = [
        "--limit",
        "1/h",
        "--delay",
        "1h",
        "--max-waiting",
        "1",
        "--drain",
        "10ms",
        "--admin",
        "127.0.0.1:0",
    ];
    let mut proxy = Proxy::start(&options);
    assert_eq!(proxy.connect().get("/").status, 200);
    let mut waiting = proxy.connect();
    waiting.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await_metric(&proxy, "tollgate_waiting{policy=\"default\"} 1");
    assert_eq!(proxy.connect().get("/").status, 429);
    // A client that leaves gives its place back.
    drop(waiting);
    await_metric(&proxy, "tollgate_waiting{policy=\"default\"} 0");
    let mut waiting = proxy.connect();
    waiting.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await_metric(&proxy, "tollgate_waiting{policy=\"default\"} 1");
    proxy.signal("-TERM");
    assert_eq!(proxy.exit_code(), Some(1));
    // In shadow mode no request waits.
    let proxy = Proxy::start(&["--limit", "1/h", "--delay", "1h", "--shadow"]);
    assert_eq!([0; 3].map(|_| proxy.connect().get("/").status), [200; 3]);
}
