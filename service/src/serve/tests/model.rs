//! The rules of a decision once more, with vectors and a map: slow and plain.

use std::collections::HashMap;

use super::rules::{Amount, Rule, UNITS};
use crate::serve::decide::DecisionOptions;
use crate::serve::limiters::MOST;
use crate::serve::messages::{RateLimitDescriptor, RateLimitRequest};

/// A fault of the model, which a walk is to see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    CountStopsAtTheLimit,
    RefusalDoesNotCount,
    NegativeHitsBelowZero,
    ResetOfAnUnusedKey,
}

/// The code of a status, its limit, the hits left, and the seconds until the reset.
pub(super) type Status = (i32, Option<(u32, i32)>, u32, Option<i64>);

/// The overall code, the statuses, and the values of the three headers.
pub(super) type Answer = (i32, Vec<Status>, Option<[i64; 3]>);

#[derive(Default)]
pub(super) struct Model {
    pub(super) rules: Vec<Rule>,
    pub(super) options: DecisionOptions,
    /// The window and its count, by the key of the count and the unit.
    pub(super) counts: HashMap<(String, usize), (u64, i128)>,
    /// The unit in which the rules count a key.
    pub(super) homes: HashMap<String, usize>,
    /// Total, over, near, within, shadow and negative hits.
    pub(super) statistics: HashMap<String, [u64; 6]>,
    pub(super) fault: Option<Fault>,
    /// The counts are in a store, which has one for each unit.
    pub(super) is_shared: bool,
}

/// The limit of a descriptor.
struct Found {
    amount: Amount,
    key: (String, usize),
    is_override: bool,
    hits: i128,
    rule: Rule,
    statistics: String,
}

impl Model {
    pub(super) fn decide(&mut self, request: &RateLimitRequest, now: u64) -> Answer {
        let found: Vec<_> = request.descriptors.iter().map(|each| self.find(request, each)).collect();
        let replaced: Vec<_> = found.iter().flatten().map(|found| found.rule.replaces).collect();
        let is_replaced = |found: &Found| {
            !found.rule.name.is_empty()
                && replaced.contains(&found.rule.name)
                && matches!(found.amount, Amount::Window(..))
        };
        let found: Vec<_> =
            found.into_iter().map(|found| found.filter(|found| !is_replaced(found))).collect();
        let over: Vec<_> = found
            .iter()
            .zip(&request.descriptors)
            .map(|(found, descriptor)| {
                let would_be = |found: &Found| match found.amount {
                    Amount::Window(unit, limit) => {
                        if self.options.stops_when_over {
                            self.carry(found, now);
                        }
                        self.count(&found.key, unit, now) + found.hits > limit.into()
                    }
                    Amount::Unlimited => false,
                };
                !descriptor.is_negative_hits && found.as_ref().is_some_and(would_be)
            })
            .collect();
        let stops = self.options.stops_when_over && over.contains(&true);
        let (mut statuses, mut refused, mut quotas) = (Vec::new(), false, Vec::new());
        for (index, (found, descriptor)) in found.iter().zip(&request.descriptors).enumerate() {
            let Some(found) = found else {
                if self.options.is_quota {
                    quotas.push(false);
                }
                statuses.push((1, None, 0, None));
                continue;
            };
            let is_added = !stops || over[index];
            let status = self.status(found, descriptor, is_added, now);
            if status.1.is_some() {
                match found.rule.quota || self.options.is_quota {
                    true => quotas.push(status.0 == 2),
                    false => refused |= status.0 == 2,
                }
            }
            statuses.push(status);
        }
        let is_over = refused || !quotas.is_empty() && !quotas.contains(&false);
        let code = if is_over && !self.options.is_shadow { 2 } else { 1 };
        (code, statuses.clone(), self.options.headers.as_ref().and_then(|_| headers(&statuses)))
    }

    fn count(&self, key: &(String, usize), unit: usize, now: u64) -> i128 {
        self.counts
            .get(key)
            .filter(|(window, _)| *window == window_at(unit, now).0)
            .map_or(0, |(_, count)| *count)
    }

    /// The count of a key is in one unit for the rules: a reload that changes it takes it along.
    fn carry(&mut self, found: &Found, now: u64) {
        let (key, unit) = &found.key;
        if found.is_override || self.is_shared {
            return;
        }
        if let Some(home) = self.homes.insert(key.clone(), *unit)
            && home != *unit
        {
            let there = self.count(&(key.clone(), home), home, now);
            let here = self.count(&found.key, *unit, now).max(there);
            self.counts.remove(&(key.clone(), home));
            self.counts.insert(found.key.clone(), (window_at(*unit, now).0, here));
        }
    }

    fn status(
        &mut self,
        found: &Found,
        descriptor: &RateLimitDescriptor,
        is_added: bool,
        now: u64,
    ) -> Status {
        let Amount::Window(unit, limit) = found.amount else {
            return (1, None, u32::MAX, None);
        };
        self.carry(found, now);
        let before = self.count(&found.key, unit, now);
        let (window, mut reset) = window_at(unit, now);
        let limit = i128::from(limit);
        let after = match (descriptor.is_negative_hits, is_added) {
            (true, _) if self.fault == Some(Fault::NegativeHitsBelowZero) => before - found.hits,
            (true, _) => (before - found.hits).max(0),
            (false, true) => before + found.hits,
            (false, false) => before,
        };
        let counted = match self.fault {
            Some(Fault::CountStopsAtTheLimit) => after.min(limit.max(before)),
            Some(Fault::RefusalDoesNotCount) if after > limit => before,
            Some(Fault::ResetOfAnUnusedKey) if before == 0 => {
                reset = 1;
                after
            }
            _ => after.min(MOST.into()),
        };
        self.counts.insert(found.key.clone(), (window, counted));
        let is_over = after > limit && !descriptor.is_negative_hits;
        self.record(found, descriptor.is_negative_hits, is_added, before, after, limit);
        let left = (limit - after).clamp(0, u32::MAX.into()) as u32;
        let code = if is_over && !found.rule.shadow { 2 } else { 1 };
        (code, Some((limit as u32, UNITS[unit].1)), left, Some(reset as i64))
    }

    fn record(
        &mut self,
        found: &Found,
        is_negative: bool,
        is_added: bool,
        before: i128,
        after: i128,
        limit: i128,
    ) {
        let near = (limit as f32 * self.options.near_limit_ratio).floor() as i128;
        let [total, over, near_hits, within, shadow, negative] =
            self.statistics.entry(found.statistics.clone()).or_default();
        let add =
            |counter: &mut u64, hits: i128| *counter = counter.wrapping_add(hits.min(u64::MAX.into()) as u64);
        if is_negative {
            return add(negative, found.hits);
        }
        add(total, found.hits);
        let hits = if is_added { found.hits } else { 0 };
        if after > limit {
            let beyond = if before >= limit { hits } else { after - limit };
            add(over, beyond);
            add(near_hits, if before >= limit { 0 } else { limit - near.max(before) });
            add(shadow, if found.rule.shadow { beyond } else { 0 });
        } else {
            add(within, found.hits);
            add(near_hits, found.hits.min((after - near).max(0)));
        }
    }

    /// Returns the limit of a descriptor, whatever is replaced.
    fn find(&self, request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Option<Found> {
        if request.domain != "d" {
            return None;
        }
        let hits = descriptor.hits_addend.map_or(i128::from(request.hits_addend).max(1), i128::from);
        let (mut level, mut path) = (&self.rules, Vec::new());
        for entry in &descriptor.entries {
            let of_key = || level.iter().filter(|rule| rule.key == entry.key);
            let exact = of_key().find(|rule| !rule.value.is_empty() && rule.value == entry.value);
            let wildcard = of_key().find(|rule| rule.matches(&entry.value));
            let Some(rule) = exact.or(wildcard).or_else(|| of_key().find(|rule| rule.value.is_empty()))
            else {
                path.clear();
                break;
            };
            path.push(rule);
            level = &rule.below;
        }
        let rule = path.last().filter(|rule| rule.limit.is_some());
        let as_asked = || descriptor.entries.iter().map(|entry| joined(&entry.key, &entry.value));
        let name = |parts: &mut dyn Iterator<Item = String>| {
            parts.fold("d".to_owned(), |name, part| name + "." + &part)
        };
        if let Some(limit) = descriptor.limit
            && let Some(unit) = UNITS.iter().position(|(_, number, _)| *number == limit.unit)
        {
            let is_shared = rule
                .is_some_and(|rule| matches!(rule.limit, Some(Amount::Window(of, _)) if of == unit))
                && !path.iter().any(|rule| rule.shares);
            let own = if is_shared { "" } else { "override" };
            let key = (format!("{:?}{own}", as_asked().collect::<Vec<_>>()), unit);
            let statistics = name(&mut as_asked());
            return Some(Found {
                amount: Amount::Window(unit, limit.requests_per_unit),
                key,
                is_override: !is_shared,
                hits,
                rule: Rule::default(),
                statistics,
            });
        }
        let rule = (*rule?).clone();
        let of_level = |by_text: &dyn Fn(&Rule) -> bool| -> Vec<String> {
            let levels = path.iter().zip(as_asked());
            levels
                .map(|(level, asked)| if by_text(level) { joined(level.key, level.value) } else { asked })
                .collect()
        };
        let unit = if let Some(Amount::Window(unit, _)) = rule.limit { unit } else { 0 };
        let key = (format!("{:?}", of_level(&|level| level.shares)), unit);
        let statistics = name(&mut of_level(&|level| level.is_fixed() || !rule.detailed).into_iter());
        Some(Found { amount: rule.limit?, key, is_override: false, hits, rule, statistics })
    }
}

fn joined(key: &str, value: &str) -> String {
    if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") }
}

/// Returns the number of the window, and the seconds to its end.
fn window_at(unit: usize, now: u64) -> (u64, u64) {
    let (name, _, period) = UNITS[unit];
    // 1970-01-05 was a Monday.
    let since = if name == "week" { now + 259_200 } else { now };
    (since / period, period - since % period)
}

fn headers(statuses: &[Status]) -> Option<[i64; 3]> {
    let told = |status: &Status| Some([i64::from(status.1?.0), status.2.into(), status.3?]);
    let refused = statuses.iter().filter(|status| status.0 == 2).filter_map(told).max_by_key(|told| told[2]);
    refused.or_else(|| statuses.iter().filter_map(told).min_by_key(|told| told[1]))
}
