//! The file of settings.

use std::path::Path;

use super::build::over;
use super::origins::Origins;
use super::rows::{ADMIN, ProxyTable, ROUTE};
use super::settings::Settings;
use tollgate_common::settings::error::{Mistake, mistake};
use tollgate_common::settings::given::{Given, Origin, Texts};
use tollgate_common::settings::options::Table;
use tollgate_common::settings::toml_file::{Beside, TomlFile};

/// A file that was read, and is TOML with known names. The default is no file.
#[derive(Default)]
pub(super) struct File(TomlFile);

impl File {
    pub(super) fn read(path: &Path) -> Result<File, String> {
        let names: Vec<_> = ProxyTable::settings().map(|setting| setting.name).collect();
        let of_routes: Vec<_> = ROUTE.iter().map(|setting| setting.name).collect();
        let mut file = TomlFile::read(path, &names, &Beside::Parts("route", &of_routes))?;
        complete(&mut file).map_err(|mistake| file.at_its_spot(mistake))?;
        Ok(File(file))
    }

    /// The settings of the base, overridden by this file, and that by the options.
    pub(super) fn over(&self, base: &Settings, options: &Given) -> Result<Settings, String> {
        let File(file) = self;
        let origins = Origins { file: &file.given, routes: &file.parts, options };
        over(origins, base).map_err(|mistake| file.at_its_spot(mistake))
    }
}

/// Completes the tables of which an empty one has a meaning, or of which a part has none.
fn complete(file: &mut TomlFile) -> Result<(), Mistake> {
    let texts = &mut file.given.texts;
    if let Some(at) = file.tables.get("admin") {
        let from = Origin::File { at: *at, is_quoted: true };
        texts.entry("admin.listen").or_insert(Texts::one(ADMIN, from));
    }
    let missing = ["cert", "key"].into_iter().find(|field| !texts.contains_key(&*format!("tls.{field}")));
    match (file.tables.get("tls"), missing) {
        (Some(at), Some(field)) => Err(mistake(Some(*at), format!("missing field `{field}`"))),
        _ => Ok(()),
    }
}
