//! The bytes of a command for counts, and the numbers of its answer.

use redis::RedisResult;

use super::command::{invalid, read_time};
use super::script::{COUNT, ScriptCall};
use super::slots::tag;
use crate::law::amount::StoreAnswer;
use crate::law::any_law::Law;
use crate::law::spec::MAX_CREDITS;
use crate::store::op::Op;

/// The part of a name between the prefix and the key of a count. The key of no bucket begins with a
/// colon: no limiter has an empty name.
const COUNTS: &[u8] = b":count:";

/// Returns the name of a count in a server. Its slot is that of the key's bucket: that of the tag
/// in the bucket's name, or else of the whole name. Other braces in the key may change that.
pub(super) fn name(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    let bucket = [prefix, key].concat();
    match tag(&bucket) {
        Some(_) => [prefix, COUNTS, key].concat(),
        None => [prefix, COUNTS, b"{", &bucket, b"}"].concat(),
    }
}

/// Returns the script call of a batch, each on a count: another one is left out. With `guard`, a
/// missing count was used up when the server started.
pub(crate) fn counts(prefix: &[u8], ops: &[Op<'_>], guard: bool) -> ScriptCall {
    let mut command = COUNT.command(ops.len());
    for op in ops {
        command.arg(name(prefix, op.key));
    }
    command.arg(pack_counts(ops));
    if guard {
        command.arg(1);
    }
    let first = ops.first().map(|op| name(prefix, op.key)).unwrap_or_default();
    ScriptCall { key: first, script: &COUNT, command, length: ops.len() * 4 + 1 }
}

/// The bytes of each number of a call, in their order.
const WIDTHS: [usize; 12] = [7, 1, 1, 7, 7, 7, 1, 7, 7, 7, 7, 7];

/// Packs the calls on counts, as `count.lua` reads them.
pub(super) fn pack_counts(ops: &[Op<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for op in ops {
        let Law::Count(spec) = &op.law else { continue };
        for (number, width) in spec.numbers(op.amount).into_iter().zip(WIDTHS) {
            bytes.extend(number.to_le_bytes().into_iter().take(width));
        }
    }
    bytes
}

/// Writes the answers of a batch. A call whose months are not those of the server's clock has none.
///
/// # Errors
///
/// A number is out of the range of its call. No answer is written.
pub(crate) fn read_counts(numbers: &[i64], ops: &mut [Op<'_>]) -> RedisResult<()> {
    let now_us = read_time(numbers)?;
    let mut answers = Vec::with_capacity(ops.len());
    for (op, &[granted, credits, edge_us, freed]) in ops.iter().zip(numbers.as_chunks::<4>().0) {
        let Law::Count(spec) = &op.law else { continue };
        let counted = 0..=MAX_CREDITS as i64;
        let (least, most) = (op.amount.max.min(0), op.amount.max.max(0));
        let sound = (least..=most).contains(&granted)
            && (-(MAX_CREDITS as i64)..=spec.limit() as i64).contains(&credits)
            && (0..=2 * MAX_CREDITS as i64).contains(&edge_us)
            && counted.contains(&freed);
        if !sound {
            let found = format!("{granted} granted and {credits} left until {edge_us} of {:?}", op.amount);
            return Err(invalid(found));
        }
        // None of them is negative.
        let (edge_us, freed) = (edge_us as u64, freed as u64);
        let now_us = if edge_us == 0 { 0 } else { now_us };
        answers.push(StoreAnswer { granted, credits, now_us, edge_us, freed });
    }
    for (op, answer) in ops.iter_mut().zip(answers) {
        op.answer = answer;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::name;
    use crate::redis::slots::slot_of;

    #[test]
    fn a_count_is_in_the_slot_of_its_bucket() {
        for key in [&b"day:ada"[..], b"day:{ada}", b"day:{}ada", b"", b"{", b"{a}}"] {
            let bucket = [b"tollgate:", key].concat();
            let is_odd = key == b"day:{}ada";
            assert_eq!(slot_of(&name(b"tollgate:", key)) == slot_of(&bucket), !is_odd, "{key:?}");
        }
    }
}
