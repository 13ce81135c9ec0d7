//! Wildcards: texts in which each `*` stands for any characters, also for none.

use std::iter::successors;

/// A pattern with at least one `*`.
#[derive(Debug)]
pub(super) struct Pattern(Box<str>);

impl Pattern {
    pub(super) fn new(text: &str) -> Pattern {
        Pattern(text.into())
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Returns the text before the first star.
    fn prefix(&self) -> &[u8] {
        self.0.split('*').next().unwrap_or_default().as_bytes()
    }

    /// Returns whether a text matches.
    pub(super) fn matches(&self, text: Subject<'_>) -> bool {
        glob(self.0.as_bytes(), text)
    }
}

/// The text that a pattern is compared with: a value, or `key_value` without its copy.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Value(&'a str),
    Joined(&'a str, &'a str),
}

impl Subject<'_> {
    fn len(self) -> usize {
        match self {
            Subject::Value(value) => value.len(),
            Subject::Joined(key, value) => key.len() + 1 + value.len(),
        }
    }

    #[inline]
    fn byte(self, index: usize) -> u8 {
        match self {
            Subject::Value(value) => value.as_bytes()[index],
            Subject::Joined(key, value) => match index.checked_sub(key.len()) {
                None => key.as_bytes()[index],
                Some(0) => b'_',
                Some(index) => value.as_bytes()[index - 1],
            },
        }
    }

    fn bytes(self) -> impl Iterator<Item = u8> {
        (0..self.len()).map(move |index| self.byte(index))
    }

    fn starts_with(self, prefix: &[u8]) -> bool {
        prefix.len() <= self.len() && self.bytes().zip(prefix).all(|(byte, wanted)| byte == *wanted)
    }
}

/// Rules with a star, each with its pattern.
///
/// A lookup compares the patterns whose prefix the text has, and no others.
#[derive(Debug)]
pub(super) struct Wildcards<R> {
    rules: Vec<Wildcard<R>>,
    /// The rules by their prefix, in the order of the bytes; empty until [`index`](Self::index).
    prefixes: Vec<Prefix>,
}

/// A rule with a star.
#[derive(Debug)]
pub(super) struct Wildcard<R> {
    /// The place in the order of the level.
    pub(super) order: u32,
    pub(super) pattern: Pattern,
    pub(super) rule: R,
}

/// The rules of one prefix.
#[derive(Debug)]
struct Prefix {
    /// The indices of the rules, ascending; never empty.
    rules: Box<[usize]>,
    /// The index of the longest other prefix that this one begins with.
    shorter: Option<usize>,
}

impl<R> Default for Wildcards<R> {
    fn default() -> Wildcards<R> {
        Wildcards { rules: Vec::new(), prefixes: Vec::new() }
    }
}

impl<R> Wildcards<R> {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Wildcard<R>> {
        self.rules.iter()
    }

    pub(super) fn push(&mut self, order: u32, text: &str, rule: R) {
        self.rules.push(Wildcard { order, pattern: Pattern::new(text), rule });
    }

    /// Makes the index of the present rules. Returns each rule whose text an earlier one has, with
    /// that one.
    pub(super) fn index(&mut self) -> Vec<[&Wildcard<R>; 2]> {
        let pattern = |index: usize| &self.rules[index].pattern;
        let mut sorted: Vec<usize> = (0..self.rules.len()).collect();
        sorted.sort_unstable_by_key(|&index| (pattern(index).prefix(), pattern(index).text(), index));
        self.prefixes.clear();
        for rules in sorted.chunk_by(|&a, &b| pattern(a).prefix() == pattern(b).prefix()) {
            let is_begin = |&shorter: &usize| {
                pattern(rules[0]).prefix().starts_with(pattern(self.prefixes[shorter].rules[0]).prefix())
            };
            let last = self.prefixes.len().checked_sub(1);
            let shorter = successors(last, |&index| self.prefixes[index].shorter).find(is_begin);
            let mut rules: Box<[usize]> = rules.into();
            rules.sort_unstable();
            self.prefixes.push(Prefix { rules, shorter });
        }
        let same = sorted.chunk_by(|&a, &b| pattern(a).text() == pattern(b).text());
        let again = same.flat_map(|same| same[1..].iter().map(|&again| [again, same[0]]));
        again.map(|pair| pair.map(|index| &self.rules[index])).collect()
    }

    /// Returns the first rule whose pattern matches, in the order of the file.
    pub(super) fn find(&self, text: Subject<'_>) -> Option<&Wildcard<R>> {
        let prefix = |prefix: &Prefix| self.rules[prefix.rules[0]].pattern.prefix();
        let before = self.prefixes.partition_point(|each| prefix(each).iter().copied().le(text.bytes()));
        // A prefix of the text is the last one that is not above it, or a shorter one of that.
        let mut first = usize::MAX;
        for index in successors(before.checked_sub(1), |&index| self.prefixes[index].shorter) {
            let known = &self.prefixes[index];
            if text.starts_with(prefix(known)) {
                let mut earlier = known.rules.iter().copied().take_while(|&rule| rule < first);
                first = earlier.find(|&rule| self.rules[rule].pattern.matches(text)).unwrap_or(first);
            }
        }
        self.rules.get(first)
    }
}

/// Returns whether a text matches. The time is at most the product of both lengths: only the last
/// star is tried again, since an earlier one that took more would leave less to the rest.
fn glob(pattern: &[u8], text: Subject<'_>) -> bool {
    let (mut at, mut index) = (0, 0);
    let mut star = None;
    while index < text.len() {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                at += 1;
                star = Some((at, index));
            }
            (Some(&wanted), _) if wanted == text.byte(index) => {
                at += 1;
                index += 1;
            }
            (_, Some((after, from))) => {
                at = after;
                index = from + 1;
                star = Some((after, from + 1));
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|&rest| rest == b'*')
}
