//! A table.
