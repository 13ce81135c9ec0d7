//! The decision on a request whose hits are counted in a store.

use super::counts::{Counted, LimitCounts, UnixTime, Verb};
use super::decide::{Answering, Decision, DecisionOptions, Found, Problem};
use super::loaded::LoadedRules;
use super::messages::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use super::shared::{SharedCounts, Want};
use crate::rules::tree::RuleLimit;

/// Decides on a request, and counts its hits in a store. All that it needs of the store is asked at
/// the same time.
///
/// # Errors
///
/// As those of [`decide`].
pub(super) async fn decide_shared(
    loaded: &LoadedRules,
    counts: &LimitCounts,
    shared: &SharedCounts,
    options: &DecisionOptions,
    request: &RateLimitRequest,
    now: UnixTime,
) -> Result<RateLimitResponse, Problem> {
    Ok(Decision::new(loaded, counts, options, request, now)?.answer_shared(shared).await)
}

impl<'a> Decision<'a> {
    /// Does the same over a store: all descriptors find their limits, all limits are counted, and
    /// the statuses tell the results.
    async fn answer_shared(&self, shared: &SharedCounts) -> RateLimitResponse {
        let limits = self.limits();
        let found = &limits.list;
        let adds = match self.options.stops_when_over {
            true => {
                let wants = self.wants(found, |_, found| (Verb::Look, found.hits));
                let looked = counted(shared, wants, self.now).await;
                let is_over = |((_, found), looked): (&(_, Option<Found<'_>>), Option<Counted>)| {
                    let is_negative = found.as_ref().is_some_and(|found| found.is_negative);
                    !is_negative && looked.is_some_and(|looked| looked.is_over)
                };
                self.adding(found.iter().zip(looked).map(is_over).collect())
            }
            false => None,
        };
        let is_added = |index: usize| adds.as_ref().is_none_or(|adds| adds[index]);
        let wants = self.wants(found, |index, found| found.verb(is_added(index)));
        let all = counted(shared, wants, self.now).await;
        let mut answering = Answering::of(self.request);
        limits.tell(self, &all, &mut answering);
        self.end(answering)
    }

    /// Returns the want of each limit, and `None` for a descriptor without one.
    pub(super) fn wants<'w>(
        &'w self,
        found: &'w [(&'w RateLimitDescriptor, Option<Found<'a>>)],
        verb: impl Fn(usize, &Found<'_>) -> (Verb, u64),
    ) -> Vec<Option<Want<'w>>> {
        let want =
            |(index, (descriptor, found)): (usize, &'w (&'w RateLimitDescriptor, Option<Found<'a>>))| {
                let found = found.as_ref()?;
                let (verb, hits) = verb(index, found);
                Some(Want {
                    counter: &found.counter,
                    key: found.key,
                    domain: &self.request.domain,
                    entries: &descriptor.entries,
                    shared: match found.rule {
                        Some(rule) => &rule.shared,
                        None => self.rule(descriptor).map_or(&[], RuleLimit::shared_by_override),
                    },
                    place: found.rule.map_or(0, |rule| rule.place),
                    is_own_override: found.is_own_override,
                    // 0 hits look.
                    verb: if verb == Verb::Add && hits == 0 { Verb::Look } else { verb },
                    hits,
                    edge_us: 0,
                    counted: None,
                })
            };
        found.iter().enumerate().map(want).collect()
    }
}

/// Returns the results of the wants of all descriptors.
async fn counted(
    shared: &SharedCounts,
    mut wants: Vec<Option<Want<'_>>>,
    now: UnixTime,
) -> Vec<Option<Counted>> {
    shared.count_all(&mut wants, now).await;
    wants.into_iter().map(|want| want?.counted).collect()
}
