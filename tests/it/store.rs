//! The store of a limiter's buckets.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Map,
    Table,
}
