//! The client of a request by address: its peer, or a hop that trusted proxies noted.

#[cfg(feature = "ipnet")]
pub(crate) mod networks;
mod transition;

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Extensions;
use http::header::{HeaderMap, HeaderName};

use super::check::Check;
use super::forwarded::{HopList, address};
use super::key::{Head, KeyFrom};
use super::value::header_value;

/// The address of the client, as a key.
///
/// By default this is the peer's address, and no header is read. Behind proxies, name the header
/// that they write and the proxies to believe. There is no fallback from one header to another: a
/// client can write any header that no proxy strips.
///
/// | constructor | the client |
/// |---|---|
/// | [`peer_from`](ClientIp::peer_from) | the other end of the connection |
/// | [`header`](ClientIp::header) | the address in a header with one value |
/// | [`behind`](ClientIp::behind) | the hop of a [`HopList`] up to which proxies are [trusted](Trust) |
///
/// A hop without an address (`unknown`, `_hidden`, empty, garbage) ends the walk: the client is the
/// last address before it. A list from an untrusted peer is ignored, and
/// [counted](ClientIp::stats).
///
/// The key is canonical: `::ffff:192.0.2.1` is `192.0.2.1`. An IPv6 key is the /64 of the address,
/// which belongs to one subscriber: see [`ipv6_prefix`](ClientIp::ipv6_prefix). So `::1` is `::`.
///
/// An IPv6 address that stands for a client of IPv4 has the client's key:
///
/// | address | key |
/// |---|---|
/// | 64:ff9b::/96 (NAT64), 2002::/16 (6to4), 2001::/32 (Teredo) | the IPv4 address inside |
/// | ::/96, ::ffff:0:0:0/96 (compatible, translated) | the IPv4 address inside |
/// | 64:ff9b:1::/48 (NAT64 of one network) | the whole: the place inside is not known |
///
/// No client chooses one of these but its own, as the answers go to the IPv4 address. A NAT64 with
/// a prefix of its own is not known: its clients share the /64 keys of that prefix.
///
/// # Where the peer's address is
///
/// Servers note the address in the request's extensions, each in a type of its own:
///
/// * axum, served by `app.into_make_service_with_connect_info::<SocketAddr>()`:
///   `ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip())`;
/// * tonic: `ClientIp::peer_from(|info: &TcpConnectInfo| info.remote_addr().map(|peer|
///   peer.ip()))`;
/// * hyper, after `request.extensions_mut().insert(peer)`: [`ClientIp::peer()`](ClientIp::peer);
/// * any other, without an extension: [`Head::with_peer`].
///
/// A request without a peer address has no key. A layer answers it with 500 and reports the fault
/// once: [`Check::NoPeer`].
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use http::Request;
/// use tollgate_http::{ClientIp, Head, HopList, KeyFrom, Trust};
///
/// // As axum has it in `ConnectInfo`.
/// #[derive(Clone)]
/// struct ConnectInfo(SocketAddr);
///
/// let by_peer = ClientIp::peer_from(|info: &ConnectInfo| info.0.ip());
/// let mut request = Request::get("/").header("X-Forwarded-For", "203.0.113.9").body(()).unwrap();
/// request.extensions_mut().insert(ConnectInfo("198.51.100.7:4711".parse().unwrap()));
/// assert_eq!(by_peer.key_from(Head::from(&request)), Some("198.51.100.7".parse().unwrap()));
///
/// // Behind one proxy, which appends.
/// let by_client = by_peer.behind(HopList::XForwardedFor, Trust::hops(1));
/// assert_eq!(by_client.key_from(Head::from(&request)), Some("203.0.113.9".parse().unwrap()));
/// ```
#[derive(Clone)]
pub struct ClientIp {
    peer: Peer,
    source: AddressSource,
    prefix: u8,
    /// Requests that showed a fault, by [`Check`].
    counters: Arc<[AtomicU64; Check::ALL.len()]>,
}

/// The proxies of a list of hops whose notes are believed, for [`ClientIp::behind`].
///
/// | constructor | the client |
/// |---|---|
/// | [`hops`](Trust::hops) | the `n`-th address from the right |
/// | [`by`](Trust::by) | from the peer leftwards, the first address that is not trusted |
/// | `networks`, with feature `ipnet` | from the peer leftwards, the first outside of the networks |
#[derive(Clone)]
pub struct Trust(TrustKind);

#[derive(Clone)]
enum TrustKind {
    Hops(usize),
    By(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>),
}

impl Trust {
    /// Trusts `n` proxies that append to the list: the client is the `n`-th address from the right.
    ///
    /// One proxy, which notes its peer, needs 1. Google's load balancer needs 2, as it also notes
    /// itself. If there are fewer addresses, or `n` is 0, the client is the peer.
    #[must_use]
    pub fn hops(n: usize) -> Trust {
        Trust(TrustKind::Hops(n))
    }

    /// Trusts the proxies whose addresses a closure accepts: the client is the first address from
    /// the peer leftwards that it does not accept.
    ///
    /// If all are trusted, the client is the leftmost.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate_http::{ClientIp, HopList, Trust};
    ///
    /// let is_ours = |proxy: IpAddr| matches!(proxy, IpAddr::V4(four) if four.is_private());
    /// let by_client = ClientIp::peer().behind(HopList::Forwarded, Trust::by(is_ours));
    /// # let _ = by_client;
    /// ```
    #[must_use]
    pub fn by(is_trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Trust {
        Trust(TrustKind::By(Arc::new(is_trusted)))
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TrustKind::Hops(n) => write!(f, "hops({n})"),
            TrustKind::By(_) => f.write_str("by(..)"),
        }
    }
}

/// Finds the peer's address.
type Peer = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

#[derive(Clone)]
enum AddressSource {
    Peer,
    Header(HeaderName),
    Behind(HopList, TrustKind),
}

/// Counts of requests with unusable addresses, from [`ClientIp::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientIpStats {
    /// Requests without a peer address where one was needed.
    pub no_peer: u64,
    /// Requests with a list from an untrusted peer, which was ignored.
    pub forwarded_from_untrusted: u64,
    /// Requests with fewer hops than configured: the peer's address was the client's.
    pub too_few_hops: u64,
    /// Requests with a hop without an address, or with a header that is not one address.
    pub unreadable: u64,
}

impl ClientIp {
    /// Takes the peer's address from the request's extensions, as a `SocketAddr` or an `IpAddr`.
    ///
    /// axum and tonic have [types of their own](ClientIp#where-the-peers-address-is).
    #[must_use]
    pub fn peer() -> ClientIp {
        let of = |extensions: &Extensions| {
            let socket = || extensions.get::<SocketAddr>().map(SocketAddr::ip);
            extensions.get::<IpAddr>().copied().or_else(socket)
        };
        ClientIp::by(Arc::new(of))
    }

    /// Takes the peer's address by a closure from an extension of type `T`.
    ///
    /// The closure returns an `IpAddr`, or an `Option` of one, as tonic's `TcpConnectInfo` has it.
    #[must_use]
    pub fn peer_from<T: Send + Sync + 'static, A: Into<Option<IpAddr>>>(
        of: impl Fn(&T) -> A + Send + Sync + 'static,
    ) -> ClientIp {
        ClientIp::by(Arc::new(move |extensions| of(extensions.get::<T>()?).into()))
    }

    fn by(peer: Peer) -> ClientIp {
        ClientIp { peer, source: AddressSource::Peer, prefix: 64, counters: Arc::default() }
    }

    /// Takes the address from one header, such as `cf-connecting-ip`, which a proxy always sets.
    ///
    /// A request without such a header, or with different values of it, has no key.
    #[must_use]
    pub fn header(self, name: HeaderName) -> ClientIp {
        self.from(AddressSource::Header(name))
    }

    /// Takes the client from a list of hops, to which each proxy appends its peer, as far as the
    /// proxies are trusted.
    ///
    /// # Examples
    ///
    /// Behind one proxy that appends to `X-Forwarded-For`, such as nginx:
    ///
    /// ```
    /// use tollgate_http::{ClientIp, HopList, Trust};
    ///
    /// let by_client = ClientIp::peer().behind(HopList::XForwardedFor, Trust::hops(1));
    /// # let _ = by_client;
    /// ```
    #[must_use]
    pub fn behind(self, list: HopList, trust: Trust) -> ClientIp {
        self.from(match trust.0 {
            TrustKind::Hops(0) => AddressSource::Peer,
            trust => AddressSource::Behind(list, trust),
        })
    }

    fn from(self, source: AddressSource) -> ClientIp {
        ClientIp { source, ..self }
    }

    /// Groups IPv6 addresses by their first `bits` bits, 64 by default.
    ///
    /// Providers give a customer a /64 to a /48, some a /44.
    ///
    /// # Errors
    ///
    /// `bits` is below 32, which makes one client of a provider, or above 64, which makes many of
    /// one client.
    pub fn ipv6_prefix(self, bits: u8) -> Result<ClientIp, InvalidPrefix> {
        if (32..=64).contains(&bits) {
            Ok(ClientIp { prefix: bits, ..self })
        } else {
            Err(InvalidPrefix(bits))
        }
    }

    /// Returns the counts of requests with unusable addresses so far, which all clones share.
    #[must_use]
    pub fn stats(&self) -> ClientIpStats {
        let of = |check| self.counters[check as usize].load(Ordering::Relaxed);
        ClientIpStats {
            no_peer: of(Check::NoPeer),
            forwarded_from_untrusted: of(Check::UntrustedPeer),
            too_few_hops: of(Check::TooFewHops),
            unreadable: of(Check::UnreadableHop),
        }
    }

    /// Returns the client's address, canonical and not cut to a prefix.
    #[must_use]
    pub fn address(&self, head: Head<'_>) -> Option<IpAddr> {
        self.counted(|| self.peer_of(head), head.headers)
    }

    #[inline(always)]
    fn peer_of(&self, head: Head<'_>) -> Option<IpAddr> {
        head.peer.or_else(|| (self.peer)(head.extensions))
    }

    /// Returns the key where the server keeps the peer's address apart from the request.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use http::Request;
    /// use tollgate_http::{ClientIp, HopList, Trust};
    ///
    /// let request = Request::get("/").header("X-Forwarded-For", "2001:db8::7").body(()).unwrap();
    /// let peer = IpAddr::from([192, 0, 2, 1]);
    /// assert_eq!(ClientIp::peer().key_of(peer, request.headers()), Some(peer));
    /// let by_client = ClientIp::peer().behind(HopList::XForwardedFor, Trust::hops(1));
    /// assert_eq!(by_client.key_of(peer, request.headers()), Some("2001:db8::".parse().unwrap()));
    /// ```
    #[must_use]
    pub fn key_of(&self, peer: impl Into<Option<IpAddr>>, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer.into();
        self.counted(|| peer, headers).map(|address| self.group(address))
    }

    /// Returns the client's address, and counts a fault that the request shows.
    fn counted(&self, peer: impl Fn() -> Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        // A limit by the peer's address pays for no walk.
        if let AddressSource::Peer = self.source
            && let Some(client) = peer()
        {
            return Some(client.to_canonical());
        }
        let (client, odd) = self.find(peer, headers);
        if let Some(odd) = odd {
            self.counters[odd as usize].fetch_add(1, Ordering::Relaxed);
        }
        client
    }

    /// Returns the client's address and a fault that the request shows, and counts nothing.
    #[inline(never)]
    fn find(
        &self,
        peer: impl Fn() -> Option<IpAddr>,
        headers: &HeaderMap,
    ) -> (Option<IpAddr>, Option<Check>) {
        let peer = || peer().map(|address| address.to_canonical());
        let (client, odd) = match &self.source {
            AddressSource::Peer => (peer(), None),
            AddressSource::Header(name) => return of_header(headers, name),
            AddressSource::Behind(list, TrustKind::Hops(n)) => {
                let (client, odd) = nth(*list, *n, headers);
                (client.or_else(peer), odd)
            }
            AddressSource::Behind(list, TrustKind::By(is_trusted)) => {
                peer().map_or((None, None), |peer| leftwards(*list, &**is_trusted, peer, headers))
            }
        };
        (client, if client.is_none() { Some(Check::NoPeer) } else { odd })
    }

    /// Returns the address that stands for all addresses of a client: the key of this address.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate_http::ClientIp;
    ///
    /// let key = |address: &str| ClientIp::peer().group(address.parse().unwrap()).to_string();
    /// assert_eq!(key("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    /// // 6to4: the client is 192.0.2.1.
    /// assert_eq!(key("2002:c000:201:7::8"), "192.0.2.1");
    /// ```
    #[must_use]
    pub fn group(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(address) => transition::key_of(address).unwrap_or_else(|| {
                let mask = u128::MAX << (128 - u32::from(self.prefix));
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }),
            four => four,
        }
    }
}

impl KeyFrom for ClientIp {
    type Key = IpAddr;

    fn key_from(&self, head: Head<'_>) -> Option<IpAddr> {
        self.address(head).map(|address| self.group(address))
    }

    fn check(&self, head: Head<'_>) -> Option<Check> {
        let (client, odd) = self.find(|| self.peer_of(head), head.headers);
        let forwarded =
            || HopList::XForwardedFor.is_in(head.headers) || HopList::Forwarded.is_in(head.headers);
        let is_proxy =
            || matches!(self.source, AddressSource::Peer) && client.is_some_and(is_local) && forwarded();
        odd.or_else(|| is_proxy().then_some(Check::PeerIsProxy))
    }
}

/// Returns the address in a header that is present with one value.
fn of_header(headers: &HeaderMap, name: &HeaderName) -> (Option<IpAddr>, Option<Check>) {
    let value = header_value(headers, name);
    let text = value.as_deref().and_then(|value| std::str::from_utf8(value).ok());
    let found = text.and_then(address);
    let unreadable = found.is_none() && headers.contains_key(name);
    (found.map(|address| address.to_canonical()), unreadable.then_some(Check::UnreadableHop))
}

/// Returns the `n`-th hop from the right, or the last one before a hop without an address. `None`
/// if the list has fewer.
fn nth(list: HopList, n: usize, headers: &HeaderMap) -> (Option<IpAddr>, Option<Check>) {
    let (mut client, mut hops) = (None, list.hops(headers));
    for _ in 0..n {
        match hops.next() {
            Some(Some(hop)) => client = Some(hop.to_canonical()),
            Some(None) => return (client, Some(Check::UnreadableHop)),
            // Returns the `n`-th hop from the right, or the last before one without an address;
            // `None` past the end.
            None => return (None, Some(Check::TooFewHops)),
        }
    }
    (client, None)
}

/// Returns the first untrusted address, from the peer leftwards.
fn leftwards(
    list: HopList,
    is_trusted: &dyn Fn(IpAddr) -> bool,
    peer: IpAddr,
    headers: &HeaderMap,
) -> (Option<IpAddr>, Option<Check>) {
    let mut client = peer;
    if !is_trusted(client) {
        return (Some(client), list.is_in(headers).then_some(Check::UntrustedPeer));
    }
    for hop in list.hops(headers) {
        let Some(hop) = hop else { return (Some(client), Some(Check::UnreadableHop)) };
        client = hop.to_canonical();
        if !is_trusted(client) {
            break;
        }
    }
    (Some(client), None)
}

/// Returns whether an address is loopback, private, shared (RFC 6598) or link-local.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => {
            let shared = matches!(four.octets(), [100, 64..=127, ..]);
            four.is_loopback() || four.is_private() || four.is_link_local() || shared
        }
        IpAddr::V6(six) => six.is_loopback() || six.is_unique_local() || six.is_unicast_link_local(),
    }
}

impl fmt::Debug for ClientIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIp")
            .field("prefix", &self.prefix)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// The error of [`ClientIp::ipv6_prefix`]: a prefix length outside 32..=64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPrefix(u8);

impl Error for InvalidPrefix {}

impl fmt::Display for InvalidPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a prefix of {} bits is out of the bounds of 32 and 64", self.0)
    }
}
