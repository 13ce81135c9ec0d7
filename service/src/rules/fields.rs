//! The fields of a map: their names are checked, and their values are read as YAML 1.1 types them.
//!
//! The reference knows one flat list of names at all depths. A known name at a level where it means
//! nothing is accepted, and a warning.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::error::{FileSpot, Finding, Spot, keep, meant};
use super::yaml::{Content, Node};

/// The names of all fields: those of the reference, `limit`, `limits`, `charge`,
/// `unit_multiplier`, `ipv4_prefix` and `ipv6_prefix`.
const NAMES: [&str; 22] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
    "limit",
    "limits",
    "charge",
    "unit_multiplier",
    "ipv4_prefix",
    "ipv6_prefix",
];

/// The findings of a load, and the file that is read.
#[derive(Default)]
pub(super) struct Report {
    pub(super) file: Arc<str>,
    pub(super) errors: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
    /// The spots of texts that a comment may have cut.
    pub(super) cut: HashSet<Spot>,
    /// What is right here, and would not be elsewhere.
    pub(super) notes: Vec<Finding>,
}

impl Report {
    pub(super) fn file_spot(&self, at: Spot) -> FileSpot {
        FileSpot { file: self.file.clone(), line: at.line, column: at.column }
    }

    pub(super) fn error(&mut self, at: Spot, what: String) {
        let at = self.file_spot(at);
        keep(&mut self.errors, at, &what);
    }

    pub(super) fn warn(&mut self, at: Spot, what: String) {
        let at = self.file_spot(at);
        keep(&mut self.warnings, at, &what);
    }

    pub(super) fn note(&mut self, at: Spot, what: String) {
        let at = self.file_spot(at);
        keep(&mut self.notes, at, &what);
    }

    /// Returns whether an element of a list is a map, and takes the error if it is not.
    pub(super) fn check_map(&mut self, item: &Node<'_>) -> bool {
        let what = match item.kind() {
            Content::Map(_) => return true,
            Content::Scalar { text, .. } => text,
            Content::List(_) => "a list",
        };
        self.error(item.at, format!("config error, yaml file contains list of type other than map: {what}"));
        false
    }

    fn fraction(&mut self, at: Spot, text: &str) {
        self.error(at, format!("error checking config: {text} is a fraction; a text has quotes: '{text}'"));
    }
}

/// A level where fields stand: its name in warnings, and the fields that mean something there.
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) fields: &'static [&'static str],
}

/// The fields of a map.
#[derive(Clone, Copy)]
pub(super) struct Fields<'n, 't> {
    pub(super) at: Spot,
    pairs: &'n [(Node<'t>, Node<'t>)],
}

impl<'n, 't> Fields<'n, 't> {
    /// Returns the fields of a map whose names are checked. Nothing is a map without fields.
    pub(super) fn of(node: &'n Node<'t>, section: &Section, report: &mut Report) -> Option<Fields<'n, 't>> {
        let Content::Map(pairs) = node.kind() else {
            if node.is_null() {
                return Some(Fields { at: node.at, pairs: &[] });
            }
            report.error(node.at, format!("error loading config file: {} is a map", section.name));
            return None;
        };
        for (key, value) in pairs {
            if let Some(name) = known(key, report)
                && !section.fields.contains(&name)
            {
                report.warn(key.at, format!("'{name}' has no effect in {}", section.name));
                if name != "metadata" {
                    check(value, report);
                }
            }
        }
        Some(Fields { at: node.at, pairs })
    }

    /// Returns a field that is there and not null.
    pub(super) fn get(&self, name: &str) -> Option<&'n Node<'t>> {
        self.pairs.iter().find(|(key, value)| key.is(name) && !value.is_null()).map(|(_, value)| value)
    }

    /// Returns the spot of a field, or that of the map.
    pub(super) fn spot(&self, name: &str) -> Spot {
        self.get(name).map_or(self.at, |node| node.at)
    }

    /// Returns a text as it is written; it is empty if there is none.
    pub(super) fn text(&self, name: &str, report: &mut Report) -> &'n str {
        let Some(node) = self.get(name) else { return "" };
        let Content::Scalar { text, plain } = node.kind() else {
            report.error(node.at, format!("error loading config file: '{name}' is a text"));
            return "";
        };
        if *plain && is_fraction(text) {
            report.fraction(node.at, text);
        }
        if report.cut.contains(&node.at) {
            let what = format!("'{name}' ends before ' #', where a comment begins; quotes keep the rest");
            report.warn(node.at, what);
        }
        text
    }

    /// Returns a boolean; it is false if there is none.
    pub(super) fn flag(&self, name: &str, report: &mut Report) -> bool {
        let Some(node) = self.get(name) else { return false };
        match node.kind() {
            Content::Scalar { text, plain: true } if is_fraction(text) => report.fraction(node.at, text),
            Content::Scalar { text, plain: true } => {
                if let Some(flag) = boolean(text) {
                    return flag;
                }
                let what = format!("error loading config file: '{name}' is true or false, and not '{text}'");
                report.error(node.at, what);
            }
            _ => report.error(
                node.at,
                format!("error loading config file: '{name}' is true or false, without quotes"),
            ),
        }
        false
    }

    /// Returns a number of a range. One with an error is the least of it.
    pub(super) fn number(&self, name: &str, range: RangeInclusive<u32>, report: &mut Report) -> Option<u32> {
        let node = self.get(name)?;
        let (least, most) = range.clone().into_inner();
        let bound = format!("'{name}' is a number from {least} to {most}");
        let what = match node.kind() {
            Content::Scalar { text, plain: true } => match whole(text).map(u32::try_from) {
                Some(Ok(number)) if range.contains(&number) => return Some(number),
                None if is_fraction(text) => format!("error checking config: {bound}, and not {text}"),
                _ => format!("error loading config file: {bound}, and not {text}"),
            },
            Content::Scalar { text, .. } => {
                format!("error loading config file: {bound}, without quotes: {text}")
            }
            _ => format!("error loading config file: {bound}"),
        };
        report.error(node.at, what);
        Some(least)
    }

    /// Returns the items of a list.
    pub(super) fn list(&self, name: &str, report: &mut Report) -> &'n [Node<'t>] {
        let Some(node) = self.get(name) else { return &[] };
        let Content::List(items) = node.kind() else {
            report.error(node.at, format!("error loading config file: '{name}' is a list"));
            return &[];
        };
        items
    }
}

/// Returns the name of a field, unless it is unknown or no string, which is an error.
fn known<'n>(key: &'n Node<'_>, report: &mut Report) -> Option<&'n str> {
    let Content::Scalar { text, plain } = key.kind() else {
        report.error(key.at, "config error, key is not of type string: a list or a map".to_owned());
        return None;
    };
    if NAMES.contains(&&**text) {
        return Some(text);
    }
    let is_typed = whole(text).is_some() || is_fraction(text) || boolean(text).is_some() || key.is_null();
    let what = if *plain && is_typed {
        format!("config error, key is not of type string: {text}; the fields are {}", NAMES.join(", "))
    } else {
        format!("config error, unknown key '{text}'; {}", meant(text, &NAMES))
    };
    report.error(key.at, what);
    None
}

/// Checks the names of the fields in a value that has no effect, as the reference does.
fn check(value: &Node<'_>, report: &mut Report) {
    match value.kind() {
        Content::Scalar { text, plain: true } if is_fraction(text) => report.fraction(value.at, text),
        Content::Scalar { .. } => (),
        Content::List(items) => {
            for item in items {
                if report.check_map(item) {
                    check(item, report);
                }
            }
        }
        Content::Map(pairs) => {
            for (key, value) in pairs {
                if known(key, report).is_some_and(|name| name != "metadata") {
                    check(value, report);
                }
            }
        }
    }
}

/// Returns the boolean of a word of YAML 1.1.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// Returns a whole number: decimal, `0x`, `0b`, `0o` or with a leading 0 octal, also with `_`.
pub(super) fn whole(text: &str) -> Option<i64> {
    let digits = text.replace('_', "");
    let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(&digits);
    let (radix, skipped) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, 2),
        [b'0', b'b' | b'B', ..] => (2, 2),
        [b'0', b'o' | b'O', ..] => (8, 2),
        [b'0', _, ..] => (8, 1),
        _ => (10, 0),
    };
    let digits = &unsigned[skipped..];
    // `from_str_radix` takes a sign as well.
    if !digits.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    let number = i64::from_str_radix(digits, radix).ok()?;
    Some(if text.starts_with('-') { -number } else { number })
}

/// Returns whether a word is a fraction, infinite, or no number.
pub(super) fn is_fraction(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    unsigned.starts_with(|first: char| first == '.' || first.is_ascii_digit())
        && unsigned.contains(['.', 'e', 'E'])
        && unsigned.replace('_', "").parse::<f64>().is_ok()
}
