//! The two sources of settings: the options override the file.

use super::settings::Route;
use tollgate_common::settings::given::{Given, Texts};
use tollgate_common::settings::toml_file::Part;

#[derive(Clone, Copy)]
pub(super) struct Origins<'a> {
    pub(super) file: &'a Given,
    /// The routes of the file.
    pub(super) routes: &'a [Part],
    pub(super) options: &'a Given,
}

impl<'a> Origins<'a> {
    /// Returns the texts that are in force of a setting.
    pub(super) fn texts(&self, name: &str) -> Option<&'a Texts> {
        self.options.texts.get(name).or(self.file.texts.get(name))
    }

    /// Returns the byte of the file at which a setting is, if the file has it and no option does.
    pub(super) fn at(&self, name: &str) -> Option<usize> {
        self.texts(name)?.at()
    }

    /// Returns the same of a field of a route, or of the setting for requests under none.
    pub(super) fn at_limit(&self, route: Option<&Route>, field: &str) -> Option<usize> {
        let Some(route) = route else { return self.at(field) };
        let is_its = |part: &&Part| name_of(part).texts.iter().any(|name| name.text == route.name);
        self.routes.iter().find(is_its)?.texts.get(field)?.at()
    }
}

/// Returns the name of a route, which is its prefix if none is given. There is a prefix.
pub(super) fn name_of(route: &Part) -> &Texts {
    route.texts.get("name").unwrap_or(&route.texts["prefix"])
}
