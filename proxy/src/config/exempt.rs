//! The requests that no limit applies to: those of the allow list.
//!
//! The address of a client is the one by which it would be limited, so a header of an untrusted
//! peer exempts no request. A path is exempt as it is sent, and only if every server reads it as it
//! is spelled. So no request for the path of a route is exempt by another spelling of that path.

use std::net::IpAddr;

use tollgate_http::{Exempt, Head};

use super::settings::Exemptions;
use tollgate_common::paths::is_plain;

impl Exemptions {
    /// Returns whether a request of this client is exempt.
    pub(crate) fn applies(&self, client: IpAddr, head: Head<'_>) -> bool {
        let path = head.uri.path();
        self.networks.iter().any(|network| network.contains(&client))
            || self.methods.contains(head.method)
            || self.paths.iter().any(|exempt| has(exempt, path))
            || self.preflights && Exempt::preflights().applies(head)
    }
}

/// Returns whether a path is an exempt one byte by byte, or plainly under its prefix.
pub(crate) fn has(exempt: &str, path: &str) -> bool {
    match exempt.strip_suffix('*') {
        None => exempt == path,
        // The `/` at the end of the prefix is a part of the rest: dots may follow it.
        Some(prefix) => path.starts_with(prefix) && is_plain(&path[prefix.len() - 1..]),
    }
}

/// Returns whether the path of a route is exempt, or all paths below it are.
pub(super) fn takes(exempt: &str, route: &str) -> bool {
    let route = route.trim_end_matches('/');
    match exempt.strip_suffix('*') {
        None => exempt.trim_end_matches('/') == route,
        Some(prefix) => format!("{route}/").starts_with(prefix),
    }
}
