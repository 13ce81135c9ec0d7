//! Models of the production code, for loom and shuttle: `scripts/models` runs them.
//!
//! `src/fault.rs` breaks the rules that they check.

#[expect(dead_code, reason = "the gate is of the models of the core")]
#[cfg_attr(loom, path = "../../../../src/tests/models/loom.rs")]
#[cfg_attr(shuttle, path = "../../../../src/tests/models/shuttle.rs")]
mod checker;
mod inflight;

use checker::explore;
