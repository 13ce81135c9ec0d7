//! The bytes of a saved state.
//!
//! Numbers are little-endian words of 8 bytes, and each text is padded to whole words.
//!
//! ```text
//! "tollgate"  version  kind  Unix time  tick  part of a tick (2)
//! layout  debt  tokens  nanoseconds  burst  probe of the hasher  rule (length, text)
//! ticks in which a bucket is full under any plan; 0 without plans
//! keys of a map:    n  x (word, length, key)
//! keys of a table:  slots  n  x (word, fingerprint) in primary sets  n  x (word, fingerprint) in others
//! one bucket:       n (0 or 1)  x (word)
//! shared buckets: sets  x (plan: tokens, nanoseconds, burst;  n  x (number, word))
//! 1 if those of no plan have takes under any plan
//! bucket without a key: word
//! check sum
//! ```

use std::error::Error;
use std::fmt;

use crate::keyed::key::mix;
use crate::rule::counts::CountWidths;
use crate::rule::layout::{Layout, RawQuota, Widths};
use crate::word::saved::SavedAt;

const MAGIC: [u8; 8] = *b"tollgate";
const VERSION: u64 = 1;

/// The kind of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum StoreKind {
    One,
    Map,
    Table,
}

impl StoreKind {
    fn name(kind: u64) -> &'static str {
        match kind {
            _ if kind == StoreKind::One as u64 => "one bucket",
            _ if kind == StoreKind::Map as u64 => "a map of keys",
            _ => "a table of keys",
        }
    }
}

/// A saved state that a limiter cannot take. The limiter is as it was.
///
/// The message says the reason: bytes that are cut, damaged, of another version or of no state; or
/// a state of another rule, of words with other room, of another store, or by another hasher. A
/// state that fits is restored in any case: keys without room [share](crate::WhenFull::Share).
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, TokenBucket};
///
/// let bytes = TokenBucket::new(Quota::per_second(5)).save();
/// let error = TokenBucket::new(Quota::per_second(9)).restore(&bytes).unwrap_err();
/// assert_eq!(error.to_string(), "the state is of `5/s burst 5`, and the limiter has `9/s burst 9`");
/// let error = TokenBucket::new(Quota::per_second(5)).restore(&bytes[1..]).unwrap_err();
/// assert_eq!(error.to_string(), "the bytes are no saved state");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct NotRestored(pub(super) Misfit);

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Misfit {
    NoState,
    Version(u64),
    Damaged,
    /// The saved kind, and that of the limiter.
    StoreKind(u64, StoreKind),
    /// The saved rule, and that of the limiter.
    Rule(Box<str>, Box<str>),
    Layout,
    Hasher,
    /// A key that its type does not read, or a word that the rule does not have.
    Entry,
}

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Misfit::NoState => f.write_str("the bytes are no saved state"),
            Misfit::Version(version) => {
                write!(f, "the state has version {version}, and this program reads version {VERSION}")
            }
            Misfit::Damaged => f.write_str("the state is cut or damaged: its check sum is another one"),
            Misfit::StoreKind(saved, here) => {
                write!(f, "the state is of {}, and the limiter is {}", StoreKind::name(*saved), StoreKind::name(*here as u64))
            }
            Misfit::Rule(saved, here) => write!(f, "the state is of `{saved}`, and the limiter has `{here}`"),
            Misfit::Layout => f.write_str(
                "the state is of words with other room: the headroom, the debt or the plans were others",
            ),
            Misfit::Hasher => f.write_str(
                "the state is of a table under another hasher: a table needs the hasher of the save, with its keys",
            ),
            Misfit::Entry => f.write_str("the state has a key or a word that the limiter cannot have"),
        }
    }
}

impl fmt::Debug for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NotRestored({self})")
    }
}

impl Error for NotRestored {}

/// The facts on which the words of a state depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) kind: StoreKind,
    /// The rule in force, as a text.
    pub(super) rule: String,
    pub(super) layout: Layout,
    pub(super) numbers: RawQuota,
    /// The hash of a constant; 0 of one bucket.
    pub(super) probe: u64,
}

fn packed(Layout { widths, .. }: Layout) -> u64 {
    let Widths { fraction, scale, stamp, fixed_debt, counts } = widths;
    let CountWidths { counting, count, before } = counts;
    u64::from_le_bytes([fraction, scale, stamp, fixed_debt.into(), counting as u8, count, before, 0])
}

/// Returns the check sum of bytes. Whole words, because a million keys are 16 MB.
fn sum_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let start = bytes.len() as u64 ^ 0x7461_7465_6c6c_6f74;
    let sum = words.iter().fold(start, |sum, word| mix(sum ^ u64::from_le_bytes(*word)).wrapping_add(start));
    rest.iter().fold(sum, |sum, byte| mix(sum ^ u64::from(*byte)))
}

/// A state that is written.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Begins a state; `keys` is about its number of keys.
    pub(super) fn new(facts: &Facts, at: &SavedAt, keys: usize) -> Writer {
        let mut writer = Writer(Vec::with_capacity(512 + keys.saturating_mul(24)));
        writer.0.extend(MAGIC);
        let RawQuota { tokens, nanos, burst } = facts.numbers;
        // The part of a tick in two halves.
        let phase = [at.phase as u64, (at.phase >> 64) as u64];
        let saved = [VERSION, facts.kind as u64, at.unix, at.tick];
        let of = [packed(facts.layout), facts.layout.debt, tokens, nanos, burst, facts.probe];
        saved.into_iter().chain(phase).chain(of).for_each(|word| writer.put(word));
        writer.put_text(|bytes| bytes.extend(facts.rule.as_bytes()));
        writer
    }

    pub(super) fn put(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    /// Appends a text that `write` writes, after its length.
    pub(super) fn put_text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.put_later();
        write(&mut self.0);
        self.set(at, (self.0.len() - at - 8) as u64);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }

    /// Appends a number that [`set`](Writer::set) sets, and returns its place.
    pub(super) fn put_later(&mut self) -> usize {
        self.put(0);
        self.0.len() - 8
    }

    pub(super) fn set(&mut self, at: usize, word: u64) {
        self.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.put(sum_of(&self.0));
        self.0
    }
}

/// The rest of a state that is read. A word beyond the end is an error.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Opens a state that is of these facts. Returns the moment of the save, and the rest.
    pub(super) fn open(bytes: &'a [u8], facts: &Facts) -> Result<(SavedAt, Reader<'a>), NotRestored> {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else { return Err(NotRestored(Misfit::NoState)) };
        let Some((rest, sum)) = rest.split_last_chunk() else { return Err(NotRestored(Misfit::Damaged)) };
        let mut reader = Reader(rest);
        let version = reader.word()?;
        if version != VERSION {
            return Err(NotRestored(Misfit::Version(version)));
        }
        if sum_of(&bytes[..bytes.len() - 8]) != u64::from_le_bytes(*sum) {
            return Err(NotRestored(Misfit::Damaged));
        }
        let kind = reader.word()?;
        if kind != facts.kind as u64 {
            return Err(NotRestored(Misfit::StoreKind(kind, facts.kind)));
        }
        let (unix, tick) = (reader.word()?, reader.word()?);
        let phase = u128::from(reader.word()?) | u128::from(reader.word()?) << 64;
        let [layout, debt, tokens, nanos, burst, probe] = reader.words()?;
        let rule = String::from_utf8_lossy(reader.text()?);
        if rule != facts.rule {
            return Err(NotRestored(Misfit::Rule(rule.into(), facts.rule.as_str().into())));
        }
        let same = layout == packed(facts.layout) && debt == facts.layout.debt;
        if !same || (RawQuota { tokens, nanos, burst }) != facts.numbers {
            return Err(NotRestored(Misfit::Layout));
        }
        if probe != facts.probe && facts.kind == StoreKind::Table {
            return Err(NotRestored(Misfit::Hasher));
        }
        Ok((SavedAt { unix, tick, phase }, reader))
    }

    /// Returns the probe of the hasher of a state that was opened.
    pub(super) fn probe(bytes: &[u8]) -> Option<u64> {
        let at = MAGIC.len() + 11 * 8;
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    }

    pub(super) fn word(&mut self) -> Result<u64, NotRestored> {
        self.words().map(|[word]| word)
    }

    pub(super) fn words<const N: usize>(&mut self) -> Result<[u64; N], NotRestored> {
        let words = self.0.as_chunks().0.first_chunk::<N>().ok_or(NotRestored(Misfit::Damaged))?;
        self.0 = &self.0[8 * N..];
        Ok(words.map(u64::from_le_bytes))
    }

    /// Returns pairs of words after their number.
    pub(super) fn pairs(&mut self) -> Result<&'a [[[u8; 8]; 2]], NotRestored> {
        let len = usize::try_from(self.word()?).ok();
        let pairs = len.and_then(|len| self.0.as_chunks().0.as_chunks().0.get(..len));
        let pairs = pairs.ok_or(NotRestored(Misfit::Damaged))?;
        self.0 = &self.0[size_of_val(pairs)..];
        Ok(pairs)
    }

    /// Returns a text after its length.
    pub(super) fn text(&mut self) -> Result<&'a [u8], NotRestored> {
        let damaged = || NotRestored(Misfit::Damaged);
        let len = usize::try_from(self.word()?).map_err(|_| damaged())?;
        let padded = len.checked_next_multiple_of(8).ok_or_else(damaged)?;
        let (text, rest) = self.0.split_at_checked(padded).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(&text[..len])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
