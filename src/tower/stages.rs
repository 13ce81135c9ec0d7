//! The stages of a decision, each a function of the layer's state and the request.
//!
//! A stage returns a ruling, which ends the decision, or `None`: the next stage goes on. No stage
//! calls another one; [`LayerState::decide`] has their order.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::decision::counted_before;
use super::dyn_limit::DynLimit;
use super::request::{Pending, Role, Ruling, Step, Work};
use super::state::LayerState;
use crate::http::Head;
use crate::limiter::all_of::{AllDenied, RequestAt, TakeOne, Tokens, take_all};
use crate::limiter::decided::DecidedLimit;
use crate::word::decision::{Denied, Granted};

/// Lets a request pass to which no limit applies.
#[inline(always)]
pub(super) fn exempt(state: &LayerState, head: Head<'_>) -> Option<Ruling> {
    state.exempt.iter().any(|exempt| exempt.applies(head)).then_some(Ruling::Exempt)
}

/// Searches for the keys that take time to find.
#[inline(always)]
pub(super) fn search(
    state: &LayerState,
    head: Head<'_>,
    pending: &mut Pending<'_>,
    context: &mut Context<'_>,
) -> Poll<()> {
    if !state.searches {
        return Poll::Ready(());
    }
    if pending.step == Step::Arrive {
        pending.step = Step::Search;
        let searches = state.limits.iter().enumerate();
        let searches = searches.filter_map(|(at, limit)| Some((at, limit.search(head)?)));
        searches.for_each(|(at, search)| pending.begin(at, Work::Search(search)));
    }
    pending.poll_work(context)
}

/// Finds the cost, and the key and the plan at each limit.
#[inline(always)]
pub(super) fn keys<F: DynLimit + ?Sized>(
    state: &LayerState,
    first: &F,
    head: Head<'_>,
    pending: &mut Pending<'_>,
) -> Option<Ruling> {
    pending.cost = state.cost.as_ref().map_or(1, |cost| cost(head));
    let counted = counted_before(head);
    let found = first.find(head, counted, &state.reported, &mut pending.first);
    // The first limit's key is sampled, even if only other limits apply.
    if state.is_sampled() {
        pending.hash = first.hash(&pending.first);
    }
    if let Err(check) = found {
        return Some(Ruling::NoKey { at: 0, check });
    }
    pending.note(0);
    for at in 1..state.limits.len() {
        let part = pending.part_mut(at);
        if let Err(check) = state.limits[at].find(head, counted, &state.reported, part) {
            return Some(Ruling::NoKey { at, check });
        }
        pending.note(at);
    }
    None
}

/// Refuses the request of a banned key.
#[inline(always)]
pub(super) fn bans(state: &LayerState, pending: &mut Pending<'_>) -> Option<Ruling> {
    if !state.bans {
        return None;
    }
    let banned = |at: usize| Some((at, state.limits[at].check_ban(pending.part(at))?));
    let (at, denied) = pending.with_role(Role::Enforced).find_map(banned)?;
    pending.decision = Some(Err(denied));
    Some(Ruling::Decided { at, banned: true })
}

/// Asks the limiters that are not at hand, and waits for their answers.
#[inline(always)]
pub(super) fn remote(state: &LayerState, pending: &mut Pending<'_>, context: &mut Context<'_>) -> Poll<()> {
    if !state.asks {
        return Poll::Ready(());
    }
    if pending.step != Step::Answer {
        pending.step = Step::Answer;
        state.limits.iter().enumerate().for_each(|(at, limit)| ask(&**limit, at, pending));
    }
    pending.poll_work(context)
}

/// Asks a limiter that is not at hand, unless the key is banned.
fn ask(limit: &dyn DynLimit, at: usize, pending: &mut Pending<'_>) {
    let part = pending.part(at);
    if part.role == Role::Absent || limit.is_at_hand() || limit.check_ban(part).is_some() {
        return;
    }
    match limit.ask(part, pending.cost) {
        Ok(answered) => pending.part_mut(at).answered(answered),
        Err(answer) => pending.begin(at, Work::Answer(answer)),
    }
}

/// Takes the tokens of all limits that are enforced, or of none.
#[inline(always)]
pub(super) fn take<F: DynLimit + ?Sized>(
    state: &LayerState,
    first: &F,
    pending: &mut Pending<'_>,
) -> Option<Ruling> {
    let at = match (pending.enforced, pending.last_enforced) {
        (0, _) => return None,
        (1, 0) => {
            pending.decision = Some(take_one(first, pending, 0));
            0
        }
        (1, at) => {
            pending.decision = Some(take_one(&*state.limits[at], pending, at));
            at
        }
        _ => take_several(state, pending),
    };
    if state.asks && matches!(pending.decision, Some(Ok(_))) {
        pending.spend(Role::Enforced);
    }
    Some(Ruling::Decided { at, banned: false })
}

/// Takes the tokens of one limit, unless its answer is there.
#[inline(always)]
pub(super) fn take_one<L: DynLimit + ?Sized>(
    limit: &L,
    pending: &Pending<'_>,
    at: usize,
) -> Result<Granted, Denied> {
    let part = pending.part(at);
    match part.answer() {
        Some(answer) => answer,
        None => limit.take(part, pending.cost),
    }
}

#[cold]
fn take_several(state: &LayerState, pending: &mut Pending<'_>) -> usize {
    let (which, decision) = match chain(&state.limits, 0, pending, None) {
        Ok((granted, which)) => (which, Ok(granted)),
        Err(denied) => (denied.which(), Err(denied.denied())),
    };
    pending.decision = Some(decision);
    pending.with_role(Role::Enforced).nth(which).unwrap_or_default()
}

/// The limits so far, the latest first. Each link is on the stack of its limit.
struct LimitChain<'a> {
    limit: &'a dyn TakeOne,
    before: Option<&'a LimitChain<'a>>,
    index: usize,
}

impl RequestAt for LimitChain<'_> {
    fn request_at(&self, index: usize) -> Option<&dyn TakeOne> {
        match index.cmp(&self.index) {
            std::cmp::Ordering::Greater => None,
            std::cmp::Ordering::Equal => Some(self.limit),
            std::cmp::Ordering::Less => self.before.and_then(|before| before.request_at(index)),
        }
    }
}

/// Puts the limits from index `at` on into the chain, and takes of all.
fn chain(
    limits: &[Arc<dyn DynLimit>],
    at: usize,
    pending: &Pending<'_>,
    before: Option<&LimitChain<'_>>,
) -> Result<(Granted, usize), AllDenied> {
    let Some(at) = (at..limits.len()).find(|at| pending.part(*at).role == Role::Enforced) else {
        return before.map_or(Ok((Granted::anyway(0, u64::MAX), 0)), take_all);
    };
    let (part, index) = (pending.part(at), before.map_or(0, |before| before.index + 1));
    let mut taken = None;
    let mut then = |limit: &dyn Tokens| {
        taken = Some(chain(limits, at + 1, pending, Some(&LimitChain { limit, before, index })));
    };
    match part.answer() {
        Some(decision) => limits[at].with_clock(&mut |clock| then(&DecidedLimit { decision, clock })),
        None => limits[at].with_tokens(part, pending.cost, &mut then),
    }
    taken.expect("a limiter at hand calls the closure")
}
