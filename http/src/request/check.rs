//! Faults of a server's setup that requests show.

use std::fmt;

/// A fault of a server's setup that a layer has noticed: its code and its remedy.
///
/// A layer reports each fault once: see
/// [`LayerBuilder::silence`](crate::LayerBuilder::silence).
#[doc = include_str!("../../docs/checks.md")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// A request has no peer address.
    NoPeer,
    /// The peer's address is the key, and the peer is a proxy.
    PeerIsProxy,
    /// An untrusted peer sent a list of hops.
    UntrustedPeer,
    /// A list has fewer hops than were configured.
    TooFewHops,
    /// A hop, or the header of the address, is not an address.
    UnreadableHop,
}

impl Check {
    /// All checks, in the order of the table above.
    pub const ALL: [Check; 5] =
        [Check::NoPeer, Check::PeerIsProxy, Check::UntrustedPeer, Check::TooFewHops, Check::UnreadableHop];

    /// Returns the code, such as `no-peer`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Check::NoPeer => "no-peer",
            Check::PeerIsProxy => "peer-is-proxy",
            Check::UntrustedPeer => "untrusted-peer",
            Check::TooFewHops => "too-few-hops",
            Check::UnreadableHop => "unreadable-hop",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Check::NoPeer => {
                "a request has no peer address, so it has no key; with axum, serve \
                 `app.into_make_service_with_connect_info::<SocketAddr>()` and take the key by \
                 `ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip())`"
            }
            Check::PeerIsProxy => {
                "a request was refused by its peer's address, which is that of a proxy: it is private, \
                 and the request has `X-Forwarded-For` or `Forwarded`; all clients of the proxy share \
                 one bucket, unless the key is by `ClientIp::behind`"
            }
            Check::UntrustedPeer => {
                "a request was refused by its peer's address, and its list of hops was ignored, since \
                 the peer is not trusted; if it is a proxy of yours, add its network"
            }
            Check::TooFewHops => {
                "a request was refused by its peer's address, since its list has fewer hops than were \
                 set; lower the number, or close the way around the proxies"
            }
            Check::UnreadableHop => {
                "a request was refused whose header has an entry that is not an address; have the proxy \
                 write addresses"
            }
        }
    }
}

/// The code and the remedy.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.sentence())
    }
}
