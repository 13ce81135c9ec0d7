//! The state of a request from its arrival to its decision.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::line::{InLine, WaitingLine};
use crate::layer::limit::dyn_limit::DynLimit;
use crate::layer::limit::limiter::AnswersFuture;
use crate::layer::limit::part::{Lent, LentFuture, Part, Refund, Role, SearchFuture};
use crate::request::check::Check;
use tollgate::{Clock, Denied, Granted, Moment};

/// A request and its limits. The only value that the stages of a decision change.
///
/// A request that never waits has it on the stack, with the bucket of the first limit beside it.
/// The future of a request that waits owns it.
pub(crate) struct Pending<'s> {
    /// The tokens that the request costs, once its keys are known.
    pub(crate) cost: u64,
    /// Hash of the first limit's key, or 0 if no share of keys is sampled.
    pub(crate) hash: u64,
    /// The number of limits that are enforced, and the index of the last one.
    pub(crate) enforced: usize,
    pub(crate) last_enforced: usize,
    /// The line in which the request may wait for its tokens.
    pub(crate) delay: Option<Box<Delay>>,
    pub(crate) step: Step,
    /// The decision of the limits.
    pub(crate) decision: Option<Result<Granted, Denied>>,
    /// The request's part at the first limit.
    pub(crate) first: Part<'s>,
    more: Option<Box<More<'s>>>,
}

/// The parts of a request that few layers have.
#[derive(Default)]
struct More<'s> {
    /// The request's part at the other limits.
    others: Vec<Part<'s>>,
    /// The searches or the answers that are not there, each with the index of its limit.
    under_way: Vec<(usize, Work)>,
}

/// The next step of a request, if it waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Step {
    Arrive,
    Search,
    Answer,
    Wait,
}

/// The wait of a request for its tokens.
pub(crate) struct Delay {
    pub(crate) line: Arc<WaitingLine>,
    pub(crate) in_line: Option<InLine>,
    /// The clock of the first limit, and its reading when the wait began.
    pub(crate) begun: Option<(Clock, Moment)>,
    pub(crate) waited: Duration,
    pub(crate) is_counted: bool,
}

/// The work of one limit that takes time, or of several.
pub(crate) enum Work {
    Search(SearchFuture),
    Answer(LentFuture),
    /// The answer to questions, each with the index of its limit.
    Answers(AnswersFuture, Vec<(usize, Refund)>),
}

/// The ruling of a stage. `at` is the index of a limit.
pub(crate) enum Ruling {
    /// The request is on the allow list.
    Exempt,
    /// A key is missing and needed, perhaps by a fault of the setup.
    NoKey { at: usize, check: Option<Check> },
    /// A limit refused, or has the fewest tokens left.
    Decided { at: usize, banned: bool },
}

impl<'s> Pending<'s> {
    /// Begins a request with the bucket of the first limit on the stack.
    #[inline(always)]
    pub(crate) fn on_stack(first: &'s mut (dyn Any + Send + Sync)) -> Pending<'s> {
        Pending::new(Part::on_stack(first))
    }

    #[inline(always)]
    pub(crate) fn new(first: Part<'s>) -> Pending<'s> {
        Pending {
            cost: 0,
            hash: 0,
            enforced: 0,
            last_enforced: 0,
            delay: None,
            step: Step::Arrive,
            decision: None,
            first,
            more: None,
        }
    }

    #[cold]
    fn more(&mut self) -> &mut More<'s> {
        self.more.get_or_insert_default()
    }

    /// Adds the parts of the request at the other limits.
    #[cold]
    pub(crate) fn extend(&mut self, others: impl Iterator<Item = Part<'s>>) {
        let parts = &mut self.more().others;
        parts.reserve_exact(others.size_hint().0);
        parts.extend(others);
    }

    /// Begins the work of a limit that takes time.
    pub(crate) fn begin(&mut self, at: usize, work: Work) {
        self.more().under_way.push((at, work));
    }

    #[inline(always)]
    pub(crate) fn part(&self, at: usize) -> &Part<'s> {
        match &self.more {
            Some(more) if at > 0 => &more.others[at - 1],
            _ => &self.first,
        }
    }

    #[inline(always)]
    pub(crate) fn part_mut(&mut self, at: usize) -> &mut Part<'s> {
        match &mut self.more {
            Some(more) if at > 0 => &mut more.others[at - 1],
            _ => &mut self.first,
        }
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part<'s>> {
        std::iter::once(&self.first).chain(self.more.iter().flat_map(|more| &more.others))
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part<'s>> {
        std::iter::once(&mut self.first).chain(self.more.iter_mut().flat_map(|more| &mut more.others))
    }

    /// Returns the indices of the limits with this role.
    pub(crate) fn with_role(&self, role: Role) -> impl Iterator<Item = usize> {
        self.parts().enumerate().filter(move |(_, part)| part.role == role).map(|(at, _)| at)
    }

    /// Notes the role of a limit.
    #[inline(always)]
    pub(crate) fn note(&mut self, at: usize) {
        if self.part(at).role == Role::Enforced {
            self.enforced += 1;
            self.last_enforced = at;
        }
    }

    /// Takes the tokens of one limit, unless its answer is there.
    #[inline(always)]
    pub(crate) fn take_at<L: DynLimit + ?Sized>(&self, limit: &L, at: usize) -> Result<Granted, Denied> {
        let part = self.part(at);
        match part.answer() {
            Some(answer) => answer,
            None => limit.take(part, self.cost),
        }
    }

    /// Spends the tokens that the limits with this role have lent.
    pub(crate) fn spend(&mut self, role: Role) {
        let lent = self.parts_mut().filter(|part| part.role == role).filter_map(Part::lent);
        lent.for_each(Lent::spend);
    }

    /// Gives the tokens back that are lent.
    pub(crate) fn give_back(&mut self) {
        self.parts_mut().for_each(|part| drop(part.lent()));
    }

    /// Lets the request wait in a line.
    pub(crate) fn wait_in(&mut self, line: &Arc<WaitingLine>) {
        let (line, in_line) = (line.clone(), None);
        self.delay =
            Some(Box::new(Delay { line, in_line, begun: None, waited: Duration::ZERO, is_counted: false }));
    }

    /// Returns the time that the request waited for its tokens.
    #[inline(always)]
    pub(crate) fn waited(&self) -> Duration {
        self.delay.as_ref().map_or(Duration::ZERO, |delay| delay.waited)
    }

    /// Returns whether limits may have lent their tokens.
    #[inline(always)]
    pub(crate) fn may_be_lent(&self) -> bool {
        self.step >= Step::Answer
    }

    /// Returns the first refusal among the answers that are there.
    pub(crate) fn refusal(&self) -> Option<(usize, Denied)> {
        self.with_role(Role::Enforced).find_map(|at| Some((at, self.part(at).answer()?.err()?)))
    }

    /// Notes the answer to several questions. After a refusal the others have none: they took
    /// nothing.
    fn answered(&mut self, answers: Result<Vec<Granted>, (usize, Denied)>, asked: Vec<(usize, Refund)>) {
        match answers {
            Ok(granted) => {
                for (granted, (at, refund)) in granted.into_iter().zip(asked) {
                    self.part_mut(at).answered((Ok(granted), Some(Lent::new(refund))));
                }
            }
            Err((which, denied)) => self.part_mut(asked[which].0).answered((Err(denied), None)),
        }
    }

    /// Goes on with all work that takes time.
    pub(crate) fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(more) = &mut self.more else { return Poll::Ready(()) };
        let mut under_way = std::mem::take(&mut more.under_way);
        under_way.retain_mut(|(at, work)| match work {
            Work::Search(search) => match search.as_mut().poll(context) {
                Poll::Ready(found) => {
                    self.part_mut(*at).set_found(found);
                    false
                }
                Poll::Pending => true,
            },
            Work::Answer(answer) => match answer.as_mut().poll(context) {
                Poll::Ready(answered) => {
                    self.part_mut(*at).answered(answered);
                    false
                }
                Poll::Pending => true,
            },
            Work::Answers(answers, asked) => match answers.as_mut().poll(context) {
                Poll::Ready(answers) => {
                    self.answered(answers, std::mem::take(asked));
                    false
                }
                Poll::Pending => true,
            },
        });
        let ended = if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending };
        self.more().under_way = under_way;
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::layer::limit::part::BucketOf;

    #[test]
    fn lent_tokens_go_back_unless_they_are_spent() {
        let back = Arc::new(AtomicU32::new(0));
        let lent = || {
            let back = back.clone();
            Lent::new(Box::new(move || _ = back.fetch_add(1, Ordering::Relaxed)))
        };
        lent().spend();
        assert_eq!(back.load(Ordering::Relaxed), 0);
        drop(lent());
        assert_eq!(back.load(Ordering::Relaxed), 1);
        let mut pending = Pending::new(Part::on_heap(Box::new(BucketOf::<u64>::empty())));
        let granted = Granted::from_parts(1, 0, std::time::Duration::ZERO);
        for (role, spent, gone) in [
            (Role::Enforced, Role::Enforced, 1),
            (Role::Enforced, Role::ShadowGranted, 2),
            (Role::Shadow, Role::Enforced, 3),
        ] {
            pending.first.role = role;
            pending.first.answered((Ok(granted), Some(lent())));
            pending.spend(spent);
            pending.give_back();
            assert_eq!(back.load(Ordering::Relaxed), gone);
        }
        pending.first.answered((Ok(granted), Some(lent())));
        drop(pending);
        assert_eq!(back.load(Ordering::Relaxed), 4, "a dropped request");
    }
}
