//! A file of settings in TOML, and the spots of mistakes in it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Mistake, mistake, unknown};
use super::file::{self, spot};
use super::given::{Given, Origin, Text, Texts};

type Name<'i> = Spanned<Cow<'i, str>>;

/// A file that was read, and has known names only. The default is no file.
#[derive(Default)]
pub struct TomlFile {
    path: PathBuf,
    pub text: String,
    pub given: Given,
    /// The offsets of its tables, by their names.
    pub tables: BTreeMap<String, usize>,
    /// The parts that are there several times.
    pub parts: Vec<Part>,
}

/// One table of an array.
#[derive(Clone, Debug)]
pub struct Part {
    pub texts: BTreeMap<&'static str, Texts>,
    pub at: usize,
}

/// The tables beside the settings, by their name.
pub enum Beside<'a> {
    /// An array of tables with these fields.
    Parts(&'static str, &'a [&'static str]),
    /// Tables that are read elsewhere.
    Unread(&'static str),
}

impl TomlFile {
    /// Reads a file, of settings with these names.
    pub fn read(path: &Path, names: &[&'static str], beside: &Beside<'_>) -> Result<TomlFile, String> {
        let mut of = TomlFile { path: path.to_owned(), ..TomlFile::default() };
        let text = file::read(path, file::MOST)?;
        let outcome = of.fill(&text, names, beside);
        of.text = text;
        outcome.map_err(|mistake| of.at_its_spot(mistake))?;
        file::check(path, &of.text)?;
        path.parent().unwrap_or(Path::new("")).clone_into(&mut of.given.folder);
        Ok(of)
    }

    /// Returns a mistake with its spot.
    pub fn at_its_spot(&self, Mistake { at, what }: Mistake) -> String {
        at.map_or_else(|| what.clone(), |at| spot(&self.path, &self.text, at, &what))
    }

    fn fill(&mut self, text: &str, names: &[&'static str], beside: &Beside<'_>) -> Result<(), Mistake> {
        let root = DeTable::parse(text).map_err(|error| {
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            mistake(Some(error.span().map_or(0, |span| span.start)), what)
        })?;
        let (Beside::Parts(other, _) | Beside::Unread(other)) = *beside;
        let is_table =
            |name: &str| names.iter().any(|own| own.split_once('.').is_some_and(|own| own.0 == name));
        for (key, value) in in_order(root.get_ref()) {
            let name = &**key.get_ref();
            match (value.get_ref(), beside) {
                (_, Beside::Unread(_)) if name == other => (),
                (DeValue::Array(tables), Beside::Parts(_, fields)) if name == other => {
                    for table in tables {
                        self.parts.push(part(table, other, fields)?);
                    }
                }
                (DeValue::Table(fields), _) if is_table(name) => {
                    self.tables.insert(name.to_owned(), value.span().start);
                    for (key, value) in in_order(fields) {
                        add(&mut self.given.texts, key, value, &format!("{name}."), names, None)?;
                    }
                }
                _ => add(&mut self.given.texts, key, value, "", names, Some(other))?,
            }
        }
        Ok(())
    }
}

fn part(table: &Spanned<DeValue<'_>>, name: &str, names: &[&'static str]) -> Result<Part, Mistake> {
    let at = table.span().start;
    let DeValue::Table(fields) = table.get_ref() else {
        return Err(mistake(Some(at), format!("expected [[{name}]]")));
    };
    let mut part = Part { texts: BTreeMap::new(), at };
    for (key, value) in in_order(fields) {
        add(&mut part.texts, key, value, "", names, None)?;
    }
    Ok(part)
}

/// Returns the fields in the order of the file, so that its first mistake is the one that is told.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<(&'a Name<'i>, &'a Spanned<DeValue<'i>>)> {
    let mut fields: Vec<_> = table.iter().collect();
    fields.sort_by_key(|(key, _)| key.span().start);
    fields
}

/// Adds the texts of a field, if there is a setting of its name. A table beside the settings is a
/// known name as well.
fn add(
    to: &mut BTreeMap<&'static str, Texts>,
    key: &Name<'_>,
    value: &Spanned<DeValue<'_>>,
    table: &str,
    names: &[&'static str],
    other: Option<&'static str>,
) -> Result<(), Mistake> {
    let own = || names.iter().filter_map(|name| Some((*name, name.strip_prefix(table)?)));
    let Some((name, _)) = own().find(|(_, field)| field == key.get_ref() && !field.contains('.')) else {
        // A name of another table is as unknown as any other, but its table is known.
        let mut known: Vec<&str> = own().filter_map(|(_, field)| field.split('.').next()).collect();
        known.extend(other);
        known.dedup();
        return Err(mistake(Some(key.span().start), unknown(key.get_ref(), &known)));
    };
    let texts = match value.get_ref() {
        DeValue::Array(items) => {
            let texts = items.iter().map(scalar).collect::<Result<_, _>>()?;
            let from = Origin::File { at: value.span().start, is_quoted: false };
            Texts { texts, is_list: true, from }
        }
        _ => {
            let text = scalar(value)?;
            Texts { from: text.from, texts: vec![text], is_list: false }
        }
    };
    to.insert(name, texts);
    Ok(())
}

/// Returns a value that is no list and no table.
fn scalar(value: &Spanned<DeValue<'_>>) -> Result<Text, Mistake> {
    let at = value.span().start;
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(on) => on.to_string(),
        _ => return Err(mistake(Some(at), "expected a text in quotes, a number, true or false")),
    };
    let is_quoted = matches!(value.get_ref(), DeValue::String(_));
    Ok(Text { text, from: Origin::File { at, is_quoted } })
}
