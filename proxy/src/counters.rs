//! Counts of events at the proxy, for `/metrics`.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! events {
    ($($(#[doc = $doc:literal])* $event:ident = $name:literal,)*) => {
        /// An event that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Event { $($(#[doc = $doc])* $event,)* }

        const EVENTS: &[(Event, &str, &str)] = &[$((Event::$event, $name, concat!($($doc,)*)),)*];
    };
}

events! {
    /// Connections that were closed at once: their address has as many as it may.
    ConnectionRefused = "connections_refused",
    /// Connections that were idle for longest, and were closed for a new one.
    ConnectionIdle = "idle_connections_closed",
    /// Connections whose PROXY header is missing, malformed or of a peer that is not trusted.
    ProxyHeader = "proxy_header_errors",
    /// TLS handshakes that failed.
    TlsHandshake = "tls_handshake_errors",
    /// Connections that were closed for a flood of HTTP/2 frames that ask for nothing.
    Flood = "http2_floods",
    /// Requests that are no HTTP, or that HTTP forbids: 400.
    BadRequest = "bad_requests",
    /// Heads of requests over the bound: 431.
    HeadTooLarge = "request_heads_too_large",
    /// Connections closed because no whole head of a request, or none at all, came in time.
    HeadTimeout = "request_head_timeouts",
    /// Bodies of requests that ended too soon, or are malformed: 400.
    BrokenBody = "request_bodies_broken",
    /// Bodies of requests with more bytes than they may have: 413.
    BodyTooLarge = "request_bodies_too_large",
    /// Bodies of requests that stood still for too long: 408.
    BodyTimeout = "request_body_timeouts",
    /// Requests that came back to this proxy: 508.
    Loop = "request_loops",
    /// Requests that found no place in time, since their key had as many under way as it may: 429.
    KeyBusy = "in_flight_per_key_timeouts",
    /// Requests that found no place in time among all: 503.
    Busy = "in_flight_timeouts",
    /// Requests that found no place at any upstream: 503.
    Crowded = "upstreams_full",
    /// Requests whose upstream cannot be reached, or failed: 502.
    BadGateway = "upstream_errors",
    /// Requests whose upstream did not accept the connection in time: 504.
    ConnectTimeout = "upstream_connect_timeouts",
    /// Requests whose upstream did not begin to respond in time: 504.
    ResponseHeadTimeout = "response_head_timeouts",
    /// Responses that the upstream broke off.
    BrokenResponse = "response_bodies_broken",
    /// Responses whose body stood still for too long.
    ResponseBodyTimeout = "response_body_timeouts",
    /// Connections whose client did not read its response in time.
    SlowReader = "slow_readers",
    /// Requests that were sent to an upstream again.
    Retry = "upstream_retries",
    /// Connections that were upgraded.
    Upgrade = "upgrades",
    /// Changes of a limit, by the page or by a file.
    LimitChanged = "limit_changes",
    /// Files that could not be taken over at a reload.
    ReloadFailed = "reload_errors",
}

/// A count of each [`Event`].
#[derive(Default)]
pub(crate) struct Counters([AtomicU64; EVENTS.len()]);

impl Counters {
    pub(crate) fn add(&self, event: Event) {
        self.0[event as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count(&self, event: Event) -> u64 {
        self.0[event as usize].load(Relaxed)
    }

    /// Appends the counts in the text format of Prometheus, as `tollgate_proxy_NAME_total`.
    pub(crate) fn prometheus(&self, text: &mut String) {
        for (event, name, help) in EVENTS {
            let (name, help) = (format!("tollgate_proxy_{name}_total"), help.trim());
            let count = self.count(*event);
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {count}");
        }
    }
}
