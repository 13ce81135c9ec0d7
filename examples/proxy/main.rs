//! A reverse proxy that limits each client, over an upstream that it brings along.
//!
//! ```text
//! cargo run --release --example proxy
//! curl -i http://127.0.0.1:8080/
//! wrk -t2 -c64 -d10s -s examples/wrk-status.lua http://127.0.0.1:8080/
//! ```
//!
//! A request within the quota goes to the upstream; any other is answered here with `429 Too Many Requests`,
//! `Retry-After` and one line of text. Responses tell of the limit by `RateLimit` and `RateLimit-Policy`. Bodies stream both ways
//! and connections are kept alive on both sides. The
//! upstream is told who asked by `X-Forwarded-For`, `-Proto` and `-Host`, `Forwarded` and `Via`; `Host` names the
//! upstream itself. Without `--upstream` it is a small server in this process, which answers with the head of the
//! request as it arrived, or streams the body back if there is one.
//!
//! `--key peer` gives every client address (without its port; of version 6 its /64) a bucket. `--key header:NAME` gives one to
//! every value of that header; a request that does not have it exactly once is limited by its address, under the same quota.
//! Values and addresses never share a bucket, and of a value a digest is kept. A header is whatever the client says until
//! something has checked it: key by one that a trusted hop in front has set or verified, or each new value is a new burst.
//!
//! Behind another proxy every address is that proxy's. `--trust-proxy 10.0.0.0/8` believes what peers of that network say in
//! `X-Forwarded-For`, from the right up to the first address that is in none of these networks.
//!
//! `--routes FILE` has limits for some paths, in the form that `routes.rs` shows; the longest prefix wins, and what is under none
//! has `--limit`. SIGHUP reads it again: who has used up a limit before a change has used it up after. A file with a mistake
//! changes nothing. `--shadow` decides, counts and tells all that, but refuses nobody.
//!
//! `--admin` serves on 127.0.0.1:8081, or where it says: `/` is a page that shows what happens and changes the limit, `/events`
//! what it is fed with, and `/metrics` is for Prometheus. Any process of this host may ask. `POST /limit` with a quota is taken from
//! this very page only, that is with its `Origin`: `curl -H 'Origin: http://127.0.0.1:8081' -d '50/s burst 100'
//! http://127.0.0.1:8081/limit`. An address that others reach needs `--admin-public`.
//!
//! Once a second, if there was traffic, one line says what that second decided and how long a decision took (the
//! mean, with one reading of `Instant` in it). Ctrl-C and SIGTERM drain: who has
//! connected is answered, a second for those that are silent and ten for the requests under way; the exit code is 0. An option that
//! cannot work is one sentence on stderr and exit code 2.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use hyper::header::HeaderName;
use hyper::http::uri::Authority;
use ipnet::IpNet;
use limits::{Limits, Setup, Sums, peer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tollgate::{InvalidQuota, Quota};

mod admin;
mod forward;
mod limits;
mod routes;
mod serve;
#[path = "../upstream/mod.rs"]
mod upstream;

/// A reverse proxy that limits each client.
#[derive(Parser)]
struct Options {
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8080", value_parser = socket_address)]
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
    /// A network of proxies whose X-Forwarded-For is believed; may be given more than once
    #[arg(long, value_name = "CIDR", value_parser = network)]
    trust_proxy: Vec<IpNet>,
    /// A TOML file with limits for some paths; SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Decide and count, but refuse nobody
    #[arg(long)]
    shadow: bool,
    /// Serve a live page and /metrics; at 127.0.0.1:8081 if no address is given
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:8081",
          value_parser = socket_address)]
    admin: Option<SocketAddr>,
    /// Let --admin be an address that is not of this host alone: whoever reaches it can change the limit
    #[arg(long)]
    admin_public: bool,
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
    let Options { listen, upstream, limit, key, trust_proxy, routes, shadow, admin, admin_public } = options;
    // Before the first line is printed: whoever reads it may send a signal at once.
    let no_signals = |e| format!("error: cannot listen for signals: {e}");
    let stop = stop_signal().map_err(no_signals)?;
    let whom = key.0.as_ref().map_or("client address".to_owned(), |name| format!("value of {name}"));
    let client = if trust_proxy.is_empty() { peer() } else { peer().xff_trusted(trust_proxy) };
    let setup = Setup { client, header: key.0.map(Into::into), shadow };
    let limits = Arc::new(Limits::new(limit.0, setup));
    let reloading = match routes {
        Some(file) => {
            let changes = limits.set_routes(routes::read(&file)?);
            let hangups = Hangups::new().map_err(no_signals)?;
            Some((file, changes, hangups))
        }
        None => None,
    };
    let (listener, address) = bind(listen).await?;
    let admin = match admin {
        Some(at) if !at.ip().is_loopback() && !admin_public => {
            return Err(format!(
                "error: --admin {at} is not a loopback address: whoever reaches it can change the limit, so it \
                 needs --admin-public"
            ));
        }
        Some(at) => Some(bind(at).await?),
        None if admin_public => return Err("error: --admin-public needs --admin".to_owned()),
        None => None,
    };
    // An upstream in this process takes two of its sockets for each connection.
    let (upstream, sockets_each) = match upstream {
        Some(upstream) => (upstream, 1),
        None => (upstream::start().await.map_err(|e| format!("error: cannot start an upstream: {e}"))?, 2),
    };
    let (clients, connections) = share_sockets(admin.as_ref().map_or(0, |_| admin::PLACES + 1), sockets_each);
    let limited = limit.0.map_or("no limit".to_owned(), |quota| format!("{quota} for each {whom}"));
    let only_counted = if shadow { " in shadow mode" } else { "" };
    say(format_args!(
        "tollgate proxy on http://{address} to http://{upstream}, {limited}{only_counted}: curl -i http://{address}/"
    ));
    if let Some((listener, address)) = admin {
        say(format_args!("admin page on http://{address}/, and /metrics"));
        tokio::spawn(admin::serve(listener, limits.clone()));
    }
    if limit.0.is_some() || reloading.is_some() {
        tokio::spawn(report_every_second(limits.clone()));
    }
    if let Some((file, changes, hangups)) = reloading {
        changes.iter().for_each(|change| say(format_args!("{change}")));
        tokio::spawn(reload(file, hangups, limits.clone()));
    }
    let forward = forward::Forward::new(upstream, connections);
    serve::serve(Arc::new(serve::Proxy::new(limits, forward)), listener, clients, stop).await;
    Ok(())
}

async fn bind(at: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let cannot_listen = |e| format!("error: cannot listen on {at}: {e}");
    let listener = TcpListener::bind(at).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    Ok((listener, address))
}

async fn report_every_second(limits: Arc<Limits>) {
    let refused = if limits.setup().shadow { "would be refused" } else { "refused" };
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    // Not what there is when this task begins: by then somebody may have been served.
    let mut before = Sums::default();
    loop {
        seconds.tick().await;
        let now = limits.sums();
        let second = now.since(before);
        before = now;
        if let Some(mean) = second.mean_nanos() {
            let keys: usize = limits.with_all(|limit| limit.stats().keys).iter().sum();
            say(format_args!(
                "granted {}, {refused} {}, keys {keys}, {mean} ns per decision",
                second.granted, second.refused
            ));
        }
    }
}

/// Reads the file of routes again at each hangup, and says what has changed.
async fn reload(file: PathBuf, mut hangups: Hangups, limits: Arc<Limits>) {
    while hangups.next().await {
        match read_in_thread(&file).await {
            Ok(entries) => {
                let (routes, changes) = (entries.len(), limits.set_routes(entries));
                changes.iter().for_each(|change| say(format_args!("{change}")));
                say(format_args!("{} read again: {routes} routes", file.display()));
            }
            Err(sentence) => eprintln!("{sentence}; all routes stay as they were"),
        }
    }
}

/// A slow disk stops no connection.
async fn read_in_thread(file: &Path) -> Result<Vec<routes::Entry>, String> {
    let file = file.to_owned();
    tokio::task::spawn_blocking(move || routes::read(&file)).await.expect("reading does not panic")
}

/// How many connections to have at most with clients and with the upstream, so that no number of clients can take the
/// descriptors that the upstream's need.
fn share_sockets(admin: usize, each_upstream: usize) -> (usize, usize) {
    // stdio, epoll, signals and two listeners are 13; the rest is for sockets on their way out.
    const OWN: usize = 16;
    // A hard limit of 1,024 leaves room for these, if the upstream then makes do with four connections.
    const CLIENTS_FIRST: usize = 1_000;
    let limit = open_files_limit().saturating_sub(admin);
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

fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
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

/// A network, or the address of one proxy.
fn network(text: &str) -> Result<IpNet, &'static str> {
    let address = || text.parse().ok().map(|address: std::net::IpAddr| address.into());
    text.parse().ok().or_else(address).ok_or("expected a network such as 10.0.0.0/8, or an address")
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

/// SIGHUP, where there is such a thing.
struct Hangups(#[cfg(unix)] tokio::signal::unix::Signal);

impl Hangups {
    #[cfg(unix)]
    fn new() -> io::Result<Hangups> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup()).map(Hangups)
    }

    #[cfg(unix)]
    async fn next(&mut self) -> bool {
        self.0.recv().await.is_some()
    }

    #[cfg(not(unix))]
    fn new() -> io::Result<Hangups> {
        Ok(Hangups())
    }

    #[cfg(not(unix))]
    async fn next(&mut self) -> bool {
        false
    }
}

/// Prints one line at once, and does without if nobody reads any more, where `println!` would panic.
fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
