//! The arithmetic of a bucket's word: pure, `Copy`, without atomics.
//!
//! The word, for a stamp of `S` bits:
//!
//! ```text
//!  63                           S S-1                           0
//! +------------------------------+------------------------------+
//! | tokens: the level, in units  | stamp: tick of that commit,  |
//! | above the deepest debt       | modulo 2^S                   |
//! +------------------------------+------------------------------+
//! | 1 1 1 1 1 1 1 1 ... 1 1 1 1 1 1 1 1 ... 1 1 1 1 1 1 1 1 1 1 |  FULL
//! | 1 1 1 1 1 1 1 1 ... 1 1 1 1 1 1 1 1 ... 1 1 1 1 1 1 1 1 1 0 |  SEALED
//! | 1 1 1 1 1 1 1 1 ... 1 1 1 1 1 1 1 1 ... 1 1 1 1 1 1 1 1 0 1 |  INSERTING
//! | 1 1 1 1 1 1 1 1 ... 1 1 1 1  | stamp                        |  tombstone
//! +------------------------------+------------------------------+
//! ```
//!
//! A reading at tick `now` falls into one of three windows of `d = (now - stamp) mod 2^S`:
//!
//! ```text
//! d = 0                        backward_from       skew_from         2^S
//! |-------------------------------|-------------------|----------------|
//! | time has passed               | clock was set     | skew between   |
//! |                               | back, or a wrap   | cores          |
//! | earned: d ticks               | earned: nothing   | earned: nothing|
//! | next stamp: now               | next stamp: now   | stamp stays    |
//! ```
//!
//! The window of jitter is 4 s, and that of a clock that was set back is 1 h. Both are clamped to a
//! part of the range: see `terms`. The steps are in `steps`.

pub(crate) mod by_refill;
pub(crate) mod decision;
pub(crate) mod places;
pub(crate) mod plan;
pub(crate) mod refilled;
pub(crate) mod saved;
pub(crate) mod state;
pub(crate) mod steps;
pub(crate) mod terms;
pub(crate) mod tick;
pub(crate) mod verb;
pub(crate) mod wait;
pub(crate) mod window;
