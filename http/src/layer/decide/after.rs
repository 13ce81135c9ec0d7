//! The work on the response of a request that was passed on.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderName, HeaderValue};

use super::settle::{Charged, Meter, SettleOn};
use crate::layer::limit::counts::{LimitCounters, count};
use crate::response::fields::Fields;
use crate::response::head::{ResponseHead, ResponseMut};
use crate::response::policy::{Headers, POLICY, Policy};
use tollgate::Granted;

pub(crate) type RefundOn = Arc<dyn Fn(StatusCode) -> bool + Send + Sync>;

/// <https://www.w3.org/TR/server-timing/>
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The policies that a response reports.
pub(crate) struct Notice {
    pub(super) policy: Arc<Policy>,
    pub(super) also: Vec<Arc<Policy>>,
}

impl Notice {
    /// Returns whether responses to granted requests report their limits.
    pub(super) fn has_grants(&self) -> bool {
        !matches!(self.policy.form, Headers::None | Headers::RetryAfterOnly)
    }

    #[inline(always)]
    pub(super) fn add(&self, response: &mut impl ResponseMut, fields: Fields) {
        for policy in self.also.iter().rev() {
            if let Some(field) = policy.other() {
                response.append(POLICY, field);
            }
        }
        fields.add_to(response);
    }

    /// Names the fields, as a browser hides all but a few from scripts.
    #[cold]
    pub(super) fn expose(&self, response: &mut impl ResponseMut) {
        response.append(ACCESS_CONTROL_EXPOSE_HEADERS, names_of(self.policy.form));
    }
}

fn names_of(form: Headers) -> HeaderValue {
    const IETF: &str = "retry-after, ratelimit-policy, ratelimit, server-timing";
    const LEGACY: &str =
        "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, server-timing";
    const BOTH: &str = "retry-after, ratelimit-policy, ratelimit, x-ratelimit-limit, x-ratelimit-remaining, \
                        x-ratelimit-reset, server-timing";
    HeaderValue::from_static(match form {
        Headers::Legacy => LEGACY,
        Headers::Both => BOTH,
        Headers::Ietf => IETF,
        _ => "retry-after, server-timing",
    })
}

/// The work on a response once it is there.
pub(crate) struct After {
    pub(super) notice: Option<(Notice, Granted)>,
    /// In a box, as the future of each request has room for it.
    pub(super) later: Option<Box<Later>>,
}

impl After {
    pub(crate) const NOTHING: After = After { notice: None, later: None };

    /// Settles the cost, and adds the headers. Returns the meter of the body, if the cost depends
    /// on it.
    #[inline]
    pub(crate) fn act(&mut self, response: &mut impl ResponseMut) -> Option<Box<Meter>> {
        if let Some(later) = self.later.take() {
            return self.act_later(*later, response);
        }
        self.add_notice(None, response);
        None
    }

    #[inline]
    fn add_notice(&self, left: Option<&Granted>, response: &mut impl ResponseMut) {
        if let Some((notice, granted)) = &self.notice {
            let granted = left.unwrap_or(granted);
            let fields = notice.policy.fields(&Ok(*granted));
            // A client that has to wait would wait before it follows the redirection.
            let waits = response.head().status.is_redirection() && granted.remaining() == 0;
            notice.add(response, if waits { fields.without_rest() } else { fields });
        }
    }

    #[cold]
    fn act_later(&self, later: Later, response: &mut impl ResponseMut) -> Option<Box<Meter>> {
        let (delay, exposed) = (later.delay, later.exposed);
        // All limits settle before the response reports the tokens that are left.
        let (left, meter) = later.settle(response.head());
        self.add_notice(left.as_ref(), response);
        if let (true, Some((notice, _))) = (exposed, &self.notice) {
            notice.expose(response);
        }
        if !delay.is_zero() {
            let value = HeaderValue::try_from(format!("ratelimit;dur={}", delay.as_millis()));
            response.append(SERVER_TIMING, value.expect("digits are a value"));
        }
        meter
    }
}

/// The parts of the work that few layers have.
pub(crate) struct Later {
    /// The time that the request waited for its turn.
    pub(super) delay: Duration,
    /// Whether a script of another origin may read the fields.
    pub(super) exposed: bool,
    pub(super) charged: Charged,
    pub(super) refund_on: Option<RefundOn>,
    pub(super) settle_on: Option<SettleOn>,
    pub(super) counters: Arc<LimitCounters>,
}

impl Later {
    /// Returns the tokens left at the limit that decided, if they changed, and the meter of the
    /// body.
    fn settle(self, head: ResponseHead<'_>) -> (Option<Granted>, Option<Box<Meter>>) {
        let Later { mut charged, refund_on, settle_on, counters, .. } = self;
        if refund_on.is_some_and(|on| on(head.status)) {
            count(&counters.refunded);
            return (charged.settle(0), None);
        }
        let Some(settle_on) = settle_on else { return (None, None) };
        charged.settle_by(settle_on(head), head, counters)
    }
}
