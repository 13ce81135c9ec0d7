//! A reverse proxy that limits each client.
//!
//! The order of a request: [`listen`] (PROXY header, TLS), [`serve`] (HTTP), [`limits`] (its limit),
//! [`forward`] (a place, an upstream), and back through [`bodies`].

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;

pub(crate) use config::{Options, sentence};
use counters::{Counters, Event};
use limits::{Limits, Sums};
use listen::{Listener, Tls};
use serve::Proxy;
use settings::{Address, Log, LogFormat, Settings, Upstream};
use signals::{Hangups, Stops};

mod admin;
mod bodies;
mod config;
mod connect;
mod counters;
mod demo;
mod forward;
mod forwarded;
mod limits;
mod listen;
mod paths;
mod places;
mod serve;
mod settings;
mod signals;

/// Serves until a signal says stop. `true`: each request was answered. `false`: some were cut.
/// An error is one sentence.
pub(crate) async fn run(options: Options) -> Result<bool, String> {
    // Before the first line is printed: its reader may send a signal at once.
    let no_signals = |error| format!("cannot listen for signals: {error}");
    let (stops, hangups) = (Stops::new().map_err(no_signals)?, Hangups::new().map_err(no_signals)?);
    let settings = config::load(&options)?;
    log_to_stderr(&settings.log);
    let counters: Arc<Counters> = Arc::default();
    let tls = settings.tls.as_ref().map(Tls::read).transpose()?.map(Arc::new);
    let listener = Listener::bind(&settings.listen)?;
    let port = match listener.address() {
        Address::Tcp(address) => address.port(),
        Address::Unix(_) if settings.tls.is_some() => 443,
        Address::Unix(_) => 80,
    };
    let admin = match &settings.admin {
        Some(admin) => Some(bind(admin.at).await?),
        None => None,
    };
    let (demo, sockets_each) = match settings.upstreams.first() {
        Some(upstream) => (upstream.clone(), 1),
        // An upstream in this process takes two of its sockets for each connection.
        None => (demo::start().await.map_err(|e| format!("cannot start an upstream: {e}"))?, 2),
    };
    let admin_sockets = admin.as_ref().map_or(0, |_| admin::PLACES + 1);
    let (clients, in_flight) = share_sockets(admin_sockets, sockets_each, settings.bounds.in_flight);
    let mut settings = settings;
    if in_flight < settings.bounds.in_flight {
        tracing::warn!(in_flight, "the limit on open files leaves room for fewer requests under way");
        settings.bounds.in_flight = in_flight;
    }
    let via = settings.via.clone().unwrap_or_else(|| format!("tollgate-{:08x}", RandomState::new().hash_one(0) as u32));
    let limits = Arc::new(Limits::new(&settings, counters.clone()));
    let forward = forward::Forward::new(&settings, &demo, via, port, counters.clone());
    introduce(&settings, &listener, &demo);
    let proxy = Arc::new(Proxy::new(settings, limits.clone(), forward, tls, counters));
    let ready = Arc::new(AtomicBool::new(true));
    if let Some((listener, address)) = admin {
        say(format_args!("admin page on http://{address}/, and /metrics"));
        tokio::spawn(admin::serve(listener, proxy.clone(), ready.clone()));
    }
    tokio::spawn(report_every_second(limits));
    tokio::spawn(reload(options, hangups, proxy.clone(), demo));
    serve_until(stops, proxy, listener, clients, &ready).await
}

/// Prints the meaning of the settings, or the first mistake as one sentence.
pub(crate) fn check(options: &Options) -> Result<bool, String> {
    let settings = config::load(options)?;
    settings.tls.as_ref().map(Tls::read).transpose()?;
    say(format_args!("{}", config::describe(&settings).trim_end()));
    Ok(true)
}

/// Serves until the first stop signal and what follows it; a second one ends at once.
async fn serve_until(
    mut stops: Stops,
    proxy: Arc<Proxy>,
    listener: Listener,
    clients: usize,
    ready: &AtomicBool,
) -> Result<bool, String> {
    let (stop, is_stopped) = tokio::sync::oneshot::channel();
    let stopped = async {
        let _ = is_stopped.await;
    };
    let serving = serve::serve(proxy.clone(), listener, clients, stopped);
    let signals = async {
        stops.next().await;
        ready.store(false, Relaxed);
        let lame_duck = proxy.settings().timeouts.lame_duck;
        if lame_duck > Duration::ZERO {
            say(format_args!("accepting for another {}", humantime::format_duration(lame_duck)));
        }
        tokio::select! {
            () = sleep(lame_duck) => (),
            () = stops.next() => return,
        }
        let _ = stop.send(());
        stops.next().await;
    };
    tokio::select! {
        whole = serving => Ok(whole),
        () = signals => Ok(proxy.forward.under_way() == 0),
    }
}

/// Says where the proxy is, and how to see what it does.
fn introduce(settings: &Settings, listener: &Listener, demo: &Upstream) {
    let upstreams: Vec<String> = match &*settings.upstreams {
        [] => vec![demo.to_string()],
        upstreams => upstreams.iter().map(ToString::to_string).collect(),
    };
    let key = settings.key.as_ref().map_or("client address".to_owned(), |name| format!("value of {name}"));
    let limit = settings.limit.map_or("no limit".to_owned(), |quota| format!("{quota} for each {key}"));
    let shadow = if settings.shadow { " in shadow mode" } else { "" };
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let (url, curl) = match &settings.listen {
        Address::Tcp(_) => (format!("{scheme}://{}", listener.address()), "curl".to_owned()),
        Address::Unix(path) => (listener.address().to_string(), format!("curl --unix-socket '{}'", path.display())),
    };
    let target = match &settings.listen {
        Address::Tcp(_) => url.clone(),
        Address::Unix(_) => format!("{scheme}://localhost"),
    };
    let insecure = if settings.tls.is_some() { " -k" } else { "" };
    say(format_args!("tollgate proxy on {url} to {}, {limit}{shadow}", upstreams.join(", ")));
    say(format_args!("  a request:  {curl}{insecure} -i {target}/"));
    if let Some(quota) = settings.limit {
        let requests = quota.capacity().saturating_mul(2).clamp(2, 100_000);
        say(format_args!(
            "  a refusal:  {curl}{insecure} -s -o /dev/null -w '%{{http_code}}\\n' '{target}/?[1-{requests}]' | sort | uniq -c"
        ));
    }
}

async fn bind(at: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let cannot_listen = |e| format!("cannot listen on {at}: {e}");
    let listener = TcpListener::bind(at).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    Ok((listener, address))
}

fn log_to_stderr(log: &Log) {
    let lines = tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(tracing::Level::INFO);
    match log.format {
        LogFormat::Text => lines.with_ansi(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// One line for each second with a decision.
async fn report_every_second(limits: Arc<Limits>) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    // Not the sums when this task begins: a request may have been decided by then.
    let mut before = Sums::default();
    loop {
        seconds.tick().await;
        let now = limits.sums();
        let second = now.since(before);
        before = now;
        if let Some(mean) = second.mean_nanos() {
            let in_force = limits.in_force();
            let refused = if in_force.shadow { "would be refused" } else { "refused" };
            let keys: usize = in_force.all().map(|limit| limit.stats().keys).sum();
            say(format_args!(
                "granted {}, {refused} {}, keys {keys}, {mean} ns per decision",
                second.granted, second.refused
            ));
        }
    }
}

/// Reads the file and the certificate again at each hangup, and says each change.
async fn reload(options: Options, mut hangups: Hangups, proxy: Arc<Proxy>, demo: Upstream) {
    let options = Arc::new(options);
    loop {
        hangups.next().await;
        let (options, before) = (options.clone(), proxy.settings());
        // A slow disk stops no connection.
        let read = tokio::task::spawn_blocking(move || config::reload(&options, &before)).await;
        let taken = match read.expect("reading does not panic") {
            Ok((settings, lines)) => take_over(settings, &proxy, &demo).map(|said| (lines, said)),
            Err(sentence) => Err(sentence),
        };
        match taken {
            Ok((lines, said)) => lines.iter().chain(&said).for_each(|line| say(format_args!("{line}"))),
            Err(sentence) => {
                proxy.counters.add(Event::ReloadFailed);
                tracing::error!("{sentence}; all settings stay as they were");
                continue;
            }
        }
        say(format_args!("settings read again"));
    }
}

/// Puts settings in force. An error changes nothing.
fn take_over(settings: Settings, proxy: &Proxy, demo: &Upstream) -> Result<Vec<String>, String> {
    let before = proxy.settings();
    if let (Some(tls), Some(files)) = (&proxy.tls, &settings.tls) {
        tls.replace(files)?;
    }
    let said = proxy.limits.replace(&settings);
    proxy.forward.resize(before.bounds.in_flight, settings.bounds.in_flight);
    proxy.forward.replace(&settings, demo);
    *proxy.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    Ok(said)
}

/// The numbers of connections with clients and of requests under way that the limit on open files
/// leaves room for, so that no number of clients can take the descriptors that the upstreams' need.
fn share_sockets(admin: usize, each_upstream: usize, in_flight: usize) -> (usize, usize) {
    // stdio, epoll, signals and two listeners are 13; the rest is for sockets on their way out.
    const OWN: usize = 16;
    // A hard limit of 1,024 leaves room for these, if the upstreams then make do with four connections.
    const CLIENTS_FIRST: usize = 1_000;
    let limit = open_files_limit().saturating_sub(admin);
    let upstream = (limit.saturating_sub(OWN + CLIENTS_FIRST) / each_upstream).clamp(4, in_flight.max(4));
    let clients = limit.saturating_sub(OWN + upstream * each_upstream);
    (clients.clamp(1, Semaphore::MAX_PERMITS), upstream.min(in_flight))
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

/// Prints one line at once, and does without if the reader is gone, where `println!` would panic.
fn say(line: std::fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
