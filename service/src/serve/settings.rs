//! The settings of the service, and their rows in its table.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tollgate_distributed::OnOutage;
use tracing::Level;

use super::checks::Check;
use super::counts::Algorithm;
use super::decide::DecisionOptions;
use super::reserve::settings::{LAPSED, ReservationSettings};
use super::setting_values::{age, host, labels, lease, name, port, spread, tcp};
use super::shared::settings::{Layout, StoreSettings, StoreUrl};
use super::status::HeaderNames;
use super::xds::settings::XdsSettings;
use tollgate_common::net::tls::{Certificate, Clients};
use tollgate_common::settings;
use tollgate_common::settings::table::Set::{Joined, One, Secret};
use tollgate_common::settings::table::Value::Usual;
use tollgate_common::settings::values::{Address, DAY, address, choice, number, switch, time};

/// The levels of the log, in the spellings of envoyproxy/ratelimit.
const LEVELS: [(&str, Level); 8] = [
    ("trace", Level::TRACE),
    ("debug", Level::DEBUG),
    ("info", Level::INFO),
    ("warn", Level::WARN),
    ("warning", Level::WARN),
    ("error", Level::ERROR),
    ("fatal", Level::ERROR),
    ("panic", Level::ERROR),
];

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
    /// The control plane of the rules.
    pub(crate) xds: XdsSettings,
    /// The store of the counts. It says whether, and with which layout, a source named it.
    pub(crate) store: StoreSettings,
    pub(super) names_store: bool,
    pub(super) names_layout: bool,
    /// Of the limits, while the store does not answer.
    pub(super) share: f64,
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
    pub(super) reservations: ReservationSettings,
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
    /// Returns settings before the defaults, which the table has.
    pub(super) fn blank(paths: Vec<PathBuf>) -> ServeSettings {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        ServeSettings {
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
            xds: XdsSettings::default(),
            store: StoreSettings::default(),
            names_store: false,
            names_layout: false,
            share: 1.0,
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
            reservations: ReservationSettings::default(),
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
        }
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
            ("store", self.store != before.store),
            ("xds", self.xds != before.xds),
            ("log_level", self.log_level != before.log_level),
        ];
        changes.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect()
    }

    /// Returns the address of the listener for Prometheus alone.
    pub(crate) fn prometheus(&self) -> Option<SocketAddr> {
        (self.has_prometheus && !self.has_no_stats).then_some(self.prometheus)
    }
}

settings! { pub(super) static SETTINGS: ServeSettings;
    "grpc_host", "" = "GRPC_HOST", "the address of gRPC" =>
        One(|to, v, _| host(v).map(|it| to.grpc.set_ip(it))), Usual("0.0.0.0");
    "grpc_port", "" = "GRPC_PORT", "the port of gRPC" =>
        One(|to, v, _| port(v).map(|it| to.grpc.set_port(it))), Usual("8081");
    "grpc_uds", "" = "GRPC_UDS", "the path of a Unix socket for gRPC" =>
        One(|to, v, _| { to.grpc_socket = Some(v.into()); Ok(()) }), Usual("");
    "grpc", "grpc ADDR|unix:PATH", "where gRPC is served [0.0.0.0:8081]" =>
        One(|to, v, _| {
            match address(v)? {
                Address::Tcp(at) => (to.grpc, to.grpc_socket) = (at, None),
                Address::Unix(path) => to.grpc_socket = Some(path),
            }
            Ok(())
        }), Usual("");
    "host", "" = "HOST", "the address of HTTP" =>
        One(|to, v, _| host(v).map(|it| to.http.set_ip(it))), Usual("0.0.0.0");
    "port", "" = "PORT", "the port of HTTP" =>
        One(|to, v, _| port(v).map(|it| to.http.set_port(it))), Usual("8080");
    "http", "http ADDR", "where /json and /healthcheck are served [0.0.0.0:8080]" =>
        One(|to, v, _| tcp(v).map(|it| to.http = it)), Usual("");
    "debug_host", "" = "DEBUG_HOST", "the address of the debug pages, also a public one" =>
        One(|to, v, _| {
            to.admin_public = true;
            host(v).map(|it| to.admin.set_ip(it))
        }), Usual("");
    "debug_port", "" = "DEBUG_PORT", "the port of the debug pages" =>
        One(|to, v, _| port(v).map(|it| to.admin.set_port(it))), Usual("6070");
    "admin", "admin ADDR", "where the debug pages are served [127.0.0.1:6070]" =>
        One(|to, v, _| tcp(v).map(|it| (to.admin, to.admin_public) = (it, false))), Usual("");
    "admin_public", "admin-public", "others than this host may reach the debug pages" =>
        One(|to, v, _| switch(v).map(|it| to.admin_public |= it)), Usual("false");
    "algorithm", "algorithm fixed_window|token_bucket", "how `unit` and `requests_per_unit` count" =>
        One(|to, v, _| choice(v, &Algorithm::NAMES).map(|it| to.algorithm = it)), Usual("fixed_window");
    "max_keys", "max-keys N", "the most keys of all limits; further ones share" =>
        One(|to, v, _| number(v, 1_024, 1 << 28).map(|it| to.max_keys = it)), Usual("2097152");
    "state", "state FILE" = "TOLLGATE_STATE", "the counts outlive a restart in this file" =>
        One(|to, v, folder| { to.state = Some(folder.join(v)); Ok(()) }), Usual("");
    "state_interval", "state-interval DURATION" = "TOLLGATE_STATE_INTERVAL",
        "from one save of it to the next" =>
        One(|to, v, _| time(v, Duration::from_millis(1), DAY).map(|it| to.state_interval = it)), Usual("1m");
    "store.url", "store URL|none" = "TOLLGATE_STORE",
        "replicas share their counts in it; `none` counts in this process" =>
        Secret(|to, v, folder| {
            let is_none = ["none", "memory"].contains(&v);
            to.store.url = if is_none { None } else { Some(StoreUrl::read(v, folder)?) };
            to.names_store = true;
            Ok(())
        }), Usual("");
    "store.name", "store-name NAME" = "TOLLGATE_STORE_NAME", "replicas of one name share their counts" =>
        One(|to, v, _| name(v).map(|it| to.store.name = it)), Usual("serve");
    "store.layout", "store-layout tollgate|envoy" = "TOLLGATE_STORE_LAYOUT",
        "`envoy`: the keys of envoyproxy/ratelimit in a Redis, by a call for each request" =>
        One(|to, v, _| choice(v, &Layout::NAMES).map(|it| {
            (to.store.layout, to.names_layout) = (it, true);
        })), Usual("");
    "store.lease", "store-lease DURATION" = "TOLLGATE_STORE_LEASE",
        "the time for which tokens of busy keys are taken ahead; 0s asks the store for each request" =>
        One(|to, v, _| lease(v).map(|it| to.store.lease = it)), Usual("100ms");
    "store.deadline", "store-deadline DURATION" = "TOLLGATE_STORE_DEADLINE",
        "for an answer of the store, below that of Envoy for the service" =>
        One(|to, v, _| time(v, Duration::from_millis(1), Duration::from_secs(10)).map(|it| to.store.deadline = it)),
        Usual("15ms");
    "store.on_outage", "store-on-outage local|deny|allow" = "TOLLGATE_STORE_ON_OUTAGE",
        "without the store: limit by a share (`local`), refuse, or let all pass" =>
        One(|to, v, _| {
            let known = [("local", OnOutage::Local { share: 1.0 }), ("deny", OnOutage::Deny), ("allow", OnOutage::Allow)];
            choice(v, &known).map(|it| to.store.on_outage = it)
        }), Usual("local");
    "store.share", "store-share NUMBER" = "TOLLGATE_STORE_SHARE",
        "of the limits, with `local`: 1 / n of n replicas" =>
        One(|to, v, _| {
            let share = v.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
            share.ok_or("expected a number above 0 and at most 1".to_owned()).map(|it| to.share = it)
        }), Usual("1");
    "grpc_server_use_tls", "" = "GRPC_SERVER_USE_TLS", "gRPC is TLS" =>
        One(|to, v, _| switch(v).map(|it| to.has_tls = it)), Usual("false");
    "tls_cert", "tls-cert FILE" = "GRPC_SERVER_TLS_CERT",
        "the certificate chain of gRPC, a PEM file; the flag turns TLS on" =>
        One(|to, v, folder| { to.certificate.chain = folder.join(v); Ok(()) }), Usual("");
    "tls_key", "tls-key FILE" = "GRPC_SERVER_TLS_KEY", "the private key of gRPC, a PEM file" =>
        One(|to, v, folder| { to.certificate.key = folder.join(v); Ok(()) }), Usual("");
    "client_ca", "client-ca FILE" = "GRPC_CLIENT_TLS_CACERT",
        "the authority that clients need a certificate of, a PEM file" =>
        One(|to, v, folder| { to.client_ca = folder.join(v); Ok(()) }), Usual("");
    "client_san", "client-san NAME[,NAME]" = "GRPC_CLIENT_TLS_SAN",
        "the names of which the client's certificate needs one" =>
        Joined(|to, v| {
            to.client_names = v.split(',').map(|name| name.trim().to_owned()).collect();
            Ok(())
        }), Usual("");
    "grpc_max_connection_age", "" = "GRPC_MAX_CONNECTION_AGE",
        "a connection of gRPC gets GOAWAY after this time, up to a tenth more or less; 0s is never" =>
        One(|to, v, _| age(v).map(|it| to.max_age = it)), Usual("24h");
    "grpc_max_connection_age_grace", "" = "GRPC_MAX_CONNECTION_AGE_GRACE",
        "and is closed after this time more; 0s is never" =>
        One(|to, v, _| age(v).map(|it| to.max_age_grace = it)), Usual("1h");
    "lame_duck", "lame-duck DURATION", "from a stop signal to the end of accepting connections" =>
        One(|to, v, _| time(v, Duration::ZERO, DAY).map(|it| to.lame_duck = it)), Usual("5s");
    "drain", "drain DURATION", "from then on, for the requests under way" =>
        One(|to, v, _| time(v, Duration::ZERO, DAY).map(|it| to.drain = it)), Usual("10s");
    "log_level", "" = "LOG_LEVEL", "trace, debug, info, warn or error (also fatal, panic)" =>
        One(|to, v, _| choice(&v.to_ascii_lowercase(), &LEVELS).map(|it| to.log_level = it)), Usual("info");
    "log", "log text|json" = "LOG_FORMAT", "the form of the lines on stderr" =>
        One(|to, v, _| choice(&v.to_ascii_lowercase(), &[("text", false), ("json", true)]).map(|it| to.log_json = it)),
        Usual("text");
    "runtime_root", "" = "RUNTIME_ROOT", "the root of the configuration, if no PATH is given" =>
        One(|to, v, _| { to.runtime[0] = v.into(); Ok(()) }), Usual("/srv/runtime_data/current");
    "runtime_subdirectory", "" = "RUNTIME_SUBDIRECTORY", "a folder in it" =>
        One(|to, v, _| { to.runtime[1] = v.into(); Ok(()) }), Usual("");
    "runtime_appdirectory", "" = "RUNTIME_APPDIRECTORY", "a folder in that" =>
        One(|to, v, _| { to.runtime[2] = v.into(); Ok(()) }), Usual("config");
    "runtime_ignoredotfiles", "" = "RUNTIME_IGNOREDOTFILES",
        "accepted; files that begin with a dot are never read" =>
        One(|_, v, _| switch(v).map(drop)), Usual("true");
    "runtime_watch_root", "" = "RUNTIME_WATCH_ROOT",
        "accepted; all paths are looked at, four times a second" =>
        One(|_, v, _| switch(v).map(drop)), Usual("true");
    "near_limit_ratio", "" = "NEAR_LIMIT_RATIO", "the share of a limit from which hits count as near it" =>
        One(|to, v, _| {
            let share = v.parse().ok().filter(|share| (0.0..=1.0).contains(share));
            share.ok_or("expected a number from 0 to 1".to_owned()).map(|it| to.decision.near_limit_ratio = it)
        }), Usual("0.8");
    "stop_cache_key_increment_when_overlimit", "" = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        "if one limit of a request is over, others do not count it" =>
        One(|to, v, _| switch(v).map(|it| to.decision.stops_when_over = it)), Usual("false");
    "limit_response_headers_enabled", "" = "LIMIT_RESPONSE_HEADERS_ENABLED", "answers have headers" =>
        One(|to, v, _| switch(v).map(|it| to.has_headers = it)), Usual("false");
    "limit_limit_header", "" = "LIMIT_LIMIT_HEADER", "the header of the limit" =>
        One(|to, v, _| { to.headers.limit = v.to_owned(); Ok(()) }), Usual("RateLimit-Limit");
    "limit_remaining_header", "" = "LIMIT_REMAINING_HEADER", "the header of what is left" =>
        One(|to, v, _| { to.headers.remaining = v.to_owned(); Ok(()) }), Usual("RateLimit-Remaining");
    "limit_reset_header", "" = "LIMIT_RESET_HEADER", "the header of the seconds to the end of the window" =>
        One(|to, v, _| { to.headers.reset = v.to_owned(); Ok(()) }), Usual("RateLimit-Reset");
    "shadow", "shadow" = "SHADOW_MODE", "decisions are counted, and no request is refused" =>
        One(|to, v, _| switch(v).map(|it| to.decision.is_shadow = it)), Usual("false");
    "quota_mode", "" = "QUOTA_MODE", "each limit is a quota" =>
        One(|to, v, _| switch(v).map(|it| to.decision.is_quota = it)), Usual("false");
    "spread_retries", "spread-retries DURATION",
        "a refusal tells a longer wait, by up to this time: each key has a share of its own" =>
        One(|to, v, _| spread(v).map(|it| to.decision.spread = it)), Usual("0s");
    "response_dynamic_metadata", "" = "RESPONSE_DYNAMIC_METADATA", "answers have dynamic metadata" =>
        One(|to, v, _| switch(v).map(|it| to.decision.tells_metadata = it)), Usual("false");
    "log_metadata", "log-metadata",
        "the dynamic metadata of answers has the decision, its limit and a digest of its key, for access logs" =>
        One(|to, v, _| switch(v).map(|it| to.decision.tells_decision = it)), Usual("false");
    "healthy_with_at_least_one_config_loaded", "" = "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        "healthy only once a domain is loaded" =>
        One(|to, v, _| switch(v).map(|it| to.needs_domain = it)), Usual("false");
    "force_start_without_initial_config", "" = "FORCE_START_WITHOUT_INITIAL_CONFIG",
        "start though the configuration is refused" =>
        One(|to, v, _| switch(v).map(|it| to.starts_without = it)), Usual("false");
    "merge_domain_config", "" = "MERGE_DOMAIN_CONFIG", "files may share a domain" =>
        One(|to, v, _| switch(v).map(|it| to.merges_domains = it)), Usual("false");
    "use_prometheus", "" = "USE_PROMETHEUS", "a listener of its own for Prometheus" =>
        One(|to, v, _| switch(v).map(|it| to.has_prometheus = it)), Usual("false");
    "prometheus_addr", "" = "PROMETHEUS_ADDR", "its address" =>
        One(|to, v, _| tcp(v).map(|it| to.prometheus = it)), Usual(":9090");
    "prometheus_path", "" = "PROMETHEUS_PATH", "its path" =>
        One(|to, v, _| { to.prometheus_path = v.to_owned(); Ok(()) }), Usual("/metrics");
    "prometheus_response_time_as_milliseconds", "" = "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        "response times are in milliseconds there" =>
        One(|to, v, _| switch(v).map(|it| to.in_milliseconds = it)), Usual("false");
    "extra_tags", "" = "EXTRA_TAGS", "labels of each metric, as `k:v,k2:v2`" =>
        Joined(|to, v| labels(v).map(|it| to.extra_labels = it)), Usual("");
    "disable_stats", "" = "DISABLE_STATS", "there is no such listener" =>
        One(|to, v, _| switch(v).map(|it| to.has_no_stats = it)), Usual("false");
    "max_reservation_ttl", "max-reservation-ttl DURATION" = "TOLLGATE_MAX_RESERVATION_TTL",
        "the longest time of a reservation, and that of one without a time" =>
        One(|to, v, _| time(v, Duration::from_millis(1), DAY).map(|it| to.reservations.max_ttl = it)),
        Usual("1m");
    "lapsed_reservations", "lapsed-reservations charge|release" = "TOLLGATE_LAPSED_RESERVATIONS",
        "the amount of a reservation that no commit settles in time stays charged, or goes back" =>
        One(|to, v, _| choice(v, &LAPSED).map(|it| to.reservations.are_released = it)), Usual("charge");
    "max_reservations", "max-reservations N" = "TOLLGATE_MAX_RESERVATIONS",
        "the most open reservations of this process; further ones are refused" =>
        One(|to, v, _| number(v, 1, 1 << 28).map(|it| to.reservations.most = it)), Usual("1048576");
}
