//! The decision of a layer on a request.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_utils::CachePadded;
use http::Response;
use http::header::{CACHE_CONTROL, ORIGIN};

use super::after::{After, Later, Notice, RefundOn};
use super::chain::{Ban, Decider, DynLimit, LayerRequest, LimitOutcome, Pass, Places, next};
use super::decision::{Decision, LimiterIds};
use super::key_future::{Replies, Searches};
use super::limit_by::ALL_KEYS;
use super::line::{Turn, WaitingLine};
use super::said::Said;
use super::settle::{Charged, SettleOn};
use super::stats::{LimitCounters, count};
use crate::http::grpc::NO_STORE;
use crate::http::{Bare, Exempt, Head, Headers, Policy, Refusal, Reject};
use crate::limiter::place::Place;
use crate::time::clock::nanos_of;
use crate::word::decision::{Denied, Reason};

pub(super) type CostOf = Box<dyn Fn(Head<'_>) -> u64 + Send + Sync>;
/// A function that sees each decision, the policy of the limit that decided, and its part in a ban.
pub(super) type LayerHook = Box<dyn Fn(Head<'_>, &Decision, &Policy, Ban) + Send + Sync>;

/// The state that all services of a layer share.
pub(crate) struct LayerState {
    pub(crate) limits: Box<[Arc<dyn DynLimit>]>,
    /// Ids of the limiters.
    pub(crate) ids: LimiterIds,
    pub(crate) cost: Option<CostOf>,
    pub(crate) skip: Option<Exempt>,
    pub(crate) exempt: Vec<Exempt>,
    pub(crate) hooks: Vec<LayerHook>,
    pub(crate) refund_on: Option<RefundOn>,
    pub(crate) settle_on: Option<SettleOn>,
    pub(crate) line: Option<WaitingLine>,
    /// Whether a limit has to search for its key, or to ask its limiter.
    pub(crate) searches: bool,
    /// Whether a limit has to ask its limiter.
    pub(crate) asks: bool,
    /// Whether the layer has no part that `decide_by` leaves out.
    pub(crate) is_plain: bool,
    /// Whether a request tells the upstream that it is over a limit.
    pub(crate) tells_upstream: bool,
    /// Whether scripts of other origins may read the fields.
    pub(crate) exposes: bool,
    /// Share of keys for which refusals are enforced, in units of 2^-32.
    pub(crate) enforced: u64,
    /// The responses of the user. `None`: those of [`Bare`].
    pub(crate) reject: Option<Box<dyn Reject<Bytes>>>,
    pub(crate) counters: CachePadded<LayerCounters>,
    pub(crate) said: Said,
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
}

/// The next step of a request.
pub(super) enum Action {
    /// Passes the request on with its decision; the response needs work.
    Pass(Option<Decision>, After),
    /// The same, after a wait.
    Delay(Box<Delay>),
    Refuse(Response<Bytes>),
}

/// A request that waits for its turn.
pub(super) struct Delay {
    pub(super) decision: Decision,
    pub(super) after: After,
    pub(super) turn: Box<Turn>,
}

/// Returns the limiters that counted the request in outer layers.
fn counted_before(head: Head<'_>) -> &[u64] {
    head.extensions.get::<Decision>().map_or(&[][..], |decision| decision.counted.as_slice())
}

impl LayerState {
    /// Counts a refused request. The 1st, 2nd, 4th, 8th and so on are examined for faults.
    fn suspect(&self, counter: &AtomicU64, head: Head<'_>) {
        if count(counter).is_power_of_two() {
            self.examine(head);
        }
    }

    /// Reports each fault that a request shows, unless it was reported before.
    #[cold]
    pub(crate) fn examine(&self, head: Head<'_>) {
        for limit in &self.limits {
            limit.examine(head, &self.said);
        }
    }

    /// Decides on a request whose keys are at hand.
    #[inline]
    pub(super) fn rule(&self, head: Head<'_>) -> Action {
        match self.unlimited(head) {
            None => self.decide(head, None),
            Some(counter) => LayerState::pass(counter),
        }
    }

    /// Returns the searches for the keys of a request and the questions to its limiters, unless it
    /// is passed on without them.
    #[cold]
    pub(super) fn search(&self, head: Head<'_>) -> Result<Searches, Box<Action>> {
        if let Some(counter) = self.unlimited(head) {
            return Err(Box::new(LayerState::pass(counter)));
        }
        let cost = self.asks.then(|| self.cost_of(head));
        let counted = counted_before(head);
        let limits = self.limits.iter().enumerate();
        let search = |(place, limit): (usize, &Arc<dyn DynLimit>)| {
            Some((place, limit.clone().search(head, cost.unwrap_or_default(), counted)?))
        };
        Ok(Searches::new(cost, limits.filter_map(search)))
    }

    fn cost_of(&self, head: Head<'_>) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(head))
    }

    /// Returns the counter of a request to which no limit applies.
    #[inline]
    fn unlimited(&self, head: Head<'_>) -> Option<&AtomicU64> {
        if self.exempt.iter().any(|exempt| exempt.applies(head)) {
            return Some(&self.counters.exempt);
        }
        self.skip.as_ref().filter(|skip| skip.applies(head)).map(|_| &self.counters.skipped)
    }

    #[cold]
    fn pass(counter: &AtomicU64) -> Action {
        count(counter);
        Action::Pass(None, After::NOTHING)
    }

    /// Decides on a request whose keys and replies are at hand.
    #[inline]
    pub(super) fn decide(&self, head: Head<'_>, replies: Option<&Replies>) -> Action {
        match self.is_plain {
            true => self.decide_by::<true>(head, None),
            false => self.decide_by::<false>(head, replies),
        }
    }

    /// Decides by the limits.
    ///
    /// In a plain layer no request waits, and no limit is in shadow mode by itself: the code for
    /// these is left out, as each request would pay for it.
    #[inline(never)]
    fn decide_by<const PLAIN: bool>(&self, head: Head<'_>, replies: Option<&Replies>) -> Action {
        let before = counted_before(head);
        let asked_for = if PLAIN { None } else { replies.and_then(|replies| replies.cost) };
        let mut asked = LayerRequest {
            head,
            cost: asked_for.unwrap_or_else(|| self.cost_of(head)),
            limits: self.limits.len(),
            said: &self.said,
            counted: before,
            sampled: (1..ALL_KEYS).contains(&self.enforced),
            hash: 0,
            decider: None,
            also: Vec::new(),
            adjusts: (!PLAIN && (self.refund_on.is_some() || self.settle_on.is_some())).then(Vec::new),
            over: None,
            silent: false,
            pass: if !PLAIN && self.line.is_some() { Pass::First } else { Pass::Only },
            replies,
        };
        let mut outcome = next(&mut asked, &self.limits, None);
        let mut turn = None;
        if let (false, Some(line), LimitOutcome::Decided(Err(_), _)) = (PLAIN, &self.line, &outcome)
            && !asked.silent
        {
            (outcome, turn) = self.stand_in_line(line, &mut asked);
        }
        let Some(Decider { policy, counters, ban }) = asked.decider else { return self.skipped() };
        let over = if PLAIN { None } else { asked.over };
        // The upper half, since the map's buckets have the same hash.
        let enforced = asked.hash >> 32 < self.enforced && (PLAIN || !asked.silent);
        let result = match outcome {
            LimitOutcome::Decided(result, _) => result,
            LimitOutcome::NoKey { check } if enforced => {
                self.suspect(&counters.rejected, head);
                let refusal = Refusal::new(head, None, &policy).with_check(check);
                return Action::Refuse(self.reject(&refusal));
            }
            _ => return self.skipped(),
        };
        let counted = match before {
            [] => self.ids.clone(),
            _ => [before, self.ids.as_slice()].concat().into(),
        };
        let delay = turn.as_deref().map_or(0, |turn: &Turn| nanos_of(turn.delay()));
        // A limit in shadow mode refuses a request that the others grant.
        let (shown, by, by_ban) = match &over {
            None => (result, &policy, ban),
            Some(over) => (Err(over.0), &over.1.policy, over.1.ban),
        };
        let decision = Decision { result: shown, cost: asked.cost, counted, delay };
        for hook in &self.hooks {
            hook(head, &decision, by, by_ban);
        }
        let notice = Notice { policy, also: asked.also };
        match (result, enforced) {
            (Ok(granted), _) => {
                count(over.as_ref().map_or(&counters.granted, |over| &over.1.counters.shadow_refused));
                let exposed = !PLAIN && self.is_exposed_to(head);
                let later = match (asked.adjusts, &turn) {
                    (None, None) if !exposed => None,
                    (adjusts, _) => {
                        let told = notice.policy.form != Headers::None;
                        let charged = Charged::new(adjusts.unwrap_or_default(), asked.cost);
                        let delay = Duration::from_nanos(if told { delay } else { 0 });
                        Some(Box::new(Later { delay, exposed, ..self.later(charged, counters) }))
                    }
                };
                let notice = (enforced && notice.has_grants()).then_some((notice, granted));
                let after = After { notice, later };
                match turn {
                    None => Action::Pass(Some(decision), after),
                    Some(turn) => self.delayed(decision, after, turn),
                }
            }
            (Err(denied), true) => {
                match ban {
                    Ban::Refuses => _ = count(&counters.banned),
                    Ban::None | Ban::Begins => self.suspect(&counters.refused, head),
                }
                let mut refusal = Refusal::new(head, Some(&denied), &notice.policy);
                refusal.ban = ban != Ban::None;
                Action::Refuse(self.refuse(&refusal, &notice, denied))
            }
            (Err(_), false) => {
                self.suspect(&counters.shadow_refused, head);
                // Another limit in shadow mode may have given its tokens.
                let given = asked.adjusts.filter(|adjusts| !PLAIN && !adjusts.is_empty());
                let later =
                    given.map(|adjusts| Box::new(self.later(Charged::new(adjusts, asked.cost), counters)));
                Action::Pass(Some(decision), After { notice: None, later })
            }
        }
    }

    /// Returns the work on a response that settles the tokens, and adds no header.
    #[cold]
    fn later(&self, charged: Charged, counters: &Arc<LimitCounters>) -> Later {
        Later {
            delay: Duration::ZERO,
            exposed: false,
            charged,
            refund_on: self.refund_on.clone(),
            settle_on: self.settle_on.clone(),
            counters: counters.clone(),
        }
    }

    /// Returns whether the response names its fields for a script of another origin.
    fn is_exposed_to(&self, head: Head<'_>) -> bool {
        self.exposes && head.headers.contains_key(ORIGIN)
    }

    /// Decides again on a refused request, by its place in line. Returns its turn if it has to
    /// wait.
    #[cold]
    fn stand_in_line<'a>(
        &'a self,
        line: &WaitingLine,
        asked: &mut LayerRequest<'a>,
    ) -> (LimitOutcome, Option<Box<Turn>>) {
        // In shadow mode no request waits.
        let enforced = asked.hash >> 32 < self.enforced;
        let in_line = if enforced { line.enter() } else { None };
        let max_wait = if in_line.is_some() { line.max_wait() } else { 0 };
        asked.decider = None;
        asked.also.clear();
        let max_waiting = line.bounds.of_a_key();
        asked.pass = Pass::InLine(Box::new(Places { max_wait, max_waiting, places: Vec::new() }));
        let outcome = next(asked, &self.limits, None);
        let Pass::InLine(line_of) = std::mem::replace(&mut asked.pass, Pass::Only) else {
            return (outcome, None);
        };
        let places = line_of.places;
        if !matches!(outcome, LimitOutcome::Decided(Ok(_), _)) {
            // The places are given back.
            let full = enforced && in_line.is_none();
            let outcome = match outcome {
                LimitOutcome::Decided(Err(denied), index) if full && denied.reason() == Reason::Empty => {
                    LimitOutcome::Decided(Err(denied.of_full_line(line.bounds.all())), index)
                }
                outcome => outcome,
            };
            return (outcome, None);
        }
        let turn = match in_line {
            Some(in_line) if places.iter().any(|place| place.first_timer().is_some()) => {
                Some(Box::new(line.wait(in_line, places)))
            }
            _ => {
                places.into_iter().for_each(Place::commit);
                None
            }
        };
        (outcome, turn)
    }

    #[cold]
    fn delayed(&self, decision: Decision, after: After, turn: Box<Turn>) -> Action {
        count(&self.counters.delayed);
        Action::Delay(Box::new(Delay { decision, after, turn }))
    }

    fn skipped(&self) -> Action {
        LayerState::pass(&self.counters.skipped)
    }

    /// Makes the response. No cache may store it, unless the response has a rule for caches.
    #[inline]
    fn reject(&self, refusal: &Refusal<'_>) -> Response<Bytes> {
        // Its responses are `no-store`.
        let Some(reject) = &self.reject else { return Bare.reject(refusal) };
        let mut response = reject.reject(refusal);
        response.headers_mut().entry(CACHE_CONTROL).or_insert(NO_STORE);
        response
    }

    #[inline(always)]
    fn refuse(&self, refusal: &Refusal<'_>, notice: &Notice, denied: Denied) -> Response<Bytes> {
        let mut response = self.reject(refusal);
        if !refusal.is_grpc() && notice.policy.form != Headers::None {
            notice.add(response.headers_mut(), denied.headers(&notice.policy));
            if self.is_exposed_to(refusal.head()) {
                notice.expose(response.headers_mut());
            }
        }
        response
    }
}
