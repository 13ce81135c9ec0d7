//! A bucket spread over cores: each core has a lease in a cell of its own, of tokens taken from the
//! word in batches.
//!
//! A grant is then usually one compare-and-swap on a cache line of the core, and reads no clock.
//! The life of a lease, by the word of its cell:
//!
//! ```text
//!  step                   cell                   word         leased
//!  -                      size 0                 -            -
//!  claim                  CLAIMED                -            + batch
//!  commit of the lease    CLAIMED                - n - s      -             (s <= batch)
//!  settle                 size s, left s         -            - (batch - s)
//!  take, any thread       size s, left - n       -            -             (again and again)
//!  claim, to recall       CLAIMED                -            -
//!  commit of the end      CLAIMED                + left       -
//!  settle                 size 0                 -            - s
//! ```
//!
//! A refill of a cell that has a lease ends that lease and begins the next in one commit. A claim
//! that is dropped unsettled, as when a clock panics, puts the old lease back.
//!
//! # Invariants
//!
//! * *Invariant:* a token is in one place, because it leaves the word by a commit, and a cell by a
//!   compare-and-swap or with the claim of it.
//! * *Invariant:* the word and the cells never hold more than the burst, because refill may fill
//!   the word only up to the burst less the *whole* lease, however much of it is left. The time at
//!   which tokens of a lease are spent is not known. With room for the spent ones, the time before
//!   they were spent would earn tokens for that room, and the bucket be granted twice at once.
//! * *Invariant:* no caller is refused a token that is in a cell, because a caller that finds too
//!   few in the word takes from another cell, or recalls all. A token of a thread that was stopped
//!   while it fills a cell is waited for, but not for ever.
//! * *Invariant:* `leased` is at least the sum of all leases that were out since the last commit,
//!   because it is raised before the commit that leases, and lowered after the commit that ends the
//!   lease. The ending commit is always made, even if it adds no tokens: it counts the time before
//!   it. Each access to the word counts with `leased` (`leased_terms.rs`). Tokens in the word are
//!   not cut for its sake, only tokens that are added, so no token is lost at one instant.
//!
//! # Orderings
//!
//! * *Release: the commit that leases comes after the raise, and pairs with the Acquire load of the
//!   word, before that of `leased`, so that a thread that decides on a word from which a lease was
//!   taken counts with that lease.*
//! * *Release: the lowering of `leased` pairs with its Acquire load, so that a thread that no
//!   longer counts with a lease comes after the commit that ended it, or its own commit fails.*
//! * *Release: a change of a cell pairs with the Acquire of the next change, so that a thread that
//!   ends a lease comes after all that spent from it, and reads the clock later; and a thread that
//!   spends from it comes after the commit that leased it.*
//! * When the burst is lowered, cells are claimed, or read by read-modify-writes: a thread that
//!   claims one after that sees the new quota.
//!
//! Checked by the models in `src/tests/models/spread.rs`, as far as they go: that the lowering is a
//! `Release` is an argument, and they pass without it.

mod cells;
mod claims;
mod leased_terms;
mod leases;
mod verbs;

#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use cells::thread_index;
pub(crate) use leases::{LeaseCells, Spread};
pub(crate) use verbs::Mode;
