//! The settings of the proxy, once the file and the options are put together.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use humantime::format_duration;
use hyper::Method;
use hyper::header::HeaderName;
use hyper::http::uri::Authority;
use ipnet::IpNet;
use rustls::pki_types::CertificateDer;
use tollgate::{AnyRule, Quota};
use tollgate_adaptive::{Inflight, InvalidLimit, Priority};

use crate::pace::Patience;
use tollgate_common::net::tls::Certificate;
use tollgate_common::settings;
use tollgate_common::settings::table::{Set, Value, plain};
use tollgate_common::settings::values::{Address, DAY, time};

const NONE: Duration = Duration::ZERO;
const NANO: Duration = Duration::from_nanos(1);
/// The requests under way at a time if the settings name no number, and the limit on open files has
/// room.
pub(crate) const IN_FLIGHT: usize = 1_024;

/// All settings. A reload replaces them as a whole.
#[derive(Clone, PartialEq)]
pub(crate) struct Settings {
    /// Where clients connect. A change needs a restart.
    pub(crate) listen: Address,
    /// The certificate and the key, if connections are TLS.
    pub(crate) tls: Option<Certificate>,
    /// Each connection begins with a PROXY header. A change needs a restart.
    pub(crate) proxy_protocol: bool,
    /// Where requests go. Without one, a server in this process.
    pub(crate) upstreams: Vec<Upstream>,
    /// A file of the authorities that upstreams with TLS are checked by. `None`: those of the host.
    pub(crate) upstream_ca: Option<PathBuf>,
    /// Their certificates, as of the last time that the settings were read.
    pub(crate) upstream_roots: Arc<[CertificateDer<'static>]>,
    /// The upstream sees the client's `Host` instead of its own name.
    pub(crate) preserve_host: bool,
    /// The name of this proxy in `Via`, if it is not to be made up. A change needs a restart.
    pub(crate) via: Option<String>,
    /// The rule of each key for requests under no route. `None` limits none of them.
    pub(crate) limit: Option<AnyRule>,
    /// The parts of the key by which requests are limited, at least one.
    pub(crate) key: Vec<KeyPart>,
    /// The ban of a key that is refused too often.
    pub(crate) ban: Option<Ban>,
    /// The longest wait of a request for its tokens. `None` refuses it at once.
    pub(crate) delay: Option<Duration>,
    /// The most requests that wait for their tokens, at the limits of a route.
    pub(crate) max_waiting: usize,
    /// Networks of proxies: their forwarding headers are believed.
    pub(crate) trust_proxy: Vec<IpNet>,
    /// Leading bits of an address that are one client.
    pub(crate) ipv4_prefix: u8,
    pub(crate) ipv6_prefix: u8,
    /// Limits of some paths.
    pub(crate) routes: Vec<Route>,
    /// `/LOGIN` is not under the route `/login`.
    pub(crate) case_sensitive: bool,
    /// Requests that no limit applies to.
    pub(crate) exempt: Exemptions,
    /// Decisions are counted, and no request is refused.
    pub(crate) shadow: bool,
    pub(crate) admin: Option<Admin>,
    pub(crate) bounds: Bounds,
    /// The limit on the requests in flight to each upstream. `None` is no limit.
    pub(crate) inflight: Option<InflightLimit>,
    pub(crate) timeouts: Timeouts,
    pub(crate) log: Log,
    /// The store of the limits, if several proxies share them.
    pub(crate) store: Option<Store>,
    /// The file in which the limits of this process outlive it. A change needs a restart.
    pub(crate) state: Option<PathBuf>,
    pub(crate) state_interval: Duration,
}

/// The store that the proxies of a fleet share, and how this one uses it.
#[derive(Clone, PartialEq)]
pub(crate) struct Store {
    pub(crate) url: StoreUrl,
    /// Proxies of one name share their limits.
    pub(crate) name: String,
    /// Each decision asks the store, and none is by a lease.
    pub(crate) exact: bool,
    /// The longest wait for an answer.
    pub(crate) deadline: Duration,
    pub(crate) on_outage: Outage,
    /// The share of the limits that this proxy grants by itself, with [`Outage::Local`].
    pub(crate) share: f64,
}

/// The decisions while the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    Local,
    Deny,
    Allow,
}

/// The URL of a store. Its text has no password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl(pub(crate) String);

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((engine, rest)) = self.0.split_once("://") else { return self.0.fmt(f) };
        let (host, query) = rest.split_once(['?', '#']).map_or((rest, None), |(a, b)| (a, Some(b)));
        match host.rsplit_once('@') {
            // The sign may be one of the password.
            _ if query.is_some_and(|query| query.contains('@')) => write!(f, "{engine}://***")?,
            Some((user, host)) => match user.split_once(':') {
                Some((user, _)) => write!(f, "{engine}://{user}:***@{host}")?,
                None => write!(f, "{engine}://{user}@{host}")?,
            },
            None => write!(f, "{engine}://{host}")?,
        }
        f.write_str(if query.is_some() { "?..." } else { "" })
    }
}

/// A part of the key of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KeyPart {
    /// The client's address.
    Peer,
    Header(HeaderName),
    Cookie(String),
    Method,
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyPart::Peer => f.write_str("peer"),
            KeyPart::Header(name) => write!(f, "header:{name}"),
            KeyPart::Cookie(name) => write!(f, "cookie:{name}"),
            KeyPart::Method => f.write_str("method"),
        }
    }
}

/// The ban of a key: its refusals within a window, and the time of the ban.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ban {
    pub(crate) refusals: u64,
    pub(crate) window: Duration,
    pub(crate) time: Duration,
}

impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [window, time] = [self.window, self.time].map(format_duration);
        write!(f, "{}/{window} for {time}", self.refusals)
    }
}

/// A limit for requests whose path is the prefix, or below it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    /// Unique among the routes; `default` is taken by the limit of everything else.
    pub(crate) name: String,
    /// Begins with `/`, as it was written.
    pub(crate) prefix: String,
    pub(crate) rule: AnyRule,
    /// Tokens of one request, at least 1 and at most the burst, or the limit of a window.
    pub(crate) cost: u64,
    /// The share of an upstream's limit in flight that its requests may use.
    pub(crate) priority: Priority,
    /// Those of all limits, unless the route names its own.
    pub(crate) key: Option<Vec<KeyPart>>,
    pub(crate) ban: Option<Option<Ban>>,
    pub(crate) delay: Option<Option<Duration>>,
}

/// The allow list. A request is exempt if one of these names it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exemptions {
    /// Networks of clients.
    pub(crate) networks: Vec<IpNet>,
    /// Paths as clients send them, which every server reads as they are spelled. One that ends with
    /// `/*` stands for the paths under that prefix.
    pub(crate) paths: Vec<String>,
    pub(crate) methods: Vec<Method>,
    /// The preflight requests of CORS.
    pub(crate) preflights: bool,
}

/// The admin listener. A change of `at` needs a restart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Admin {
    pub(crate) at: SocketAddr,
    /// Host names, besides `localhost` and addresses, that requests may name.
    pub(crate) hosts: Vec<String>,
    /// Others than this host may reach it.
    pub(crate) public: bool,
}

/// How much clients may hold at a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// Connections of one client address (of IPv6 its /64). Networks of `trust_proxy` are exempt.
    pub(crate) connections_per_address: usize,
    /// Requests under way at a time.
    pub(crate) in_flight: usize,
    /// Requests of one client address, and of one key, under way at a time.
    pub(crate) in_flight_per_key: usize,
    /// Keys of each limit, in a table. `None` is a map, of up to 2^20 keys.
    pub(crate) keys_per_limit: Option<usize>,
    /// Bytes a second of a request's body. `None` is no bound.
    pub(crate) least_rate: Option<u64>,
    /// Bytes of a request's body. `None` is no bound.
    pub(crate) request_body: Option<u64>,
}

/// The limit on the requests in flight to one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InflightLimit {
    /// The limit, or with a target the most that it may become.
    pub(crate) ceiling: u32,
    /// With a target the limit adapts: nine tenths of the requests are answered within it.
    pub(crate) target: Option<Duration>,
}

impl InflightLimit {
    /// Returns the limit at its start. A limit that adapts may start at another number.
    pub(crate) fn inflight(self, start: Option<u32>) -> Result<Inflight, InvalidLimit> {
        let InflightLimit { ceiling, target } = self;
        let Some(target) = target else { return Ok(Inflight::fixed(ceiling)) };
        let builder = Inflight::adaptive(target, ceiling);
        match start {
            Some(start) => builder.start(start.clamp(1, ceiling)).build(),
            None => builder.build(),
        }
    }
}

/// Makes the longest times, and the table of their rows: each with its default in seconds and its
/// least.
macro_rules! times {
    ($($name:literal, $option:literal, $help:literal: $field:ident, $default:literal, $least:expr;)*) => {
        /// The longest times. All but the last two are above zero.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct Timeouts { $(#[doc = $help] pub(crate) $field: Duration,)* }

        impl Default for Timeouts {
            fn default() -> Timeouts {
                Timeouts { $($field: Duration::from_secs($default),)* }
            }
        }

        settings! { pub(super) static TIMES: Settings; $(
            $name, $option, $help =>
                Set::One(|to, v, _| time(v, $least, DAY).map(|time| to.timeouts.$field = time)),
                Value::Shown(|of| plain(format_duration(of.timeouts.$field)));
        )* }
    };
}

times! {
    "timeouts.request_head", "timeout request_head=DURATION", "for each request head, a TLS handshake, a PROXY header": request_head, 30, NANO;
    "timeouts.keep_alive", "timeout keep_alive=DURATION", "between two requests of a connection": keep_alive, 75, NANO;
    "timeouts.request_body", "timeout request_body=DURATION", "for a part of a request's body, or all parts that are late": request_body, 10, NANO;
    "timeouts.whole_body", "timeout whole_body=DURATION", "for a whole body, of a request or of a response": whole_body, 86_400, NANO;
    "timeouts.queue", "timeout queue=DURATION", "for a place among the requests in flight": queue, 5, NANO;
    "timeouts.connect", "timeout connect=DURATION", "for a connection to the upstream": connect, 5, NANO;
    "timeouts.response_head", "timeout response_head=DURATION", "from the end of a request to the head of its response": response_head, 30, NANO;
    "timeouts.response_body", "timeout response_body=DURATION", "between two parts of a response's body": response_body, 30, NANO;
    "timeouts.slow_reader", "timeout slow_reader=DURATION", "for a client that does not read its response": slow_reader, 60, NANO;
    "timeouts.tunnel", "timeout tunnel=DURATION", "without a byte from the upstream in an upgraded connection": tunnel, 300, NANO;
    "lame_duck", "lame-duck DURATION", "from a stop signal to the end of accepting connections": lame_duck, 0, NONE;
    "drain", "drain DURATION", "from then on, for the requests under way": drain, 10, NONE;
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Log {
    /// Lines are JSON, and not text.
    pub(crate) json: bool,
    /// A line for each request.
    pub(crate) access: bool,
    /// A line for each refusal, as far as there are not too many.
    pub(crate) refusals: bool,
}

/// An address to connect to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Upstream {
    Tcp(Authority),
    /// With TLS, in which the upstream chooses HTTP/2 or HTTP/1.1.
    Tls(Authority),
    /// With HTTP/2 from the first byte on.
    H2c(Authority),
    Unix(PathBuf),
}

impl Upstream {
    /// Returns the host, with its port if it names one. A Unix socket has none.
    pub(crate) fn authority(&self) -> Option<&Authority> {
        match self {
            Upstream::Tcp(authority) | Upstream::Tls(authority) | Upstream::H2c(authority) => Some(authority),
            Upstream::Unix(_) => None,
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Upstream::Tls(_))
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upstream::Tcp(authority) => write!(f, "http://{authority}"),
            Upstream::Tls(authority) => write!(f, "https://{authority}"),
            Upstream::H2c(authority) => write!(f, "h2c://{authority}"),
            Upstream::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Settings {
    /// Returns the parts of the key of a route, or of the requests under none.
    pub(crate) fn key_of<'a>(&'a self, route: Option<&'a Route>) -> &'a [KeyPart] {
        route.and_then(|route| route.key.as_ref()).unwrap_or(&self.key)
    }

    pub(crate) fn ban_of(&self, route: Option<&Route>) -> Option<Ban> {
        route.and_then(|route| route.ban).unwrap_or(self.ban)
    }

    pub(crate) fn delay_of(&self, route: Option<&Route>) -> Option<Duration> {
        route.and_then(|route| route.delay).unwrap_or(self.delay)
    }

    /// Whether the forwarding headers of this peer are believed.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.trust_proxy.iter().any(|network| network.contains(&peer))
    }

    /// The patience with a client that sends a body.
    pub(crate) fn patience(&self) -> Patience {
        let Timeouts { request_body: longest, whole_body: whole, .. } = self.timeouts;
        Patience { longest, rate: self.bounds.least_rate, whole }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 8080))),
            tls: None,
            proxy_protocol: false,
            upstreams: Vec::new(),
            upstream_ca: None,
            upstream_roots: Arc::new([]),
            preserve_host: false,
            via: None,
            limit: Some(Quota::per_second(100).burst(200).into()),
            key: vec![KeyPart::Peer],
            ban: None,
            delay: None,
            max_waiting: 1_024,
            trust_proxy: Vec::new(),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            routes: Vec::new(),
            case_sensitive: false,
            exempt: Exemptions::default(),
            shadow: false,
            admin: None,
            bounds: Bounds {
                connections_per_address: 1_024,
                in_flight: IN_FLIGHT,
                in_flight_per_key: 64,
                keys_per_limit: Some(1 << 20),
                least_rate: Some(500),
                request_body: None,
            },
            inflight: None,
            timeouts: Timeouts::default(),
            log: Log::default(),
            store: None,
            state: None,
            state_interval: Duration::from_secs(60),
        }
    }
}
