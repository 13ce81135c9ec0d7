//! Proxies as processes on one store of each engine.
//!
//! Under a quota of a few requests an hour, the burst alone decides. A server that is not installed
//! is left out. Every read gives up after [`PATIENCE`].

mod acceptance;
mod engines;
mod fleet;
mod outage;
#[expect(dead_code, reason = "the tests of the proxy use the rest")]
#[path = "../proxy/process.rs"]
mod process;
mod settings;
mod wrk;

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use process::{Client, Proxy};

/// A time far above that of each step. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a proxy on a store, with other options. It does not give up on a busy machine.
fn start(url: &str, options: &str) -> Proxy {
    let words = options.split_whitespace();
    let args: Vec<&str> = ["--store", url, "--store-deadline", "10s", "--admin", "127.0.0.1:0"].into();
    Proxy::start(&args.into_iter().chain(words).collect::<Vec<_>>())
}

/// Starts a proxy by a file in a folder.
fn start_by(folder: &TempDir, text: &str) -> Proxy {
    let file = folder.path().join("proxy.toml");
    fs::write(&file, text).expect("the folder is there");
    Proxy::start(&["--config", file.to_str().expect("it is ASCII"), "--admin", "127.0.0.1:0"])
}

/// Returns the statuses of requests.
fn statuses(client: &mut Client, path: &str, n: usize) -> Vec<u16> {
    (0..n).map(|_| client.get(path).status).collect()
}

/// Returns the value of a series of `/metrics`, with its labels.
fn metric(proxy: &Proxy, series: &str) -> u64 {
    let metrics = proxy.ask_admin("GET", "/metrics", "").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {metrics}")).parse().expect("a number")
}

/// Returns the second event of the live page, which is of some time.
fn event(proxy: &Proxy) -> String {
    let mut client = proxy.admin();
    let host = proxy.admin;
    client.write(&format!("GET /events HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    process::Message::read_head(&mut client.0).expect("a response");
    let mut text = String::new();
    while text.matches("data: ").count() < 2 || !text.ends_with("\n\n") {
        text += &process::read_chunk(&mut client.0);
    }
    text.split("data: ").last().expect("an event").trim().to_owned()
}
