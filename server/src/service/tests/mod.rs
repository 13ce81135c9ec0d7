//! The tests of a decision: all cases of the reference, tables, and a random walk beside a model.

mod cases;
mod messages;
mod model;
mod rules;
mod statistics;
mod table;
mod walk;
