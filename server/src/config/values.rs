//! The values of options and of the file, each in its text form.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use hyper::header::HeaderName;
use hyper::http::uri::{Authority, Scheme};
use hyper::{Method, Uri};
use ipnet::IpNet;
use tollgate::http::ClientIp;
use tollgate::{InvalidRule, Priority, Quota, Rule};

use super::settings::{Address, ExemptPath, LogFormat, Upstream};
use crate::readings::has_one_reading;

/// A whole number within two bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number<const LEAST: u64, const MOST: u64>(pub(super) u64);

impl<const LEAST: u64, const MOST: u64> FromStr for Number<LEAST, MOST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number)).map(Number);
        number.ok_or_else(|| format!("expected a whole number from {LEAST} to {MOST}"))
    }
}

/// A time from a given number of nanoseconds up to a day, such as `1m 30s`.
#[derive(Clone, Debug)]
pub(super) struct Time<const LEAST: u64>(pub(super) Duration);

impl<const LEAST: u64> FromStr for Time<LEAST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Time<LEAST>, String> {
        let time = humantime::parse_duration(text)
            .map_err(|error| format!("expected a time such as 10s or 1m 30s: {error}"))?;
        match time {
            time if time < Duration::from_nanos(LEAST) => {
                Err("a time of 0 is under the bound of 1ns".to_owned())
            }
            time if time > Duration::from_secs(86_400) => Err("a time is at most a day, 24h".to_owned()),
            time => Ok(Time(time)),
        }
    }
}

/// The time within which nine in ten requests are to be answered.
#[derive(Clone, Debug)]
pub(super) struct Target(pub(super) Duration);

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let Time(time) = text.parse::<Time<0>>()?;
        let is_within = (Duration::from_micros(1)..=Duration::from_secs(60)).contains(&time);
        is_within.then_some(Target(time)).ok_or_else(|| format!("{text} is out of the bounds of 1us and 1m"))
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Address, &'static str> {
        if let Some(path) = text.strip_prefix("unix:") {
            return socket_path(path).map(Address::Unix);
        }
        let address = text.parse().map(Address::Tcp);
        address.map_err(|_| "expected an address and a port such as 127.0.0.1:8080, or unix:PATH")
    }
}

/// The address of the admin listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdminAddress(pub(super) SocketAddr);

impl FromStr for AdminAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<AdminAddress, &'static str> {
        let address = text.parse().map(AdminAddress);
        address.map_err(|_| "expected an address and a port such as 127.0.0.1:8081")
    }
}

impl FromStr for Upstream {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Upstream, &'static str> {
        match text.strip_prefix("unix:") {
            Some(path) => socket_path(path).map(Upstream::Unix),
            None => authority(text).map(Upstream::Tcp),
        }
    }
}

fn socket_path(path: &str) -> Result<PathBuf, &'static str> {
    if path.is_empty() || path.contains('\0') {
        return Err("expected the path of a socket after unix:");
    }
    Ok(path.into())
}

fn authority(text: &str) -> Result<Authority, &'static str> {
    const FORM: &str = "expected http://HOST, http://HOST:PORT or unix:PATH";
    let url = text.parse::<Uri>().map_err(|_| FORM)?;
    if url.scheme() == Some(&Scheme::HTTPS) {
        return Err("https upstreams are not supported, only http");
    }
    // A parsed URL has no fragment left, and its path is `/` where the text has none.
    let bare = url.scheme() == Some(&Scheme::HTTP) && url.path() == "/" && !text.contains(['?', '#']);
    let authority = url.authority().filter(|_| bare).ok_or(FORM)?;
    if authority.as_str().contains('@') {
        return Err("a user in the URL of an upstream is not supported");
    }
    // `port` is `None`, too, for one that is no number below 65,536.
    if authority.port().is_none() && authority.as_str() != authority.host() {
        return Err("expected a port from 1 to 65535");
    }
    match authority.port_u16() {
        Some(0) => Err("expected a port from 1 to 65535"),
        _ => Ok(authority.clone()),
    }
}

/// A rule with numbers: neither no limit nor a pause, which a running proxy may be set to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted(pub(super) Rule);

impl FromStr for Counted {
    type Err = String;

    fn from_str(text: &str) -> Result<Counted, String> {
        if text == "none" {
            return Err("a route has a rate or a window; remove_routes removes a route".to_owned());
        }
        match text.parse().map_err(|error: InvalidRule| error.to_string())? {
            Rule::Bucket(quota @ (Quota::UNLIMITED | Quota::BLOCKED)) => {
                Err(format!("a limit of the settings is a rate or a window, and {quota} is none"))
            }
            rule => Ok(Counted(rule)),
        }
    }
}

/// A rule, or `none`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(pub(super) Option<Rule>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        match text {
            "none" => Ok(Limit(None)),
            rule => match rule.parse() {
                Ok(Counted(rule)) => Ok(Limit(Some(rule))),
                Err(error) if rule.contains('/') => Err(error),
                Err(error) => Err(format!("{error}; or \"none\" for no limit")),
            },
        }
    }
}

/// A value, or `none`.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrNone<T>(pub(super) Option<T>);

impl<T: FromStr> FromStr for OrNone<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<OrNone<T>, T::Err> {
        match text {
            "none" => Ok(OrNone(None)),
            value => value.parse().map(|value| OrNone(Some(value))),
        }
    }
}

/// The header whose values are limited; without one, addresses are.
#[derive(Clone, Debug)]
pub(super) struct Key(pub(super) Option<HeaderName>);

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Key, String> {
        match text.strip_prefix("header:") {
            Some(name) => {
                name.parse().map(|name| Key(Some(name))).map_err(|_| format!("{name:?} is not a header name"))
            }
            None if text == "peer" => Ok(Key(None)),
            None => Err("expected `peer` or `header:NAME`".to_owned()),
        }
    }
}

/// A network, or the address of one proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network(pub(super) IpNet);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let address = || text.parse().ok().map(|address: IpAddr| IpNet::from(address.to_canonical()));
        let network = text.parse().ok().or_else(address);
        let network = network.ok_or("expected a network such as 10.0.0.0/8, or an address")?;
        // The layer has the rule of the networks that it can match.
        ClientIp::peer().xff_trusted([network]).map_err(|why| why.to_string())?;
        Ok(Network(network))
    }
}

/// A name in `Via`: a token (RFC 9110, 5.6.2).
#[derive(Clone, Debug)]
pub(super) struct Token(pub(super) String);

impl FromStr for Token {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Token, &'static str> {
        let token = word(text, "!#$%&'*+-.^_`|~", 255).map(Token);
        token.ok_or("expected a token of 1 to 255 letters, digits and !#$%&'*+-.^_`|~")
    }
}

/// A host name in lower case.
#[derive(Clone, Debug)]
pub(super) struct Host(pub(super) String);

impl FromStr for Host {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Host, &'static str> {
        let name = word(text, "-._", 253).map(|name| Host(name.to_ascii_lowercase()));
        name.ok_or("expected a host name without a port, of 1 to 253 letters, digits and -._")
    }
}

/// The text if it is of letters, digits and these signs, and not too long.
fn word(text: &str, signs: &str, most: usize) -> Option<String> {
    let known = text.chars().all(|letter| letter.is_ascii_alphanumeric() || signs.contains(letter));
    (known && !text.is_empty() && text.len() <= most).then(|| text.to_owned())
}

/// The prefix of a route.
#[derive(Clone, Debug)]
pub(super) struct Prefix(pub(super) String);

impl FromStr for Prefix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Prefix, &'static str> {
        if !text.starts_with('/') {
            return Err("a prefix begins with `/`");
        }
        if text.contains(|c: char| c == '?' || c == '#' || c.is_control()) {
            return Err("a prefix is a path, without `?`, `#` and control characters");
        }
        if text.contains('*') {
            return Err("a prefix is no pattern, and has no `*`: /a is the prefix of all paths under /a/");
        }
        Ok(Prefix(text.to_owned()))
    }
}

impl FromStr for ExemptPath {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ExemptPath, &'static str> {
        let (path, is_prefix) = match text.strip_suffix("/*") {
            Some(prefix) => (&text[..=prefix.len()], true),
            None => (text, false),
        };
        if !path.starts_with('/') {
            return Err("an exempt path begins with `/`");
        }
        if text == "/*" {
            return Err("this exempts all requests: `limit = \"none\"` without routes limits none");
        }
        if path.contains('*') {
            return Err("the `*` of an exempt path is its last segment, as in /static/*");
        }
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains(['?', '#']) {
            return Err(
                "an exempt path is as clients send it: with %20 for a space, and without `?` and `#`",
            );
        }
        if !has_one_reading(path) {
            return Err(
                "servers read this path in several ways: an exempt path has no dot segment, `//`, `\\`, \
                        `;` or escape that can be avoided",
            );
        }
        let to = if is_prefix { ExemptPath::Under } else { ExemptPath::Exact };
        Ok(to(path.to_owned()))
    }
}

/// A method of requests that are not limited.
#[derive(Clone, Debug)]
pub(super) struct ExemptMethod(pub(super) Method);

impl FromStr for ExemptMethod {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ExemptMethod, &'static str> {
        // Methods are case-sensitive (RFC 9110, 9.1): `options` would never be sent.
        let method = text.parse().ok().filter(|_| !text.contains(|c: char| c.is_ascii_lowercase()));
        method.map(ExemptMethod).ok_or("expected a method in capitals such as OPTIONS")
    }
}

/// A priority, by its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named(pub(super) Priority);

impl FromStr for Named {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Named, &'static str> {
        let named = Priority::ALL.into_iter().find(|priority| priority.name() == text);
        named.map(Named).ok_or("expected `critical`, `default`, `sheddable` or `background`")
    }
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<LogFormat, &'static str> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("expected `text` or `json`"),
        }
    }
}
