//! The headers of a response that report a decision.

use http::Response;
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use super::head::ResponseMut;
use super::policy::{HeaderNumbers, Headers, POLICY, Policy};
use super::policy_name::MAX_QUOTED;
use tollgate::{Denied, Granted};

const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The headers that report a decision: up to six pairs of a name and a value, or none.
///
/// [`Policy::fields`] returns them, in the form that the [`Policy`] sets.
/// [`append_to`](Fields::append_to) adds them to a response. For any other framework,
/// [`IntoIterator`] yields each [`HeaderName`] with its [`HeaderValue`].
#[derive(Clone, Debug)]
pub struct Fields {
    policy: Option<HeaderValue>,
    limit: Option<HeaderValue>,
    /// Seconds of `Retry-After`.
    retry: Option<u64>,
    /// Numbers of the headers of [`LEGACY`].
    legacy: Option<[u64; 3]>,
}

const LEGACY: [HeaderName; 3] = [X_LIMIT, X_REMAINING, X_RESET];

impl Fields {
    const NONE: Fields = Fields { policy: None, limit: None, retry: None, legacy: None };

    #[inline(always)]
    fn new(policy: &Policy, told: HeaderNumbers) -> Fields {
        let HeaderNumbers { rest, left, time, reset, retry, granted } = told;
        let scarce = !granted || policy.is_scarce(rest);
        Fields {
            policy: policy.form.has_ietf().then(|| policy.field.clone()),
            limit: (scarce && policy.form.has_ietf()).then(|| item(policy.quoted(), rest, time)),
            retry: retry.filter(|_| policy.form.has_retry_after()),
            legacy: (scarce && policy.form.has_legacy()).then(|| [policy.rule().capacity(), left, reset]),
        }
    }

    /// Removes `RateLimit`, for a redirection when no tokens are left.
    ///
    /// Otherwise a client might wait before it follows the redirection (section 6 of the draft).
    #[must_use]
    pub fn without_rest(self) -> Fields {
        Fields { limit: None, ..self }
    }

    /// Adds the headers to a response, beside those of an upstream with limits of its own.
    ///
    /// Lists are appended to, and `Retry-After` is replaced. Of two `X-RateLimit-Remaining` the
    /// lower one stays, with its `X-RateLimit-Limit` and `X-RateLimit-Reset`.
    pub fn append_to(self, headers: &mut HeaderMap) {
        let mut response = Response::new(());
        std::mem::swap(response.headers_mut(), headers);
        self.add_to(&mut response);
        std::mem::swap(response.headers_mut(), headers);
    }

    #[inline(always)]
    pub(crate) fn add_to(self, response: &mut impl ResponseMut) {
        if let Some(policy) = self.policy {
            response.append(POLICY, policy);
        }
        if let Some(limit) = self.limit {
            response.append(LIMIT, limit);
        }
        if let Some(seconds) = self.retry {
            response.insert(RETRY_AFTER, number(seconds));
        }
        if let Some(numbers) = self.legacy {
            add_legacy(response, numbers);
        }
    }
}

fn add_legacy(response: &mut impl ResponseMut, numbers: [u64; 3]) {
    let remaining = |value: &HeaderValue| value.to_str().ok()?.trim().parse::<u64>().ok();
    let [_, ours, _] = numbers;
    if response.head().headers.get(X_REMAINING).and_then(remaining).is_none_or(|theirs| ours < theirs) {
        for (name, value) in LEGACY.into_iter().zip(numbers) {
            response.insert(name, number(value));
        }
    }
}

/// The decimal digits of `u64::MAX`.
const DIGITS: usize = 20;
/// The longest value of `RateLimit`.
const MAX_ITEM: usize = MAX_QUOTED + 2 * (3 + DIGITS);

/// Returns the value of `RateLimit`, which is new in each response.
///
/// The text is written from its end to its start, since a division yields the last digit first. It
/// lies on the stack, so the value is the only allocation. With `format!` the layer takes 1,200
/// instructions more.
#[inline]
fn item(quoted: &str, rest: u64, time: u64) -> HeaderValue {
    let mut text = [0; MAX_ITEM];
    let start = put_number(&mut text, MAX_ITEM, time);
    let start = put(&mut text, start, b";t=");
    let start = put_number(&mut text, start, rest);
    let start = put(&mut text, start, b";r=");
    let start = put(&mut text, start, quoted.as_bytes());
    value(&text[start..])
}

fn number(number: u64) -> HeaderValue {
    let mut text = [0; DIGITS];
    let start = put_number(&mut text, DIGITS, number);
    value(&text[start..])
}

/// Writes a part of a text up to `end`, and returns its start.
#[inline]
fn put(text: &mut [u8], end: usize, part: &[u8]) -> usize {
    let start = end - part.len();
    text[start..end].copy_from_slice(part);
    start
}

/// Writes the digits of a number up to `end`, and returns their start.
#[inline]
fn put_number(text: &mut [u8], end: usize, mut number: u64) -> usize {
    let mut start = end;
    while number >= 10 {
        let pair = 2 * (number % 100) as usize;
        number /= 100;
        start -= 2;
        text[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    // The first digit, unless it was one of a pair.
    if number > 0 || start == end {
        start -= 1;
        text[start] = b'0' + number as u8;
    }
    start
}

/// The numbers from 0 to 99, of two digits each.
static PAIRS: [u8; 200] = {
    let (mut pairs, mut n) = ([0; 200], 0);
    while n < 100 {
        pairs[2 * n] = b'0' + (n / 10) as u8;
        pairs[2 * n + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    pairs
};

fn value(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).expect("it is visible ASCII")
}

impl IntoIterator for Fields {
    type Item = (HeaderName, HeaderValue);
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<(HeaderName, HeaderValue)>, 6>>;

    fn into_iter(self) -> Self::IntoIter {
        let Fields { policy, limit, retry, legacy } = self;
        let [x_limit, x_remaining, x_reset] = LEGACY;
        let legacy = |index: usize, name| legacy.map(|numbers| (name, number(numbers[index])));
        let fields = [
            retry.map(|seconds| (RETRY_AFTER, number(seconds))),
            policy.map(|policy| (POLICY, policy)),
            limit.map(|limit| (LIMIT, limit)),
            legacy(0, x_limit),
            legacy(1, x_remaining),
            legacy(2, x_reset),
        ];
        fields.into_iter().flatten()
    }
}

impl Policy {
    /// Returns the headers that report a decision, in the form of this policy.
    ///
    /// * `Retry-After` is in a refusal that has a wait: whole seconds, rounded up, at least 1. A
    ///   cost above the burst is never granted, so its refusal has none.
    /// * With [`Headers::None`] there are no headers, and with [`Headers::RetryAfterOnly`] none for
    ///   a grant.
    ///
    /// [`Policy`] has the formulas of the numbers, their source, and an example.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    /// use tollgate_http::Policy;
    ///
    /// let quota = Quota::per_hour(60).burst(1);
    /// let (bucket, policy) = (TokenBucket::new(quota), Policy::new("default", quota)?);
    /// let granted = policy.fields(&bucket.try_acquire());
    /// assert!(granted.into_iter().all(|(name, _)| name != "retry-after"));
    /// let refused = policy.fields(&bucket.try_acquire());
    /// assert!(refused.into_iter().any(|(name, value)| name == "retry-after" && value == "60"));
    /// # Ok::<(), tollgate_http::InvalidName>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn fields(&self, decision: &Result<Granted, Denied>) -> Fields {
        match (decision, self.form) {
            (Ok(_), Headers::None | Headers::RetryAfterOnly) => Fields::NONE,
            (Ok(granted), _) => Fields::new(self, self.granted(granted)),
            (Err(denied), _) => Fields::new(self, self.denied(denied)),
        }
    }

    /// Returns the `RateLimit-Policy` of a limit that did not decide a request.
    pub(crate) fn other(&self) -> Option<HeaderValue> {
        self.form.has_ietf().then(|| self.field.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::item;

    #[test]
    fn numbers_are_written_as_they_are() {
        for (rest, time) in [(0, 1), (9, 10), (99, 100), (1_234_567_890, 999_999_999_999_999), (u64::MAX, 0)]
        {
            assert_eq!(item("\"a\"", rest, time), format!("\"a\";r={rest};t={time}"));
        }
    }
}
