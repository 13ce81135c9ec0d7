//! A rate and a burst, checked when they are made.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::quota::layout::{Layout, LayoutOptions, MAX_BURST, QuotaError, RawQuota};

/// A rate of tokens, and a burst: the tokens that can be saved up.
///
/// A quota of `tokens` every `period` fills a bucket of `burst` tokens evenly, one token at a time:
/// `per_second(100)` earns a token every 10 ms. Over any time `T` at most `burst + rate * T` tokens
/// are granted, and one tick's worth. A tick is a fraction of a token for all but the very fastest
/// quotas.
///
/// # Bounds
///
/// These bounds are checked when a `Quota` is made, so every `Quota` can be held:
///
/// * at least 1 token, a period of at least 1 ns, a burst of at least 1;
/// * at most 10^12 tokens a second, a burst of at most 2^40, a period of at most 2^62 ns (146
///   years);
/// * an empty bucket is full again within 2^62 ns;
/// * a few quotas above 5 * 10^11 tokens a second cannot be packed into one word.
///
/// # Text
///
/// A quota is written `100/s burst 200`, and read from the same text: a count, `/`, a period and,
/// unless the burst is the count, `burst` and a count. A period is a unit or a number of them:
/// `100/s`, `3/250ms`, `5/day burst 5`, `1/2h`. A count is digits, without a sign. Units are `ns us
/// ms s m h d` and their words (`millisecond`, `seconds`, `min`, ...).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// const API: Quota = Quota::per_second(100).burst(200);
/// assert_eq!(API.to_string(), "100/s burst 200");
/// assert_eq!("100/s burst 200".parse(), Ok(API));
///
/// // One token each 250 ms, none saved up.
/// let pace = Quota::every(Duration::from_millis(250));
/// assert_eq!((pace.tokens(), pace.period(), pace.capacity()), (1, Duration::from_millis(250), 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    tokens: u64,
    nanos: u64,
    burst: u64,
}

impl Quota {
    /// Returns a quota of `tokens` every second, with a burst of `tokens`.
    ///
    /// # Panics
    ///
    /// Panics if the quota is out of [bounds](Quota#bounds); in a constant that is an error at
    /// compile time. [`try_per`](Quota::try_per) is for numbers that come in at run time.
    #[must_use]
    pub const fn per_second(tokens: u64) -> Quota {
        Quota::per(tokens, Duration::from_secs(1))
    }

    /// Returns a quota of `tokens` every minute, with a burst of `tokens`.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    #[must_use]
    pub const fn per_minute(tokens: u64) -> Quota {
        Quota::per(tokens, Duration::from_secs(60))
    }

    /// Returns a quota of `tokens` every hour, with a burst of `tokens`.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    #[must_use]
    pub const fn per_hour(tokens: u64) -> Quota {
        Quota::per(tokens, Duration::from_secs(3_600))
    }

    /// Returns a quota of `tokens` every 24 hours, with a burst of `tokens`.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    #[must_use]
    pub const fn per_day(tokens: u64) -> Quota {
        Quota::per(tokens, Duration::from_secs(86_400))
    }

    /// Returns a quota of `tokens` every `period`, with a burst of `tokens`.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// assert_eq!(Quota::per(3, Duration::from_millis(250)).to_string(), "3/250ms burst 3");
    /// ```
    #[must_use]
    pub const fn per(tokens: u64, period: Duration) -> Quota {
        Quota::held(tokens, period, tokens).0
    }

    /// Returns a quota of one token every `period`, with a burst of 1.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    #[must_use]
    pub const fn every(period: Duration) -> Quota {
        Quota::per(1, period)
    }

    /// Returns the same rate with another burst: the tokens of a full bucket.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    #[must_use]
    pub const fn burst(self, tokens: u64) -> Quota {
        Quota::held(self.tokens, self.period(), tokens).0
    }

    /// Returns a quota of `tokens` every `period` with a burst of `burst`, for numbers that come in
    /// at run time.
    ///
    /// # Errors
    ///
    /// [`InvalidQuota`] names the number and the bound it is out of.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let quota = Quota::try_per(100, Duration::from_secs(1), 200)?;
    /// assert_eq!(quota, Quota::per_second(100).burst(200));
    ///
    /// let error = Quota::try_per(100, Duration::from_secs(1), 1 << 41).unwrap_err();
    /// assert_eq!(error.to_string(), "a burst of 2199023255552 is over the bound of 2^40 = 1099511627776 tokens");
    /// # Ok::<(), tollgate::InvalidQuota>(())
    /// ```
    pub fn try_per(tokens: u64, period: Duration, burst: u64) -> Result<Quota, InvalidQuota> {
        Ok(Quota::check(tokens, period, burst)?.0)
    }

    /// Returns the tokens that come every [`period`](Quota::period).
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the time in which [`tokens`](Quota::tokens) come.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// Returns the tokens of a full bucket: the burst.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.burst
    }

    pub(crate) const fn numbers(&self) -> RawQuota {
        RawQuota { tokens: self.tokens, nanos: self.nanos, burst: self.burst }
    }

    /// Returns the layout of a word for this quota; every quota has one.
    pub(crate) const fn layout(&self) -> Layout {
        Quota::held(self.tokens, self.period(), self.burst).1
    }

    const fn check(tokens: u64, period: Duration, burst: u64) -> Result<(Quota, Layout), QuotaError> {
        let nanos = period.as_nanos();
        if nanos > u64::MAX as u128 {
            return Err(QuotaError::LongPeriod(nanos));
        }
        let nanos = nanos as u64;
        match Layout::of(RawQuota { tokens, nanos, burst }, LayoutOptions::DEFAULT) {
            Ok(layout) => Ok((Quota { tokens, nanos, burst }, layout)),
            Err(flaw) => Err(flaw),
        }
    }

    /// Returns a quota and its layout, or panics.
    const fn held(tokens: u64, period: Duration, burst: u64) -> (Quota, Layout) {
        match Quota::check(tokens, period, burst) {
            Ok(held) => held,
            Err(flaw) => panic!("{}", flaw.sentence()),
        }
    }
}

const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Writes the text form, always with the burst: `100/s burst 100`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, nanos) = UNITS
            .into_iter()
            .find(|(_, nanos)| self.nanos.is_multiple_of(*nanos))
            .expect("every period is a whole number of nanoseconds");
        write!(f, "{}/", self.tokens)?;
        if self.nanos != nanos {
            write!(f, "{}", self.nanos / nanos)?;
        }
        write!(f, "{unit} burst {}", self.burst)
    }
}

/// Reads the [text form](Quota#text).
impl FromStr for Quota {
    type Err = InvalidQuota;

    fn from_str(text: &str) -> Result<Quota, InvalidQuota> {
        let unread = |wanted, part: &str| InvalidQuota(Cause::Text { wanted, part: part.into() });
        let (tokens, rest) = text.split_once('/').ok_or_else(|| unread("\"100/s burst 200\"", text))?;
        let (period, burst) = match rest.split_once("burst") {
            Some((period, burst)) => (period.trim(), Some(burst.trim())),
            None => (rest.trim(), None),
        };

        let count = |text: &str| {
            // `parse` takes a sign; the text form does not.
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let read = if digits { text.parse().ok() } else { None };
            read.ok_or_else(|| unread("a whole number under 2^64", text))
        };
        let tokens = count(tokens.trim())?;
        let burst = burst.map_or(Ok(tokens), count)?;

        let digits = period.find(|c: char| !c.is_ascii_digit()).unwrap_or(period.len());
        let (number, unit) = period.split_at(digits);
        let number: u64 = if number.is_empty() { 1 } else { count(number)? };
        let unit = unit_nanos(unit.trim())
            .ok_or_else(|| unread("a unit: ns, us, ms, s, m, h, d or its word", unit.trim()))?;
        let nanos = u128::from(number) * u128::from(unit);

        let nanos = u64::try_from(nanos)
            .map_err(|_| InvalidQuota(Cause::QuotaError(QuotaError::LongPeriod(nanos))))?;
        Quota::try_per(tokens, Duration::from_nanos(nanos), burst)
    }
}

fn unit_nanos(word: &str) -> Option<u64> {
    let short = match word.strip_suffix('s').filter(|stem| stem.len() > 2).unwrap_or(word) {
        "nanosecond" => "ns",
        "microsecond" => "us",
        "millisecond" => "ms",
        "second" | "sec" => "s",
        "minute" | "min" => "m",
        "hour" => "h",
        "day" => "d",
        other => other,
    };
    UNITS.into_iter().find(|(unit, _)| *unit == short).map(|(_, nanos)| nanos)
}

/// A quota that cannot be held, or a text that is no quota. The message names the given value and
/// the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidQuota(Cause);

impl From<QuotaError> for InvalidQuota {
    fn from(flaw: QuotaError) -> InvalidQuota {
        InvalidQuota(Cause::QuotaError(flaw))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    QuotaError(QuotaError),
    Text { wanted: &'static str, part: Box<str> },
}

impl Error for InvalidQuota {}

impl fmt::Display for InvalidQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flaw = match &self.0 {
            Cause::Text { wanted, part } => return write!(f, "{part:?} is not {wanted}"),
            Cause::QuotaError(flaw) => *flaw,
        };
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
            QuotaError::BurstTooWide(burst, most) => write!(
                f,
                "a burst of {burst} is over the bound of {most} tokens that there is room for: build with headroom"
            ),
            QuotaError::RangeTooShort(RawQuota { tokens, nanos, .. }) => write!(
                f,
                "{tokens} tokens every {nanos} ns leave the word as it was built a time range below the bound of \
                 2^46 ns (19.5 hours) or 64 fill times: build with headroom"
            ),
            QuotaError::TickTooCoarse(burst, least) => write!(
                f,
                "a burst of {burst} is under the bound of {least} tokens, 128 ticks of the word as it was built: \
                 build with headroom"
            ),
            QuotaError::PlanTickTooCoarse(quota) => {
                write!(f, "a tick of the limiter is worth more than 1/128 of {quota}: build with headroom")
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
    /// Returns the fault without its numbers: the only text that a panic in a constant can have.
    const fn sentence(self) -> &'static str {
        match self {
            QuotaError::NoTokens => "a quota of 0 tokens grants nothing: the least is 1",
            QuotaError::NoPeriod => "a period of 0 ns has no rate: the least is 1 ns",
            QuotaError::NoBurst => "a burst of 0 grants nothing: the least is 1",
            QuotaError::LongPeriod(_) => "a period is at most 2^62 ns (146 years)",
            QuotaError::LargeBurst(_) => "a burst is at most 2^40 tokens",
            QuotaError::FastRate(_) => "a rate is at most 10^12 tokens a second",
            QuotaError::SlowFill(_) => "a bucket must fill within 2^62 ns (146 years)",
            // The other errors are of words that were built, not of quotas.
            _ => "this burst at this rate does not fit into one word",
        }
    }
}
