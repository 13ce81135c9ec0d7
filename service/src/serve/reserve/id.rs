//! The id of a reservation, which describes itself: each replica can read it.
//!
//! A caller that may commit may also give hits back, so an id needs no secret. Its checksum tells a
//! text of another service, or a cut one, from an id.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::super::lists::Place;
use super::super::messages::RateLimitRequest;

/// The first byte of an id.
const VERSION: u8 = 1;
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
    pub(super) parts: Vec<(Place, Part)>,
}

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
    /// Returns the part under a limit.
    pub(super) fn part(&self, place: Place) -> Option<Part> {
        self.parts.iter().find(|(known, _)| *known == place).map(|(_, part)| *part)
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
    pub(super) fn text(&self) -> String {
        let mut bytes = Vec::with_capacity(48 + 12 * self.parts.len());
        bytes.extend([VERSION, self.is_released.into()]);
        bytes.extend(self.process.to_le_bytes());
        bytes.extend(self.asked.to_le_bytes());
        for number in [self.number, self.amount, self.made_us, self.ttl_ms, self.parts.len() as u64] {
            put(&mut bytes, number);
        }
        for ((descriptor, place), part) in &self.parts {
            let left = part.until_us.saturating_sub(self.made_us);
            for number in [u64::from(*descriptor), (*place).into(), left, part.kind.into()] {
                put(&mut bytes, number);
            }
        }
        let checksum = checksum(&bytes);
        bytes.extend(checksum);
        let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
        let mut digits = Vec::with_capacity(2 * bytes.len());
        bytes.iter().for_each(|byte| digits.extend([digit(byte >> 4), digit(byte & 15)]));
        String::from_utf8(digits).expect("digits are ASCII")
    }

    /// Reads an id; `None` of a text that is none.
    pub(super) fn read(text: &str) -> Option<ReservationId> {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let pairs = text.as_bytes().chunks(2);
        let byte = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
        let bytes = pairs.map(byte).collect::<Option<Vec<u8>>>()?;
        let (bytes, sum) = bytes.split_last_chunk::<CHECKSUM>()?;
        if *sum != checksum(bytes) {
            return None;
        }
        let ([VERSION, is_released], rest) = bytes.split_first_chunk()? else { return None };
        let (process, rest) = rest.split_first_chunk()?;
        let (asked, mut rest) = rest.split_first_chunk()?;
        let mut next = || take(&mut rest);
        let (number, amount, made_us, ttl_ms) = (next()?, next()?, next()?, next()?);
        let mut parts = Vec::new();
        for _ in 0..next()? {
            let mut small = || u32::try_from(next()?).ok();
            let place = (small()?, small()?);
            let (left, kind) = (next()?, u32::try_from(next()?).ok()?);
            parts.push((place, Part { until_us: made_us.saturating_add(left), kind }));
        }
        let (process, asked) = (u64::from_le_bytes(*process), u64::from_le_bytes(*asked));
        let is_released = *is_released != 0;
        Some(ReservationId { process, number, amount, made_us, ttl_ms, is_released, asked, parts })
    }
}

/// Returns a hash of the domain and the descriptors, which is the same in each process.
pub(super) fn hash_of(request: &RateLimitRequest) -> u64 {
    let mut hasher = SipHasher13::new();
    let mut add = |text: &str| {
        hasher.write_u64(text.len() as u64);
        hasher.write(text.as_bytes());
    };
    add(&request.domain);
    for descriptor in &request.descriptors {
        add(&descriptor.entries.len().to_string());
        for entry in &descriptor.entries {
            add(&entry.key);
            add(&entry.value);
        }
    }
    for limit in request.descriptors.iter().map(|descriptor| descriptor.limit) {
        hasher.write_u64(limit.map_or(0, |limit| {
            1 << 63 | u64::from(limit.requests_per_unit) << 8 | u64::from(limit.unit.unsigned_abs() & 127)
        }));
    }
    hasher.finish()
}

/// Returns the kind of a limit by its text, above the numbers of units.
pub(in crate::serve) fn kind_of(text: &str) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(text.as_bytes());
    hasher.finish() as u32 | 1 << 8
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    (hasher.finish() as u32).to_le_bytes()
}

/// Appends a number, in groups of seven bits from the lowest on.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
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
