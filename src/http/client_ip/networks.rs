//! Proxies to trust, by network.

use ipnet::IpNet;

use super::ClientIp;
use crate::http::forwarded::List;

impl ClientIp {
    /// By `X-Forwarded-For`: from the peer on leftwards, the first that is in none of the networks.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::http::ClientIp;
    ///
    /// let by_client = ClientIp::peer().xff_trusted(["10.0.0.0/8".parse()?, "2001:db8::/32".parse()?]);
    /// # let _ = by_client;
    /// # Ok::<(), ipnet::AddrParseError>(())
    /// ```
    ///
    /// A network of prefix length 0, as `0.0.0.0/0`, lets each client choose its key:
    /// see [`Check::TrustsAll`](super::Check::TrustsAll).
    #[must_use]
    pub fn xff_trusted(self, proxies: impl IntoIterator<Item = IpNet>) -> ClientIp {
        self.trusted_networks(List::Xff, proxies.into_iter().collect())
    }

    /// As [`xff_trusted`](ClientIp::xff_trusted), by the header `Forwarded`.
    #[must_use]
    pub fn forwarded_trusted(self, proxies: impl IntoIterator<Item = IpNet>) -> ClientIp {
        self.trusted_networks(List::Forwarded, proxies.into_iter().collect())
    }

    fn trusted_networks(self, list: List, proxies: Vec<IpNet>) -> ClientIp {
        let all = proxies.iter().any(|net| net.prefix_len() == 0);
        self.trusted(list, all, move |address| proxies.iter().any(|net| net.contains(&address)))
    }
}
