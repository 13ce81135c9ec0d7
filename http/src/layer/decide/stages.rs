//! The stages of a decision, each a function of the layer's state and the request.
//!
//! A stage returns a ruling, which ends the decision, or `None`: the next stage goes on. No stage
//! calls another one; [`order`](super::order) has the list.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::decision::counted_before;
use super::request::{Pending, Ruling, Step, Work};
use super::state::LayerState;
use crate::layer::limit::counts::count;
use crate::layer::limit::dyn_limit::DynLimit;
use crate::layer::limit::limiter::Question;
use crate::layer::limit::part::{Asked, Part, Refund, Role};
use crate::request::key::Head;
use tollgate::{Clock, Reason, Tokens, all_of};
use tollgate::{Denied, Granted};

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
        ask(state, pending);
    }
    pending.poll_work(context)
}

/// Questions that go with each other, and the index and the refund of each limit.
type Together = (Vec<Question>, Vec<(usize, Refund)>);

/// Asks the limiters that are not at hand, unless the key is banned. Questions that go with each
/// other are asked together, unless an answer is there that refuses the request.
fn ask(state: &LayerState, pending: &mut Pending<'_>) {
    let mut questions: Vec<Together> = Vec::new();
    for (at, limit) in state.limits.iter().enumerate() {
        let part = pending.part(at);
        if part.role == Role::Absent || limit.is_at_hand() || limit.check_ban(part).is_some() {
            continue;
        }
        match limit.ask(part, pending.cost) {
            Asked::Now(answered) => pending.part_mut(at).answered(answered),
            Asked::Later(answer) => pending.begin(at, Work::Answer(answer)),
            Asked::Together(question, refund) => {
                match questions.iter_mut().find(|(others, _)| others[0].goes_with(&question)) {
                    Some((others, asked)) => {
                        others.push(question);
                        asked.push((at, refund));
                    }
                    None => questions.push((vec![question], vec![(at, refund)])),
                }
            }
        }
    }
    if pending.refusal().is_none() {
        for (questions, asked) in questions {
            pending.begin(asked[0].0, Work::Answers(Question::ask(questions), asked));
        }
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
            pending.decision = Some(pending.take_at(first, 0));
            0
        }
        (1, at) => {
            pending.decision = Some(pending.take_at(&*state.limits[at], at));
            at
        }
        _ => take_several(state, pending),
    };
    if pending.may_be_lent() && matches!(pending.decision, Some(Ok(_))) {
        pending.spend(Role::Enforced);
    }
    Some(Ruling::Decided { at, banned: false })
}

/// Lets a request that is refused wait for the tokens of its limits, for at most the line's
/// `max_delay`.
///
/// Any other ruling is returned as it is, without a wait: a grant, a ban, an exemption, or a
/// refusal that is not enforced. So is a refusal by a limiter that is not at hand, which has no
/// line.
///
/// The first poll begins the waits, and the later ones go on with them. `None` is the end of all
/// waits with their tokens. The first refusal ends all waits, and the tokens that came are given
/// back. The decision is then that refusal. [`Reason::Line`] replaces [`Reason::Empty`] if the line
/// of the layer was full.
#[cold]
pub(super) fn wait<F: DynLimit + ?Sized>(
    state: &LayerState,
    first: &F,
    head: Head<'_>,
    pending: &mut Pending<'_>,
    ruling: Option<Ruling>,
    context: &mut Context<'_>,
) -> Poll<Option<Ruling>> {
    if pending.step != Step::Wait {
        let is_refused = matches!(ruling, Some(Ruling::Decided { banned: false, .. }))
            && matches!(pending.decision, Some(Err(_)));
        // A limiter that is not at hand has no line.
        if !is_refused || !state.enforces(pending) || pending.refusal().is_some() {
            return Poll::Ready(ruling);
        }
        begin_waits(state, first.clock(), head, pending);
    }
    let answered = pending.poll_work(context);
    let refusal = pending.refusal();
    let Some(delay) = &mut pending.delay else { return Poll::Ready(ruling) };
    if answered.is_pending() && refusal.is_none() {
        if !std::mem::replace(&mut delay.is_counted, true) {
            count(&state.counters.delayed);
        }
        return Poll::Pending;
    }
    if let Some((clock, begun)) = &delay.begun {
        delay.waited = clock.now().since(*begun);
    }
    if !delay.waited.is_zero() && !std::mem::replace(&mut delay.is_counted, true) {
        count(&state.counters.delayed);
    }
    let is_full = delay.in_line.take().is_none();
    let Some((at, denied)) = refusal else { return Poll::Ready(None) };
    pending.decision = Some(Err(match denied.reason() {
        Reason::Empty if is_full => full_line(denied),
        _ => denied,
    }));
    Poll::Ready(Some(Ruling::Decided { at, banned: false }))
}

/// Enters the line of the layer, and begins a wait at each enforced limit without an answer.
///
/// Without room in the line each wait is for 0 s: tokens that are there are still taken.
fn begin_waits(state: &LayerState, clock: Clock, head: Head<'_>, pending: &mut Pending<'_>) {
    pending.step = Step::Wait;
    let hashes = pending.with_role(Role::Enforced).filter_map(|at| {
        // The hash of no key is 0. A key has a line at each limit.
        let hash = state.limits[at].hash(pending.part(at));
        (hash != 0).then(|| hash.wrapping_add(at as u64))
    });
    let keys = hashes.collect();
    let Some(delay) = &mut pending.delay else { return };
    delay.begun = Some((clock.clone(), clock.now()));
    delay.in_line = delay.line.enter(&state.counters.waiting, head, keys);
    let max_wait = if delay.in_line.is_some() { delay.line.max_delay } else { Duration::ZERO };
    let (sleep, cost) = (delay.line.sleep.clone(), pending.cost);
    for at in 0..state.limits.len() {
        let part = pending.part(at);
        if part.role == Role::Enforced && part.answer().is_none() {
            let tokens = state.limits[at].wait(part, cost, max_wait, &sleep);
            pending.begin(at, Work::Answer(tokens));
        }
    }
}

/// Returns the refusal of the same tokens while the line of the layer is full.
fn full_line(denied: Denied) -> Denied {
    Denied::from_parts(Reason::Line, denied.asked(), 0, denied.retry_after())
}

/// Takes the tokens of several limits, unless an answer that is there is a refusal.
#[cold]
fn take_several(state: &LayerState, pending: &mut Pending<'_>) -> usize {
    if pending.refusal().is_some() {
        let refused = pending.with_role(Role::Enforced).filter_map(|at| {
            let (limit, part) = (&state.limits[at], pending.part(at));
            // A limiter that is not at hand has no answer, if another one refused the question.
            let look = || if limit.is_at_hand() { limit.look(part, pending.cost) } else { None };
            let denied = part.answer().map_or_else(look, Result::err);
            Some((at, denied?))
        });
        let longer =
            |a: (usize, Denied), b: (usize, Denied)| if wait_of(&b.1) > wait_of(&a.1) { b } else { a };
        if let Some((at, denied)) = refused.reduce(longer) {
            pending.decision = Some(Err(denied));
            return at;
        }
    }
    let (taken, mut at) = match chain(&state.limits, 0, pending, None) {
        Ok((granted, at)) => (Ok(granted), at),
        Err((denied, at)) => (Err(denied), at),
    };
    let mut decision = taken;
    if let Ok(mut tightest) = taken {
        for answered in pending.with_role(Role::Enforced) {
            let Some(Ok(granted)) = pending.part(answered).answer() else { continue };
            // Of equal limits, the first one decides.
            if (granted.remaining(), answered) < (tightest.remaining(), at) {
                (tightest, at) = (granted, answered);
            }
        }
        decision = Ok(tightest);
    }
    pending.decision = Some(decision);
    at
}

/// Returns the wait of a refusal; never counts as the longest.
fn wait_of(denied: &Denied) -> Duration {
    denied.retry_after().unwrap_or(Duration::MAX)
}

/// The limits so far, the latest first. Each link is on the stack of its limit.
struct Link<'a> {
    tokens: &'a dyn Tokens,
    at: usize,
    before: Option<&'a Link<'a>>,
}

/// The limits of a request that take no allocation.
const FEW: usize = 8;

/// Takes of all enforced limits without an answer, from index `at` on, and of those in the chain
/// `before`: of all, or of none. Returns the decision, and the index of the limit that decided.
///
/// It recurses once for each limit, so that the requests stay on the stack. The limit that decided
/// is the one that refuses for the longest time, or the one with the fewest tokens left.
///
/// # Panics
///
/// Panics if a limiter at hand does not call the closure of `with_tokens`, and grants the tokens.
fn chain(
    limits: &[Arc<dyn DynLimit>],
    at: usize,
    pending: &Pending<'_>,
    before: Option<&Link<'_>>,
) -> Result<(Granted, usize), (Denied, usize)> {
    let takes = |part: &Part<'_>| part.role == Role::Enforced && part.answer().is_none();
    let Some(at) = (at..limits.len()).find(|at| takes(pending.part(*at))) else {
        return take_chain(before);
    };
    let mut taken = None;
    limits[at].with_tokens(pending.part(at), pending.cost, &mut |tokens| {
        taken = Some(chain(limits, at + 1, pending, Some(&Link { tokens, at, before })));
    });
    // Only a limiter that refuses the request does not call the closure.
    taken.unwrap_or_else(|| match limits[at].take(pending.part(at), pending.cost) {
        Err(denied) => Err((denied, at)),
        Ok(_) => panic!("a limiter at hand grants tokens, and does not take them with others"),
    })
}

/// Takes of all limits of a chain, or of none, in the order of their indices.
///
/// An empty chain grants 0 tokens, with `u64::MAX` left and the index `usize::MAX`: any answer that
/// is there decides instead. More than [`FEW`] limits cost an allocation.
fn take_chain(last: Option<&Link<'_>>) -> Result<(Granted, usize), (Denied, usize)> {
    let Some(last) = last else { return Ok((Granted::from_parts(0, u64::MAX, Duration::ZERO), usize::MAX)) };
    let links = || std::iter::successors(Some(last), |link| link.before);
    let count = links().count();
    let index_of = |which: usize| links().nth(count - 1 - which).map_or(0, |link| link.at);
    let mut few = [last.tokens; FEW];
    let mut many = Vec::new();
    let all = match few.get_mut(..count) {
        Some(few) => few,
        None => {
            many.resize(count, last.tokens);
            &mut many[..]
        }
    };
    all.iter_mut().rev().zip(links()).for_each(|(tokens, link)| *tokens = link.tokens);
    let taken = all_of(&*all).try_acquire_tightest();
    taken
        .map(|(granted, which)| (granted, index_of(which)))
        .map_err(|denied| (denied.denied(), index_of(denied.which())))
}
