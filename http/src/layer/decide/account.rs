//! The last stage of a decision: it is counted, shown, and applied or not.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::CACHE_CONTROL;

use super::after::{After, Later, Notice};
use super::decision::{Decision, counted_before};
use super::passed::{Passed, Verdict};
use super::request::{Pending, Ruling};
use super::settle::Charged;
use super::state::LayerState;
use crate::layer::limit::ban::Ban;
use crate::layer::limit::counts::count;
use crate::layer::limit::dyn_limit::DynLimit;
use crate::layer::limit::part::Role;
use crate::request::check::Check;
use crate::request::key::Head;
use crate::response::grpc::NO_STORE;
use crate::response::policy::{Headers, Policy};
use crate::response::refusal::{Bare, Refusal, Reject};
use tollgate::{Denied, Granted};

/// Counts the ruling of a request, and applies it unless the layer spares the key.
#[inline(always)]
pub(super) fn account<F: DynLimit + ?Sized>(
    state: &LayerState,
    first: &F,
    head: Head<'_>,
    pending: &mut Pending<'_>,
    ruling: Option<Ruling>,
) -> Verdict {
    match ruling {
        Some(Ruling::Decided { at, banned }) => match pending.decision.take() {
            Some(Ok(granted)) if at == 0 => granted_by(state, first, head, pending, 0, &granted),
            Some(Ok(granted)) => granted_by(state, &*state.limits[at], head, pending, at, &granted),
            Some(Err(denied)) if at == 0 => refused_by(state, first, head, pending, (0, banned), denied),
            Some(Err(denied)) => refused_by(state, &*state.limits[at], head, pending, (at, banned), denied),
            None => pass(state, &state.counters.skipped),
        },
        Some(Ruling::NoKey { at, check }) => without_key(state, head, pending, at, check),
        Some(Ruling::Exempt) => pass(state, &state.counters.exempt),
        None => undecided(state, head, pending),
    }
}

#[cold]
fn pass(state: &LayerState, counter: &AtomicU64) -> Verdict {
    count(counter);
    passed(state, None, After::NOTHING)
}

/// Passes a request on.
#[inline(always)]
fn passed(state: &LayerState, decision: Option<Decision>, after: After) -> Verdict {
    Verdict::Passed(Passed { decision, after, tells: state.forwards_headers })
}

#[cold]
fn without_key(
    state: &LayerState,
    head: Head<'_>,
    pending: &mut Pending<'_>,
    at: usize,
    check: Option<Check>,
) -> Verdict {
    pending.give_back();
    if !state.enforces(pending) {
        return pass(state, &state.counters.skipped);
    }
    let limit = &state.limits[at];
    state.suspect(&limit.counters().rejected, head);
    let policy = limit.policy(pending.part(at));
    Verdict::Refused(reject(state, &Refusal::new(head, None, &policy).with_check(check)))
}

/// A refusal of a limit that is not enforced.
struct Over {
    at: usize,
    denied: Denied,
    policy: Arc<Policy>,
    ban: Ban,
}

#[inline(always)]
fn granted_by<L: DynLimit + ?Sized>(
    state: &LayerState,
    limit: &L,
    head: Head<'_>,
    pending: &mut Pending<'_>,
    at: usize,
    granted: &Granted,
) -> Verdict {
    let policy = limit.policy(pending.part(at));
    let also = if pending.enforced > 1 { others(state, pending, at) } else { Vec::new() };
    let notice = Notice { policy, also };
    let decision = if state.shadows {
        beside_shadows(state, head, pending, at, &notice.policy, granted)
    } else {
        let decision = decision(state, head, pending, Ok(*granted));
        show(state, head, &decision, &notice.policy, Ban::None);
        count(&limit.counters().granted);
        decision
    };
    let later = match state.has_later() || !pending.waited().is_zero() {
        false => None,
        true => later(state, head, pending, at, notice.policy.form != Headers::None),
    };
    let notice = match state.enforces(pending) && notice.has_grants() {
        true => Some((notice, *granted)),
        false => None,
    };
    passed(state, Some(decision), After { notice, later })
}

/// Tries the limits in shadow mode beside the grant of the others. Counts the request, and returns
/// its decision.
#[cold]
fn beside_shadows(
    state: &LayerState,
    head: Head<'_>,
    pending: &mut Pending<'_>,
    at: usize,
    policy: &Policy,
    granted: &Granted,
) -> Decision {
    let (over, _) = in_shadow(state, pending);
    let result = over.as_ref().map_or(Ok(*granted), |over| Err(over.denied));
    let decision = decision(state, head, pending, result);
    match &over {
        None => {
            show(state, head, &decision, policy, Ban::None);
            count(&state.limits[at].counters().granted);
        }
        Some(over) => show_over(state, head, &decision, over),
    }
    decision
}

#[inline(never)]
fn refused_by<L: DynLimit + ?Sized>(
    state: &LayerState,
    limit: &L,
    head: Head<'_>,
    pending: &mut Pending<'_>,
    (at, banned): (usize, bool),
    mut denied: Denied,
) -> Verdict {
    if pending.may_be_lent() {
        pending.give_back();
    }
    let (policy, ban) = limit.refused(pending.part(at), pending.cost, &mut denied, banned);
    let is_enforced = state.enforces(pending);
    let counters = limit.counters();
    if !is_enforced || !state.hooks.is_empty() {
        let decision = decision(state, head, pending, Err(denied));
        show(state, head, &decision, &policy, ban);
        if !is_enforced {
            state.suspect(&counters.shadow_refused, head);
            return passed(state, Some(decision), After::NOTHING);
        }
    }
    match ban {
        Ban::Refuses => _ = count(&counters.banned),
        Ban::None | Ban::Begins => state.suspect(&counters.refused, head),
    }
    let also = if pending.enforced > 1 { others(state, pending, at) } else { Vec::new() };
    let notice = Notice { policy, also };
    let mut refusal = Refusal::new(head, Some(&denied), &notice.policy);
    refusal.ban = ban != Ban::None;
    let mut response = reject(state, &refusal);
    if !refusal.is_grpc() && notice.policy.form != Headers::None {
        notice.add(&mut response, notice.policy.fields(&Err(denied)));
        if state.is_exposed_to(head) {
            notice.expose(&mut response);
        }
    }
    Verdict::Refused(response)
}

/// Decides by the limits in shadow mode alone, if there are any.
#[cold]
fn undecided(state: &LayerState, head: Head<'_>, pending: &mut Pending<'_>) -> Verdict {
    let (over, last) = in_shadow(state, pending);
    let Some((at, granted)) = last else { return pass(state, &state.counters.skipped) };
    let shown = match (&over, granted) {
        (None, Some(granted)) => Ok(granted),
        (Some(over), _) => Err(over.denied),
        (None, None) => return pass(state, &state.counters.skipped),
    };
    let decision = decision(state, head, pending, shown);
    match &over {
        None => {
            let policy = state.limits[at].policy(pending.part(at));
            show(state, head, &decision, &policy, Ban::None);
            count(&state.limits[at].counters().granted);
        }
        Some(over) => show_over(state, head, &decision, over),
    }
    passed(state, Some(decision), After { notice: None, later: later(state, head, pending, at, false) })
}

/// Takes the tokens of each limit in shadow mode, the last limit first.
///
/// Returns the first refusal, which stands for the request, and the last limit with its grant.
#[cold]
fn in_shadow(
    state: &LayerState,
    pending: &mut Pending<'_>,
) -> (Option<Over>, Option<(usize, Option<Granted>)>) {
    let (mut over, mut last) = (None, None);
    for at in (0..state.limits.len()).rev() {
        if pending.part(at).role != Role::Shadow {
            continue;
        }
        let limit = &*state.limits[at];
        let banned = limit.check_ban(pending.part(at));
        let decision = banned.map_or_else(|| pending.take_at(limit, at), Err);
        last = last.or(Some((at, decision.ok())));
        match decision {
            Ok(_) => pending.part_mut(at).role = Role::ShadowGranted,
            Err(mut denied) => {
                let part = pending.part(at);
                let (policy, ban) = limit.refused(part, pending.cost, &mut denied, banned.is_some());
                over.get_or_insert(Over { at, denied, policy, ban });
            }
        }
    }
    pending.spend(Role::ShadowGranted);
    (over, last)
}

/// Returns the policies of the other limits that are enforced.
#[cold]
fn others(state: &LayerState, pending: &Pending<'_>, at: usize) -> Vec<Arc<Policy>> {
    let mut also = Vec::with_capacity(pending.enforced);
    let others = pending.with_role(Role::Enforced).filter(|other| *other != at);
    others.for_each(|at| also.push(state.limits[at].policy(pending.part(at))));
    also
}

#[inline(always)]
fn decision(
    state: &LayerState,
    head: Head<'_>,
    pending: &Pending<'_>,
    result: Result<Granted, Denied>,
) -> Decision {
    let counted = match counted_before(head) {
        [] => state.ids.clone(),
        before => [before, state.ids.as_slice()].concat().into(),
    };
    Decision { result, cost: pending.cost, counted, delay: pending.waited() }
}

#[inline(always)]
fn show(state: &LayerState, head: Head<'_>, decision: &Decision, policy: &Policy, ban: Ban) {
    for hook in &state.hooks {
        hook(head, decision, policy, ban);
    }
}

#[cold]
fn show_over(state: &LayerState, head: Head<'_>, decision: &Decision, over: &Over) {
    show(state, head, decision, &over.policy, over.ban);
    state.suspect(&state.limits[over.at].counters().shadow_refused, head);
}

/// Returns the rare work on a response. `tells`: a delay is reported.
#[cold]
fn later(
    state: &LayerState,
    head: Head<'_>,
    pending: &Pending<'_>,
    at: usize,
    tells: bool,
) -> Option<Box<Later>> {
    let exposed = state.is_exposed_to(head);
    let settles = state.refund_on.is_some() || state.settle_on.is_some();
    if !settles && !exposed && pending.waited().is_zero() {
        return None;
    }
    let mut charged = Charged::new(pending.cost);
    if settles {
        for (which, part) in pending.parts().enumerate() {
            if matches!(part.role, Role::Enforced | Role::ShadowGranted) {
                charged.push(state.limits[which].adjust(part, which == at));
            }
        }
    }
    Some(Box::new(Later {
        delay: if tells { pending.waited() } else { Duration::ZERO },
        exposed,
        charged,
        refund_on: state.refund_on.clone(),
        settle_on: state.settle_on.clone(),
        counters: state.limits[at].counters().clone(),
    }))
}

/// Makes the response. No cache may store it, unless the response has a rule for caches.
#[inline]
fn reject(state: &LayerState, refusal: &Refusal<'_>) -> Response<Bytes> {
    // Its responses are `no-store`.
    let Some(reject) = &state.reject else { return Bare.reject(refusal) };
    let mut response = reject.reject(refusal);
    response.headers_mut().entry(CACHE_CONTROL).or_insert(NO_STORE);
    response
}
