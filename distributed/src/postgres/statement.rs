//! The statements as texts, and the rows of their answers.
//!
//! A text holds no parameters, so that a connection needs no prepared statement. Bytes are written
//! in hexadecimal digits.

use std::fmt::Write;

use tokio_postgres::SimpleQueryRow;

use crate::sql::parameters::parameters;
use crate::sql::reply::{self, Reply};
use crate::sql::row::Row;
use crate::store::error::StoreError;
use crate::store::op::Op;

/// Returns the statement that decides a batch.
pub(super) fn acquire(ops: &[Op<'_>]) -> String {
    let (mut keys, mut numbers) = (String::new(), String::new());
    for op in ops {
        let comma = if keys.is_empty() { "" } else { "," };
        // Writing to a string does not fail. An empty key is in quotes.
        let _ = write!(keys, "{comma}\"{}\"", hex(op.key));
        for number in parameters(op) {
            let comma = if numbers.is_empty() { "" } else { "," };
            let _ = write!(numbers, "{comma}{number}");
        }
    }
    format!("SELECT * FROM tollgate_acquire_1('{{{keys}}}', '{{{numbers}}}')")
}

/// Returns bytes in hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns bytes as an expression.
pub(super) fn bytes(bytes: &[u8]) -> String {
    format!("decode('{}', 'hex')", hex(bytes))
}

/// Returns the statement that deletes the full rows of the page after a key, an expression. It
/// returns their number, and the last key of the page as an expression. A locked row stays.
pub(super) fn clean_up(after: &str, grace_us: i64) -> String {
    format!(
        "WITH page AS MATERIALIZED (
            SELECT id FROM tollgate_buckets WHERE id > {after} ORDER BY id LIMIT 1000
        ),
        ends AS MATERIALIZED (SELECT id FROM page ORDER BY id DESC LIMIT 1),
        idle AS MATERIALIZED (
            SELECT b.id FROM tollgate_buckets AS b, ends
            WHERE b.id > {after} AND b.id <= ends.id
                AND b.full_us < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - {grace_us}
            ORDER BY b.id FOR UPDATE OF b SKIP LOCKED
        ),
        gone AS (DELETE FROM tollgate_buckets WHERE id = ANY (ARRAY(SELECT id FROM idle)) RETURNING 1)
        SELECT (SELECT count(*) FROM gone),
            (SELECT format('decode(%L, ''hex'')', encode(id, 'hex')) FROM ends)"
    )
}

/// Writes the answers of calls. The rows are one for each call, in any order.
///
/// # Errors
///
/// An error of an unknown effect if the rows are no answer to the calls; see
/// [`reply::answer`](crate::sql::reply::answer).
pub(super) fn answer(ops: &mut [Op<'_>], rows: &[SimpleQueryRow]) -> Result<(), StoreError> {
    let mut replies = vec![None; ops.len()];
    for (place, reply) in rows.iter().filter_map(read) {
        if let Some(found) = replies.get_mut(place) {
            *found = Some(reply);
        }
    }
    reply::answer(ops.iter_mut().zip(replies))
}

/// Reads the row of a call; `None` if a column is no number.
fn read(row: &SimpleQueryRow) -> Option<(usize, Reply)> {
    let number = |column| row.try_get(column).ok()?.map(str::parse::<i64>).transpose().ok();
    let stored = match (number(2)?, number(3)?, number(4)?) {
        (Some(credits), Some(last_us), Some(unit)) => Some(Row { credits, last_us, unit }),
        _ => None,
    };
    let reply = Reply { granted: number(1)??, row: stored, now_us: number(5)?? };
    Some((usize::try_from(number(0)??).ok()?, reply))
}
