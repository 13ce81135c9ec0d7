//! The command line of the service.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, FromArgMatches};

use super::settings::ROWS;

/// The options of the service.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ServeOptions {
    /// Files and folders of the configuration [that of the RUNTIME_ variables, or built-in limits]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// A TOML file of settings, which flags override; its names are those of the flags, with _
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The built-in limits are served. It is set once at the start: no reload falls back to them.
    #[arg(skip)]
    pub(super) is_built_in: bool,
    #[command(flatten)]
    pub(super) flags: Flags,
}

impl ServeOptions {
    /// Returns the text of a flag.
    pub(super) fn flag(&self, long: &str) -> Option<&str> {
        self.flags.0.get(long).map(String::as_str)
    }

    #[cfg(test)]
    pub(super) fn with_flag(mut self, long: &'static str, text: &str) -> ServeOptions {
        self.flags.0.insert(long, text.to_owned());
        self
    }
}

/// The texts of the flags that are given.
#[derive(Clone, Debug, Default)]
pub(super) struct Flags(BTreeMap<&'static str, String>);

impl clap::Args for Flags {
    fn augment_args(mut command: Command) -> Command {
        for row in ROWS.iter().filter(|row| !row.flag.is_empty()) {
            let (first, rest) = row.help.split_at(1);
            let variable =
                if row.variable.is_empty() { String::new() } else { format!(", {}", row.variable) };
            let default = if row.default.is_empty() { String::new() } else { format!(" [{}]", row.default) };
            let help = format!("{}{rest}{default}{variable}", first.to_uppercase());
            let arg = Arg::new(row.long()).long(row.long()).help(help);
            command = command.arg(match row.flag.split_once(' ') {
                Some((_, form)) => arg.value_name(form),
                None => {
                    arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL")
                }
            });
        }
        command.after_help(variables())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args(command)
    }
}

/// Returns the list of the variables without a flag.
fn variables() -> String {
    let mut text = "Variables, as of envoyproxy/ratelimit:\n".to_owned();
    for row in ROWS.iter().filter(|row| row.flag.is_empty()) {
        let default = if row.default.is_empty() { String::new() } else { format!(" [{}]", row.default) };
        text += &format!("  {:40} {}{default}\n", row.variable, row.help);
    }
    text
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let mut flags = Flags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let given = ROWS.iter().filter(|row| !row.flag.is_empty());
        self.0.extend(
            given.filter_map(|row| Some((row.long(), matches.get_one::<String>(row.long())?.clone()))),
        );
        Ok(())
    }
}
