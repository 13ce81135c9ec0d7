//! Lists of limits: a descriptor whose hits several limits count, each by itself.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::counts::{Counted, LimitCounts, UnixTime, Verb};
use super::decide::{Answering, Decision, DecisionOptions, Found};
use super::loaded::LoadedRules;
use super::messages::{Code, DescriptorStatus, RateLimitDescriptor, RateLimitRequest};
use super::reserve::id::LimitPlace;

/// All limits of a request, in the order of its descriptors.
pub(super) struct Limits<'a> {
    /// A descriptor without a limit has `None`.
    pub(super) list: Vec<(&'a RateLimitDescriptor, Option<Found<'a>>)>,
    /// The place of the first limit of each descriptor.
    firsts: Vec<usize>,
}

impl<'a> Limits<'a> {
    /// Returns each limit with its place: the descriptor, and the place in the list of its rule.
    pub(super) fn each(
        &self,
    ) -> impl Iterator<Item = (LimitPlace, &'a RateLimitDescriptor, Option<&Found<'a>>)> {
        let mut descriptor = 0;
        self.list.iter().enumerate().map(move |(index, (asked, found))| {
            while self.firsts.get(descriptor + 1).is_some_and(|first| *first <= index) {
                descriptor += 1;
            }
            let place = (descriptor as u32, (index - self.firsts[descriptor]) as u32);
            (place, *asked, found.as_ref())
        })
    }

    /// Replaces each limit.
    pub(super) fn change(&mut self, by: impl Fn(Found<'a>) -> Found<'a>) {
        self.list.iter_mut().for_each(|(_, found)| *found = found.take().map(&by));
    }

    /// Adds the status of each descriptor, by the results of all limits.
    #[inline(never)]
    pub(super) fn tell(
        &self,
        decision: &Decision<'_>,
        counted: &[Option<Counted>],
        answering: &mut Answering,
    ) {
        let ends = self.firsts.iter().skip(1).copied().chain([self.list.len()]);
        for (first, end) in self.firsts.iter().copied().zip(ends) {
            // One that no store counts has no status.
            let first = (first..end).find(|index| counted[*index].is_some()).unwrap_or(first);
            let (descriptor, found) = &self.list[first];
            let more = self.list[first + 1..end].iter().zip(&counted[first + 1..end]);
            let more: Vec<_> =
                more.filter_map(|((_, found), counted)| Some((found.as_ref()?, *counted))).collect();
            decision.add_status(descriptor, found.as_ref(), counted[first], &more, answering);
        }
    }
}

impl Found<'_> {
    /// Returns whether its rule has further limits.
    #[inline(always)]
    pub(super) fn is_of_list(&self) -> bool {
        self.rule.is_some_and(|rule| !rule.more.is_empty())
    }
}

impl<'a> Decision<'a> {
    /// Returns all limits of the request. A plain decision keeps its own steps inlined.
    #[inline(never)]
    pub(super) fn limits(&self) -> Limits<'a> {
        let replaced = self.replaced();
        let (mut list, mut firsts) = (Vec::new(), Vec::new());
        for descriptor in &self.request.descriptors {
            let first = self.find(descriptor, &replaced);
            let more: Vec<_> = self.further(first.as_ref()).map(|more| (descriptor, Some(more))).collect();
            firsts.push(list.len());
            list.push((descriptor, first));
            list.extend(more);
        }
        Limits { list, firsts }
    }

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

    /// Counts the further limits of a list, and adds the status of all. Returns their number.
    #[cold]
    #[inline(never)]
    pub(super) fn answer_list(
        &self,
        descriptor: &RateLimitDescriptor,
        (first, counted): (&Found<'a>, Option<Counted>),
        adds: Option<&[bool]>,
        answering: &mut Answering,
    ) -> usize {
        let further: Vec<_> = self.further(Some(first)).collect();
        let count = |(index, found): (usize, _)| {
            let is_added = adds.is_none_or(|adds| adds[index]);
            (found, self.count(found, Found::verb(found, is_added)))
        };
        let more: Vec<_> = further.iter().enumerate().map(count).collect();
        self.add_status(descriptor, Some(first), counted, &more, answering);
        more.len()
    }

    /// Returns the status of a list: that of the limit that leaves the fewest hits. Of those that
    /// refuse it is the one with the longest wait.
    #[cold]
    pub(super) fn tightest(
        &self,
        descriptor: &RateLimitDescriptor,
        first: DescriptorStatus,
        more: &[(&Found<'_>, Option<Counted>)],
    ) -> DescriptorStatus {
        let of = |(found, counted): &(&Found<'_>, Option<Counted>)| {
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
                let is_over = counted.is_some_and(|counted| counted.is_over);
                if let Some(rule) = found.rule.filter(|rule| is_over && !rule.shadow) {
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
