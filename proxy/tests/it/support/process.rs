//! The program as a process: a proxy that goes on, and commands that end.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use tollgate_testing::upstream::{Held, OK, Upstream};
use tollgate_testing::wire::{Connection, Message, PATIENCE};

use tollgate_common::testing::{Ended, Running, address_after, run, until, words};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tollgate-proxy");

/// The options of a limit that no test reaches.
const NO_LIMIT: &str = "--limit 1000000/s";
const ADMIN: &str = "--admin 127.0.0.1:0";

/// The process of the proxy. A drop of this value ends it.
pub(crate) struct Proxy {
    process: Running,
    pub(crate) address: SocketAddr,
    /// The address of `--admin`, if that is among the options.
    pub(crate) admin: SocketAddr,
}

impl Proxy {
    /// Starts a proxy with an admin page.
    pub(crate) fn start(options: &str) -> Proxy {
        let admin = if options.contains("--admin ") { "" } else { ADMIN };
        Proxy::on("127.0.0.1:0", &format!("{options} {admin}"))
    }

    /// Starts a proxy over an upstream, without a limit unless the options have one.
    pub(crate) fn over(upstream: &str, options: &str) -> Proxy {
        Proxy::over_all(&[upstream], options)
    }

    /// Starts a proxy over an upstream that holds its requests back.
    pub(crate) fn held(options: &str) -> (Upstream<Held>, Proxy) {
        let upstream = Upstream::holding();
        let proxy = Proxy::over(&upstream.url(), options);
        (upstream, proxy)
    }

    /// Starts a proxy over an upstream that answers each request with [`OK`].
    pub(crate) fn answered(options: &str) -> (Upstream<Message>, Proxy) {
        let upstream = Upstream::answering(OK);
        let proxy = Proxy::over(&upstream.url(), options);
        (upstream, proxy)
    }

    /// Starts a proxy over several upstreams.
    pub(crate) fn over_all(upstreams: &[&str], options: &str) -> Proxy {
        let limit = if options.contains("--limit ") { "" } else { NO_LIMIT };
        let upstreams: String = upstreams.iter().map(|url| format!("--upstream {url} ")).collect();
        Proxy::start(&format!("{limit} {upstreams} {options}"))
    }

    /// Starts a proxy at an address, with these options alone.
    pub(crate) fn on(listen: &str, options: &str) -> Proxy {
        let mut command = Command::new(PROGRAM);
        Proxy::of(command.args(["--listen", listen]).args(words(options)))
    }

    /// Starts a proxy by a command, and waits until it listens.
    pub(crate) fn of(command: &mut Command) -> Proxy {
        let process = Running::start(command);
        let nowhere = SocketAddr::from(([0; 4], 0));
        let mut proxy = Proxy { process, address: nowhere, admin: nowhere };
        proxy.address = proxy.announced("tollgate-proxy on ");
        if command.get_args().any(|argument| argument == "--admin") {
            proxy.admin = proxy.announced("admin page on ");
        }
        proxy
    }

    /// Returns the address in the first line that begins with `before`. A Unix socket gives an
    /// address that leads nowhere.
    fn announced(&self, before: &str) -> SocketAddr {
        loop {
            let line = self.process.out.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("it ended: {}", self.error()));
            match line.strip_prefix(before) {
                None => (),
                Some(rest) if rest.starts_with("unix:") => return SocketAddr::from(([0; 4], 0)),
                Some(_) => return address_after(&line, before),
            }
        }
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::connect(self.address)
    }

    /// Connects from another address of this host.
    pub(crate) fn connect_from(&self, from: impl Into<IpAddr>) -> Connection {
        Connection::connect_from(from, self.address)
    }

    /// Connects, and writes a text.
    pub(crate) fn write(&self, text: &str) -> Connection {
        let mut client = self.connect();
        client.write(text);
        client
    }

    /// Connects from another address of this host, and writes a text.
    pub(crate) fn write_from(&self, from: impl Into<IpAddr>, text: &str) -> Connection {
        let mut client = self.connect_from(from);
        client.write(text);
        client
    }

    /// Asks over a new connection.
    pub(crate) fn get(&self, path: &str) -> Message {
        self.connect().get(path)
    }

    /// Returns the statuses of requests over one new connection.
    pub(crate) fn statuses<const N: usize>(&self, path: &str) -> [u16; N] {
        let mut client = self.connect();
        [(); N].map(|()| client.get(path).status)
    }

    /// Connects to the admin address.
    pub(crate) fn admin(&self) -> Connection {
        Connection::connect(self.admin)
    }

    /// Sends a request to the admin address, with the `Host` and the `Origin` of a browser on its
    /// page.
    pub(crate) fn ask_admin(&self, method: &str, path: &str, body: &str) -> Message {
        let (host, length) = (self.admin, body.len());
        self.admin().send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    pub(crate) fn line(&self) -> String {
        self.process.out.recv_timeout(PATIENCE).expect("the proxy prints another line")
    }

    /// Reads lines up to the first that contains `part`.
    pub(crate) fn line_with(&self, part: &str) -> String {
        std::iter::repeat_with(|| self.line()).find(|line| line.contains(part)).expect("it goes on")
    }

    /// Returns the next line on stderr.
    pub(crate) fn error(&self) -> String {
        self.process.errors.recv_timeout(PATIENCE).expect("the proxy complains")
    }

    pub(crate) fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Makes the proxy read its file again, and returns the lines that it prints.
    pub(crate) fn reload(&self) -> Vec<String> {
        self.signal("-HUP");
        let lines = std::iter::repeat_with(|| self.line());
        of_reload(lines.take_while(|line| !line.contains(" read again")))
    }

    /// Makes the proxy read its file again. Returns the lines that it prints, or its complaint.
    pub(crate) fn try_reload(&self) -> Result<Vec<String>, String> {
        self.signal("-HUP");
        let (mut lines, mut told) = (Vec::new(), None);
        until("read again or refused", || {
            match self.process.out.recv_timeout(Duration::from_millis(2)) {
                Ok(line) if line.contains(" read again") => told = Some(Ok(())),
                Ok(line) => lines.push(line),
                Err(_) => (),
            }
            if let Some(error) =
                self.process.errors.try_iter().find(|error| error.contains("stay as they were"))
            {
                told = Some(Err(error));
            }
            told.is_some()
        });
        told.expect("it is there").map(|()| of_reload(lines.into_iter()))
    }

    /// Stops the proxy by this signal, and returns its exit code.
    pub(crate) fn stop(&self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.exit_code()
    }

    /// Stops the proxy, and returns the lines that were not read: of stdout, and of stderr.
    pub(crate) fn end(&self) -> [Vec<String>; 2] {
        self.signal("-TERM");
        [&self.process.out, &self.process.errors]
            .map(|lines| std::iter::from_fn(|| lines.recv_timeout(PATIENCE).ok()).collect())
    }

    /// Ends the process, and returns the lines on stderr that were not read.
    pub(crate) fn last_words(&self) -> Vec<String> {
        self.signal("-KILL");
        // The channel ends with the pipe.
        std::iter::from_fn(|| self.process.errors.recv_timeout(PATIENCE).ok()).collect()
    }

    pub(crate) fn exit_code(&self) -> Option<i32> {
        self.process.exit_code()
    }
}

/// Leaves out the lines of the start, and of each second with a decision.
fn of_reload(lines: impl Iterator<Item = String>) -> Vec<String> {
    let others = ["  a ", "granted ", "admin page on "];
    lines.filter(|line| !others.iter().any(|other| line.starts_with(other))).collect()
}

/// Runs the program to its end, with the words of a line.
pub(crate) fn tollgate(line: &str) -> Ended {
    run(PROGRAM, line)
}
