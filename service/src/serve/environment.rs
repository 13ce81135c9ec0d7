//! Variables of envoyproxy/ratelimit that this service does not follow.

use std::collections::BTreeMap;

/// Variables that ask for a part that is not there: other systems rely on it, so the start fails.
const REFUSED: &[(&str, &str, &str)] = &[
    ("BACKEND_TYPE", "memcache", "there is no store in memcached: REDIS_URL and --store name one"),
    ("USE_DOG_STATSD", "true", "there is no DogStatsD: /metrics has the counters for Prometheus"),
];

/// Variables of a control plane.
const OF_PLANE: &[&str] = &["CONFIG_GRPC_XDS_*", "XDS_CLIENT_*"];

/// Variables without an effect.
const UNUSED: &[&str] = &[
    "USE_DOG_STATSD_MOGRIFIERS",
    "DOG_STATSD_MOGRIFIER*",
    "USE_STATSD",
    "STATSD_*",
    "STATS_FLUSH_INTERVAL",
    "PROMETHEUS_MAPPER_YAML",
    "TRACING_*",
    "MEMCACHE_*",
];

/// Variables of the counts that replicas share.
const OF_STORE: &[&str] = &[
    "BACKEND_TYPE",
    "REDIS_*",
    "CACHE_KEY_PREFIX",
    "EXPIRATION_JITTER_MAX_SECONDS",
    "LOCAL_CACHE_SIZE_IN_BYTES",
];

/// Returns the variables of the configuration's path that are set.
pub(super) fn of_runtime(environment: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    const NAMES: [&str; 3] = ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"];
    let value = |name| environment.get(name).map(String::as_str).filter(|value| !value.is_empty());
    NAMES.into_iter().filter_map(move |name| Some((name, value(name)?)))
}

/// Returns a warning for each kind of variable that is set and not followed, and for the notes on
/// those of the store. The error names one with which no start is right.
pub(super) fn check(
    environment: &BTreeMap<String, String>,
    has_store: bool,
    has_plane: bool,
    notes: &[String],
) -> Result<Vec<String>, String> {
    let given = || environment.iter().filter(|(_, value)| !value.is_empty());
    for (name, value) in given() {
        let is_it =
            |(pattern, of, _): &&(&str, &str, &str)| *pattern == name && value.eq_ignore_ascii_case(of);
        if let Some((_, _, why)) = REFUSED.iter().find(is_it) {
            return Err(format!("{name}={value} is not supported: {why}"));
        }
    }
    let among = |list: &[&str], name: &str| list.iter().any(|pattern| matches(pattern, name));
    let is_on = |name: &&str, value: &str| !(*name == "USE_STATSD" && value.eq_ignore_ascii_case("false"));
    let unused = given().map(|(name, value)| (name.as_str(), value));
    let is_unused = |name: &str| among(UNUSED, name) || !has_plane && among(OF_PLANE, name);
    let unused = unused.filter(|(name, value)| is_unused(name) && is_on(name, value));
    let unused: Vec<&str> = unused.map(|(name, _)| name).collect();
    let is_memory =
        environment.get("TOLLGATE_STORE").is_some_and(|store| ["memory", "none"].contains(&&**store));
    let of_store: Vec<&str> = given()
        .map(|(name, _)| name.as_str())
        .filter(|name| !has_store && !is_memory && among(OF_STORE, name))
        .collect();
    let mut warnings = Vec::new();
    if !unused.is_empty() {
        warnings.push(format!("not used: {}", unused.join(", ")));
    }
    if !notes.is_empty() {
        warnings.push(format!("not used: {}", notes.join("; ")));
    }
    if !of_store.is_empty() {
        warnings.push(format!(
            "counts are in this process, so two replicas grant up to twice each limit; not used: {}; \
             REDIS_URL or --store shares them, and TOLLGATE_STORE=memory silences this",
            of_store.join(", ")
        ));
    }
    Ok(warnings)
}

/// Returns whether a name is the pattern, or begins as one that ends with a star.
fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |begin| name.starts_with(begin))
}
