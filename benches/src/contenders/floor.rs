//! The floor: the accesses to memory and to the clock that no limiter of this design can do
//! without, and nothing else. It limits nothing: its tokens never come back.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use super::key::Key;
use crate::{Limiter, Setup};

/// Name of the floor.
pub const FLOOR: &str = "floor";

/// One token, above the half of a word that holds the last reading.
const TOKEN: u64 = 1 << 32;

/// Reads the counter, loads the word, and takes a token of it by a compare-and-swap.
#[inline(always)]
fn take(word: &AtomicU64, clock: &quanta::Clock) -> bool {
    let now = clock.raw();
    let mut tokens = word.load(Acquire);
    while tokens >= TOKEN {
        let next = (tokens - TOKEN) & !(TOKEN - 1) | now & (TOKEN - 1);
        match word.compare_exchange_weak(tokens, next, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(found) => tokens = found,
        }
    }
    black_box(now);
    false
}

fn full(setup: Setup) -> AtomicU64 {
    AtomicU64::new(setup.quota.capacity() * TOKEN)
}

/// One word.
pub(crate) struct Floor {
    word: AtomicU64,
    clock: quanta::Clock,
}

impl Limiter<()> for Floor {
    fn new(setup: Setup) -> Self {
        Floor { word: full(setup), clock: quanta::Clock::new() }
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        take(&self.word, &self.clock)
    }
}

/// A word in a cache line of its hash, in as many lines as a table of ours has for these keys.
///
/// Keys of one hash share the word, so it is no floor of refusals.
pub(crate) struct FloorOfKeys<S> {
    lines: Box<[WordLine]>,
    hasher: S,
    clock: quanta::Clock,
}

#[repr(align(64))]
struct WordLine([AtomicU64; 8]);

impl<K: Key, S: BuildHasher + Default + Send + Sync> Limiter<K> for FloorOfKeys<S> {
    fn new(setup: Setup) -> Self {
        let lines = 2 * setup.keys.div_ceil(6);
        let lines = (0..lines).map(|_| WordLine(std::array::from_fn(|_| full(setup)))).collect();
        FloorOfKeys { lines, hasher: S::default(), clock: quanta::Clock::new() }
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        let hash = self.hasher.hash_one(key);
        let line = ((hash >> 32) * self.lines.len() as u64) >> 32;
        take(&self.lines[line as usize].0[hash as usize % 8], &self.clock)
    }
}
