//! The load generator wrk.

use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::support::Proxy;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/store/wrk.lua");

/// The connections of one wrk, and the pause of each before a request.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) name: &'static str,
    connections: u32,
    pub(super) pause_ms: u32,
}

/// As fast as the machine can.
pub(super) const FLOOD: Load = Load { name: "flood", connections: 32, pause_ms: 0 };
/// Up to 4,000 requests a second, four times the limit. The processors have time left.
pub(super) const STEADY: Load = Load { name: "steady", connections: 8, pause_ms: 2 };

/// The answers of a proxy.
#[derive(Debug)]
pub(super) struct Answers {
    by_status: Vec<(u16, u64)>,
    pub(super) longest: Duration,
}

impl Answers {
    pub(super) fn of(&self, wanted: u16) -> u64 {
        self.by_status.iter().filter(|(status, _)| *status == wanted).map(|(_, count)| count).sum()
    }

    pub(super) fn all(&self) -> u64 {
        self.by_status.iter().map(|(_, count)| count).sum()
    }
}

/// Loads a proxy for ten seconds.
pub(super) fn load(proxy: &Proxy, load: Load) -> JoinHandle<Answers> {
    let connections = format!("-c{}", load.connections);
    let wrk = Command::new("wrk")
        .args(["-t1", &connections, "-d10s", "-s", SCRIPT, &format!("http://{}/", proxy.address)])
        .args(["--", &load.pause_ms.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("wrk is installed");
    thread::spawn(move || {
        let output = wrk.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!text.contains("Socket errors"), "{text}");
        let number = |line: &str| {
            let (name, number) = line.split_once(' ')?;
            Some((name.to_owned(), number.parse::<u64>().ok()?))
        };
        let lines: Vec<_> = text.lines().filter_map(number).collect();
        let longest = lines.iter().find(|(name, _)| name == "longest").map_or(0, |(_, micros)| *micros);
        let by_status = lines.iter().filter_map(|(name, count)| Some((name.parse().ok()?, *count)));
        Answers { by_status: by_status.collect(), longest: Duration::from_micros(longest) }
    })
}
