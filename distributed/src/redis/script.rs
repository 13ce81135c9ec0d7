//! A script on the server.

use redis::Cmd;

/// The text of a script, and the digest by which servers call it.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    digest: String,
}

impl Script {
    pub(crate) fn new(text: &'static str) -> Script {
        Script { text, digest: redis::Script::new(text).get_hash().to_owned() }
    }

    /// Returns the begin of a command, which the keys and the arguments follow.
    pub(crate) fn command(&self, keys: usize) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digest).arg(keys);
        command
    }

    /// Returns the command that gives the script to a server, or to all nodes of a cluster.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.text);
        command
    }
}
