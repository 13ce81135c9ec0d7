//! The entries of a level that share a count: those of a wildcard, and addresses of one network.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// A level of a limit whose entries share a count: it stands for the entry in the key of the count.
#[derive(Debug)]
pub enum SharedEntry {
    /// The pattern of the level. A 0 byte divides its key and value.
    Pattern(Box<str>),
    /// A value that is an address is its network.
    Network(Prefixes),
}

/// The lengths of the networks that are one client each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// 0 to 32.
    pub(super) v4: u8,
    /// 0 to 128.
    pub(super) v6: u8,
}

impl SharedEntry {
    /// Returns the value of an entry in the key of a count. `shared` has the level of the entry.
    pub(crate) fn value<'v>(shared: Option<&Option<SharedEntry>>, value: &'v str) -> Cow<'v, str> {
        match shared {
            Some(Some(SharedEntry::Network(prefixes))) => prefixes.network(value),
            _ => Cow::Borrowed(value),
        }
    }
}

impl Prefixes {
    /// The longest ones: an address is a client by itself.
    pub(super) const WHOLE: Prefixes = Prefixes { v4: 32, v6: 128 };

    /// Returns the network of an address, or of a network such as `10.0.0.0/8`. A network that is
    /// wider stays as it is, and so does a value that is neither. All spellings of an address are
    /// one, also that of IPv4 in IPv6. A whole address has no length behind it.
    fn network(self, value: &str) -> Cow<'_, str> {
        let Some(told) = network_of(value) else { return Cow::Borrowed(value) };
        let most = if told.addr().is_ipv4() { self.v4 } else { self.v6 };
        let masked = IpNet::new(told.addr(), told.prefix_len().min(most)).map_or(told, |net| net.trunc());
        let is_whole = masked.prefix_len() == masked.max_prefix_len();
        Cow::Owned(if is_whole { masked.addr().to_string() } else { masked.to_string() })
    }
}

impl fmt::Display for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ipv4_prefix: {}, ipv6_prefix: {}", self.v4, self.v6)
    }
}

/// Returns the network of a text: an address, or one with a length. IPv4 in IPv6 is IPv4.
fn network_of(text: &str) -> Option<IpNet> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let told: IpAddr = address.parse().ok()?;
    let Some(length) = length else { return Some(told.to_canonical().into()) };
    match told.to_canonical() {
        // Its first 96 bits say that it is IPv4.
        mapped @ IpAddr::V4(_) if told.is_ipv6() && length >= 96 => IpNet::new(mapped, length - 96).ok(),
        _ => IpNet::new(told, length).ok(),
    }
}
