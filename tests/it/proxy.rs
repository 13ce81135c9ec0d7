//! `examples/proxy.rs` from the outside: its process, real sockets, HTTP written by hand.
//!
//! Nothing here waits for time to pass. A quota of a few requests an hour makes the decisions those of the burst, an
//! upstream in the test holds back what has to come later, and every read gives up after [`PATIENCE`].

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// Far more than anything here takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_LIMIT: &str = "1000000/s burst 1000000";

#[test]
fn a_client_gets_its_burst_and_then_429_with_the_wait() {
    let proxy = Proxy::start(&["--limit", "3/h burst 3"]);
    let mut client = proxy.connect();
    for _ in 0..3 {
        let reply = client.get("/some/path?q=1");
        assert_eq!(reply.status, 200);
        assert!(reply.body.starts_with("GET /some/path?q=1 HTTP/1.1\n"), "{reply:?}");
    }
    // The same connection, then another port of the same address: one bucket.
    for mut client in [client, proxy.connect()] {
        let refused = client.get("/");
        assert_eq!(refused.status, 429);
        let seconds: u64 = refused.header("retry-after").expect("a wait").parse().expect("whole seconds");
        assert!((1..=1200).contains(&seconds), "a token takes 1,200 s, not {seconds}");
        assert!(refused.body.ends_with('\n') && refused.body.lines().count() == 1, "{refused:?}");
        assert!(refused.body.contains(&format!("{seconds} s")), "{refused:?}");
    }

    let (mut granted, mut refused) = (0, 0);
    while (granted, refused) != (3, 2) {
        let line = proxy.line();
        let number = |name| -> u64 {
            let after = line.split_once(name).unwrap_or_else(|| panic!("no {name:?} in {line:?}")).1;
            after.split(',').next().expect("a first part").parse().expect("a number")
        };
        granted += number("granted ");
        refused += number("refused ");
        assert_eq!(number("keys "), 1);
        assert!(line.ends_with(" ns per decision"), "{line:?}");
    }
}

#[test]
fn ipv4_and_ipv6_addresses_have_buckets_of_their_own() {
    // A host without IPv6 has nothing to show here.
    if TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let (upstream, requests) = recording_upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let proxy = Proxy::start_on("[::]:0", &["--limit", "1/h burst 1", "--upstream", &url(upstream)]);
    let port = proxy.address.port();
    for (address, node, ip) in [
        (SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)), "\"[::1]\"", "::1"),
        (SocketAddr::from(([127, 0, 0, 1], port)), "127.0.0.1", "127.0.0.1"),
    ] {
        let mut client = Client::connect(address);
        assert_eq!(client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").status, 200);
        let request = requests.recv_timeout(PATIENCE).expect("the upstream is asked");
        assert_eq!(request.all("forwarded"), [format!("for={node};proto=http;host=\"a.example\"")]);
        assert_eq!(request.all("x-forwarded-for"), [ip]);
        assert_eq!(client.get("/").status, 429);
    }
}

#[test]
fn a_header_key_gives_each_value_a_bucket_and_falls_back_to_the_address() {
    let proxy = Proxy::start(&["--limit", "2/h burst 2", "--key", "header:x-api-key"]);
    let mut client = proxy.connect();
    let spellings = [
        "X-Api-Key: a\r\n",
        "x-api-key: b\r\n",
        // A value that looks like the client's address is not the client's address.
        "X-API-Key: 127.0.0.1\r\n",
        "",
    ];
    for key in spellings {
        let statuses = [200, 200, 429].map(|_| client.get_with("/", key).status);
        assert_eq!(statuses, [200, 200, 429], "{key:?}");
    }
    // Two values are no value; the address's bucket is empty by now.
    assert_eq!(client.get_with("/", "X-Api-Key: c\r\nX-Api-Key: d\r\n").status, 429);
}

#[test]
fn headers_of_one_hop_stay_there_and_the_upstream_learns_who_asked() {
    let (upstream, requests) = recording_upstream(
        "HTTP/1.1 200 OK\r\nConnection: X-Hop , keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nTrailer: X-Sum\r\n\
         Transfer-Encoding: chunked\r\nContent-Length: 99\r\nVia: 1.0 inner\r\nX-End: 2\r\n\r\n\
         2\r\nok\r\n0\r\nX-Sum: 3\r\n\r\n",
    );
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
    let mut client = proxy.connect();
    let reply = client.send(
        "GET /p HTTP/1.1\r\nHost: shop.example:81\r\nConnection: x-hop\r\nConnection: keep-alive, X-Forwarded-For\r\n\
         X-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nTrailer: X-Sum\r\n\
         Upgrade: websocket\r\nProxy-Authorization: Basic eA==\r\nX-Forwarded-Proto: https\r\n\
         X-Forwarded-Host: evil.example\r\nForwarded: for=\"[2001:db8::1]\"\r\nVia: 1.0 a\r\nVia: 1.1 b\r\nX-End: 2\r\n\r\n",
    );
    let request = requests.recv_timeout(PATIENCE).expect("the upstream is asked");

    for name in
        ["x-hop", "keep-alive", "proxy-connection", "proxy-authenticate", "upgrade", "trailer", "x-sum"]
    {
        assert_eq!(reply.all(name), [""; 0], "{name} in {reply:?}");
        assert_eq!(request.all(name), [""; 0], "{name} in {request:?}");
    }
    assert_eq!((reply.status, &*reply.body, reply.header("x-end")), (200, "ok", Some("2")));
    assert_eq!(reply.all("content-length"), [""; 0], "a lie beside a transfer coding: {reply:?}");
    assert_eq!(reply.all("via"), ["1.0 inner, 1.1 tollgate"]);

    assert_eq!(request.start, "GET /p HTTP/1.1");
    for name in ["connection", "te", "proxy-authorization", "transfer-encoding", "content-length"] {
        assert_eq!(request.all(name), [""; 0], "{name} in {request:?}");
    }
    assert_eq!(request.all("x-end"), ["2"]);
    assert_eq!(request.all("host"), [upstream.to_string()]);
    // Named by the client's `Connection`, so its own is gone; what the proxy says stays.
    assert_eq!(request.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(request.all("x-forwarded-proto"), ["http"]);
    assert_eq!(request.all("x-forwarded-host"), ["shop.example:81"]);
    let forwarded = "for=\"[2001:db8::1]\", for=127.0.0.1;proto=http;host=\"shop.example:81\"";
    assert_eq!(request.all("forwarded"), [forwarded]);
    assert_eq!(request.all("via"), ["1.0 a, 1.1 b, 1.1 tollgate"]);

    client.get_with("/", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2, 192.0.2.3\r\n");
    let request = requests.recv_timeout(PATIENCE).expect("the upstream is asked");
    assert_eq!(request.all("x-forwarded-for"), ["192.0.2.1, 192.0.2.2, 192.0.2.3, 127.0.0.1"]);
}

#[test]
fn a_request_needs_one_valid_host() {
    let proxy = Proxy::start(&["--limit", NO_LIMIT]);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\";for=b\r\n\r\n", 400),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 501),
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: me@a\r\n\r\n", 400),
        ("GET http://me:secret@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ] {
        assert_eq!(proxy.connect().send(request).status, status, "{request:?}");
    }
    // A whole URL overrides the header, and need not have a path.
    for (url, path) in
        [("http://a.example/x", "/x"), ("http://a.example?x", "/?x"), ("http://a.example", "/")]
    {
        let reply = proxy.connect().send(&format!("GET {url} HTTP/1.1\r\nHost: b\r\n\r\n"));
        assert!(reply.body.starts_with(&format!("GET {path} HTTP/1.1\n")), "{reply:?}");
        assert!(reply.body.contains("x-forwarded-host: a.example\n"), "{reply:?}");
    }
}

#[test]
fn a_request_body_streams_to_the_upstream() {
    // GET, since a body of unknown length is easily lost with it.
    for method in ["POST", "GET"] {
        let (seen, parts) = mpsc::channel();
        let upstream = upstream(move |mut connection| {
            assert!(
                Message::read_head(&mut connection)
                    .is_some_and(|head| head.header("transfer-encoding") == Some("chunked"))
            );
            for _ in 0..3 {
                seen.send(read_chunk(&mut connection)).expect("the test is still there");
            }
            write(&connection, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        });
        let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
        let mut client = proxy.connect();
        client.write(&format!("{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
        for (chunk, part) in [("3\r\none\r\n", "one"), ("3\r\ntwo\r\n", "two"), ("0\r\n\r\n", "")] {
            client.write(chunk);
            // Arrives while the rest has not even been sent.
            assert_eq!(parts.recv_timeout(PATIENCE).as_deref(), Ok(part));
        }
        assert_eq!(client.read().status, 200);
    }
}

#[test]
fn a_response_body_streams_to_the_client() {
    let (go_on, may_go_on) = mpsc::channel();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let upstream = upstream(move |mut connection| {
        Message::read_head(&mut connection);
        write(&connection, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
        may_go_on.lock().expect("one connection").recv_timeout(PATIENCE).expect("the client has read a part");
        write(&connection, "3\r\ntwo\r\n0\r\n\r\n");
    });
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
    let mut client = proxy.connect();
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(Message::read_head(&mut client.0).expect("a response").status, 200);
    assert_eq!(read_chunk(&mut client.0), "one");
    go_on.send(()).expect("the upstream waits");
    assert_eq!(read_chunk(&mut client.0), "two");
    assert_eq!(read_chunk(&mut client.0), "");
}

#[test]
fn connections_to_the_upstream_are_reused() {
    let (opened, connections) = mpsc::channel();
    let upstream = upstream(move |mut connection| {
        opened.send(()).expect("the test is still there");
        while Message::read_head(&mut connection).is_some() {
            write(&connection, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
    for _ in 0..10 {
        let mut client = proxy.connect();
        (0..10).for_each(|_| assert_eq!(client.get("/").status, 200));
    }
    // One, but for the moment between the end of a response and the return of its connection to the pool.
    let opened = connections.try_iter().count();
    assert!((1..50).contains(&opened), "100 requests took {opened} connections");
}

#[test]
fn an_unreachable_upstream_is_a_502() {
    // Bound for its number and closed again.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(closed)]);
    let mut client = proxy.connect();
    for _ in 0..2 {
        assert_eq!(client.get("/").status, 502);
    }
}

#[test]
fn a_bad_option_is_one_line_and_exit_code_2() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).expect("it has an address");
    for (args, part) in [
        (&["--limit", "fast"][..], "fast"),
        (&["--limit", "0/s burst 1"], "--limit"),
        (&["--limit", ""], "--limit"),
        (&["--upstream", "127.0.0.1:3000"], "http://"),
        (&["--upstream", "http://"], "http://"),
        (&["--upstream", "http://a:99999"], "65535"),
        (&["--upstream", "http://a/path"], "http://"),
        (&["--upstream", "http://me:secret@a"], "http://"),
        (&["--upstream", "https://a"], "https"),
        (&["--listen", "here"], "127.0.0.1:8080"),
        (&["--listen", &taken.1], "in use"),
        (&["--key", "cookie"], "header:NAME"),
        (&["--key", "header:"], "header name"),
        (&["--key", "header:a b"], "`a b`"),
        (&["--limit"], "--limit"),
        (&["--nonsense"], "--nonsense"),
        (&["nonsense"], "nonsense"),
    ] {
        let output = run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(part), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_drains() {
    for signal in ["-TERM", "-INT"] {
        let (asked, is_asked) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = std::sync::Mutex::new(may_go_on);
        let upstream = upstream(move |mut connection| {
            Message::read_head(&mut connection);
            asked.send(()).expect("the test is still there");
            may_go_on.lock().expect("one connection").recv_timeout(PATIENCE).expect("the proxy drains");
            write(&connection, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        });
        let mut proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
        let mut client = proxy.connect();
        client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        is_asked.recv_timeout(PATIENCE).expect("the request is under way");

        let pid = proxy.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
        while !proxy.line().starts_with("draining") {}
        assert!(TcpStream::connect(proxy.address).is_err(), "a new client is not taken");
        go_on.send(()).expect("the upstream waits");
        let reply = client.read();
        assert_eq!((reply.status, &*reply.body), (200, "done"));
        assert_eq!(proxy.exit_code(), Some(0));
    }
}

/// The example's process, which ends with this value.
struct Proxy {
    child: Child,
    address: SocketAddr,
    lines: Receiver<String>,
}

impl Proxy {
    fn start(args: &[&str]) -> Proxy {
        Proxy::start_on("127.0.0.1:0", args)
    }

    fn start_on(listen: &str, args: &[&str]) -> Proxy {
        let mut child =
            command(args).args(["--listen", listen]).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        // A pipe has no read timeout; a channel has. The thread ends with the process.
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut proxy = Proxy { child, address: SocketAddr::from(([0; 4], 0)), lines };
        let line = proxy.line();
        let address = line.strip_prefix("tollgate proxy on http://").and_then(|rest| rest.split(' ').next());
        proxy.address =
            address.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no address in {line:?}"));
        proxy
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the proxy prints another line")
    }

    fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    #[cfg(unix)]
    fn exit_code(&mut self) -> Option<i32> {
        // Its stdout closes when it ends, and the wait for that has a bound, which `wait` has not.
        while !matches!(self.lines.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected)) {}
        self.child.wait().expect("it was started here").code()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the example to its end, which must come by itself.
fn run(args: &[&str]) -> Output {
    let child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = child.id().to_string();
    let (sender, output) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = output.recv_timeout(PATIENCE) else {
        let _ = Command::new("kill").args(["-KILL", &pid]).status();
        panic!("{args:?} did not end the proxy");
    };
    output.expect("its output is read")
}

/// `target/<profile>/deps/it-<hash>` is this process, `target/<profile>/examples/proxy` the example.
fn command(args: &[&str]) -> Command {
    let mut path: PathBuf = std::env::current_exe().expect("a path");
    path.pop();
    path.pop();
    path.extend(["examples", &format!("proxy{}", std::env::consts::EXE_SUFFIX)]);
    assert!(
        path.exists(),
        "{path:?} is missing: `cargo test` builds it, and so does `cargo build --example proxy`"
    );
    let mut command = Command::new(path);
    command.args(args).stdin(Stdio::null());
    command
}

/// Serves every connection with `serve`, until the test process ends.
fn upstream(serve: impl Fn(BufReader<TcpStream>) + Send + Sync + 'static) -> SocketAddr {
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

/// Gives every request the same response, and the test the requests' heads.
fn recording_upstream(response: &'static str) -> (SocketAddr, Receiver<Message>) {
    let (sender, requests): (Sender<Message>, _) = mpsc::channel();
    let address = upstream(move |mut connection| {
        while let Some(request) = Message::read_head(&mut connection) {
            // A test that has seen enough may be gone.
            let _ = sender.send(request);
            write(&connection, response);
        }
    });
    (address, requests)
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the proxy listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        Client(BufReader::new(stream))
    }

    fn get(&mut self, path: &str) -> Message {
        self.get_with(path, "")
    }

    fn get_with(&mut self, path: &str, headers: &str) -> Message {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n"))
    }

    fn send(&mut self, request: &str) -> Message {
        self.write(request);
        self.read()
    }

    fn write(&mut self, text: &str) {
        write(&self.0, text);
    }

    fn read(&mut self) -> Message {
        let mut message = Message::read_head(&mut self.0).expect("a response");
        if message.header("transfer-encoding") == Some("chunked") {
            let chunks =
                std::iter::from_fn(|| Some(read_chunk(&mut self.0)).filter(|chunk| !chunk.is_empty()));
            message.body = chunks.collect();
        } else {
            let length: usize =
                message.header("content-length").expect("a length").parse().expect("a number");
            let mut body = vec![0; length];
            self.0.read_exact(&mut body).expect("a whole body");
            message.body = String::from_utf8(body).expect("text");
        }
        message
    }
}

/// A request or a response. `status` is 0 in a request.
#[derive(Debug)]
struct Message {
    start: String,
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Message {
    /// None at the end of the connection.
    fn read_head(from: &mut impl BufRead) -> Option<Message> {
        let start = read_line(from).filter(|line| !line.is_empty())?;
        let status = start.strip_prefix("HTTP/1.").and_then(|rest| rest[2..].split(' ').next()?.parse().ok());
        let mut headers = Vec::new();
        while let Some((name, value)) = read_line(from)?.split_once(':') {
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        Some(Message { start, status: status.unwrap_or(0), headers, body: String::new() })
    }

    fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|header| header.0 == name).map(|header| &*header.1).collect()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }
}

/// The data of the next chunk, which is empty at the end.
fn read_chunk(from: &mut impl BufRead) -> String {
    let size = read_line(from).expect("a chunk");
    let mut data = vec![0; usize::from_str_radix(&size, 16).expect("a hexadecimal size")];
    from.read_exact(&mut data).expect("a whole chunk");
    read_line(from).expect("the end of a chunk");
    String::from_utf8(data).expect("text")
}

fn read_line(from: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    line.ends_with('\n').then(|| line.trim_end().to_owned())
}

fn write(to: &BufReader<TcpStream>, text: &str) {
    to.get_ref().write_all(text.as_bytes()).expect("the other side reads");
}
