//! Where a limiter has its buckets.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Map,
    Table,
}
