//! The bytes of a command for buckets, and the numbers of its answer.

use redis::{ErrorKind, RedisError, RedisResult, Value};

use super::script::{STEP, ScriptCall};
use crate::law::amount::{Amount, StoreAnswer};
use crate::law::any_law::Law;
use crate::law::spec::{MAX_CREDITS, Spec};
use crate::store::op::Op;

/// The bytes of a number up to 2^53, with its sign.
const NUMBER: usize = 7;

/// The calls and specs of a batch, as `step.lua` reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) specs: Vec<u8>,
    pub(crate) calls: Vec<u8>,
}

/// Packs at most 64 calls, each on a bucket: another one is left out.
pub(crate) fn pack(ops: &[Op<'_>]) -> Packed {
    let mut packed = Packed::default();
    let mut known: Vec<&Spec> = Vec::new();
    for op in ops {
        let Law::Bucket(spec) = &op.law else { continue };
        let index = known.iter().position(|&known| known == spec).unwrap_or_else(|| {
            pack_spec(spec, &mut packed.specs);
            known.push(spec);
            known.len() - 1
        });
        // There are at most as many specs as calls: 64.
        packed.calls.push(index as u8);
        let amount = bounded(spec, op.amount);
        push(&mut packed.calls, amount.min);
        push(&mut packed.calls, amount.max);
        push(&mut packed.calls, amount.spent as i64);
    }
    packed
}

fn pack_spec(spec: &Spec, bytes: &mut Vec<u8>) {
    let credits = [spec.capacity(), spec.per_token(), spec.per_tick(), spec.tick_us()];
    let bounds = [spec.floor(), spec.debt_credits(), spec.fill_ticks()];
    for number in credits.into_iter().chain(bounds) {
        // Each is below 2^53, by the bounds of a spec.
        push(bytes, number as i64);
    }
}

fn push(bytes: &mut Vec<u8>, number: i64) {
    bytes.extend(number.to_le_bytes().into_iter().take(NUMBER));
}

/// Returns an amount with the same effect on a bucket, in numbers up to 2^53.
fn bounded(spec: &Spec, amount: Amount) -> Amount {
    let counted = MAX_CREDITS as i64 + 1;
    let deepest = (spec.capacity() + spec.floor()) / spec.per_token() + 1;
    let back = spec.quota().capacity() + spec.floor() / spec.per_token() + 1;
    Amount {
        min: amount.min.clamp(0, counted),
        max: amount.max.clamp(-(back as i64), counted),
        spent: amount.spent.min(deepest),
        of_us: 0,
    }
}

/// Returns the script call of a batch. With `guard`, a missing bucket was empty when the server
/// started.
pub(crate) fn steps(prefix: &[u8], ops: &[Op<'_>], guard: bool) -> ScriptCall {
    let mut command = STEP.command(ops.len());
    let key = |op: &Op<'_>| [prefix, op.key].concat();
    for op in ops {
        command.arg(key(op));
    }
    let packed = pack(ops);
    command.arg(packed.specs).arg(packed.calls);
    if guard {
        command.arg(1);
    }
    let first = ops.first().map(key).unwrap_or_default();
    ScriptCall { key: first, script: &STEP, command, length: ops.len() * 2 + 1 }
}

/// Returns the numbers of an answer.
///
/// # Errors
///
/// The answer is no list of `length` integers.
pub(crate) fn numbers(reply: &Value, length: usize) -> RedisResult<Vec<i64>> {
    let Value::Array(values) = reply else {
        return Err(invalid("no list".to_owned()));
    };
    if values.len() != length {
        return Err(invalid(format!("{} numbers instead of {length}", values.len())));
    }
    let number = |value: &Value| match value {
        Value::Int(number) => Ok(*number),
        _ => Err(invalid("a value that is no integer".to_owned())),
    };
    values.iter().map(number).collect()
}

/// Writes the answers of a batch.
///
/// # Errors
///
/// A number is out of the range of its call. No answer is written.
pub(crate) fn read_steps(numbers: &[i64], ops: &mut [Op<'_>]) -> RedisResult<()> {
    let pairs = numbers.as_chunks::<2>().0;
    let now_us = read_time(numbers)?;
    let mut answers = Vec::with_capacity(ops.len());
    for (op, &[granted, credits]) in ops.iter().zip(pairs) {
        let answer = read_answer(op, StoreAnswer { granted, credits, now_us, ..StoreAnswer::default() });
        let bad = || invalid(format!("{granted} granted and {credits} credits left of {:?}", op.amount));
        answers.push(answer.ok_or_else(bad)?);
    }
    for (op, answer) in ops.iter_mut().zip(answers) {
        op.answer = answer;
    }
    Ok(())
}

/// Returns the server's time, which is the last number of an answer.
pub(super) fn read_time(numbers: &[i64]) -> RedisResult<u64> {
    let now_us = numbers.last().and_then(|&now| u64::try_from(now).ok());
    let now_us = now_us.filter(|now| (1..=MAX_CREDITS).contains(now));
    now_us.ok_or_else(|| invalid("a time out of range".to_owned()))
}

fn read_answer(op: &Op<'_>, answer: StoreAnswer) -> Option<StoreAnswer> {
    let Law::Bucket(spec) = &op.law else { return None };
    let asked = bounded(spec, op.amount);
    let levels = -(MAX_CREDITS as i64)..=spec.capacity() as i64;
    let grants = if asked.max < 0 { asked.max..=asked.max } else { 0..=asked.max };
    // A call that gives tokens back gives all of them, also those above a full bucket.
    let granted = if asked.max < 0 { op.amount.max } else { answer.granted };
    let sound = grants.contains(&answer.granted) && levels.contains(&answer.credits);
    sound.then_some(StoreAnswer { granted, ..answer })
}

pub(super) fn invalid(found: String) -> RedisError {
    (ErrorKind::Parse, "the answer is not that of the script", found).into()
}
