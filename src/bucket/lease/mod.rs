//! A bucket that is spread over cores: each has tokens at hand that were taken from the word in batches, so a grant is usually
//! one compare-and-swap on a line of the core's own, and reads no clock.
//!
//! What it keeps true, whatever the interleaving:
//!
//! * a token is in one place. It leaves the word by a commit, and a cell by a compare-and-swap or with the claim of it;
//! * the word and the cells never hold more than the burst. Nobody knows when the tokens of a lease are spent. So what is
//!   earned while it is out may fill the word up to the burst less the *whole* lease, whatever is left of that: were there room
//!   for what was spent, it could have been earned before that, and the bucket be granted twice at once;
//! * nobody is refused a token that lies in a cell: who finds too few in the word takes from another cell, or gathers them
//!   all. (One that lies with a thread that was stopped while it fills a cell is waited for, but not for ever.)
//!
//! `leased` is at least the sum of all leases that were out since the last commit: it is raised before the commit that leases,
//! and lowered after one that ends the lease. That one is always made, also if it has nothing to add: the time before it
//! is over then, and counted. Every access to the word counts with `leased` (`leased_terms.rs`). What is in the word is not cut for its
//! sake, only what comes to it: so at one instant no token is lost.
//!
//! # Orderings
//!
//! A raise is before its commit, which is a `Release`, and `leased` is loaded after the word, which is an `Acquire`: who decides
//! on a word from which a lease was taken counts with it. It is lowered with `Release` and loaded with `Acquire`: who does
//! not count with a lease any more comes after the commit that ended it, or its own fails. Cells are `Acquire` and `Release`:
//! who ends a lease comes after all who spent of it, and reads the clock later; who spends of it comes after the commit that
//! leased it. When the burst is lowered, cells are claimed, or looked at by
//! read-modify-writes: a thread that claims one after that sees the new quota.
//! Checked by the models in `src/tests/models/spread.rs`, as far as they go: that the lowering is a `Release` is an argument, and
//! they are green without.

mod cells;
mod claims;
mod leased_terms;
mod leases;
mod verbs;

pub(crate) use cells::{Generation, thread_index};
pub(crate) use leases::{LeaseCells, Spread, is_gone};
