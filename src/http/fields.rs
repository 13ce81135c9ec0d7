//! The headers of a response that report a decision.

use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use super::policy::{HeaderNumbers, Headers, POLICY, Policy, ResetFormat};
use crate::word::decision::{Denied, Granted};

const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The headers that report a decision, as an iterator for any framework; see [`Policy`].
#[derive(Clone, Debug)]
pub struct Fields {
    fields: [Option<(HeaderName, HeaderValue)>; 6],
}

impl Fields {
    fn new(policy: &Policy, told: HeaderNumbers) -> Fields {
        let HeaderNumbers { rest, left, time, reset, retry, granted } = told;
        let burst = policy.quota().capacity();
        let retry = retry.filter(|_| policy.form.retry_after());
        let scarce = !granted || policy.is_scarce(rest);
        let ietf = scarce && policy.form.ietf();
        let legacy = scarce && policy.form.legacy();
        let reset = || match policy.reset {
            ResetFormat::DeltaSeconds => reset,
            ResetFormat::UnixSeconds => {
                // The second that has begun counts in full, so the time is never early.
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                reset.saturating_add(now.as_secs()).saturating_add(u64::from(now.subsec_nanos() > 0))
            }
        };
        Fields {
            fields: [
                retry.map(|seconds| (RETRY_AFTER, seconds.into())),
                policy.form.ietf().then(|| (POLICY, policy.field.clone())),
                ietf.then(|| (LIMIT, item(policy.quoted(), rest, time))),
                legacy.then(|| (X_LIMIT, burst.into())),
                legacy.then(|| (X_REMAINING, left.into())),
                legacy.then(|| (X_RESET, reset().into())),
            ],
        }
    }

    /// Removes `RateLimit`, for a redirection when no tokens are left.
    ///
    /// Otherwise a client might wait before it follows the redirection (section 6 of the draft).
    #[must_use]
    pub fn without_rest(mut self) -> Fields {
        self.fields[2] = None;
        self
    }

    /// Adds the headers to a response, beside those of an upstream with limits of its own.
    ///
    /// Lists are appended to. Of two `X-RateLimit-Remaining` the lower one stays, with its
    /// `X-RateLimit-Limit` and `X-RateLimit-Reset`.
    pub fn append_to(self, headers: &mut HeaderMap) {
        let [retry, policy, limit, legacy @ ..] = self.fields;
        for (name, value) in [policy, limit].into_iter().flatten() {
            headers.append(name, value);
        }
        if let Some((name, value)) = retry {
            headers.insert(name, value);
        }
        if legacy.iter().all(Option::is_none) {
            return;
        }
        let remaining = |value: &HeaderValue| value.to_str().ok()?.trim().parse::<u64>().ok();
        let theirs = headers.get(X_REMAINING).and_then(remaining);
        let ours = legacy[1].as_ref().and_then(|(_, value)| remaining(value));
        if theirs.is_none() || ours < theirs {
            for (name, value) in legacy.into_iter().flatten() {
                headers.insert(name, value);
            }
        }
    }
}

/// Returns the value of `RateLimit`, which is new in each response.
///
/// With `format!` it takes 1,200 instructions more, of some 4,000 for the layer.
fn item(quoted: &str, rest: u64, time: u64) -> HeaderValue {
    let mut text = Vec::with_capacity(quoted.len() + 2 * (3 + DIGITS));
    text.extend_from_slice(quoted.as_bytes());
    for (name, number) in [(b";r=", rest), (b";t=", time)] {
        text.extend_from_slice(name);
        push_number(&mut text, number);
    }
    HeaderValue::from_bytes(&text).expect("it is visible ASCII")
}

/// The decimal digits of `u64::MAX`.
const DIGITS: usize = 20;

fn push_number(text: &mut Vec<u8>, mut number: u64) {
    let (mut digits, mut first) = ([b'0'; DIGITS], DIGITS);
    loop {
        first -= 1;
        digits[first] += (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break text.extend_from_slice(&digits[first..]);
        }
    }
}

impl IntoIterator for Fields {
    type Item = (HeaderName, HeaderValue);
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<(HeaderName, HeaderValue)>, 6>>;

    fn into_iter(self) -> Self::IntoIter {
        self.fields.into_iter().flatten()
    }
}

impl Granted {
    /// Returns the headers that report this decision. See [`Policy`].
    #[must_use]
    pub fn headers(&self, policy: &Policy) -> Fields {
        match policy.form {
            Headers::None | Headers::RetryAfterOnly => Fields { fields: [const { None }; 6] },
            _ => Fields::new(policy, policy.granted(self)),
        }
    }
}

impl Denied {
    /// Returns the headers that report this decision, with `Retry-After` if it can be granted
    /// later.
    #[must_use]
    pub fn headers(&self, policy: &Policy) -> Fields {
        Fields::new(policy, policy.denied(self))
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
