//! The keys of requests: the clients that are limited.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ipnet::Ipv4Net;
use tollgate::KeyBytes;
use tollgate_adaptive::Priority;
use tollgate_distributed::{SharedDigest, StoreKey};
use tollgate_http::{Check, ClientIp, Digest, Head, HopList, KeyFrom, Trust, cookie_value, header_value};

use crate::config::settings::{KeyPart, Settings};
use tollgate_common::paths::{OTHER_METHOD, known_method};

/// The client that is limited. A value of a header that looks like an address is not that address:
/// the types differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Address(IpAddr),
    /// A value that the client has sent, or several parts.
    Header(Digest),
    /// The same, by a digest that each process has.
    Shared(SharedDigest),
}

impl Key {
    /// Returns the letter of the type, and the whole text.
    fn whole(&self) -> (u8, String) {
        match self {
            Key::Address(address) => (b'a', address.to_string()),
            // Of this process alone: no limit with a store has such a key.
            Key::Header(digest) => (b'p', digest.to_string()),
            Key::Shared(digest) => (b'h', digest.to_string()),
        }
    }
}

/// Writes bytes that are the same in each build, as a saved table has hashes. Their number tells
/// the types apart.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Key::Address(IpAddr::V4(four)) => state.write_u32(four.to_bits()),
            Key::Address(IpAddr::V6(six)) => state.write(&six.octets()),
            Key::Header(digest) => {
                state.write_u8(b'p');
                digest.hash(state);
            }
            Key::Shared(digest) => {
                state.write_u8(b'h');
                digest.hash(state);
            }
        }
    }
}

/// An address as it is, a value as the beginning of its digest: it may be a secret.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole() {
            (b'a', address) => f.write_str(&address),
            (_, digest) => write!(f, "#{digest:.12}"),
        }
    }
}

/// The key as a store has it. The first letter is that of its type.
impl StoreKey for Key {
    fn write(&self, bytes: &mut Vec<u8>) {
        let (kind, text) = self.whole();
        bytes.push(kind);
        bytes.extend_from_slice(text.as_bytes());
    }
}

/// The key as a saved state has it: one byte for its type before its own. A digest of this process
/// alone has no form that another process reads.
impl KeyBytes for Key {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Key::Address(address) => {
                bytes.push(b'a');
                KeyBytes::write(address, bytes);
            }
            Key::Shared(digest) => {
                bytes.push(b'h');
                KeyBytes::write(digest, bytes);
            }
            Key::Header(_) => bytes.push(b'p'),
        }
    }

    fn read(bytes: &[u8]) -> Option<Key> {
        match bytes.split_first()? {
            (b'a', address) => KeyBytes::read(address).map(Key::Address),
            (b'h', digest) => KeyBytes::read(digest).map(Key::Shared),
            _ => None,
        }
    }
}

/// The client of a request.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    /// Its address: the peer's, unless a trusted proxy says another.
    pub(crate) address: IpAddr,
    /// The network of the address that is one client, whatever the key is.
    pub(crate) network: IpAddr,
    /// The key of the first limit of the request.
    pub(crate) key: Key,
    /// The share of an upstream's limit in flight that the request may use.
    pub(crate) priority: Priority,
}

/// The source of the keys of a limit.
pub(crate) struct KeySource {
    pub(super) parts: Vec<KeyPart>,
    /// Whether each proxy of a fleet, and the next process, has the same digests.
    pub(super) is_shared: bool,
}

impl KeySource {
    /// Returns the key of a request. A part of which the request has no value, or different ones,
    /// is the client's network.
    pub(crate) fn key(&self, head: Head<'_>, network: IpAddr) -> Key {
        let of = |part| value(part, head).map_or(Key::Address(network), |value| self.digest(&value));
        if let [part] = &self.parts[..] {
            return of(part);
        }
        // Neither a digest nor an address has the sign between them, so no two lists are alike. A
        // value as it is could have it, and might be longer than the part that is hashed.
        let all: String = self.parts.iter().map(|part| of(part).whole().1 + ";").collect();
        self.digest(all.as_bytes())
    }

    fn digest(&self, value: &[u8]) -> Key {
        match self.is_shared {
            true => Key::Shared(SharedDigest::of(value)),
            false => Key::Header(Digest::of(value)),
        }
    }
}

/// Returns the value of a part, if a request has one. The address has none.
fn value<'a>(part: &KeyPart, head: Head<'a>) -> Option<Cow<'a, [u8]>> {
    match part {
        KeyPart::Peer => None,
        KeyPart::Header(name) => header_value(head.headers, name),
        KeyPart::Cookie(name) => cookie_value(head.headers, name),
        KeyPart::Method => Some(known_method(head.method.as_str()).unwrap_or(OTHER_METHOD).as_bytes().into()),
    }
}

/// How the client of a request is found.
pub(crate) struct Keys {
    pub(crate) client: ClientIp,
    ipv4_prefix: u8,
    /// No proxy is trusted, and it was not said yet that all clients of one are the same.
    looks_for_proxy: AtomicBool,
}

impl Keys {
    pub(crate) fn new(settings: &Settings) -> Keys {
        // The setting has the same bounds.
        let client = ClientIp::peer().ipv6_prefix(settings.ipv6_prefix).unwrap_or_else(|_| ClientIp::peer());
        let proxies = &settings.trust_proxy;
        let client = match Trust::networks(proxies.iter().copied()) {
            Ok(trust) if !proxies.is_empty() => client.behind(HopList::XForwardedFor, trust),
            // The settings have valid networks only, so no proxy is forgotten.
            _ => client,
        };
        let looks_for_proxy = settings.trust_proxy.is_empty().into();
        Keys { client, ipv4_prefix: settings.ipv4_prefix, looks_for_proxy }
    }

    /// Returns the client's address, and its network.
    pub(crate) fn client(&self, peer: IpAddr, head: Head<'_>) -> (IpAddr, IpAddr) {
        if self.looks_for_proxy.load(Relaxed)
            && self.client.check(head) == Some(Check::PeerIsProxy)
            && self.looks_for_proxy.swap(false, Relaxed)
        {
            tracing::warn!(
                "{peer} sends X-Forwarded-For or Forwarded, and `trust_proxy` is empty: if it is a proxy, all its \
                 clients are one, so name its network there; this is said once"
            );
        }
        let address = self.client.address(head).unwrap_or(peer);
        let network = match self.client.group(address) {
            // More bits than an address has are no network.
            IpAddr::V4(four) => Ipv4Net::new(four, self.ipv4_prefix).map_or(four, |net| net.network()).into(),
            six => six,
        };
        (address, network)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::limits::hasher::KeyHasher;
    use tollgate_common::state_file::SavedPart;

    /// A saved table is of use as long as these bytes are.
    #[test]
    fn the_hash_of_a_key_is_that_of_bytes_which_each_build_has() {
        let secret: [u8; 16] = std::array::from_fn(|at| at as u8);
        let mut parts = vec![SavedPart { name: "secret".to_owned(), bytes: secret.to_vec() }];
        let hasher = KeyHasher::of_saved(&mut parts);
        assert!(parts.is_empty(), "the secret is no state of a limit");
        let reference = siphasher::sip::SipHasher13::new_with_key(&secret);
        let digest =
            [0x6a, 0xb9, 0xf1, 0xeb, 0x8f, 0x7d, 0x33, 0x88, 0xf4, 0xf9, 0xd5, 0x86, 0xf6, 0x6e, 0x99, 0xfd];
        let six = "2001:db8::7".parse().expect("an address");
        for (key, bytes) in [
            (Key::Address([192, 0, 2, 7].into()), vec![7, 2, 0, 192]),
            (Key::Address(IpAddr::V6(six)), six.octets().to_vec()),
            (Key::Shared(SharedDigest::of(b"k1")), [b"h", &digest[..]].concat()),
        ] {
            assert_eq!(hasher.hash_one(key), reference.hash(&bytes), "{key}");
        }
        let [own, shared] = [Key::Header(Digest::of(b"k1")), Key::Shared(SharedDigest::of(b"k1"))];
        assert_ne!(hasher.hash_one(own), hasher.hash_one(shared));
    }
}
