//! The parsers of a server's bytes, for the fuzz targets. Not a part of the API.

use redis::RedisResult;

use super::command;
use super::count_command::{pack_counts, read_counts};
use crate::law::any_law::Law;
use crate::store::op::Op;

/// Reads the bytes of a server as the answer of a batch: on counts, or else on buckets.
///
/// # Errors
///
/// The bytes are not the answer of the script.
pub fn read_reply(bytes: &[u8], ops: &mut [Op<'_>]) -> RedisResult<()> {
    let value = redis::parse_redis_value(bytes)?.extract_error()?;
    match ops {
        [Op { law: Law::Count(_), .. }, ..] => {
            read_counts(&command::numbers(&value, ops.len() * 4 + 1)?, ops)
        }
        _ => command::read_steps(&command::numbers(&value, ops.len() * 2 + 1)?, ops),
    }
}

/// Reads the bytes of a server as the map of the slots. Returns the number of ranges.
#[must_use]
pub fn read_slots(bytes: &[u8]) -> Option<usize> {
    super::slots::read_slots(&redis::parse_redis_value(bytes).ok()?).map(|ranges| ranges.len())
}

/// Returns the bytes of the specs and those of the calls of a batch on buckets, and those of the
/// calls of a batch on counts.
#[must_use]
pub fn pack(ops: &[Op<'_>]) -> (Vec<u8>, Vec<u8>) {
    let packed = command::pack(ops);
    (packed.specs, [packed.calls, pack_counts(ops)].concat())
}
