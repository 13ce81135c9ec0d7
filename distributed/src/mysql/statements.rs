//! The calls of a batch as statements, and the text of their answers.

use std::fmt::Write;

use crate::law::any_law::Law;
use crate::sql::count_row::{CountRow, unhex};
use crate::sql::parameters::parameters;
use crate::sql::reply::{self, BucketReply, CountReply, Reply};
use crate::sql::row::Row;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::Op;

/// Statements that are sent together, in one round trip.
#[derive(Clone, Debug)]
pub(super) struct Statements {
    pub(super) sql: String,
    /// The index of the statement that commits.
    pub(super) commit: usize,
}

impl Statements {
    /// Returns one statement, which is a transaction of its own.
    pub(super) fn of(sql: impl Into<String>) -> Statements {
        Statements { sql: sql.into(), commit: 0 }
    }
}

/// Returns the indices of calls in the order of their keys, buckets before counts. All batches lock
/// rows in that order.
pub(super) fn order(ops: &[Op<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ops.len()).collect();
    order.sort_unstable_by_key(|&place| (matches!(ops[place].law, Law::Count(_)), ops[place].key));
    order
}

/// Returns the statements of a batch: one transaction, and then the answers of all calls.
pub(super) fn acquire(ops: &[Op<'_>], order: &[usize]) -> Statements {
    let mut sql = String::from("SET @tollgate = '';START TRANSACTION;");
    for op in order.iter().map(|&place| &ops[place]) {
        sql.push_str(match op.law {
            Law::Bucket(_) => "CALL tollgate_acquire_1(",
            Law::Count(_) => "CALL tollgate_count_1(",
        });
        push_bytes(&mut sql, op.key);
        for number in parameters(op) {
            // Writing to a string does not fail.
            let _ = write!(sql, ",{number}");
        }
        sql.push_str(");");
    }
    sql.push_str("COMMIT;SELECT @tollgate");
    Statements { sql, commit: ops.len() + 2 }
}

/// Appends bytes as a literal.
pub(super) fn push_bytes(sql: &mut String, bytes: &[u8]) {
    sql.push_str("x'");
    for byte in bytes {
        let _ = write!(sql, "{byte:02x}");
    }
    sql.push('\'');
}

/// Writes the answers of calls.
///
/// # Errors
///
/// An error of an unknown effect if the text is no answer to the calls; see
/// [`reply::answer`](crate::sql::reply::answer).
pub(super) fn answer(ops: &mut [Op<'_>], order: &[usize], text: &str) -> Result<(), StoreError> {
    let replies = text.strip_suffix(';').map(|text| text.split(';').map(read).collect::<Option<Vec<_>>>());
    let replies = match replies.flatten() {
        Some(replies) if replies.len() == order.len() => replies,
        _ => {
            let message = format!("the reply is no answer: {text:?}");
            return Err(StoreError::new(StoreErrorKind::Unknown, message));
        }
    };
    let mut placed = vec![None; ops.len()];
    for (&place, reply) in order.iter().zip(replies) {
        placed[place] = Some(reply);
    }
    reply::answer(ops.iter_mut().zip(placed))
}

/// Reads the answer of one call: `granted,credits,last_us,unit,now_us` of a bucket, and
/// `granted,changed,start_us,used,end_us,now_us` of a count.
fn read(text: &str) -> Option<Reply> {
    let parts: Vec<&str> = text.split(',').collect();
    let number = |part: &str| part.parse::<i64>().ok();
    match parts[..] {
        [granted, credits, last_us, unit, now_us] => {
            let row = match [credits, last_us, unit] {
                ["", "", ""] => None,
                [credits, last_us, unit] => {
                    Some(Row { credits: number(credits)?, last_us: number(last_us)?, unit: number(unit)? })
                }
            };
            Some(Reply::Bucket(BucketReply { granted: number(granted)?, row, now_us: number(now_us)? }))
        }
        [granted, changed, start_us, used, end_us, now_us] => {
            let row = match [start_us, used, end_us] {
                ["", "", ""] => None,
                [start_us, used, end_us] => Some(CountRow {
                    start_us: number(start_us)?,
                    used: unhex(used)?,
                    end_us: number(end_us)?,
                }),
            };
            let (granted, changed) = (number(granted)?, number(changed)? != 0);
            Some(Reply::Count(CountReply { granted, changed, row, now_us: number(now_us)? }))
        }
        _ => None,
    }
}
