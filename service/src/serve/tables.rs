//! The table of all settings of the service, and the defaults by it.

use std::path::PathBuf;

use super::settings::{SETTINGS, ServeSettings};
use super::xds::rows::XDS_SETTINGS;
use tollgate_common::settings::options::Table;
use tollgate_common::settings::table::{Setting, apply, defaults};

/// The table of the service's settings.
#[derive(Clone, Debug, Default)]
pub(super) struct ServeTable;

impl Table for ServeTable {
    type Settings = ServeSettings;

    fn settings() -> impl Iterator<Item = &'static Setting<ServeSettings>> {
        SETTINGS.iter().chain(XDS_SETTINGS)
    }

    fn defaults() -> ServeSettings {
        ServeSettings::new(Vec::new())
    }
}

/// The part of it that names the store of the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreTable;

impl Table for StoreTable {
    type Settings = ServeSettings;

    fn settings() -> impl Iterator<Item = &'static Setting<ServeSettings>> {
        SETTINGS.iter().filter(|setting| setting.name.starts_with("store."))
    }

    fn defaults() -> ServeSettings {
        ServeTable::defaults()
    }
}

impl ServeSettings {
    /// Returns the defaults.
    pub(crate) fn new(paths: Vec<PathBuf>) -> ServeSettings {
        let mut to = ServeSettings::blank(paths);
        let mistakes = apply(&mut to, ServeTable::settings(), &[&defaults(ServeTable::settings())]);
        assert!(mistakes.is_empty(), "the defaults are valid, as a test checks: {mistakes:?}");
        to
    }
}
