//! All settings, in the order in which `check` has them.

use std::time::Duration;

use humantime::format_duration;
use tollgate_adaptive::Priority;

use super::settings::{Admin, InflightLimit, KeyPart, Outage, Route, Settings, Store, TIMES};
use super::store;
use super::upstream::upstream;
use super::values::*;
use tollgate_common::settings;
use tollgate_common::settings::options::Table;
use tollgate_common::settings::table::{Set::*, Setting, Value::*, list, on_or_off, or_none, plain, with};
use tollgate_common::settings::values::{address, choice, number, time};

const MICRO: Duration = Duration::from_micros(1);
const MILLI: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// The address of the admin page, if it is asked for without one.
pub(super) const ADMIN: &str = "127.0.0.1:8081";

/// The table of the proxy's settings.
#[derive(Clone, Debug, Default)]
pub(super) struct ProxyTable;

impl Table for ProxyTable {
    type Settings = Settings;

    fn settings() -> impl Iterator<Item = &'static Setting<Settings>> {
        SETTINGS.iter().chain(TIMES)
    }

    fn defaults() -> Settings {
        Settings::default()
    }
}

settings! { static SETTINGS: Settings;
    "listen", "listen IP:PORT|unix:PATH", "where clients connect; port 0 takes a free one" =>
        One(|to, v, _| address(v).map(|it| to.listen = it)),
        Shown(|of| plain(&of.listen));
    "tls.cert", "tls-cert FILE", "the certificate chain of TLS, a PEM file [off]" =>
        One(|to, v, folder| file(v, folder).map(|it| to.tls.get_or_insert_default().chain = it)),
        Shown(|of| of.tls.as_ref().map_or(with("off", "connections are not encrypted"), |tls| plain(tls.chain.display())));
    "tls.key", "tls-key FILE", "the private key of TLS, a PEM file" =>
        One(|to, v, folder| file(v, folder).map(|it| to.tls.get_or_insert_default().key = it)),
        Shown(|of| plain(of.tls.as_ref()?.key.display()));
    "proxy_protocol", "proxy-protocol", "each connection begins with a PROXY header, version 1 or 2" =>
        Switch(|to, on| to.proxy_protocol = on),
        Shown(|of| on_or_off(of.proxy_protocol, "each connection begins with a PROXY header", ""));
    "upstream", "upstream http://HOST[:PORT]|https://..|h2c://..|unix:PATH",
        "where requests go [a server in this process, without a file]" =>
        Each(|to, v| add(&mut to.upstreams, v, upstream)),
        Shown(|of| if of.upstreams.is_empty() { with("none", "a server in this process answers") } else { list(&of.upstreams) });
    "upstream_ca", "upstream-ca FILE",
        "the authorities that https upstreams are checked by, a PEM file [those of this host]" =>
        One(|to, v, folder| file(v, folder).map(|it| to.upstream_ca = Some(it))),
        Shown(|of| or_none(of.upstream_ca.as_ref().map(|file| file.display()), "those of this host check https upstreams"));
    "preserve_host", "preserve-host", "the upstream sees the client's Host instead of its own name" =>
        Switch(|to, on| to.preserve_host = on),
        Shown(|of| on_or_off(of.preserve_host, "the upstream sees the client's Host", "the upstream sees its own name in Host"));
    "via", "via NAME", "the name of this proxy in Via [one that is made up at the start]" =>
        One(|to, v, _| token(v).map(|it| to.via = Some(it))),
        Shown(|of| of.via.as_ref().map_or(with("made up", "at the start, the name of this proxy in Via"), plain));
    "limit", "limit QUOTA|none", "the quota or window of each key under no route; `none` is no limit" =>
        One(|to, v, _| limit(v).map(|it| to.limit = it)),
        Shown(|of| match of.limit {
            Some(rule) => with(rule, format!("of {}, for requests under no route", client(&of.key))),
            None => with("none", "requests under no route are not limited"),
        });
    "key", "key peer|header:NAME|cookie:NAME|method", "the parts of a key: `peer` is the client's address" =>
        Each(|to, v| add(&mut to.key, v, key_part)),
        Shown(|of| match of.key[..] {
            [KeyPart::Peer] => with("peer", "each client address"),
            _ => list(&of.key),
        });
    "ban", "ban N/WINDOW for TIME|none",
        "refusals of a key in a window that ban it for a time, such as 20/1m for 10m; `none` is no ban" =>
        One(|to, v, _| or_none_of(v, ban).map(|it| to.ban = it)),
        Shown(|of| or_none(of.ban, "a key may be refused for ever"));
    "delay", "delay DURATION|none", "the longest wait of a request for its tokens; `none` refuses it at once" =>
        One(|to, v, _| or_none_of(v, |v| time(v, MILLI, HOUR)).map(|it| to.delay = it)),
        Shown(|of| or_none(of.delay.map(format_duration), "a request over a limit is refused at once"));
    "max_waiting", "max-waiting N", "requests that wait at a time, at the limits of a route" =>
        One(|to, v, _| count(v).map(|it| to.max_waiting = it)),
        Shown(|of| of.delay.and_then(|_| plain(of.max_waiting)));
    "trust_proxy", "trust-proxy CIDR|IP", "networks of proxies whose forwarding headers are believed" =>
        Each(|to, v| add(&mut to.trust_proxy, v, network)),
        Shown(|of| list(&of.trust_proxy));
    "ipv4_prefix", "ipv4-prefix 8..=32", "leading bits of an IPv4 address that are one client" =>
        One(|to, v, _| number(v, 8, 32).map(|it| to.ipv4_prefix = it)),
        Shown(|of| plain(of.ipv4_prefix));
    "ipv6_prefix", "ipv6-prefix 32..=64", "leading bits of an IPv6 address that are one client" =>
        One(|to, v, _| number(v, 32, 64).map(|it| to.ipv6_prefix = it)),
        Shown(|of| plain(of.ipv6_prefix));
    "case_sensitive", "case-sensitive", "/LOGIN is not under the route /login" =>
        Switch(|to, on| to.case_sensitive = on),
        Shown(|of| on_or_off(of.case_sensitive, "/LOGIN is not under a route /login", "/LOGIN is under a route /login"));
    "exempt.networks", "exempt-network CIDR|IP", "networks of clients that no limit applies to" =>
        Each(|to, v| add(&mut to.exempt.networks, v, network)),
        Shown(|of| list(&of.exempt.networks));
    "exempt.paths", "exempt-path PATH|PATH/*", "paths under no limit as they are sent, with /* all below" =>
        Each(|to, v| add(&mut to.exempt.paths, v, exempt_path)),
        Shown(|of| list(&of.exempt.paths));
    "exempt.methods", "exempt-method METHOD", "methods under no limit" =>
        Each(|to, v| add(&mut to.exempt.methods, v, method)),
        Shown(|of| list(&of.exempt.methods));
    "exempt.preflights", "exempt-preflights", "the preflight requests of CORS are under no limit" =>
        Switch(|to, on| to.exempt.preflights = on),
        Shown(|of| on_or_off(of.exempt.preflights, "preflight requests of CORS are under no limit", "they are limited"));
    "shadow", "shadow", "decisions are counted, and no request is refused" =>
        Switch(|to, on| to.shadow = on),
        Shown(|of| {
            let on = "decisions are counted, and no request is refused";
            on_or_off(of.shadow, on, "requests over a limit are refused")
        });
    "admin.listen", "admin IP:PORT", "a live page and /metrics [127.0.0.1:8081 if no address is given]" =>
        OneOr(ADMIN, |to, v, _| {
            let at = v.parse().map_err(|_| "expected an address and a port such as 127.0.0.1:8081")?;
            to.admin.get_or_insert(Admin { at, hosts: Vec::new(), public: false }).at = at;
            Ok(())
        }),
        Shown(|of| or_none(of.admin.as_ref().map(|admin| admin.at), "there is no live page"));
    "admin.public", "admin-public",
        "the admin page may be at an address that others reach: each of them can change the limit" =>
        Switch(|to, on| drop(put_in(&mut to.admin, |admin| &mut admin.public, Ok(on)))),
        Shown(|of| on_or_off(of.admin.as_ref()?.public, "others may reach it, and change the limit", "this host alone reaches it"));
    "admin.hosts", "admin-host NAME", "names in Host of its requests, besides localhost and addresses" =>
        Each(|to, v| add(to.admin.as_mut().map_or(&mut Vec::new(), |admin| &mut admin.hosts), v, host)),
        Shown(|of| list(&of.admin.as_ref()?.hosts));
    "bounds.connections_per_address", "connections-per-address N",
        "connections of one client address (of IPv6 its /64), but not of trust_proxy" =>
        One(|to, v, _| count(v).map(|it| to.bounds.connections_per_address = it)),
        Shown(|of| plain(of.bounds.connections_per_address));
    "bounds.in_flight", "in-flight N", "requests under way at a time, or as many as open files have room for" =>
        One(|to, v, _| count(v).map(|it| to.bounds.in_flight = it)),
        Shown(|of| plain(of.bounds.in_flight));
    "bounds.in_flight_per_key", "in-flight-per-key N",
        "requests of each client address, and of each key, under way at a time" =>
        One(|to, v, _| count(v).map(|it| to.bounds.in_flight_per_key = it)),
        Shown(|of| plain(of.bounds.in_flight_per_key));
    "bounds.keys_per_limit", "keys-per-limit N|none", "keys of each limit, in a table; `none` is a map of 2^20" =>
        // The bound is that of a table.
        One(|to, v, _| or_none_of(v, |v| number(v, 1, 1 << 28)).map(|it| to.bounds.keys_per_limit = it)),
        Shown(|of| match of.store {
            // The store has the keys.
            Some(_) => None,
            None => or_none(of.bounds.keys_per_limit, "a map of each limit grows, up to 2^20 keys"),
        });
    "bounds.least_rate", "least-rate N|none",
        "bytes of a request's body that make up for a second of waiting; `none` is no bound" =>
        One(|to, v, _| or_none_of(v, |v| number(v, 1, MOST.into())).map(|it| to.bounds.least_rate = it)),
        Shown(|of| or_none(of.bounds.least_rate, "a body of a request may be slow"));
    "bounds.request_body", "request-body BYTES|none",
        "bytes of a request's body, such as 10MiB, beyond which it gets 413; `none` is no bound" =>
        One(|to, v, _| or_none_of(v, bytes).map(|it| to.bounds.request_body = it)),
        Shown(|of| or_none(of.bounds.request_body, "a body of a request may be large"));
    "inflight.limit", "inflight N|none",
        "requests in flight to each upstream, beyond which they get 503 at once; `none` is no limit" =>
        One(|to, v, _| {
            let target = to.inflight.and_then(|limit| limit.target);
            let ceiling = or_none_of(v, |v| number(v, 1, MOST))?;
            to.inflight = ceiling.map(|ceiling| InflightLimit { ceiling, target });
            Ok(())
        }),
        Shown(|of| match of.inflight {
            Some(limit) if limit.target.is_some() => {
                let begin = limit.inflight(None).map_or(limit.ceiling, |inflight| inflight.limit());
                with(limit.ceiling, format!("the most in flight to each upstream; the limit begins at {begin}"))
            }
            limit => or_none(limit.map(|limit| limit.ceiling), "on requests in flight to each upstream"),
        });
    "inflight.target", "target DURATION|none",
        "the limit adapts: nine in ten requests are answered within this time; `none` fixes it [none]" =>
        One(|to, v, _| put_in(&mut to.inflight, |to| &mut to.target, or_none_of(v, |v| time(v, MICRO, MINUTE)))),
        Shown(|of| or_none(of.inflight.and_then(|limit| limit.target).map(format_duration), "the limit stays as it is"));
    "store.url", "store URL|none",
        "the limits are shared with other proxies by it; `none` is this process's memory" =>
        Secret(|to, v, folder| {
            to.store = match or_none_of(v, |v| store::url(v, folder))? {
                Some(url) => Some(Store { url, ..to.store.take().unwrap_or_else(store::default) }),
                None => None,
            };
            Ok(())
        }),
        Shown(|of| or_none(of.store.as_ref().map(|store| &store.url), "the limits are those of this process"));
    "store.name", "store-name NAME", "proxies of one name share their limits [tollgate]" =>
        One(|to, v, _| put_in(&mut to.store, |store| &mut store.name, word(v, "-._", 24, "a name"))),
        Shown(|of| plain(&of.store.as_ref()?.name));
    "store.mode", "store-mode leased|exact",
        "the store is asked for each decision (`exact`), or for leases (`leased`) [leased]" =>
        One(|to, v, _| put_in(&mut to.store, |to| &mut to.exact, choice(v, &[("leased", false), ("exact", true)]))),
        Shown(|of| match of.store.as_ref()?.exact {
            true => with("exact", "each decision asks the store"),
            false => with("leased", "tokens of busy keys are taken from the store for 100 ms ahead"),
        });
    "store.deadline", "store-deadline DURATION", "for an answer of the store [50ms]" =>
        One(|to, v, _| put_in(&mut to.store, |to| &mut to.deadline, time(v, MILLI, Duration::from_secs(10)))),
        Shown(|of| plain(format_duration(of.store.as_ref()?.deadline)));
    "store.on_outage", "store-on-outage local|deny|allow",
        "without the store: limit by a share (`local`), refuse, or let all pass [local]" =>
        One(|to, v, _| {
            let known = [("local", Outage::Local), ("deny", Outage::Deny), ("allow", Outage::Allow)];
            put_in(&mut to.store, |store| &mut store.on_outage, choice(v, &known))
        }),
        Shown(|of| match of.store.as_ref()?.on_outage {
            Outage::Local => with("local", "without the store, this process limits by its share"),
            Outage::Deny => with("deny", "without the store, requests get 503"),
            Outage::Allow => with("allow", "without the store, no request is refused"),
        });
    "store.share", "store-share NUMBER", "of the limits, with `local`: 1 / n in a fleet of n [1]" =>
        One(|to, v, _| put_in(&mut to.store, |store| &mut store.share, share(v))),
        Shown(|of| plain(of.store.as_ref()?.share));
    "state", "state FILE|none", "the limits outlive a restart in this file; `none` forgets them" =>
        One(|to, v, folder| or_none_of(v, |v| file(v, folder)).map(|it| to.state = it)),
        Shown(|of| or_none(of.state.as_ref().map(|file| file.display()), "a restart forgets the use of all keys"));
    "state_interval", "state-interval DURATION", "from one save of the state to the next" =>
        One(|to, v, _| time(v, MILLI, HOUR).map(|it| to.state_interval = it)),
        Shown(|of| of.state.as_ref().and_then(|_| plain(format_duration(of.state_interval))));
    "log.format", "log text|json", "the form of the log" =>
        One(|to, v, _| choice(v, &[("text", false), ("json", true)]).map(|it| to.log.json = it)),
        Shown(|of| plain(if of.log.json { "json" } else { "text" }));
    "log.access", "access-log", "a line for each request" =>
        Switch(|to, on| to.log.access = on),
        Shown(|of| on_or_off(of.log.access, "a line for each request", ""));
    "log.refusals", "log-refusals", "a line for each refusal, up to 5 a second of each limit" =>
        Switch(|to, on| to.log.refusals = on),
        Shown(|of| on_or_off(of.log.refusals, "a line for each refusal, up to 5 a second of each limit", ""));
    "remove_routes", "", "names of routes that go at a reload" =>
        Each(|to, v| {
            to.routes.retain(|route| v != Some(&*route.name));
            Ok(())
        }),
        Shown(|_| None);
}

// The settings of a route.
settings! { pub(super) static ROUTE: Route;
    "prefix", "", "" => One(|to, v, _| prefix(v).map(|it| to.prefix = it)), Shown(|_| None);
    "name", "", "" => One(|_, _, _| Ok(())), Shown(|_| None);
    "limit", "", "" => One(|to, v, _| counted(v).map(|it| to.rule = it)), Shown(|of| plain(of.rule));
    "cost", "", "" =>
        One(|to, v, _| number(v, 1, u64::MAX).map(|it| to.cost = it)),
        Shown(|of| plain(format_args!("cost {}", of.cost)));
    "priority", "", "" =>
        One(|to, v, _| choice(v, &Priority::ALL.map(|it| (it.name(), it))).map(|it| to.priority = it)),
        Shown(|of| match of.priority {
            Priority::Critical => None,
            lower => plain(format_args!("priority {}", lower.name())),
        });
    "key", "", "" =>
        Each(|to, v| add(to.key.get_or_insert_default(), v, key_part)),
        Shown(|of| plain(format_args!("key {}", list(of.key.as_ref()?)?.0)));
    "ban", "", "" =>
        One(|to, v, _| or_none_of(v, ban).map(|it| to.ban = Some(it))),
        Shown(|of| of.ban?.map_or_else(|| plain("no ban"), |ban| plain(format_args!("ban {ban}"))));
    "delay", "", "" =>
        One(|to, v, _| or_none_of(v, |v| time(v, MILLI, HOUR)).map(|it| to.delay = Some(it))),
        Shown(|of| of.delay?.map_or_else(|| plain("no delay"), |wait| plain(format_args!("delay {}", format_duration(wait)))));
}

/// Returns the client that a limit is for, in words.
pub(crate) fn client(key: &[KeyPart]) -> String {
    let of = |part: &KeyPart| match part {
        KeyPart::Peer => "client address".to_owned(),
        KeyPart::Header(name) => format!("value of {name}"),
        KeyPart::Cookie(name) => format!("cookie {name}"),
        KeyPart::Method => "method".to_owned(),
    };
    format!("each {}", key.iter().map(of).collect::<Vec<_>>().join(" and "))
}
