//! The text form of a window.

use std::fmt;

use crate::rule::period::{Period, parts, read_count, read_period};
use crate::rule::quota_text::check_case;
use crate::rule::utc_offset::UtcOffset;
use crate::rule::window::{Kind, Window};
use crate::rule::window_error::no_month;
use crate::rule::window_layout::{MONTH, check};

/// Writes the [text form](Window#text).
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { limit, nanos, kind, .. } = *self;
        match kind {
            Kind::Month(_) => write!(f, "{limit}/month ")?,
            _ => write!(f, "{limit}/{} ", Period(nanos))?,
        }
        match kind {
            Kind::FirstUse => f.write_str("fixed"),
            Kind::Utc(offset) | Kind::Month(offset) => write!(f, "fixed {offset}"),
            Kind::Sliding => f.write_str("sliding"),
            Kind::SlidingBy(longest) => write!(f, "sliding {:#}", Period(longest)),
            Kind::Weighted => f.write_str("weighted"),
        }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({self})")
    }
}

/// The words of a window's kind.
pub(super) const KINDS: [&str; 3] = ["fixed", "sliding", "weighted"];
pub(super) const ANY_KIND: &str = "\"fixed\", \"sliding\" or \"weighted\"";

/// Reads the [text form](Window#text), or returns the fault.
pub(super) fn read(text: &str) -> Result<Window, String> {
    match read_words(text) {
        Err(_) if text.split_whitespace().any(|word| word == "burst") => {
            Err("a window has no burst: leave \"burst\" out".to_owned())
        }
        read => read,
    }
}

fn read_words(text: &str) -> Result<Window, String> {
    let (limit, rest) = parts(text)?;
    let limit = read_count(limit)?;
    let mut words = rest.split_whitespace().peekable();
    let mut period = words.next().ok_or("there is no period after the \"/\"")?.to_owned();
    if period.bytes().all(|byte| byte.is_ascii_digit())
        && let Some(unit) = words.next_if(|word| !KINDS.contains(word))
    {
        // The unit is a word of its own.
        period += unit;
    }
    let word = words.next().ok_or_else(|| format!("it does not say {ANY_KIND}"))?;
    let kind = match (word, words.next()) {
        ("fixed", None) => Kind::FirstUse,
        ("fixed", Some(utc)) => Kind::Utc(read_offset(utc)?),
        ("sliding", None) => Kind::Sliding,
        ("sliding", Some(longest)) => Kind::SlidingBy(read_period(longest)?),
        ("weighted", None) => Kind::Weighted,
        ("weighted", Some(more)) => return Err(one_too_many(more)),
        (word, _) => {
            KINDS.iter().try_for_each(|kind| check_case(word, kind))?;
            return Err(format!("{word:?} is not {ANY_KIND}"));
        }
    };
    if let Some(more) = words.next() {
        return Err(one_too_many(more));
    }
    let (nanos, kind) = match (period.as_str(), kind) {
        ("month", Kind::Utc(offset)) => (MONTH, Kind::Month(offset)),
        ("month", _) => return Err(no_month(limit)),
        (period, kind) => (read_period(period)?, kind),
    };
    let made = check(limit, nanos.into()).and_then(|()| Window { limit, top: limit, nanos, kind }.check());
    made.map_err(|flaw| flaw.to_string())
}

fn one_too_many(word: &str) -> String {
    format!("{word:?} is one word too many")
}

/// Reads `utc`, `utc+2` or `utc-3:30`. A window checks the bounds.
fn read_offset(text: &str) -> Result<UtcOffset, String> {
    text.parse().map_err(|()| {
        format!("{text:?} is not \"utc\", \"utc+2\" or \"utc-3:30\": quarter hours from utc-12 to utc+14")
    })
}
