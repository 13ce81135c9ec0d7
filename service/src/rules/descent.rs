//! The levels from the domain to a descriptor, and the names that they make.

use super::shared_entry::{Prefixes, SharedEntry};
use super::tree::{ReplacedPart, StatisticsName};

/// The levels from the domain to the descriptor that is read.
#[derive(Default)]
pub(super) struct Descent {
    /// The domain, and the key and the value of each level.
    pub(super) text: String,
    pub(super) steps: Vec<LevelStep>,
}

/// A level: its part of the text, and its entries in requests.
pub(super) struct LevelStep {
    start: usize,
    /// The length of the key, which a `_` divides from a value.
    key: usize,
    /// It has a value, and no star in the value or the key.
    exact: bool,
    by_value: bool,
    counted: CountedBy,
}

/// The part of a level in the keys of counts.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum CountedBy {
    #[default]
    Entry,
    /// All entries of a wildcard share its threshold.
    Wildcard,
    Network(Prefixes),
}

impl LevelStep {
    /// Returns whether the level adds one entry to the keys of counts.
    pub(super) fn is_fixed(&self) -> bool {
        self.exact || self.counted == CountedBy::Wildcard
    }
}

impl Descent {
    pub(super) fn push(&mut self, key: &str, value: &str, by_value: bool, counted: CountedBy) {
        self.text.push('.');
        let start = self.text.len();
        self.text.push_str(key);
        if !value.is_empty() {
            self.text.push('_');
            self.text.push_str(value);
        }
        let exact = !value.is_empty() && !self.text[start..].contains('*');
        self.steps.push(LevelStep { start, key: key.len(), exact, by_value, counted });
    }

    /// Returns each step with the end of its part.
    fn ends(&self) -> impl Iterator<Item = (&LevelStep, usize)> {
        let ends = self.steps.iter().skip(1).map(|next| next.start - 1).chain([self.text.len()]);
        self.steps.iter().zip(ends)
    }

    pub(super) fn shared(&self) -> Box<[Option<SharedEntry>]> {
        if self.steps.iter().all(|step| step.counted == CountedBy::Entry) {
            return Box::default();
        }
        let pattern = |step: &LevelStep, end| {
            let (key, value) = self.text[step.start..end].split_at(step.key);
            // A byte that divides `(a, b_c*)` from `(a_b, c*)`, which have counts of their own.
            SharedEntry::Pattern(format!("{key}{}", value.replacen('_', "\0", 1)).into())
        };
        let shared = |(step, end): (&LevelStep, usize)| match step.counted {
            CountedBy::Entry => None,
            CountedBy::Wildcard => Some(pattern(step, end)),
            CountedBy::Network(prefixes) => Some(SharedEntry::Network(prefixes)),
        };
        self.ends().map(shared).collect()
    }

    /// Returns the bytes of the name of a limit, with those of its patterns.
    pub(super) fn name_bytes(&self) -> usize {
        let has_patterns = self.steps.iter().any(|step| step.counted == CountedBy::Wildcard);
        self.text.len() * if has_patterns { 2 } else { 1 }
    }

    /// Returns the name of a limit; `of_list` is that of one of a list.
    pub(super) fn statistics(&self, detailed: bool, of_list: Option<String>) -> StatisticsName {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let in_request = |step: &LevelStep| (detailed || step.by_value) && !step.is_fixed();
        let levels = self.ends().enumerate().filter(|(_, (step, _))| in_request(step));
        let replaced = levels.map(|(level, (step, end))| ReplacedPart {
            level: number(level),
            start: number(step.start),
            end: number(end),
        });
        let text = match of_list {
            Some(own) => format!("{}.{own}", self.text),
            None => self.text.clone(),
        };
        StatisticsName { text: text.into(), replaced: replaced.collect() }
    }
}
