//! The settings of the service, all of them rows of one table.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tracing::Level;

use super::checks::Check;
use super::counts::Algorithm;
use super::decide::DecisionOptions;
use super::statistics::{OWN_LABELS, quoted};
use super::status::HeaderNames;
use tollgate_common::net::tls::{Certificate, Clients};
use tollgate_common::settings::values::{Address, DAY, address, choice, number, switch, time};

/// A hundred years.
const NEVER: Duration = DAY.saturating_mul(36_525);

/// All settings. A reload reads them again.
#[derive(Clone, Debug)]
pub(crate) struct ServeSettings {
    /// The files and folders of the configuration.
    pub(crate) paths: Vec<PathBuf>,
    /// The TOML file. It is empty without one.
    pub(super) config: PathBuf,
    /// The root of the configuration, a folder in it, and one in that.
    pub(super) runtime: [PathBuf; 3],
    grpc: SocketAddr,
    grpc_socket: Option<PathBuf>,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(super) admin_public: bool,
    pub(crate) algorithm: Algorithm,
    pub(crate) max_keys: usize,
    /// The file in which the counts outlive the process.
    pub(crate) state: Option<PathBuf>,
    pub(crate) state_interval: Duration,
    pub(super) has_tls: bool,
    pub(super) certificate: Certificate,
    pub(super) client_ca: PathBuf,
    pub(super) client_names: Vec<String>,
    pub(crate) lame_duck: Duration,
    pub(crate) drain: Duration,
    pub(crate) log_json: bool,
    pub(crate) log_level: Level,
    /// The age at which a connection of gRPC gets GOAWAY, and the time for its last requests.
    pub(crate) max_age: Duration,
    pub(crate) max_age_grace: Duration,
    pub(crate) decision: DecisionOptions,
    pub(super) has_headers: bool,
    pub(super) headers: HeaderNames,
    /// The service is healthy only with a domain.
    pub(crate) needs_domain: bool,
    /// The service starts though the configuration is refused.
    pub(crate) starts_without: bool,
    pub(crate) merges_domains: bool,
    has_prometheus: bool,
    prometheus: SocketAddr,
    pub(crate) prometheus_path: String,
    pub(crate) in_milliseconds: bool,
    /// Labels of each metric, as a line of Prometheus has them.
    pub(super) extra_labels: String,
    has_no_stats: bool,
    /// The profiles of checks, by name. Only the TOML file has them.
    pub(super) checks: Arc<BTreeMap<String, Check>>,
}

impl ServeSettings {
    /// Returns the defaults.
    pub(super) fn new(paths: Vec<PathBuf>) -> ServeSettings {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut to = ServeSettings {
            paths,
            config: PathBuf::new(),
            runtime: Default::default(),
            grpc: any,
            grpc_socket: None,
            http: any,
            admin: (Ipv4Addr::LOCALHOST, 0).into(),
            admin_public: false,
            algorithm: Algorithm::default(),
            max_keys: 0,
            state: None,
            state_interval: Duration::ZERO,
            has_tls: false,
            certificate: Certificate::default(),
            client_ca: PathBuf::new(),
            client_names: Vec::new(),
            lame_duck: Duration::ZERO,
            drain: Duration::ZERO,
            log_json: false,
            log_level: Level::INFO,
            max_age: Duration::ZERO,
            max_age_grace: Duration::ZERO,
            decision: DecisionOptions::default(),
            has_headers: false,
            headers: HeaderNames::default(),
            needs_domain: false,
            starts_without: false,
            merges_domains: false,
            has_prometheus: false,
            prometheus: any,
            prometheus_path: String::new(),
            in_milliseconds: false,
            extra_labels: String::new(),
            has_no_stats: false,
            checks: Arc::default(),
        };
        for row in ROWS.iter().filter(|row| !row.default.is_empty()) {
            (row.set)(&mut to, row.default, Path::new("")).expect("a default is valid, as a test checks");
        }
        to
    }

    /// Listens at addresses of this host alone.
    pub(super) fn listen_here(&mut self) {
        self.grpc.set_ip(Ipv4Addr::LOCALHOST.into());
        self.http.set_ip(Ipv4Addr::LOCALHOST.into());
    }

    pub(crate) fn grpc(&self) -> Address {
        self.grpc_socket.clone().map_or(Address::Tcp(self.grpc), Address::Unix)
    }

    /// Returns the certificate of gRPC and the authority of its clients, if connections are TLS.
    pub(crate) fn tls(&self) -> Option<(Certificate, Option<Clients>)> {
        let has_authority = !self.client_ca.as_os_str().is_empty();
        let clients = Clients { authority: self.client_ca.clone(), names: self.client_names.clone() };
        self.has_tls.then(|| (self.certificate.clone(), has_authority.then_some(clients)))
    }

    /// Returns the files beside the configuration that a reload reads again.
    pub(super) fn other_files(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.certificate.chain, &self.certificate.key, &self.client_ca, &self.config];
        files.into_iter().map(PathBuf::as_path).filter(|path| !path.as_os_str().is_empty())
    }

    /// Returns the settings that a reload has read and only a restart would put in force.
    pub(super) fn needing_restart(&self, before: &ServeSettings) -> Vec<&'static str> {
        let changes = [
            ("the address of gRPC", self.grpc() != before.grpc()),
            ("the address of HTTP", self.http != before.http),
            ("the address of the debug pages", self.admin != before.admin),
            ("the address for Prometheus", self.prometheus() != before.prometheus()),
            ("TLS itself", self.has_tls != before.has_tls),
            ("algorithm", self.algorithm != before.algorithm),
            ("max_keys", self.max_keys != before.max_keys),
            ("state", (&self.state, self.state_interval) != (&before.state, before.state_interval)),
            ("log_level", self.log_level != before.log_level),
        ];
        changes.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect()
    }

    /// Returns the address of the listener for Prometheus alone.
    pub(crate) fn prometheus(&self) -> Option<SocketAddr> {
        (self.has_prometheus && !self.has_no_stats).then_some(self.prometheus)
    }
}

/// A setting.
pub(super) struct Row {
    /// The variable of the environment. An empty one is a setting without.
    pub(super) variable: &'static str,
    /// The flag and the form of its value, which is empty for a switch.
    pub(super) flag: &'static str,
    pub(super) default: &'static str,
    pub(super) help: &'static str,
    pub(super) set: fn(&mut ServeSettings, &str, &Path) -> Result<(), String>,
}

impl Row {
    /// Returns the flag without the form of its value.
    pub(super) fn long(&self) -> &'static str {
        self.flag.split(' ').next().unwrap_or_default()
    }

    /// Returns the name in a TOML file: that of the flag, or of the variable.
    pub(super) fn name(&self) -> String {
        let name = if self.flag.is_empty() { self.variable } else { self.long() };
        name.to_ascii_lowercase().replace('-', "_")
    }
}

macro_rules! rows {
    ($($variable:literal, $flag:literal, $default:literal, $help:literal: $set:expr;)*) => {
        pub(super) static ROWS: &[Row] =
            &[$(Row { variable: $variable, flag: $flag, default: $default, help: $help, set: $set },)*];
    };
}

rows! {
    "GRPC_HOST", "", "0.0.0.0", "the address of gRPC": |to, v, _| host(v).map(|it| to.grpc.set_ip(it));
    "GRPC_PORT", "", "8081", "the port of gRPC": |to, v, _| port(v).map(|it| to.grpc.set_port(it));
    "GRPC_UDS", "", "", "the path of a Unix socket for gRPC":
        |to, v, _| { to.grpc_socket = Some(v.into()); Ok(()) };
    "", "grpc ADDR|unix:PATH", "", "where gRPC is served [0.0.0.0:8081]": |to, v, _| {
        match address(v)? {
            Address::Tcp(at) => (to.grpc, to.grpc_socket) = (at, None),
            Address::Unix(path) => to.grpc_socket = Some(path),
        }
        Ok(())
    };
    "HOST", "", "0.0.0.0", "the address of HTTP": |to, v, _| host(v).map(|it| to.http.set_ip(it));
    "PORT", "", "8080", "the port of HTTP": |to, v, _| port(v).map(|it| to.http.set_port(it));
    "", "http ADDR", "", "where /json and /healthcheck are served [0.0.0.0:8080]":
        |to, v, _| tcp(v).map(|it| to.http = it);
    "DEBUG_HOST", "", "", "the address of the debug pages, also a public one": |to, v, _| {
        to.admin_public = true;
        host(v).map(|it| to.admin.set_ip(it))
    };
    "DEBUG_PORT", "", "6070", "the port of the debug pages": |to, v, _| port(v).map(|it| to.admin.set_port(it));
    "", "admin ADDR", "", "where the debug pages are served [127.0.0.1:6070]":
        |to, v, _| tcp(v).map(|it| (to.admin, to.admin_public) = (it, false));
    "", "admin-public", "false", "others than this host may reach the debug pages":
        |to, v, _| switch(v).map(|it| to.admin_public |= it);
    "", "algorithm fixed_window|token_bucket", "fixed_window", "how `unit` and `requests_per_unit` count": |to, v, _| {
        choice(v, &Algorithm::NAMES).map(|it| to.algorithm = it)
    };
    "", "max-keys N", "2097152", "the most keys of all limits; further ones share":
        |to, v, _| number(v, 1_024, 1 << 28).map(|it| to.max_keys = it);
    "TOLLGATE_STATE", "state FILE", "", "the counts outlive a restart in this file":
        |to, v, folder| { to.state = Some(folder.join(v)); Ok(()) };
    "TOLLGATE_STATE_INTERVAL", "state-interval DURATION", "1m", "from one save of it to the next":
        |to, v, _| time(v, Duration::from_millis(1), DAY).map(|it| to.state_interval = it);
    "GRPC_SERVER_USE_TLS", "", "false", "gRPC is TLS": |to, v, _| switch(v).map(|it| to.has_tls = it);
    "GRPC_SERVER_TLS_CERT", "tls-cert FILE", "", "the certificate chain of gRPC, a PEM file; the flag turns TLS on":
        |to, v, folder| { to.certificate.chain = folder.join(v); Ok(()) };
    "GRPC_SERVER_TLS_KEY", "tls-key FILE", "", "the private key of gRPC, a PEM file":
        |to, v, folder| { to.certificate.key = folder.join(v); Ok(()) };
    "GRPC_CLIENT_TLS_CACERT", "client-ca FILE", "", "the authority that clients need a certificate of, a PEM file":
        |to, v, folder| { to.client_ca = folder.join(v); Ok(()) };
    "GRPC_CLIENT_TLS_SAN", "client-san NAME[,NAME]", "", "the names of which the client's certificate needs one":
        |to, v, _| { to.client_names = v.split(',').map(|name| name.trim().to_owned()).collect(); Ok(()) };
    "GRPC_MAX_CONNECTION_AGE", "", "24h", "a connection of gRPC gets GOAWAY after this time, up to a tenth more or less; 0s is never":
        |to, v, _| age(v).map(|it| to.max_age = it);
    "GRPC_MAX_CONNECTION_AGE_GRACE", "", "1h", "and is closed after this time more; 0s is never":
        |to, v, _| age(v).map(|it| to.max_age_grace = it);
    "", "lame-duck DURATION", "5s", "from a stop signal to the end of accepting connections":
        |to, v, _| time(v, Duration::ZERO, DAY).map(|it| to.lame_duck = it);
    "", "drain DURATION", "10s", "from then on, for the requests under way":
        |to, v, _| time(v, Duration::ZERO, DAY).map(|it| to.drain = it);
    "LOG_LEVEL", "", "info", "trace, debug, info, warn or error (also fatal, panic)": |to, v, _| {
        let levels = [("trace", Level::TRACE), ("debug", Level::DEBUG), ("info", Level::INFO), ("warn", Level::WARN),
            ("warning", Level::WARN), ("error", Level::ERROR), ("fatal", Level::ERROR), ("panic", Level::ERROR)];
        choice(&v.to_ascii_lowercase(), &levels).map(|it| to.log_level = it)
    };
    "LOG_FORMAT", "log text|json", "text", "the form of the lines on stderr":
        |to, v, _| choice(&v.to_ascii_lowercase(), &[("text", false), ("json", true)]).map(|it| to.log_json = it);
    "RUNTIME_ROOT", "", "/srv/runtime_data/current", "the root of the configuration, if no PATH is given":
        |to, v, _| { to.runtime[0] = v.into(); Ok(()) };
    "RUNTIME_SUBDIRECTORY", "", "", "a folder in it": |to, v, _| { to.runtime[1] = v.into(); Ok(()) };
    "RUNTIME_APPDIRECTORY", "", "config", "a folder in that": |to, v, _| { to.runtime[2] = v.into(); Ok(()) };
    "RUNTIME_IGNOREDOTFILES", "", "true", "accepted; files that begin with a dot are never read": |_, v, _| switch(v).map(drop);
    "RUNTIME_WATCH_ROOT", "", "true", "accepted; all paths are looked at, four times a second": |_, v, _| switch(v).map(drop);
    "NEAR_LIMIT_RATIO", "", "0.8", "the share of a limit from which hits count as near it": |to, v, _| {
        let share = v.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        share.ok_or("expected a number from 0 to 1".to_owned()).map(|it| to.decision.near_limit_ratio = it)
    };
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "", "false", "if one limit of a request is over, others do not count it":
        |to, v, _| switch(v).map(|it| to.decision.stops_when_over = it);
    "LIMIT_RESPONSE_HEADERS_ENABLED", "", "false", "answers have headers": |to, v, _| switch(v).map(|it| to.has_headers = it);
    "LIMIT_LIMIT_HEADER", "", "RateLimit-Limit", "the header of the limit":
        |to, v, _| { to.headers.limit = v.to_owned(); Ok(()) };
    "LIMIT_REMAINING_HEADER", "", "RateLimit-Remaining", "the header of what is left":
        |to, v, _| { to.headers.remaining = v.to_owned(); Ok(()) };
    "LIMIT_RESET_HEADER", "", "RateLimit-Reset", "the header of the seconds to the end of the window":
        |to, v, _| { to.headers.reset = v.to_owned(); Ok(()) };
    "SHADOW_MODE", "shadow", "false", "decisions are counted, and no request is refused":
        |to, v, _| switch(v).map(|it| to.decision.is_shadow = it);
    "QUOTA_MODE", "", "false", "each limit is a quota": |to, v, _| switch(v).map(|it| to.decision.is_quota = it);
    "RESPONSE_DYNAMIC_METADATA", "", "false", "answers have dynamic metadata":
        |to, v, _| switch(v).map(|it| to.decision.tells_metadata = it);
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "", "false", "healthy only once a domain is loaded":
        |to, v, _| switch(v).map(|it| to.needs_domain = it);
    "FORCE_START_WITHOUT_INITIAL_CONFIG", "", "false", "start though the configuration is refused":
        |to, v, _| switch(v).map(|it| to.starts_without = it);
    "MERGE_DOMAIN_CONFIG", "", "false", "files may share a domain": |to, v, _| switch(v).map(|it| to.merges_domains = it);
    "USE_PROMETHEUS", "", "false", "a listener of its own for Prometheus": |to, v, _| switch(v).map(|it| to.has_prometheus = it);
    "PROMETHEUS_ADDR", "", ":9090", "its address": |to, v, _| tcp(v).map(|it| to.prometheus = it);
    "PROMETHEUS_PATH", "", "/metrics", "its path": |to, v, _| { to.prometheus_path = v.to_owned(); Ok(()) };
    "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "", "false", "response times are in milliseconds there":
        |to, v, _| switch(v).map(|it| to.in_milliseconds = it);
    "EXTRA_TAGS", "", "", "labels of each metric, as `k:v,k2:v2`": |to, v, _| labels(v).map(|it| to.extra_labels = it);
    "DISABLE_STATS", "", "false", "there is no such listener": |to, v, _| switch(v).map(|it| to.has_no_stats = it);
}

/// Returns the labels of tags, with `_` for each character that no label has.
fn labels(text: &str) -> Result<String, String> {
    let mut labels = BTreeMap::new();
    for tag in text.split(',') {
        let (name, value) = tag.split_once(':').ok_or("expected tags such as zone:eu,stage:test")?;
        let name: String =
            name.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if !name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            return Err(format!("`{tag}` has no name of a label, which begins with a letter"));
        }
        if OWN_LABELS.contains(&&*name) {
            return Err(format!("`{name}` is a label of the metrics themselves"));
        }
        if labels.insert(name.clone(), quoted(value.trim())).is_some() {
            return Err(format!("`{name}` is there twice"));
        }
    }
    Ok(labels.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(","))
}

/// Returns the age of a connection. An age of 0 is none, as in gRPC's own settings.
fn age(text: &str) -> Result<Duration, String> {
    match time(text, Duration::ZERO, 366 * DAY)? {
        Duration::ZERO => Ok(NEVER),
        age if age < Duration::from_secs(1) => Err("the least is 1s, and 0s is never".to_owned()),
        age => Ok(age),
    }
}

fn host(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => text.parse().map_err(|_| "expected an address such as 0.0.0.0".to_owned()),
    }
}

fn port(text: &str) -> Result<u16, String> {
    number(text, 0, u16::MAX)
}

/// Returns an address of TCP. One without a host, such as `:9090`, is of all hosts.
fn tcp(text: &str) -> Result<SocketAddr, String> {
    let of_all =
        || text.strip_prefix(':').and_then(|port| Some((Ipv4Addr::UNSPECIFIED, port.parse().ok()?).into()));
    let at = text.parse().ok().or_else(of_all);
    at.ok_or_else(|| "expected an address and a port such as 127.0.0.1:6070".to_owned())
}
