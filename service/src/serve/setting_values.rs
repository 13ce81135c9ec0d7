//! The values of settings that are the service's alone, each from its text form.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::statistics::{OWN_LABELS, quoted};
use tollgate_common::settings::values::{DAY, number, time};

/// A hundred years.
const NEVER: Duration = DAY.saturating_mul(36_525);

/// Returns the labels of tags, with `_` for each character that no label has.
pub(super) fn labels(text: &str) -> Result<String, String> {
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
pub(super) fn age(text: &str) -> Result<Duration, String> {
    match time(text, Duration::ZERO, 366 * DAY)? {
        Duration::ZERO => Ok(NEVER),
        age if age < Duration::from_secs(1) => Err("the least is 1s, and 0s is never".to_owned()),
        age => Ok(age),
    }
}

/// Returns the whole seconds by which waits are spread.
pub(super) fn spread(text: &str) -> Result<u64, String> {
    match time(text, Duration::ZERO, DAY)? {
        some if !some.is_zero() && some.as_secs() == 0 => Err("the least is 1s, and 0s is none".to_owned()),
        spread => Ok(spread.as_secs()),
    }
}

/// Returns the name of a store's counts. It is a part of each key.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_one =
        (1..=16).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if is_one { Ok(text.to_owned()) } else { Err("expected 1 to 16 letters, digits, - or _".to_owned()) }
}

/// Returns the time of a lease. None is zero.
pub(super) fn lease(text: &str) -> Result<Duration, String> {
    match time(text, Duration::ZERO, Duration::from_secs(1))? {
        some if !some.is_zero() && some < Duration::from_millis(10) => {
            Err("the least is 10ms, and 0s is none".to_owned())
        }
        lease => Ok(lease),
    }
}

pub(super) fn host(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => text.parse().map_err(|_| "expected an address such as 0.0.0.0".to_owned()),
    }
}

pub(super) fn port(text: &str) -> Result<u16, String> {
    number(text, 0, u16::MAX)
}

/// Returns an address of TCP. One without a host, such as `:9090`, is of all hosts.
pub(super) fn tcp(text: &str) -> Result<SocketAddr, String> {
    let of_all =
        || text.strip_prefix(':').and_then(|port| Some((Ipv4Addr::UNSPECIFIED, port.parse().ok()?).into()));
    let at = text.parse().ok().or_else(of_all);
    at.ok_or_else(|| "expected an address and a port such as 127.0.0.1:6070".to_owned())
}
