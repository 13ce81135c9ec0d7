//! The steps of both laws, beside exact fractions and beside lists of grants.

mod buckets;
mod counts;
