//! A quota or a window, as a file of settings says.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::quota::error::InvalidQuota;
use crate::quota::rate::Quota;
use crate::quota::window::Window;
use crate::quota::window_error::InvalidWindow;

/// A rule of a limiter: a bucket with a [`Quota`], or a [`Window`].
///
/// A text with the word `fixed`, `sliding` or `weighted` is a window, and any other is a quota. An
/// error has the whole text, the form, and the part or the number at fault.
/// With feature `serde` a rule is read from and written as its text.
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, Rule, Window};
///
/// assert_eq!("100/s burst 200".parse(), Ok(Rule::Bucket(Quota::per_second(100).burst(200))));
/// assert_eq!("100/m sliding".parse(), Ok(Rule::Window(Window::per_minute(100).sliding())));
/// let error = "0/d fixed utc".parse::<Rule>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "cannot read \"0/d fixed utc\" as a rule such as \"100/s burst 200\" or \"1000/d fixed utc\": \
///      a limit of 0 tokens grants nothing: the least is 1"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A token bucket: it earns at a rate, up to a burst.
    Bucket(Quota),
    /// A window: it counts the used tokens, up to a limit in a period.
    Window(Window),
}

impl Rule {
    /// Returns the tokens of a period: those that a bucket earns in it, or the limit of a window.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        match self {
            Rule::Bucket(quota) => quota.tokens(),
            Rule::Window(window) => window.limit(),
        }
    }

    /// Returns the period.
    #[must_use]
    pub fn period(&self) -> Duration {
        match self {
            Rule::Bucket(quota) => quota.period(),
            Rule::Window(window) => window.period(),
        }
    }

    /// Returns the most tokens of one moment: a burst, or the limit of a window.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self {
            Rule::Bucket(quota) => quota.capacity(),
            Rule::Window(window) => window.limit(),
        }
    }
}

impl From<Quota> for Rule {
    fn from(quota: Quota) -> Rule {
        Rule::Bucket(quota)
    }
}

impl From<Window> for Rule {
    fn from(window: Window) -> Rule {
        Rule::Window(window)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Bucket(quota) => quota.fmt(f),
            Rule::Window(window) => window.fmt(f),
        }
    }
}

/// A text that is no [`Rule`]: the error of its quota or of its window.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRule {
    /// The text was read as a quota.
    Quota(InvalidQuota),
    /// The text was read as a window.
    Window(InvalidWindow),
}

impl Error for InvalidRule {}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidRule::Quota(error) => error.fmt(f),
            InvalidRule::Window(error) => error.fmt(f),
        }
    }
}
