//! The values of options and of the file, each from its text form.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use ipnet::IpNet;
use tollgate::{AnyRule, InvalidRule, Quota, RateLimiter};
use tollgate_http::{Head, LimitBy, Trust};

use super::settings::{Ban, KeyPart};
use tollgate_common::paths::has_one_reading;
use tollgate_common::settings::values::{self, DAY, number};

/// The most connections, requests or bytes: far below what a semaphore can count.
pub(super) const MOST: u32 = 100_000_000;

/// Returns a number of connections or requests.
pub(super) fn count(text: &str) -> Result<usize, String> {
    number(text, 1, MOST as usize)
}

/// Returns the path of a file, which no text is too odd for.
pub(super) fn file(text: &str, folder: &Path) -> Result<PathBuf, String> {
    Ok(folder.join(text))
}

/// Empties a list, or adds an item to it.
pub(super) fn add<T>(
    to: &mut Vec<T>,
    item: Option<&str>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(), String> {
    match item {
        Some(item) => to.push(parse(item)?),
        None => to.clear(),
    }
    Ok(())
}

/// Sets a value of a part that may be missing. A mistake is one in any case.
pub(super) fn put_in<P, T>(
    part: &mut Option<P>,
    field: impl Fn(&mut P) -> &mut T,
    value: Result<T, String>,
) -> Result<(), String> {
    let value = value?;
    if let Some(part) = part {
        *field(part) = value;
    }
    Ok(())
}

/// Returns a value, or `None` for `none`.
pub(super) fn or_none_of<T, E>(text: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<Option<T>, E> {
    if text == "none" { Ok(None) } else { parse(text).map(Some) }
}

/// Returns a rule with numbers: neither no limit nor a pause, which a running proxy may be set to.
pub(super) fn counted(text: &str) -> Result<AnyRule, String> {
    if text == "none" {
        return Err("a route has a rate or a window; remove_routes removes a route".to_owned());
    }
    match text.parse().map_err(|error: InvalidRule| error.to_string())? {
        AnyRule::Quota(quota @ (Quota::UNLIMITED | Quota::BLOCKED)) => {
            Err(format!("a limit of the settings is a rate or a window, and {quota} is none"))
        }
        rule => Ok(rule),
    }
}

/// Returns a rule, or `None` for `none`.
pub(super) fn limit(text: &str) -> Result<Option<AnyRule>, String> {
    or_none_of(text, |rule| {
        let has_form = rule.contains('/');
        counted(rule).map_err(|why| if has_form { why } else { format!("{why}; or \"none\" for no limit") })
    })
}

/// Returns a part of a key.
pub(super) fn key_part(text: &str) -> Result<KeyPart, String> {
    match text.split_once(':') {
        Some(("header", name)) => {
            name.parse().map(KeyPart::Header).map_err(|_| format!("{name:?} is not a header name"))
        }
        Some(("cookie", name)) => token(name).map(KeyPart::Cookie),
        _ if text == "peer" => Ok(KeyPart::Peer),
        _ if text == "method" => Ok(KeyPart::Method),
        _ => Err("expected `peer`, `header:NAME`, `cookie:NAME` or `method`".to_owned()),
    }
}

/// Returns a ban such as `20/1m for 10m`.
pub(super) fn ban(text: &str) -> Result<Ban, String> {
    const FORM: &str = "expected refusals in a window and a time, such as 20/1m for 10m";
    let (refusals, time) = text.split_once(" for ").ok_or(FORM)?;
    let (refusals, window) = refusals.split_once('/').ok_or(FORM)?;
    let refusals = number(refusals, 1, MOST.into())?;
    let window =
        if window.starts_with(|c: char| c.is_ascii_digit()) { window } else { &format!("1{window}") };
    let [window, time] = [window, time].map(|text| values::time(text, Duration::from_millis(1), 30 * DAY));
    let ban = Ban { refusals, window: window?, time: time? };
    // The layer has the rule of the bans that it can count.
    let limit = LimitBy::new(RateLimiter::<()>::new(Quota::per_second(1))).key(|_: Head<'_>| None);
    limit.ban_after(ban.refusals, ban.window).for_(ban.time).map(|_| ban).map_err(|why| why.to_string())
}

/// Returns a number of bytes, such as `10MiB`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let units = [("", 0), ("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.iter().find(|(name, _)| *name == unit.trim()).map(|(_, shift)| 1 << shift);
    let bytes = unit.and_then(|unit: u64| number.parse::<u64>().ok()?.checked_mul(unit));
    let bytes = bytes.filter(|bytes| (1..=1 << 50).contains(bytes));
    bytes.ok_or("expected from 1 to 2^50 bytes, such as 65536, 64KiB or 10MiB".to_owned())
}

/// Returns a network, or that of one address.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse().ok().map(|address: IpAddr| IpNet::from(address.to_canonical()));
    let network = text.parse().ok().or_else(address);
    let network = network.ok_or("expected a network such as 10.0.0.0/8, or an address")?;
    // The layer has the rule of the networks that it can match.
    Trust::networks([network]).map_err(|why| why.to_string())?;
    Ok(network)
}

/// Returns a name in `Via`: a token (RFC 9110, 5.6.2).
pub(super) fn token(text: &str) -> Result<String, String> {
    word(text, "!#$%&'*+-.^_`|~", 255, "a token")
}

/// Returns a host name in lower case.
pub(super) fn host(text: &str) -> Result<String, String> {
    word(text, "-._", 253, "a host name without a port,").map(|name| name.to_ascii_lowercase())
}

/// Returns the text if it is of letters, digits and these signs, and not too long.
pub(super) fn word(text: &str, signs: &str, most: usize, what: &str) -> Result<String, String> {
    let known = text.chars().all(|letter| letter.is_ascii_alphanumeric() || signs.contains(letter));
    match known && (1..=most).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected {what} of 1 to {most} letters, digits and {signs}")),
    }
}

/// Returns the prefix of a route.
pub(super) fn prefix(text: &str) -> Result<String, String> {
    let why = match text {
        _ if !text.starts_with('/') => "a prefix begins with `/`",
        _ if text.contains(|c: char| c == '?' || c == '#' || c.is_control()) => {
            "a prefix is a path, without `?`, `#` and control characters"
        }
        _ if text.contains('*') => {
            "a prefix is no pattern, and has no `*`: /a is the prefix of all paths under /a/"
        }
        _ => return Ok(text.to_owned()),
    };
    Err(why.to_owned())
}

/// Returns a method of requests that are not limited.
pub(super) fn method(text: &str) -> Result<Method, String> {
    // Methods are case-sensitive (RFC 9110, 9.1): `options` would never be sent.
    let method = text.parse().ok().filter(|_| !text.contains(|c: char| c.is_ascii_lowercase()));
    method.ok_or("expected a method in capitals such as OPTIONS".to_owned())
}

/// Returns a part of all.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or("expected a number above 0 and at most 1".to_owned())
}

/// Returns a path that is exempt, or with `/*` those under a prefix.
pub(super) fn exempt_path(text: &str) -> Result<String, String> {
    let path = text.strip_suffix('*').filter(|prefix| prefix.ends_with('/')).unwrap_or(text);
    let why = match text {
        _ if !path.starts_with('/') => "an exempt path begins with `/`",
        "/*" => "this exempts all requests: `limit = \"none\"` without routes limits none",
        _ if path.contains('*') => "the `*` of an exempt path is its last segment, as in /static/*",
        _ if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains(['?', '#']) => {
            "an exempt path is as clients send it: with %20 for a space, and without `?` and `#`"
        }
        _ if !has_one_reading(path) => {
            "servers read this path in several ways: an exempt path has no dot segment, `//`, `\\`, `;` or \
             escape that can be avoided"
        }
        _ => return Ok(text.to_owned()),
    };
    Err(why.to_owned())
}
