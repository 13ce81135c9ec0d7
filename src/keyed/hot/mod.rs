//! Keys of a limiter that are contended, spread over cores while they are: what `Builder::spread_hot` sets up.
//!
//! A key's bucket stays in the store, and is the word of a [`Spread`](crate::bucket::lease::Spread) beside it. What it keeps true, whatever the
//! interleaving:
//!
//! * who decides on a word knows whether it is spread, and over which cells: a [seat](slots) is looked at after the word was loaded. A word
//!   that is spread [reads as sealed](guarded) to who does not count with those very cells, and so does one that is not to
//!   who does. Nothing is committed on what was found so;
//! * while it is spread a bucket is not evicted, nor its slot given away;
//! * a key is spread no more when all its cells are closed: what was left in them is in the word again. What is in the cells
//!   of a key that was removed dies with that life of it;
//! * nobody takes of another key's cells: those of a seat serve one key after another, each in a [life](crate::bucket::lease::Generation) that
//!   is part of each cell's word. They are opened for the next when nobody has one of them.
//!
//! # Orderings
//!
//! A seat is given to a bucket with `Release`, before the first lease is taken of the word by a commit, which is one too. A
//! word is loaded with `Acquire`, and the seat after it: who sees a word of which a lease was taken sees that time, or a later
//! state of the seat. If it is a later one the leases have ended, each by a commit: then the word has changed since, and his own fails; what
//! is not committed is [looked at once more](crate::bucket::atomic::BucketRef::still_has). That is all an evictor needs, too.
//!
//! Leases are loaded after the word, and may be of a later life. So a commit looks at the seat again: if the time is still that, they were its own.
//!
//! Spreading a bucket and sealing it race: one gives it the seat, then looks for the seal; another seals, then looks at the seat. A `SeqCst`
//! fence between the two steps of either makes one of them see the other. (Partners: `HotKeys::promote` and `HotKeys::drop_leases`.) A
//! slot of a table may be another key's by then. Nothing was leased of it in between, or the seal had failed; and no key is served by cells
//! that were opened for another (`BucketId`). Whoever meets them [closes them](HotKeys::found), each while it is empty.
//!
//! Checked by the models in `src/tests/models/hot.rs`.

mod guarded;
mod registry;
mod slots;

pub(crate) use guarded::Guarded;
pub(crate) use registry::{HotKeys, Mode};
pub(crate) use slots::{HotSlot, Known};
