//! The log on stderr, and the access log's line of a request.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode, Version};
use tokio::time::Instant;
use tollgate::{Quota, RateLimiter};
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{DynFilterFn, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::forward::bodies::End;

type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// The log, with a format that can be changed.
pub(crate) struct LogHandle(reload::Handle<Lines, Registry>);

impl LogHandle {
    /// Starts to write each event of the process to stderr.
    pub(crate) fn start(json: bool) -> LogHandle {
        let (lines, handle) = reload::Layer::new(lines(json));
        let filter = Targets::new().with_default(Level::INFO);
        tracing_subscriber::registry().with(lines).with(DynFilterFn::new(is_logged)).with(filter).init();
        LogHandle(handle)
    }

    pub(crate) fn set_format(&self, json: bool) {
        // The call fails only if the log is gone, and the log lives as long as the process.
        let _ = self.0.reload(lines(json));
    }
}

/// Returns whether an event is written. A dead upstream fails each request, so each line of the
/// code that warns is bounded. `/metrics` counts all failures.
fn is_logged<S>(event: &Metadata<'_>, _: &Context<'_, S>) -> bool {
    static WARNINGS: LazyLock<RateLimiter<Identifier>> =
        LazyLock::new(|| RateLimiter::new(Quota::per_second(5).burst(10)));
    *event.level() != Level::WARN || WARNINGS.try_acquire(&event.callsite()).is_ok()
}

fn lines(json: bool) -> Lines {
    // A field of the access log is named `target`. The target of the event would be a second one.
    let lines = fmt::layer().with_writer(io::stderr).with_target(false);
    if json { lines.json().flatten_event(true).boxed() } else { lines.with_ansi(false).boxed() }
}

/// The line of a request in the access log, written when this value is dropped.
pub(crate) struct Line {
    began: Instant,
    client: IpAddr,
    method: Method,
    target: String,
    version: Version,
    /// The status of the response, or `None` if the client left before there was a response.
    pub(crate) status: Option<StatusCode>,
    pub(crate) upstream: Option<Arc<str>>,
    pub(crate) end: End,
    /// Bytes of the response's body.
    pub(crate) bytes: u64,
}

impl Line {
    pub(crate) fn of(request: &Request<Incoming>, client: IpAddr) -> Line {
        let (began, method, version) = (Instant::now(), request.method().clone(), request.version());
        let (target, end) = (target(request), End::Dropped);
        Line { began, client, method, target, version, status: None, upstream: None, end, bytes: 0 }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let Line { began, client, method, target, version, status, upstream, end, bytes } = self;
        let (status, upstream) = (status.map(|status| status.as_u16()), upstream.as_deref());
        let duration_ms = began.elapsed().as_micros() as f64 / 1e3;
        tracing::info!(
            %client, %method, target, ?version, status, upstream, bytes, ?end, duration_ms, "request"
        );
    }
}

/// Returns the target of a request in printable ASCII. Other bytes are percent-encoded, since some
/// of them are commands to a terminal.
fn target(request: &Request<Incoming>) -> String {
    let uri = request.uri();
    let target = match uri.path_and_query() {
        // HTTP/2 sends the host apart from the target.
        Some(path) if request.version() == Version::HTTP_2 => path.to_string(),
        _ => uri.to_string(),
    };
    let mut printable = String::with_capacity(target.len());
    for byte in target.bytes() {
        match byte {
            b'!'..=b'~' => printable.push(char::from(byte)),
            _ => printable += &format!("%{byte:02X}"),
        }
    }
    printable
}
