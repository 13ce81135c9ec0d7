//! The text of a batch and of its answers, for the fuzz targets. Not a part of the API.

use super::statements;
use crate::sql::text;
use crate::store::error::StoreError;
use crate::store::op::Op;

/// Returns the statements of a batch.
#[must_use]
pub fn write_calls(ops: &[Op<'_>]) -> String {
    statements::acquire(ops, &statements::order(ops), "COMMIT").sql
}

/// Reads a text as the answer of a batch.
///
/// # Errors
///
/// The text is no answer to the calls.
pub fn read_answers(text: &str, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
    let order = statements::order(ops);
    text::answer(ops, &order, text)
}
