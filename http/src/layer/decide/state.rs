//! The state that all services of a layer share.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use crossbeam_utils::CachePadded;
use http::header::ORIGIN;

use super::after::RefundOn;
use super::decision::{Decision, LimiterIds};
use super::line::{Waiters, WaitingLine};
use super::passed::Verdict;
use super::request::Pending;
use super::settle::SettleOn;
use crate::layer::limit::ban::Ban;
use crate::layer::limit::counts::count;
use crate::layer::limit::dyn_limit::DynLimit;
use crate::layer::limit::part::Part;
use crate::layer::limit::reported::Reported;
use crate::layer::limit::share::Share;
use crate::request::exempt::Exempt;
use crate::request::key::Head;
use crate::response::policy::Policy;
use crate::response::refusal::Reject;

pub(crate) type CostOf = Box<dyn Fn(Head<'_>) -> u64 + Send + Sync>;
/// A function that sees each decision, the policy of the limit that decided, and its part in a ban.
pub(crate) type LayerHook = Box<dyn Fn(Head<'_>, &Decision, &Policy, Ban) + Send + Sync>;

/// The limits of a layer and its options.
pub(crate) struct LayerState {
    pub(crate) limits: Box<[Arc<dyn DynLimit>]>,
    /// Decides on a request that never waits, by the type of the first limit.
    pub(crate) decide_at_once: fn(&LayerState, Head<'_>) -> Verdict,
    /// Ids of the limiters.
    pub(crate) ids: LimiterIds,
    pub(crate) cost: Option<CostOf>,
    pub(crate) exempt: Vec<Exempt>,
    pub(crate) hooks: Vec<LayerHook>,
    pub(crate) refund_on: Option<RefundOn>,
    pub(crate) settle_on: Option<SettleOn>,
    /// Whether a limit searches for its keys.
    pub(crate) searches: bool,
    /// Whether a limiter is not at hand.
    pub(crate) asks: bool,
    /// Whether a limit bans keys.
    pub(crate) bans: bool,
    /// Whether a limit spares some keys or all.
    pub(crate) shadows: bool,
    /// Whether a request tells the upstream that it is over a limit.
    pub(crate) forwards_headers: bool,
    /// Whether scripts of other origins may read the fields.
    pub(crate) exposes: bool,
    /// The share of keys for which refusals are enforced.
    pub(crate) enforced: Share,
    /// The responses of the user. `None`: those of [`Bare`](crate::Bare).
    pub(crate) reject: Option<Box<dyn Reject<Bytes>>>,
    pub(crate) counters: CachePadded<LayerCounters>,
    pub(crate) reported: Reported,
}

/// Counts of requests beside those of the limits.
#[derive(Default)]
pub(crate) struct LayerCounters {
    /// Requests to which no limit applied.
    pub(crate) skipped: AtomicU64,
    /// Requests on the allow list.
    pub(crate) exempt: AtomicU64,
    /// Requests that waited for their turn.
    pub(crate) delayed: AtomicU64,
    /// Requests that wait for their turn now. Relaxed: the number alone is the bound, and it orders
    /// no other memory.
    pub(crate) waiting: Arc<Mutex<Waiters>>,
}

impl LayerState {
    /// Returns whether a response may need rare work.
    pub(super) fn has_later(&self) -> bool {
        self.exposes || self.refund_on.is_some() || self.settle_on.is_some()
    }

    /// Returns whether the layer enforces refusals for the key of a request.
    pub(super) fn enforces(&self, pending: &Pending<'_>) -> bool {
        self.enforced.contains(pending.hash)
    }

    /// Returns whether the layer enforces the refusals of a share of keys only.
    pub(super) fn is_sampled(&self) -> bool {
        self.enforced.is_of_some()
    }

    /// Returns whether a request may have to wait for a key or an answer.
    #[inline]
    pub(crate) fn may_wait(&self) -> bool {
        self.searches || self.asks
    }

    /// Begins a request that may wait, and owns its buckets. It waits for its tokens in a line.
    #[cold]
    pub(crate) fn begin(&self, line: Option<&Arc<WaitingLine>>) -> Box<Pending<'static>> {
        let mut parts = self.limits.iter().map(|limit| Part::on_heap(limit.new_bucket()));
        let mut pending = Pending::new(parts.next().expect("a layer has a limit"));
        pending.extend(parts);
        if let Some(line) = line {
            pending.wait_in(line);
        }
        Box::new(pending)
    }

    /// Counts a refused request. The 1st, 2nd, 4th, 8th and so on are examined for faults.
    pub(super) fn suspect(&self, counter: &AtomicU64, head: Head<'_>) {
        if count(counter).is_power_of_two() {
            self.examine(head);
        }
    }

    /// Reports each fault that a request shows, unless it was reported before.
    #[cold]
    pub(crate) fn examine(&self, head: Head<'_>) {
        for limit in &self.limits {
            limit.examine(head, &self.reported);
        }
    }

    /// Returns whether the response names its fields for a script of another origin.
    pub(super) fn is_exposed_to(&self, head: Head<'_>) -> bool {
        self.exposes && head.headers.contains_key(ORIGIN)
    }
}
