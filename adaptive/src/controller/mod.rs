//! The controllers of a limit, and the loop that runs one.

pub(crate) mod control_loop;
pub(crate) mod controllers;
