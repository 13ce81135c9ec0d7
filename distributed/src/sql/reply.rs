//! The replies of a server to the calls of a batch.

use super::row::{Row, shown};
use crate::credits::bucket::{Answer, Bucket};
use crate::credits::spec::MAX_CREDITS;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::Op;

/// The numbers of the reply to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The tokens granted; below zero, given back.
    pub(crate) granted: i64,
    /// The row after the call, if the call changed it; else the row that the call found.
    pub(crate) row: Option<Row>,
    /// The server's time, in microseconds since 1970.
    pub(crate) now_us: i64,
}

/// Writes the answers of a batch. A call without a reply is an error: the server sent nonsense.
///
/// # Errors
///
/// A permanent error that names the key if a row is no bucket and no call of the batch changed a
/// row. Any other error has an unknown effect: calls may have been granted.
pub(crate) fn answer<'o, 'a: 'o>(
    calls: impl Iterator<Item = (&'o mut Op<'a>, Option<Reply>)>,
) -> Result<(), StoreError> {
    let (mut failed, mut changed) = (None, false);
    for (op, reply) in calls {
        changed |= reply.is_none_or(|reply| reply.changed(op));
        let missing = || StoreError::new(StoreErrorKind::Unknown, "the reply has no part for a call");
        match reply.ok_or_else(missing).and_then(|reply| reply.answer(op)) {
            Ok(answer) => op.answer = answer,
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if changed => Err(StoreError::new(StoreErrorKind::Unknown, error)),
        Some(error) => Err(error),
        None => Ok(()),
    }
}

impl Reply {
    /// Returns whether the call changed its bucket, by the reply.
    fn changed(self, op: &Op<'_>) -> bool {
        self.granted != 0 || op.amount.spent > 0
    }

    /// Returns the answer to a call.
    ///
    /// A call that changed nothing is decided again, by `Bucket::step` on the row that the server
    /// found. So no such reply grants a token that was not stored.
    fn answer(self, op: &Op<'_>) -> Result<Answer, StoreError> {
        let now_us = u64::try_from(self.now_us).map_err(|_| self.wrong(op))?;
        let amount = op.amount;
        if self.changed(op) {
            let row = self.row.ok_or_else(|| self.wrong(op))?;
            let possible = if amount.max < 0 { amount.max..=amount.max } else { 0..=amount.max };
            let most = MAX_CREDITS as i64;
            if !possible.contains(&self.granted) || !(-most..=most).contains(&row.credits) {
                return Err(self.wrong(op));
            }
            return Ok(Answer { granted: self.granted, credits: row.credits, now_us });
        }
        let stored = self.row.map(|row| row.bucket(op.key)).transpose()?;
        match Bucket::step(stored, &op.spec, now_us, amount) {
            (None, answer) => Ok(answer),
            (Some(_), _) => Err(self.wrong(op)),
        }
    }

    fn wrong(self, op: &Op<'_>) -> StoreError {
        let message =
            format!("the reply for key {} is no answer to {:?}: {self:?}", shown(op.key), op.amount);
        StoreError::new(StoreErrorKind::Unknown, message)
    }
}
