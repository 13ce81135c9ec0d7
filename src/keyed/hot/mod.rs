//! Contended keys of a limiter, spread over cores: enabled by `Builder::spread_hot`.
//!
//! A key's bucket stays in the store. Its word is the word of a
//! [`Spread`](crate::bucket::lease::Spread), whose cells are in a [hot slot](slots) beside the
//! store.
//!
//! # Invariants
//!
//! * A thread that decides on a word knows whether the bucket is spread, and over which cells,
//!   because it reads the hot slot after the word. A spread word [reads as sealed](guarded) to a
//!   thread that does not count those very cells; a plain word reads as sealed to a thread that
//!   counts cells. Neither thread commits.
//! * A bucket is not evicted while it is spread, nor is its table slot given to another key.
//! * A key is demoted when all its cells are closed and their tokens are in the word again. Leases
//!   of a removed key are lost with the removed bucket.
//! * A key never takes from the cells of another key, because each tenure of a hot slot has a
//!   [generation](crate::bucket::lease::Generation) that is part of each cell's word. Cells are
//!   opened for the next key when no thread has one of them.
//!
//! # Orderings
//!
//! *Release:* a hot slot is given to a bucket before the first lease is taken from the word by a
//! commit (a Release too). The word is loaded with Acquire, and the hot slot after it. So a thread
//! that loads a word from which a lease was taken also sees the address and the tenure of that
//! lease, or later ones. Later ones mean that every lease was returned by a commit: the word has
//! changed, and the thread's own commit fails. A decision without a commit is [checked
//! again](crate::bucket::atomic::BucketRef::still_has). An evictor needs no more than that.
//!
//! Leases are loaded after the word, and may be of a later generation. So a commit reads the hot
//! slot again: if the tenure is unchanged, the leases belong to it.
//!
//! Promoting a bucket and sealing it race. One thread gives the bucket the hot slot, then looks for
//! the seal; another thread seals, then looks at the hot slot. A `SeqCst` fence between the two
//! steps of either makes one of them see the other. (Partners: `HotKeys::promote` and
//! `HotKeys::drop_leases`.)
//!
//! By then a table slot may be another key's. Nothing was leased in between, or the seal would have
//! failed. No key is served by cells that were opened for another (`BucketId`): a thread that meets
//! such cells [closes them](HotKeys::found), each while it is empty.
//!
//! Checked by the models in `src/tests/models/hot.rs`.

mod guarded;
mod registry;
mod slots;

pub(crate) use guarded::Guarded;
pub(crate) use registry::HotKeys;
pub(crate) use slots::HotSlot;
