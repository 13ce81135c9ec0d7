//! The common parts of the SQL stores: rows, the numbers of a call, replies, connections and
//! errors.

pub(crate) mod fault;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod reply;
pub(crate) mod row;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod sessions;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod terms;
