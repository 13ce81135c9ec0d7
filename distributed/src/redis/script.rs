//! The scripts that run on a server.

use std::sync::LazyLock;

use redis::Cmd;

/// The script of the steps of buckets.
pub(crate) static STEP: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("step.lua")));

/// The script of the steps of counts.
pub(crate) static COUNT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("count.lua")));

/// The script of the steps of buckets and of counts, all or none: it has the texts of both.
pub(crate) static ALL: LazyLock<Script> = LazyLock::new(|| {
    let function = |name, text| format!("local function {name}(KEYS, ARGV, redis)\n{text}end\n");
    let steps = function("buckets", include_str!("step.lua"));
    let counts = function("counts", include_str!("count.lua"));
    Script::new(steps + &counts + include_str!("all.lua"))
});

/// The text of a script, and the digest by which servers call it.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    digest: String,
}

impl Script {
    fn new(text: impl Into<String>) -> Script {
        let text = text.into();
        Script { digest: redis::Script::new(&text).get_hash().to_owned(), text }
    }

    /// Returns the start of a command: the keys and the arguments follow.
    pub(crate) fn command(&self, keys: usize) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digest).arg(keys);
        command
    }

    /// Returns the command that loads the script into a server.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }
}

/// A call of a script.
pub(crate) struct ScriptCall {
    /// The first key, which names the node of a cluster.
    pub(crate) key: Vec<u8>,
    pub(crate) script: &'static Script,
    pub(crate) command: Cmd,
    /// How many numbers its answer has.
    pub(crate) length: usize,
}
