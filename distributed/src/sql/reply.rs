//! The replies of a server to the calls of a batch.

use super::count_row::CountRow;
use super::row::{Row, shown};
use crate::law::amount::StoreAnswer;
use crate::law::any_law::Law;
use crate::law::bucket::Bucket;
use crate::law::count::{Count, OutsideOfMonths};
use crate::law::count_spec::CountSpec;
use crate::law::spec::{MAX_CREDITS, Spec};
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::Op;

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Bucket(BucketReply),
    Count(CountReply),
}

/// The numbers of the reply to a call on a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketReply {
    /// The tokens granted; below zero, given back.
    pub(crate) granted: i64,
    /// The row after the call, if the call changed it; else the row that the call found.
    pub(crate) row: Option<Row>,
    /// The server's time, in microseconds since 1970.
    pub(crate) now_us: i64,
}

/// The reply to a call on a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountReply {
    /// The tokens granted; below zero, given back.
    pub(crate) granted: i64,
    /// Whether the call changed the count.
    pub(crate) changed: bool,
    /// The row after the call, if the call changed it; else the row that the call found.
    pub(crate) row: Option<CountRow>,
    /// The server's time, in microseconds since 1970.
    pub(crate) now_us: i64,
}

/// Writes the answers of a batch. A call without a reply is an error: the server sent nonsense.
///
/// # Errors
///
/// A permanent error that names the key if a row is none and no call of the batch changed a row,
/// and for the calls whose months are not those of the server's clock: the others have answers. Any
/// other error has an unknown effect: calls may have been granted.
pub(crate) fn answer<'o, 'a: 'o>(
    calls: impl Iterator<Item = (&'o mut Op<'a>, Option<Reply>)>,
) -> Result<(), StoreError> {
    let (mut failed, mut outside, mut changed) = (None, None, false);
    for (op, reply) in calls {
        changed |= reply.as_ref().is_none_or(|reply| reply.changed(op));
        let missing =
            || Wrong::Reply(StoreError::new(StoreErrorKind::Unknown, "the reply has no part for a call"));
        match reply.ok_or_else(missing).and_then(|reply| reply.answer(op)) {
            Ok(answer) => op.answer = answer,
            Err(Wrong::Reply(error)) => failed = Some(error),
            Err(Wrong::Months(error)) => outside = Some(StoreError::new(StoreErrorKind::Permanent, error)),
        }
    }
    match failed {
        Some(error) if changed => Err(StoreError::new(StoreErrorKind::Unknown, error)),
        Some(error) => Err(error),
        None => outside.map_or(Ok(()), Err),
    }
}

/// The reason why a reply is no answer.
enum Wrong {
    Reply(StoreError),
    /// The call had no effect.
    Months(OutsideOfMonths),
}

impl From<StoreError> for Wrong {
    fn from(error: StoreError) -> Wrong {
        Wrong::Reply(error)
    }
}

impl Reply {
    /// Returns whether the call changed its row, by the reply.
    fn changed(&self, op: &Op<'_>) -> bool {
        match self {
            Reply::Bucket(reply) => reply.granted != 0 || op.amount.spent > 0,
            Reply::Count(reply) => reply.changed,
        }
    }

    fn answer(self, op: &Op<'_>) -> Result<StoreAnswer, Wrong> {
        let (granted, now_us) = match &self {
            Reply::Bucket(reply) => (reply.granted, reply.now_us),
            Reply::Count(reply) => (reply.granted, reply.now_us),
        };
        let now_us = u64::try_from(now_us).map_err(|_| wrong(&self, op))?;
        let (least, most) = (op.amount.max.min(0), op.amount.max.max(0));
        if !(least..=most).contains(&granted) {
            return Err(wrong(&self, op).into());
        }
        match (&op.law, &self) {
            (Law::Bucket(spec), Reply::Bucket(reply)) => Ok(reply.answer(spec, op, now_us)?),
            (Law::Count(spec), Reply::Count(reply)) => reply.answer(spec, op, now_us),
            _ => Err(wrong(&self, op).into()),
        }
    }
}

impl BucketReply {
    /// Returns the answer to a call.
    ///
    /// A call that changed nothing is decided again, by `Bucket::step` on the row that the server
    /// found. So no such reply grants a token that was not stored.
    fn answer(self, spec: &Spec, op: &Op<'_>, now_us: u64) -> Result<StoreAnswer, StoreError> {
        let (amount, reply) = (op.amount, Reply::Bucket(self));
        if reply.changed(op) {
            let row = self.row.ok_or_else(|| wrong(&reply, op))?;
            let is_possible = amount.max >= 0 || self.granted == amount.max;
            let most = MAX_CREDITS as i64;
            if !is_possible || !(-most..=most).contains(&row.credits) {
                return Err(wrong(&reply, op));
            }
            return Ok(StoreAnswer {
                granted: self.granted,
                credits: row.credits,
                now_us,
                ..StoreAnswer::default()
            });
        }
        let stored = self.row.map(|row| row.bucket(op.key)).transpose()?;
        match Bucket::step(stored, spec, now_us, amount) {
            (None, answer) => Ok(answer),
            (Some(_), _) => Err(wrong(&reply, op)),
        }
    }
}

impl CountReply {
    /// Returns the answer to a call. One that changed nothing is decided again, as of a bucket.
    fn answer(&self, spec: &CountSpec, op: &Op<'_>, now_us: u64) -> Result<StoreAnswer, Wrong> {
        let count = self.row.clone().map(|row| row.count(op.key)).transpose()?;
        let wrong = || Wrong::Reply(wrong(&Reply::Count(self.clone()), op));
        if self.changed {
            let count = count.filter(|count| count.used.len() == spec.counts()).ok_or_else(wrong)?;
            let total: u64 = count.used.iter().sum();
            return Ok(StoreAnswer {
                granted: self.granted,
                // Both are below 2^53, by the bounds of a row.
                credits: spec.limit() as i64 - total as i64,
                now_us,
                edge_us: count.start_us + (count.end_us - count.start_us) / count.used.len() as u64,
                freed: count.used.last().copied().unwrap_or(0),
            });
        }
        match Count::step(count.as_ref(), spec, now_us, op.amount).map_err(Wrong::Months)? {
            (None, answer) if self.granted == 0 => Ok(answer),
            _ => Err(wrong()),
        }
    }
}

fn wrong(reply: &Reply, op: &Op<'_>) -> StoreError {
    let message = format!("the reply for key {} is no answer to {:?}: {reply:?}", shown(op.key), op.amount);
    StoreError::new(StoreErrorKind::Unknown, message)
}
