//! The tests of a decision: all cases of the reference, tables, and a random walk beside a model.

mod cases;
mod model;
mod rules;
mod walk;
