//! The row of a count, in a table that other programs may write to.

use std::error::Error;
use std::fmt;

use super::row::shown;
use crate::law::count::Count;
use crate::law::count_spec::MAX_PARTS;
use crate::store::error::{StoreError, StoreErrorKind};

/// The bytes of a number: the uppermost comes first.
const NUMBER: usize = 7;

/// The columns of a row that make a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountRow {
    pub(crate) start_us: i64,
    /// The counts, the present one first: seven bytes each.
    pub(crate) used: Vec<u8>,
    pub(crate) end_us: i64,
}

/// The error of a row whose columns are no count.
#[derive(Debug)]
struct WrongCountRow {
    key: Vec<u8>,
    row: CountRow,
}

impl CountRow {
    /// Returns the row of a count.
    pub(crate) fn of(count: &Count) -> CountRow {
        let used = count.used.iter().flat_map(|used| used.to_be_bytes().into_iter().skip(8 - NUMBER));
        // The times of a sound count are below 2^53.
        let (start_us, end_us) = (count.start_us as i64, count.end_us as i64);
        CountRow { start_us, used: used.collect(), end_us }
    }

    /// Returns the count of the row.
    ///
    /// # Errors
    ///
    /// A permanent error that names the key if a column is out of its bounds.
    pub(crate) fn count(self, key: &[u8]) -> Result<Count, StoreError> {
        let (numbers, rest) = self.used.as_chunks::<NUMBER>();
        let number =
            |bytes: &[u8; NUMBER]| bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let times = (u64::try_from(self.start_us), u64::try_from(self.end_us));
        if let (Ok(start_us), Ok(end_us)) = times
            && rest.is_empty()
            && numbers.len() <= usize::from(MAX_PARTS) + 1
        {
            let count = Count { start_us, used: numbers.iter().map(number).collect(), end_us };
            if count.is_sound() {
                return Ok(count);
            }
        }
        let wrong = WrongCountRow { key: key.to_vec(), row: self };
        Err(StoreError::new(StoreErrorKind::Permanent, wrong))
    }
}

/// Reads hexadecimal digits.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn unhex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |&[high, low]: &[u8; 2]| Some((digit(high)? * 16 + digit(low)?) as u8);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

impl fmt::Display for WrongCountRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CountRow { start_us, used, end_us } = &self.row;
        let key = shown(&self.key);
        write!(f, "the row of key {key} is no count: start_us {start_us}, end_us {end_us}, used {used:02x?}")
    }
}

impl Error for WrongCountRow {}
