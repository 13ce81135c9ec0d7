//! The bytes of a command for buckets and counts, all or none, and the numbers of its answer.

use redis::RedisResult;

use super::command::{pack, read_steps};
use super::count_command::{name, pack_counts, read_counts};
use super::script::{ALL, ScriptCall};
use crate::law::any_law::Law;
use crate::store::op::Op;

/// Returns calls on buckets, and then those on counts.
fn by_law<'k>(ops: &[Op<'k>]) -> [Vec<Op<'k>>; 2] {
    let (buckets, counts) = ops.iter().partition(|op| matches!(op.law, Law::Bucket(_)));
    [buckets, counts]
}

/// Returns the names of calls in a server.
pub(super) fn names(prefix: &[u8], ops: &[Op<'_>]) -> Vec<Vec<u8>> {
    let [buckets, counts] = by_law(ops);
    let buckets = buckets.into_iter().map(|op| [prefix, op.key].concat());
    buckets.chain(counts.into_iter().map(|op| name(prefix, op.key))).collect()
}

/// Returns the script call of at most 64 calls.
pub(super) fn all(prefix: &[u8], ops: &[Op<'_>], guard: bool) -> ScriptCall {
    let [buckets, counts] = by_law(ops);
    let names = names(prefix, ops);
    let mut command = ALL.command(names.len());
    for name in &names {
        command.arg(name);
    }
    let packed = pack(&buckets);
    command.arg(buckets.len()).arg(packed.specs).arg(packed.calls).arg(pack_counts(&counts));
    if guard {
        command.arg(1);
    }
    let length = buckets.len() * 2 + counts.len() * 4 + 2;
    ScriptCall { key: names.into_iter().next().unwrap_or_default(), script: &ALL, command, length }
}

/// Writes the answers of the calls.
///
/// # Errors
///
/// A number is out of the range of its call. No answer is written.
pub(super) fn read_all(numbers: &[i64], ops: &mut [Op<'_>]) -> RedisResult<()> {
    let [mut buckets, mut counts] = by_law(ops);
    let (of_buckets, of_counts) = numbers.split_at(buckets.len() * 2 + 1);
    read_steps(of_buckets, &mut buckets)?;
    read_counts(of_counts, &mut counts)?;
    let (mut buckets, mut counts) = (buckets.iter(), counts.iter());
    for op in ops {
        let decided = match op.law {
            Law::Bucket(_) => buckets.next(),
            Law::Count(_) => counts.next(),
        };
        op.answer = decided.map(|decided| decided.answer).unwrap_or_default();
    }
    Ok(())
}
