//! Settings that do not go together.

use std::net::{IpAddr, SocketAddr};

use tollgate::AnyRule;

use super::origins::Origins;
use super::rows::ProxyTable;
use super::settings::{KeyPart, Settings, Upstream};
use super::store::counts;
use super::upstream::read_roots;
use tollgate_common::settings::error::{Mistake, mistake};
use tollgate_common::settings::given::Texts;
use tollgate_common::settings::options::Table;
use tollgate_common::settings::values::Address;

/// The settings without which others of their table have no effect.
const OWNERS: [&str; 3] = ["admin.listen", "inflight.limit", "store.url"];

/// The most parts of a key.
const MOST_PARTS: usize = 8;

/// Checks the settings that a file and options have together.
pub(super) fn check(given: Origins<'_>, to: &mut Settings) -> Result<(), Mistake> {
    check_owners(given, to)?;
    check_admin(given, to)?;
    check_addresses(given, to)?;
    check_bounds(given, to)?;
    check_limits(given, to)?;
    check_prefixes(given, to)?;
    check_store(given, to)?;
    read_roots(to).map_err(|what| mistake(given.at("upstream_ca"), what))
}

/// A setting that has no effect without another one needs that. The options may turn the other one
/// of the file off.
fn check_owners(given: Origins<'_>, to: &Settings) -> Result<(), Mistake> {
    if given.options.texts.contains_key("tls.cert") != given.options.texts.contains_key("tls.key") {
        return Err(mistake(None, "--tls-cert and --tls-key need each other".to_owned()));
    }
    let is_there = [to.admin.is_some(), to.inflight.is_some(), to.store.is_some()];
    for (owner, _) in OWNERS.into_iter().zip(is_there).filter(|(_, is_there)| !is_there) {
        let table = owner.split_inclusive('.').next().unwrap_or_default();
        let is_off = given.texts(owner).is_some();
        let is_needy = |name: &str| {
            let is_some = |texts: &Texts| texts.texts.iter().any(|text| text.text != "none");
            name.starts_with(table) && name != owner && given.texts(name).is_some_and(is_some)
        };
        for setting in ProxyTable::settings().filter(|setting| is_needy(setting.name)) {
            let long = |name| {
                ProxyTable::settings().find(|other| other.name == name).map_or("", |other| other.long())
            };
            if given.options.texts.contains_key(setting.name) {
                return Err(mistake(None, format!("--{} needs --{}", setting.long(), long(owner))));
            }
            if let Some(texts) = given.file.texts.get(setting.name).filter(|_| !is_off) {
                return Err(mistake(texts.at(), format!("{} needs {owner}", setting.name)));
            }
        }
    }
    Ok(())
}

/// The addresses to listen on and those of the upstreams differ.
fn check_addresses(given: Origins<'_>, to: &Settings) -> Result<(), Mistake> {
    if let (Some(admin), Address::Tcp(address)) = (&to.admin, &to.listen)
        && (reaches(admin.at, *address) || reaches(*address, admin.at))
    {
        let at = given.at("listen").or(given.at("admin.listen"));
        return Err(mistake(at, format!("the admin page cannot listen on {address}: clients connect there")));
    }
    for (index, upstream) in to.upstreams.iter().enumerate() {
        let is_listener = match (upstream, &to.listen) {
            (Upstream::Unix(path), Address::Unix(own)) => path == own,
            (upstream, Address::Tcp(own)) => names(upstream, *own),
            _ => false,
        };
        let is_admin = |at| names(upstream, at);
        let what = match (is_listener, to.admin.as_ref().is_some_and(|admin| is_admin(admin.at))) {
            (false, false) => continue,
            (true, _) => "the address that clients connect to",
            // All clients would reach the page.
            (_, true) => "the address of the admin page",
        };
        let at = given.texts("upstream").and_then(|given| given.texts.get(index)?.from.at());
        return Err(mistake(at, format!("the upstream {upstream} is {what}")));
    }
    Ok(())
}

/// Returns whether an upstream is named by the address of a listener. Other names are not resolved.
fn names(upstream: &Upstream, listener: SocketAddr) -> bool {
    let Some(authority) = upstream.authority() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let port = authority.port_u16().unwrap_or(if upstream.is_tls() { 443 } else { 80 });
    host.is_ok_and(|host| reaches(SocketAddr::new(host, port), listener))
}

/// Returns whether a connection to the first address reaches a listener at the second one.
fn reaches(to: SocketAddr, listener: SocketAddr) -> bool {
    let is_any = listener.ip().is_unspecified() && (to.ip().is_loopback() || to.ip().is_unspecified());
    to.port() == listener.port() && to.port() != 0 && (is_any || to.ip() == listener.ip())
}

/// An address that is named needs `public` unless only this host reaches it.
fn check_admin(given: Origins<'_>, to: &Settings) -> Result<(), Mistake> {
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
    Err(mistake(at, what))
}

/// The bound of a key is at most that of all; it follows if neither source names it.
fn check_bounds(given: Origins<'_>, to: &mut Settings) -> Result<(), Mistake> {
    let (each, all) = (to.bounds.in_flight_per_key, to.bounds.in_flight);
    if each > all {
        if let Some(texts) = given.texts("bounds.in_flight_per_key") {
            return Err(mistake(texts.at(), format!("in_flight_per_key = {each} is above in_flight, {all}")));
        }
        to.bounds.in_flight_per_key = all;
    }
    Ok(())
}

/// Checks that a store can count each limit, that the key of each ban is one that no other client
/// can write, and that each delay is of a limit whose requests can wait.
fn check_limits(given: Origins<'_>, to: &Settings) -> Result<(), Mistake> {
    for route in std::iter::once(None).chain(to.routes.iter().map(Some)) {
        let parts = to.key_of(route).len();
        if !(1..=MOST_PARTS).contains(&parts) {
            let what = format!("a key has from 1 to {MOST_PARTS} parts, such as `peer`, and not {parts}");
            return Err(mistake(given.at_limit(route, "key"), what));
        }
    }
    let default = to.limit.map(|rule| (None, rule));
    for (route, rule) in default.into_iter().chain(to.routes.iter().map(|route| (Some(route), route.rule))) {
        let at = |field| given.at_limit(route, field).or(given.at(field));
        let of = route.map_or("the default limit".to_owned(), |route| format!("the route {:?}", route.name));
        if let Some(store) = &to.store {
            let at = given.at_limit(route, "limit");
            counts(rule, store.exact).map_err(|what| mistake(at, format!("{of}: {what}")))?;
        }
        if to.ban_of(route).is_some() && !to.key_of(route).contains(&KeyPart::Peer) {
            let what =
                "a ban needs `peer` in the key: a client could be banned by others, who send its value";
            return Err(mistake(at("ban"), format!("{of}: {what}")));
        }
        let what = match (to.delay_of(route), rule) {
            (None, _) => continue,
            (Some(_), AnyRule::Window(_)) => "no request can wait for a window, as it has no tokens to come",
            (Some(_), _) if to.store.is_some() => "no request can wait for the tokens of a store",
            _ => continue,
        };
        return Err(mistake(at("delay"), format!("{of}: {what}; `delay` is \"none\" there")));
    }
    Ok(())
}

/// A store keeps its own buckets: it has no file of a state, and no table.
fn check_store(given: Origins<'_>, to: &Settings) -> Result<(), Mistake> {
    let refused = |name: &str, what: String| {
        let field = name.trim_start_matches("bounds.");
        let what = format!("the limits are in a store, {what}: `{field}` is \"none\" with it");
        Err(mistake(given.at(name), what))
    };
    let is_named = given.texts("bounds.keys_per_limit").is_some();
    match (&to.store, &to.state, to.bounds.keys_per_limit) {
        (Some(_), Some(_), _) => refused("state", "which keeps them".to_owned()),
        (Some(_), None, Some(keys)) if is_named => {
            refused("bounds.keys_per_limit", format!("and not in a table of {keys} keys"))
        }
        _ => Ok(()),
    }
}

/// The routes of one prefix decide together, so they have one cost, one priority and one delay.
fn check_prefixes(given: Origins<'_>, to: &Settings) -> Result<(), Mistake> {
    for (index, route) in to.routes.iter().enumerate() {
        let Some(first) = to.routes[..index].iter().find(|first| first.prefix == route.prefix) else {
            continue;
        };
        let fields = [
            ("cost", first.cost == route.cost),
            ("priority", first.priority == route.priority),
            ("delay", to.delay_of(Some(first)) == to.delay_of(Some(route))),
        ];
        if let Some((field, _)) = fields.into_iter().find(|(_, is_same)| !is_same) {
            let names = [(route, field), (first, field), (route, "prefix"), (first, "prefix")];
            let at = names.into_iter().find_map(|(route, field)| given.at_limit(Some(route), field));
            let (one, other, prefix) = (&first.name, &route.name, &route.prefix);
            let what = format!(
                "the routes {one:?} and {other:?} of {prefix} hold together, so they have one {field}"
            );
            return Err(mistake(at, what));
        }
    }
    Ok(())
}
