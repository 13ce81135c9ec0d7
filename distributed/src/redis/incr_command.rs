//! The commands of a call on a count of envoyproxy/ratelimit, and the numbers of their answers.
//!
//! That service writes a key of domain, entries and the begin of the window, by `INCRBY` and
//! `EXPIRE` in a pipeline. The begin is a multiple of the period in seconds since 1970. So a week
//! begins on a Thursday; a month has 30 days, and a year 365.

use std::time::Duration;

use redis::{Cmd, RedisResult, Value, make_extension_error};

use super::command::invalid;
use crate::law::amount::StoreAnswer;
use crate::law::any_law::Law;
use crate::law::count_spec::{CountSpec, Edges};
use crate::law::spec::MAX_CREDITS;
use crate::store::op::Op;

/// The keys of probes: of the server, and of that for limits of a second.
pub(super) const PROBES: [&str; 2] = [":probe", ":second-probe"];

/// Gives tokens back, and none below 0. Returns their number and the count.
const GIVE_BACK: &str = "local count = tonumber(redis.call('GET', KEYS[1]) or 0) \
                         if not count then return redis.error_reply('ERR value is not an integer') end \
                         local back = math.max(math.min(count, tonumber(ARGV[1])), 0) \
                         if back > 0 then count = redis.call('DECRBY', KEYS[1], string.format('%.0f', back)) end \
                         return {back, count}";

const MICROS: u64 = 1_000_000;

/// A call on a count as the reference counts it.
pub(super) struct Counted {
    /// The name of the count in the server.
    pub(super) name: Vec<u8>,
    /// Whether it is for the server of the limits of one second, if that is another one.
    pub(super) is_per_second: bool,
    period_s: u64,
    now_us: u64,
    edge_us: u64,
    limit: i64,
    verb: Verb,
}

#[derive(Clone, Copy)]
enum Verb {
    Look,
    /// The number that is added, and the fewest and the most tokens to grant of it.
    Add(i64, i64, i64),
    GiveBack(i64),
}

/// Returns the length of a window in seconds.
///
/// # Errors
///
/// The reason why the reference has no such window.
pub(super) fn period_of(spec: &CountSpec) -> Result<u64, &'static str> {
    match spec.edges() {
        _ if spec.parts() > 1 => Err("a sliding window has more than one count"),
        Edges::FirstUse { .. } => Err("a window from the first use has an edge of its own for each key"),
        Edges::Given(_) => Err("a month by the calendar has no fixed length"),
        Edges::Every { period_us, .. } if period_us < MICROS || period_us % MICROS != 0 => {
            Err("the window is not of whole seconds")
        }
        Edges::Every { period_us, .. } => Ok(period_us / MICROS),
    }
}

/// Returns the spec of a law.
///
/// # Errors
///
/// The reason why the reference counts by no such law.
pub(super) fn spec_of(law: &Law) -> Result<&CountSpec, &'static str> {
    match law {
        Law::Bucket(_) => Err("a bucket is no count"),
        Law::Count(spec) => period_of(spec).map(|_| spec),
    }
}

impl Counted {
    /// Returns a call at a time since 1970.
    ///
    /// # Errors
    ///
    /// The reason why the reference counts by no such law.
    pub(super) fn of(prefix: &[u8], op: &Op<'_>, now: Duration) -> Result<Counted, &'static str> {
        let probe = PROBES.iter().position(|probe| op.key.starts_with(probe.as_bytes()));
        let (period_s, limit, is_per_second) = match (&op.law, probe) {
            // A probe takes a token of a bucket, and leaves a count of a second.
            (Law::Bucket(_), Some(server)) => (1, 1, server == 1),
            (law, _) => {
                let spec = spec_of(law)?;
                let period_s = period_of(spec)?;
                (period_s, spec.limit(), period_s == 1)
            }
        };
        if let Law::Count(spec) = &op.law
            && spec.halves(op.amount)
        {
            return Err("each token that is asked for is counted, so there is no lease");
        }
        let start_s = now.as_secs() - now.as_secs() % period_s;
        let name = [prefix, op.key, start_s.to_string().as_bytes()].concat();
        let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX).min(MAX_CREDITS);
        let edge_us = (start_s + period_s).saturating_mul(MICROS);
        // Below 2^53, as each number is here.
        let limit = limit as i64;
        Ok(Counted { name, is_per_second, period_s, now_us, edge_us, limit, verb: verb_of(op, edge_us) })
    }

    /// Returns the commands. An added count expires after the period and `jitter_s`.
    pub(super) fn commands(&self, jitter_s: u64) -> Vec<Cmd> {
        match self.verb {
            Verb::Look => vec![redis::cmd("GET").arg(&self.name).to_owned()],
            Verb::Add(added, ..) => vec![
                redis::cmd("INCRBY").arg(&self.name).arg(added).to_owned(),
                redis::cmd("EXPIRE").arg(&self.name).arg(self.period_s + jitter_s).to_owned(),
            ],
            Verb::GiveBack(back) => {
                vec![redis::cmd("EVAL").arg(GIVE_BACK).arg(1).arg(&self.name).arg(back).to_owned()]
            }
        }
    }

    /// Returns the answer to the call, by those to its commands.
    ///
    /// # Errors
    ///
    /// They are not the answers of a count.
    pub(super) fn read(&self, answers: &[Value]) -> RedisResult<StoreAnswer> {
        let bad = || invalid(format!("{answers:?} for a count"));
        let (granted, count) = match (self.verb, answers) {
            (Verb::Look, [Value::Nil]) => (0, 0),
            (Verb::Look, [Value::BulkString(text)]) => {
                let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                // The server tells the same of an `INCRBY`.
                let text =
                    || make_extension_error("ERR".to_owned(), Some("value is not an integer".to_owned()));
                (0, number.ok_or_else(text)?)
            }
            (Verb::Add(added, min, max), [Value::Int(count), ..]) => {
                let before = count.saturating_sub(added).max(0);
                let spent = added - max;
                let there = self.limit.saturating_sub(before).saturating_sub(spent).clamp(0, max);
                (if there >= min { there } else { 0 }, *count)
            }
            (Verb::GiveBack(most), [Value::Array(numbers)]) => match numbers.as_slice() {
                [Value::Int(back), Value::Int(count)] if (0..=most).contains(back) => (-back, *count),
                _ => return Err(bad()),
            },
            _ => return Err(bad()),
        };
        let count = count.clamp(0, MAX_CREDITS as i64);
        Ok(StoreAnswer {
            granted,
            credits: self.limit - count,
            now_us: self.now_us,
            edge_us: self.edge_us,
            // No longer negative.
            freed: count as u64,
        })
    }
}

fn verb_of(op: &Op<'_>, edge_us: u64) -> Verb {
    let amount = op.amount;
    let is_present = amount.of_us == 0 || amount.of_us == edge_us;
    let spent = if is_present { amount.spent.min(MAX_CREDITS) as i64 } else { 0 };
    let (min, max) = (amount.min.max(0), amount.max.clamp(0, MAX_CREDITS as i64));
    match amount.max {
        ..0 if is_present && spent == 0 => Verb::GiveBack(amount.max.max(-(MAX_CREDITS as i64)).abs()),
        _ if max + spent > 0 => Verb::Add(max + spent, min, max),
        _ => Verb::Look,
    }
}
