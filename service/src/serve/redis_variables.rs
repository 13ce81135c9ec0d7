//! The variables by which envoyproxy/ratelimit finds its Redis, as URLs of a store.
//!
//! An empty value counts as none. No error has a password.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use tollgate_common::settings::values::{DAY, number, switch, time};

/// The store of the counts that a fleet of envoyproxy/ratelimit has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RedisSettings {
    /// The servers, as `AnyStore::open` takes them.
    pub(super) url: String,
    /// The servers of the limits of one second, if they are others.
    pub(super) per_second_url: Option<String>,
    pub(super) keys: KeySettings,
    /// Each variable that is set and has no effect, with the reason.
    pub(super) not_honoured: Vec<String>,
}

/// The keys of that fleet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeySettings {
    /// The bytes before each key.
    pub(super) prefix: String,
    /// The bound of the time that is added to an expiry.
    pub(super) jitter: Duration,
    /// The bound of the keys that are kept as over their limits; 0 for none.
    pub(super) over_limit_cache_bytes: u64,
}

/// The variables without an effect, each with the reason. `*` is the part of the per-second ones.
const NO_EFFECT: [(&str, &str); 14] = [
    ("REDIS_*POOL_SIZE", POOL),
    ("REDIS_*POOL_ON_EMPTY_BEHAVIOR", POOL),
    ("REDIS_*PIPELINE_WINDOW", AT_ONCE),
    ("REDIS_*PIPELINE_LIMIT", AT_ONCE),
    ("REDIS_*CLUSTER_PIPELINE_PARALLELISM", "each node of a cluster gets its commands at the same time"),
    (
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        "without the store requests are decided by a policy; /readyz tells it",
    ),
    ("REDIS_STARTUP_INITIAL_INTERVAL", START),
    ("REDIS_STARTUP_MAX_INTERVAL", START),
    ("REDIS_STARTUP_MAX_ELAPSED_TIME", START),
    ("REDIS_TLS_CLIENT_CERT", NO_TLS),
    ("REDIS_TLS_CLIENT_KEY", NO_TLS),
    ("REDIS_TLS_CACERT", NO_TLS),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", NO_TLS),
    ("REDIS_*SENTINEL_AUTH", NO_SENTINEL),
];
pub(super) const POOL: &str = "there is one connection to each server, and all calls share it";
pub(super) const AT_ONCE: &str =
    "the commands of a call are sent at once, and calls do not wait for each other";
const START: &str = "the service starts without the store, and connects at the first call";
pub(super) const NO_SENTINEL: &str = "the type of the servers is not sentinel";
pub(super) const NO_TLS: &str = "neither REDIS_TLS nor REDIS_PERSECOND_TLS is true";

/// Returns the store that the variables name; `None` if they name none: without `REDIS_URL`, unless
/// `BACKEND_TYPE` is `redis`, and with `BACKEND_TYPE=memcache`.
///
/// The error names a variable, its value and the bound.
pub(super) fn store_of(environment: &BTreeMap<String, String>) -> Result<Option<RedisSettings>, String> {
    let given = Given(environment);
    match given.text("BACKEND_TYPE") {
        Some("redis") => {}
        Some("memcache") => return Ok(None),
        Some(other) => return Err(format!("BACKEND_TYPE={other}: expected redis or memcache")),
        None if given.text("REDIS_URL").is_none() => return Ok(None),
        None => {}
    }
    let has_seconds = given.read("REDIS_PERSECOND", switch)?.unwrap_or(false);
    let url = given.url("")?;
    let per_second_url = if has_seconds { Some(given.url("PERSECOND_")?) } else { None };
    let not_honoured = given.not_honoured(has_seconds)?;
    Ok(Some(RedisSettings { url, per_second_url, keys: keys_of(environment)?, not_honoured }))
}

/// Returns the settings of the keys by the variables, whichever Redis has them.
pub(super) fn keys_of(environment: &BTreeMap<String, String>) -> Result<KeySettings, String> {
    let given = Given(environment);
    let seconds = |text: &str| number(text, i64::MIN, i64::MAX);
    let jitter = given.read("EXPIRATION_JITTER_MAX_SECONDS", seconds)?.unwrap_or(300);
    let cache = given.read("LOCAL_CACHE_SIZE_IN_BYTES", |text| number(text, 0, u64::MAX))?.unwrap_or(0);
    Ok(KeySettings {
        prefix: given.text("CACHE_KEY_PREFIX").unwrap_or_default().to_owned(),
        jitter: Duration::from_secs(u64::try_from(jitter).unwrap_or(0)),
        over_limit_cache_bytes: cache,
    })
}

/// The variables that are set.
struct Given<'e>(&'e BTreeMap<String, String>);

impl<'e> Given<'e> {
    fn text(&self, name: &str) -> Option<&'e str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn read<T>(&self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        let read = |text: &str| read(text).map_err(|why| format!("{name}={text}: {why}"));
        self.text(name).map(read).transpose()
    }

    /// Returns the type of the servers of a side.
    fn kind(&self, side: &str) -> String {
        self.text(&format!("REDIS_{side}TYPE")).unwrap_or("single").to_lowercase()
    }

    /// Tells whether a side has TLS: `""`, or `"PERSECOND_"`.
    fn has_tls(&self, side: &str) -> Result<bool, String> {
        Ok(self.read(&format!("REDIS_{side}TLS"), switch)?.unwrap_or(false))
    }

    /// Returns the URL of a side.
    fn url(&self, side: &str) -> Result<String, String> {
        let name = |rest: &str| format!("REDIS_{side}{rest}");
        let socket = if side.is_empty() { "ratelimit" } else { "ratelimitpersecond" };
        let default = format!("/var/run/nutcracker/{socket}.sock");
        let servers = self.text(&name("URL")).unwrap_or(&default);
        let kind = self.kind(side);
        // There it is `unix` by default, also for a host and a port, which no socket has.
        let usual = if servers.starts_with('/') { "unix" } else { "tcp" };
        let socket = self.text(&name("SOCKET_TYPE")).unwrap_or(usual);
        if !["tcp", "tcp4", "tcp6", "unix"].contains(&socket) {
            return Err(format!("{}={socket}: expected tcp or unix", name("SOCKET_TYPE")));
        }
        let has_tls = self.has_tls(side)?;
        let scheme = if has_tls { "rediss" } else { "redis" };
        let named = |text: &str| format!("{}={}", name("URL"), hidden(text));
        let mut query = if has_tls { self.files()? } else { Vec::new() };
        if let Some(limit) = self.read(&name("TIMEOUT"), go_time)?.filter(|limit| !limit.is_zero()) {
            query.push(("connect_timeout_ms", limit.as_millis().max(1).to_string()));
        }
        let auth = self.text(&name("AUTH")).map(Login::of).unwrap_or_default();
        let read = |text: &str, auth: &Login| {
            let text = text.trim();
            Place::read(text, auth).map_err(|why| format!("{}: {why}", named(text)))
        };
        match kind.as_str() {
            "single" if socket == "unix" && !servers.starts_with("redis://") => {
                if has_tls {
                    return Err(format!("{}=true: a unix socket has no TLS", name("TLS")));
                }
                query.extend(auth.options(["user", "pass"]));
                Ok(format!("redis+unix://{}{}", encoded_path(servers), joined(&query)))
            }
            "single" => {
                let place = read(servers, &auth)?;
                Ok(format!(
                    "{scheme}://{}{}{}{}",
                    place.login.text(),
                    place.host,
                    place.path(),
                    joined(&query)
                ))
            }
            "cluster" => {
                let places =
                    servers.split(',').map(|node| read(node, &auth)).collect::<Result<Vec<_>, _>>()?;
                let login = places.first().map(|place| place.login.text()).unwrap_or_default();
                Ok(format!("{scheme}+cluster://{login}{}{}", hosts(&places), joined(&query)))
            }
            "sentinel" => {
                let Some((master, sentinels)) =
                    servers.split_once(',').filter(|(master, _)| !master.is_empty())
                else {
                    let why = "expected the name of the master, and sentinels behind it: MASTER,HOST:PORT,HOST:PORT";
                    return Err(format!("{}: {why}", named(servers)));
                };
                let own = self.text(&name("SENTINEL_AUTH")).map(Login::of).unwrap_or_default();
                let sentinels =
                    sentinels.split(',').map(|node| read(node, &own)).collect::<Result<Vec<_>, _>>()?;
                let own = sentinels.first().map(|place| &place.login);
                query.extend(
                    own.into_iter().flat_map(|own| own.options(["sentinel_user", "sentinel_password"])),
                );
                let (login, master) = (auth.text(), encoded_path(master));
                Ok(format!("{scheme}+sentinel://{login}{}/{master}{}", hosts(&sentinels), joined(&query)))
            }
            _ => Err(format!("{}={kind}: expected single, sentinel or cluster", name("TYPE"))),
        }
    }

    /// Returns the files of TLS as options of a URL.
    fn files(&self) -> Result<Vec<(&'static str, String)>, String> {
        const FILES: [(&str, &str); 3] = [
            ("tls_ca", "REDIS_TLS_CACERT"),
            ("tls_cert", "REDIS_TLS_CLIENT_CERT"),
            ("tls_key", "REDIS_TLS_CLIENT_KEY"),
        ];
        let mut options = Vec::new();
        for (option, variable) in FILES {
            let Some(path) = self.text(variable) else { continue };
            if path.contains(['?', '&', '#', '=']) {
                return Err(format!("{variable}={path}: expected a path without ?, &, # and ="));
            }
            options.push((option, path.to_owned()));
        }
        let [cert, key] = [FILES[1].1, FILES[2].1];
        if self.text(cert).is_some() != self.text(key).is_some() {
            let (given, lacking) = if self.text(cert).is_some() { (cert, key) } else { (key, cert) };
            let path = self.text(given).unwrap_or_default();
            return Err(format!("{given}={path}: expected {lacking} as well"));
        }
        if self.read("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", switch)? == Some(true) {
            options.push(("tls_skip_hostname", "true".to_owned()));
        }
        Ok(options)
    }

    /// Returns the variables without an effect.
    fn not_honoured(&self, has_seconds: bool) -> Result<Vec<String>, String> {
        let has_tls = self.has_tls("")? || has_seconds && self.has_tls("PERSECOND_")?;
        let mut lines = Vec::new();
        for (pattern, why) in NO_EFFECT.iter().filter(|(_, why)| !has_tls || *why != NO_TLS) {
            let sides = if pattern.contains('*') { &["", "PERSECOND_"][..] } else { &[""] };
            for side in sides.iter().filter(|side| has_seconds || side.is_empty()) {
                if *why == NO_SENTINEL && self.kind(side) == "sentinel" {
                    continue;
                }
                let name = pattern.replace('*', side);
                // No such thing is asked for by 0 and by false.
                let value = self.text(&name).filter(|value| switch(value) != Ok(false));
                lines.extend(value.map(|_| format!("{name}: {why}")));
            }
        }
        if !has_seconds {
            let of_seconds = self.0.range("REDIS_PERSECOND_".to_owned()..);
            let of_seconds = of_seconds.take_while(|(name, _)| name.starts_with("REDIS_PERSECOND_"));
            let lines_of = of_seconds.filter(|(_, value)| !value.is_empty());
            lines.extend(lines_of.map(|(name, _)| format!("{name}: REDIS_PERSECOND is not true")));
        }
        Ok(lines)
    }
}

/// A user and a password, as parts of a URL. Either may be empty.
#[derive(Clone, Default)]
struct Login {
    user: String,
    password: String,
}

impl Login {
    /// Reads `user:password`, or a password alone.
    fn of(auth: &str) -> Login {
        let (user, password) = auth.split_once(':').unwrap_or(("", auth));
        Login { user: encoded(user), password: encoded(password) }
    }

    /// Returns the login before a host, with its `@`.
    fn text(&self) -> String {
        match self {
            Login { user, password } if user.is_empty() && password.is_empty() => String::new(),
            Login { user, password } => format!("{user}:{password}@"),
        }
    }

    /// Returns the login as options of a URL.
    fn options(&self, names: [&'static str; 2]) -> impl Iterator<Item = (&'static str, String)> {
        let texts = [self.user.clone(), self.password.clone()];
        names.into_iter().zip(texts).filter(|(_, text)| !text.is_empty())
    }
}

/// A server: its login, its host with the port, and its database.
#[derive(Default)]
struct Place {
    login: Login,
    host: String,
    database: String,
}

impl Place {
    /// Reads `host:port`, or a URL `redis://user:password@host:port/database`, whose login is taken
    /// in place of `auth`.
    fn read(text: &str, auth: &Login) -> Result<Place, &'static str> {
        let url = text.strip_prefix("redis://");
        let (rest, query) = url.unwrap_or(text).split_once('?').unwrap_or((url.unwrap_or(text), ""));
        let (own, rest) = rest.rsplit_once('@').map_or((None, rest), |(own, rest)| (Some(own), rest));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let has_port =
            host.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !has_port || url.is_none() && (own.is_some() || rest != text || !path.is_empty()) {
            return Err("expected HOST:PORT");
        }
        let database = match query.split('&').find_map(|pair| pair.strip_prefix("db=")) {
            Some(database) if path.is_empty() => database,
            _ => path,
        };
        if !database.is_empty() && database.parse::<u32>().is_err() {
            return Err("expected the number of a database");
        }
        // That of a URL is encoded already.
        let login = own.map_or_else(
            || auth.clone(),
            |own| {
                let (user, password) = own.split_once(':').unwrap_or((own, ""));
                Login { user: user.to_owned(), password: password.to_owned() }
            },
        );
        Ok(Place { login, host: host.to_owned(), database: database.to_owned() })
    }

    fn path(&self) -> String {
        if self.database.is_empty() { String::new() } else { format!("/{}", self.database) }
    }
}

fn hosts(places: &[Place]) -> String {
    places.iter().map(|place| place.host.as_str()).collect::<Vec<_>>().join(",")
}

/// Returns a time such as `10s`, `150us`, or 0.
fn go_time(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { time(text, Duration::ZERO, DAY) }
}

/// Returns a value without the logins of its URLs.
fn hidden(text: &str) -> String {
    // A password may have any sign, also a comma.
    match text.rsplit_once('@') {
        Some((_, host)) => format!("*****@{host}"),
        None => text.to_owned(),
    }
}

fn joined(query: &[(&str, String)]) -> String {
    let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// Returns a text as a part of a URL.
fn encoded(text: &str) -> String {
    encoded_but(text, b"-._~")
}

fn encoded_path(text: &str) -> String {
    encoded_but(text, b"-._~/")
}

fn encoded_but(text: &str, plain: &[u8]) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
