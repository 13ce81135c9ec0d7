//! The statements as texts, and the rows of their answers.
//!
//! A text holds no parameters, so that a connection needs no prepared statement. Bytes are written
//! in hexadecimal digits.

use std::fmt::Write;

use tokio_postgres::SimpleQueryRow;

use crate::law::any_law::Law;
use crate::sql::count_row::{CountRow, unhex};
use crate::sql::parameters::parameters;
use crate::sql::reply::{self, BucketReply, CountReply, Reply};
use crate::sql::row::Row;
use crate::store::error::StoreError;
use crate::store::op::Op;

/// Returns the statements that decide a batch, buckets before counts.
pub(super) fn acquire(ops: &[Op<'_>]) -> String {
    let mut sql = String::new();
    for (function, is_of) in FUNCTIONS {
        let of: Vec<_> = ops.iter().filter(|op| is_of(&op.law)).collect();
        if !of.is_empty() {
            let _ = write!(sql, "SELECT * FROM {function}({});", arguments(&of));
        }
    }
    sql
}

/// Returns the statement that decides calls, all or none, and the order of its answers.
pub(super) fn acquire_all(ops: &[Op<'_>]) -> (String, Vec<usize>) {
    let of = FUNCTIONS.map(|(_, is_of)| ops.iter().filter(|op| is_of(&op.law)).collect::<Vec<_>>());
    let sql = format!("SELECT tollgate_all_1({}, {})", arguments(&of[0]), arguments(&of[1]));
    let places = |is_of: fn(&Law) -> bool| (0..ops.len()).filter(move |&place| is_of(&ops[place].law));
    (sql, FUNCTIONS.into_iter().flat_map(|(_, is_of)| places(is_of)).collect())
}

/// A function of the server, and whether it decides a call of a law.
type Function = (&'static str, fn(&Law) -> bool);

/// The functions, and the calls that each decides.
const FUNCTIONS: [Function; 2] = [("tollgate_acquire_1", is_bucket), ("tollgate_count_1", is_count)];

fn is_bucket(law: &Law) -> bool {
    matches!(law, Law::Bucket(_))
}

fn is_count(law: &Law) -> bool {
    matches!(law, Law::Count(_))
}

/// Returns the keys and the numbers of calls, as the arguments of a function.
fn arguments(ops: &[&Op<'_>]) -> String {
    // An empty key is in quotes.
    let keys: Vec<String> = ops.iter().map(|op| format!("\"{}\"", hex(op.key))).collect();
    let numbers: Vec<String> = ops.iter().flat_map(|op| parameters(op)).map(|of| of.to_string()).collect();
    format!("'{{{}}}', '{{{}}}'", keys.join(","), numbers.join(","))
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

/// Returns the statement that deletes the rows of a table in the page after a key, an expression,
/// from whose time `until` on they decide as missing ones. It returns their number, and the last
/// key of the page as an expression. A locked row stays.
pub(super) fn clean_up((table, until): (&str, &str), after: &str, grace_us: i64) -> String {
    format!(
        "WITH page AS MATERIALIZED (
            SELECT id FROM {table} WHERE id > {after} ORDER BY id LIMIT 1000
        ),
        ends AS MATERIALIZED (SELECT id FROM page ORDER BY id DESC LIMIT 1),
        idle AS MATERIALIZED (
            SELECT b.id FROM {table} AS b, ends
            WHERE b.id > {after} AND b.id <= ends.id
                AND b.{until} < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - {grace_us}
            ORDER BY b.id FOR UPDATE OF b SKIP LOCKED
        ),
        gone AS (DELETE FROM {table} WHERE id = ANY (ARRAY(SELECT id FROM idle)) RETURNING 1)
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
    // A place is that among the calls of a function.
    let places = FUNCTIONS.map(|(_, is_of)| {
        let places = ops.iter().enumerate().filter(|(_, op)| is_of(&op.law));
        places.map(|(place, _)| place).collect::<Vec<_>>()
    });
    for row in rows {
        let (read, places) = match row.len() {
            BUCKET_COLUMNS => (read_bucket(row), &places[0]),
            _ => (read_count(row), &places[1]),
        };
        if let Some((place, reply)) = read
            && let Some(&place) = places.get(place)
        {
            replies[place] = Some(reply);
        }
    }
    reply::answer(ops.iter_mut().zip(replies))
}

/// The columns of a bucket's answer. That of a count has one more.
const BUCKET_COLUMNS: usize = 6;

/// Reads a column as a number, which may be missing; `None` if it is another text.
fn number(row: &SimpleQueryRow, column: usize) -> Option<Option<i64>> {
    row.try_get(column).ok()?.map(str::parse::<i64>).transpose().ok()
}

/// Reads the row of a call on a count; `None` if a column is none of it.
fn read_count(row: &SimpleQueryRow) -> Option<(usize, Reply)> {
    let stored = match (number(row, 3)?, row.try_get(4).ok()?, number(row, 5)?) {
        (Some(start_us), Some(used), Some(end_us)) => {
            Some(CountRow { start_us, used: unhex(used.strip_prefix("\\x")?)?, end_us })
        }
        _ => None,
    };
    let (granted, changed) = (number(row, 1)??, number(row, 2)?? != 0);
    let reply = CountReply { granted, changed, row: stored, now_us: number(row, 6)?? };
    Some((usize::try_from(number(row, 0)??).ok()?, Reply::Count(reply)))
}

/// Reads the row of a call on a bucket; `None` if a column is no number.
fn read_bucket(row: &SimpleQueryRow) -> Option<(usize, Reply)> {
    let number = |column| number(row, column);
    let stored = match (number(2)?, number(3)?, number(4)?) {
        (Some(credits), Some(last_us), Some(unit)) => Some(Row { credits, last_us, unit }),
        _ => None,
    };
    let reply = BucketReply { granted: number(1)??, row: stored, now_us: number(5)?? };
    Some((usize::try_from(number(0)??).ok()?, Reply::Bucket(reply)))
}
