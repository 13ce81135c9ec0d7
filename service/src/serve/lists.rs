//! Lists of limits: a descriptor whose hits several limits count, each by itself.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::counts::{Counted, LimitCounts, UnixTime, Verb};
use super::decide::{Decision, DecisionOptions, Found};
use super::loaded::LoadedRules;
use super::messages::{Code, DescriptorStatus, RateLimitDescriptor, RateLimitRequest};

impl<'a> Decision<'a> {
    /// Returns the further limits of a list.
    #[inline]
    pub(super) fn further<'f>(
        &'f self,
        first: Option<&'f Found<'a>>,
    ) -> impl Iterator<Item = Found<'a>> + 'f {
        let more = first.and_then(|first| Some((first, first.rule?)));
        more.into_iter().flat_map(|(first, rule)| {
            rule.more.iter().map(|limit| Found {
                rule: Some(limit),
                counter: Cow::Borrowed(self.loaded.counter(limit)),
                ..*first
            })
        })
    }

    /// Returns the status of a list: that of the limit that leaves the fewest hits. Of those that
    /// refuse it is the one with the longest wait.
    #[cold]
    pub(super) fn tightest(
        &self,
        descriptor: &RateLimitDescriptor,
        first: DescriptorStatus,
        more: &[(Found<'_>, Option<Counted>)],
    ) -> DescriptorStatus {
        let of = |(found, counted): &(Found<'_>, Option<Counted>)| {
            Some(self.status(descriptor, found, counted.as_ref()?))
        };
        let order = |status: &DescriptorStatus| {
            let wait = status.duration_until_reset.map_or(0, |reset| reset.seconds);
            (status.code() != Code::OverLimit, status.limit_remaining, Reverse(wait))
        };
        std::iter::once(first.clone()).chain(more.iter().filter_map(of)).min_by_key(order).unwrap_or(first)
    }

    /// Calls a function with each limit that would refuse the hits of a request.
    fn each_over(&self, see: &mut dyn FnMut(u32)) {
        let replaced = self.replaced();
        for descriptor in &self.request.descriptors {
            let first = self.find(descriptor, &replaced);
            let more: Vec<_> = self.further(first.as_ref()).collect();
            for found in more.into_iter().chain(first) {
                let counted = self.count(&found, (Verb::Look, found.hits));
                if let Some(rule) = found.rule.filter(|_| counted.is_some_and(|counted| counted.is_over)) {
                    see(rule.id);
                }
            }
        }
    }
}

/// Returns the limits that would refuse the hits of a request.
pub(crate) fn over(
    loaded: &LoadedRules,
    counts: &LimitCounts,
    request: &RateLimitRequest,
    now: UnixTime,
) -> Vec<u32> {
    let (options, mut over) = (DecisionOptions::default(), Vec::new());
    if let Ok(decision) = Decision::new(loaded, counts, &options, request, now) {
        decision.each_over(&mut |limit| over.push(limit));
    }
    over
}
