//! The reply of a server to one call.

use super::row::{Row, shown};
use crate::credits::bucket::{Answer, Bucket};
use crate::credits::spec::MAX_CREDITS;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::Op;

/// The numbers of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The tokens granted; below zero, given back.
    pub(crate) granted: i64,
    /// The row after a call that changed it; the row that was found by another one.
    pub(crate) row: Option<Row>,
    /// The server's time, in microseconds since 1970.
    pub(crate) now_us: i64,
}

impl Reply {
    /// Returns the answer to a call.
    ///
    /// A call that changed nothing is decided once more, on the row that the server found. So its
    /// answer is that of the law, and it grants nothing that was not stored.
    ///
    /// # Errors
    ///
    /// A permanent error that names the key if the numbers are no answer to the call.
    pub(crate) fn answer(self, op: &Op<'_>) -> Result<Answer, StoreError> {
        let now_us = u64::try_from(self.now_us).map_err(|_| self.wrong(op))?;
        let amount = op.amount;
        if self.granted != 0 || amount.spent > 0 {
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
        StoreError::new(StoreErrorKind::Permanent, message)
    }
}
