//! Tests of the load and the lookup.

mod cases;
