//! Checks over HTTP: the request that a proxy asks about becomes descriptors, by a profile of the
//! settings.
//!
//! A path has one reading here, however the client spells it. A path that servers read in different
//! ways is asked for twice: as it is read, and as it was sent. A refusal of either holds.

use std::borrow::Cow;
use std::net::IpAddr;

use hyper::header::{HOST, HeaderName, RETRY_AFTER};
use hyper::{HeaderMap, StatusCode};
use ipnet::IpNet;
use serde::Deserialize;
use tollgate_http::ClientIp;

use super::messages::{
    Code, DescriptorEntry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, text_of,
};
use super::status;
use crate::paths::{decoded, has_one_reading, without_dots, without_empty, without_parameters};
use crate::rules::tree::Unit;

mod profile;

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
    domain: String,
    /// The networks of the proxies that may ask.
    from: Vec<IpNet>,
    client: ClientIp,
    refuse: StatusCode,
    descriptors: Vec<Vec<(String, Template)>>,
    is_case_sensitive: bool,
}

/// A value of a descriptor, from a text such as `{method} {path}`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Template(Vec<TemplatePart>);

#[derive(Debug)]
enum TemplatePart {
    Text(String),
    Client,
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
    pub(crate) header: &'a dyn Fn(&HeaderName) -> Option<Cow<'a, str>>,
}

impl Check {
    /// Returns whether a proxy at this address may ask.
    pub(crate) fn may_ask(&self, peer: IpAddr) -> bool {
        // An IPv4 client of a socket of both families.
        let peer = peer.to_canonical();
        self.from.iter().any(|network| network.contains(&peer))
    }

    /// Returns the message for the request that a check is about: its method, and its target if the
    /// path of the check has one. Else the headers tell both.
    ///
    /// A proxy sets its own headers, and passes those of the other kind from a client. So
    /// a check with both kinds asks for both targets, and the tighter answer holds.
    pub(crate) fn request(
        &self,
        peer: IpAddr,
        (method, target): (&str, Option<&str>),
        headers: &HeaderMap,
    ) -> RateLimitRequest {
        let text = |name: &HeaderName| headers.get(name).map(|value| text_of(value.as_bytes()));
        let told = TOLD.iter().filter_map(|[uri, method]| Some((text(uri)?, text(method))));
        let mut told: Vec<_> = told.filter(|_| target.is_none()).collect();
        if told.is_empty() {
            told.push((target.unwrap_or("/").into(), None));
        }
        let client = self.client.key_of(peer, headers).unwrap_or(peer).to_string();
        let host = text(&X_FORWARDED_HOST).or_else(|| text(&HOST)).unwrap_or_default();
        let mut descriptors = Vec::with_capacity(self.descriptors.len());
        for (target, its_method) in &told {
            let method = its_method.as_deref().unwrap_or(method);
            let client = Cow::Borrowed(&*client);
            let one = self.message(&CheckedRequest { client, method, target, host: &host, header: &text });
            for descriptor in one.descriptors {
                if !descriptors.contains(&descriptor) {
                    descriptors.push(descriptor);
                }
            }
        }
        RateLimitRequest { domain: self.domain.clone(), descriptors, hits_addend: 0 }
    }

    /// Returns the message for a request. A descriptor with a header that is missing is left out.
    pub(crate) fn message(&self, asked: &CheckedRequest<'_>) -> RateLimitRequest {
        let (path, as_sent) = self.paths(asked.target);
        let mut descriptors = Vec::with_capacity(self.descriptors.len());
        for entries in &self.descriptors {
            descriptors.extend(descriptor(entries, asked, &path));
            let has_path = entries.iter().any(|(_, value)| value.has_path());
            if let Some(as_sent) = as_sent.as_ref().filter(|_| has_path) {
                descriptors.extend(descriptor(entries, asked, as_sent));
            }
        }
        RateLimitRequest { domain: self.domain.clone(), descriptors, hits_addend: 0 }
    }

    /// The path of a target as it is read, and as it was sent if servers read it in different ways.
    fn paths<'a>(&self, target: &'a str) -> (Cow<'a, str>, Option<Cow<'a, str>>) {
        let path = path_of(target);
        let (read, as_sent) = match has_one_reading(path) && !path.contains('%') {
            true => (Cow::Borrowed(path), None),
            false => {
                let read = decoded(&without_parameters(path.as_bytes()), |_| true);
                let read = without_dots(&without_empty(&read));
                let read = text_of(&read).into_owned();
                let as_sent = (read != path && !has_one_reading(path)).then_some(Cow::Borrowed(path));
                (Cow::Owned(read), as_sent)
            }
        };
        let cased = |path: Cow<'a, str>| match self.is_case_sensitive {
            true => path,
            false => path.to_lowercase().into(),
        };
        (cased(read), as_sent.map(cased))
    }

    /// Returns the status and the headers of the answer to a check.
    pub(crate) fn answer(&self, response: &RateLimitResponse) -> (StatusCode, Vec<(HeaderName, String)>) {
        let is_refused = response.overall_code == Code::OverLimit as i32;
        let mut headers = Vec::with_capacity(3);
        if let Some((status, limit, reset)) = status::told(&response.statuses, is_refused) {
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
        (if is_refused { self.refuse } else { StatusCode::OK }, headers)
    }
}

/// The path of a target, which may have the form of a URL.
fn path_of(target: &str) -> &str {
    let target = match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    };
    target.split(['?', '#']).next().unwrap_or(target)
}

fn descriptor(
    entries: &[(String, Template)],
    asked: &CheckedRequest<'_>,
    path: &str,
) -> Option<RateLimitDescriptor> {
    let entries = entries.iter().map(|(key, template)| {
        Some(DescriptorEntry { key: key.clone(), value: template.value(asked, path)? })
    });
    Some(RateLimitDescriptor { entries: entries.collect::<Option<_>>()?, ..RateLimitDescriptor::default() })
}

impl Template {
    fn has_path(&self) -> bool {
        self.0.iter().any(|part| matches!(part, TemplatePart::Path))
    }

    fn value(&self, asked: &CheckedRequest<'_>, path: &str) -> Option<String> {
        let mut value = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => value += text,
                TemplatePart::Client => value += &asked.client,
                TemplatePart::Method => value += asked.method,
                TemplatePart::Path => value += path,
                TemplatePart::Host => value += asked.host,
                TemplatePart::Header(name) => value += &(asked.header)(name)?,
            }
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests;
