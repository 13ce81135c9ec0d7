//! The rules of all domains, and the lookup of the limit of a descriptor.
//!
//! Key and value have a map each, so an entry `(a, b_c)` never finds the rule of `(a_b, c)`. A
//! lookup allocates nothing.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tollgate::{AnyRule, Quota};

use super::error::{FileSpot, beginning};
use super::pattern::{Subject, Wildcard, Wildcards};
use super::shared_entry::{Prefixes, SharedEntry};

/// The most bytes of a name of statistics with values of a request.
pub(crate) const MAX_NAME: usize = 256;
/// The most levels of descriptors.
pub(super) const MAX_LEVELS: usize = 64;

/// The limits of all domains. It never changes: a reload loads another one.
#[derive(Debug, Default)]
pub struct Rules {
    pub(super) domains: HashMap<Box<str>, Domain>,
    pub(super) limits: Vec<Arc<RuleLimit>>,
}

impl Rules {
    /// Returns a domain, or `None` if no file has it.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// Returns each limit, in the order of the files. [`RuleLimit::id`] is the index.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = &Arc<RuleLimit>> {
        self.limits.iter()
    }

    /// Returns the names of the limits that later rules have no longer, in the order of the files.
    pub fn lost(&self, later: &Rules) -> Vec<&str> {
        let names: HashSet<&str> = later.limits.iter().map(|limit| limit.statistics.text()).collect();
        let own = self.limits.iter().map(|limit| limit.statistics.text());
        own.filter(|name| !names.contains(name)).collect()
    }

    /// Calls `see` with the path of each limit: its domain, and the key and the value of each
    /// level as they are written. A level without a value has an empty one.
    pub fn each_place<'a>(&'a self, mut see: impl FnMut(&'a str, &[(&'a str, &'a str)], &'a RuleLimit)) {
        for (name, domain) in &self.domains {
            domain.level.each_place(&mut Vec::new(), &mut |steps, limit| see(name, steps, limit));
        }
    }

    /// Returns whether no domain is loaded.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }
}

/// The rules of a domain.
#[derive(Debug)]
pub struct Domain {
    pub(super) at: FileSpot,
    pub(super) level: Level,
}

impl Domain {
    /// Returns the limit at the last entry. There is no way back: a branch that is taken at one
    /// entry decides about those below it.
    pub fn find<'e>(&self, entries: impl Iterator<Item = (&'e str, &'e str)>) -> Option<&Arc<RuleLimit>> {
        self.rule(entries)?.limit.as_ref()
    }

    /// Returns whether the last entry has a rule that exempts its value.
    pub fn exempts<'e>(&self, entries: impl Iterator<Item = (&'e str, &'e str)>) -> bool {
        self.rule(entries).is_some_and(|rule| rule.limit.is_none() && rule.below.is_none())
    }

    #[inline]
    fn rule<'e>(&self, entries: impl Iterator<Item = (&'e str, &'e str)>) -> Option<&Rule> {
        let mut level = Some(&self.level);
        let mut found = None;
        for (key, value) in entries {
            let rule = level?.find(key, value)?;
            level = rule.below.as_deref();
            found = Some(rule);
        }
        found
    }
}

impl Domain {
    /// Returns a value for each rule of a key that has one, at any level. A star stands for
    /// nothing.
    pub fn values_of(&self, key: &str) -> Vec<String> {
        let (mut found, mut levels) = (Vec::new(), vec![&self.level]);
        while let Some(level) = levels.pop() {
            if let Some(values) = level.keys.get(key) {
                found.extend(values.exact.keys().map(|value| value.to_string()));
                found.extend(values.by_pattern.iter().map(|each| each.pattern.text().replace('*', "")));
            }
            levels.extend(level.each().filter_map(|rule| rule.below.as_deref()));
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The rules at one level, below a domain or a rule.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) keys: HashMap<Box<str>, Values>,
    /// The rules with a star in their key.
    pub(super) by_pattern: Wildcards<Rule>,
    /// The rules of this level so far.
    pub(super) rules: u32,
}

impl Level {
    /// Returns the rule of an entry: that of its value, the first wildcard, or that of its key.
    pub(super) fn find(&self, key: &str, value: &str) -> Option<&Rule> {
        let values = self.keys.get(key);
        let exact = values.and_then(|values| values.exact.get(value));
        let wildcard = || self.wildcard(values, key, value).map(|found| &found.rule);
        exact.or_else(wildcard).or_else(|| values?.any.as_deref())
    }

    /// Returns the keys of this level in their order, and the patterns of keys.
    pub(super) fn names(&self) -> Vec<&str> {
        let patterns = self.by_pattern.iter().map(|each| each.pattern.text());
        let mut names: Vec<&str> = self.keys.keys().map(|key| &**key).chain(patterns).collect();
        names.sort_unstable();
        names
    }

    /// Returns each rule of this level.
    pub(super) fn each(&self) -> impl Iterator<Item = &Rule> {
        self.by_pattern.iter().map(|each| &each.rule).chain(self.keys.values().flat_map(Values::each))
    }

    fn each_place<'a>(
        &'a self,
        steps: &mut Vec<(&'a str, &'a str)>,
        see: &mut impl FnMut(&[(&'a str, &'a str)], &'a RuleLimit),
    ) {
        let joined = self.by_pattern.iter().map(|each| ((each.pattern.text(), ""), &each.rule));
        let of_keys = self.keys.iter().flat_map(|(key, values)| {
            let by_pattern = values.by_pattern.iter().map(|each| (each.pattern.text(), &each.rule));
            let exact = values.exact.iter().map(|(value, rule)| (&**value, rule));
            let any = values.any.as_deref().map(|rule| ("", rule));
            by_pattern.chain(exact).chain(any).map(|(value, rule)| ((&**key, value), rule))
        });
        for (step, rule) in joined.chain(of_keys) {
            steps.push(step);
            if let Some(limit) = &rule.limit {
                limit.each().for_each(|limit| see(steps, limit));
            }
            if let Some(below) = &rule.below {
                below.each_place(steps, see);
            }
            steps.pop();
        }
    }

    /// Returns the first wildcard that matches: of the two lists, the rule that was written first.
    pub(super) fn wildcard<'a>(
        &'a self,
        values: Option<&'a Values>,
        key: &str,
        value: &str,
    ) -> Option<&'a Wildcard<Rule>> {
        let of_key = values.and_then(|values| values.by_pattern.find(Subject::Value(value)));
        let joined = self.by_pattern.find(Subject::Joined(key, value));
        of_key.into_iter().chain(joined).min_by_key(|found| found.order)
    }
}

/// The rules of one key at one level.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) exact: HashMap<Box<str>, Rule>,
    /// The rules with a star in their value.
    pub(super) by_pattern: Wildcards<Rule>,
    pub(super) any: Option<Box<Rule>>,
}

impl Values {
    fn each(&self) -> impl Iterator<Item = &Rule> {
        let by_pattern = self.by_pattern.iter().map(|each| &each.rule);
        by_pattern.chain(self.exact.values()).chain(self.any.as_deref())
    }
}

/// A descriptor of a file.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) at: FileSpot,
    pub(super) limit: Option<Arc<RuleLimit>>,
    pub(super) below: Option<Box<Level>>,
}

/// A limit, and the other fields of its descriptor.
#[derive(Debug)]
pub struct RuleLimit {
    pub amount: Amount,
    /// The further limits of the same descriptors, of a list. Each counts by itself.
    pub more: Box<[Arc<RuleLimit>]>,
    /// The place in such a list.
    pub place: u32,
    /// Hits that are more than the tokens left are owed: they come after the fact. For texts alone.
    pub charged_after: bool,
    /// It is told in `current_limit`, and `replaces` of other limits name it.
    pub name: Option<Box<str>>,
    /// The names of the limits that this one replaces in a request.
    pub replaces: Box<[Box<str>]>,
    /// Counted as ever, but never refused.
    pub shadow: bool,
    /// Over its limit, it refuses a request only if all quotas of the request are over.
    pub quota: bool,
    /// It has one count: each level has one value, or shares the threshold of a wildcard.
    pub fixed: bool,
    /// For each level the part that stands for the entry in the key of a count, or `None`. The list
    /// is empty if no level has one.
    pub shared: Box<[Option<SharedEntry>]>,
    pub statistics: StatisticsName,
    /// A map.
    pub metadata: Option<Box<serde_json::Value>>,
    pub at: FileSpot,
    /// The index in [`Rules::limits`].
    pub id: u32,
}

impl RuleLimit {
    /// Returns this limit, and the further ones of its list.
    pub fn each(&self) -> impl Iterator<Item = &RuleLimit> {
        std::iter::once(self).chain(self.more.iter().map(|limit| &**limit))
    }

    /// Returns the name in statistics without the part that tells a limit of a list.
    pub(crate) fn name_of_list(&self) -> &str {
        let name = self.statistics.text();
        if self.more.is_empty() {
            return name;
        }
        name.strip_suffix(&*self.amount.name()).and_then(|name| name.strip_suffix('.')).unwrap_or(name)
    }

    /// Returns whether a level shares the threshold of a wildcard.
    pub(crate) fn shares_threshold(&self) -> bool {
        self.shared.iter().any(|shared| matches!(shared, Some(SharedEntry::Pattern(_))))
    }

    /// Returns the parts that stand for entries in the key of an override. It shares no threshold.
    pub(crate) fn shared_by_override(&self) -> &[Option<SharedEntry>] {
        if self.shares_threshold() { &[] } else { &self.shared }
    }

    /// Returns the networks of the levels that count addresses by them.
    pub(crate) fn networks(&self) -> impl Iterator<Item = Prefixes> {
        self.shared.iter().filter_map(|shared| match shared {
            Some(SharedEntry::Network(prefixes)) => Some(*prefixes),
            _ => None,
        })
    }
}

/// The amount that a limit grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Not counted.
    Unlimited,
    /// Requests in each window of a unit since 1970.
    Window { unit: Unit, requests: u32 },
    /// Requests in each window of `times` units since 1970. It is decided as a text is.
    Windows { unit: Unit, times: u32, requests: u32, window: AnyRule },
    /// A rule of the library, with its text as it is written.
    Text(Box<str>, AnyRule),
}

impl Amount {
    /// Returns the text in the name of a limit of a list.
    pub(super) fn name(&self) -> String {
        match self {
            Amount::Unlimited => "unlimited".to_owned(),
            Amount::Window { unit, requests } => format!("{requests}/{}", unit.text()),
            Amount::Windows { unit, times, requests, .. } => format!("{requests}/{times} {}s", unit.text()),
            Amount::Text(text, _) => text.to_string(),
        }
    }

    /// Returns whether both would be one count: windows of one unit, or one rule of the library.
    pub(super) fn shares(&self, other: &Amount) -> bool {
        match (self, other) {
            (Amount::Window { unit, .. }, Amount::Window { unit: other, .. }) => unit == other,
            _ => {
                let rules = |amount: &Amount| [amount.rule(), amount.bucket()];
                rules(self).into_iter().flatten().any(|rule| rules(other).contains(&Some(rule)))
            }
        }
    }

    /// Returns the rule of the library, if no window of a unit counts it.
    pub(crate) fn rule(&self) -> Option<AnyRule> {
        match self {
            Amount::Text(_, rule) | Amount::Windows { window: rule, .. } => Some(*rule),
            Amount::Unlimited | Amount::Window { .. } => None,
        }
    }

    /// Returns the bucket of a number in a time of units, if one holds it: none holds 0 tokens.
    pub(crate) fn bucket(&self) -> Option<AnyRule> {
        let (unit, times, requests) = match self {
            Amount::Window { unit, requests } => (unit, 1, requests),
            Amount::Windows { unit, times, requests, .. } => (unit, *times, requests),
            Amount::Unlimited | Amount::Text(..) => return None,
        };
        let period = Duration::from_secs(u64::from(unit.seconds()) * u64::from(times));
        Quota::try_per(u64::from(*requests), period).ok().map(AnyRule::Quota)
    }
}

/// The unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

impl Unit {
    /// All units, by their length.
    pub const ALL: [Unit; 7] =
        [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    /// Returns the length of the window: a month has 30 days, and a year 365.
    pub fn seconds(self) -> u32 {
        self.row().2
    }

    /// Returns the name in a configuration.
    pub fn text(self) -> &'static str {
        self.row().0
    }

    /// Returns the unit of such a name.
    pub fn named(text: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.text() == text)
    }

    /// Returns the name of the protocol, in capitals.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (&'static str, &'static str, u32) {
        match self {
            Unit::Second => ("second", "SECOND", 1),
            Unit::Minute => ("minute", "MINUTE", 60),
            Unit::Hour => ("hour", "HOUR", 3_600),
            Unit::Day => ("day", "DAY", 86_400),
            Unit::Week => ("week", "WEEK", 604_800),
            Unit::Month => ("month", "MONTH", 2_592_000),
            Unit::Year => ("year", "YEAR", 31_536_000),
        }
    }

    /// Returns the seconds of a window that were over when 1970 began: weeks begin on Monday, and
    /// 1970 began on a Thursday.
    pub fn anchor(self) -> u64 {
        if self == Unit::Week { 3 * 86_400 } else { 0 }
    }

    /// Returns the number of the protocol.
    pub fn wire(self) -> i32 {
        self as i32
    }

    /// Returns the unit of a number of the protocol.
    pub fn from_wire(number: i32) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.wire() == number)
    }
}

/// The name of a limit in statistics: the domain, and the key and the value of each level.
///
/// It may have characters that statistics replace, such as `:`.
#[derive(Debug)]
pub struct StatisticsName {
    pub(super) text: Box<str>,
    /// The levels whose entry in the request replaces a part of the text.
    pub(super) replaced: Box<[ReplacedPart]>,
}

/// A part of a name that the entry of a request replaces.
#[derive(Debug)]
pub(super) struct ReplacedPart {
    pub(super) level: u32,
    pub(super) start: u32,
    pub(super) end: u32,
}

impl StatisticsName {
    /// Returns the name as the file has it, which is the one of each request unless a rule says
    /// `detailed_metric` or `value_to_metric`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the name for the entries of a request.
    pub fn of<'e>(&self, mut entries: impl Iterator<Item = (&'e str, &'e str)>) -> Cow<'_, str> {
        if self.replaced.is_empty() {
            return Cow::Borrowed(&self.text);
        }
        let mut name = String::with_capacity(self.text.len() + 32);
        let (mut end, mut level) = (0, 0);
        for replaced in &self.replaced {
            name.push_str(&self.text[end..replaced.start as usize]);
            end = replaced.end as usize;
            if let Some((key, value)) = entries.nth((replaced.level - level) as usize) {
                name.push_str(key);
                if !value.is_empty() {
                    name.push('_');
                    name.push_str(value);
                }
            }
            level = replaced.level + 1;
        }
        let rest = &self.text[end..];
        // A long value does not take the place of the rest, which names the limit of a list.
        if let Some(room @ 1..) = MAX_NAME.checked_sub(rest.len()) {
            name.truncate(beginning(&name, room).len());
        }
        name.push_str(rest);
        Cow::Owned(name)
    }
}
