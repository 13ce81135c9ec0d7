//! Redis: a server, a server with a replica, a cluster.

pub mod sentinels;

use std::fs::File;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::process::Process;
use crate::program::{find_program, free_port, is_installed, wait_until};
use crate::wire::{Reply, command};

/// The longest time until a server answers.
const START_LIMIT: Duration = Duration::from_secs(10);

/// The file of a sentinel's settings, in its folder.
const SENTINEL: &str = "sentinel.conf";

/// The number of slots of a cluster.
const SLOTS: u16 = 16_384;

/// Tells whether `redis-server` is installed. Prints a line if it is not.
#[must_use]
pub fn redis_is_installed() -> bool {
    is_installed("redis-server", "redis-server", &[])
}

/// The data with which a server restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The files in its folder. A server without `--appendonly yes` writes none.
    Kept,
    /// None.
    Empty,
}

/// A server of Redis on the loopback. By default it saves nothing.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
    options: Vec<String>,
    folder: TempDir,
}

impl Redis {
    /// Starts a server with options as on the command line, such as `["--appendonly", "yes"]`.
    ///
    /// # Errors
    ///
    /// The server does not start, or does not answer within ten seconds.
    pub fn start(options: &[&str]) -> io::Result<Redis> {
        let mut last = io::Error::other("no attempt");
        for _ in 0..3 {
            // Another process may take the port first.
            match Redis::start_at(free_port()?, options) {
                Ok(server) => return Ok(server),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn start_at(port: u16, options: &[&str]) -> io::Result<Redis> {
        Redis::start_in(TempDir::with_prefix("tollgate-redis-")?, port, options)
    }

    fn start_in(folder: TempDir, port: u16, options: &[&str]) -> io::Result<Redis> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let process = launch(port, &options, &folder)?;
        let mut server = Redis { process, port, options, folder };
        server.wait()?;
        Ok(server)
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address, as a client takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the process: to freeze, thaw, stop or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sends one command over a connection of its own.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or its answer is an error.
    pub fn command(&self, words: &[&str]) -> io::Result<Reply> {
        command(self.port, words)
    }

    /// Returns a number of `INFO`, such as `"uptime_in_seconds"`.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or has no such number.
    pub fn info(&self, section: &str, field: &str) -> io::Result<String> {
        let reply = self.command(&["INFO", section])?;
        let found = reply.text().lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        found.map(str::to_owned).ok_or_else(|| io::Error::other(format!("INFO has no {field}")))
    }

    /// Kills the server if it runs, and starts it on the same port.
    ///
    /// # Errors
    ///
    /// The server does not start, or does not answer within ten seconds.
    pub fn restart(&mut self, data: Data) -> io::Result<()> {
        if self.process.is_running() {
            self.process.kill();
        }
        if data == Data::Empty {
            self.folder = TempDir::with_prefix("tollgate-redis-")?;
        }
        self.process = launch(self.port, &self.options, &self.folder)?;
        self.wait()
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut ended = false;
        let ready = wait_until(START_LIMIT, || {
            ended = !self.process.is_running();
            ended || command(self.port, &["PING"]).is_ok()
        });
        if ready && !ended {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        Err(io::Error::other(format!("redis-server at port {} does not answer: {log}", self.port)))
    }
}

fn launch(port: u16, options: &[String], folder: &TempDir) -> io::Result<Process> {
    let program = find_program("redis-server", &[]).ok_or(io::ErrorKind::NotFound)?;
    let log = File::create(folder.path().join("log"))?;
    let mut command = Command::new(program);
    let settings = folder.path().join(SENTINEL);
    if settings.exists() {
        command.arg(settings).arg("--sentinel");
    }
    command.args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no", "--port"]).arg(port.to_string());
    command.arg("--dir").arg(folder.path()).args(options);
    command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log));
    Process::start(&mut command, folder.path())
}

/// A server and its replica.
#[derive(Debug)]
pub struct Pair {
    /// The server that accepts writes.
    pub primary: Redis,
    /// The server that refuses them with `READONLY`, until it is promoted.
    pub replica: Redis,
}

impl Pair {
    /// Starts both, and waits until the replica follows: until its first acknowledgement, which may
    /// take a second, it is sent no write.
    ///
    /// # Errors
    ///
    /// A server does not start, or the replica does not follow within ten seconds.
    pub fn start(options: &[&str]) -> io::Result<Pair> {
        let primary = Redis::start(options)?;
        let port = primary.port().to_string();
        let of = [options, &["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"]].concat();
        primary.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"])?;
        let replica = Redis::start(&of)?;
        if !wait_until(START_LIMIT, || follows(&replica)) {
            return Err(io::Error::other("the replica does not follow"));
        }
        let pair = Pair { primary, replica };
        // It is sent to the replica, and leaves no key.
        pair.primary.command(&["PUBLISH", "channel", "message"])?;
        pair.catch_up()?;
        Ok(pair)
    }

    /// Makes the replica a server that accepts writes.
    ///
    /// # Errors
    ///
    /// The replica cannot be reached.
    pub fn promote(&self) -> io::Result<()> {
        self.replica.command(&["REPLICAOF", "NO", "ONE"]).map(drop)
    }

    /// Stops the writes of the server, and waits until the replica has all of them. They go on once
    /// the server gets `CLIENT UNPAUSE`.
    ///
    /// # Errors
    ///
    /// A server cannot be reached, or the replica does not have all within ten seconds.
    pub fn pause(&self) -> io::Result<()> {
        self.primary.command(&["CLIENT", "PAUSE", "60000", "WRITE"])?;
        self.catch_up()
    }

    /// Waits until the replica has all that the server has written by now.
    fn catch_up(&self) -> io::Result<()> {
        let offset = |of: &Redis, field| of.info("replication", field).ok()?.parse::<u64>().ok();
        let sent = offset(&self.primary, "master_repl_offset");
        if !wait_until(START_LIMIT, || sent.is_some() && offset(&self.replica, "slave_repl_offset") >= sent) {
            return Err(io::Error::other("the replica does not have all writes"));
        }
        Ok(())
    }
}

fn follows(replica: &Redis) -> bool {
    replica.info("replication", "master_link_status").is_ok_and(|status| status == "up")
}

/// A cluster on the loopback.
#[derive(Debug)]
pub struct Cluster {
    /// The masters, then the replicas: replica `i` follows master `i` modulo their number.
    pub nodes: Vec<Redis>,
    masters: usize,
}

impl Cluster {
    /// Starts three masters, each with a third of the slots, and `replicas` replicas.
    ///
    /// # Errors
    ///
    /// A server does not start, or the cluster is not whole within ten seconds.
    pub fn start(replicas: usize, options: &[&str]) -> io::Result<Cluster> {
        let masters = 3;
        let nodes: Vec<Redis> =
            (0..masters + replicas).map(|_| start_node(options)).collect::<io::Result<_>>()?;
        let cluster = Cluster { nodes, masters };
        cluster.assign()?;
        cluster.meet()?;
        cluster.replicate()?;
        cluster.wait_whole()?;
        Ok(cluster)
    }

    /// Returns the addresses of all nodes, as a client takes them.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// Waits until each node that answers reports `cluster_state:ok`.
    ///
    /// # Errors
    ///
    /// A node does not report it within ten seconds.
    pub fn wait_whole(&self) -> io::Result<()> {
        let whole = |node: &Redis| match node.command(&["CLUSTER", "INFO"]) {
            Ok(reply) => reply.text().contains("cluster_state:ok"),
            Err(_) => true,
        };
        if !wait_until(START_LIMIT, || self.nodes.iter().all(whole)) {
            return Err(io::Error::other("the cluster is not whole"));
        }
        Ok(())
    }

    /// Moves a slot with its keys from one master to another, as `redis-cli` does it.
    ///
    /// # Errors
    ///
    /// A master cannot be reached, or refuses.
    pub fn migrate(&self, slot: u16, from: usize, to: usize) -> io::Result<()> {
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        let (source, target, port) = (id(from)?, id(to)?, to.port().to_string());
        let slot = slot.to_string();
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source])?;
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target])?;
        while let Reply::List(keys) = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"])? {
            if keys.is_empty() {
                break;
            }
            let move_to = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            let keys: Vec<&str> = keys.iter().map(Reply::text).collect();
            from.command(&[&move_to, keys.as_slice()].concat())?;
        }
        to.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target])?;
        from.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]).map(drop)
    }

    fn assign(&self) -> io::Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
            if index < self.masters {
                let bound = |index: usize| usize::from(SLOTS) * index / self.masters;
                let (first, last) = (bound(index).to_string(), (bound(index + 1) - 1).to_string());
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            }
        }
        Ok(())
    }

    fn meet(&self) -> io::Result<()> {
        let first = &self.nodes[0];
        for node in &self.nodes[1..] {
            let (port, bus) = (node.port().to_string(), bus_port(node)?);
            first.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
        let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
        let knows = |node: &Redis| {
            node.command(&["CLUSTER", "INFO"]).is_ok_and(|reply| reply.text().contains(&known))
        };
        if !wait_until(START_LIMIT, || self.nodes.iter().all(knows)) {
            return Err(io::Error::other("the nodes of the cluster do not meet"));
        }
        Ok(())
    }

    fn replicate(&self) -> io::Result<()> {
        for (index, replica) in self.nodes[self.masters..].iter().enumerate() {
            let master = id(&self.nodes[index % self.masters])?;
            replica.command(&["CLUSTER", "REPLICATE", &master])?;
        }
        if !wait_until(START_LIMIT, || self.nodes[self.masters..].iter().all(follows)) {
            return Err(io::Error::other("the replicas of the cluster do not follow"));
        }
        Ok(())
    }
}

fn start_node(options: &[&str]) -> io::Result<Redis> {
    let bus = free_port()?.to_string();
    let mut all = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", &bus];
    all.extend(["--repl-diskless-sync-delay", "0"]);
    all.extend(options);
    Redis::start(&all)
}

fn id(node: &Redis) -> io::Result<String> {
    Ok(node.command(&["CLUSTER", "MYID"])?.text().to_owned())
}

fn bus_port(node: &Redis) -> io::Result<String> {
    let at = node.options.iter().position(|option| option == "--cluster-port");
    at.and_then(|at| node.options.get(at + 1))
        .cloned()
        .ok_or_else(|| io::Error::other("no node of a cluster"))
}
