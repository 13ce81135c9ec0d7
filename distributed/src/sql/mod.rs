//! Parts of the three SQL stores: a row of a bucket, the numbers of a call, and errors.

pub(crate) mod fault;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod reply;
pub(crate) mod row;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod sessions;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod terms;
