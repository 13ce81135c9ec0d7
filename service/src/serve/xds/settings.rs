//! The control plane from which the rules come, as the settings name it.

use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use tollgate_common::net::tls::ServerTrust;

use crate::serve::messages::Struct;

/// The most bytes of a message, if none are set: those of gRPC.
pub(super) const MOST: usize = 4 << 20;

/// The control plane from which rules come, and the client of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct XdsSettings {
    /// The rules come from it, and from no file.
    pub(in crate::serve) is_used: bool,
    pub(in crate::serve) server: Authority,
    pub(super) node_id: String,
    pub(super) node_metadata: Struct,
    /// From one attempt to connect to the next.
    pub(super) connect_retry: Duration,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) has_tls: bool,
    pub(super) trust: ServerTrust,
    pub(super) back_off: BackOffSettings,
    /// The most bytes of a message.
    pub(super) most: usize,
}

/// The waits from the end of a connection to the next one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BackOffSettings {
    pub(super) first: Duration,
    pub(super) most: Duration,
    pub(super) factor: f64,
    pub(super) has_jitter: bool,
}

impl Default for XdsSettings {
    fn default() -> XdsSettings {
        let (first, most) = (Duration::ZERO, Duration::ZERO);
        XdsSettings {
            is_used: false,
            server: Authority::from_static("localhost"),
            node_id: String::new(),
            node_metadata: Struct::default(),
            connect_retry: Duration::ZERO,
            headers: Vec::new(),
            has_tls: false,
            trust: ServerTrust::default(),
            back_off: BackOffSettings { first, most, factor: 1.0, has_jitter: true },
            most: MOST,
        }
    }
}

impl XdsSettings {
    /// Returns the host and the port, as a connection takes them.
    pub(super) fn address(&self) -> (&str, u16) {
        let host = self.server.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        (host, self.server.port_u16().unwrap_or_default())
    }

    /// Returns the files and the name of TLS, if the connection has it.
    pub(super) fn tls(&self) -> Option<&ServerTrust> {
        self.has_tls.then_some(&self.trust)
    }

    /// Derives settings from others, and checks them together.
    pub(in crate::serve) fn complete(&mut self) -> Result<(), String> {
        if !self.is_used {
            return Ok(());
        }
        let [chain, key, authority] = [&self.trust.own.chain, &self.trust.own.key, &self.trust.authority]
            .map(|path| !path.as_os_str().is_empty());
        if chain != key {
            return Err("--xds-tls-cert and --xds-tls-key: one needs the other".to_owned());
        }
        if !self.has_tls && (chain || authority || !self.trust.name.is_empty()) {
            return Err("--xds-tls-cert, --xds-tls-key, --xds-ca and --xds-san need --xds-tls".to_owned());
        }
        if self.trust.name.is_empty() {
            self.trust.name = self.address().0.to_owned();
        }
        if self.has_tls {
            self.trust.server_name().map_err(|why| format!("--xds-san: {why}"))?;
        }
        Ok(())
    }
}
