//! A reverse proxy that limits each client, over an upstream that it brings along.
//!
//! ```text
//! cargo run --release --example proxy
//! curl -i http://127.0.0.1:8080/
//! wrk -t2 -c64 -d10s -s examples/wrk-status.lua http://127.0.0.1:8080/
//! ```
//!
//! A request within the quota goes to the upstream; any other is answered here with `429 Too Many Requests`,
//! `Retry-After` and one line of text. Bodies stream both ways and connections are kept alive on both sides. The
//! upstream is told who asked by `X-Forwarded-For`, `-Proto` and `-Host`, `Forwarded` and `Via`; `Host` names the
//! upstream itself. Without `--upstream` it is a small server in this process, which answers with the head of the
//! request as it arrived, or streams the body back if there is one.
//!
//! `--key peer` gives every client address (without its port) a bucket. `--key header:NAME` gives one to every value
//! of that header; a request that does not have it exactly once is limited by its address, under the same quota.
//! Values and addresses never share a bucket. A header is whatever the client says until something has checked it:
//! key by one that a trusted hop in front has set or verified, or each new value is a new burst.
//!
//! Once a second, if there was traffic, one line says what that second decided and how long a decision took (the
//! mean, with one reading of `Instant` in it). Ctrl-C and SIGTERM drain: no new connections, and ten seconds for the
//! requests under way; the exit code is 0. An option that cannot work is one sentence on stderr and exit code 2.

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use http_body_util::Either;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate::{Denied, InvalidQuota, Quota, RateLimiter};
use upstream::{Body, accept, text};

mod upstream;

/// How long requests under way may take to finish once a signal says stop.
const DRAIN: Duration = Duration::from_secs(10);
/// An upstream that takes longer than this to accept a connection is unreachable.
const CONNECT: Duration = Duration::from_secs(5);
type BoxError = Box<dyn Error + Send + Sync>;

/// A reverse proxy that limits each client.
#[derive(Parser)]
struct Options {
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8080", value_parser = listen_address)]
    listen: SocketAddr,
    /// Where requests go, as http://HOST[:PORT]; a server in this process if not given
    #[arg(long, value_name = "URL", value_parser = upstream::url)]
    upstream: Option<Authority>,
    /// What each key may do; `none` lets everything through, to compare with
    #[arg(long, value_name = "QUOTA", default_value = "100/s burst 200", value_parser = limit)]
    limit: Limit,
    /// What is limited: `peer` for each client address, `header:NAME` for each value of a header
    #[arg(long, value_name = "KEY", default_value = "peer", value_parser = key)]
    key: Key,
}

/// A quota, unless nobody is limited.
#[derive(Clone)]
struct Limit(Option<Quota>);

/// The header whose values are limited; without one, addresses are.
#[derive(Clone)]
struct Key(Option<HeaderName>);

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Options::try_parse() {
        Ok(options) => run(options).await,
        Err(help) if !help.use_stderr() => help.exit(),
        // The rest of clap's text is usage and hints; its first line is the sentence.
        Err(error) => Err(error.to_string().lines().next().unwrap_or("error: bad options").to_owned()),
    };
    let Err(sentence) = outcome else { return ExitCode::SUCCESS };
    eprintln!("{sentence}");
    ExitCode::from(2)
}

async fn run(options: Options) -> Result<(), String> {
    let Options { listen, upstream, limit, key } = options;
    // Before the first line is printed: whoever reads it may send a signal at once.
    let stop = stop_signal().map_err(|e| format!("error: cannot listen for signals: {e}"))?;
    let cannot_listen = |e| format!("error: cannot listen on {listen}: {e}");
    let listener = TcpListener::bind(listen).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    // An upstream in this process takes two of its sockets for each connection.
    let (upstream, sockets_each) = match upstream {
        Some(upstream) => (upstream, 1),
        None => (upstream::start().await.map_err(|e| format!("error: cannot start an upstream: {e}"))?, 2),
    };
    let (clients, connections) = share_sockets(sockets_each);
    let whom = key.0.as_ref().map_or("client address".to_owned(), |name| format!("value of {name}"));
    let limited = limit.0.map_or("no limit".to_owned(), |quota| format!("{quota} for each {whom}"));
    say(format_args!(
        "tollgate proxy on http://{address} to http://{upstream}, {limited}: curl -i http://{address}/"
    ));
    let gate = limit.0.map(|quota| Arc::new(Gate::new(quota, key)));
    if let Some(gate) = gate.clone() {
        tokio::spawn(report_every_second(gate));
    }
    let proxy = Arc::new(Proxy { gate, pool: Pool::new(upstream, connections) });
    serve(proxy, listener, clients, stop).await;
    Ok(())
}

/// Serves up to `clients` connections at a time until `stop`, then waits for the requests under way.
async fn serve(proxy: Arc<Proxy>, listener: TcpListener, clients: usize, stop: impl Future<Output = ()>) {
    let draining = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(clients));
    let mut stop = std::pin::pin!(stop);
    loop {
        // A client that finds no place waits in the listener's backlog.
        let next = async { (places.clone().acquire_owned().await, accept(&listener).await) };
        let (place, (stream, peer)) = tokio::select! {
            next = next => next,
            () = &mut stop => break,
        };
        let proxy = proxy.clone();
        // One host is one key, whether it comes over IPv4 or IPv4-mapped to a dual-stack socket.
        let peer = peer.ip().to_canonical();
        let service = service_fn(move |request| {
            let proxy = proxy.clone();
            async move { Ok::<_, Infallible>(proxy.answer(peer, request).await) }
        });
        // The timer lets hyper close a connection that has sent no request head for 30 seconds.
        let mut server = http1::Builder::new();
        let connection = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
        let connection = draining.watch(connection);
        tokio::spawn(async move {
            // An error is a client that left or does not speak HTTP: nobody is there to be told.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    say(format_args!("draining {} connections", draining.count()));
    let _ = tokio::time::timeout(DRAIN, draining.shutdown()).await;
}

/// What every connection shares.
struct Proxy {
    gate: Option<Arc<Gate>>,
    pool: Pool,
}

impl Proxy {
    async fn answer(&self, peer: IpAddr, mut request: Request<Incoming>) -> Response<Body> {
        if let Some(gate) = &self.gate
            && let Err(denied) = gate.decide(peer, request.headers())
        {
            return gate.refusal(&denied);
        }
        if request.method() == Method::CONNECT {
            return text(StatusCode::NOT_IMPLEMENTED, "This proxy opens no tunnels.\n");
        }
        let Ok(host) = requested_host(&request) else {
            return text(StatusCode::BAD_REQUEST, "Bad request: one valid Host header is needed.\n");
        };
        send_on_as(&mut request, peer, host.as_ref(), &self.pool.upstream);
        match self.pool.send(request).await {
            // Upgrade was not passed on, so an upstream that switches protocols is not talking to us.
            Ok(response) if response.status() != StatusCode::SWITCHING_PROTOCOLS => hand_back(response),
            _ => text(StatusCode::BAD_GATEWAY, "Bad gateway: the upstream cannot be reached.\n"),
        }
    }
}

/// The limiter and its tally.
struct Gate {
    quota: Quota,
    by_peer: RateLimiter<IpAddr>,
    /// A limiter of its own, so that no value can be mistaken for an address.
    by_header: Option<(HeaderName, RateLimiter<Vec<u8>>)>,
    granted: AtomicU64,
    refused: AtomicU64,
    nanos: AtomicU64,
}

impl Gate {
    fn new(quota: Quota, key: Key) -> Self {
        let by_header = key.0.map(|name| (name, RateLimiter::new(quota)));
        let (granted, refused, nanos) = Default::default();
        Self { quota, by_peer: RateLimiter::new(quota), by_header, granted, refused, nanos }
    }

    fn decide(&self, peer: IpAddr, headers: &HeaderMap) -> Result<(), Denied> {
        let by_header = self.by_header.as_ref();
        let by_header = by_header.and_then(|(name, limiter)| Some((limiter, only_value(headers, name)?)));
        let start = Instant::now();
        let decision = match by_header {
            Some((limiter, value)) => limiter.try_acquire(value.as_bytes()).map(drop),
            None => self.by_peer.try_acquire(&peer).map(drop),
        };
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: three sums for people to read; nothing is concluded from one about another.
        self.nanos.fetch_add(nanos, Relaxed);
        let count = if decision.is_ok() { &self.granted } else { &self.refused };
        count.fetch_add(1, Relaxed);
        decision
    }

    fn refusal(&self, denied: &Denied) -> Response<Body> {
        // `None` would mean never, but one token always comes.
        let wait = denied.retry_after().unwrap_or_default();
        // Rounded up, lest a client that does wait comes too early; 0 would tell it not to wait at all.
        let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
        let line = format!("Too many requests: the limit is {}; try again in {seconds} s.\n", self.quota);
        let mut response = text(StatusCode::TOO_MANY_REQUESTS, line);
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        response
    }

    fn keys(&self) -> usize {
        self.by_peer.len() + self.by_header.as_ref().map_or(0, |(_, limiter)| limiter.len())
    }
}

async fn report_every_second(gate: Arc<Gate>) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        let counters = [&gate.granted, &gate.refused, &gate.nanos];
        let [granted, refused, nanos] = counters.map(|counter| counter.swap(0, Relaxed));
        if let Some(mean) = nanos.checked_div(granted + refused) {
            let keys = gate.keys();
            say(format_args!("granted {granted}, refused {refused}, keys {keys}, {mean} ns per decision"));
        }
    }
}

/// Turns a client's request into ours to the upstream.
fn send_on_as(request: &mut Request<Incoming>, peer: IpAddr, host: Option<&Authority>, upstream: &Authority) {
    let via = via(request.version());
    *request.uri_mut() = request.uri().path_and_query().cloned().map_or_else(Uri::default, Uri::from);
    *request.version_mut() = Version::HTTP_11;
    // Said for hyper, which takes a GET with a body of unknown length for one without a body.
    let chunked = !request.body().is_end_stream() && request.body().size_hint().exact().is_none();

    let headers = request.headers_mut();
    // First, because `Connection` may name any header, and must not take away what this proxy says.
    drop_hop_by_hop(headers);
    if chunked {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let node = if peer.is_ipv6() { format!("\"[{peer}]\"") } else { peer.to_string() };
    // There is no quote or backslash in an `Authority`, so quoting it needs no escapes.
    let host_pair = host.map_or_else(String::new, |host| format!(";host=\"{host}\""));
    append_to_list(headers, header::FORWARDED, &format!("for={node};proto=http{host_pair}"));
    append_to_list(headers, HeaderName::from_static("x-forwarded-for"), &peer.to_string());
    append_to_list(headers, header::VIA, via);
    // Not lists: they describe this hop, and what the client claims about it is not passed on.
    headers.insert("x-forwarded-proto", HeaderValue::from_static("http"));
    headers.remove("x-forwarded-host");
    let value =
        |name: &Authority| HeaderValue::from_str(name.as_str()).expect("an authority is visible ASCII");
    if let Some(host) = host {
        headers.insert("x-forwarded-host", value(host));
    }
    headers.insert(header::HOST, value(upstream));
}

/// Turns the upstream's response into ours to the client.
fn hand_back(mut response: Response<Incoming>) -> Response<Body> {
    let via = via(response.version());
    drop_hop_by_hop(response.headers_mut());
    append_to_list(response.headers_mut(), header::VIA, via);
    // hyper lowers it for a client that is older.
    *response.version_mut() = Version::HTTP_11;
    response.map(Either::Left)
}

/// The host that a client asked for; an HTTP/1.0 client need not say. An error is where RFC 9112, 3.2 wants a 400.
fn requested_host(request: &Request<Incoming>) -> Result<Option<Authority>, ()> {
    let host = match only_value(request.headers(), &header::HOST) {
        Some(host) => Some(Authority::try_from(host.as_bytes()).map_err(drop)?),
        None if request.headers().contains_key(header::HOST) || request.version() > Version::HTTP_10 => {
            return Err(());
        }
        None => None,
    };
    // A whole URL in the request line overrides the header. Neither is a place for a user's name.
    let host = request.uri().authority().cloned().or(host);
    if host.as_ref().is_some_and(|host| host.as_str().contains('@')) { Err(()) } else { Ok(host) }
}

/// Drops what is for one connection only: the headers RFC 9110, 7.6.1 lists, and those that `Connection` names.
fn drop_hop_by_hop(headers: &mut HeaderMap) {
    const ALWAYS: &str = "connection,keep-alive,proxy-connection,te,trailer,transfer-encoding,upgrade,\
                          proxy-authenticate,proxy-authorization";
    // A length beside a transfer coding is a lie about the body, and what request smuggling is made of.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let names = lines.chain([ALWAYS]).flat_map(|line| line.split(','));
    let names: Vec<HeaderName> = names.filter_map(|name| name.trim().parse().ok()).collect();
    for name in names {
        headers.remove(name);
    }
}

/// Appends to a comma-separated header, on one line: some readers look at one only.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, item: &str) {
    let mut list: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
    list.push(item.as_bytes());
    let list = HeaderValue::from_bytes(&list.join(&b", "[..])).expect("made of header values and ASCII");
    headers.insert(name, list);
}

fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn via(received: Version) -> &'static str {
    if received == Version::HTTP_10 { "1.0 tollgate" } else { "1.1 tollgate" }
}

/// Connections to the upstream: as many as there are permits, never more, reused last in first out.
///
/// hyper-util's legacy client bounds the idle ones only, and a proxy that runs out of descriptors fails its clients.
struct Pool {
    upstream: Authority,
    idle: Arc<Mutex<Vec<SendRequest<Incoming>>>>,
    permits: Arc<Semaphore>,
}

impl Pool {
    fn new(upstream: Authority, connections: usize) -> Self {
        Self { upstream, idle: Arc::default(), permits: Arc::new(Semaphore::new(connections)) }
    }

    async fn send(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, BoxError> {
        let permit = self.permits.clone().acquire_owned().await?;
        loop {
            let idle = self.idle.lock().expect("nothing panics under this lock").pop();
            let kept_alive = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match connection.try_send_request(request).await {
                Ok(response) => {
                    self.keep(connection, permit);
                    return Ok(response);
                }
                // The upstream closed a connection while it lay idle. The request comes back unsent: try the next.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if kept_alive => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Incoming>, BoxError> {
        let address = format!("{}:{}", self.upstream.host(), self.upstream.port_u16().unwrap_or(80));
        let stream = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its errors reach whoever waits for a response.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Keeps a connection for reuse. It is ready when the response's body has been read, and never if the client
    /// left before that; until then it holds its permit.
    fn keep(&self, mut connection: SendRequest<Incoming>, permit: OwnedSemaphorePermit) {
        let idle = self.idle.clone();
        tokio::spawn(async move {
            if connection.ready().await.is_ok() {
                idle.lock().expect("nothing panics under this lock").push(connection);
            }
            drop(permit);
        });
    }
}

/// How many connections to have at most with clients and with the upstream, so that no number of clients can take the
/// descriptors that the upstream's need.
fn share_sockets(each_upstream: usize) -> (usize, usize) {
    // stdio, epoll, signals and two listeners are 13; the rest is for sockets on their way out.
    const OWN: usize = 16;
    // A hard limit of 1,024 leaves room for these, if the upstream then makes do with four connections.
    const CLIENTS_FIRST: usize = 1_000;
    let limit = open_files_limit();
    let upstream = (limit.saturating_sub(OWN + CLIENTS_FIRST) / each_upstream).clamp(4, 256);
    (limit.saturating_sub(OWN + upstream * each_upstream).clamp(1, Semaphore::MAX_PERMITS), upstream)
}

/// Raises the soft limit on open files, kept low for the sake of `select`, to the hard one.
#[cfg(unix)]
fn open_files_limit() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current;
    limit.current = limit.maximum;
    let limit = if setrlimit(Resource::Nofile, limit).is_ok() { limit.current } else { soft };
    limit.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

#[cfg(not(unix))]
fn open_files_limit() -> usize {
    usize::MAX
}

fn listen_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an address and a port such as 127.0.0.1:8080")
}

fn limit(text: &str) -> Result<Limit, InvalidQuota> {
    match text {
        "none" => Ok(Limit(None)),
        quota => quota.parse().map(|quota| Limit(Some(quota))),
    }
}

fn key(text: &str) -> Result<Key, String> {
    match text.strip_prefix("header:") {
        Some(name) => {
            name.parse().map(|name| Key(Some(name))).map_err(|_| format!("`{name}` is not a header name"))
        }
        None if text == "peer" => Ok(Key(None)),
        None => Err("expected `peer` or `header:NAME`".to_owned()),
    }
}

/// Resolves at Ctrl-C, or when a supervisor asks.
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let (mut interrupt, mut terminate) = {
        use tokio::signal::unix::{SignalKind, signal};
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    #[cfg(windows)]
    let (mut interrupt, mut terminate) =
        (tokio::signal::windows::ctrl_c()?, tokio::signal::windows::ctrl_close()?);
    Ok(async move {
        tokio::select! { _ = interrupt.recv() => (), _ = terminate.recv() => () }
    })
}

/// Prints one line at once, and does without if nobody reads any more, where `println!` would panic.
fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
