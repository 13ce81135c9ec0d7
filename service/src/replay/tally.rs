//! The account of a limit over a log: its refusals, its keys, and the limits that would have
//! refused fewer.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tollgate::{AnyRule, Clock, Quota};

use crate::rules::tree::{Amount, RuleLimit, Unit};
use crate::serve::limiters::{CountKey, TextLimiter};

/// The most names of refused keys of a limit. Further keys are counted without a name.
const MAX_NAMES: usize = 100_000;
/// The multiples of a limit of text form that are tried side by side.
const MULTIPLES: [(u64, u64); 12] =
    [(1, 4), (1, 2), (1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (32, 1), (64, 1), (128, 1), (256, 1), (512, 1)];

/// A request of a limit.
pub(super) struct Hit<'a> {
    pub(super) key: CountKey,
    pub(super) at: Duration,
    pub(super) is_refused: bool,
    pub(super) name: &'a dyn Fn() -> String,
}

/// The account of one limit.
pub(super) struct LimitTally {
    pub(super) requests: u64,
    pub(super) refused: u64,
    keys: HashMap<CountKey, KeyTally>,
    names: HashMap<CountKey, String>,
    /// The minute that runs, and the one with the most refusals: since 1970, and its refusals.
    minute: (u64, u64),
    pub(super) worst: (u64, u64),
    others: Others,
}

#[derive(Clone, Copy, Default)]
struct KeyTally {
    window: u32,
    hits: u32,
    refused: u32,
}

/// The limits that the same requests would have met.
enum Others {
    None,
    /// The hits of each window that has ended, and the number of such windows.
    Windows {
        unit: Unit,
        ended: BTreeMap<u32, u64>,
    },
    /// Limiters of multiples, each with its refusals.
    Multiples(Vec<(AnyRule, TextLimiter, u64)>),
}

impl LimitTally {
    /// `text` is the rule of the library that counts the limit, if no window of the service does.
    pub(super) fn new(limit: &RuleLimit, text: Option<AnyRule>, clock: &Clock) -> LimitTally {
        let others = match (&limit.amount, text) {
            (_, Some(rule)) => Others::Multiples(multiples(rule, clock)),
            (Amount::Window { unit, .. }, None) => Others::Windows { unit: *unit, ended: BTreeMap::new() },
            (Amount::Unlimited | Amount::Text(..) | Amount::Windows { .. }, None) => Others::None,
        };
        let (keys, names) = (HashMap::new(), HashMap::new());
        LimitTally { requests: 0, refused: 0, keys, names, minute: (0, 0), worst: (0, 0), others }
    }

    pub(super) fn add(&mut self, hit: &Hit<'_>) {
        self.requests += 1;
        let key = self.keys.entry(hit.key).or_default();
        match &mut self.others {
            Others::None => (),
            Others::Windows { unit, ended } => {
                let window = (hit.at.as_secs() + unit.anchor()) / u64::from(unit.seconds());
                let window = u32::try_from(window).unwrap_or(u32::MAX);
                if key.window != window && key.hits > 0 {
                    *ended.entry(key.hits).or_default() += 1;
                    key.hits = 0;
                }
                key.window = window;
                key.hits += 1;
            }
            Others::Multiples(multiples) => {
                for (_, limiter, refused) in multiples {
                    *refused += u64::from(!limiter.grants_one(hit.key));
                }
            }
        }
        if hit.is_refused {
            self.refused += 1;
            key.refused += 1;
            if self.names.len() < MAX_NAMES || self.names.contains_key(&hit.key) {
                self.names.entry(hit.key).or_insert_with(hit.name);
            }
            let minute = hit.at.as_secs() / 60;
            self.minute = if self.minute.0 == minute { (minute, self.minute.1 + 1) } else { (minute, 1) };
            if self.minute.1 > self.worst.1 {
                self.worst = self.minute;
            }
        }
    }

    /// Returns the number of keys, and of those that were refused.
    pub(super) fn keys(&self) -> (usize, usize) {
        (self.keys.len(), self.keys.values().filter(|key| key.refused > 0).count())
    }

    /// Returns the keys with the most refusals, with their number.
    pub(super) fn most_refused(&self, most: usize) -> Vec<(&str, u32)> {
        let mut refused: Vec<_> =
            self.names.iter().map(|(key, name)| (&**name, self.keys[key].refused)).collect();
        refused.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        refused.truncate(most);
        refused
    }

    /// Returns the smallest limit that refuses less than a share of the requests, or `None` if no
    /// limit that was tried does. A share of 0 is that of no refusal.
    pub(super) fn smallest(&self, share: f64) -> Option<String> {
        let is_enough = |refused: u64| refused == 0 || (refused as f64) < share * self.requests as f64;
        match &self.others {
            Others::None => None,
            Others::Windows { ended, .. } => {
                let mut windows = ended.clone();
                for key in self.keys.values() {
                    *windows.entry(key.hits).or_default() += 1;
                }
                let refused_by = |limit: u32| {
                    windows.range(limit..).map(|(hits, windows)| u64::from(hits - limit) * windows).sum()
                };
                // A larger limit refuses no more, and that of the fullest window refuses nothing.
                let (mut low, mut high) = (0, windows.keys().next_back().copied().unwrap_or(0));
                while low < high {
                    let middle = low + (high - low) / 2;
                    if is_enough(refused_by(middle)) { high = middle } else { low = middle + 1 }
                }
                Some(low.to_string())
            }
            Others::Multiples(multiples) => {
                let enough = multiples.iter().find(|(_, _, refused)| is_enough(*refused));
                enough.map(|(rule, _, _)| rule.to_string())
            }
        }
    }
}

/// The multiples of a rule that are rules as well, with a limiter each.
fn multiples(rule: AnyRule, clock: &Clock) -> Vec<(AnyRule, TextLimiter, u64)> {
    let multiple = |(up, down): (u64, u64)| {
        let times = |tokens: u64| (tokens.saturating_mul(up) / down).max(1);
        let multiple = match rule {
            AnyRule::Quota(quota) => {
                let rate = Quota::try_per(times(quota.tokens()), quota.period()).ok()?;
                rate.try_burst(times(quota.capacity())).ok()?.into()
            }
            AnyRule::Window(window) => window.with_limit(times(window.limit())).ok()?.into(),
        };
        Some((multiple, TextLimiter::new(multiple, usize::MAX, clock), 0))
    };
    MULTIPLES.into_iter().filter_map(multiple).collect()
}
