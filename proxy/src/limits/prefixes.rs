//! The route of a path: the tightest of the limits that its readings select.

use std::cmp::{Ordering, Reverse};

use tollgate::AnyRule;

use crate::config::settings::Route;
use tollgate_common::paths::{decoded, marks, readings, without_dots, without_empty};

/// The prefixes of the routes.
///
/// A path is under the prefix `/a` if it is `/a` or begins with `/a/`, and every path is under `/`.
/// A reading selects the route with the longest prefix that it is under, or else the default limit.
/// The tightest of the selected limits applies: the one with the fewest requests in a time. At
/// equal rates, the smaller burst of requests is the tighter, and then the longer prefix.
pub(crate) struct Prefixes {
    /// The limits, the tightest first.
    limits: Vec<Ranked>,
    /// The indices in `limits`: the longest prefix first, and then the tightest limit. The default
    /// limit is the last.
    longest_first: Vec<usize>,
    case_sensitive: bool,
}

struct Ranked {
    /// The index of the route, or `None` for the default limit.
    route: Option<usize>,
    prefix: Vec<u8>,
    /// Requests per nanosecond.
    rate: f64,
    /// Requests at once.
    burst: f64,
}

impl Prefixes {
    /// Makes the prefixes of the routes, beside a default limit at which each request costs 1
    /// token.
    pub(crate) fn new(routes: &[Route], default: Option<AnyRule>, case_sensitive: bool) -> Prefixes {
        let mut limits = Vec::with_capacity(routes.len() + 1);
        for (index, route) in routes.iter().enumerate() {
            limits.push(Ranked::new(Some(index), normal(&route.prefix), route.rule, route.cost));
        }
        limits.extend(default.map(|rule| Ranked::new(None, Vec::new(), rule, 1)));
        limits.sort_by(Ranked::tightest_first);

        let mut longest_first: Vec<usize> = (0..limits.len()).collect();
        longest_first
            .sort_by_key(|index| (Reverse(limits[*index].prefix.len()), limits[*index].route.is_none()));
        Prefixes { limits, longest_first, case_sensitive }
    }

    /// Returns the index of the route whose limit applies to the path of a URI. It is `None` for
    /// the default limit, if there is one.
    ///
    /// The time is linear in the number of routes.
    pub(crate) fn find(&self, path: &str) -> Option<usize> {
        let path = path.as_bytes();
        let index = if marks(path) == 0 {
            self.first_of(path)
        } else {
            match readings(path) {
                Some(readings) => readings.iter().filter_map(|reading| self.first_of(&reading.path)).min(),
                None => Some(0),
            }
        };
        self.limits.get(index?)?.route
    }

    /// Returns the index of the limit that applies to a reading.
    fn first_of(&self, reading: &[u8]) -> Option<usize> {
        let with_case = self.longest(reading, <[u8]>::eq);
        if self.case_sensitive {
            return with_case;
        }
        [with_case, self.longest(reading, <[u8]>::eq_ignore_ascii_case)].into_iter().flatten().min()
    }

    fn longest(&self, reading: &[u8], same: fn(&[u8], &[u8]) -> bool) -> Option<usize> {
        let mut indices = self.longest_first.iter().copied();
        indices.find(|index| is_under(reading, &self.limits[*index].prefix, same))
    }
}

impl Ranked {
    fn new(route: Option<usize>, prefix: Vec<u8>, rule: AnyRule, cost: u64) -> Ranked {
        // Equal rates such as `1/s` and `60/m` give equal floats: with usual numbers, only the
        // quotient is rounded.
        let time = rule.period().as_nanos() as f64 * cost as f64;
        let rate = rule.tokens() as f64 / time;
        Ranked { route, prefix, rate, burst: rule.capacity() as f64 / cost as f64 }
    }

    fn tightest_first(&self, other: &Ranked) -> Ordering {
        let order = self.rate.total_cmp(&other.rate).then(self.burst.total_cmp(&other.burst));
        order.then(other.prefix.len().cmp(&self.prefix.len()))
    }
}

/// Returns a prefix in the form of a reading: decoded, without empty segments, dots and a last `/`.
fn normal(prefix: &str) -> Vec<u8> {
    let decoded = decoded(prefix.as_bytes(), |_| true);
    let mut prefix = without_dots(&without_empty(&decoded));
    if prefix.last() == Some(&b'/') {
        prefix.pop();
    }
    prefix
}

/// Returns whether a reading is a normal prefix, or begins with it and a `/`.
fn is_under(reading: &[u8], prefix: &[u8], same: fn(&[u8], &[u8]) -> bool) -> bool {
    let Some((start, rest)) = reading.split_at_checked(prefix.len()) else { return false };
    prefix.is_empty() || (matches!(rest.first(), None | Some(b'/')) && same(start, prefix))
}

#[cfg(test)]
mod tests;
