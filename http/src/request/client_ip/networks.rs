//! Trusted proxies and exempt clients by network.

use std::error::Error;
use std::fmt;

use ipnet::{IpNet, Ipv4Net};

use super::{ClientIp, Trust};
use crate::request::exempt::Exempt;

impl Trust {
    /// Trusts the proxies in these networks: the client is the first address outside of them, from
    /// the peer leftwards.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_http::{ClientIp, HopList, Trust};
    ///
    /// let proxies = Trust::networks(["10.0.0.0/8".parse()?, "2001:db8::/32".parse()?])?;
    /// let by_client = ClientIp::peer().behind(HopList::XForwardedFor, proxies);
    /// # let _ = by_client;
    ///
    /// // If all were trusted, each client would choose its key.
    /// assert!(Trust::networks(["0.0.0.0/0".parse()?]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidNetwork`] names the first network that has every address, or none, or bits after
    /// its prefix.
    pub fn networks(proxies: impl IntoIterator<Item = IpNet>) -> Result<Trust, InvalidNetwork> {
        let proxies = valid(proxies)?;
        Ok(Trust::by(move |address| proxies.iter().any(|network| network.contains(&address))))
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
    /// use tollgate_http::{ClientIp, Exempt, Head};
    ///
    /// let office = Exempt::networks(ClientIp::peer(), ["10.0.0.0/8".parse()?])?;
    /// let mut request = Request::new(());
    /// request.extensions_mut().insert(IpAddr::from([10, 1, 2, 3]));
    /// assert!(office.applies(Head::from(&request)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Trust::networks`].
    pub fn networks(
        client: ClientIp,
        networks: impl IntoIterator<Item = IpNet>,
    ) -> Result<Exempt, InvalidNetwork> {
        let networks = valid(networks)?;
        Ok(Exempt::when(move |head| {
            // Not counted: the limit by address counts the faults of the same header.
            let (address, _) = client.find(|| (client.peer)(head.extensions), head.headers);
            address.is_some_and(|address| networks.iter().any(|network| network.contains(&address)))
        }))
    }
}

/// Returns the networks if each has some canonical addresses, and not all.
fn valid(networks: impl IntoIterator<Item = IpNet>) -> Result<Vec<IpNet>, InvalidNetwork> {
    let valid = |network: IpNet| match fault(network) {
        None => Ok(network),
        Some(fault) => Err(InvalidNetwork { network, fault }),
    };
    networks.into_iter().map(valid).collect()
}

fn fault(network: IpNet) -> Option<NetworkFault> {
    if let IpNet::V6(six) = network
        && let (Some(four), Some(bits)) = (six.addr().to_ipv4_mapped(), six.prefix_len().checked_sub(96))
    {
        let mapped = Ipv4Net::new(four, bits).ok()?.trunc();
        return Some(if bits == 0 { NetworkFault::All } else { NetworkFault::Mapped(mapped) });
    }
    match network {
        network if network.prefix_len() == 0 => Some(NetworkFault::All),
        network if network.trunc() != network => Some(NetworkFault::HostBits(network.trunc())),
        _ => None,
    }
}

/// A network of proxies or of exempt clients that has every address, or none, or bits after its
/// prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidNetwork {
    network: IpNet,
    fault: NetworkFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetworkFault {
    All,
    /// A part of ::ffff:0:0/96, whose canonical form is of version 4.
    Mapped(Ipv4Net),
    HostBits(IpNet),
}

impl Error for InvalidNetwork {}

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the network {} has ", self.network)?;
        match self.fault {
            NetworkFault::All => f.write_str("every address of its version: name some networks alone"),
            NetworkFault::Mapped(four) => write!(f, "no address, as these are canonical: name {four}"),
            NetworkFault::HostBits(network) => write!(f, "bits after its prefix: name {network}"),
        }
    }
}
