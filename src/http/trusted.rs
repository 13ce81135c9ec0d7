//! Proxies to trust, by network.

use ipnet::IpNet;

use super::client_ip::ClientIp;

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
    #[must_use]
    pub fn xff_trusted(self, proxies: impl IntoIterator<Item = IpNet>) -> ClientIp {
        let proxies: Vec<IpNet> = proxies.into_iter().collect();
        self.xff_trusted_by(move |address| proxies.iter().any(|net| net.contains(&address)))
    }

    /// As [`xff_trusted`](ClientIp::xff_trusted), by the header `Forwarded`.
    #[must_use]
    pub fn forwarded_trusted(self, proxies: impl IntoIterator<Item = IpNet>) -> ClientIp {
        let proxies: Vec<IpNet> = proxies.into_iter().collect();
        self.forwarded_trusted_by(move |address| proxies.iter().any(|net| net.contains(&address)))
    }
}
