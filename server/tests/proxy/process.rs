//! The process of the proxy, its clients and its upstreams.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use super::PATIENCE;

/// The process of the proxy. A drop of this value ends it.
pub(super) struct Proxy {
    child: Child,
    pub(super) address: SocketAddr,
    /// The address of `--admin`, if that is among the options.
    pub(super) admin: SocketAddr,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

impl Proxy {
    pub(super) fn start(args: &[&str]) -> Proxy {
        Proxy::start_on("127.0.0.1:0", args)
    }

    /// Starts the proxy. A file without an upstream has that of the process.
    pub(super) fn start_on(listen: &str, args: &[&str]) -> Proxy {
        let demo = args.contains(&"--config").then_some("--demo");
        let child = command(args)
            .args(demo)
            .args(["--listen", listen])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.expect("it starts");
        let lines = lines_of(child.stdout.take().expect("piped"));
        let errors = lines_of(child.stderr.take().expect("piped"));
        let nowhere = SocketAddr::from(([0; 4], 0));
        let mut proxy = Proxy { child, address: nowhere, admin: nowhere, lines, errors };
        proxy.address = proxy.told("tollgate proxy on ");
        if args.contains(&"--admin") {
            proxy.admin = proxy.told("admin page on ");
        }
        proxy
    }

    /// Returns the address in the first line that begins with `before`. A Unix socket gives an
    /// address that leads nowhere.
    fn told(&self, before: &str) -> SocketAddr {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("it ended: {}", self.error()));
            if let Some(rest) = line.strip_prefix(before) {
                if rest.starts_with("unix:") {
                    return SocketAddr::from(([0; 4], 0));
                }
                let address = rest.split_once("://").map(|(_, rest)| rest);
                let address = address.and_then(|rest| rest.split([' ', '/']).next());
                let address = address.and_then(|text| text.parse().ok());
                return address.unwrap_or_else(|| panic!("no address in {line:?}"));
            }
        }
    }

    /// Reads lines up to the first that contains `part`.
    pub(super) fn line_with(&self, part: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Returns the next line on stderr.
    pub(super) fn error(&self) -> String {
        self.errors.recv_timeout(PATIENCE).expect("the proxy complains")
    }

    pub(super) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
    }

    /// Connects to the admin address.
    pub(super) fn admin(&self) -> Client {
        Client::connect(self.admin)
    }

    /// Sends a request to the admin address, with the `Host` and the `Origin` of a browser on its
    /// page.
    pub(super) fn ask_admin(&self, method: &str, path: &str, body: &str) -> Message {
        let (host, length) = (self.admin, body.len());
        self.admin().send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    pub(super) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the proxy prints another line")
    }

    /// Makes the proxy read its file again, and returns the lines that it prints.
    pub(super) fn reload(&self) -> Vec<String> {
        self.signal("-HUP");
        let mut lines = Vec::new();
        loop {
            match self.line() {
                line if line.contains(" read again") => return lines,
                // Lines of the start, and of each second with a decision.
                line if line.starts_with("  a ") || line.starts_with("granted ") => (),
                line => lines.push(line),
            }
        }
    }

    /// Makes the proxy read its file again. Returns the lines that it prints, or its complaint.
    pub(super) fn try_reload(&self) -> Result<Vec<String>, String> {
        self.signal("-HUP");
        let (mut lines, begin) = (Vec::new(), std::time::Instant::now());
        while begin.elapsed() < PATIENCE {
            match self.lines.recv_timeout(std::time::Duration::from_millis(2)) {
                Ok(line) if line.contains(" read again") => return Ok(lines),
                Ok(line) => lines.push(line),
                Err(_) => (),
            }
            if let Some(error) = self.errors.try_iter().find(|error| error.contains("stay as they were")) {
                return Err(error);
            }
        }
        panic!("neither read again nor refused: {lines:?}")
    }

    pub(super) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Ends the process, and returns the lines on stderr that were not read.
    pub(super) fn last_words(mut self) -> Vec<String> {
        self.child.kill().expect("it was started here");
        // The channel ends with the pipe.
        let mut lines = Vec::new();
        while let Ok(line) = self.errors.recv_timeout(PATIENCE) {
            lines.push(line);
        }
        lines
    }

    pub(super) fn exit_code(&mut self) -> Option<i32> {
        // The process closes its stdout at its end. This wait has a bound, and `wait` has none.
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(_) => (),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("the proxy does not end"),
            }
        }
        self.child.wait().expect("it was started here").code()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The call fails only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the lines of a pipe over a channel, which has a read timeout. The thread ends with the
/// process.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

/// Runs the proxy until it ends by itself.
pub(super) fn run(args: &[&str]) -> Output {
    tollgate(&[&["proxy"], args].concat())
}

/// Runs the program to its end. One that goes on is killed after [`PATIENCE`].
pub(super) fn tollgate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let pid = child.id().to_string();
    let (sender, output) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = output.recv_timeout(PATIENCE) else {
        let _ = Command::new("kill").args(["-KILL", &pid]).status();
        panic!("{args:?} does not end");
    };
    output.expect("its output is read")
}

pub(super) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("proxy").args(args).stdin(Stdio::null());
    command
}

/// Starts an upstream that serves every connection with `serve`, until the test process ends.
pub(super) fn upstream(serve: impl Fn(BufReader<TcpStream>) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    let serve = std::sync::Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (serve, stream) = (serve.clone(), stream.expect("a connection"));
            stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
            thread::spawn(move || serve(BufReader::new(stream)));
        }
    });
    address
}

/// Returns an address that refuses connections until the test process ends.
///
/// A socket that does not listen keeps the port. Otherwise the port of a closed listener could be
/// given to the upstream of another test.
pub(super) fn refusing() -> SocketAddr {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let address = socket.local_addr().expect("it has an address");
    std::mem::forget(socket);
    address
}

/// Starts an upstream that gives every request the same response. The channel has the heads of the
/// requests.
pub(super) fn recording_upstream(response: &'static str) -> (SocketAddr, Receiver<Message>) {
    let (sender, requests): (Sender<Message>, _) = mpsc::channel();
    let address = upstream(move |mut connection| {
        while let Some(request) = Message::read_head(&mut connection) {
            // The test may have ended by then.
            let _ = sender.send(request);
            write(&connection, response);
        }
    });
    (address, requests)
}

pub(super) fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

pub(super) struct Client(pub(super) BufReader<TcpStream>);

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the proxy listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        Client(BufReader::new(stream))
    }

    pub(super) fn get(&mut self, path: &str) -> Message {
        self.get_with(path, "")
    }

    pub(super) fn get_with(&mut self, path: &str, headers: &str) -> Message {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n"))
    }

    pub(super) fn send(&mut self, request: &str) -> Message {
        self.write(request);
        self.read()
    }

    pub(super) fn write(&mut self, text: &str) {
        write(&self.0, text);
    }

    pub(super) fn read(&mut self) -> Message {
        let mut message = Message::read_head(&mut self.0).expect("a response");
        if message.header("transfer-encoding") == Some("chunked") {
            let chunks =
                std::iter::from_fn(|| Some(read_chunk(&mut self.0)).filter(|chunk| !chunk.is_empty()));
            message.body = chunks.collect();
        } else if message.status != 204 {
            let length: usize =
                message.header("content-length").expect("a length").parse().expect("a number");
            let mut body = vec![0; length];
            self.0.read_exact(&mut body).expect("a whole body");
            message.body = String::from_utf8(body).expect("text");
        }
        message
    }
}

/// A request or a response. The `status` of a request is 0.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) start: String,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Message {
    /// Reads a head, or returns `None` at the end of the connection.
    pub(super) fn read_head(from: &mut impl BufRead) -> Option<Message> {
        let start = read_line(from).filter(|line| !line.is_empty())?;
        let status = start.strip_prefix("HTTP/1.").and_then(|rest| rest[2..].split(' ').next()?.parse().ok());
        let mut headers = Vec::new();
        while let Some((name, value)) = read_line(from)?.split_once(':') {
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        Some(Message { start, status: status.unwrap_or(0), headers, body: String::new() })
    }

    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|header| header.0 == name).map(|header| &*header.1).collect()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }
}

/// Reads the data of the next chunk, which is empty at the end.
pub(super) fn read_chunk(from: &mut impl BufRead) -> String {
    let size = read_line(from).expect("a chunk");
    let mut data = vec![0; usize::from_str_radix(&size, 16).expect("a hexadecimal size")];
    from.read_exact(&mut data).expect("a whole chunk");
    read_line(from).expect("the end of a chunk");
    String::from_utf8(data).expect("text")
}

pub(super) fn read_line(from: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    line.ends_with('\n').then(|| line.trim_end().to_owned())
}

pub(super) fn write(to: &BufReader<TcpStream>, text: &str) {
    to.get_ref().write_all(text.as_bytes()).expect("the other side reads");
}
