//! Sentinels, which promote a replica once they agree that its master is down.

use std::io;

use tempfile::TempDir;

use super::{Pair, Redis, SENTINEL, START_LIMIT};
use crate::program::{free_port, wait_until};
use crate::wire::Reply;

/// The name under which the sentinels know the master.
pub const MASTER: &str = "main";

/// Three sentinels of a pair. Two of them decide.
#[derive(Debug)]
pub struct Sentinels {
    /// The sentinels.
    pub nodes: Vec<Redis>,
}

impl Sentinels {
    /// Starts them, and waits until each knows the others and the replica. A master is down for
    /// them after half a second without an answer.
    ///
    /// # Errors
    ///
    /// A sentinel does not start, or does not know the others within ten seconds.
    pub fn start(pair: &Pair) -> io::Result<Sentinels> {
        let nodes = (0..3).map(|_| start_one(pair)).collect::<io::Result<_>>()?;
        let sentinels = Sentinels { nodes };
        if !wait_until(START_LIMIT, || sentinels.nodes.iter().all(knows_all)) {
            return Err(io::Error::other("the sentinels do not know each other"));
        }
        Ok(sentinels)
    }

    /// Returns the address of the master, as a client takes it.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+sentinel://{}/{MASTER}", hosts.join(","))
    }
}

fn start_one(pair: &Pair) -> io::Result<Redis> {
    let folder = TempDir::with_prefix("tollgate-redis-")?;
    let monitor = format!("sentinel monitor {MASTER} 127.0.0.1 {} 2", pair.primary.port());
    let down = format!("sentinel down-after-milliseconds {MASTER} 500");
    let failover = format!("sentinel failover-timeout {MASTER} 3000");
    std::fs::write(folder.path().join(SENTINEL), [monitor, down, failover].join("\n"))?;
    Redis::start_in(folder, free_port()?, &[])
}

fn knows_all(node: &Redis) -> bool {
    let Ok(Reply::List(words)) = node.command(&["SENTINEL", "MASTER", MASTER]) else { return false };
    let number = |field| {
        let at = words.iter().position(|word| word.text() == field)?;
        Some(words.get(at + 1)?.text())
    };
    number("num-other-sentinels") == Some("2") && number("num-slaves") == Some("1")
}
