//! Trusted proxies by network.

use ipnet::IpNet;

use super::ClientIp;
use crate::http::forwarded::List;

impl ClientIp {
    /// Takes the first address outside all the networks, from the peer leftwards, by
    /// `X-Forwarded-For`.
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
    /// A network of prefix length 0, such as `0.0.0.0/0`, lets each client choose its key: see
    /// [`Check::TrustsAll`](super::Check::TrustsAll).
    #[must_use]
    pub fn xff_trusted(self, proxies: impl IntoIterator<Item = IpNet>) -> ClientIp {
        self.trusted_networks(List::Xff, proxies.into_iter().collect())
    }

    /// Works as [`xff_trusted`](ClientIp::xff_trusted), on the header `Forwarded`.
    #[must_use]
    pub fn forwarded_trusted(self, proxies: impl IntoIterator<Item = IpNet>) -> ClientIp {
        self.trusted_networks(List::Forwarded, proxies.into_iter().collect())
    }

    fn trusted_networks(self, list: List, proxies: Vec<IpNet>) -> ClientIp {
        let all = proxies.iter().any(|net| net.prefix_len() == 0);
        self.trusted(list, all, move |address| proxies.iter().any(|net| net.contains(&address)))
    }
}
