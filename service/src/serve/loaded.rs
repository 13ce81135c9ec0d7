//! The rules of a configuration, with the counter and the statistics of each limit.

use std::borrow::Cow;
use std::sync::Arc;

use super::homes::LimitState;
use super::limiters::TextLimiter;
use super::statistics::{Numbers, Statistics};
use crate::rules::tree::{RuleLimit, Rules, Unit};

/// The arithmetic of a limit, and its home among the counts.
#[derive(Clone)]
pub(super) enum Counter {
    Unlimited,
    Window {
        unit: Unit,
        requests: u32,
        state: Arc<LimitState>,
    },
    Text {
        limiter: Arc<TextLimiter>,
        state: Arc<LimitState>,
        /// The tokens that a request of 0 hits is refused without.
        least: u64,
        /// Hits that come after the fact may be owed.
        is_charged_after: bool,
    },
}

impl Counter {
    /// Sets the state, which a limit without counts does not need.
    pub(super) fn set_state(&mut self, of: Arc<LimitState>) {
        match self {
            Counter::Window { state, .. } | Counter::Text { state, .. } => *state = of,
            Counter::Unlimited => {}
        }
    }

    /// Takes the state of a rule that counts in the same table, and returns whether it does.
    pub(super) fn share(&mut self, rule: &Counter) -> bool {
        let is_same = match (&*self, rule) {
            (Counter::Window { unit, .. }, Counter::Window { unit: other, .. }) => unit == other,
            (Counter::Text { limiter, .. }, Counter::Text { limiter: other, .. }) => {
                Arc::ptr_eq(limiter, other)
            }
            _ => false,
        };
        if let (true, Counter::Window { state, .. } | Counter::Text { state, .. }) = (is_same, rule) {
            self.set_state(state.clone());
        }
        is_same
    }

    /// Returns the number and the unit that `current_limit` tells.
    pub(super) fn current_limit(&self) -> (u32, Unit) {
        match self {
            Counter::Window { unit, requests, .. } => (*requests, *unit),
            Counter::Text { limiter, .. } => (limiter.tokens, limiter.unit),
            Counter::Unlimited => (0, Unit::Second),
        }
    }
}

/// The rules of a configuration as [`decide`](super::decide::decide) takes them, from
/// [`LimitCounts::load`](super::counts::LimitCounts::load).
pub struct LoadedRules {
    pub rules: Rules,
    counters: Box<[Counter]>,
    /// `None` for a limit whose name has values of the request.
    numbers: Box<[Option<Arc<Numbers>>]>,
    /// Whether some limit replaces others.
    pub(super) has_replaces: bool,
}

impl LoadedRules {
    pub(super) fn new(rules: Rules, counters: Box<[Counter]>, statistics: &Statistics) -> LoadedRules {
        let fixed_name = |limit: &Arc<RuleLimit>| match limit.statistics.of(std::iter::empty()) {
            Cow::Borrowed(name) => Some(name.to_owned()),
            Cow::Owned(_) => None,
        };
        let names: Vec<Option<String>> = rules.limits().map(fixed_name).collect();
        let numbers = statistics.name_rules(&names);
        let has_replaces = rules.limits().any(|limit| !limit.replaces.is_empty());
        LoadedRules { rules, counters, numbers, has_replaces }
    }

    pub(super) fn counter(&self, limit: &RuleLimit) -> &Counter {
        &self.counters[limit.id as usize]
    }

    pub(super) fn numbers(&self, limit: &RuleLimit) -> Option<&Numbers> {
        self.numbers[limit.id as usize].as_deref()
    }
}
