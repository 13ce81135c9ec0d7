//! The text form of a quota.

use std::fmt;
use std::time::Duration;

use crate::rule::gate::Gate;
use crate::rule::period::{Period, parts, read_count, read_period};
use crate::rule::rate::{AtMost, Quota};
use crate::rule::window_error::no_month;

/// Writes the text form, always with the burst: `100/s burst 100`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gate() {
            Gate::Counted => write!(f, "{}/{} burst {}", self.tokens, Period(self.nanos), self.burst),
            Gate::Open => f.write_str(UNLIMITED),
            Gate::Shut => f.write_str(BLOCKED),
        }
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

impl fmt::Debug for AtMost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AtMost { limit, period } = *self;
        match u64::try_from(period.as_nanos()) {
            Ok(nanos) => write!(f, "AtMost(at most {limit}/{})", Period(nanos)),
            Err(_) => write!(f, "AtMost(at most {limit}/{period:?})"),
        }
    }
}

const AT_MOST: &str = "at most";
const UNLIMITED: &str = "unlimited";
const BLOCKED: &str = "blocked";

/// Returns whether a text begins as the form of [`Quota::at_most`] does.
pub(super) fn is_strict(text: &str) -> bool {
    text.trim_start().starts_with(AT_MOST)
}

/// Reads the [text form](Quota#text), or returns the fault.
pub(super) fn read(text: &str) -> Result<Quota, String> {
    match text.trim() {
        UNLIMITED => return Ok(Quota::UNLIMITED),
        BLOCKED => return Ok(Quota::BLOCKED),
        _ => {}
    }
    let strict = text.trim_start().strip_prefix(AT_MOST);
    let (tokens, rest) = parts(strict.unwrap_or(text))?;
    let (period, burst) = match rest.split_once("burst") {
        Some((period, burst)) => (period.trim(), Some(burst)),
        None => (rest.trim(), None),
    };
    let count = read_first_count(tokens)?;
    let burst = match burst {
        None if strict.is_some() => return Err("the burst is missing".to_owned()),
        None => count,
        Some(burst) => read_burst(burst)?,
    };
    match period {
        "month" => return Err(no_month(count)),
        _ => check_case(period, "burst")?,
    }
    let period = Duration::from_nanos(read_period(period)?);
    let quota = match strict {
        Some(_) => Quota::at_most(count, period).try_burst(burst),
        None => Quota::checked(count, period, burst),
    };
    quota.map_err(|error| error.to_string())
}

/// Reads the count before the period, which `At most` may precede.
fn read_first_count(tokens: &str) -> Result<u64, String> {
    match tokens.get(..AT_MOST.len()) {
        Some(start) if start.eq_ignore_ascii_case(AT_MOST) => Err(format!("{start:?} is not {AT_MOST:?}")),
        _ => read_count(tokens),
    }
}

/// Reads the text after the word `burst`.
fn read_burst(text: &str) -> Result<u64, String> {
    if text.starts_with(char::is_alphabetic) {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return Err(format!("{:?} is not \"burst\"", format!("burst{}", &text[..end])));
    }
    match text.trim() {
        "" => Err("there is no count after \"burst\"".to_owned()),
        count => read_count(count),
    }
}

/// Returns an error if a word of the text is `word` in other case.
pub(super) fn check_case(text: &str, word: &str) -> Result<(), String> {
    match text.split_whitespace().find(|given| *given != word && given.eq_ignore_ascii_case(word)) {
        Some(given) => Err(format!("{given:?} is not {word:?}")),
        None => Ok(()),
    }
}
