//! Checks over HTTP: the request that a proxy asks about becomes descriptors, by a profile of the
//! settings.
//!
//! *Invariant*: each request becomes a decision, whatever its client writes. A recipe that is open
//! while the service is away takes any error for that. So a value that is missing or too long has
//! another value in its place, and a path that servers read in different ways is asked for by each
//! of its readings. A refusal of one holds.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use hyper::header::{CACHE_CONTROL, HOST, HeaderName, RETRY_AFTER};
use hyper::{HeaderMap, StatusCode};
use ipnet::IpNet;
use serde::Deserialize;
use tollgate_http::{ClientIp, header_value};

use super::messages::{
    Code, DescriptorEntry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, text_of,
};
use super::status;
use crate::rules::shared_entry::SharedEntry;
use crate::rules::tree::{Domain, Unit};
use notes::{Note, Notes, tells_client};
use paths::{host_of, paths_of};
use tollgate_common::paths::{OTHER_METHOD, known_method};

mod notes;
mod paths;
mod profile;

/// The path, beside those of the rules, of a target with too many readings. No path has this sign.
const ANY_PATH: &str = "?";

/// The headers that tell a target and its method: those of nginx, and those of Traefik and Caddy.
static TOLD: [[HeaderName; 2]; 2] = [
    [HeaderName::from_static("x-original-uri"), HeaderName::from_static("x-original-method")],
    [HeaderName::from_static("x-forwarded-uri"), HeaderName::from_static("x-forwarded-method")],
];
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// The headers of an answer.
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// A profile: which requests it takes, and the descriptors that it makes of them.
#[derive(Debug)]
pub(crate) struct Check {
    name: String,
    pub(crate) domain: String,
    /// The networks of the proxies that may ask.
    from: Vec<IpNet>,
    client: ClientIp,
    /// Descriptors have the client, and it is the proxy that asks.
    has_one_client: bool,
    refuse: StatusCode,
    descriptors: Vec<Vec<(String, Template)>>,
    is_case_sensitive: bool,
    /// Answers have the decision as headers, for the log of the proxy.
    pub(crate) logs: bool,
    notes: Notes,
}

/// A value of a descriptor, from a text such as `{method} {path}`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Template(Vec<TemplatePart>);

#[derive(Debug)]
enum TemplatePart {
    Text(String),
    Client,
    /// The network of the client.
    Network(ClientIp),
    Method,
    Path,
    Host,
    Header(HeaderName),
}

/// A request that is asked about.
pub(crate) struct CheckedRequest<'a> {
    pub(crate) client: Cow<'a, str>,
    pub(crate) method: &'a str,
    /// The path with its query, as it was sent.
    pub(crate) target: &'a str,
    pub(crate) host: &'a str,
    /// `None` for a header that is missing, empty, or present with different values.
    pub(crate) header: &'a dyn Fn(&HeaderName) -> Option<Cow<'a, str>>,
}

/// The values of a descriptor that have several readings.
#[derive(Clone, Copy)]
struct Variant<'a> {
    method: &'a str,
    path: PathValue<'a>,
}

#[derive(Clone, Copy)]
enum PathValue<'a> {
    Read(&'a str),
    /// A whole value of a rule, for an entry that has a path.
    OfRule(&'a str),
}

impl Check {
    /// Returns whether a proxy at this address may ask.
    pub(crate) fn may_ask(&self, peer: IpAddr) -> bool {
        // An IPv4 client of a socket of both families.
        let peer = peer.to_canonical();
        self.from.iter().any(|network| network.contains(&peer))
    }

    /// Returns the message for the request that a check is about: its method, and its target if the
    /// path of the check has one. Else the headers tell both. `domain` has the rules.
    ///
    /// A proxy sets its own headers, and passes those of the other kind from a client. So
    /// a check with both kinds asks for both targets, and the tighter answer holds.
    pub(crate) fn request(
        &self,
        peer: IpAddr,
        (method, target): (&str, Option<&str>),
        headers: &HeaderMap,
        domain: Option<&Domain>,
    ) -> RateLimitRequest {
        let text = |name: &HeaderName| headers.get(name).map(|value| text_of(value.as_bytes()));
        let value = |name: &HeaderName| {
            header_value(headers, name).map(|value| match value {
                Cow::Borrowed(value) => text_of(value),
                Cow::Owned(value) => text_of(&value).into_owned().into(),
            })
        };
        let told = TOLD.iter().filter_map(|[uri, method]| Some((text(uri)?, text(method))));
        let mut told: Vec<_> = told.filter(|_| target.is_none()).collect();
        told.dedup();
        if told.is_empty() {
            if target.is_none() {
                self.notes.say(&self.name, Note::NoTarget);
            }
            told.push((target.unwrap_or("/").into(), None));
        }
        let client = self.client_of(peer, headers).to_string();
        let host = text(&X_FORWARDED_HOST).or_else(|| text(&HOST)).unwrap_or_default();
        let mut descriptors = Vec::with_capacity(self.descriptors.len());
        for (target, its_method) in &told {
            let method = its_method.as_deref().unwrap_or(method);
            let client = Cow::Borrowed(&*client);
            let asked = CheckedRequest { client, method, target, host: &host, header: &value };
            self.add(&asked, domain, &mut descriptors);
        }
        RateLimitRequest { domain: self.domain.clone(), descriptors, hits_addend: 0 }
    }

    /// Returns the client of a question, and says if all clients of a proxy are one.
    fn client_of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let client = self.client.key_of(peer, headers);
        if self.has_one_client {
            if !self.notes.has(Note::PeerIsClient) && tells_client(headers) {
                self.notes.say(&self.name, Note::PeerIsClient);
            }
        } else if client.is_none_or(|client| client == self.client.group(peer)) {
            let is_ignored = self.client.stats().forwarded_from_untrusted > 0;
            let note = if is_ignored { Note::UntrustedPeer } else { Note::NoAddress };
            if client.is_none() || is_ignored || !tells_client(headers) {
                self.notes.say(&self.name, note);
            }
        }
        client.unwrap_or(peer)
    }

    /// Returns the message for a request, without the rules of its domain.
    pub(crate) fn message(&self, asked: &CheckedRequest<'_>) -> RateLimitRequest {
        let mut descriptors = Vec::with_capacity(self.descriptors.len());
        self.add(asked, None, &mut descriptors);
        RateLimitRequest { domain: self.domain.clone(), descriptors, hits_addend: 0 }
    }

    /// Adds the descriptors of a request: one for each reading of its parts.
    fn add(&self, asked: &CheckedRequest<'_>, domain: Option<&Domain>, to: &mut Vec<RateLimitDescriptor>) {
        let paths = paths_of(asked.target, self.is_case_sensitive);
        let methods = [known_method(asked.method).unwrap_or(OTHER_METHOD), asked.method];
        let methods = if methods[0] == methods[1] { &methods[..1] } else { &methods };
        for entries in &self.descriptors {
            let has =
                |wanted: fn(&TemplatePart) -> bool| entries.iter().any(|(_, it)| it.0.iter().any(wanted));
            let methods =
                if has(|part| matches!(part, TemplatePart::Method)) { methods } else { &methods[..1] };
            let has_path = has(|part| matches!(part, TemplatePart::Path));
            let of_rules = if paths.is_none() && has_path { values_of(entries, domain) } else { Vec::new() };
            let paths_read = if has_path { paths.as_ref().map_or(1 + of_rules.len(), Vec::len) } else { 1 };
            let shared_of = domain.filter(|_| methods.len() * paths_read > 1);
            let mut counted = BTreeSet::new();
            let mut add = |path| {
                for method in methods {
                    let descriptor = self.descriptor(entries, asked, Variant { method, path });
                    // One request is one hit of a count that its readings share.
                    let count = shared_of.and_then(|domain| shared_count(domain, &descriptor));
                    if count.is_some_and(|count| !counted.insert(count)) {
                        continue;
                    }
                    // Values of rules differ, and may be thousands.
                    if matches!(path, PathValue::OfRule(_)) || !to.contains(&descriptor) {
                        to.push(descriptor);
                    }
                }
            };
            match &paths {
                Some(paths) if has_path => paths.iter().for_each(|path| add(PathValue::Read(path))),
                _ => add(PathValue::Read(ANY_PATH)),
            }
            of_rules.iter().for_each(|value| add(PathValue::OfRule(value)));
        }
    }

    fn descriptor(
        &self,
        entries: &[(String, Template)],
        asked: &CheckedRequest<'_>,
        variant: Variant<'_>,
    ) -> RateLimitDescriptor {
        let entries = entries.iter().map(|(key, template)| {
            let value = match variant.path {
                PathValue::OfRule(value) if template.has_path() => value.to_owned(),
                _ => self.value(template, asked, variant),
            };
            DescriptorEntry { key: key.clone(), value }
        });
        RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() }
    }

    fn value(&self, template: &Template, asked: &CheckedRequest<'_>, variant: Variant<'_>) -> String {
        let mut value = String::new();
        for part in &template.0 {
            match (part, variant.path) {
                (TemplatePart::Text(text), _) => value += text,
                (TemplatePart::Client, _) => value += &network_of(&self.client, &asked.client),
                (TemplatePart::Network(network), _) => value += &network_of(network, &asked.client),
                (TemplatePart::Method, _) => value += variant.method,
                (TemplatePart::Path, PathValue::Read(path) | PathValue::OfRule(path)) => value += path,
                (TemplatePart::Host, _) => value += &host_of(asked.host),
                (TemplatePart::Header(name), _) => match (asked.header)(name) {
                    Some(text) => value += &text,
                    // No value of a header begins with a space, so no client can send this one.
                    None => {
                        self.notes.say(&self.name, Note::NoHeader(name));
                        value.extend([" ", &*network_of(&self.client, &asked.client)]);
                    }
                },
            }
        }
        value
    }

    /// Returns the status and the headers of the answer to a check.
    pub(crate) fn answer(&self, response: &RateLimitResponse) -> (StatusCode, Vec<(HeaderName, String)>) {
        let is_refused = response.overall_code == Code::OverLimit as i32;
        let mut headers = Vec::with_capacity(4);
        if let Some((status, limit, reset)) = status::chosen(&response.statuses, is_refused) {
            let name: &str = if limit.name.is_empty() { &self.name } else { &limit.name };
            // A name of the headers has no other characters.
            let name: String =
                name.chars().filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\')).collect();
            let (quota, left) = (limit.requests_per_unit, status.limit_remaining);
            headers.push((RATE_LIMIT, format!("\"{name}\";r={left};t={reset}")));
            let window =
                Unit::from_wire(limit.unit).map_or(String::new(), |unit| format!(";w={}", unit.seconds()));
            headers.push((RATE_LIMIT_POLICY, format!("\"{name}\";q={quota}{window}")));
            if is_refused {
                headers.push((RETRY_AFTER, reset.to_string()));
            }
        }
        if is_refused {
            headers.push((CACHE_CONTROL, "no-store".to_owned()));
        }
        (if is_refused { self.refuse } else { StatusCode::OK }, headers)
    }

    /// Returns a sentence for each way in which the profile may limit less than it seems to.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let has = |entries: &[(String, Template)], wanted: fn(&TemplatePart) -> bool| {
            entries.iter().any(|(_, template)| template.0.iter().any(wanted))
        };
        let mut warnings = Vec::new();
        let name = &self.name;
        if self.descriptors.iter().all(|entries| has(entries, |part| matches!(part, TemplatePart::Header(_))))
        {
            warnings.push(format!(
                "check.{name}: each descriptor has a header: a client that makes values up has as many counts, \
                 and one without it is counted by its address; add a descriptor such as {{ remote_address = \
                 \"{{client}}\" }}, or refuse unknown values before the check"
            ));
        }
        if self.has_one_client {
            warnings.push(format!("check.{name}: {}", Note::PeerIsClient.sentence()));
        }
        warnings
    }
}

impl TemplatePart {
    fn is_of_client(&self) -> bool {
        matches!(self, TemplatePart::Client | TemplatePart::Network(_) | TemplatePart::Header(_))
    }
}

impl Template {
    fn has_path(&self) -> bool {
        self.0.iter().any(|part| matches!(part, TemplatePart::Path))
    }
}

/// Returns the values that the rules have for the entries of a descriptor with a path.
fn values_of(entries: &[(String, Template)], domain: Option<&Domain>) -> Vec<String> {
    let keys = entries.iter().filter(|(_, template)| template.has_path()).map(|(key, _)| key);
    keys.flat_map(|key| domain.map_or(Vec::new(), |domain| domain.values_of(key))).collect()
}

/// Returns the count of a descriptor whose limit has a wildcard with a shared threshold: the limit,
/// and the values that its key has.
fn shared_count(domain: &Domain, descriptor: &RateLimitDescriptor) -> Option<(u32, Vec<String>)> {
    let entries = &descriptor.entries;
    let limit = domain.find(entries.iter().map(|entry| (&*entry.key, &*entry.value)))?;
    if !limit.shares_threshold() {
        return None;
    }
    let own = entries
        .iter()
        .zip(&limit.shared)
        .filter(|(_, shared)| !matches!(shared, Some(SharedEntry::Pattern(_))));
    Some((limit.id, own.map(|(entry, _)| entry.value.clone()).collect()))
}

/// Returns the text of the client of an address, which may be any text in a log.
fn network_of<'a>(by: &ClientIp, address: &'a str) -> Cow<'a, str> {
    // An IPv4 address is a client by itself.
    let six = Some(address).filter(|text| text.contains(':')).and_then(|text| text.parse().ok());
    six.map_or(Cow::Borrowed(address), |six: IpAddr| by.group(six).to_string().into())
}

#[cfg(test)]
mod tests;
