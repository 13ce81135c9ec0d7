//! A limit as clients see it: its name, and its quota in whole seconds.
//!
//! The numbers are those of draft-ietf-httpapi-ratelimit-headers-11
//! (<https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/>). For a bucket they
//! follow <https://dotat.at/@/2026-01-13-http-ratelimit.html>: the bucket grants all that they
//! allow a client.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::quota::layout::RawQuota;
use crate::quota::rate::Quota;
use crate::word::decision::{Denied, Granted};

/// The largest integer of a structured field (RFC 9651, 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;
/// The longest wait that a header states, in seconds: 68 years, as in RFC 9111, 1.2.2.
const MAX_WAIT: u64 = 1 << 31;
const SECOND: u128 = 1_000_000_000;
pub(crate) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The set of headers that a response gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Headers {
    /// No headers, not even `Retry-After`.
    None,
    /// `Retry-After` in refusals.
    RetryAfterOnly,
    /// `Retry-After`, `RateLimit-Policy` and `RateLimit`, by
    /// draft-ietf-httpapi-ratelimit-headers-11.
    #[default]
    Ietf,
    /// `Retry-After`, `X-RateLimit-Limit` (the burst), `X-RateLimit-Remaining`, and
    /// `X-RateLimit-Reset` (the time at which the bucket is full).
    Legacy,
    /// The headers of `Ietf` and of `Legacy`.
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

/// The unit of `X-RateLimit-Reset`, in which servers differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetFormat {
    /// Seconds from now on, as of Envoy.
    #[default]
    DeltaSeconds,
    /// Seconds since 1970, as of GitHub. Each response reads the system's clock.
    UnixSeconds,
}

/// A limit's name and quota, and the form in which responses report them.
///
/// | parameter | of a quota of `count` in `period`, with a burst |
/// |---|---|
/// | `w` | the longer of the period and the time to fill the bucket, in whole seconds, at least 1 |
/// | `q` | the tokens that come in `w`, rounded down; at least the burst |
/// | `r` | tokens that are left, in whole ones |
/// | `t` | if `r` is 0, seconds until a token is there, or those of `Retry-After` |
/// | | else seconds that the `r` tokens took to come; each rounded up, at least 1 |
///
/// So `q / w` and `r / t` are at most the rate. A client alone on its key is not refused under two
/// conditions: it spends at most `r` tokens within `t` seconds of each response, and none before
/// `t` where `r` is 0.
///
/// After a refusal `r` is 0 even if tokens are left, but fewer than the request costs. A client
/// that spends these waits longer than `t`. `X-RateLimit-Remaining` counts them. A cost above the
/// burst is never granted: such a refusal has no wait, and `r` is the tokens that are left.
///
/// Under a plan, `t` of `r=0` may be late by up to two ticks of the limiter's own quota: at most
/// 1/64 of the time in which the plan's burst comes.
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
    /// The name as a string of structured fields and of JSON, which escape alike.
    quoted: Arc<str>,
    quota: Quota,
    window: PolicyNumbers,
    /// Nanoseconds in which an empty bucket fills, rounded down.
    fill: u64,
    pub(crate) field: HeaderValue,
    unit: Option<Arc<str>>,
    pub(crate) form: Headers,
    pub(crate) reset: ResetFormat,
    pub(crate) below: u8,
    pub(crate) longest: u64,
}

/// The numbers that a response reports of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderNumbers {
    /// `r` and `t`.
    pub(crate) rest: u64,
    pub(crate) time: u64,
    /// Whole tokens in the bucket, also where `r` is 0 because of a refusal.
    pub(crate) left: u64,
    /// Seconds until the bucket is full.
    pub(crate) reset: u64,
    /// Seconds of `Retry-After`, for a refusal that ends.
    pub(crate) retry: Option<u64>,
    pub(crate) granted: bool,
}

impl Policy {
    /// Creates a policy, in the [default form](Headers::Ietf).
    ///
    /// # Errors
    ///
    /// `name` is not of 1 to 64 printable ASCII characters (spaces included).
    pub fn new(name: &str, quota: Quota) -> Result<Policy, InvalidName> {
        let (quoted, window) = (quoted(name)?, PolicyNumbers::of(quota));
        let field = field(&quoted, window, None);
        let (form, reset) = (Headers::default(), ResetFormat::default());
        Ok(Policy {
            name: name.into(),
            quoted,
            quota,
            window,
            fill: window.fill(),
            field,
            unit: None,
            form,
            reset,
            below: 100,
            longest: MAX_WAIT,
        })
    }

    /// Sets which headers a response has; by default [`Headers::Ietf`].
    #[must_use]
    pub fn form(self, form: Headers) -> Policy {
        Policy { form, ..self }
    }

    /// Sets the unit of `X-RateLimit-Reset`.
    #[must_use]
    pub fn reset_format(self, reset: ResetFormat) -> Policy {
        Policy { reset, ..self }
    }

    /// Reports the remaining tokens only if they are below `percent` hundredths of `q`.
    ///
    /// This saves a header in most responses (section 6.2 of the draft). 100 and above is always.
    #[must_use]
    pub fn only_below(self, percent: u8) -> Policy {
        Policy { below: percent.min(100), ..self }
    }

    /// Sets the longest wait that responses state, in whole seconds: 1 to 68 years, the default.
    ///
    /// A client that waits for so short a time in vain gets the next wait then.
    #[must_use]
    pub fn longest_wait(self, longest: Duration) -> Policy {
        Policy { longest: longest.as_secs().clamp(1, MAX_WAIT), ..self }
    }

    /// Names the unit of the tokens: `content-bytes`, `concurrent-requests`, or a name of your own.
    /// The default is requests.
    ///
    /// # Errors
    ///
    /// `unit` is not of 1 to 64 printable ASCII characters (spaces included).
    pub fn unit(self, unit: &str) -> Result<Policy, InvalidName> {
        let unit = quoted(unit)?;
        Ok(Policy { field: field(&self.quoted, self.window, Some(&unit)), unit: Some(unit), ..self })
    }

    /// Returns the same policy for another quota.
    #[must_use]
    pub fn with_quota(&self, quota: Quota) -> Policy {
        let window = PolicyNumbers::of(quota);
        let field = field(&self.quoted, window, self.unit.as_ref());
        Policy { quota, window, fill: window.fill(), field, ..self.clone() }
    }

    /// Adds a `RateLimit-Policy` header for a limit that did not decide this request.
    pub fn append_to(&self, headers: &mut HeaderMap) {
        if self.form.ietf() {
            headers.append(POLICY, self.field.clone());
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the quota that responses report.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    pub(crate) fn quoted(&self) -> &str {
        &self.quoted
    }

    #[inline]
    pub(crate) fn granted(&self, granted: &Granted) -> HeaderNumbers {
        let (rest, reset) = (granted.remaining(), granted.reset_nanos());
        let time = match rest {
            0 => self.next(granted),
            // `reset` is rounded up, so this is rounded down, and must not be below the time of the
            // whole tokens.
            _ => seconds(self.window.time_of(rest).max(self.fill.saturating_sub(reset).into())).max(1),
        };
        HeaderNumbers { rest, left: rest, time, reset: seconds(reset.into()), retry: None, granted: true }
    }

    /// Returns the seconds until a token is there.
    #[cold]
    fn next(&self, granted: &Granted) -> u64 {
        self.wait(granted.next_token(self.quota))
    }

    pub(crate) fn denied(&self, denied: &Denied) -> HeaderNumbers {
        let (left, wait) = (denied.remaining(), denied.retry_after());
        let retry = wait.map(|wait| self.wait(wait));
        let time = retry.unwrap_or_else(|| seconds(self.window.time_of(left)).max(1));
        // The bucket is full once the requested tokens are there and the others have come. A
        // request for more than the burst has no wait, so `r` is the tokens that are left.
        let (rest, there) = if wait.is_some() { (0, denied.asked()) } else { (left, left) };
        let others = self.window.time_of(self.window.burst.saturating_sub(there));
        let reset = seconds(wait.unwrap_or_default().as_nanos() + others);
        HeaderNumbers { rest, left, time, reset, retry, granted: false }
    }

    /// Returns the `Retry-After` of a wait: whole seconds, rounded up, at least 1.
    pub(crate) fn wait(&self, wait: Duration) -> u64 {
        seconds(wait.as_nanos()).clamp(1, self.longest)
    }

    /// Returns whether `rest` tokens are few enough to be reported.
    pub(crate) fn is_scarce(&self, rest: u64) -> bool {
        let (hundredths, below) = (u128::from(rest) * 100, u128::from(self.below));
        below >= 100 || hundredths < u128::from(self.window.q_and_w().0) * below
    }
}

/// A quota's numbers: the tokens that come in a period, at most 2^62 nanoseconds, and the burst.
#[derive(Clone, Copy, Debug)]
struct PolicyNumbers {
    count: u64,
    period: u64,
    burst: u64,
}

impl PolicyNumbers {
    fn of(quota: Quota) -> PolicyNumbers {
        let RawQuota { tokens, nanos, burst } = quota.numbers();
        PolicyNumbers { count: tokens, period: nanos, burst }
    }

    /// Returns the nanoseconds in which tokens come, rounded up.
    #[inline]
    fn time_of(&self, tokens: u64) -> u128 {
        match tokens.checked_mul(self.period) {
            // A division of 64 bits suffices.
            Some(product) => product.div_ceil(self.count).into(),
            None => (u128::from(tokens) * u128::from(self.period)).div_ceil(self.count.into()),
        }
    }

    /// Returns the nanoseconds in which an empty bucket fills, rounded down: at most 2^62.
    fn fill(&self) -> u64 {
        let fill = u128::from(self.burst) * u128::from(self.period) / u128::from(self.count);
        u64::try_from(fill).unwrap_or(u64::MAX)
    }

    /// Returns `q` and `w`.
    fn q_and_w(&self) -> (u64, u64) {
        let window = seconds(self.period.into()).max(seconds(self.time_of(self.burst))).max(1);
        let tokens = u128::from(self.count) * u128::from(window) * SECOND / u128::from(self.period);
        (u64::try_from(tokens).unwrap_or(MAX_INTEGER).min(MAX_INTEGER), window)
    }
}

fn seconds(nanos: u128) -> u64 {
    match u64::try_from(nanos) {
        // A division of 64 bits suffices below 584 years.
        Ok(nanos) => nanos.div_ceil(SECOND as u64),
        Err(_) => u64::try_from(nanos.div_ceil(SECOND)).unwrap_or(MAX_INTEGER).min(MAX_INTEGER),
    }
}

/// Returns the value of `RateLimit-Policy`.
fn field(quoted: &str, window: PolicyNumbers, unit: Option<&Arc<str>>) -> HeaderValue {
    let (tokens, window) = window.q_and_w();
    let unit = unit.map(|unit| format!(";qu={unit}")).unwrap_or_default();
    let text = format!("{quoted};q={tokens}{unit};w={window}");
    HeaderValue::try_from(text).expect("it is visible ASCII")
}

/// Returns a string of structured fields (RFC 9651, 3.3.3).
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
/// The longest quoted name, of which each character is escaped.
pub(super) const MAX_QUOTED: usize = 2 + 2 * MAX_NAME;

/// The error of an invalid name of a policy or unit.
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
