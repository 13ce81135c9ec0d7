//! Settings that do not go together.

use std::net::{IpAddr, SocketAddr};

use hyper::http::uri::Authority;

use super::fault::{Fault, fault};
use super::given::{AdminTable, BoundsTable, Given, InflightTable};
use super::placed::Placed;
use super::settings::{Address, Admin, Settings, Upstream};
use super::values::AdminAddress;

/// Checks the settings that a file and options have together.
pub(super) fn check(file: &Given, options: &Given, to: &mut Settings) -> Result<(), Fault> {
    check_admin(file.admin.as_ref(), options.admin.as_ref())?;
    check_addresses(file, options, to)?;
    check_bounds(&file.bounds, &options.bounds, to)?;
    check_inflight(&file.inflight, &options.inflight, to)
}

/// Returns whether two prefixes have the same paths.
pub(super) fn is_same_prefix(one: &str, other: &str, case_sensitive: bool) -> bool {
    let [one, other] = [one, other].map(|prefix| prefix.trim_end_matches('/'));
    if case_sensitive { one == other } else { one.eq_ignore_ascii_case(other) }
}

/// The addresses to listen on and those of the upstreams differ.
fn check_addresses(file: &Given, options: &Given, to: &Settings) -> Result<(), Fault> {
    let listen = options.listen.as_ref().or(file.listen.as_ref()).and_then(|listen| listen.at);
    if let (Some(admin), Address::Tcp(address)) = (&to.admin, &to.listen)
        && (reaches(admin.at, *address) || reaches(*address, admin.at))
    {
        let at = |table: Option<&AdminTable>| table.and_then(|admin| admin.listen.as_ref()?.at);
        let at = if options.admin.is_some() { None } else { at(file.admin.as_ref()).or(listen) };
        return Err(fault(at, format!("the admin page cannot listen on {address}: clients connect there")));
    }
    for (index, upstream) in to.upstreams.iter().enumerate() {
        let is_listener = match (upstream, &to.listen) {
            (Upstream::Unix(path), Address::Unix(own)) => path == own,
            (Upstream::Tcp(authority), Address::Tcp(own)) => names(authority, *own),
            _ => false,
        };
        let is_admin = |admin: &Admin| matches!(upstream, Upstream::Tcp(name) if names(name, admin.at));
        let what = match (is_listener, to.admin.as_ref().is_some_and(is_admin)) {
            (false, false) => continue,
            (true, _) => "the address that clients connect to",
            // All clients would reach the page.
            (_, true) => "the address of the admin page",
        };
        let given = options.upstream.as_ref().or(file.upstream.as_ref());
        let at = given.and_then(|upstreams| upstreams.get(index)?.at);
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
fn check_admin(file: Option<&AdminTable>, options: Option<&AdminTable>) -> Result<(), Fault> {
    let (by_file, by_option) =
        (file.and_then(|f| f.listen.as_ref()), options.and_then(|o| o.listen.as_ref()));
    let public = options.and_then(|o| o.public).or(file.and_then(|f| f.public)).unwrap_or(false);
    let Some(Placed { value: AdminAddress(address), at }) = by_option.or(by_file) else { return Ok(()) };
    if public || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let (name, needed) = match at {
        Some(_) => ("the admin address", "`public = true`"),
        None => ("--admin", "--admin-public"),
    };
    let what = format!(
        "{name} {address} is not a loopback address: any client that reaches it can change the limit, \
         so it needs {needed}"
    );
    Err(fault(*at, what))
}

/// A target needs a limit. An option may name the target of a limit in the file, and the other way
/// round.
fn check_inflight(file: &InflightTable, options: &InflightTable, to: &mut Settings) -> Result<(), Fault> {
    let Some(given) = options.target.as_ref().or(file.target.as_ref()) else { return Ok(()) };
    let Some(target) = given.value.0.as_ref().map(|target| target.0) else { return Ok(()) };
    let name = if given.at.is_none() { "--target" } else { "target" };
    let Some(limit) = &mut to.inflight else {
        if given.at.is_some() && options.limit.is_some() {
            // An option turns the limit of the file off, and its target with it.
            return Ok(());
        }
        let needed = if given.at.is_none() { "--inflight" } else { "a limit" };
        return Err(fault(given.at, format!("{name} needs {needed}: the most that the limit may become")));
    };
    limit.target = Some(target);
    Ok(())
}

/// The bound of a key is at most that of all; it follows if neither source names it.
fn check_bounds(file: &BoundsTable, options: &BoundsTable, to: &mut Settings) -> Result<(), Fault> {
    let (each, all) = (to.bounds.in_flight_per_key, to.bounds.in_flight);
    if each <= all {
        return Ok(());
    }
    match options.in_flight_per_key.as_ref().or(file.in_flight_per_key.as_ref()) {
        Some(given) => Err(fault(given.at, format!("in_flight_per_key = {each} is above in_flight, {all}"))),
        None => {
            to.bounds.in_flight_per_key = all;
            Ok(())
        }
    }
}
