//! The parts of a saved state, in their order.

use std::time::Duration;

use crate::keyed::table::{AT_ONCE, Set};
use crate::limiter::state::bytes::{Misfit, NotRestored, Reader, StoreKind};
use crate::rule::rate::Quota;
use crate::word::saved::Resume;
use crate::word::state::State;

/// A part of a state.
pub(super) enum Part<'a> {
    /// Buckets that keys without room share: the plan, and the number and the word of each.
    Shared(Option<Quota>, &'a [[[u8; 8]; 2]]),
    /// The buckets of no plan have takes under any plan.
    AnyPlan,
    /// The bucket of the requests without a key.
    NoKey(State),
    One(State),
    Key(&'a [u8], State),
    /// The number of slots of a table, before its keys.
    Slots(u64),
    /// The words and fingerprints of up to [`AT_ONCE`] keys.
    Fingerprints(&'a [[[u8; 8]; 2]], Set),
}

/// Reads the parts of a state in their order, and checks their words.
///
/// Keys come first: an entry that is made later brings the debts of the bucket that it shared.
pub(super) fn read_parts<'a>(
    mut reader: Reader<'a>,
    (kind, resume): (StoreKind, &Resume),
    mut see: impl FnMut(Part<'a>) -> Result<(), NotRestored>,
) -> Result<(), NotRestored> {
    let invalid = NotRestored(Misfit::Entry);
    let checked = |word: u64| {
        let state = State::from_word(word);
        if resume.accepts(state) { Ok(state) } else { Err(invalid.clone()) }
    };
    if kind == StoreKind::Table {
        see(Part::Slots(reader.word()?))?;
        for set in [Set::Primary, Set::Secondary] {
            for keys in reader.pairs()?.chunks(AT_ONCE) {
                see(Part::Fingerprints(keys, set))?;
            }
        }
    } else {
        for _ in 0..reader.word()? {
            let state = checked(reader.word()?)?;
            see(if kind == StoreKind::One { Part::One(state) } else { Part::Key(reader.text()?, state) })?;
        }
    }
    for _ in 0..reader.word()? {
        let [tokens, nanos, burst] = reader.words()?;
        let quota = || Quota::checked(tokens, Duration::from_nanos(nanos), burst);
        let plan = if tokens == 0 { None } else { Some(quota().map_err(|_| invalid.clone())?) };
        let buckets = reader.pairs()?;
        for [_, word] in buckets {
            checked(u64::from_le_bytes(*word))?;
        }
        see(Part::Shared(plan, buckets))?;
    }
    if reader.word()? != 0 {
        see(Part::AnyPlan)?;
    }
    let no_key = reader.word()?;
    if no_key != State::FULL.word() {
        see(Part::NoKey(checked(no_key)?))?;
    }
    if reader.is_empty() { Ok(()) } else { Err(NotRestored(Misfit::Damaged)) }
}

/// Returns the fingerprints and words of keys of a table.
pub(super) fn words_in(keys: &[[[u8; 8]; 2]]) -> impl Iterator<Item = (u64, State)> {
    keys.iter().map(|[word, fingerprint]| {
        (u64::from_le_bytes(*fingerprint), State::from_word(u64::from_le_bytes(*word)))
    })
}
