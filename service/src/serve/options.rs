//! The command line of the service.

use std::path::{Path, PathBuf};

use super::tables::{ServeTable, StoreTable};
#[cfg(test)]
use tollgate_common::settings::given::{Origin, Texts};
use tollgate_common::settings::options::{TableOptions, variables_alone};

/// The options of the service.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(after_help = format!("Variables, as of envoyproxy/ratelimit:\n{}", variables_alone::<ServeTable>()))]
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
    pub(super) flags: TableOptions<ServeTable>,
}

impl ServeOptions {
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
