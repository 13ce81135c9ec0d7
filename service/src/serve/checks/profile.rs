//! The table `[check.NAME]` of the settings.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;

use hyper::StatusCode;
use hyper::http::HeaderName;
use ipnet::IpNet;
use serde::Deserialize;
use tollgate_http::{ClientIp, HopList, Trust};
use toml::Spanned;

use super::notes::Notes;
use super::{Check, Template, TemplatePart};
use tollgate_common::settings::error::unknown;
use tollgate_common::settings::file;

const PLACEHOLDERS: [&str; 6] = ["client", "client/32..=64", "method", "path", "host", "header:NAME"];
/// The most bytes of a domain.
const DOMAIN: usize = 4 << 10;
/// The most entries of a descriptor.
const ENTRIES: usize = 64;

/// A mistake, with its offsets in the text of the settings.
pub(crate) type ProfileFault = (Range<usize>, String);

/// The part of the settings that has the profiles.
#[derive(Deserialize)]
struct Profiles {
    #[serde(default)]
    check: BTreeMap<String, Spanned<Profile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    domain: String,
    from: Vec<Network>,
    #[serde(default)]
    trust_proxy: Vec<Network>,
    client: Option<Spanned<String>>,
    ipv6_prefix: Option<Spanned<u8>>,
    refuse: Option<Refusal>,
    descriptors: Vec<BTreeMap<Spanned<String>, Template>>,
    case_sensitive: Option<bool>,
    log_headers: Option<bool>,
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Network(IpNet);

#[derive(Deserialize)]
#[serde(try_from = "u16")]
struct Refusal(StatusCode);

impl Check {
    /// Reads all profiles of the text of the settings: the tables below `check`.
    pub(crate) fn all(text: &str) -> Result<BTreeMap<String, Check>, ProfileFault> {
        let fault =
            |error: toml::de::Error| (error.span().unwrap_or_default(), error.message().replace('\n', ", "));
        let Profiles { check } = toml::from_str(text).map_err(fault)?;
        let named = |(name, profile): (String, Spanned<Profile>)| {
            Check::of(name.clone(), profile).map(|check| (name, check))
        };
        check.into_iter().map(named).collect()
    }

    /// Returns the warnings of all profiles of a file of settings.
    pub(crate) fn warnings_of(path: &Path) -> Result<Vec<String>, String> {
        let text = file::read(path, file::MOST)?;
        let checks = Check::all(&text).map_err(|(at, what)| file::spot(path, &text, at.start, &what))?;
        Ok(checks
            .values()
            .flat_map(Check::warnings)
            .map(|what| format!("{}: {what}", path.display()))
            .collect())
    }

    fn of(name: String, profile: Spanned<Profile>) -> Result<Check, ProfileFault> {
        let at = profile.span();
        let Profile {
            domain,
            from,
            trust_proxy,
            client,
            ipv6_prefix,
            refuse,
            descriptors,
            case_sensitive,
            log_headers,
        } = profile.into_inner();
        // A question with another number would have no decision.
        if !(1..=DOMAIN).contains(&domain.len()) {
            let (bytes, what) =
                (domain.len(), format!("check.{name} needs a `domain` of 1 to {DOMAIN} bytes"));
            return Err((at, format!("{what}, not {bytes}")));
        }
        if descriptors.is_empty() || descriptors.iter().any(BTreeMap::is_empty) {
            return Err((at, format!("check.{name} needs `descriptors`, and each of them an entry")));
        }
        if let Some(long) = descriptors.iter().map(BTreeMap::len).find(|entries| *entries > ENTRIES) {
            return Err((
                at,
                format!("check.{name} has a descriptor of {long} entries, the most is {ENTRIES}"),
            ));
        }
        // In the order of the text.
        let ordered = |table: BTreeMap<Spanned<String>, Template>| {
            let mut entries: Vec<_> = table.into_iter().collect();
            entries.sort_by_key(|(key, _)| key.span().start);
            entries.into_iter().map(|(key, template)| (key.into_inner(), template)).collect()
        };
        let networks = |networks: Vec<Network>| networks.into_iter().map(|Network(it)| it).collect();
        let descriptors: Vec<Vec<(String, Template)>> = descriptors.into_iter().map(ordered).collect();
        let is_peer = client.as_ref().is_none_or(|client| client.get_ref() == "peer");
        let mut parts = descriptors.iter().flatten().flat_map(|(_, template)| &template.0);
        let has_client = parts.any(TemplatePart::is_of_client);
        let client =
            client.map_or(Ok(ClientIp::peer()), |client| of_client(&client, networks(trust_proxy)))?;
        Ok(Check {
            name,
            domain,
            from: networks(from),
            client: match ipv6_prefix {
                None => client,
                Some(bits) => {
                    client.ipv6_prefix(*bits.get_ref()).map_err(|why| (bits.span(), why.to_string()))?
                }
            },
            has_one_client: is_peer && has_client,
            refuse: refuse.map_or(StatusCode::TOO_MANY_REQUESTS, |Refusal(status)| status),
            descriptors,
            is_case_sensitive: case_sensitive.unwrap_or(false),
            logs: log_headers.unwrap_or(false),
            notes: Notes::default(),
        })
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Network, String> {
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map(Network).map_err(|_| format!("expected a network such as 10.0.0.0/8, not {text:?}"))
    }
}

impl TryFrom<u16> for Refusal {
    type Error = &'static str;

    fn try_from(status: u16) -> Result<Refusal, &'static str> {
        match status {
            429 => Ok(Refusal(StatusCode::TOO_MANY_REQUESTS)),
            403 => Ok(Refusal(StatusCode::FORBIDDEN)),
            _ => Err("expected 429 or 403"),
        }
    }
}

/// `peer`, `xff` with the networks of the proxies, or the name of a header.
fn of_client(text: &Spanned<String>, proxies: Vec<IpNet>) -> Result<ClientIp, ProfileFault> {
    let client = match text.get_ref().as_str() {
        "peer" => Ok(ClientIp::peer()),
        "xff" if proxies.is_empty() => {
            Err("client = \"xff\" needs `trust_proxy`, the networks of the proxies".to_owned())
        }
        "xff" => Trust::networks(proxies)
            .map(|trust| ClientIp::peer().behind(HopList::XForwardedFor, trust))
            .map_err(|error| error.to_string()),
        name => match HeaderName::try_from(name) {
            Ok(header) => Ok(ClientIp::peer().header(header)),
            Err(_) => Err(format!("{name:?} is no name of a header")),
        },
    };
    client.map_err(|what| (text.span(), what))
}

/// The client of a placeholder such as `client/48`: a network of that many bits.
fn network(placeholder: &str) -> Result<ClientIp, String> {
    let bits = placeholder.strip_prefix("client/").and_then(|bits| bits.parse().ok());
    let bits = bits.ok_or_else(|| unknown(placeholder, &PLACEHOLDERS))?;
    ClientIp::peer().ipv6_prefix(bits).map_err(|why| format!("{placeholder:?}: {why}"))
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(text: String) -> Result<Template, String> {
        let (mut parts, mut rest) = (Vec::new(), &*text);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) =
                after.split_once('}').ok_or_else(|| format!("{text:?} has a '{{' without a '}}'"))?;
            if !before.is_empty() {
                parts.push(TemplatePart::Text(before.to_owned()));
            }
            parts.push(match (name, name.strip_prefix("header:")) {
                ("client", _) => TemplatePart::Client,
                ("method", _) => TemplatePart::Method,
                ("path", _) => TemplatePart::Path,
                ("host", _) => TemplatePart::Host,
                (name, _) if name.starts_with("client/") => TemplatePart::Network(network(name)?),
                (_, Some(name)) => TemplatePart::Header(
                    name.try_into().map_err(|_| format!("{name:?} is no name of a header"))?,
                ),
                _ => return Err(unknown(name, &PLACEHOLDERS)),
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_owned()));
        }
        Ok(Template(parts))
    }
}
