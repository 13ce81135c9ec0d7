//! The limiters that are compared, a file each.

mod better_bucket;
mod dashmap;
mod governor;
mod leaky_bucket;
mod mutex;
mod nothing;
mod one_mutex;
mod ours;
mod parking_lot;
mod pingora_limits;
mod rate_net;
mod ratelimit;
mod rwlock_map;

use std::hash::RandomState;

use foldhash::fast::RandomState as FoldHash;
use tollgate::{RateLimiter, TokenBucket};

use self::dashmap::DashMapOfMutexes;
use self::mutex::MutexBucket;
use self::one_mutex::OneMutex;
use self::ours::{AtReading, Batches, Coarse, HotSpread, Inline, Keyed, Pinned, Spread};
use self::parking_lot::ParkingLot;
use self::pingora_limits::Windows;
use self::rwlock_map::RwLockMap;
use crate::Contender;

pub use self::nothing::Nothing;

/// Everyone who has one bucket. The first is ours.
#[must_use]
pub fn one_bucket() -> Vec<Contender<()>> {
    vec![
        Contender::new::<TokenBucket>("tollgate"),
        Contender::new::<Spread>("tollgate, spread"),
        Contender::new::<Coarse>("tollgate, coarse clock"),
        Contender::new::<AtReading>("tollgate, reading at hand"),
        Contender::new::<MutexBucket>("std mutex"),
        Contender::new::<ParkingLot>("parking_lot + quanta"),
        Contender::new::<governor::Direct>("governor"),
        Contender::new::<governor::Upkeep>("governor, upkeep clock"),
        Contender::new::<ratelimit::OnStd>("ratelimit"),
        Contender::new::<ratelimit::OnQuanta>("ratelimit, quanta"),
        Contender::new::<::leaky_bucket::RateLimiter>("leaky-bucket"),
        Contender::new::<better_bucket::OnStd>("better-bucket"),
        Contender::new::<better_bucket::OnQuanta>("better-bucket, quanta"),
        Contender::new::<better_bucket::AtReading>("better-bucket, reading at hand"),
        Contender::new::<rate_net::Direct>("rate-net"),
        Contender::new::<rate_net::Coarse>("rate-net, coarse clock"),
    ]
}

/// Everyone who has a bucket for each key, with the same fast hasher unless its name says another. The first is ours.
#[must_use]
pub fn keyed<K: Key>() -> Vec<Contender<K>> {
    vec![
        Contender::new::<RateLimiter<K, FoldHash>>("tollgate"),
        Contender::new::<Keyed<K, FoldHash, Pinned>>("tollgate, pinned"),
        Contender::new::<Keyed<K, FoldHash, Inline>>("tollgate, inline"),
        Contender::new::<Keyed<K, FoldHash, Batches>>("tollgate, inline, batches of 16"),
        Contender::new::<Keyed<K, FoldHash, HotSpread>>("tollgate, hot keys spread"),
        Contender::new::<RwLockMap<K, FoldHash>>("rwlock map"),
        Contender::new::<DashMapOfMutexes<K, FoldHash>>("dashmap + mutex"),
        Contender::new::<OneMutex<K, FoldHash>>("one mutex"),
        Contender::new::<governor::Keyed<K, FoldHash>>("governor"),
        Contender::new::<governor::Keyed<K, RandomState>>("governor, its hasher"),
        Contender::new::<rate_net::Keyed>("rate-net, its hasher"),
        Contender::new::<Windows>("pingora-limits, its hasher").breaks(Windows::BREAKS),
    ]
}

/// Peers that hold a bounded number of keys by themselves, at their bound: for a flood of others.
#[must_use]
pub fn at_their_cap() -> Vec<Contender<u64>> {
    vec![Contender::new::<rate_net::Bounded>("rate-net, at its cap")]
}

/// What keys are.
pub trait Key: std::hash::Hash + Eq + Clone + Send + Sync + std::fmt::Debug + 'static {
    /// For whoever has only bytes as keys.
    fn bytes(&self) -> impl AsRef<[u8]>;
}

impl Key for u64 {
    fn bytes(&self) -> impl AsRef<[u8]> {
        self.to_ne_bytes()
    }
}

impl Key for String {
    fn bytes(&self) -> impl AsRef<[u8]> {
        self.as_bytes()
    }
}

/// Tokens for peers that count them in 32 bits: there are so many of no quota that is timed.
fn narrow(tokens: u64) -> u32 {
    u32::try_from(tokens).expect("a quota of less than 2^32 tokens")
}
