//! The sources of settings: flags over a TOML file over the variables of envoyproxy/ratelimit over
//! defaults.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::checks::Check;
use super::options::ServeOptions;
use super::settings::{ROWS, Row, ServeSettings};
use tollgate_common::settings::error::unknown;
use tollgate_common::settings::file::{self, place};

/// Reads all settings. An error is one sentence that names the value and its place.
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
    for row in ROWS.iter().filter(|row| !row.variable.is_empty()) {
        // An empty variable is none.
        if let Some(text) = environment.get(row.variable).filter(|text| !text.is_empty()) {
            let told = |why| format!("{}={text}: {why}", row.variable);
            (row.set)(&mut to, text, Path::new("")).map_err(told)?;
        }
    }
    if let Some(path) = &options.config {
        to.config.clone_from(path);
        of_file(path, &mut to)?;
    }
    for (row, text) in ROWS.iter().filter_map(|row| Some((row, options.flag(row.long())?))) {
        let told = |why| format!("invalid value '{text}' for '--{}': {why}", row.flag);
        (row.set)(&mut to, text, Path::new("")).map_err(told)?;
    }
    complete(to, options)
}

/// Sets the rows that a TOML file names.
fn of_file(path: &Path, to: &mut ServeSettings) -> Result<(), String> {
    let text = file::read(path, file::MOST)?;
    let wrong = |at: usize, what: &str| place(path, &text, at, what);
    let root = DeTable::parse(&text).map_err(|error| {
        wrong(error.span().map_or(0, |span| span.start), error.message().lines().next().unwrap_or_default())
    })?;
    file::check(path, &text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let names: Vec<String> = ROWS.iter().map(Row::name).collect();
    to.checks = Check::all(&text).map_err(|(at, what)| wrong(at.start, &what))?.into();
    for (key, value) in root.get_ref().iter().filter(|(key, _)| key.get_ref() != "check") {
        let known = names.iter().position(|name| name == key.get_ref());
        let row = known.map(|index| &ROWS[index]).ok_or_else(|| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            wrong(key.span().start, &unknown(key.get_ref(), &names))
        })?;
        let text = scalar(value)
            .ok_or_else(|| wrong(value.span().start, "expected a text, a number, true or false"))?;
        let told = |why: String| wrong(value.span().start, &format!("{text}: {why}"));
        (row.set)(to, &text, folder).map_err(told)?;
        to.has_tls |= row.long() == "tls-cert";
    }
    Ok(())
}

fn scalar(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(on) => Some(on.to_string()),
        DeValue::Array(items) => {
            items.iter().map(scalar).collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        _ => None,
    }
}

/// Derives settings from others, and checks them together.
fn complete(mut to: ServeSettings, options: &ServeOptions) -> Result<ServeSettings, String> {
    to.has_tls |= options.flag("tls-cert").is_some();
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
