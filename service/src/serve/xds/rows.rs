//! The rows of the control plane in the table of the service's settings.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use tollgate_common::settings;
use tollgate_common::settings::table::Set::{Joined, One, Secret};
use tollgate_common::settings::table::Value::Usual;
use tollgate_common::settings::values::{DAY, choice, number, switch, time};

use super::settings::MOST;
use crate::serve::messages::{Struct, Value, ValueKind};
use crate::serve::settings::ServeSettings;

/// The headers that the client sets itself.
const OWN_HEADERS: [&str; 4] = ["content-type", "te", "user-agent", "host"];
/// The headers that HTTP/2 has no more: h2 refuses a call with one.
const OF_CONNECTIONS: [&str; 5] =
    ["connection", "upgrade", "keep-alive", "proxy-connection", "transfer-encoding"];

settings! { pub(in crate::serve) static XDS_SETTINGS: ServeSettings;
    "config_type", "config-type FILE|GRPC_XDS_SOTW" = "CONFIG_TYPE", "the rules are those of files, or of a control plane" =>
        One(|to, v, _| {
            let known = [("FILE", false), ("GRPC_XDS_SOTW", true)];
            choice(&v.to_ascii_uppercase(), &known).map(|it| to.xds.is_used = it)
        }), Usual("FILE");
    "xds.server", "xds-server HOST:PORT" = "CONFIG_GRPC_XDS_SERVER_URL",
        "the control plane; the flag takes the rules from it" =>
        One(|to, v, _| server(v).map(|it| to.xds.server = it)), Usual("localhost:18000");
    "xds.node_id", "xds-node-id ID" = "CONFIG_GRPC_XDS_NODE_ID", "the name of this node there" =>
        One(|to, v, _| { to.xds.node_id = v.to_owned(); Ok(()) }), Usual("default");
    "xds.node_metadata", "xds-node-metadata K=V[,K=V]" = "CONFIG_GRPC_XDS_NODE_METADATA", "its metadata" =>
        Joined(|to, v| metadata(v).map(|it| to.xds.node_metadata = it)), Usual("");
    "xds.headers", "xds-headers K:V[,K:V]" = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        "headers of the call, as for an authorization" =>
        Secret(|to, v, _| headers(v).map(|it| to.xds.headers = it)), Usual("");
    "xds.connect_retry", "xds-connect-retry DURATION" = "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        "from one attempt to connect to the next, up to a half more or less" =>
        One(|to, v, _| interval(v).map(|it| to.xds.connect_retry = it)), Usual("3s");
    "xds.tls", "xds-tls" = "CONFIG_GRPC_XDS_SERVER_USE_TLS", "the connection is TLS" =>
        One(|to, v, _| switch(v).map(|it| to.xds.has_tls = it)), Usual("false");
    "xds.tls_cert", "xds-tls-cert FILE" = "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
        "the certificate chain of this client, a PEM file" =>
        One(|to, v, folder| { to.xds.trust.own.chain = folder.join(v); Ok(()) }), Usual("");
    "xds.tls_key", "xds-tls-key FILE" = "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "its private key, a PEM file" =>
        One(|to, v, folder| { to.xds.trust.own.key = folder.join(v); Ok(()) }), Usual("");
    "xds.ca", "xds-ca FILE" = "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
        "the authority of the control plane, a PEM file, in place of those of the system" =>
        One(|to, v, folder| { to.xds.trust.authority = folder.join(v); Ok(()) }), Usual("");
    "xds.san", "xds-san NAME" = "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
        "the name that its certificate has, if that is not the host" =>
        One(|to, v, _| { to.xds.trust.name = v.to_owned(); Ok(()) }), Usual("");
    "xds.backoff", "xds-backoff DURATION" = "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
        "from the end of a connection to the next one, at first" =>
        One(|to, v, _| interval(v).map(|it| to.xds.back_off.first = it)), Usual("10s");
    "xds.backoff_max", "xds-backoff-max DURATION" = "XDS_CLIENT_BACKOFF_MAX_INTERVAL", "and at most" =>
        One(|to, v, _| interval(v).map(|it| to.xds.back_off.most = it)), Usual("60s");
    "xds.backoff_factor", "xds-backoff-factor NUMBER" = "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
        "the factor from each of these times to the next; at 1 or less none grows, and the maximum is not reached" =>
        One(|to, v, _| {
            let factor = v.parse().ok().filter(|factor| *factor > 0.0 && *factor <= 100.0);
            let bound = "expected a number above 0 and at most 100".to_owned();
            factor.ok_or(bound).map(|it| to.xds.back_off.factor = it)
        }), Usual("0.5");
    "xds.backoff_jitter", "xds-backoff-jitter" = "XDS_CLIENT_BACKOFF_JITTER",
        "the time is a random one from the first to that" =>
        One(|to, v, _| switch(v).map(|it| to.xds.back_off.has_jitter = it)), Usual("true");
    "xds.max_message", "xds-max-message BYTES" = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        "the longest message of the control plane; 0 is 4 MiB" =>
        One(|to, v, _| number(v, 0, 256 << 20).map(|it| to.xds.most = if it == 0 { MOST } else { it })),
        Usual("0");
}

/// Returns a host and a port, also as the target of a resolver of gRPC.
fn server(text: &str) -> Result<Authority, String> {
    let plain = ["dns:///", "passthrough:///"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let server: Option<Authority> = plain.unwrap_or(text).parse().ok();
    let is_whole = |server: &Authority| {
        server.port_u16().is_some() && !server.host().is_empty() && !server.as_str().contains('@')
    };
    let expected = "expected a host and a port such as control-plane:18000";
    server.filter(is_whole).ok_or_else(|| expected.to_owned())
}

fn metadata(text: &str) -> Result<Struct, String> {
    let mut fields = BTreeMap::new();
    for pair in text.split(',') {
        let (name, value) = pair.split_once('=').ok_or("expected pairs such as zone=eu,stage=test")?;
        fields.insert(name.to_owned(), Value { kind: Some(ValueKind::Text(value.to_owned())) });
    }
    Ok(Struct { fields })
}

/// Returns headers, which may have a password: no error has a part of the text, as a value with a
/// comma is read as two headers.
fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let header = |pair: &str| {
        let (name, value) =
            pair.split_once(':').ok_or("expected headers such as x-key:value,x-other:value")?;
        let known: HeaderName =
            name.trim().parse().map_err(|_| "the text before a colon is no name of a header".to_owned())?;
        if let Some(own) = OWN_HEADERS.iter().find(|own| known == **own) {
            return Err(format!("the header `{own}` is the client's own"));
        }
        if let Some(name) = OF_CONNECTIONS.iter().find(|name| known == **name) {
            return Err(format!("HTTP/2 has no header `{name}`"));
        }
        if known.as_str().starts_with("grpc-") {
            return Err("the headers that begin with `grpc-` are the client's own".to_owned());
        }
        let mut value: HeaderValue =
            value.trim().parse().map_err(|_| "the text after a colon is no value of a header".to_owned())?;
        value.set_sensitive(true);
        Ok((known, value))
    };
    text.split(',').map(header).collect()
}

fn interval(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_millis(1), DAY)
}
