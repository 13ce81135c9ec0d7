//! The calls of a batch as arrays, and the rows of the statement as answers.

use tokio_postgres::Row as PgRow;
use tokio_postgres::types::{ToSql, Type};

use super::statement::types;
use crate::sql::parameters::{COLUMNS, Parameters};
use crate::sql::reply::{self, Reply};
use crate::sql::row::Row;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::Op;

/// The parameters of a statement: an array of keys, and one for each number of a call.
#[derive(Debug)]
pub(super) struct Arrays {
    keys: Vec<Vec<u8>>,
    columns: [Vec<i64>; COLUMNS],
}

/// A row of the statement.
struct KeyedReply {
    key: Vec<u8>,
    reply: Reply,
}

impl Arrays {
    pub(super) fn of(ops: &[Op<'_>]) -> Arrays {
        let mut arrays = Arrays { keys: Vec::with_capacity(ops.len()), columns: Default::default() };
        for op in ops {
            arrays.keys.push(op.key.to_vec());
            for (column, number) in arrays.columns.iter_mut().zip(Parameters::of(op).columns()) {
                column.push(number);
            }
        }
        arrays
    }

    pub(super) fn parameters(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        let columns = self.columns.iter().map(|column| column as &(dyn ToSql + Sync));
        [&self.keys as &(dyn ToSql + Sync)].into_iter().chain(columns).zip(types()).collect()
    }
}

/// Writes the answers of calls. The rows are one for each call, in any order.
///
/// # Errors
///
/// An error of an unknown effect if the rows are no answer to the calls; see
/// [`reply::answer`](crate::sql::reply::answer).
pub(super) fn answer(ops: &mut [Op<'_>], rows: &[PgRow]) -> Result<(), StoreError> {
    let rows = rows.iter().map(keyed_reply).collect::<Result<Vec<_>, _>>();
    let mut rows = rows.map_err(|error| StoreError::new(StoreErrorKind::Unknown, error))?;
    rows.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    reply::answer(ops.iter_mut().map(|op| {
        let found = rows.binary_search_by(|row| row.key.as_slice().cmp(op.key)).ok();
        let reply = found.and_then(|index| rows.get(index)).map(|row| row.reply);
        (op, reply)
    }))
}

fn keyed_reply(row: &PgRow) -> Result<KeyedReply, tokio_postgres::Error> {
    let credits: Option<i64> = row.try_get("credits")?;
    let stored = match credits {
        Some(credits) => Some(Row { credits, last_us: row.try_get("last_us")?, unit: row.try_get("unit")? }),
        None => None,
    };
    let reply = Reply { granted: row.try_get("granted")?, row: stored, now_us: row.try_get("now_us")? };
    Ok(KeyedReply { key: row.try_get("id")?, reply })
}
