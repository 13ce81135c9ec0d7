//! The state of a request from its arrival to its decision.

use super::line::{InLine, WaitingLine};
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::{Clock, Moment};

use super::limiter::{LayerPlan, LayerRequest};
use crate::request::check::Check;
use tollgate::{Denied, Granted};

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

/// The work of one limit that takes time.
pub(crate) enum Work {
    Search(SearchFuture),
    Answer(LentFuture),
}

/// The question to a limiter that is not at hand.
pub(crate) type LentFuture = Pin<Box<dyn Future<Output = LentAnswer> + Send>>;

/// The decision of a limiter, with the tokens that it granted.
pub(crate) type LentAnswer = (Result<Granted, Denied>, Option<Lent>);

/// The search for a key: an `Option<K>`.
pub(crate) type SearchFuture = Pin<Box<dyn Future<Output = Box<dyn Any + Send + Sync>> + Send>>;

/// A request at one limit.
pub(crate) struct Part<'s> {
    pub(crate) role: Role,
    bucket: AnyBucket<'s>,
    /// The parts of few requests.
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    /// The result of the search for the key.
    found: Option<Box<dyn Any + Send + Sync>>,
    /// The answer of a limiter that is not at hand.
    answer: Option<Result<Granted, Denied>>,
    /// The tokens of the answer, until the request is granted.
    lent: Option<Lent>,
}

/// The part of a limit in the decision.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The limit does not apply.
    Absent,
    Enforced,
    /// The limit decides, and its refusal is not applied.
    Shadow,
    /// A limit in shadow mode has granted its tokens.
    ShadowGranted,
}

/// A [`BucketOf`] the keys of a limit.
enum AnyBucket<'s> {
    Stack(&'s mut (dyn Any + Send + Sync)),
    Heap(Box<dyn Any + Send + Sync>),
}

/// The bucket of a request at one limit.
#[derive(Clone)]
pub(crate) struct BucketOf<K> {
    pub(crate) key: Option<K>,
    pub(crate) plan: Option<LayerPlan>,
}

impl<K> BucketOf<K> {
    #[inline(always)]
    pub(crate) fn empty() -> BucketOf<K> {
        BucketOf { key: None, plan: None }
    }

    pub(crate) fn request(&self, n: u64) -> LayerRequest<'_, K> {
        LayerRequest { key: self.key.as_ref(), plan: self.plan.as_ref(), n }
    }
}

/// Tokens that a limiter has granted before the other limits decide. A drop gives them back.
pub(crate) struct Lent(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Lent {
    pub(crate) fn new(refund: impl FnOnce() + Send + Sync + 'static) -> Lent {
        Lent(Some(Box::new(refund)))
    }

    /// Spends the tokens.
    pub(crate) fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(refund) = self.0.take() {
            refund();
        }
    }
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

impl<'s> Part<'s> {
    fn new(bucket: AnyBucket<'s>) -> Part<'s> {
        Part { role: Role::Absent, bucket, rare: None }
    }

    pub(crate) fn on_heap(bucket: Box<dyn Any + Send + Sync>) -> Part<'s> {
        Part::new(AnyBucket::Heap(bucket))
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Notes the answer of the limiter.
    pub(crate) fn answered(&mut self, (decision, lent): LentAnswer) {
        let rare = self.rare();
        (rare.answer, rare.lent) = (Some(decision), lent);
    }

    /// Returns the answer of the limiter, if it is there.
    #[inline(always)]
    pub(crate) fn answer(&self) -> Option<Result<Granted, Denied>> {
        self.rare.as_ref()?.answer
    }

    /// Takes the result of the search.
    pub(crate) fn found(&mut self) -> Option<Box<dyn Any + Send + Sync>> {
        self.rare.as_mut()?.found.take()
    }

    fn lent(&mut self) -> Option<Lent> {
        self.rare.as_mut()?.lent.take()
    }

    #[inline(always)]
    pub(crate) fn bucket<K: 'static>(&self) -> &BucketOf<K> {
        let any: &(dyn Any + Send + Sync) = match &self.bucket {
            AnyBucket::Stack(bucket) => *bucket,
            AnyBucket::Heap(bucket) => &**bucket,
        };
        any.downcast_ref().expect(ITS_OWN)
    }

    #[inline(always)]
    pub(crate) fn bucket_mut<K: 'static>(&mut self) -> &mut BucketOf<K> {
        let any: &mut (dyn Any + Send + Sync) = match &mut self.bucket {
            AnyBucket::Stack(bucket) => *bucket,
            AnyBucket::Heap(bucket) => &mut **bucket,
        };
        any.downcast_mut().expect(ITS_OWN)
    }
}

const ITS_OWN: &str = "the limit made the part";

impl<'s> Pending<'s> {
    /// Begins a request with the bucket of the first limit on the stack.
    #[inline(always)]
    pub(crate) fn on_stack(first: &'s mut (dyn Any + Send + Sync)) -> Pending<'s> {
        Pending::new(Part::new(AnyBucket::Stack(first)))
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
    pub(crate) fn with_line(mut self, line: &Arc<WaitingLine>) -> Pending<'s> {
        let (line, in_line) = (line.clone(), None);
        self.delay =
            Some(Box::new(Delay { line, in_line, begun: None, waited: Duration::ZERO, is_counted: false }));
        self
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

    /// Goes on with all work that takes time.
    pub(crate) fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(more) = &mut self.more else { return Poll::Ready(()) };
        let mut under_way = std::mem::take(&mut more.under_way);
        under_way.retain_mut(|(at, work)| match work {
            Work::Search(search) => match search.as_mut().poll(context) {
                Poll::Ready(found) => {
                    self.part_mut(*at).rare().found = Some(found);
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

    #[test]
    fn lent_tokens_go_back_unless_they_are_spent() {
        let back = Arc::new(AtomicU32::new(0));
        let lent = || {
            let back = back.clone();
            Lent::new(move || _ = back.fetch_add(1, Ordering::Relaxed))
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
