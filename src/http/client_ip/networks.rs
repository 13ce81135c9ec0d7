//! Trusted proxies by network.

use ipnet::IpNet;

use super::ClientIp;
use crate::http::exempt::Exempt;
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

    /// Takes the first address outside all the networks, from the peer leftwards, by `Forwarded`.
    ///
    /// See [`xff_trusted`](ClientIp::xff_trusted).
    #[must_use]
    pub fn forwarded_trusted(self, proxies: impl IntoIterator<Item = IpNet>) -> ClientIp {
        self.trusted_networks(List::Forwarded, proxies.into_iter().collect())
    }

    fn trusted_networks(self, list: List, proxies: Vec<IpNet>) -> ClientIp {
        let all = proxies.iter().any(|net| net.prefix_len() == 0);
        self.trusted(list, all, move |address| proxies.iter().any(|net| net.contains(&address)))
    }
}

impl Exempt {
    /// Exempts clients in some networks, by the address that `client` finds.
    ///
    /// A client whose address is not found is not exempt. The address is canonical:
    /// `::ffff:10.1.2.3` is in `10.0.0.0/8`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use http::Request;
    /// use tollgate::http::{ClientIp, Exempt, Head};
    ///
    /// let office = Exempt::networks(ClientIp::peer(), ["10.0.0.0/8".parse()?]);
    /// let mut request = Request::new(());
    /// request.extensions_mut().insert(IpAddr::from([10, 1, 2, 3]));
    /// assert!(office.applies(Head::from(&request)));
    /// # Ok::<(), ipnet::AddrParseError>(())
    /// ```
    #[must_use]
    pub fn networks(client: ClientIp, networks: impl IntoIterator<Item = IpNet>) -> Exempt {
        let networks: Vec<IpNet> = networks.into_iter().collect();
        Exempt::when(move |head| {
            // Not counted: the limit by address counts the faults of the same header.
            let (address, _) = client.find(|| (client.peer)(head.extensions), head.headers);
            address.is_some_and(|address| networks.iter().any(|network| network.contains(&address)))
        })
    }
}
