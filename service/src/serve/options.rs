//! The command line of the service.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::tables::{ServeTable, StoreTable};
use crate::arguments::{config, many, paths};
#[cfg(test)]
use tollgate_common::settings::given::{Origin, Texts};
use tollgate_common::settings::options::{TableOptions, variables_alone};

/// The options of the service.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServeOptions {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) config: Option<PathBuf>,
    /// The built-in limits are served. It is set once at the start: no reload falls back to them.
    pub(super) is_built_in: bool,
    pub(super) flags: TableOptions<ServeTable>,
}

impl ServeOptions {
    /// Returns a command that has these options.
    pub(crate) fn of(command: Command) -> Command {
        let variables = variables_alone::<ServeTable>();
        let command = command
            .arg(paths(
                "Files and folders of the configuration [that of the RUNTIME_ variables, or built-in limits]",
            ))
            .arg(config(
                "A TOML file of settings, which flags override; its names are those of the flags, with _",
            ))
            .after_help(format!("Variables, as of envoyproxy/ratelimit:\n{variables}"));
        TableOptions::<ServeTable>::augment_args(command)
    }

    /// Returns the options that were given.
    pub(crate) fn given(matches: &ArgMatches) -> Result<ServeOptions, clap::Error> {
        Ok(ServeOptions {
            paths: many(matches, "paths"),
            config: matches.get_one("config").cloned(),
            is_built_in: false,
            flags: TableOptions::from_arg_matches(matches)?,
        })
    }

    /// Returns the options of a command that serves nothing, and has the store of a service.
    pub(crate) fn with_store(
        paths: &[PathBuf],
        config: Option<&Path>,
        store: &TableOptions<StoreTable>,
    ) -> ServeOptions {
        let (paths, config) = (paths.to_owned(), config.map(Path::to_owned));
        let mut options = ServeOptions { paths, config, ..ServeOptions::default() };
        options.flags.given = store.given.clone();
        options
    }
}

#[cfg(test)]
impl ServeOptions {
    pub(super) fn with_flag(mut self, name: &'static str, text: &str) -> ServeOptions {
        let texts = Texts::one(text, Origin::Option);
        self.flags.given.texts.insert(name, texts);
        self
    }
}
