//! The decision of a layer on a request, and the work on its response.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use crossbeam_utils::CachePadded;
use http::{HeaderMap, Response, StatusCode};

use super::chain::{Decider, DynLimit, LayerRequest, LimitOutcome, Refund, next};
use super::decision::{Decision, LimiterIds};
use super::said::Said;
use super::stats::{LimitCounters, count};
use crate::http::{Fields, Head, Headers, Policy, Refusal, Reject};
use crate::word::decision::{Denied, Granted};

pub(super) type Cost = Box<dyn Fn(Head<'_>) -> u64 + Send + Sync>;
pub(super) type Skip = Box<dyn Fn(Head<'_>) -> bool + Send + Sync>;
pub(super) type DecisionHook = Box<dyn Fn(Head<'_>, &Decision) + Send + Sync>;
pub(crate) type RefundOn = Arc<dyn Fn(StatusCode) -> bool + Send + Sync>;

/// The state that all services of a layer share.
pub(crate) struct LayerState {
    pub(crate) limits: Box<[Arc<dyn DynLimit>]>,
    /// Ids of the limiters.
    pub(crate) ids: LimiterIds,
    pub(crate) cost: Option<Cost>,
    pub(crate) skip: Option<Skip>,
    pub(crate) hook: Option<DecisionHook>,
    pub(crate) refund_on: Option<RefundOn>,
    /// Share of keys for which refusals are enforced, in units of 2^-32.
    pub(crate) enforced: u64,
    pub(crate) reject: Box<dyn Reject<Bytes>>,
    /// Requests to which no limit applied.
    pub(crate) skipped: CachePadded<AtomicU64>,
    pub(crate) said: Said,
}

pub(crate) const ALL_KEYS: u64 = 1 << 32;

/// The next step of a request.
pub(super) enum Action {
    /// Passes the request on with its decision; the response needs work.
    Pass(Option<Decision>, After),
    Refuse(Response<Bytes>),
}

impl LayerState {
    /// Counts a refused request. The 1st, 2nd, 4th, 8th and so on are examined for faults.
    fn suspect(&self, counter: &AtomicU64, head: Head<'_>) {
        if count(counter).is_power_of_two() {
            self.examine(Some(head));
        }
    }

    /// Reports each fault that a request shows, unless it was reported before.
    #[cold]
    pub(crate) fn examine(&self, head: Option<Head<'_>>) {
        for limit in &self.limits {
            limit.examine(head, &self.said);
        }
    }

    pub(super) fn rule(&self, head: Head<'_>) -> Action {
        if self.skip.as_ref().is_some_and(|skip| skip(head)) {
            return self.skipped();
        }
        let before =
            head.extensions.get::<Decision>().map_or(&[][..], |decision| decision.counted.as_slice());
        let mut asked = LayerRequest {
            head,
            cost: self.cost.as_ref().map_or(1, |cost| cost(head)),
            limits: self.limits.len(),
            said: &self.said,
            counted: before,
            sampled: (1..ALL_KEYS).contains(&self.enforced),
            hash: 0,
            decider: None,
            also: Vec::new(),
            refunds: self.refund_on.as_ref().map(|_| Vec::new()),
        };
        let outcome = next(&mut asked, &self.limits, None);
        let Some(Decider { policy, counters }) = asked.decider else { return self.skipped() };
        // The upper half, since the map's buckets have the same hash.
        let enforced = asked.hash >> 32 < self.enforced;
        let result = match outcome {
            LimitOutcome::Decided(result, _) => result,
            LimitOutcome::NoKey { check } if enforced => {
                self.suspect(&counters.rejected, head);
                let refusal = Refusal::new(head, None, &policy).with_check(check);
                return Action::Refuse(self.reject.reject(&refusal));
            }
            _ => return self.skipped(),
        };
        let counted = match before {
            [] => self.ids.clone(),
            _ => [before, self.ids.as_slice()].concat().into(),
        };
        let decision = Decision { result, cost: asked.cost, counted };
        if let Some(hook) = &self.hook {
            hook(head, &decision);
        }
        let notice = Notice { policy, also: asked.also };
        match (decision.result, enforced) {
            (Ok(granted), _) => {
                count(&counters.granted);
                let refund = match (&self.refund_on, asked.refunds) {
                    (Some(on), Some(refunds)) => {
                        let (on, counters) = (on.clone(), counters.clone());
                        Some(Box::new(PendingRefund { on, refunds, counters }))
                    }
                    _ => None,
                };
                let notice = (enforced && notice.has_grants()).then_some((notice, granted));
                Action::Pass(Some(decision), After { notice, refund })
            }
            (Err(denied), true) => {
                self.suspect(&counters.refused, head);
                Action::Refuse(self.refuse(
                    &Refusal::new(head, Some(&denied), &notice.policy),
                    &notice,
                    denied,
                ))
            }
            (Err(_), false) => {
                self.suspect(&counters.shadow_refused, head);
                Action::Pass(Some(decision), After::NOTHING)
            }
        }
    }

    fn skipped(&self) -> Action {
        count(&self.skipped);
        Action::Pass(None, After::NOTHING)
    }

    fn refuse(&self, refusal: &Refusal<'_>, notice: &Notice, denied: Denied) -> Response<Bytes> {
        let mut response = self.reject.reject(refusal);
        if !refusal.is_grpc() && notice.policy.form != Headers::None {
            notice.add(response.headers_mut(), denied.headers(&notice.policy));
        }
        response
    }
}

/// The policies that a response reports.
struct Notice {
    policy: Arc<Policy>,
    also: Vec<Arc<Policy>>,
}

impl Notice {
    /// Returns whether responses to granted requests report their limits.
    fn has_grants(&self) -> bool {
        !matches!(self.policy.form, Headers::None | Headers::RetryAfterOnly)
    }

    #[inline]
    fn add(&self, headers: &mut HeaderMap, fields: Fields) {
        for policy in self.also.iter().rev() {
            policy.append_to(headers);
        }
        fields.append_to(headers);
    }
}

/// The work on a response once it is there.
pub(super) struct After {
    notice: Option<(Notice, Granted)>,
    /// In a box, as the future of each request has room for it.
    refund: Option<Box<PendingRefund>>,
}

impl After {
    pub(super) const NOTHING: After = After { notice: None, refund: None };

    pub(super) fn act(&mut self, status: StatusCode, headers: &mut HeaderMap) {
        // All give back before the response reports the tokens that are left.
        let left = self.refund.take().and_then(|refund| refund.give_back(status));
        if let Some((notice, granted)) = &self.notice {
            let granted = left.as_ref().unwrap_or(granted);
            let fields = granted.headers(&notice.policy);
            // A client that has to wait would wait before it follows the redirection.
            let waits = status.is_redirection() && granted.remaining() == 0;
            notice.add(headers, if waits { fields.without_rest() } else { fields });
        }
    }
}

/// The tokens of a granted request that some statuses of its response give back.
struct PendingRefund {
    on: RefundOn,
    refunds: Vec<Refund>,
    counters: Arc<LimitCounters>,
}

impl PendingRefund {
    /// Gives the tokens back if the status says so. Returns the tokens left at the limit that
    /// decided.
    fn give_back(self, status: StatusCode) -> Option<Granted> {
        if !(self.on)(status) {
            return None;
        }
        count(&self.counters.refunded);
        self.refunds.into_iter().filter_map(|refund| refund()).last()
    }
}
