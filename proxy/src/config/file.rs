//! The file: its text, and the places of mistakes in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::build::over;
use super::error::{Mistake, mistake};
use super::given::{Given, Origins, RouteTable};
use super::rows::{ROUTE, settings};
use super::settings::Settings;
use super::table::{Text, Texts};
use tollgate_common::settings::error::unknown;
use tollgate_common::settings::file::{self, place};

type Name<'i> = Spanned<std::borrow::Cow<'i, str>>;

/// A file that was read, and is TOML with known names. The default is no file.
#[derive(Default)]
pub(super) struct File {
    path: PathBuf,
    text: String,
    given: Given,
}

impl File {
    pub(super) fn read(path: &Path) -> Result<File, String> {
        let text = file::read(path, file::MOST)?;
        let mut given =
            given(&text).map_err(|Mistake { at, what }| place(path, &text, at.unwrap_or(0), &what))?;
        file::check(path, &text)?;
        given.folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(File { path: path.to_owned(), text, given })
    }

    /// The settings of the base, overridden by this file, and that by the options.
    pub(super) fn over(&self, base: &Settings, options: &Given) -> Result<Settings, String> {
        let settings = over(Origins { file: &self.given, options }, base);
        settings.map_err(|Mistake { at, what }| match at {
            Some(at) => place(&self.path, &self.text, at, &what),
            None => what,
        })
    }
}

/// Returns the texts of a file by the names of their settings.
fn given(text: &str) -> Result<Given, Mistake> {
    let root = DeTable::parse(text).map_err(|error| {
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        mistake(Some(error.span().map_or(0, |span| span.start)), what)
    })?;
    let mut given = Given::default();
    let names: Vec<_> = settings().map(|setting| setting.name).collect();
    let of_routes: Vec<_> = ROUTE.iter().map(|setting| setting.name).collect();
    let is_table = |name: &str| names.iter().any(|own| own.split_once('.').is_some_and(|own| own.0 == name));
    for (key, value) in in_order(root.get_ref()) {
        match value.get_ref() {
            DeValue::Array(tables) if key.get_ref() == "route" => {
                for table in tables {
                    let DeValue::Table(fields) = table.get_ref() else {
                        return Err(mistake(Some(table.span().start), "expected [[route]]".to_owned()));
                    };
                    let mut route = RouteTable { texts: BTreeMap::new(), at: table.span().start };
                    for (key, value) in in_order(fields) {
                        add(&mut route.texts, key, value, "", &of_routes)?;
                    }
                    given.routes.push(route);
                }
            }
            DeValue::Table(fields) if is_table(key.get_ref()) => {
                let name = key.get_ref();
                for (key, value) in in_order(fields) {
                    add(&mut given.texts, key, value, &format!("{name}."), &names)?;
                }
                if name == "admin" {
                    // The table alone is enough.
                    let (text, at) = ("127.0.0.1:8081".to_owned(), Some(value.span().start));
                    let default = Texts::one(Text { text, is_quoted: true, at });
                    given.texts.entry("admin.listen").or_insert(default);
                }
                let missing =
                    ["tls.cert", "tls.key"].into_iter().find(|field| !given.texts.contains_key(field));
                if let Some(missing) = missing.filter(|_| name == "tls") {
                    let what = format!("missing field `{}`", &missing["tls.".len()..]);
                    return Err(mistake(Some(value.span().start), what));
                }
            }
            _ => add(&mut given.texts, key, value, "", &names)?,
        }
    }
    Ok(given)
}

/// Returns the fields in the order of the file, so that its first mistake is the one that is told.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<(&'a Name<'i>, &'a Spanned<DeValue<'i>>)> {
    let mut fields: Vec<_> = table.iter().collect();
    fields.sort_by_key(|(key, _)| key.span().start);
    fields
}

/// Adds the texts of a field, if there is a setting of its name.
fn add(
    to: &mut BTreeMap<&'static str, Texts>,
    key: &Name<'_>,
    value: &Spanned<DeValue<'_>>,
    table: &str,
    names: &[&'static str],
) -> Result<(), Mistake> {
    let own = || names.iter().filter_map(|name| Some((*name, name.strip_prefix(table)?)));
    let Some((name, _)) = own().find(|(_, field)| field == key.get_ref() && !field.contains('.')) else {
        // A name of another table is as unknown as any other, but its table is known.
        let mut known: Vec<&str> = own().filter_map(|(_, field)| field.split('.').next()).collect();
        known.extend(table.is_empty().then_some("route"));
        known.dedup();
        return Err(mistake(Some(key.span().start), unknown(key.get_ref(), &known)));
    };
    let texts = match value.get_ref() {
        DeValue::Array(items) => {
            let items = items.iter().map(scalar).collect::<Result<_, _>>()?;
            Texts { texts: items, is_list: true, at: Some(value.span().start) }
        }
        _ => Texts::one(scalar(value)?),
    };
    to.insert(name, texts);
    Ok(())
}

/// Returns a value that is no list and no table.
fn scalar(value: &Spanned<DeValue<'_>>) -> Result<Text, Mistake> {
    let at = Some(value.span().start);
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(on) => on.to_string(),
        _ => return Err(mistake(at, "expected a text in quotes, a whole number, true or false".to_owned())),
    };
    Ok(Text { text, is_quoted: matches!(value.get_ref(), DeValue::String(_)), at })
}
