//! A table of settings: of each its names, a sentence, the parser of its text, and its value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use super::error::{Mistake, mistake};
use super::given::{Given, Origin, Text, Texts};

/// A setting of `T`: all settings of a program, or those of a part that is there several times.
pub struct Setting<T: 'static> {
    /// The name in a file, with that of its table.
    pub name: &'static str,
    /// The option and the form of its value. A switch has no form, and an empty text is no option.
    pub option: &'static str,
    /// The variable of the environment. An empty text is none.
    pub variable: &'static str,
    /// The sentence about it. Its end in `[]` is the default, if that is no value. A part behind
    /// `;` is for the list of options alone.
    pub help: &'static str,
    pub set: Set<T>,
    pub value: Value<T>,
}

/// The way in which a text becomes the value. Paths are relative to the folder.
pub enum Set<T> {
    One(fn(&mut T, &str, &Path) -> Result<(), String>),
    /// As `One`; an option without a value has this text.
    OneOr(&'static str, fn(&mut T, &str, &Path) -> Result<(), String>),
    /// As `One`, of a text that no error has, since it may have a password.
    Secret(fn(&mut T, &str, &Path) -> Result<(), String>),
    /// One text. A list of a file is joined by commas.
    Joined(fn(&mut T, &str) -> Result<(), String>),
    /// `None` empties the list, and each item follows.
    Each(fn(&mut T, Option<&str>) -> Result<(), String>),
    Switch(fn(&mut T, bool)),
}

/// The value of a setting.
pub enum Value<T> {
    /// The text that it has unless a source names another one. An empty text is none.
    Usual(&'static str),
    /// The way to show it.
    Shown(fn(&T) -> Shown),
}

/// A value in words, and a sentence about it, unless it is that of the setting. `None` is a setting
/// without an effect.
pub type Shown = Option<(String, Option<Cow<'static, str>>)>;

/// Makes a table. Of each row: the name, the option, `=` and the variable if there is one, and the
/// sentence of a [`Setting`]; then its [`Set`] and its [`Value`].
#[macro_export]
macro_rules! settings {
    ($visible:vis static $table:ident: $of:ty;
     $($name:literal, $option:literal $(= $variable:literal)?, $help:expr => $set:expr, $value:expr;)*) => {
        $visible static $table: &[$crate::settings::table::Setting<$of>] = &[$(
            $crate::settings::table::Setting {
                name: $name,
                option: $option,
                variable: concat!($($variable)?),
                help: $help,
                set: $set,
                value: $value,
            },
        )*];
    };
}

impl<T> Setting<T> {
    /// Returns the option without the form of its value.
    pub fn long(&self) -> &'static str {
        self.option.split(' ').next().unwrap_or_default()
    }

    /// Returns the form of the option's value, which a switch has not.
    pub fn form(&self) -> Option<&'static str> {
        self.option.split_once(' ').map(|(_, form)| form)
    }

    /// Returns whether settings share the option, in a form `NAME=VALUE` with their own names. The
    /// program reads it.
    pub fn has_shared_option(&self) -> bool {
        self.form().and_then(|form| form.split_once('=')).is_some_and(|(own, _)| self.name.ends_with(own))
    }

    /// Returns the text that it has unless a source names another one. An empty text is none.
    pub fn usual(&self) -> &'static str {
        if let Value::Usual(text) = self.value { text } else { "" }
    }

    /// Shows the value. One with a usual text is not shown.
    pub fn shown(&self, of: &T) -> Shown {
        match self.value {
            Value::Usual(_) => None,
            Value::Shown(show) => show(of),
        }
    }

    /// Sets the value. A mistake in a list is that of its item.
    pub fn apply(&self, to: &mut T, given: &Texts, folder: &Path) -> Result<(), Mistake> {
        match (&self.set, &given.texts[..]) {
            (Set::Each(set), texts) => {
                set(to, None).map_err(|why| mistake(given.at(), why))?;
                texts.iter().try_for_each(|text| self.named(text, set(to, Some(&text.text))))
            }
            (Set::Joined(set), texts) => {
                let texts: Vec<&str> = texts.iter().map(|text| &*text.text).collect();
                let whole = Text { text: texts.join(","), from: given.from };
                self.named(&whole, set(to, &whole.text))
            }
            (Set::One(set) | Set::OneOr(_, set) | Set::Secret(set), [text]) if !given.is_list => {
                self.named(text, set(to, &text.text, folder))
            }
            (Set::Switch(set), [text]) if !given.is_list => {
                let is_quoted = matches!(text.from, Origin::File { is_quoted: true, .. });
                let on = text.text.parse().ok().filter(|_| !is_quoted);
                let on = on.ok_or("expected true or false, without quotes".to_owned());
                self.named(text, on.map(|on| set(to, on)))
            }
            _ => Err(mistake(given.at(), format!("{} is one value, and no list", self.name))),
        }
    }

    /// Returns the mistake of a text with its source and the text.
    fn named(&self, text: &Text, outcome: Result<(), String>) -> Result<(), Mistake> {
        let Text { text, from } = text;
        outcome.map_err(|why| {
            let is_secret = matches!(self.set, Set::Secret(_));
            // The error of a rule has the text already.
            let has_it = why.starts_with(&format!("cannot read {text:?}"));
            let what = match from {
                Origin::Option if is_secret => format!("--{}: {why}", self.long()),
                Origin::Option => format!("invalid value '{text}' for '{}': {why}", self.usage()),
                Origin::Variable if is_secret => format!("{}: {why}", self.variable),
                Origin::Variable => format!("{}={text}: {why}", self.variable),
                Origin::File { .. } if is_secret => format!("{}: {why}", self.name),
                Origin::File { .. } if has_it => why,
                Origin::File { is_quoted: true, .. } => format!("{text:?}: {why}"),
                Origin::File { .. } => format!("{text}: {why}"),
            };
            mistake(from.at(), what)
        })
    }

    fn usage(&self) -> String {
        match self.form() {
            Some(form) if !self.has_shared_option() => format!("--{} <{form}>", self.long()),
            _ => format!("--{}", self.option),
        }
    }
}

/// Sets the values that the sources name. A later source overrides an earlier one, setting by
/// setting, so that a part which one source turns on has the fields that another one names.
pub fn apply<T: 'static>(
    to: &mut T,
    settings: impl IntoIterator<Item = &'static Setting<T>>,
    sources: &[&Given],
) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for setting in settings {
        for source in sources {
            let texts = source.texts.get(setting.name);
            mistakes.extend(texts.and_then(|texts| setting.apply(to, texts, &source.folder).err()));
        }
    }
    mistakes
}

/// Returns the texts that the table itself has.
pub fn defaults<T: 'static>(settings: impl IntoIterator<Item = &'static Setting<T>>) -> Given {
    let settings = settings.into_iter().filter(|setting| !setting.usual().is_empty());
    let texts = settings.map(|setting| (setting.name, Texts::one(setting.usual(), Origin::Option)));
    Given { texts: texts.collect(), ..Given::default() }
}

/// Returns the texts of the environment. An empty variable is none.
pub fn variables<T: 'static>(
    settings: impl IntoIterator<Item = &'static Setting<T>>,
    environment: &BTreeMap<String, String>,
) -> Given {
    let given = |setting: &Setting<T>| {
        let text = environment.get(setting.variable).filter(|text| !text.is_empty())?;
        Some((setting.name, Texts::one(text, Origin::Variable)))
    };
    Given { texts: settings.into_iter().filter_map(given).collect(), ..Given::default() }
}

pub fn plain(value: impl Display) -> Shown {
    Some((value.to_string(), None))
}

pub fn with(value: impl Display, meaning: impl Into<Cow<'static, str>>) -> Shown {
    Some((value.to_string(), Some(meaning.into())))
}

/// Shows a value, or `none` with a sentence.
pub fn or_none(value: Option<impl Display>, none: &'static str) -> Shown {
    value.map_or(with("none", none), plain)
}

/// Shows a setting that is on or off, with a sentence about each.
pub fn on_or_off(setting: bool, on: &'static str, off: &'static str) -> Shown {
    if setting { with("on", on) } else { with("off", off) }
}

pub fn list<T: Display>(items: &[T]) -> Shown {
    match items {
        [] => plain("none"),
        _ => plain(items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")),
    }
}
