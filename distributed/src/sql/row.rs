//! The row of a bucket, in a table that other programs may write to.

use std::error::Error;
use std::fmt;

use crate::law::bucket::Bucket;
use crate::law::spec::{MAX_CREDITS, Spec};
use crate::store::error::{StoreError, StoreErrorKind};

/// The latest time of a row, in microseconds since 1970. Its sum with a time to fill is an `i64`.
pub(crate) const MAX_US: i64 = 1 << 62;

/// The longest stored time to fill, in microseconds: 73,000 years.
const MAX_FILL_US: i64 = 1 << 61;

/// The columns of a row that make a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) credits: i64,
    pub(crate) last_us: i64,
    pub(crate) unit: i64,
}

/// The error of a row whose numbers are no bucket.
#[derive(Debug)]
struct WrongRow {
    key: Vec<u8>,
    row: Row,
}

impl Row {
    /// Returns the bucket of the row.
    ///
    /// # Errors
    ///
    /// A permanent error that names the key if a number is out of its bounds.
    pub(crate) fn bucket(self, key: &[u8]) -> Result<Bucket, StoreError> {
        let most = MAX_CREDITS as i64;
        let sound = (-most..=most).contains(&self.credits)
            && (0..=MAX_US).contains(&self.last_us)
            && (1..=most).contains(&self.unit);
        if !sound {
            let wrong = WrongRow { key: key.to_vec(), row: self };
            return Err(StoreError::new(StoreErrorKind::Permanent, wrong));
        }
        // Neither cast number is negative, by the bounds above.
        Ok(Bucket { credits: self.credits, last_us: self.last_us as u64, per_token: self.unit as u64 })
    }
}

/// Returns the microseconds after which a row decides as a missing row does: the bucket is full.
///
/// Counted from the deepest debt, in whole ticks.
pub(crate) fn fill_us(spec: &Spec) -> i64 {
    let fill = spec.fill_ticks().saturating_mul(spec.tick_us());
    i64::try_from(fill).unwrap_or(MAX_FILL_US).min(MAX_FILL_US)
}

/// Returns a key for a message.
pub(crate) fn shown(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}

impl fmt::Display for WrongRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { credits, last_us, unit } = self.row;
        let key = shown(&self.key);
        write!(f, "the row of key {key} is no bucket: credits {credits}, last_us {last_us}, unit {unit}")
    }
}

impl Error for WrongRow {}
