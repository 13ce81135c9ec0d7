//! The sources of settings: flags over a TOML file over the variables of envoyproxy/ratelimit over
//! defaults.

use std::collections::BTreeMap;
use std::path::Path;

use tollgate_distributed::OnOutage;

use super::checks::Check;
use super::options::ServeOptions;
use super::redis_variables::{self, KeySettings, RedisSettings};
use super::settings::ServeSettings;
use super::shared::settings::{Layout, StoreUrl};
use super::tables::ServeTable;
use tollgate_common::settings::error::{Mistake, check_all, mistake};
use tollgate_common::settings::given::Given;
use tollgate_common::settings::options::Table;
use tollgate_common::settings::table::{apply, variables};
use tollgate_common::settings::toml_file::{Beside, TomlFile};

/// Reads all settings. An error is one sentence that names the value and its spot.
///
/// With the built-in limits, an address that nothing names is one of this host alone.
pub(crate) fn load(
    options: &ServeOptions,
    environment: &BTreeMap<String, String>,
) -> Result<ServeSettings, String> {
    let mut to = ServeSettings::new(options.paths.clone());
    if options.is_built_in {
        to.listen_here();
    }
    let outside = |mistake: Mistake| mistake.what;
    take(&variables(ServeTable::settings(), environment), &mut to).map_err(outside)?;
    if let Some(path) = &options.config {
        of_file(path, &mut to)?;
    }
    take(&options.flags.given, &mut to).map_err(outside)?;
    of_redis(environment, &mut to)?;
    complete(to, options)
}

/// Takes the Redis that the variables of envoyproxy/ratelimit name, unless another store is named,
/// and their keys.
fn of_redis(environment: &BTreeMap<String, String>, to: &mut ServeSettings) -> Result<(), String> {
    let redis = if to.names_store { None } else { redis_variables::store_of(environment)? };
    let is_of_variables = redis.is_some();
    if to.names_store && to.store.url.is_some() {
        let given =
            environment.iter().filter(|(name, value)| name.starts_with("REDIS_") && !value.is_empty());
        to.store.notes = given.map(|(name, _)| format!("{name}: another store is named")).collect();
    }
    if let Some(RedisSettings { url, per_second_url, not_honoured, .. }) = redis {
        let read = |url: &str| StoreUrl::read(url, Path::new("")).map_err(|why| format!("REDIS_URL: {why}"));
        to.store.url = Some(read(&url)?);
        to.store.per_second = per_second_url.as_deref().map(read).transpose()?;
        to.store.notes = not_honoured;
        if !to.names_layout {
            to.store.layout = Layout::Envoy;
        }
    }
    match to.store.layout {
        Layout::Envoy => {
            let KeySettings { prefix, jitter, over_limit_cache_bytes } =
                redis_variables::keys_of(environment)?;
            (to.store.prefix, to.store.jitter) = (prefix, jitter);
            // The cache of the reference is off by default.
            to.store.caches_over = over_limit_cache_bytes > 0;
            to.store.cache_bytes = Some(over_limit_cache_bytes);
        }
        Layout::Tollgate => {
            let of_keys = [
                "CACHE_KEY_PREFIX",
                "EXPIRATION_JITTER_MAX_SECONDS",
                "LOCAL_CACHE_SIZE_IN_BYTES",
                "REDIS_PERSECOND",
            ];
            let given = |name: &&str| environment.get(*name).is_some_and(|value| !value.is_empty());
            let given = of_keys.into_iter().filter(given).filter(|_| is_of_variables);
            to.store.notes.extend(given.map(|name| format!("{name}: it is of the layout envoy")));
        }
    }
    Ok(())
}

/// Reads all settings, with the variables of this process.
pub(crate) fn of_process(options: &ServeOptions) -> Result<ServeSettings, String> {
    load(options, &environment_of_process())
}

/// Returns the variables of this process. One whose name is no text is none of the service.
pub(super) fn environment_of_process() -> BTreeMap<String, String> {
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    variables.collect()
}

/// Sets the values of one source as a whole: two settings of one address are in its order.
fn take(source: &Given, to: &mut ServeSettings) -> Result<(), Mistake> {
    check_all(apply(to, ServeTable::settings(), &[source]))
}

/// Sets the values that a TOML file names.
fn of_file(path: &Path, to: &mut ServeSettings) -> Result<(), String> {
    let names: Vec<&str> = ServeTable::settings().map(|setting| setting.name).collect();
    let file = TomlFile::read(path, &names, &Beside::Unread("check"))?;
    let checks = Check::all(&file.text).map_err(|(at, what)| mistake(Some(at.start), what));
    to.checks = checks.map_err(|mistake| file.at_its_spot(mistake))?.into();
    path.clone_into(&mut to.config);
    to.has_tls |= file.given.texts.contains_key("tls_cert");
    let names = ["config_type = \"FILE\"", "xds.server"];
    to.xds.is_used |= takes_plane(&file.given, names).map_err(|mistake| file.at_its_spot(mistake))?;
    take(&file.given, to).map_err(|mistake| file.at_its_spot(mistake))
}

/// Returns whether a source names a control plane. `names` are those of both settings there.
fn takes_plane(given: &Given, [of_files, of_plane]: [&str; 2]) -> Result<bool, Mistake> {
    let Some(server) = given.texts.get("xds.server") else { return Ok(false) };
    let kind = given.texts.get("config_type").and_then(|kind| kind.texts.first());
    if kind.is_some_and(|kind| kind.text.eq_ignore_ascii_case("FILE")) {
        let what = format!("{of_files} beside {of_plane}: the rules are those of one of both");
        return Err(mistake(server.at(), what));
    }
    Ok(true)
}

/// Derives settings from others, and checks them together.
fn complete(mut to: ServeSettings, options: &ServeOptions) -> Result<ServeSettings, String> {
    to.has_tls |= options.flags.given.texts.contains_key("tls_cert");
    let names = ["--config-type FILE", "--xds-server"];
    to.xds.is_used |= takes_plane(&options.flags.given, names).map_err(|mistake| mistake.what)?;
    to.xds.complete()?;
    let [chain, key] = [&to.certificate.chain, &to.certificate.key].map(|path| !path.as_os_str().is_empty());
    if to.has_tls && !(chain && key) {
        return Err("TLS needs a certificate and its key: --tls-cert and --tls-key".to_owned());
    }
    if !to.has_tls && !to.client_ca.as_os_str().is_empty() {
        return Err("--client-ca needs --tls-cert and --tls-key".to_owned());
    }
    if !to.client_names.is_empty() && to.client_ca.as_os_str().is_empty() {
        return Err("--client-san needs --client-ca".to_owned());
    }
    if let OnOutage::Local { share } = &mut to.store.on_outage {
        *share = to.share;
    }
    to.store.check()?;
    if to.store.url.is_some() && to.state.is_some() {
        return Err(
            "--state keeps the counts of this process, and with --store they are in the store".to_owned()
        );
    }
    if !to.admin_public && !to.admin.ip().to_canonical().is_loopback() {
        return Err(format!(
            "--admin {} is not a loopback address: any client that reaches it can reload, so it needs --admin-public",
            to.admin
        ));
    }
    if to.paths.is_empty() && !options.is_built_in && !to.xds.is_used {
        to.paths = vec![to.runtime.iter().collect()];
    }
    to.decision.headers = to.has_headers.then(|| to.headers.clone());
    Ok(to)
}
