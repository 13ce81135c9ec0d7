//! A limit as clients see it: its name, and its quota in whole seconds.
//!
//! The numbers are those of draft-ietf-httpapi-ratelimit-headers-11
//! (<https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/>). For a bucket they
//! follow <https://dotat.at/@/2026-01-13-http-ratelimit.html>: the bucket grants all that they
//! allow a client.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::policy_name::{InvalidName, quoted};
use tollgate::{AnyRule, Denied, Granted, Quota};

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
    /// No headers that report the limit, not even `Retry-After`.
    None,
    /// `Retry-After` in refusals.
    RetryAfterOnly,
    /// `Retry-After`, `RateLimit-Policy` and `RateLimit`, by
    /// draft-ietf-httpapi-ratelimit-headers-11.
    #[default]
    Ietf,
    /// `Retry-After`, `X-RateLimit-Limit` (the burst), `X-RateLimit-Remaining`, and
    /// `X-RateLimit-Reset` (the seconds until the bucket is full).
    Legacy,
    /// The headers of `Ietf` and of `Legacy`.
    Both,
}

impl Headers {
    pub(super) fn has_retry_after(self) -> bool {
        self != Headers::None
    }

    pub(crate) fn has_ietf(self) -> bool {
        matches!(self, Headers::Ietf | Headers::Both)
    }

    pub(super) fn has_legacy(self) -> bool {
        matches!(self, Headers::Legacy | Headers::Both)
    }
}

/// A limit's name and its quota or window, and the form in which responses report them.
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
/// Of a [`Window`](tollgate::Window), `q` is the limit and `w` its [span](tollgate::Window::span)
/// in whole seconds. `r` tokens are left for the next `t` seconds, until those that are used have
/// come back. A client that spends at most `q` in any `w` is never refused.
///
/// A limit that is [unlimited](tollgate::Quota::UNLIMITED) or [blocked](tollgate::Quota::BLOCKED)
/// has no numbers to tell: its responses have none of these headers, and its refusals no
/// `Retry-After`.
///
/// # Examples
///
/// Without any framework:
///
/// ```
/// use http::Response;
/// use tollgate_http::{Headers, Policy};
/// use tollgate::{Clock, Quota, TokenBucket};
///
/// let quota = Quota::per_second(100).burst(200);
/// let policy = Policy::new("default", quota)?;
/// let (clock, _mock) = Clock::mock();
/// let bucket = TokenBucket::builder(quota).clock(clock).build();
///
/// let mut response = Response::new(());
/// policy.fields(&bucket.try_acquire_n(51)).append_to(response.headers_mut());
/// assert_eq!(response.headers()["ratelimit-policy"], r#""default";q=200;w=2"#);
/// assert_eq!(response.headers()["ratelimit"], r#""default";r=149;t=2"#);
///
/// let refused = policy.fields(&bucket.try_acquire_n(200));
/// let fields: Vec<_> = refused.into_iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
/// assert_eq!(fields[0], r#"retry-after: "1""#);
/// # Ok::<(), tollgate_http::InvalidName>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    name: Arc<str>,
    /// The name as a string of structured fields and of JSON, which escape alike.
    quoted: Arc<str>,
    rule: AnyRule,
    numbers: PolicyNumbers,
    pub(crate) field: HeaderValue,
    unit: Option<Arc<str>>,
    /// The form that was set, and the form of a rule that has numbers to tell.
    pub(crate) chosen: Headers,
    pub(crate) form: Headers,
    pub(crate) below: u8,
    /// The most seconds that are added to the wait of a refusal.
    pub(crate) spread: u64,
    /// The seconds that are added for the key of this refusal.
    delay: u64,
}

/// The numbers that a response reports of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderNumbers {
    /// `r` and `t`.
    pub(crate) rest: u64,
    pub(crate) time: u64,
    /// Whole tokens in the bucket, also where `r` is 0 because of a refusal.
    pub(crate) left: u64,
    /// Seconds until the bucket is full, if the form has them.
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
    pub fn new(name: &str, rule: impl Into<AnyRule>) -> Result<Policy, InvalidName> {
        let (quoted, rule) = (quoted(name)?, rule.into());
        let numbers = PolicyNumbers::of(rule);
        let field = field(&quoted, numbers, None);
        let form = Headers::default();
        Ok(Policy {
            name: name.into(),
            quoted,
            rule,
            numbers,
            field,
            unit: None,
            chosen: form,
            form: form_of(rule, form),
            below: 100,
            spread: 0,
            delay: 0,
        })
    }

    /// Sets which headers a response has; by default [`Headers::Ietf`].
    #[must_use]
    pub fn form(self, form: Headers) -> Policy {
        Policy { chosen: form, form: form_of(self.rule, form), ..self }
    }

    /// Reports the remaining tokens only if they are below `percent` hundredths of `q`.
    ///
    /// This saves a header in most responses (section 6.2 of the draft). 100 and above is always. A
    /// refusal always reports them.
    #[must_use]
    pub fn only_below(self, percent: u8) -> Policy {
        Policy { below: percent.min(100), ..self }
    }

    /// Adds up to `most` to the waits that refusals state, in whole seconds: by default nothing.
    ///
    /// Clients that were refused before a shared edge, such as midnight, would all come back at
    /// once. Each key gets a share of its own of this time, by its hash. A layer knows the key;
    /// other callers name it by [`for_key`](Policy::for_key).
    #[must_use]
    pub fn spread_retries(self, most: Duration) -> Policy {
        Policy { spread: most.as_secs().min(MAX_WAIT), ..self }
    }

    /// Returns the policy for a refusal of a key with this hash. See
    /// [`spread_retries`](Policy::spread_retries).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_http::Policy;
    /// use tollgate::{Clock, Window, WindowCounter};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let window = Window::per_minute(1).utc();
    /// let policy = Policy::new("minute", window)?.spread_retries(Duration::from_secs(10));
    /// let counter = WindowCounter::builder(window).clock(clock).build();
    /// assert!(counter.try_acquire().is_ok());
    /// let refused = counter.try_acquire();
    /// let told = |hash| policy.for_key(hash).fields(&refused).into_iter().next().unwrap().1;
    /// assert_eq!((told(0), told(u64::MAX)), ("60".parse()?, "70".parse()?));
    /// assert_eq!(refused.unwrap_err().retry_after(), Some(Duration::from_secs(60)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn for_key(&self, hash: u64) -> Policy {
        // The upper bits of the product: a share of 0 to `spread` seconds.
        let delay = (u128::from(hash) * u128::from(self.spread + 1)) >> 64;
        Policy { delay: delay as u64, ..self.clone() }
    }

    /// Names the unit of the tokens: `content-bytes`, `concurrent-requests`, or a name of your own.
    /// The default is requests.
    ///
    /// # Errors
    ///
    /// `unit` is not of 1 to 64 printable ASCII characters (spaces included).
    pub fn unit(self, unit: &str) -> Result<Policy, InvalidName> {
        let unit = quoted(unit)?;
        Ok(Policy { field: field(&self.quoted, self.numbers, Some(&unit)), unit: Some(unit), ..self })
    }

    /// Returns the same policy for another quota or window.
    #[must_use]
    pub fn with_rule(&self, rule: impl Into<AnyRule>) -> Policy {
        let rule = rule.into();
        let numbers = PolicyNumbers::of(rule);
        let field = field(&self.quoted, numbers, self.unit.as_ref());
        Policy { rule, numbers, field, form: form_of(rule, self.chosen), ..self.clone() }
    }

    /// Adds a `RateLimit-Policy` header for a limit that did not decide this request.
    pub fn append_to(&self, headers: &mut HeaderMap) {
        self.other().map(|field| headers.append(POLICY, field));
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the quota or the window that responses report.
    #[must_use]
    pub fn rule(&self) -> AnyRule {
        self.rule
    }

    pub(crate) fn quoted(&self) -> &str {
        &self.quoted
    }

    #[inline]
    pub(crate) fn granted(&self, granted: &Granted) -> HeaderNumbers {
        // A grant without a limit has no number of tokens.
        let rest = granted.remaining().min(MAX_INTEGER);
        let time = match &self.numbers {
            PolicyNumbers::Bucket { quota, .. } if rest == 0 => self.wait(first_token(granted, quota)),
            PolicyNumbers::Bucket { quota, fill } => {
                let (whole, next) = (time_of(quota, rest), seconds(time_of(quota, rest + 1)));
                // A part of a token seldom reaches the next second. The time until the bucket is
                // full takes 250 instructions.
                if seconds(whole) == next { next.max(1) } else { time_of_level(whole, *fill, granted) }
            }
            // The tokens that are left are those of this time.
            PolicyNumbers::Window { .. } => seconds(nanos_of(granted.reset_after()).into()).max(1),
        };
        let reset = if self.form.has_legacy() { seconds(nanos_of(granted.reset_after()).into()) } else { 0 };
        HeaderNumbers { rest, left: rest, time, reset, retry: None, granted: true }
    }

    pub(crate) fn denied(&self, denied: &Denied) -> HeaderNumbers {
        let (left, wait) = (denied.remaining(), denied.retry_after());
        let retry = wait.map(|wait| self.wait(wait));
        // A request for more than the burst has no wait, so `r` is the tokens that are left.
        let (rest, there) = if wait.is_some() { (0, denied.asked()) } else { (left, left) };
        let time = match (retry, &self.numbers) {
            (Some(retry), _) => retry,
            (None, PolicyNumbers::Bucket { quota, .. }) => seconds(time_of(quota, left)).max(1),
            (None, PolicyNumbers::Window { span, .. }) => seconds(*span),
        };
        let reset = if self.form.has_legacy() { self.reset_of_refusal(wait, there) } else { 0 };
        HeaderNumbers { rest, left, time, reset, retry, granted: false }
    }

    /// Returns the seconds until the bucket of a refusal is full. After the wait it has `there`
    /// tokens.
    fn reset_of_refusal(&self, wait: Option<Duration>, there: u64) -> u64 {
        let nanos = wait.unwrap_or_default().as_nanos();
        match &self.numbers {
            // The bucket is full once the requested tokens are there and the others have come.
            PolicyNumbers::Bucket { quota, .. } => {
                seconds(nanos + time_of(quota, quota.burst.saturating_sub(there)))
            }
            PolicyNumbers::Window { edges: true, .. } if wait.is_some() => seconds(nanos),
            PolicyNumbers::Window { span, .. } => seconds(*span),
        }
    }

    /// Returns the `Retry-After` of a wait: whole seconds, rounded up, at least 1.
    pub(crate) fn wait(&self, wait: Duration) -> u64 {
        seconds(wait.as_nanos()).saturating_add(self.delay).clamp(1, MAX_WAIT)
    }

    /// Returns whether `rest` tokens are few enough to be reported.
    pub(crate) fn is_scarce(&self, rest: u64) -> bool {
        let (hundredths, below) = (u128::from(rest) * 100, u128::from(self.below));
        below >= 100 || hundredths < u128::from(self.numbers.q_and_w().0) * below
    }
}

/// Returns the chosen form, with no more than `Retry-After` if a rule blocks or has no limit.
fn form_of(rule: AnyRule, chosen: Headers) -> Headers {
    let counted = match rule {
        AnyRule::Quota(quota) => is_rate(quota),
        AnyRule::Window(window) => window.limit() > 0,
    };
    if counted || chosen == Headers::None { chosen } else { Headers::RetryAfterOnly }
}

/// The numbers of a quota: `tokens` in `nanos` nanoseconds, and the burst.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    tokens: u64,
    nanos: u64,
    burst: u64,
}

impl Numbers {
    /// Returns the numbers of a quota. One that blocks or that has no limit has no rate: it is
    /// reported without numbers.
    fn of(quota: Quota) -> Numbers {
        match is_rate(quota) {
            // A period is below 2^64 nanoseconds.
            true => Numbers {
                tokens: quota.tokens(),
                nanos: quota.period().as_nanos() as u64,
                burst: quota.capacity(),
            },
            false => Numbers { tokens: 1, nanos: SECOND as u64, burst: 1 },
        }
    }
}

fn is_rate(quota: Quota) -> bool {
    quota != Quota::BLOCKED && quota != Quota::UNLIMITED
}

/// The numbers of a rule.
#[derive(Clone, Copy, Debug)]
enum PolicyNumbers {
    /// A quota, and the nanoseconds in which an empty bucket fills, rounded down.
    Bucket { quota: Numbers, fill: u64 },
    /// A limit in a span of nanoseconds, and whether all tokens come back at one moment.
    Window { limit: u64, span: u128, edges: bool },
}

impl PolicyNumbers {
    fn of(rule: AnyRule) -> PolicyNumbers {
        match rule {
            AnyRule::Quota(quota) => {
                let quota = Numbers::of(quota);
                let fill = u128::from(quota.burst) * u128::from(quota.nanos) / u128::from(quota.tokens);
                // At most 2^62.
                PolicyNumbers::Bucket { quota, fill: u64::try_from(fill).unwrap_or(u64::MAX) }
            }
            AnyRule::Window(window) => {
                let (limit, span) = (window.limit(), window.span().as_nanos());
                PolicyNumbers::Window { limit, span, edges: window.has_edges() }
            }
        }
    }

    /// Returns `q` and `w`.
    fn q_and_w(&self) -> (u64, u64) {
        match self {
            PolicyNumbers::Bucket { quota, .. } => {
                let window = seconds(quota.nanos.into()).max(seconds(time_of(quota, quota.burst))).max(1);
                let tokens = u128::from(quota.tokens) * u128::from(window) * SECOND / u128::from(quota.nanos);
                (u64::try_from(tokens).unwrap_or(MAX_INTEGER).min(MAX_INTEGER), window)
            }
            PolicyNumbers::Window { limit, span, .. } => (*limit, seconds(*span).max(1)),
        }
    }
}

/// Returns the time from a grant until a bucket that has no token has one.
///
/// Where only the time of a full bucket is known, the time of all tokens but one is subtracted.
#[cold]
fn first_token(granted: &Granted, quota: &Numbers) -> Duration {
    let (next, full) = (granted.next_token().unwrap_or_default(), granted.reset_after());
    match next == full {
        true => {
            let others = u128::from(quota.burst - 1) * u128::from(quota.nanos) / u128::from(quota.tokens);
            full.saturating_sub(Duration::from_nanos(u64::try_from(others).unwrap_or(u64::MAX)))
        }
        false => next,
    }
}

/// Returns a duration below 584 years in nanoseconds.
#[inline]
fn nanos_of(duration: Duration) -> u64 {
    duration.as_secs() * SECOND as u64 + u64::from(duration.subsec_nanos())
}

/// Returns the seconds in which the tokens of a grant came, of which the whole ones took `whole`
/// nanoseconds.
#[cold]
fn time_of_level(whole: u128, fill: u64, granted: &Granted) -> u64 {
    // `reset_nanos` is rounded up, so this is rounded down, and must not be below the time of the
    // whole tokens.
    seconds(whole.max(fill.saturating_sub(nanos_of(granted.reset_after())).into())).max(1)
}

/// Returns the nanoseconds in which a quota's tokens come, rounded up.
#[inline]
fn time_of(quota: &Numbers, tokens: u64) -> u128 {
    match tokens.checked_mul(quota.nanos) {
        // A division of 64 bits suffices.
        Some(product) => product.div_ceil(quota.tokens).into(),
        None => (u128::from(tokens) * u128::from(quota.nanos)).div_ceil(quota.tokens.into()),
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
fn field(quoted: &str, numbers: PolicyNumbers, unit: Option<&Arc<str>>) -> HeaderValue {
    let (tokens, window) = numbers.q_and_w();
    let unit = unit.map(|unit| format!(";qu={unit}")).unwrap_or_default();
    let text = format!("{quoted};q={tokens}{unit};w={window}");
    HeaderValue::try_from(text).expect("it is visible ASCII")
}
