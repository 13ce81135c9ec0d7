//! The request of a line.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;
use std::time::Duration;

use tollgate_http::ClientIp;

/// A request of a log.
#[derive(Debug, Default, PartialEq)]
pub(in crate::replay) struct LogLine<'a> {
    /// The time since 1970.
    pub(in crate::replay) at: Duration,
    /// The address of the client, of IPv6 the network of 64 bits, as in a check.
    pub(in crate::replay) client: Cow<'a, str>,
    pub(in crate::replay) method: Cow<'a, str>,
    /// The target of the request, with its query.
    pub(in crate::replay) target: Cow<'a, str>,
    /// The headers that the log has, by their lower-case name.
    pub(in crate::replay) headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Whether the service refused it, if the log has its decision.
    pub(in crate::replay) was_refused: Option<bool>,
}

/// The names of the fields of a log in JSON.
#[derive(Clone, Debug, Default)]
pub(in crate::replay) struct FieldNames {
    /// The names of the time, the client, the method and the target, if one of them was told.
    pub(super) names: Option<[String; 4]>,
    /// The name of the field of each header, by the lower-case name of the header.
    pub(super) headers: Vec<(String, String)>,
    /// The name of the decision, if it was told.
    pub(super) decision: Option<String>,
}

impl FieldNames {
    const WHAT: [&str; 4] = ["time", "client", "method", "path"];

    /// Sets the field of `time`, `client`, `method`, `path`, `decision` or
    /// `header:NAME`, from `WHAT=FIELD`.
    pub(in crate::replay) fn set(&mut self, text: &str) -> Result<(), String> {
        let (what, field) = text.split_once('=').ok_or_else(|| format!("--field {text}: no '=' in it"))?;
        let known = Self::WHAT.iter().position(|name| *name == what);
        match (known, what.strip_prefix("header:")) {
            (Some(index), _) => {
                let names = self.names.get_or_insert_with(|| Self::WHAT.map(str::to_owned));
                names[index] = field.to_owned();
            }
            (None, Some(header)) => self.headers.push((header.to_ascii_lowercase(), field.to_owned())),
            (None, None) if what == "decision" => self.decision = Some(field.to_owned()),
            (None, None) => {
                return Err(format!(
                    "--field {text}: {what:?} is none of time, client, method, path, decision, header:NAME"
                ));
            }
        }
        Ok(())
    }
}

/// Returns the client of a word: an address, also with a port, or the name of a host.
pub(super) fn client(word: &str) -> Option<Cow<'_, str>> {
    // The address of IPv6 is cut as the service cuts it.
    static CLIENTS: LazyLock<ClientIp> = LazyLock::new(ClientIp::peer);
    let address = word.parse().or_else(|_| word.parse().map(|socket: SocketAddr| socket.ip()));
    match address {
        Ok(IpAddr::V4(_)) if !word.contains(':') => Some(word.into()),
        Ok(address) => Some(CLIENTS.group(address).to_string().into()),
        Err(_) => is_host(word).then_some(word.into()),
    }
}

/// Returns whether a word is the name of a host.
fn is_host(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}
