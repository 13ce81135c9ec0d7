//! The values of options and of files, each from its text form.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use humantime::format_duration;

/// The longest time of a setting.
pub const DAY: Duration = Duration::from_secs(86_400);

/// An address to listen at.
#[derive(Clone, Debug, PartialEq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

pub fn number<T>(text: &str, least: T, most: T) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let number = text.parse().ok().filter(|number| *number >= least && *number <= most);
    number.ok_or_else(|| format!("expected a whole number from {least} to {most}"))
}

/// Returns a value of a few by its name.
pub fn choice<T: Copy>(text: &str, of: &[(&str, T)]) -> Result<T, String> {
    let names = || of.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let known = of.iter().find(|(name, _)| *name == text);
    known.map(|(_, value)| *value).ok_or_else(|| format!("expected one of {}", names()))
}

/// Returns a switch, in the spellings of envoyproxy/ratelimit.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Returns a time such as `1m 30s`.
pub fn time(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|error| format!("expected a time such as 10s or 1m 30s: {error}"))?;
    match (least..=most).contains(&time) {
        true => Ok(time),
        false => {
            let [least, most] = [least, most].map(format_duration);
            Err(format!("out of the bounds of {least} and {most}"))
        }
    }
}

/// Returns an address to listen at.
pub fn address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket_path(path).map(Address::Unix);
    }
    let address = text.parse().map(Address::Tcp);
    address.map_err(|_| "expected an address and a port such as 127.0.0.1:8080, or unix:PATH".to_owned())
}

pub fn socket_path(path: &str) -> Result<PathBuf, String> {
    if path.is_empty() || path.contains('\0') {
        return Err("expected the path of a socket after unix:".to_owned());
    }
    Ok(path.into())
}
