//! A fixed table of buckets, each beside the digest of its key.
//!
//! A key has two sets of eight slots where it may be; most are in the first, their home. A slot is a digest and a word:
//!
//! | digest              | word    | the slot                                                     |
//! |---------------------|---------|--------------------------------------------------------------|
//! | 0                   | `FULL`  | is empty                                                     |
//! | of a key            | a level | is that key's                                                |
//! | 0                   | vacant  | was [given up](two_choice::Table::vacate), and is empty when the margin has passed since |
//! | any                 | `SEALED`| is somebody's who is about to give it another key, or to empty it |
//! | of a key            | `INSERTING` | is somebody's who gives it to that key                     |
//!
//! The lowest bit of a set's first digest is its latch; no digest has that bit. (The sets of a key depend on all of its hash.)
//!
//! What it keeps true, whatever the interleaving:
//!
//! * a slot changes hands only by a compare-and-swap of its word to `SEALED`, from empty or from a level that has been full for
//!   the margin. Who did that owns the slot: he alone writes its digest, then its word;
//! * a word that was loaded is the key's if the digest, loaded after it, is, and the word is then still the same: a
//!   level never comes back in a slot, as that of its next key has a stamp that is later by the margin. So a commit on a slot that
//!   has changed hands fails, and a refusal is looked at [once more](crate::bucket::atomic::BucketRef::still_has);
//! * a key is in one slot. Who makes an entry for it holds the latch of its home from before he looks for it again until its word is
//!   there. Nobody waits for a latch who knows his slot; a newcomer [does, a while](two_choice::Table::latch).
//!
//! # Orderings
//!
//! A digest is stored with `Release` after the seal, and before the word, which is stored with `Release`. It is loaded with `Acquire`
//! before the word and after it: who sees a key's digest sees that the one before was sealed; who sees a word sees its digest, or a
//! later one. A latch is taken with `Acquire` and given back with `Release`: whoever has it sees the entries of who had it before.
//! Partners: any two calls on one slot, and any two newcomers of one home. Checked by the models in `src/tests/models/table.rs`.

mod insert;
#[cfg_attr(all(feature = "huge-pages", target_os = "linux", not(any(loom, shuttle))), path = "huge_pages.rs")]
pub(crate) mod memory;
mod set;
mod two_choice;

pub(crate) use insert::Insertion;
#[cfg(all(test, feature = "huge-pages", target_os = "linux", not(any(loom, shuttle))))]
pub(crate) use set::Set;
pub(crate) use set::{SlotRef, hash_of};
pub(crate) use two_choice::Table;
