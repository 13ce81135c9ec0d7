//! Parts of the three SQL stores: a row of a bucket, and the numbers of a call.

pub(crate) mod row;
