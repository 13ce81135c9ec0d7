//! The table `[check.NAME]` of the settings.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use hyper::StatusCode;
use hyper::http::HeaderName;
use ipnet::IpNet;
use tollgate_http::ClientIp;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Check, Template, TemplatePart};
use crate::settings::fault::unknown;

const NAMES: [&str; 7] =
    ["domain", "from", "client", "trust_proxy", "refuse", "descriptors", "case_sensitive"];
const PLACEHOLDERS: [&str; 5] = ["client", "method", "path", "host", "header:NAME"];

/// A mistake, with its place in the text of the settings.
pub(crate) type ProfileFault = (Range<usize>, String);
type ProfileValue<'i> = Spanned<DeValue<'i>>;

impl Check {
    /// Reads all profiles of the settings: the tables below `check`.
    pub(crate) fn all(root: &DeTable<'_>) -> Result<BTreeMap<String, Check>, ProfileFault> {
        let Some(tables) = root.get("check") else { return Ok(BTreeMap::new()) };
        let expected =
            |value: &ProfileValue<'_>| (value.span(), "expected a table such as [check.edge]".to_owned());
        let DeValue::Table(names) = tables.get_ref() else { return Err(expected(tables)) };
        let profile = |(name, value): (&Spanned<Cow<'_, str>>, &ProfileValue<'_>)| match value.get_ref() {
            DeValue::Table(fields) => {
                let name = name.get_ref().to_string();
                Check::read(&name, fields, value.span()).map(|check| (name, check))
            }
            _ => Err(expected(value)),
        };
        names.iter().map(profile).collect()
    }

    /// Reads a profile, whose table is `at` in the text.
    fn read(name: &str, fields: &DeTable<'_>, at: Range<usize>) -> Result<Check, ProfileFault> {
        for key in fields.keys() {
            if !NAMES.contains(&&**key.get_ref()) {
                return Err((key.span(), unknown(key.get_ref(), &NAMES)));
            }
        }
        let needed = |field: &str| {
            fields.get(field).ok_or_else(|| (at.clone(), format!("check.{name} has no `{field}`")))
        };
        let from = networks(needed("from")?)?;
        let proxies = fields.get("trust_proxy").map(networks).transpose()?.unwrap_or_default();
        let client = fields.get("client").map_or(Ok(ClientIp::peer()), |value| client(value, proxies))?;
        let refuse = fields.get("refuse").map_or(Ok(StatusCode::TOO_MANY_REQUESTS), refuse)?;
        let descriptors =
            list(needed("descriptors")?)?.iter().map(descriptor).collect::<Result<Vec<_>, _>>()?;
        if descriptors.is_empty() {
            return Err((at, format!("check.{name} has an empty list `descriptors`")));
        }
        let is_case_sensitive = match fields.get("case_sensitive").map(|value| (value.get_ref(), value)) {
            None => true,
            Some((DeValue::Boolean(value), _)) => *value,
            Some((_, value)) => return Err((value.span(), "expected true or false".to_owned())),
        };
        let domain = text(needed("domain")?)?.to_owned();
        Ok(Check { name: name.to_owned(), domain, from, client, refuse, descriptors, is_case_sensitive })
    }
}

fn text<'a>(value: &'a ProfileValue<'_>) -> Result<&'a str, ProfileFault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text),
        _ => Err((value.span(), "expected a text in quotes".to_owned())),
    }
}

fn list<'a, 'i>(value: &'a ProfileValue<'i>) -> Result<&'a [ProfileValue<'i>], ProfileFault> {
    match value.get_ref() {
        DeValue::Array(items) => Ok(items),
        _ => Err((value.span(), "expected a list".to_owned())),
    }
}

fn networks(value: &ProfileValue<'_>) -> Result<Vec<IpNet>, ProfileFault> {
    let network = |value: &ProfileValue<'_>| {
        let text = text(value)?;
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map_err(|_| (value.span(), format!("expected a network such as 10.0.0.0/8, not {text:?}")))
    };
    list(value)?.iter().map(network).collect()
}

/// `peer`, `xff` with the networks of the proxies, or the name of a header.
fn client(value: &ProfileValue<'_>, proxies: Vec<IpNet>) -> Result<ClientIp, ProfileFault> {
    match text(value)? {
        "peer" => Ok(ClientIp::peer()),
        "xff" if proxies.is_empty() => Err((
            value.span(),
            "client = \"xff\" needs `trust_proxy`, the networks of the proxies".to_owned(),
        )),
        "xff" => ClientIp::peer().xff_trusted(proxies).map_err(|error| (value.span(), error.to_string())),
        name => {
            let header = HeaderName::try_from(name);
            let header = header.map_err(|_| (value.span(), format!("{name:?} is no name of a header")))?;
            Ok(ClientIp::peer().header(header))
        }
    }
}

fn refuse(value: &ProfileValue<'_>) -> Result<StatusCode, ProfileFault> {
    match value.get_ref() {
        DeValue::Integer(status) if status.as_str() == "429" => Ok(StatusCode::TOO_MANY_REQUESTS),
        DeValue::Integer(status) if status.as_str() == "403" => Ok(StatusCode::FORBIDDEN),
        _ => Err((value.span(), "expected 429 or 403".to_owned())),
    }
}

/// A table of keys and templates, in the order of the text.
fn descriptor(value: &ProfileValue<'_>) -> Result<Vec<(String, Template)>, ProfileFault> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err((value.span(), "expected a table such as { ip = \"{client}\" }".to_owned()));
    };
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    if entries.is_empty() {
        return Err((value.span(), "a descriptor needs an entry".to_owned()));
    }
    let entry = |(key, value): (&Spanned<_>, &ProfileValue<'_>)| {
        let key: &Cow<'_, str> = key.get_ref();
        Ok((key.to_string(), template(text(value)?).map_err(|what| (value.span(), what))?))
    };
    entries.into_iter().map(entry).collect()
}

fn template(text: &str) -> Result<Template, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
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
            (_, Some(name)) => {
                TemplatePart::Header(name.try_into().map_err(|_| format!("{name:?} is no name of a header"))?)
            }
            _ => return Err(unknown(name, &PLACEHOLDERS)),
        });
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(TemplatePart::Text(rest.to_owned()));
    }
    Ok(Template(parts))
}
