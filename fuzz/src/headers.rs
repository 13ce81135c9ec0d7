// promise: client-ip
//! The client of a request, by headers that any sender may write.
//!
//! Lists that are made hop by hop have a known client. Any bytes at all name no client that no hop
//! names, and none at all if the peer is not trusted. Behind trusted proxies, a client opens quotes
//! everywhere, and no text of it changes the addresses that these append.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arbitrary::{Arbitrary, Unstructured};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use tollgate_http::{ClientIp, Head, HopList, KeyFrom, Policy, Trust};

use crate::bytes::Bytes;

#[derive(Debug)]
pub struct Case {
    peer: IpAddr,
    list: HopList,
    lines: Lines,
}

#[derive(Debug)]
enum Lines {
    Any(Vec<Vec<u8>>),
    Made(Vec<Vec<Hop>>),
    /// Text of a client, and the elements that trusted proxies appended to it, the outermost first.
    Behind(Vec<Vec<u8>>, Vec<Appended>),
}

/// An element of a proxy: the address that it saw, as it wrote it. It comes after these bytes or on
/// a line of its own.
#[derive(Debug)]
struct Appended {
    saw: IpAddr,
    text: String,
    after: Option<&'static str>,
}

/// Text of a client that tries to have a proxy's element read as a part of it: quotes everywhere.
const OPENERS: [&str; 24] = [
    "\"",
    "\"",
    "\\",
    "\\\"",
    ",",
    ", ",
    ";",
    "=",
    " ",
    "\t",
    "=\"",
    ",\"",
    "\",",
    "\";",
    ";\"",
    "for=6.6.6.6",
    "for=10.0.0.9",
    "for=\"6.6.6.6",
    "for=\"6.6.6.6\"",
    "by=\"",
    "For=",
    "\u{e9}",
    "6.6.6.6",
    "10.0.0.9",
];

/// Pairs beside the address, or none.
const PAIRS: [&str; 10] = [
    "",
    "proto=https",
    "by=\"a,b;for=7.7.7.7\"",
    "host=\"\\\", for=7.7.7.7;x=\\\"\"",
    "secret=\"\\\\\"",
    "by=\"\"",
    "host=\"=\\\"\"",
    "by=\"\\\\\\\"\"",
    "x=\"\u{e9}\\\u{e9} \t\"",
    "a!#$%&'*+-.^_`|~9=~",
];

/// A hop, and its spelling.
#[derive(Clone, Copy, Debug)]
enum Hop {
    Address { address: IpAddr, port: Option<u16>, brackets: bool, spaces: bool },
    Nobody(&'static str),
}

/// Elements of a proxy that does not tell an address, and some that no proxy would write.
const NOBODY: [&str; 8] =
    ["unknown", "_hidden", "", "garbage", "1.2.3", "01.2.3.4", "[fe80::1%1]:80", "1.2.3.4:99999"];

/// Returns whether the limiters here trust an address.
fn is_trusted(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.segments()[0] == 0xfd00,
    }
}

fn address(bytes: &mut Bytes<'_>) -> IpAddr {
    address_of(bytes.byte(), bytes)
}

/// Returns an address, which is trusted unless the third bit of its kind is set.
fn address_of(kind: u8, bytes: &mut Bytes<'_>) -> IpAddr {
    let (a, b) = (bytes.byte(), bytes.byte());
    let four = Ipv4Addr::new(if kind & 4 == 0 { 10 } else { 203 }, 0, a, b);
    match kind % 4 {
        0 | 1 => four.into(),
        2 => four.to_ipv6_mapped().into(),
        _ => {
            let first = if kind & 4 == 0 { 0xfd00 } else { 0x2001 };
            Ipv6Addr::new(first, 0xdb8, a.into(), b.into(), 0, 0, b.into(), a.into()).into()
        }
    }
}

impl Hop {
    fn read(bytes: &mut Bytes<'_>) -> Hop {
        let kind = bytes.byte();
        if kind % 8 == 7 {
            return Hop::Nobody(NOBODY[usize::from(bytes.byte()) % NOBODY.len()]);
        }
        let port = (kind & 16 != 0).then(|| bytes.short());
        Hop::Address { address: address(bytes), port, brackets: kind & 32 != 0, spaces: kind & 64 != 0 }
    }

    fn says(self) -> Option<IpAddr> {
        match self {
            Hop::Address { address, .. } => Some(address.to_canonical()),
            Hop::Nobody(_) => None,
        }
    }

    fn write(self, list: HopList) -> String {
        let (node, spaces) = match self {
            Hop::Address { address, port, brackets, spaces } => {
                let node = match (address, port) {
                    (address, Some(port)) => SocketAddr::new(address, port).to_string(),
                    // In `Forwarded`, which has a grammar, an address of version 6 is in brackets.
                    (IpAddr::V6(address), None) if brackets || list == HopList::Forwarded => {
                        format!("[{address}]")
                    }
                    (address, None) => address.to_string(),
                };
                (node, spaces)
            }
            Hop::Nobody(text) => (text.to_owned(), false),
        };
        let element = match list {
            HopList::XForwardedFor => node,
            HopList::Forwarded if node.contains([':', '[', '%']) => {
                format!("proto=http;For=\"{node}\";by=\"a,b;c\"")
            }
            HopList::Forwarded => format!("for={node};proto=https"),
        };
        if spaces { format!(" \t{element} ") } else { element }
    }
}

/// Returns a line of a client: parts of the grammar, or bytes as they are.
fn opened(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    for _ in 0..bytes.byte() % 16 {
        let byte = bytes.byte();
        match OPENERS.get(usize::from(byte % 32)) {
            Some(part) => line.extend_from_slice(part.as_bytes()),
            None => line.push(bytes.byte()),
        }
    }
    line
}

impl Appended {
    /// Reads an element. The outermost proxy saw the client, which is not trusted, and the others
    /// saw proxies.
    fn read(outermost: bool, list: HopList, bytes: &mut Bytes<'_>) -> Appended {
        let (kind, form) = (bytes.byte(), bytes.byte());
        let saw = address_of(if outermost { kind | 4 } else { kind & !4 }, bytes);
        let port = (form & 1 != 0).then(|| bytes.short());
        let hop = Hop::Address { address: saw, port, brackets: form & 2 != 0, spaces: form & 4 != 0 };
        let text = match list {
            HopList::Forwarded if form & 8 != 0 => {
                let node = match (saw, port) {
                    (saw, Some(port)) => format!("\"{}\"", SocketAddr::new(saw, port)),
                    (IpAddr::V4(saw), None) if form & 16 == 0 => saw.to_string(),
                    (IpAddr::V4(saw), None) => format!("\"\\{saw}\""),
                    (IpAddr::V6(saw), None) if form & 16 == 0 => format!("\"[{saw}]\""),
                    (IpAddr::V6(saw), None) => format!("\"\\[{saw}\\]\""),
                };
                let mut pair = || PAIRS[usize::from(bytes.byte()) % PAIRS.len()];
                [pair(), &format!("fOr={node}"), pair()].join(if form & 32 == 0 { ";" } else { " ; " })
            }
            list => hop.write(list),
        };
        let after = [None, Some(","), Some(", "), Some(" \t,")][usize::from(form >> 6)];
        Appended { saw: saw.to_canonical(), text, after }
    }
}

impl Case {
    #[must_use]
    pub fn read(bytes: &[u8]) -> Case {
        let mut bytes = Bytes::new(bytes);
        let kind = bytes.byte();
        let peer = address(&mut bytes);
        let list = if kind & 1 == 0 { HopList::XForwardedFor } else { HopList::Forwarded };
        let lines = if kind & 6 == 6 {
            let client = (0..kind >> 3 & 3).map(|_| opened(&mut bytes)).collect();
            let proxies = 1 + (kind >> 5) % 4;
            let appended = (0..proxies).map(|at| Appended::read(at == 0, list, &mut bytes)).collect();
            Lines::Behind(client, appended)
        } else if kind & 2 == 0 {
            Lines::Any(bytes.rest().split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
        } else {
            let mut lines = Vec::new();
            while !bytes.is_empty() && lines.len() < 4 {
                let hops = 1 + bytes.byte() % 4;
                lines.push((0..hops).map(|_| Hop::read(&mut bytes)).collect());
            }
            Lines::Made(lines)
        };
        Case { peer, list, lines }
    }

    pub fn run(self) {
        let Case { peer, list, lines } = self;
        let name = HeaderName::from_static(if list == HopList::XForwardedFor {
            "x-forwarded-for"
        } else {
            "forwarded"
        });
        let texts: Vec<Vec<u8>> = match &lines {
            Lines::Any(lines) => lines.clone(),
            Lines::Made(lines) => lines
                .iter()
                .map(|hops| hops.iter().map(|hop| hop.write(list)).collect::<Vec<_>>().join(",").into_bytes())
                .collect(),
            Lines::Behind(client, appended) => {
                let mut lines = client.clone();
                // A client's line that is no value of a field does not arrive.
                lines.retain(|line| HeaderValue::from_bytes(line).is_ok());
                for Appended { text, after, .. } in appended {
                    match (lines.last_mut(), after) {
                        (Some(line), Some(after)) => line.extend(after.bytes().chain(text.bytes())),
                        _ => lines.push(text.clone().into_bytes()),
                    }
                }
                lines
            }
        };
        let mut headers = HeaderMap::new();
        for text in &texts {
            if let Ok(value) = HeaderValue::from_bytes(text) {
                headers.append(&name, value);
            }
        }
        let mut request = Request::new(());
        *request.headers_mut() = headers;
        request.extensions_mut().insert(peer);
        let head = Head::from(&request);
        let peer = peer.to_canonical();

        let trusted = ClientIp::peer().behind(list, Trust::by(is_trusted));
        let hops = |n| ClientIp::peer().behind(list, Trust::hops(n));
        let found = trusted.address(head).expect("there is a peer");
        if !is_trusted(peer) {
            assert_eq!(found, peer);
        }
        assert_eq!(hops(0).address(head), Some(peer));
        assert_eq!(ClientIp::peer().address(head), Some(peer));
        let key = trusted.key_from(head).expect("there is a peer");
        match (found, key) {
            (IpAddr::V4(found), key) => assert_eq!(key, IpAddr::V4(found)),
            (IpAddr::V6(found), IpAddr::V6(key)) => assert_eq!(key.to_bits(), found.to_bits() >> 64 << 64),
            // An address of a transition has its client's in it; `tests/it/client_ip.rs` has which.
            (IpAddr::V6(found), IpAddr::V4(client)) => {
                let (bits, client) = (found.to_bits(), u128::from(client.to_bits()));
                let is_within = (0..=96).any(|shift| bits >> shift & 0xffff_ffff == client);
                assert!(is_within || bits & 0xffff_ffff == client ^ 0xffff_ffff, "{client} for {found}");
            }
        }
        match lines {
            Lines::Any(_) => {
                // Names are escaped, or refused.
                let name = String::from_utf8_lossy(texts.first().map_or(&[][..], |text| text));
                if let Ok(policy) = Policy::new(&name, tollgate::Quota::per_second(1)) {
                    assert_eq!(policy.name(), name);
                    policy.append_to(request.headers_mut());
                }
            }
            Lines::Behind(_, appended) => {
                let proxies = appended.len();
                if is_trusted(peer) {
                    assert_eq!(found, appended[0].saw, "{texts:?}");
                }
                for (at, hop) in appended.iter().enumerate() {
                    assert_eq!(hops(proxies - at).address(head), Some(hop.saw), "{at} of {texts:?}");
                }
            }
            Lines::Made(lines) => {
                let walk: Vec<Option<IpAddr>> = lines.concat().into_iter().rev().map(Hop::says).collect();
                assert_eq!(found, first_not_trusted(peer, &walk), "{walk:?}");
                for n in 1..6 {
                    assert_eq!(hops(n).address(head), Some(nth(peer, &walk, n)), "{n} of {walk:?}");
                }
            }
        }
    }
}

fn first_not_trusted(peer: IpAddr, walk: &[Option<IpAddr>]) -> IpAddr {
    let mut client = peer;
    for hop in walk {
        match hop {
            Some(hop) if is_trusted(client) => client = *hop,
            _ => return client,
        }
    }
    client
}

fn nth(peer: IpAddr, walk: &[Option<IpAddr>], n: usize) -> IpAddr {
    let said = walk.iter().take(n).take_while(|hop| hop.is_some()).count();
    match said {
        0 => peer,
        _ if said == walk.len() && said < n => peer,
        last => walk[last - 1].expect("it says one"),
    }
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Case> {
        Ok(Case::read(bytes.bytes(bytes.len())?))
    }
}
