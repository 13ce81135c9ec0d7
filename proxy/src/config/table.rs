//! The form of a setting: its name, its option, its value and a sentence.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::Path;

use super::error::{Mistake, mistake};

/// A setting of `T`, which are all settings or those of a route.
pub(super) struct Setting<T: 'static> {
    /// The name in the file, with that of its table.
    pub(super) name: &'static str,
    /// The option and the form of its value. An empty one is a setting of files alone.
    pub(super) option: &'static str,
    /// The sentence about it. Its end in `[]` is the default; without one the value is shown. A
    /// part behind `;` is for the list of options alone.
    pub(super) help: &'static str,
    pub(super) set: Set<T>,
    pub(super) show: fn(&T) -> Shown,
}

/// The way in which a text becomes the value. Paths are relative to the folder.
pub(super) enum Set<T> {
    One(fn(&mut T, &str, &Path) -> Result<(), String>),
    /// `None` empties the list, and each item follows.
    Each(fn(&mut T, Option<&str>) -> Result<(), String>),
    Switch(fn(&mut T, bool)),
}

/// A value in words, and a sentence about it, unless it is that of the setting. `None` is a setting
/// without an effect.
pub(super) type Shown = Option<(String, Option<Cow<'static, str>>)>;

/// A text of a file with its place, or of an option without one.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) text: String,
    /// Whether it is a text in the file, not a number or a boolean.
    pub(super) is_quoted: bool,
    pub(super) at: Option<usize>,
}

/// The texts of a setting, and the place of the whole.
#[derive(Clone, Debug)]
pub(super) struct Texts {
    pub(super) texts: Vec<Text>,
    pub(super) is_list: bool,
    pub(super) at: Option<usize>,
}

impl Texts {
    pub(super) fn one(text: Text) -> Texts {
        Texts { at: text.at, texts: vec![text], is_list: false }
    }
}

impl<T> Setting<T> {
    /// Returns the option without the form of its value.
    pub(super) fn long(&self) -> &'static str {
        self.option.split(' ').next().unwrap_or_default()
    }

    /// Sets the value. A mistake in a list is that of its item.
    pub(super) fn apply(&self, to: &mut T, given: &Texts, folder: &Path) -> Result<(), Mistake> {
        match (&self.set, &given.texts[..]) {
            (Set::Each(set), texts) => {
                set(to, None).map_err(|why| mistake(given.at, why))?;
                texts.iter().try_for_each(|text| self.told(text, set(to, Some(&text.text))))
            }
            (Set::One(set), [text]) if !given.is_list => self.told(text, set(to, &text.text, folder)),
            (Set::Switch(set), [text]) if !given.is_list => {
                let on = text.text.parse().ok().filter(|_| !text.is_quoted);
                let on = on.ok_or("expected true or false, without quotes".to_owned());
                self.told(text, on.map(|on| set(to, on)))
            }
            _ => Err(mistake(given.at, format!("{} is one value, and no list", self.name))),
        }
    }

    /// Returns the mistake of a text with the text, unless that may be a secret.
    fn told(&self, text: &Text, outcome: Result<(), String>) -> Result<(), Mistake> {
        outcome.map_err(|why| {
            let Text { text, is_quoted, at } = text;
            let is_secret = self.name == "store.url";
            // The error of a rule has the text already.
            let has_it = why.starts_with(&format!("cannot read {text:?}"));
            let what = match at {
                None if is_secret => format!("--{}: {why}", self.long()),
                None => format!("invalid value '{text}' for '{}': {why}", self.usage()),
                Some(_) if is_secret => format!("{}: {why}", self.name),
                Some(_) if has_it => why,
                Some(_) if *is_quoted => format!("{text:?}: {why}"),
                Some(_) => format!("{text}: {why}"),
            };
            mistake(*at, what)
        })
    }

    fn usage(&self) -> String {
        match self.option.split_once(' ') {
            Some((long, form)) => format!("--{long} <{form}>"),
            None if self.option.is_empty() => {
                format!("--timeout {}=DURATION", self.name.trim_start_matches("timeouts."))
            }
            None => format!("--{}", self.option),
        }
    }
}

pub(super) fn plain(value: impl Display) -> Shown {
    Some((value.to_string(), None))
}

pub(super) fn with(value: impl Display, meaning: impl Into<Cow<'static, str>>) -> Shown {
    Some((value.to_string(), Some(meaning.into())))
}

/// Shows a value, or `none` with a sentence.
pub(super) fn or_none(value: Option<impl Display>, none: &'static str) -> Shown {
    value.map_or(with("none", none), plain)
}

/// Shows a setting that is on or off, with a sentence about each.
pub(super) fn switch(setting: bool, on: &'static str, off: &'static str) -> Shown {
    if setting { with("on", on) } else { with("off", off) }
}

pub(super) fn list<T: Display>(items: &[T]) -> Shown {
    match items {
        [] => plain("none"),
        _ => plain(items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")),
    }
}
