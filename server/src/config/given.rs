//! The settings that a file or the options name.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use tollgate::Priority;
use tollgate::http::Policy;

use super::checks::{check, is_same_prefix};
use super::fault::{Fault, fault};
use super::placed::{Placed, one_or_more};
use super::settings::{
    Address, Admin, Certificate, ExemptPath, Exemptions, InflightLimit, LogFormat, Route, Settings, Upstream,
};
use super::store::{StoreTable, check_store};
use super::timeouts::{Timeout, set_timeout};
use super::values::{
    AdminAddress, Counted, ExemptMethod, Host, Key, Limit, Named, Network, Number, OrNone, Prefix, Target,
    Time, Token,
};

/// The number of connections or requests: the most is far below what a semaphore can count.
type Count = Number<1, 100_000_000>;
/// The number of keys: the bound is that of a table.
type Keys = Number<1, { 1 << 28 }>;
/// The most requests in flight to an upstream, which its limit counts in 32 bits.
type Ceiling = Number<1, 100_000_000>;

/// The settings that are named in one place. `None` leaves a setting as it is.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Given {
    /// Where clients connect [127.0.0.1:8080]; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT|unix:PATH")]
    pub(super) listen: Option<Placed<Address>>,
    #[command(flatten)]
    tls: Option<Tls>,
    /// Each connection begins with a PROXY header, version 1 or 2
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    proxy_protocol: Option<bool>,
    /// Where requests go; without one and without a file, a server in this process answers; may be
    /// given more than once
    #[arg(long, value_name = "http://HOST[:PORT]|unix:PATH")]
    #[serde(deserialize_with = "one_or_more")]
    pub(super) upstream: Option<Vec<Placed<Upstream>>>,
    /// The upstream sees the client's Host instead of its own name
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    preserve_host: Option<bool>,
    /// The name of this proxy in Via [one that is made up at the start]
    #[arg(long, value_name = "NAME")]
    via: Option<Placed<Token>>,
    /// The quota or window of each key under no route [100/s burst 200]; `none` is no limit
    #[arg(long, value_name = "QUOTA|none")]
    pub(super) limit: Option<Placed<Limit>>,
    /// `peer` limits each client address, `header:NAME` each value of a header [peer]
    #[arg(long, value_name = "peer|header:NAME")]
    key: Option<Placed<Key>>,
    /// A network of proxies whose forwarding headers are believed; may be given more than once
    #[arg(long, value_name = "CIDR|IP")]
    #[serde(deserialize_with = "one_or_more")]
    trust_proxy: Option<Vec<Placed<Network>>>,
    /// Leading bits of an IPv4 address that are one client [32]
    #[arg(long, value_name = "8..=32")]
    ipv4_prefix: Option<Placed<Number<8, 32>>>,
    /// Leading bits of an IPv6 address that are one client [64]
    #[arg(long, value_name = "32..=64")]
    ipv6_prefix: Option<Placed<Number<32, 64>>>,
    /// /LOGIN is not under the route /login
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    case_sensitive: Option<bool>,
    #[command(flatten)]
    exempt: ExemptTable,
    /// Count decisions, and refuse no request
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    shadow: Option<bool>,
    #[command(flatten)]
    pub(super) admin: Option<AdminTable>,
    #[command(flatten)]
    pub(super) bounds: BoundsTable,
    #[command(flatten)]
    pub(super) inflight: InflightTable,
    #[command(flatten)]
    pub(super) store: StoreTable,
    /// A time-out by its name in [timeouts] of the file; may be given more than once
    #[arg(long, value_name = "NAME=DURATION")]
    #[serde(skip)]
    timeout: Vec<Placed<Timeout>>,
    #[arg(skip)]
    timeouts: BTreeMap<String, Placed<Time<1>>>,
    /// The time from a stop signal to the end of accepting connections [0s]
    #[arg(long, value_name = "DURATION")]
    lame_duck: Option<Placed<Time<0>>>,
    /// The time after that for the requests under way [10s]
    #[arg(long, value_name = "DURATION")]
    drain: Option<Placed<Time<0>>>,
    #[command(flatten)]
    log: LogTable,
    #[arg(skip)]
    route: Vec<RouteTable>,
    #[arg(skip)]
    remove_routes: Vec<Placed<String>>,
}

/// A certificate chain and its key, as PEM files: both or none.
#[derive(Args, Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    /// The certificate chain of TLS, a PEM file
    #[arg(long = "tls-cert", id = "tls-cert", value_name = "FILE", required = false, requires = "tls-key")]
    cert: PathBuf,
    /// The private key of TLS, a PEM file
    #[arg(long = "tls-key", id = "tls-key", value_name = "FILE", required = false, requires = "tls-cert")]
    key: PathBuf,
}

/// The allow list.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ExemptTable {
    /// A network of clients that are not limited; may be given more than once
    #[arg(long = "exempt-network", id = "exempt-network", value_name = "CIDR|IP")]
    #[serde(deserialize_with = "one_or_more")]
    networks: Option<Vec<Placed<Network>>>,
    /// A path that is not limited, or with /* all under it; may be given more than once
    #[arg(long = "exempt-path", id = "exempt-path", value_name = "PATH|PATH/*")]
    #[serde(deserialize_with = "one_or_more")]
    paths: Option<Vec<Placed<ExemptPath>>>,
    /// A method that is not limited; may be given more than once
    #[arg(long = "exempt-method", id = "exempt-method", value_name = "METHOD")]
    #[serde(deserialize_with = "one_or_more")]
    methods: Option<Vec<Placed<ExemptMethod>>>,
    /// The preflight requests of CORS are not limited
    #[arg(long = "exempt-preflights", id = "exempt-preflights", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    preflights: Option<bool>,
}

/// The admin listener. In the file, the table alone is enough.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdminTable {
    /// Serve a live page and /metrics [127.0.0.1:8081 if no address is given]
    #[arg(long = "admin", id = "admin", num_args = 0..=1, default_missing_value = "127.0.0.1:8081",
          value_name = "IP:PORT")]
    pub(super) listen: Option<Placed<AdminAddress>>,
    /// Let --admin be an address that others reach: each of them can change the limit
    #[arg(long = "admin-public", id = "admin-public", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub(super) public: Option<bool>,
    /// A host name that requests for --admin may name; may be given more than once
    #[arg(long = "admin-host", id = "admin-host", value_name = "NAME")]
    #[serde(deserialize_with = "one_or_more")]
    hosts: Option<Vec<Placed<Host>>>,
}

#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BoundsTable {
    /// Connections of one client address at a time [1024]
    #[arg(long, value_name = "N")]
    connections_per_address: Option<Placed<Count>>,
    /// Requests under way at a time [1024, or as many as open files have room for]
    #[arg(long, value_name = "N")]
    in_flight: Option<Placed<Count>>,
    /// Requests of one client address, and of one key, under way at a time [64]
    #[arg(long, value_name = "N")]
    pub(super) in_flight_per_key: Option<Placed<Count>>,
    /// Keys of each limit, in a table; `none` is a map that grows up to 2^20 keys [none]
    #[arg(long, value_name = "N|none")]
    keys_per_limit: Option<Placed<OrNone<Keys>>>,
    /// Bytes a second of a request's body, once it is late [500]; `none` is no bound
    #[arg(long, value_name = "N|none")]
    least_rate: Option<Placed<OrNone<Count>>>,
}

/// The limit on the requests in flight to each upstream.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct InflightTable {
    /// Requests in flight to each upstream; one more gets 503 at once; `none` is no limit [none]
    #[arg(long = "inflight", id = "inflight", value_name = "N|none")]
    pub(super) limit: Option<Placed<OrNone<Ceiling>>>,
    /// The limit adapts: nine in ten requests are answered within this time; `none` fixes it [none]
    #[arg(long = "target", id = "target", value_name = "DURATION|none")]
    pub(super) target: Option<Placed<OrNone<Target>>>,
}

#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LogTable {
    /// The form of the log [text]
    #[arg(long = "log", id = "log", value_name = "text|json")]
    format: Option<Placed<LogFormat>>,
    /// Log a line for each request
    #[arg(long = "access-log", id = "access-log", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    access: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteTable {
    prefix: Placed<Prefix>,
    limit: Placed<Counted>,
    name: Option<Placed<String>>,
    cost: Option<Placed<Number<1, { u64::MAX }>>>,
    priority: Option<Placed<Named>>,
}

/// Puts settings together: the options override the file, and both override the base.
pub(super) fn build(
    base: &Settings,
    file: &Given,
    folder: &Path,
    options: &Given,
) -> Result<Settings, Fault> {
    let mut settings = base.clone();
    file.apply(&mut settings, folder)?;
    if let Some(admin) = &options.admin
        && admin.listen.is_none()
        && settings.admin.is_none()
    {
        let option = if admin.public.is_some() { "--admin-public" } else { "--admin-host" };
        return Err(fault(None, format!("{option} needs --admin")));
    }
    options.apply(&mut settings, Path::new(""))?;
    check(file, options, &mut settings)?;
    check_store(file, options, &settings)?;
    Ok(settings)
}

impl Given {
    /// Sets each setting that is named. Paths of certificates are relative to the folder.
    fn apply(&self, to: &mut Settings, folder: &Path) -> Result<(), Fault> {
        set(&mut to.listen, self.listen.as_ref());
        if let Some(tls) = &self.tls {
            to.tls = Some(Certificate { chain: folder.join(&tls.cert), key: folder.join(&tls.key) });
        }
        to.proxy_protocol = self.proxy_protocol.unwrap_or(to.proxy_protocol);
        if let Some(upstreams) = &self.upstream {
            to.upstreams = upstreams.iter().map(|upstream| upstream.value.clone()).collect();
        }
        to.preserve_host = self.preserve_host.unwrap_or(to.preserve_host);
        if let Some(via) = &self.via {
            to.via = Some(via.value.0.clone());
        }
        if let Some(limit) = &self.limit {
            to.limit = limit.value.0;
        }
        if let Some(key) = &self.key {
            to.key = key.value.0.clone();
        }
        if let Some(networks) = &self.trust_proxy {
            to.trust_proxy = networks.iter().map(|network| network.value.0).collect();
        }
        // Their bounds are within those of `u8`.
        to.ipv4_prefix = self.ipv4_prefix.as_ref().map_or(to.ipv4_prefix, |bits| bits.value.0 as u8);
        to.ipv6_prefix = self.ipv6_prefix.as_ref().map_or(to.ipv6_prefix, |bits| bits.value.0 as u8);
        to.case_sensitive = self.case_sensitive.unwrap_or(to.case_sensitive);
        self.exempt.apply(&mut to.exempt);
        to.shadow = self.shadow.unwrap_or(to.shadow);
        if let Some(admin) = &self.admin {
            admin.apply(to);
        }
        set_count(&mut to.bounds.connections_per_address, self.bounds.connections_per_address.as_ref());
        set_count(&mut to.bounds.in_flight, self.bounds.in_flight.as_ref());
        set_count(&mut to.bounds.in_flight_per_key, self.bounds.in_flight_per_key.as_ref());
        if let Some(keys) = &self.bounds.keys_per_limit {
            to.bounds.keys_per_limit = keys.value.0.map(|keys| keys.0 as usize);
        }
        if let Some(rate) = &self.bounds.least_rate {
            to.bounds.least_rate = rate.value.0.map(|rate| rate.0);
        }
        self.inflight.apply(&mut to.inflight);
        self.store.apply(&mut to.store, folder);
        let of_file = self.timeouts.iter().map(|(name, time)| (name, time.value.0, time.at));
        let of_options = self.timeout.iter().map(|Placed { value, at }| (&value.name, value.time, *at));
        for (name, time, at) in of_file.chain(of_options) {
            let option = if at.is_none() { "--timeout: " } else { "" };
            set_timeout(&mut to.timeouts, name, time).map_err(|what| fault(at, format!("{option}{what}")))?;
        }
        to.timeouts.lame_duck = self.lame_duck.as_ref().map_or(to.timeouts.lame_duck, |time| time.value.0);
        to.timeouts.drain = self.drain.as_ref().map_or(to.timeouts.drain, |time| time.value.0);
        set(&mut to.log.format, self.log.format.as_ref());
        to.log.access = self.log.access.unwrap_or(to.log.access);
        self.apply_routes(&mut to.routes, to.case_sensitive)
    }

    pub(super) fn names_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The place of the limit of a route.
    pub(super) fn limit_of(&self, route: &str) -> Option<usize> {
        self.route.iter().find(|table| table.name().0 == route)?.limit.at
    }

    /// Changes the routes that are named, adds those that are new, and removes those to be removed.
    fn apply_routes(&self, routes: &mut Vec<Route>, case_sensitive: bool) -> Result<(), Fault> {
        routes.retain(|route| self.remove_routes.iter().all(|removed| removed.value != route.name));
        let mut named = vec!["default"];
        for table in &self.route {
            let (name, at) = table.name();
            if named.contains(&name) {
                return Err(fault(at, format!("the name {name:?} is taken")));
            }
            if self.remove_routes.iter().any(|removed| removed.value == name) {
                return Err(fault(at, format!("the route {name:?} is one of remove_routes")));
            }
            named.push(name);
            table.apply(routes)?;
        }
        for table in &self.route {
            let (name, _) = table.name();
            let prefix = &table.prefix.value.0;
            let is_same = |route: &&Route| is_same_prefix(&route.prefix, prefix, case_sensitive);
            if let Some(other) = routes.iter().filter(is_same).find(|route| route.name != name) {
                let stays = !named.contains(&other.name.as_str());
                let hint = if stays { "; remove_routes removes it" } else { "" };
                let same = if other.prefix == *prefix { "too" } else { "which has the same paths" };
                let (name, other) = (&other.name, &other.prefix);
                let what = format!("the route {name:?} has the prefix {other:?}, {same}{hint}");
                return Err(fault(table.prefix.at, what));
            }
        }
        Ok(())
    }
}

impl RouteTable {
    /// The name, which is the prefix if none is given, and its place.
    fn name(&self) -> (&str, Option<usize>) {
        match &self.name {
            Some(name) => (&name.value, name.at),
            None => (&self.prefix.value.0, self.prefix.at),
        }
    }

    /// Changes the route of this name, or adds it.
    fn apply(&self, routes: &mut Vec<Route>) -> Result<(), Fault> {
        let ((name, at), Counted(rule)) = (self.name(), self.limit.value);
        if let Err(why) = Policy::new(name, rule) {
            let what = match &self.name {
                Some(_) => format!("the name {name:?}: {why}"),
                None => {
                    format!("the prefix {name:?} is no name of a limit, so the route needs a `name`: {why}")
                }
            };
            return Err(fault(at, what));
        }
        let before = routes.iter_mut().find(|route| route.name == name);
        let kept = before.as_ref().map_or(Priority::Critical, |route| route.priority);
        let priority = self.priority.as_ref().map_or(kept, |named| named.value.0);
        let (cost, at) = match &self.cost {
            Some(cost) => (cost.value.0, cost.at),
            None => (before.as_ref().map_or(1, |route| route.cost), self.limit.at),
        };
        if cost > rule.capacity() {
            let most = rule.capacity();
            return Err(fault(
                at,
                format!("a cost of {cost} is out of the bounds of 1 and the burst, {most}"),
            ));
        }
        let (name, prefix) = (name.to_owned(), self.prefix.value.0.clone());
        let route = Route { name, prefix, rule, cost, priority };
        match before {
            Some(before) => *before = route,
            None => routes.push(route),
        }
        Ok(())
    }
}

impl ExemptTable {
    fn apply(&self, to: &mut Exemptions) {
        if let Some(networks) = &self.networks {
            to.networks = networks.iter().map(|network| network.value.0).collect();
        }
        if let Some(paths) = &self.paths {
            to.paths = paths.iter().map(|path| path.value.clone()).collect();
        }
        if let Some(methods) = &self.methods {
            to.methods = methods.iter().map(|method| method.value.0.clone()).collect();
        }
        to.preflights = self.preflights.unwrap_or(to.preflights);
    }
}

impl InflightTable {
    fn apply(&self, to: &mut Option<InflightLimit>) {
        let target = to.and_then(|limit| limit.target);
        if let Some(limit) = &self.limit {
            // The bound is below that of a `u32`.
            let limit = limit.value.0.map(|ceiling| ceiling.0 as u32);
            *to = limit.map(|ceiling| InflightLimit { ceiling, target });
        }
        if let (Some(limit), Some(target)) = (to, &self.target) {
            limit.target = target.value.0.as_ref().map(|target| target.0);
        }
    }
}

impl AdminTable {
    fn apply(&self, to: &mut Settings) {
        let at = SocketAddr::from(([127, 0, 0, 1], 8081));
        let admin = to.admin.get_or_insert_with(|| Admin { at, hosts: Vec::new() });
        admin.at = self.listen.as_ref().map_or(admin.at, |listen| listen.value.0);
        if let Some(hosts) = &self.hosts {
            admin.hosts = hosts.iter().map(|host| host.value.0.clone()).collect();
        }
    }
}

fn set<T: Clone>(setting: &mut T, given: Option<&Placed<T>>) {
    if let Some(given) = given {
        setting.clone_from(&given.value);
    }
}

fn set_count(setting: &mut usize, given: Option<&Placed<Count>>) {
    if let Some(given) = given {
        // The bound is below that of a `usize` of 32 bits.
        *setting = given.value.0 as usize;
    }
}
