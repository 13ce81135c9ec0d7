//! The sources of settings: flags over a TOML file over the variables of envoyproxy/ratelimit over
//! defaults.

use std::collections::BTreeMap;
use std::path::Path;

use super::checks::Check;
use super::options::ServeOptions;
use super::settings::{ServeSettings, ServeTable};
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
    complete(to, options)
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
    take(&file.given, to).map_err(|mistake| file.at_its_spot(mistake))
}

/// Derives settings from others, and checks them together.
fn complete(mut to: ServeSettings, options: &ServeOptions) -> Result<ServeSettings, String> {
    to.has_tls |= options.flags.given.texts.contains_key("tls_cert");
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
    if !to.admin_public && !to.admin.ip().to_canonical().is_loopback() {
        return Err(format!(
            "--admin {} is not a loopback address: any client that reaches it can reload, so it needs --admin-public",
            to.admin
        ));
    }
    if to.paths.is_empty() && !options.is_built_in {
        to.paths = vec![to.runtime.iter().collect()];
    }
    to.decision.headers = to.has_headers.then(|| to.headers.clone());
    Ok(to)
}
