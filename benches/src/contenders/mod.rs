//! The limiters that are compared, a file each.

mod better_bucket;
mod dashmap;
mod floor;
mod governor;
mod leaky_bucket;
mod limitador;
mod mutex;
mod nothing;
mod one_mutex;
mod ours;
mod parking_lot;
mod pingora_limits;
mod rate_net;
mod ratelimit;
mod rwlock_map;
mod trypema;
mod windows;

use std::hash::RandomState;

use self::dashmap::DashMapOfMutexes;
use self::mutex::MutexBucket;
use self::one_mutex::OneMutex;
use self::ours::{AtReading, Batches, Coarse, Inline, Keyed, Map, Pinned, Plain, Spread};
use self::parking_lot::ParkingLot;
use self::pingora_limits::Windows;
use self::rwlock_map::RwLockMap;
use crate::Contender;
use foldhash::fast::RandomState as FoldHash;
use tollgate::Quota;

pub use self::nothing::Nothing;

/// Makes a type the limiter of one bucket: how it is made of a setup, and how it takes a token.
macro_rules! bucket {
    ($(#[$doc:meta])* $name:ident($type:ty), |$setup:ident| $make:expr, |$bucket:ident| $take:expr) => {
        $(#[$doc])*
        pub(crate) struct $name($type);

        impl crate::Limiter<()> for $name {
            fn new($setup: crate::Setup) -> Self {
                $name($make)
            }

            #[inline(always)]
            fn try_acquire(&self, (): &()) -> bool {
                let $bucket = &self.0;
                $take
            }
        }
    };
}
use bucket;

/// Returns all contenders of one bucket. The first is tollgate in its default form.
pub fn one_bucket() -> Vec<Contender<()>> {
    vec![
        Contender::new::<Plain>("tollgate"),
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

/// Returns all contenders with a bucket for each key. All have the same fast hasher unless the name
/// says another. The first is tollgate in its default form.
pub fn keyed<K: Key>() -> Vec<Contender<K>> {
    vec![
        Contender::new::<Keyed<K, FoldHash, Map>>("tollgate"),
        Contender::new::<Keyed<K, FoldHash, Pinned>>("tollgate, pinned"),
        Contender::new::<Keyed<K, FoldHash, Inline>>("tollgate, inline"),
        Contender::new::<Keyed<K, FoldHash, Batches>>("tollgate, inline, batches of 16"),
        Contender::new::<RwLockMap<K, FoldHash>>("rwlock map"),
        Contender::new::<DashMapOfMutexes<K, FoldHash>>("dashmap + mutex"),
        Contender::new::<OneMutex<K, FoldHash>>("one mutex"),
        Contender::new::<governor::Keyed<K, FoldHash>>("governor"),
        Contender::new::<governor::Keyed<K, RandomState>>("governor, its hasher"),
        Contender::new::<rate_net::Keyed<false>>("rate-net, its hasher"),
        Contender::new::<Windows>("pingora-limits, its hasher").breaks(Windows::BREAKS),
    ]
}

/// Returns all contenders with one window, of the burst and the period of the quota. The first is
/// tollgate's bucket of that quota.
pub fn one_window() -> Vec<Contender<()>> {
    vec![
        Contender::new::<Plain>("tollgate"),
        Contender::new::<windows::FirstUse>("tollgate, fixed"),
        Contender::new::<windows::Utc>("tollgate, fixed utc"),
        Contender::new::<windows::Sliding>("tollgate, sliding"),
        Contender::new::<windows::Weighted>("tollgate, weighted"),
        Contender::new::<windows::MutexLog>("mutex + log"),
        Contender::new::<rate_net::Counter>("rate-net, counter"),
        Contender::new::<rate_net::Log>("rate-net, log"),
        Contender::new::<limitador::InMemory>("limitador"),
        Contender::new::<trypema::Local>("trypema"),
    ]
}

/// Returns tollgate's buckets and its sliding windows for each key, in both stores.
pub fn keyed_windows<K: Key>() -> Vec<Contender<K>> {
    vec![
        Contender::new::<Keyed<K, FoldHash, Map>>("tollgate"),
        Contender::new::<Keyed<K, FoldHash, Inline>>("tollgate, inline"),
        Contender::new::<windows::Keyed<K, FoldHash, false>>("tollgate, sliding"),
        Contender::new::<windows::Keyed<K, FoldHash, true>>("tollgate, inline sliding"),
    ]
}

/// Returns the peers that bound their keys by themselves, at their bound: for a flood of new keys.
pub fn at_their_cap() -> Vec<Contender<u64>> {
    vec![Contender::new::<rate_net::Keyed<true>>("rate-net, at its cap")]
}

/// Returns the floor of one bucket. It has no place among those that are asked whether they limit.
pub fn floor() -> Contender<()> {
    Contender::new::<floor::Word>(FLOOR)
}

/// Returns the floor of grants by key.
pub fn keyed_floor<K: Key>() -> Contender<K> {
    Contender::new::<floor::Lines<FoldHash>>(FLOOR)
}

/// Name of the floor.
pub const FLOOR: &str = "floor";

/// A key of a limiter.
pub trait Key: std::hash::Hash + Eq + Clone + Send + Sync + std::fmt::Debug + 'static {
    /// Returns the key as bytes, for a contender that has no other keys.
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

/// Returns the same limit for a peer whose periods are whole seconds: for a second at least.
fn in_seconds(quota: Quota) -> (u64, u64) {
    match quota.period().as_secs() {
        0 => ((quota.capacity() as f64 / quota.period().as_secs_f64()) as u64, 1),
        seconds => (quota.capacity(), seconds),
    }
}

/// Returns the tokens for a peer that counts them in 32 bits. No timed quota has more.
fn narrow(tokens: u64) -> u32 {
    u32::try_from(tokens).expect("a quota of less than 2^32 tokens")
}
