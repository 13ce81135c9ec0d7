//! A quota or a window, as a file of settings says.

use std::fmt;
use std::time::Duration;

use crate::rule::rate::Quota;
use crate::rule::window::Window;

/// A rule of a limiter: a bucket with a [`Quota`], or a [`Window`].
///
/// A text with the word `fixed`, `sliding` or `weighted` is a window, and any other is a quota. An
/// error has the whole text, the form, and the part or the number at fault.
/// With feature `serde` a rule is read from and written as its text.
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, AnyRule, Window};
///
/// assert_eq!("100/s burst 200".parse(), Ok(AnyRule::Quota(Quota::per_second(100).burst(200))));
/// assert_eq!("100/m sliding".parse(), Ok(AnyRule::Window(Window::per_minute(100).sliding())));
/// let error = "0/d fixed utc".parse::<AnyRule>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "cannot read \"0/d fixed utc\" as a rule such as \"100/s burst 200\" or \"1000/d fixed utc\": \
///      a limit of 0 tokens grants nothing: the least is 1"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnyRule {
    /// A token bucket: it earns at a rate, up to a burst.
    Quota(Quota),
    /// A window: it counts the used tokens, up to a limit in a period.
    Window(Window),
}

impl AnyRule {
    /// Returns the tokens of a period: those that a bucket earns in it, or the limit of a window.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        match self {
            AnyRule::Quota(quota) => quota.tokens(),
            AnyRule::Window(window) => window.limit(),
        }
    }

    /// Returns the period.
    #[must_use]
    pub fn period(&self) -> Duration {
        match self {
            AnyRule::Quota(quota) => quota.period(),
            AnyRule::Window(window) => window.period(),
        }
    }

    /// Returns the most tokens of one moment: a burst, or the limit of a window.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self {
            AnyRule::Quota(quota) => quota.capacity(),
            AnyRule::Window(window) => window.limit(),
        }
    }
}

impl From<Quota> for AnyRule {
    fn from(quota: Quota) -> AnyRule {
        AnyRule::Quota(quota)
    }
}

impl From<Window> for AnyRule {
    fn from(window: Window) -> AnyRule {
        AnyRule::Window(window)
    }
}

impl fmt::Display for AnyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyRule::Quota(quota) => quota.fmt(f),
            AnyRule::Window(window) => window.fmt(f),
        }
    }
}
