//! The keys of requests: the clients that are limited.

use std::fmt;
use std::net::IpAddr;

use ipnet::Ipv4Net;
use tollgate::Priority;
use tollgate::http::{ClientIp, ClientIpStats, Digest, Head, HeaderKey, KeyFrom};
use tollgate_distributed::{SharedDigest, SharedHeaderKey, StoreKey};

use crate::config::settings::Settings;

/// The client that is limited. A value of a header that looks like an address is not that address:
/// the types differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Address(IpAddr),
    Header(Digest),
    /// A value of a header, by a digest that each proxy of a fleet has.
    Shared(SharedDigest),
}

/// An address as it is, a value as the beginning of its digest: it may be a secret.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Address(address) => address.fmt(f),
            Key::Header(digest) => write!(f, "#{:.12}", digest.to_string()),
            Key::Shared(digest) => write!(f, "#{:.12}", digest.to_string()),
        }
    }
}

/// The key as a store has it. The first letter is that of its type.
impl StoreKey for Key {
    fn write(&self, bytes: &mut Vec<u8>) {
        let (kind, text) = match self {
            Key::Address(address) => (b'a', address.to_string()),
            // Of this process alone: no limit with a store has such a key.
            Key::Header(digest) => (b'p', digest.to_string()),
            Key::Shared(digest) => (b'h', digest.to_string()),
        };
        bytes.push(kind);
        bytes.extend_from_slice(text.as_bytes());
    }
}

/// The client of a request.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    /// Its address: the peer's, unless a trusted proxy says another.
    pub(crate) address: IpAddr,
    /// The network of the address that is one client, whatever the key is.
    pub(crate) network: IpAddr,
    pub(crate) key: Key,
    /// The share of an upstream's limit in flight that the request may use.
    pub(crate) priority: Priority,
}

/// The header by whose values requests are limited.
enum Header {
    Own(HeaderKey),
    Shared(SharedHeaderKey),
}

impl Header {
    fn key(&self, head: Head<'_>) -> Option<Key> {
        match self {
            Header::Own(header) => header.key_from(head).map(Key::Header),
            Header::Shared(header) => header.key_from(head).map(Key::Shared),
        }
    }
}

/// How the key of a request is found.
pub(crate) struct Keys {
    client: ClientIp,
    header: Option<Header>,
    ipv4_prefix: u8,
}

impl Keys {
    pub(crate) fn new(settings: &Settings) -> Keys {
        // The setting has the same bounds.
        let client = ClientIp::peer().ipv6_prefix(settings.ipv6_prefix).unwrap_or_else(|_| ClientIp::peer());
        let client = match settings.trust_proxy.as_slice() {
            [] => client,
            // The settings have valid networks only, so no proxy is forgotten.
            proxies => client.clone().xff_trusted(proxies.iter().copied()).unwrap_or(client),
        };
        let header = settings.key.clone().map(|name| match settings.store {
            Some(_) => Header::Shared(name.into()),
            None => Header::Own(name.into()),
        });
        Keys { client, header, ipv4_prefix: settings.ipv4_prefix }
    }

    /// The key is the header's value if the header is there just once, else the client's network.
    pub(crate) fn client(&self, peer: IpAddr, head: Head<'_>) -> Client {
        let address = self.client.address(head).unwrap_or(peer);
        let network = self.network(address);
        let by_header = self.header.as_ref().and_then(|header| header.key(head));
        Client {
            address,
            network,
            key: by_header.unwrap_or(Key::Address(network)),
            priority: Priority::Critical,
        }
    }

    /// The addresses of clients as the forwarding headers had them.
    pub(crate) fn stats(&self) -> ClientIpStats {
        self.client.stats()
    }

    fn network(&self, address: IpAddr) -> IpAddr {
        match self.client.group(address) {
            // More bits than an address has are no network.
            IpAddr::V4(four) => Ipv4Net::new(four, self.ipv4_prefix).map_or(four, |net| net.network()).into(),
            six => six,
        }
    }
}
