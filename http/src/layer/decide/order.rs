//! The decision of a layer on a request: its stages in their order.

use std::any::Any;
use std::hash::Hash;
use std::task::{Context, Poll, Waker, ready};

use super::account::account;
use super::passed::Verdict;
use super::request::{Pending, Ruling, Step};
use super::stages::{bans, exempt, keys, remote, search, take, wait};
use super::state::LayerState;
use crate::layer::limit::dyn_limit::DynLimit;
use crate::layer::limit::limit_by::LimitBy;
use crate::layer::limit::part::{BucketOf, Part};
use crate::request::key::Head;

/// Decides on a request to a layer whose first limit has keys of type `K`, and that never waits.
#[inline(never)]
pub(crate) fn decide_at_once<K>(state: &LayerState, head: Head<'_>) -> Verdict
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let (first, others) = state.limits.split_first().expect(ONE);
    let first: &LimitBy<K> = (&**first as &dyn Any).downcast_ref().expect(ONE);
    let mut bucket = BucketOf::<K>::empty();
    let mut pending = Pending::on_stack(&mut bucket);
    if !others.is_empty() {
        pending.extend(others.iter().map(|limit| Part::on_heap(limit.new_bucket())));
    }
    let mut context = Context::from_waker(Waker::noop());
    match state.rule(first, head, &mut pending, &mut context) {
        Poll::Ready(ruling) => account(state, first, head, &mut pending, ruling),
        Poll::Pending => unreachable!("a request waits only for a search or an answer"),
    }
}

const ONE: &str = "the layer was built with its first limit";

impl LayerState {
    /// Decides on a request that may wait, or goes on with its decision.
    pub(crate) fn decide(
        &self,
        head: Head<'_>,
        pending: &mut Pending<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Verdict> {
        let first = &*self.limits[0];
        let ruling = ready!(self.rule(first, head, pending, context));
        Poll::Ready(account(self, first, head, pending, ruling))
    }

    /// Decides on a request up to the ruling. It is neither counted nor applied.
    #[inline(always)]
    pub(super) fn rule<F: DynLimit + ?Sized>(
        &self,
        first: &F,
        head: Head<'_>,
        pending: &mut Pending<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Ruling>> {
        let mut ruling = None;
        if pending.step == Step::Arrive {
            ruling = exempt(self, head);
        }
        if pending.step <= Step::Search && ruling.is_none() {
            ready!(search(self, head, pending, context));
            ruling = keys(self, first, head, pending).or_else(|| bans(self, pending));
        }
        if pending.step <= Step::Answer && ruling.is_none() {
            ready!(remote(self, pending, context));
            ruling = take(self, first, pending);
        }
        if pending.delay.is_some() {
            return self.rule_after_wait(first, head, pending, ruling, context);
        }
        Poll::Ready(ruling)
    }

    /// Goes on with the ruling of a request that may wait: after the wait it takes again.
    #[cold]
    fn rule_after_wait<F: DynLimit + ?Sized>(
        &self,
        first: &F,
        head: Head<'_>,
        pending: &mut Pending<'_>,
        ruling: Option<Ruling>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Ruling>> {
        let ruling = ready!(wait(self, first, head, pending, ruling, context));
        Poll::Ready(ruling.or_else(|| take(self, first, pending)))
    }
}
