//! A fixed table of buckets, each beside the fingerprint of its key.
//!
//! A key has two sets of two lines of four slots. Most keys are in the first set, their home, and
//! there in the line that they prefer. A slot is a fingerprint and a word:
//!
//! | fingerprint | word        | state of the slot                                              |
//! |-------------|-------------|----------------------------------------------------------------|
//! | 0           | 0           | empty and never taken: zeroed memory                           |
//! | `USED`      | 0           | owned by the thread that takes it first, and is about to seal it |
//! | `USED`      | `FULL`      | empty                                                          |
//! | of a key    | a level     | held by that key                                               |
//! | `USED`      | a tombstone | [vacated](two_choice::Table::vacate), then empty after a wait |
//! | any         | `SEALED`    | owned by a thread that empties the slot or gives it a key |
//! | of a key    | `INSERTING` | owned by a thread that gives the slot to that key              |
//!
//! The life of a slot:
//!
//! ```text
//!           Table::insert               Vacancy::enter
//!   empty ----------------> sealed -----------------------> inserting
//!     ^                     |  ^  ^                         |
//!     |   Vacancy (drop),   |  |  | seal_if_idle:           | Vacancy::open
//!     +---------------------+  |  | Table::insert,          v
//!     |   Table::evict_idle    |  | Table::evict_idle     held
//!     |                        |  +-----------------------+ |
//!     | eviction grace         |    seal: remove, clear     |
//!     |                        +----------------------------+
//!   tombstone <--- Table::vacate --- sealed (by remove, clear)
//! ```
//!
//! The lowest bit of a set's first fingerprint is the latch of the set; no fingerprint has that
//! bit. The sets of a key depend on its fingerprint only, so that a saved one is found again.
//!
//! # Invariants
//!
//! * *Invariant:* a slot changes hands only by a compare-and-swap of its word to `SEALED`, from
//!   empty or from a level that [is idle](crate::keyed::idle). The thread of that
//!   compare-and-swap owns the slot: only that thread writes its fingerprint, then its word. The
//!   first time it is a compare-and-swap of the fingerprint from 0, because a key's word may be 0.
//! * *Invariant:* a loaded word is the key's if the fingerprint, loaded after the word, is the
//!   key's and the word is then unchanged, because a level never comes back in a slot: the stamp of
//!   the next key's level is later by the eviction grace, and that of [places](crate::word::places)
//!   goes on from the number of the last. So a commit on a slot that has changed hands fails, and a
//!   refusal is [checked again](crate::bucket::atomic::BucketRef::still_has).
//! * *Invariant:* a key is in one slot, because an inserting thread holds the latch of the key's
//!   home from before its second search until the word is stored. A thread that finds its key never
//!   waits for a latch; an inserting thread [waits for a bounded time](two_choice::Table::latch).
//! * *Invariant:* a restore takes slots that were never taken by stores, because it
//!   [fills](resume::Filling) a table to which no key came before, and an insertion finds no room
//!   until it ends. A restored key that is charged or removed meanwhile has a slot that the restore
//!   has given away.
//!
//! # Orderings
//!
//! * *Release:* a fingerprint is stored after the seal and before the word; the word is stored with
//!   Release too. Both pair with the Acquire loads of the fingerprint before and after the word. So
//!   a thread that sees a key's fingerprint sees the seal of the key before, and a thread that sees
//!   a word sees its fingerprint, or a later one. Partner: any two calls on one slot.
//! * *Release:* giving back a latch pairs with the Acquire that takes it, so that the next holder
//!   sees the entries of the holder before. Partner: any two inserting threads of one home.
//!
//! Checked by the models in `src/tests/models/table.rs`.

mod insert;
mod resume;
mod set;
mod two_choice;

pub(crate) use resume::{AT_ONCE, Filling, Resumed, Set};
pub(crate) use set::{SlotRef, hash_of, hashes_of, is_fingerprint};
pub(crate) use two_choice::Table;
