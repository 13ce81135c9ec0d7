//! The settings from a file and from options: defaults, then the file, then the options.
//!
//! A reload changes the settings that the file names, and no other: a file that was cut removes no
//! limit. A route is matched by its name, and keeps its cost and its priority unless it names
//! another. `tests/it/features/reread.rs` has a file with all settings.

use std::path::PathBuf;

use super::describe::{Entry, entries};
use super::file::File;
use super::rows::ProxyTable;
use super::settings::Settings;
use super::upstream::read_roots;
use tollgate_common::settings::error::unknown;
use tollgate_common::settings::given::{Given, Origin, Texts};
use tollgate_common::settings::options::{Table, TableOptions};

/// The options of the proxy.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// A TOML file of settings, which options override; SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    of_table: TableOptions<ProxyTable>,
    /// A time-out by its name in [timeouts] of the file; may be given more than once
    #[arg(long = "timeout", value_name = "NAME=DURATION", value_parser = timeout)]
    timeouts: Vec<(&'static str, String)>,
    /// A server in this process answers, though the file names no upstream
    #[arg(long)]
    demo: bool,
}

impl Options {
    fn given(&self) -> Given {
        let mut given = self.of_table.given.clone();
        let times = self.timeouts.iter().map(|(name, time)| (*name, Texts::one(time, Origin::Option)));
        given.texts.extend(times);
        given
    }
}

/// Returns the setting of a time-out, and its text.
fn timeout(text: &str) -> Result<(&'static str, String), String> {
    let (name, time) = text.split_once('=').ok_or("expected NAME=DURATION such as connect=5s")?;
    let times =
        || ProxyTable::settings().filter_map(|time| time.name.strip_prefix("timeouts.").zip(Some(time)));
    let known = times().find(|time| time.0 == name).map(|(_, setting)| (setting.name, time.to_owned()));
    known.ok_or_else(|| unknown(name, &times().map(|(name, _)| name).collect::<Vec<_>>()))
}

/// The settings whose changes need a restart, as they are named in [`describe`].
const NEED_RESTART: [&str; 8] =
    ["listen", "tls.cert", "tls.key", "proxy_protocol", "via", "admin.listen", "state", "state_interval"];

/// Reads the settings at the start.
pub(crate) fn load(options: &Options) -> Result<Settings, String> {
    let file = options.config.as_deref().map(File::read).transpose()?;
    file.unwrap_or_default().over(&Settings::default(), &options.given())
}

/// Refuses the settings of a file without an upstream: the server in this process would answer
/// health checks, and send credentials back.
pub(crate) fn check_upstream(options: &Options, settings: &Settings) -> Result<(), String> {
    match &options.config {
        Some(path) if settings.upstreams.is_empty() && !options.demo => Err(format!(
            "{}: no upstream is named, as in upstream = [\"http://127.0.0.1:8000\"]; with --demo a server in \
             this process answers",
            path.display()
        )),
        _ => Ok(()),
    }
}

/// Reads the file again: the new settings, and a line for each change and each that needs a
/// restart.
///
/// A setting that the file does not name stays as it is. A file that is missing, or that [`load`]
/// refuses, is an error. Without a file there is nothing to change.
pub(crate) fn reload(options: &Options, before: &Settings) -> Result<(Settings, Vec<String>), String> {
    let Some(path) = &options.config else {
        let mut after = before.clone();
        return read_roots(&mut after).map(|()| (after, Vec::new()));
    };
    let file = File::read(path)?;
    let restarted = file.over(&Settings::default(), &options.given())?;
    let mut after = file.over(before, &options.given())?;
    if options.of_table.given.texts.contains_key("limit") {
        // The file cannot change it, and the admin page may have.
        after.limit = before.limit;
    }
    keep_until_restart(&mut after, before);
    let lines = changes(before, &after, &restarted);
    Ok((after, lines))
}

/// Returns the error of a certificate or a key with the file of settings that names it.
pub(crate) fn in_tls(options: &Options, why: String) -> String {
    match (&options.config, options.of_table.given.texts.contains_key("tls.cert")) {
        (Some(path), false) => format!("{}: [tls]: {why}", path.display()),
        _ => why,
    }
}

/// Takes back the changes that cannot be made to a proxy that is running.
fn keep_until_restart(after: &mut Settings, before: &Settings) {
    after.listen = before.listen.clone();
    after.proxy_protocol = before.proxy_protocol;
    after.via.clone_from(&before.via);
    after.state.clone_from(&before.state);
    after.state_interval = before.state_interval;
    if after.tls.is_some() != before.tls.is_some() {
        after.tls.clone_from(&before.tls);
    }
    match (&mut after.admin, &before.admin) {
        (Some(after), Some(before)) => after.at = before.at,
        (after, before) => after.clone_from(before),
    }
}

/// A line for each setting that a reload has changed, and for each that a restart would change.
fn changes(before: &Settings, after: &Settings, restarted: &Settings) -> Vec<String> {
    let [before, after, restarted] = [before, after, restarted].map(entries);
    let in_other = |entries: &[Entry], name: &str| {
        let known = entries.iter().find(|entry| entry.name == name);
        known.map(|entry| entry.value.clone())
    };
    let mut lines = Vec::new();
    for Entry { name, value, .. } in &after {
        match in_other(&before, name) {
            Some(was) if was == *value => (),
            Some(was) => lines.push(format!("{name}: {value}, was {was}")),
            None => lines.push(format!("{name}: added, {value}")),
        }
    }
    for Entry { name, value, .. } in before.iter().filter(|old| in_other(&after, &old.name).is_none()) {
        lines.push(format!("{name}: removed, was {value}"));
    }
    for Entry { name, value, .. } in &after {
        lines.extend(match in_other(&restarted, name) {
            Some(next) if next == *value => None,
            Some(next) if NEED_RESTART.contains(&&**name) => Some(format!("{name}: {next} needs a restart")),
            Some(next) => Some(format!("{name}: stays {value}; a restart makes it {next}")),
            None if name.starts_with("route ") => {
                Some(format!("{name}: stays, though the file does not name it; remove_routes removes it"))
            }
            // Of a listener that the restart removes.
            None => None,
        });
    }
    lines
}
