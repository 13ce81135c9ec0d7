//! Rules from their texts. An error names the text, the form and the fault, and the other types
//! where the text is one of theirs.

use std::str::FromStr;

use crate::rule::any_rule::AnyRule;
use crate::rule::error::{InvalidRule, TextError};
use crate::rule::rate::Quota;
use crate::rule::window::Window;
use crate::rule::window_text::{ANY_KIND, KINDS};
use crate::rule::{quota_text, window_text};

pub(super) const QUOTA: &str = "a quota such as \"100/s burst 200\"";
const STRICT: &str = "a quota such as \"at most 5000/h burst 500\"";
pub(super) const WINDOW: &str = "a window such as \"1000/d fixed utc\" or \"5/15m sliding\"";
pub(super) const RULE: &str = "a rule such as \"100/s burst 200\" or \"1000/d fixed utc\"";

/// Reads the [text form](Quota#text).
impl FromStr for Quota {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Quota, InvalidRule> {
        quota_text::read(text).map_err(|fault| {
            let form = if quota_text::is_strict(text) { STRICT } else { QUOTA };
            let (fault, is_other) = match kind_of_window(text) {
                _ if window_text::read(text).is_ok() => ("it is a window".to_owned(), true),
                Some((word, kind)) if word == kind => (format!("{kind:?} is a word of windows"), true),
                Some((word, kind)) => (format!("{word:?} is not {kind:?}, a word of windows"), true),
                None => (fault, false),
            };
            TextError { is_other, ..error(text, form, fault) }.into()
        })
    }
}

/// Reads the [text form](Window#text).
impl FromStr for Window {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Window, InvalidRule> {
        window_text::read(text).map_err(|fault| {
            let (fault, is_other) = match quota_text::read(text) {
                Ok(_) => (format!("it is a quota: a window says {ANY_KIND}"), true),
                Err(_) => (fault, false),
            };
            TextError { is_other, ..error(text, WINDOW, fault) }.into()
        })
    }
}

impl FromStr for AnyRule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<AnyRule, InvalidRule> {
        match kind_of_window(text) {
            Some(_) => {
                window_text::read(text).map(AnyRule::Window).map_err(|fault| error(text, RULE, fault).into())
            }
            None => {
                quota_text::read(text).map(AnyRule::Quota).map_err(|fault| error(text, RULE, fault).into())
            }
        }
    }
}

/// Returns the word of a text that names a kind of windows, in any case, and the kind.
fn kind_of_window(text: &str) -> Option<(&str, &'static str)> {
    text.split_whitespace().find_map(|word| {
        let kind = KINDS.into_iter().find(|kind| word.eq_ignore_ascii_case(kind))?;
        Some((word, kind))
    })
}

fn error(text: &str, form: &'static str, fault: String) -> TextError {
    TextError { text: text.into(), form, fault: fault.into(), is_other: false }
}
