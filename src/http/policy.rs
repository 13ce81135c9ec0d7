//! A limit as it is told to clients: its name, and its quota in whole seconds.
//!
//! The numbers are those of draft-ietf-httpapi-ratelimit-headers-11
//! (<https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/>), for a bucket as by
//! <https://dotat.at/@/2026-01-13-http-ratelimit.html>: what a client may do by them, the bucket allows.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::quota::rate::Quota;
use crate::word::decision::{Denied, Granted};

/// The largest integer of a structured field (RFC 9651, 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;
/// Longer waits are told as this one: 68 years, as RFC 9111, 1.2.2 has it for delta-seconds.
const MAX_WAIT: u64 = 1 << 31;
const SECOND: u128 = 1_000_000_000;
pub(crate) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Which headers a response gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Headers {
    /// None, not even `Retry-After`.
    None,
    /// `Retry-After`, with refusals.
    RetryAfterOnly,
    /// That, `RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-11 has them.
    #[default]
    Ietf,
    /// `Retry-After`, `X-RateLimit-Limit` (the burst), `X-RateLimit-Remaining`, and `X-RateLimit-Reset` (until the bucket is
    /// full).
    Legacy,
    /// All of them.
    Both,
}

impl Headers {
    pub(super) fn retry_after(self) -> bool {
        self != Headers::None
    }

    pub(crate) fn ietf(self) -> bool {
        matches!(self, Headers::Ietf | Headers::Both)
    }

    pub(super) fn legacy(self) -> bool {
        matches!(self, Headers::Legacy | Headers::Both)
    }
}

/// What `X-RateLimit-Reset` counts: servers differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetFormat {
    /// Seconds from now on, as Envoy has it.
    #[default]
    DeltaSeconds,
    /// Seconds since 1970, as GitHub has it. The system's clock is read for each response.
    UnixSeconds,
}

/// A limit's name and quota, and the form in which clients are told of them.
///
/// | parameter | of a quota of `count` in `period`, with a burst |
/// |---|---|
/// | `w` | the period or the time to fill the bucket, whichever is longer, in whole seconds, at least 1 |
/// | `q` | the tokens that come in `w`, rounded down; at least the burst |
/// | `r` | tokens that are left, in whole ones |
/// | `t` | if `r` is 0, seconds until a token is there, or those of `Retry-After` |
/// | | else seconds that the `r` tokens took to come; each rounded up, at least 1 |
///
/// So `q / w` and `r / t` are at most the rate. A client that is alone is not refused if it spends
/// at most `r` tokens within `t` seconds of each response, and none before `t` where `r` is 0.
///
/// After a refusal `r` is 0 even if fewer tokens are left than the request costs: a client that
/// spends these waits longer than `t`. `X-RateLimit-Remaining` says how many are left. A cost above
/// the burst is never granted, so such a refusal has no wait, and `r` is the tokens that are left.
///
/// Under a plan, `t` of `r=0` may be later than the token by up to two ticks of the limiter's own
/// quota: 1/64 of the time in which the plan's burst comes, or less.
///
/// # Examples
///
/// Without any framework:
///
/// ```
/// use http::Response;
/// use tollgate::http::{Headers, Policy};
/// use tollgate::{Clock, Quota, TokenBucket};
///
/// let quota = Quota::per_second(100).burst(200);
/// let policy = Policy::new("default", quota)?;
/// let (clock, _mock) = Clock::mock();
/// let bucket = TokenBucket::with_clock(quota, clock);
///
/// let mut response = Response::new(());
/// match bucket.try_acquire_n(51) {
///     Ok(granted) => granted.headers(&policy).append_to(response.headers_mut()),
///     Err(denied) => denied.headers(&policy).append_to(response.headers_mut()),
/// }
/// assert_eq!(response.headers()["ratelimit-policy"], r#""default";q=200;w=2"#);
/// assert_eq!(response.headers()["ratelimit"], r#""default";r=149;t=2"#);
///
/// let refused = bucket.try_acquire_n(200).unwrap_err().headers(&policy);
/// let fields: Vec<_> = refused.into_iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
/// assert_eq!(fields[0], r#"retry-after: "1""#);
/// # Ok::<(), tollgate::http::InvalidName>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    name: Arc<str>,
    /// As a string of structured fields, and of JSON: both escape alike.
    quoted: Arc<str>,
    quota: Quota,
    /// Nanoseconds in which an empty bucket fills, rounded down.
    fill: u64,
    pub(crate) field: HeaderValue,
    unit: Option<Arc<str>>,
    pub(crate) form: Headers,
    pub(crate) reset: ResetFormat,
    pub(crate) below: u8,
    pub(crate) longest: u64,
}

/// What a response says of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderNumbers {
    /// `r` and `t`.
    pub(crate) rest: u64,
    pub(crate) time: u64,
    /// Whole tokens in the bucket, also where `r` is 0 because of a refusal.
    pub(crate) left: u64,
    /// Seconds until the bucket is full.
    pub(crate) reset: u64,
    /// `Retry-After`, of a refusal that is not for ever.
    pub(crate) retry: Option<u64>,
    pub(crate) granted: bool,
}

impl Policy {
    /// A policy, in the [default form](Headers::Ietf).
    ///
    /// # Errors
    ///
    /// The name has a character that is neither printable ASCII nor a space, or it is empty or longer than 64.
    pub fn new(name: &str, quota: Quota) -> Result<Policy, InvalidName> {
        let quoted = quoted(name)?;
        let field = field(&quoted, quota, None);
        let (form, reset) = (Headers::default(), ResetFormat::default());
        Ok(Policy {
            name: name.into(),
            quoted,
            quota,
            fill: Window::of(quota).time_of(quota.capacity()),
            field,
            unit: None,
            form,
            reset,
            below: 100,
            longest: MAX_WAIT,
        })
    }

    /// Which headers there are.
    #[must_use]
    pub fn form(self, form: Headers) -> Policy {
        Policy { form, ..self }
    }

    /// What `X-RateLimit-Reset` counts from.
    #[must_use]
    pub fn reset_format(self, reset: ResetFormat) -> Policy {
        Policy { reset, ..self }
    }

    /// Tells `RateLimit` and its like only when less than so many hundredths of `q` are left: a header less in most
    /// responses (section 6.2 of the draft). 100 and more is always.
    #[must_use]
    pub fn only_below(self, percent: u8) -> Policy {
        Policy { below: percent.min(100), ..self }
    }

    /// The longest wait that clients are told, in whole seconds, at least 1: who waits that long in vain is told again. 68 years
    /// if it is not given.
    #[must_use]
    pub fn longest_wait(self, longest: Duration) -> Policy {
        Policy { longest: longest.as_secs().clamp(1, MAX_WAIT), ..self }
    }

    /// What is counted, if not requests: `content-bytes`, or `concurrent-requests`, or a name of your own.
    ///
    /// # Errors
    ///
    /// As for the name of a policy.
    pub fn unit(self, unit: &str) -> Result<Policy, InvalidName> {
        let unit = quoted(unit)?;
        Ok(Policy { field: field(&self.quoted, self.quota, Some(&unit)), unit: Some(unit), ..self })
    }

    /// The same for another quota.
    #[must_use]
    pub fn with_quota(&self, quota: Quota) -> Policy {
        let field = field(&self.quoted, quota, self.unit.as_ref());
        let fill = Window::of(quota).time_of(quota.capacity());
        Policy { quota, fill, field, ..self.clone() }
    }

    /// Adds `RateLimit-Policy` to a response: of a limit that is told of beside the one that decided.
    pub fn append_to(&self, headers: &mut HeaderMap) {
        if self.form.ietf() {
            headers.append(POLICY, self.field.clone());
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The quota that is told.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// The name, in quotes.
    pub(crate) fn quoted(&self) -> &str {
        &self.quoted
    }

    #[inline]
    pub(crate) fn granted(&self, granted: &Granted) -> HeaderNumbers {
        let (rest, reset) = (granted.remaining(), granted.reset_after());
        let time = match rest {
            0 => self.next(granted),
            _ => self.came(rest, reset),
        };
        HeaderNumbers { rest, left: rest, time, reset: seconds(reset.as_nanos()), retry: None, granted: true }
    }

    /// The seconds in which the tokens in a bucket came, rounded up, at least 1. It has `rest`
    /// whole tokens, and is full after `reset`.
    #[inline]
    fn came(&self, rest: u64, reset: Duration) -> u64 {
        let Window { count, period, .. } = Window::of(self.quota);
        // `reset` is rounded up, so this is rounded down, and must not be below the time of the
        // whole tokens.
        let came = u128::from(self.fill).saturating_sub(reset.as_nanos());
        seconds(came.max((u128::from(rest) * period).div_ceil(count))).max(1)
    }

    /// The seconds until a token is there.
    #[cold]
    fn next(&self, granted: &Granted) -> u64 {
        self.wait(granted.next_token(self.quota))
    }

    pub(crate) fn denied(&self, denied: &Denied) -> HeaderNumbers {
        let Window { count, period, burst } = Window::of(self.quota);
        // The time that so many tokens take.
        let time_of = |tokens: u64| (u128::from(tokens) * period).div_ceil(count);
        let (left, wait) = (denied.remaining(), denied.retry_after());
        let retry = wait.map(|wait| self.wait(wait));
        let time = retry.unwrap_or_else(|| seconds(time_of(left)).max(1));
        // The bucket is full when those are there that were asked for, and the rest has come. A
        // request for more than the burst makes no other wait: then `r` is the tokens that are left.
        let (rest, there) = if wait.is_some() { (0, denied.asked()) } else { (left, left) };
        let wait = wait.unwrap_or_default().as_nanos();
        let reset = seconds(wait + time_of(burst.saturating_sub(there)));
        HeaderNumbers { rest, left, time, reset, retry, granted: false }
    }

    /// `Retry-After` of a wait: whole seconds, rounded up, at least 1.
    pub(crate) fn wait(&self, wait: Duration) -> u64 {
        seconds(wait.as_nanos()).clamp(1, self.longest)
    }

    /// Whether so few tokens are left that they are told of.
    pub(crate) fn is_scarce(&self, rest: u64) -> bool {
        let (hundredths, below) = (u128::from(rest) * 100, u128::from(self.below));
        below >= 100 || hundredths < u128::from(Window::of(self.quota).q_and_w().0) * below
    }
}

/// A quota's numbers, for sums that do not overflow: a count and a burst are below 2^64, a period below 2^62.
struct Window {
    count: u128,
    /// In nanoseconds.
    period: u128,
    burst: u64,
}

impl Window {
    fn of(quota: Quota) -> Window {
        Window { count: quota.tokens().into(), period: quota.period().as_nanos(), burst: quota.capacity() }
    }

    /// The nanoseconds in which tokens come, rounded down. A bucket fills within 2^62.
    fn time_of(&self, tokens: u64) -> u64 {
        u64::try_from(u128::from(tokens) * self.period / self.count).unwrap_or(u64::MAX)
    }

    /// `q` and `w`.
    fn q_and_w(&self) -> (u64, u64) {
        let Window { count, period, burst } = *self;
        let fill = (u128::from(burst) * period).div_ceil(count);
        let window = seconds(period).max(seconds(fill)).max(1);
        let tokens = count * u128::from(window) * SECOND / period;
        (u64::try_from(tokens).unwrap_or(MAX_INTEGER).min(MAX_INTEGER), window)
    }
}

fn seconds(nanos: u128) -> u64 {
    match u64::try_from(nanos) {
        // A division of 64 bits: most times are below 584 years.
        Ok(nanos) => nanos.div_ceil(SECOND as u64),
        Err(_) => u64::try_from(nanos.div_ceil(SECOND)).unwrap_or(MAX_INTEGER).min(MAX_INTEGER),
    }
}

/// The value of `RateLimit-Policy`.
fn field(quoted: &str, quota: Quota, unit: Option<&Arc<str>>) -> HeaderValue {
    let (tokens, window) = Window::of(quota).q_and_w();
    let unit = unit.map(|unit| format!(";qu={unit}")).unwrap_or_default();
    let text = format!("{quoted};q={tokens}{unit};w={window}");
    HeaderValue::try_from(text).expect("it is visible ASCII")
}

/// A string of structured fields (RFC 9651, 3.3.3).
fn quoted(name: &str) -> Result<Arc<str>, InvalidName> {
    if let Some((at, found)) = name.chars().enumerate().find(|(_, c)| !(' '..='~').contains(c)) {
        return Err(InvalidName(NameFault::Character { at, found }));
    }
    if !(1..=MAX_NAME).contains(&name.len()) {
        return Err(InvalidName(NameFault::Length(name.len())));
    }
    Ok(format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")).into())
}

const MAX_NAME: usize = 64;

/// What no policy or unit can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName(NameFault);

#[derive(Clone, Debug, PartialEq, Eq)]
enum NameFault {
    Length(usize),
    Character { at: usize, found: char },
}

impl Error for InvalidName {}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            NameFault::Length(length) => {
                write!(f, "a name of {length} characters is out of the bounds of 1 and {MAX_NAME}")
            }
            NameFault::Character { at, found } => {
                write!(f, "character {at} of a name, {found:?}, is not printable ASCII, ' ' to '~'")
            }
        }
    }
}
