//! Settings that do not go together.

use std::net::{IpAddr, SocketAddr};

use hyper::http::uri::Authority;
use tollgate::Rule;

use super::fault::{Fault, fault};
use super::given::Origins;
use super::rows::settings;
use super::settings::{Address, Settings, Upstream};
use super::shared::{counts, window_in_store};

/// The settings without which others of their table have no effect.
const OWNERS: [&str; 3] = ["admin.listen", "inflight.limit", "store.url"];

/// Checks the settings that a file and options have together.
pub(super) fn check(given: Origins<'_>, to: &mut Settings) -> Result<(), Fault> {
    check_owners(given, to)?;
    check_admin(given, to)?;
    check_addresses(given, to)?;
    check_bounds(given, to)?;
    check_store(given, to)
}

/// Returns whether two prefixes have the same paths.
pub(super) fn is_same_prefix(one: &str, other: &str, case_sensitive: bool) -> bool {
    let [one, other] = [one, other].map(|prefix| prefix.trim_end_matches('/'));
    if case_sensitive { one == other } else { one.eq_ignore_ascii_case(other) }
}

/// A setting that has no effect without another one needs that. The options may turn the other one
/// of the file off.
fn check_owners(given: Origins<'_>, to: &Settings) -> Result<(), Fault> {
    if given.options.texts.contains_key("tls.cert") != given.options.texts.contains_key("tls.key") {
        return Err(fault(None, "--tls-cert and --tls-key need each other".to_owned()));
    }
    let is_there = [to.admin.is_some(), to.inflight.is_some(), to.store.is_some()];
    for (owner, _) in OWNERS.into_iter().zip(is_there).filter(|(_, is_there)| !is_there) {
        let table = owner.split_inclusive('.').next().unwrap_or_default();
        let is_off = given.texts(owner).is_some();
        let needy = |name: &str| name.starts_with(table) && name != owner;
        let is_needy = |name: &str| {
            let is_none =
                given.texts(name).is_some_and(|texts| texts.texts.iter().all(|text| text.text == "none"));
            needy(name) && !is_none
        };
        for setting in settings().filter(|setting| is_needy(setting.name)) {
            let long = |name| settings().find(|other| other.name == name).map_or("", |other| other.long());
            if given.options.texts.contains_key(setting.name) {
                return Err(fault(None, format!("--{} needs --{}", setting.long(), long(owner))));
            }
            if let Some(texts) = given.file.texts.get(setting.name).filter(|_| !is_off) {
                return Err(fault(texts.at, format!("{} needs {owner}", setting.name)));
            }
        }
    }
    Ok(())
}

/// The addresses to listen on and those of the upstreams differ.
fn check_addresses(given: Origins<'_>, to: &Settings) -> Result<(), Fault> {
    if let (Some(admin), Address::Tcp(address)) = (&to.admin, &to.listen)
        && (reaches(admin.at, *address) || reaches(*address, admin.at))
    {
        let at = given.at("listen").or(given.at("admin.listen"));
        return Err(fault(at, format!("the admin page cannot listen on {address}: clients connect there")));
    }
    for (index, upstream) in to.upstreams.iter().enumerate() {
        let is_listener = match (upstream, &to.listen) {
            (Upstream::Unix(path), Address::Unix(own)) => path == own,
            (Upstream::Tcp(authority), Address::Tcp(own)) => names(authority, *own),
            _ => false,
        };
        let is_admin = |at| matches!(upstream, Upstream::Tcp(name) if names(name, at));
        let what = match (is_listener, to.admin.as_ref().is_some_and(|admin| is_admin(admin.at))) {
            (false, false) => continue,
            (true, _) => "the address that clients connect to",
            // All clients would reach the page.
            (_, true) => "the address of the admin page",
        };
        let at = given.texts("upstream").and_then(|given| given.texts.get(index)?.at);
        return Err(fault(at, format!("the upstream {upstream} is {what}")));
    }
    Ok(())
}

/// Returns whether an upstream is named by the address of a listener. Other names are not resolved.
fn names(upstream: &Authority, listener: SocketAddr) -> bool {
    let host = upstream.host().trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let port = upstream.port_u16().unwrap_or(80);
    host.is_ok_and(|host| reaches(SocketAddr::new(host, port), listener))
}

/// Returns whether a connection to the first address reaches a listener at the second one.
fn reaches(to: SocketAddr, listener: SocketAddr) -> bool {
    let is_any = listener.ip().is_unspecified() && (to.ip().is_loopback() || to.ip().is_unspecified());
    to.port() == listener.port() && to.port() != 0 && (is_any || to.ip() == listener.ip())
}

/// An address that is named needs `public` unless only this host reaches it.
fn check_admin(given: Origins<'_>, to: &Settings) -> Result<(), Fault> {
    let Some(admin) = &to.admin else { return Ok(()) };
    if admin.public || admin.at.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let (at, address) = (given.at("admin.listen"), admin.at);
    let (name, needed) = match at {
        Some(_) => ("the admin address", "`public = true`"),
        None => ("--admin", "--admin-public"),
    };
    let what = format!(
        "{name} {address} is not a loopback address: any client that reaches it can change the limit, so it \
         needs {needed}"
    );
    Err(fault(at, what))
}

/// The bound of a key is at most that of all; it follows if neither source names it.
fn check_bounds(given: Origins<'_>, to: &mut Settings) -> Result<(), Fault> {
    let (each, all) = (to.bounds.in_flight_per_key, to.bounds.in_flight);
    if each > all {
        if let Some(texts) = given.texts("bounds.in_flight_per_key") {
            return Err(fault(texts.at, format!("in_flight_per_key = {each} is above in_flight, {all}")));
        }
        to.bounds.in_flight_per_key = all;
    }
    Ok(())
}

/// Checks that the store can count all limits.
fn check_store(given: Origins<'_>, settings: &Settings) -> Result<(), Fault> {
    let Some(store) = &settings.store else { return Ok(()) };
    let can_share = |rule: Rule| match rule {
        Rule::Bucket(quota) => counts(quota, store.exact),
        Rule::Window(window) => Err(window_in_store(window)),
    };
    if let Some(rule) = settings.limit {
        can_share(rule).map_err(|what| fault(given.at("limit"), what))?;
    }
    for route in &settings.routes {
        let at = given.limit_of(&route.name);
        can_share(route.rule).map_err(|what| fault(at, format!("the route {:?}: {what}", route.name)))?;
    }
    Ok(())
}
