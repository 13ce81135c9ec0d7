//! A rate and a burst, checked when they are made.

use std::time::Duration;

use crate::rule::error::InvalidRule;
use crate::rule::layout::{Layout, LayoutOptions, QuotaError, RawQuota};

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
/// 0 is an error. No limit and a pause have names: [`UNLIMITED`](Quota::UNLIMITED) and
/// [`BLOCKED`](Quota::BLOCKED).
///
/// # Text
///
/// A quota is written `100/s burst 200`, and read from the same text: a count, `/`, a period and,
/// unless the burst is the count, `burst` and a count. A period is a unit or a number of them:
/// `100/s`, `3/250ms`, `5/day burst 5`, `1/2h`. A count is digits, without a sign. Units are `ns us
/// ms s m h d w` and their words (`millisecond`, `seconds`, `min`, `week`, ...).
///
/// `at most 5000/h burst 500` is read as [`at_most`](Quota::at_most): the quota `4500/h burst 500`.
/// `unlimited` and `blocked` are [`UNLIMITED`](Quota::UNLIMITED) and [`BLOCKED`](Quota::BLOCKED).
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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    pub(super) tokens: u64,
    pub(super) nanos: u64,
    pub(super) burst: u64,
}

impl Quota {
    /// Returns a quota of `tokens` every second, with a burst of `tokens`.
    ///
    /// # Panics
    ///
    /// Panics if the quota is out of [bounds](Quota#bounds); in a constant that is an error at
    /// compile time. [`try_per`](Quota::try_per) is for numbers that come in at run time.
    #[must_use]
    #[track_caller]
    pub const fn per_second(tokens: u64) -> Quota {
        Quota::per(tokens, Duration::from_secs(1))
    }

    /// Returns a quota of `tokens` every minute, with a burst of `tokens`.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn per_minute(tokens: u64) -> Quota {
        Quota::per(tokens, Duration::from_secs(60))
    }

    /// Returns a quota of `tokens` every hour, with a burst of `tokens`.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn per_hour(tokens: u64) -> Quota {
        Quota::per(tokens, Duration::from_secs(3_600))
    }

    /// Returns a quota of `tokens` every 24 hours, with a burst of `tokens`.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    #[must_use]
    #[track_caller]
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
    #[track_caller]
    pub const fn per(tokens: u64, period: Duration) -> Quota {
        Quota::held(tokens, period, tokens).0
    }

    /// Returns a quota of one token every `period`, with a burst of 1.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn every(period: Duration) -> Quota {
        Quota::per(1, period)
    }

    /// Begins a quota of at most `limit` tokens, and one tick's worth, in any `period`.
    ///
    /// [`AtMost::burst`] ends it, and panics unless the burst is below `limit`.
    /// [`AtMost::try_burst`] is for numbers that come in at run time. Nothing is checked before.
    ///
    /// A tick is worth less than a token, so the limit is exact, for all but a few very fast rates
    /// and large bursts: see [the law](crate#the-law).
    ///
    /// A quota of `limit` tokens every `period` grants up to `limit + burst` in some period: a
    /// saved burst, and the tokens that are earned meanwhile. This one earns only `limit - burst`
    /// tokens in a period, so that both together are the limit. A client that always asks gets
    /// `limit - burst` tokens a period in the long run.
    ///
    /// # Examples
    ///
    /// For a client of a server that refuses the 5,001st request of any hour:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// const HOUR: Duration = Duration::from_secs(3_600);
    /// const STRICT: Quota = Quota::at_most(5_000, HOUR).burst(500);
    /// assert_eq!(STRICT, Quota::per_hour(4_500).burst(500));
    /// assert_eq!("at most 5000/h burst 500".parse(), Ok(STRICT));
    /// ```
    pub const fn at_most(limit: u64, period: Duration) -> AtMost {
        AtMost { limit, period }
    }

    /// Returns the same rate with another burst: the tokens of a full bucket.
    ///
    /// Panics as [`per_second`](Quota::per_second) does.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, tokens: u64) -> Quota {
        Quota::held(self.tokens, self.period(), tokens).0
    }

    /// Returns a quota of `tokens` every `period`, with a burst of `tokens`, for numbers that come
    /// in at run time. [`try_burst`](Quota::try_burst) sets another burst.
    ///
    /// More than 2^40 tokens are no burst: the same rate is that many tokens in a shorter period.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] names the number and the bound it is out of.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let quota = Quota::try_per(100, Duration::from_secs(1))?.try_burst(200)?;
    /// assert_eq!(quota, Quota::per_second(100).burst(200));
    ///
    /// let error = Quota::try_per(100, Duration::MAX).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "a period of 18446744073709551615999999999 ns is over the bound of 2^62 ns (146 years)"
    /// );
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    pub fn try_per(tokens: u64, period: Duration) -> Result<Quota, InvalidRule> {
        Quota::checked(tokens, period, tokens)
    }

    /// Returns the same rate with another burst, for numbers that come in at run time.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] names the burst and the bound it is out of.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Quota;
    ///
    /// let error = Quota::per_second(100).try_burst(1 << 41).unwrap_err();
    /// assert_eq!(error.to_string(), "a burst of 2199023255552 is over the bound of 2^40 = 1099511627776 tokens");
    /// ```
    pub fn try_burst(self, tokens: u64) -> Result<Quota, InvalidRule> {
        Quota::checked(self.tokens, self.period(), tokens)
    }

    /// Returns a quota of any numbers within the bounds.
    pub(crate) fn checked(tokens: u64, period: Duration, burst: u64) -> Result<Quota, InvalidRule> {
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

    /// Returns the quota of numbers that [`numbers`](Quota::numbers) returned.
    pub(crate) const fn of_numbers(RawQuota { tokens, nanos, burst }: RawQuota) -> Quota {
        Quota { tokens, nanos, burst }
    }

    pub(crate) const fn numbers(&self) -> RawQuota {
        RawQuota { tokens: self.tokens, nanos: self.nanos, burst: self.burst }
    }

    /// Returns the layout of a word for this quota; every quota has one.
    pub(crate) const fn layout(&self) -> Layout {
        let RawQuota { tokens, nanos, burst } = self.numbers_or_usual();
        Quota::held(tokens, Duration::from_nanos(nanos), burst).1
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
    #[track_caller]
    const fn held(tokens: u64, period: Duration, burst: u64) -> (Quota, Layout) {
        match Quota::check(tokens, period, burst) {
            Ok(held) => held,
            Err(flaw) => panic!("{}", flaw.sentence()),
        }
    }
}

/// A bound on the tokens of any period, for a [`Quota`] with a burst: see [`Quota::at_most`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a bound is no quota: `.burst(..)` makes one"]
pub struct AtMost {
    pub(super) limit: u64,
    pub(super) period: Duration,
}

impl AtMost {
    /// Returns the quota with this burst, and a rate of the limit's other tokens every period.
    ///
    /// # Panics
    ///
    /// Panics if `tokens` is not below the limit, or if the quota is out of
    /// [bounds](Quota#bounds); in a constant that is an error at compile time.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, tokens: u64) -> Quota {
        match self.check(tokens) {
            Ok(quota) => quota,
            Err(flaw) => panic!("{}", flaw.sentence()),
        }
    }

    /// Returns the quota with this burst, for numbers that come in at run time.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] names the number and the bound it is out of.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let minute = Quota::at_most(60, Duration::from_secs(60));
    /// assert_eq!(minute.try_burst(15)?, Quota::per_minute(45).burst(15));
    ///
    /// let error = minute.try_burst(60).unwrap_err().to_string();
    /// assert_eq!(error, "a burst of 60 is not below the limit of 60 tokens: nothing would be earned");
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    pub fn try_burst(self, tokens: u64) -> Result<Quota, InvalidRule> {
        Ok(self.check(tokens)?)
    }

    const fn check(self, burst: u64) -> Result<Quota, QuotaError> {
        if burst >= self.limit {
            return Err(QuotaError::BurstOfLimit(burst, self.limit));
        }
        match Quota::check(self.limit - burst, self.period, burst) {
            Ok((quota, _)) => Ok(quota),
            Err(flaw) => Err(flaw),
        }
    }
}
