//! The common parts of the SQL stores: rows, parameters, replies, connections and errors.

pub(crate) mod count_row;
pub(crate) mod fault;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod parameters;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod reply;
pub(crate) mod row;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod sessions;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod text;
