//! A whole proxy, under load by wrk.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::build::build;
use super::effort::{Effort, say};
use crate::results::Proxy;

/// Rounds of each proxy.
const ROUNDS: usize = 5;

/// A running `tollgate-proxy`, which is stopped when dropped.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    fn start(limit: &str) -> io::Result<Running> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/tollgate-proxy");
        let mut child = Command::new(program)
            .args(["--listen", "127.0.0.1:0", "--limit", limit])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        lines.read_line(&mut line)?;
        // The proxy goes on writing, and would stop if its pipe were full.
        std::thread::spawn(move || lines.lines().for_each(drop));
        let url = line.split_once(" on ").and_then(|(_, rest)| rest.split(' ').next());
        let url = url.map(|url| format!("{url}/"));
        Ok(Running { child, url: url.ok_or_else(|| io::Error::other(format!("it said {line:?}")))? })
    }

    /// Returns requests a second, and microseconds of p50 and p99.
    fn load(&self, seconds: u32) -> io::Result<[f64; 3]> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scenarios/wrk.lua");
        let output = Command::new("wrk")
            .args(["-t1", "-c32", &format!("-d{seconds}s"), "-s"])
            .arg(script)
            .arg(&self.url)
            .output()?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers = told.lines().find_map(|line| line.strip_prefix("tollgate "));
        let numbers: Vec<f64> =
            numbers.unwrap_or_default().split(' ').filter_map(|number| number.parse().ok()).collect();
        numbers.try_into().map_err(|_| io::Error::other(told))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Loads the proxy without a limiter, with one that grants all, and with one that refuses nearly
/// all.
///
/// # Errors
///
/// If wrk is not there, or the proxy cannot be built.
pub fn proxies(effort: &Effort) -> io::Result<Vec<Proxy>> {
    // Where `Running::start` looks for it.
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    build("..", &format!("--package tollgate-proxy --target-dir {}", target.display()))?;
    let kinds = [
        ("none", "none"),
        ("tollgate, granting all", "1000000/s"),
        ("tollgate, refusing nearly all", "100/s"),
    ];
    let mut proxies = Vec::new();
    let mut running = Vec::new();
    for (name, limit) in kinds {
        proxies.push(Proxy { limiter: name.to_owned(), ..Proxy::default() });
        running.push(Running::start(limit)?);
    }
    for round in 0..ROUNDS {
        say(format_args!("proxies, round {} of {ROUNDS}", round + 1));
        for turn in 0..running.len() {
            let turn = (turn + round) % running.len();
            let [requests, p50, p99] = running[turn].load(effort.seconds)?;
            proxies[turn].requests.push(requests);
            proxies[turn].p50.push(p50);
            proxies[turn].p99.push(p99);
        }
    }
    Ok(proxies)
}
