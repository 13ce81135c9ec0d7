//! The id of a reservation, which describes itself: each replica can read it.
//!
//! A caller that may commit may also give hits back, so an id needs no secret. Its checksum tells a
//! text of another service, or a cut one, from an id.

use std::collections::HashSet;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::super::messages::{DESCRIPTORS, RateLimitRequest};
use crate::rules::amount::MAX_ITEMS;

/// The first byte of an id.
const VERSION: u8 = 1;
/// The most parts of an id: one of each limit of a request.
const MOST_PARTS: u64 = (DESCRIPTORS * MAX_ITEMS) as u64;
/// The bytes of the checksum.
const CHECKSUM: usize = 4;

/// A reservation, as its id has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct ReservationId {
    /// The process that made it.
    pub(super) process: u64,
    pub(super) number: u64,
    pub(super) amount: u64,
    /// The time of the reservation, in microseconds since 1970.
    pub(super) made_us: u64,
    pub(super) ttl_ms: u64,
    /// The amount goes back when the time is over.
    pub(super) is_released: bool,
    /// A hash of the domain and the descriptors.
    pub(super) asked: u64,
    /// The part under each limit that has counted the amount.
    pub(super) parts: Parts,
}

/// A limit of a request: the number of its descriptor, and its place in the list of the rule.
pub(in crate::serve) type LimitPlace = (u32, u32);

/// The parts of a reservation.
pub(super) type Parts = Vec<(LimitPlace, Part)>;

/// The part of a reservation under one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Part {
    /// The time at which a give-back would free hits of others, in microseconds since 1970: the end
    /// of the window, or the time at which the bucket is full.
    pub(in crate::serve) until_us: u64,
    /// The kind of the limit. Of another kind nothing is given back.
    pub(in crate::serve) kind: u32,
}

impl ReservationId {
    /// Returns the part under a limit of a kind, of a request whose limits are now of these kinds.
    ///
    /// A reload may have moved the limit in its list, or have put it into another kind.
    pub(super) fn part(&self, place: LimitPlace, kind: u32, now: &HashSet<(u32, u32)>) -> Option<Part> {
        let at = self.parts.iter().find(|(known, _)| *known == place).map(|(_, part)| *part);
        if at.is_some_and(|part| part.kind == kind) {
            return at;
        }
        let of_kind =
            |((descriptor, _), part): &&(LimitPlace, Part)| *descriptor == place.0 && part.kind == kind;
        let mut same = self.parts.iter().filter(of_kind);
        match (same.next(), same.next()) {
            (Some((_, part)), None) => Some(*part),
            _ => at.filter(|part| !now.contains(&(place.0, part.kind))),
        }
    }

    /// Returns the time at which it lapses, in microseconds since 1970.
    pub(super) fn lapses_us(&self) -> u64 {
        self.made_us.saturating_add(self.ttl_ms.saturating_mul(1_000))
    }

    /// Returns the time from which no commit counts: as much later as its time was long.
    pub(super) fn ends_us(&self) -> u64 {
        self.lapses_us().saturating_add(self.ttl_ms.saturating_mul(1_000))
    }

    /// Returns the text of the id: hexadecimal digits.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut digits =
            Digits { text: Vec::with_capacity(128 + 40 * self.parts.len()), sum: Mixer::default() };
        digits.put(VERSION.into());
        digits.put(self.is_released.into());
        digits.put_whole(self.process);
        digits.put_whole(self.asked);
        for number in [self.number, self.amount, self.made_us, self.ttl_ms, self.parts.len() as u64] {
            digits.put(number);
        }
        for ((descriptor, place), part) in &self.parts {
            let left = part.until_us.saturating_sub(self.made_us);
            for number in [u64::from(*descriptor), (*place).into(), left, part.kind.into()] {
                digits.put(number);
            }
        }
        let checksum = digits.sum.finish() as u32;
        checksum.to_le_bytes().into_iter().for_each(|byte| digits.byte(byte));
        digits.text
    }

    /// Reads an id; `None` of a text that is none.
    pub(super) fn read(text: &str) -> Option<ReservationId> {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let pairs = text.as_bytes().chunks(2);
        let byte = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
        let bytes = pairs.map(byte).collect::<Option<Vec<u8>>>()?;
        let (bytes, sum) = bytes.split_last_chunk::<CHECKSUM>()?;
        let ([VERSION, is_released], rest) = bytes.split_first_chunk()? else { return None };
        let (process, rest) = rest.split_first_chunk()?;
        let (asked, mut rest) = rest.split_first_chunk()?;
        let (process, asked) = (u64::from_le_bytes(*process), u64::from_le_bytes(*asked));
        let mut mixer = Mixer::default();
        for number in [VERSION.into(), (*is_released).into(), process, asked] {
            mixer.add(number);
        }
        let mut next = || take(&mut rest).inspect(|number| mixer.add(*number));
        let (number, amount, made_us, ttl_ms) = (next()?, next()?, next()?, next()?);
        let mut parts = Vec::new();
        let count = next()?;
        if count > MOST_PARTS {
            return None;
        }
        for _ in 0..count {
            let mut small = || u32::try_from(next()?).ok();
            let place = (small()?, small()?);
            let (left, kind) = (next()?, u32::try_from(next()?).ok()?);
            parts.push((place, Part { until_us: made_us.saturating_add(left), kind }));
        }
        let is_whole = rest.is_empty() && *sum == (mixer.finish() as u32).to_le_bytes();
        let is_released = *is_released != 0;
        is_whole.then_some(ReservationId {
            process,
            number,
            amount,
            made_us,
            ttl_ms,
            is_released,
            asked,
            parts,
        })
    }
}

/// Returns a hash of the domain and the descriptors, which is the same in each process.
pub(super) fn hash_of(request: &RateLimitRequest) -> u64 {
    let mut mixer = Mixer::default();
    mixer.add_text(&request.domain);
    for descriptor in &request.descriptors {
        mixer.add(descriptor.entries.len() as u64);
        for entry in &descriptor.entries {
            mixer.add_text(&entry.key);
            mixer.add_text(&entry.value);
        }
        let limit = descriptor.limit.map(|limit| (limit.requests_per_unit, limit.unit));
        let (requests, unit) = limit.unwrap_or_default();
        mixer.add(u64::from(requests) << 32 | u64::from(unit.unsigned_abs()));
    }
    mixer.finish()
}

/// Returns the kind of a limit by its text, above the numbers of units.
pub(in crate::serve) fn kind_of(text: &str) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(text.as_bytes());
    hasher.finish() as u32 | 1 << 8
}

/// A hash of numbers and texts that finds mistakes. It has no secret: a trusted caller makes them.
#[derive(Default)]
struct Mixer(u64);

impl Mixer {
    fn add(&mut self, number: u64) {
        // An odd number without a pattern, so that each bit reaches those above it.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn add_text(&mut self, text: &str) {
        self.add(text.len() as u64);
        let (words, rest) = text.as_bytes().as_chunks();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        self.add(rest.iter().fold(0, |last, byte| last << 8 | u64::from(*byte)));
    }

    fn finish(&self) -> u64 {
        let mixed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    }
}

/// The digits of an id so far.
struct Digits {
    text: Vec<u8>,
    sum: Mixer,
}

impl Digits {
    fn byte(&mut self, byte: u8) {
        let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
        self.text.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }

    /// Appends a number, in groups of seven bits from the lowest on.
    fn put(&mut self, mut number: u64) {
        self.sum.add(number);
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    /// Appends the eight bytes of a number.
    fn put_whole(&mut self, number: u64) {
        self.sum.add(number);
        number.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
    }
}

/// Takes a number off the begin.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f).checked_shl(shift)?;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
