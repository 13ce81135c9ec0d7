//! The error of a rule, and the sentences of a quota's.

use std::error::Error;
use std::fmt;

use crate::rule::layout::{MAX_BURST, QuotaError, RawQuota};
use crate::rule::window_layout::WindowError;

/// A rule that cannot be held, a text that is none, or a number of keys that is too large.
///
/// The message names the given value and the bound, to the writer of a rule's text: an advised text
/// in it can be read. The debug form, which `unwrap` prints, adds the method that helps a caller.
///
/// # Examples
///
/// ```
/// use tollgate::{InvalidRule, Quota, Window};
///
/// let error: InvalidRule = "0/s".parse::<Quota>().unwrap_err();
/// assert!(error.to_string().ends_with("a quota of 0 tokens grants nothing: the least is 1"));
/// let error: InvalidRule = Window::per_day(5).with_limit(0).unwrap_err();
/// assert_eq!(error.to_string(), "a limit of 0 tokens grants nothing: the least is 1");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidRule(Cause);

impl From<QuotaError> for InvalidRule {
    fn from(flaw: QuotaError) -> InvalidRule {
        InvalidRule(Cause::Quota(flaw))
    }
}

impl From<WindowError> for InvalidRule {
    fn from(flaw: WindowError) -> InvalidRule {
        InvalidRule(Cause::Window(flaw))
    }
}

impl From<TextError> for InvalidRule {
    fn from(error: TextError) -> InvalidRule {
        InvalidRule(Cause::Text(error))
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Cause {
    Quota(QuotaError),
    Window(WindowError),
    Text(TextError),
    /// A window, where the words count another one.
    Another(Box<str>),
    /// A number of keys to allocate memory for, and the most.
    ManyKeys(usize, usize),
}

impl InvalidRule {
    /// Checks a number of keys for which memory is allocated at once.
    pub(crate) fn check_keys(keys: usize, most: usize) -> Result<(), InvalidRule> {
        if keys > most { Err(InvalidRule(Cause::ManyKeys(keys, most))) } else { Ok(()) }
    }

    /// Returns the method that helps a caller.
    fn method(&self) -> Option<&'static str> {
        match &self.0 {
            Cause::Quota(flaw) => flaw.method(),
            Cause::Window(flaw) => flaw.method(),
            Cause::Text(error) => error.is_other.then_some("AnyRule reads quotas and windows"),
            Cause::Another(_) | Cause::ManyKeys(..) => None,
        }
    }

    /// Returns the error of a window for words that count another one.
    pub(super) fn another_window(window: &dyn fmt::Display, built: &dyn fmt::Display) -> InvalidRule {
        let sentence =
            format!("{window} is not {built} with another limit: the words count one period in one way");
        InvalidRule(Cause::Another(sentence.into()))
    }
}

/// A text that cannot be read.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TextError {
    pub(super) text: Box<str>,
    /// The form that it should have, with an example.
    pub(super) form: &'static str,
    /// The reason: a part and the form that it should have, or a number and its bound.
    pub(super) fault: Box<str>,
    /// Whether it is of another type than the one that was asked for.
    pub(super) is_other: bool,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {:?} as {}: {}", self.text, self.form, self.fault)
    }
}

impl Error for InvalidRule {}

impl fmt::Debug for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut form = f.debug_tuple("InvalidRule");
        form.field(&self.to_string());
        if let Some(method) = self.method() {
            form.field(&method);
        }
        form.finish()
    }
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::Quota(flaw) => flaw.fmt(f),
            Cause::Window(flaw) => flaw.fmt(f),
            Cause::Text(error) => error.fmt(f),
            Cause::Another(sentence) => f.write_str(sentence),
            Cause::ManyKeys(keys, most) => {
                write!(f, "a number of keys to allocate of {keys} is out of bounds: 0 to {most}")
            }
        }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flaw = *self;
        match flaw {
            QuotaError::NoTokens | QuotaError::NoPeriod | QuotaError::NoBurst => f.write_str(flaw.sentence()),
            QuotaError::LongPeriod(nanos) => {
                write!(f, "a period of {nanos} ns is over the bound of 2^62 ns (146 years)")
            }
            QuotaError::LargeBurst(burst) => {
                write!(f, "a burst of {burst} is over the bound of 2^40 = {MAX_BURST} tokens")
            }
            QuotaError::LargeDebt(debt) => {
                write!(f, "a debt of {debt} is over the bound of 2^40 = {MAX_BURST} tokens")
            }
            QuotaError::BurstOfLimit(burst, limit) => write!(
                f,
                "a burst of {burst} is not below the limit of {limit} tokens: nothing would be earned"
            ),
            QuotaError::FastRate(RawQuota { tokens, nanos, .. }) => {
                write!(f, "{tokens} tokens every {nanos} ns is over the bound of 10^12 tokens a second")
            }
            QuotaError::SlowFill(quota) => {
                write!(f, "{quota} takes longer to fill than the bound of 2^62 ns (146 years)")
            }
            QuotaError::NoLayout(quota) => write!(
                f,
                "{quota} leaves one word a time range below the bound of 2^46 ns (19.5 hours) or 64 fill times"
            ),
            QuotaError::BurstTooWide(burst, most) => {
                write!(f, "a burst of {burst} is over the bound of {most} tokens that there is room for")
            }
            QuotaError::RangeTooShort(RawQuota { tokens, nanos, .. }) => write!(
                f,
                "{tokens} tokens every {nanos} ns leave the word as it was built a time range below the bound of \
                 2^46 ns (19.5 hours) or 64 fill times"
            ),
            QuotaError::TickTooCoarse(burst, least) => write!(
                f,
                "a burst of {burst} is under the bound of {least} tokens, 128 ticks of the word as it was built"
            ),
            QuotaError::PlanTickTooCoarse(quota) => {
                write!(f, "a tick of the limiter is worth more than 1/128 of {quota}")
            }
            QuotaError::PlanFillsTooSlowly(quota) => {
                write!(f, "{quota} takes longer to fill than 1/64 of the limiter's time range")
            }
        }
    }
}

impl fmt::Display for RawQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RawQuota { tokens, nanos, burst } = self;
        write!(f, "a burst of {burst} at {tokens} tokens every {nanos} ns")
    }
}

impl QuotaError {
    /// Returns the method that helps a caller.
    fn method(self) -> Option<&'static str> {
        match self {
            QuotaError::BurstTooWide(..) | QuotaError::RangeTooShort(_) | QuotaError::TickTooCoarse(..) => {
                Some("build with headroom")
            }
            QuotaError::PlanTickTooCoarse(_) => {
                Some("build with headroom, or by the fastest quota with the others as plans")
            }
            _ => None,
        }
    }

    /// Returns the fault without its numbers: the only text that a panic in a constant can have.
    pub(super) const fn sentence(self) -> &'static str {
        match self {
            QuotaError::NoTokens => "a quota of 0 tokens grants nothing: the least is 1",
            QuotaError::NoPeriod => "a period of 0 ns has no rate: the least is 1 ns",
            QuotaError::NoBurst => "a burst of 0 grants nothing: the least is 1",
            QuotaError::LongPeriod(_) => "a period is at most 2^62 ns (146 years)",
            QuotaError::LargeBurst(_) => "a burst is at most 2^40 tokens",
            QuotaError::BurstOfLimit(..) => "a burst is below the limit of its period",
            QuotaError::FastRate(_) => "a rate is at most 10^12 tokens a second",
            QuotaError::SlowFill(_) => "a bucket must fill within 2^62 ns (146 years)",
            // The other errors are of words that were built, not of quotas.
            _ => "this burst at this rate does not fit into one word",
        }
    }
}
