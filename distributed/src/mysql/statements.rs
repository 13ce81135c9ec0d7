//! The calls of a batch as statements, and the text of their answers.

use std::fmt::Write;

use crate::law::any_law::Law;
use crate::sql::parameters::parameters;
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

/// The end of a transaction whose calls are granted together or not at all.
pub(super) const ALL: &str =
    "EXECUTE IMMEDIATE IF(CONCAT(';', @tollgate) LIKE '%;0,%', 'ROLLBACK', 'COMMIT')";

/// Returns the statements of a batch: one transaction with its end, and then the answers of all
/// calls.
pub(super) fn acquire(ops: &[Op<'_>], order: &[usize], end: &str) -> Statements {
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
    let _ = write!(sql, "{end};SELECT @tollgate");
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
