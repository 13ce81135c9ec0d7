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
    fn prefix(&self) -> Vec<u8> {
        self.0.bytes().take_while(|byte| *byte != b'*').collect()
    }

    /// Returns the text after the last star, from its end on.
    fn suffix(&self) -> Vec<u8> {
        self.0.bytes().rev().take_while(|byte| *byte != b'*').collect()
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

    fn bytes(self) -> impl DoubleEndedIterator<Item = u8> + Clone {
        (0..self.len()).map(move |index| self.byte(index))
    }
}

/// Rules with a star, each with its pattern.
///
/// A lookup compares the patterns whose prefix and suffix the text has, and no others.
#[derive(Debug)]
pub(super) struct Wildcards<R> {
    rules: Vec<Wildcard<R>>,
    /// The indices of the rules, ascending, by their prefix, then by their suffix from its end on.
    /// Empty until [`index`](Self::index).
    by_affixes: Beginnings<Beginnings<Box<[usize]>>>,
}

/// A rule with a star.
#[derive(Debug)]
pub(super) struct Wildcard<R> {
    /// The index in the order of the level.
    pub(super) order: u32,
    pub(super) pattern: Pattern,
    pub(super) rule: R,
}

/// Texts that other texts may begin with, in the order of their bytes, each with a value.
#[derive(Debug)]
struct Beginnings<T>(Vec<Beginning<T>>);

#[derive(Debug)]
struct Beginning<T> {
    text: Box<[u8]>,
    /// The index of the longest other text that this one begins with.
    shorter: Option<usize>,
    value: T,
}

impl<T> Beginnings<T> {
    fn new(sorted: impl Iterator<Item = (Vec<u8>, T)>) -> Beginnings<T> {
        let mut all: Vec<Beginning<T>> = Vec::new();
        for (text, value) in sorted {
            let mut known = successors(all.len().checked_sub(1), |&index| all[index].shorter);
            let shorter = known.find(|&index| text.starts_with(&all[index].text));
            all.push(Beginning { text: text.into(), shorter, value });
        }
        Beginnings(all)
    }

    /// Returns the values of the texts that a text begins with, from the longest one on.
    fn of<'a>(&'a self, text: impl Iterator<Item = u8> + Clone + 'a) -> impl Iterator<Item = &'a T> {
        let Beginnings(all) = self;
        let before = all.partition_point(|each| each.text.iter().copied().le(text.clone()));
        // A beginning of the text is the last one that is not above it, or a shorter one of that.
        let each = successors(before.checked_sub(1), |&index| all[index].shorter).map(|index| &all[index]);
        let is_one = move |each: &&Beginning<T>| {
            let mut text = text.clone();
            each.text.iter().all(|wanted| text.next() == Some(*wanted))
        };
        each.filter(is_one).map(|each| &each.value)
    }
}

impl<R> Default for Wildcards<R> {
    fn default() -> Wildcards<R> {
        Wildcards { rules: Vec::new(), by_affixes: Beginnings(Vec::new()) }
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
        let key = |&index: &usize| (pattern(index).prefix(), pattern(index).suffix(), pattern(index).text());
        sorted.sort_by_cached_key(key);
        let of_prefix = |rules: &[usize]| {
            let same = rules.chunk_by(|&a, &b| pattern(a).suffix() == pattern(b).suffix());
            let of_suffix = |rules: &[usize]| {
                let suffix = pattern(rules[0]).suffix();
                let mut rules: Box<[usize]> = rules.into();
                rules.sort_unstable();
                (suffix, rules)
            };
            (pattern(rules[0]).prefix(), Beginnings::new(same.map(of_suffix)))
        };
        let same = sorted.chunk_by(|&a, &b| pattern(a).prefix() == pattern(b).prefix());
        self.by_affixes = Beginnings::new(same.map(of_prefix));
        let same = sorted.chunk_by(|&a, &b| pattern(a).text() == pattern(b).text());
        let again = same.flat_map(|same| same[1..].iter().map(|&again| [again, same[0]]));
        again.map(|pair| pair.map(|index| &self.rules[index])).collect()
    }

    /// Returns lists of the rules whose prefix and suffix a text has: the indices, ascending.
    pub(super) fn candidates<'a>(&'a self, text: Subject<'a>) -> impl Iterator<Item = &'a [usize]> {
        let of_prefix = self.by_affixes.of(text.bytes());
        of_prefix.flat_map(move |by_suffix| by_suffix.of(text.bytes().rev())).map(|rules| &**rules)
    }

    /// Returns the first rule whose pattern matches, in the order of the file.
    #[inline]
    pub(super) fn find(&self, text: Subject<'_>) -> Option<&Wildcard<R>> {
        // Most levels have no star.
        if self.rules.is_empty() { None } else { self.first(text) }
    }

    #[inline(never)]
    fn first(&self, text: Subject<'_>) -> Option<&Wildcard<R>> {
        let mut first = usize::MAX;
        for rules in self.candidates(text) {
            let mut earlier = rules.iter().copied().take_while(|&rule| rule < first);
            first = earlier.find(|&rule| self.rules[rule].pattern.matches(text)).unwrap_or(first);
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
