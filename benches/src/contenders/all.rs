//! The lists of contenders, as they are timed together.

use std::hash::RandomState;

use foldhash::fast::RandomState as FoldHash;
use tokio_rate_limit::RateLimiter;

use super::dashmap::DashMapOfMutexes;
use super::floor::{FLOOR, Floor, FloorOfKeys};
use super::forms::{self, Form};
use super::key::Key;
use super::mutex::MutexBucket;
use super::one_mutex::OneMutex;
use super::ours::{AtReading, Batches, Coarse, Inline, Keyed, Map, OURS, Pinned, Plain, Spread};
use super::parking_lot::ParkingLot;
use super::pingora_limits::Windows;
use super::rwlock_map::RwLockMap;
use super::{better_bucket, governor, limitador, rate_net, ratelimit, ratelock, trypema, windows};
use crate::Contender;

/// Returns all contenders of one bucket. The first is tollgate in its default form.
pub fn one_bucket() -> Vec<Contender<()>> {
    vec![
        Contender::new::<Plain>(OURS),
        Contender::new::<Spread>("tollgate, spread"),
        Contender::new::<Coarse>("tollgate, coarse clock"),
        Contender::new::<AtReading>("tollgate, reading at hand"),
        Contender::new::<MutexBucket>("std mutex"),
        Contender::new::<ParkingLot>("parking_lot + quanta"),
        Contender::new::<governor::Direct>("governor"),
        Contender::new::<governor::Upkeep>("governor, upkeep clock"),
        Contender::new::<ratelimit::OnStd>("ratelimit"),
        Contender::new::<ratelimit::OnQuanta>("ratelimit, quanta"),
        Contender::new::<ratelock::OnStd>("ratelock"),
        Contender::new::<ratelock::OnQuanta>("ratelock, quanta"),
        Contender::new::<::leaky_bucket::RateLimiter>("leaky-bucket"),
        Contender::new::<better_bucket::OnStd>("better-bucket"),
        Contender::new::<better_bucket::OnQuanta>("better-bucket, quanta"),
        Contender::new::<better_bucket::WithReading>("better-bucket, reading at hand"),
        Contender::new::<rate_net::Direct>("rate-net"),
        Contender::new::<rate_net::Coarse>("rate-net, coarse clock"),
    ]
}

/// Returns all contenders with a bucket for each key. All have the same fast hasher unless the name
/// says another. The first is tollgate in its default form.
pub fn keyed<K: Key>() -> Vec<Contender<K>> {
    vec![
        Contender::new::<Keyed<K, FoldHash, Map>>(OURS),
        Contender::new::<Keyed<K, FoldHash, Pinned>>("tollgate, pinned"),
        Contender::new::<Keyed<K, FoldHash, Inline>>("tollgate, inline"),
        Contender::new::<Keyed<K, FoldHash, Batches>>("tollgate, inline, batches of 16"),
        Contender::new::<RwLockMap<K, FoldHash>>("rwlock map"),
        Contender::new::<DashMapOfMutexes<K, FoldHash>>("dashmap + mutex"),
        Contender::new::<OneMutex<K, FoldHash>>("one mutex"),
        Contender::new::<governor::GovernorKeyed<K, FoldHash>>("governor"),
        Contender::new::<governor::GovernorKeyed<K, RandomState>>("governor, its hasher"),
        Contender::new::<rate_net::RateNetKeyed<false>>("rate-net, its hasher"),
        Contender::new::<Windows>("pingora-limits, its hasher").breaks(Windows::BREAKS),
    ]
}

/// Returns all contenders with a bucket for each string.
pub fn strings() -> Vec<Contender<String>> {
    let mut all = keyed();
    all.push(Contender::new::<RateLimiter>("tokio-rate-limit, its hasher"));
    all
}

/// Returns the forms in which a limiter is asked, in both stores, beside the plain call, and the
/// call of a peer that takes several tokens.
pub fn forms<K: Key>() -> Vec<Contender<K>> {
    vec![
        Contender::new::<Keyed<K, FoldHash, Map>>(OURS),
        Contender::new::<Form<K, { forms::REQUEST }, false>>("tollgate, request of 2"),
        Contender::new::<Form<K, { forms::UP_TO }, false>>("tollgate, up to n"),
        Contender::new::<Form<K, { forms::KEEP }, false>>("tollgate, keep"),
        Contender::new::<Form<K, { forms::PLAN }, false>>("tollgate, plan"),
        Contender::new::<Form<K, { forms::HOOK }, false>>("tollgate, hook"),
        Contender::new::<Keyed<K, FoldHash, Inline>>("tollgate, inline"),
        Contender::new::<Form<K, { forms::REQUEST }, true>>("tollgate, inline, request of 2"),
        Contender::new::<Form<K, { forms::UP_TO }, true>>("tollgate, inline, up to n"),
        Contender::new::<Form<K, { forms::KEEP }, true>>("tollgate, inline, keep"),
        Contender::new::<Form<K, { forms::PLAN }, true>>("tollgate, inline, plan"),
        Contender::new::<Form<K, { forms::HOOK }, true>>("tollgate, inline, hook"),
        Contender::new::<governor::GovernorKeyed<K, FoldHash>>("governor"),
        Contender::new::<governor::GovernorKeyed<K, FoldHash, 2>>("governor, 2 tokens"),
    ]
}

/// Returns all contenders with one window, of the burst and the period of the quota. The first is
/// tollgate's bucket of that quota.
pub fn one_window() -> Vec<Contender<()>> {
    vec![
        Contender::new::<Plain>(OURS),
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
        Contender::new::<Keyed<K, FoldHash, Map>>(OURS),
        Contender::new::<Keyed<K, FoldHash, Inline>>("tollgate, inline"),
        Contender::new::<windows::KeyedWindows<K, FoldHash, false>>("tollgate, sliding"),
        Contender::new::<windows::KeyedWindows<K, FoldHash, true>>("tollgate, inline sliding"),
    ]
}

/// Returns the peers that bound their keys by themselves, at their bound: for a flood of new keys.
pub fn at_their_cap() -> Vec<Contender<u64>> {
    vec![Contender::new::<rate_net::RateNetKeyed<true>>("rate-net, at its cap")]
}

/// Returns the floor of one bucket. It has no place among those that are asked whether they limit.
pub fn floor() -> Contender<()> {
    Contender::new::<Floor>(FLOOR)
}

/// Returns the floor of grants by key.
pub fn keyed_floor<K: Key>() -> Contender<K> {
    Contender::new::<FloorOfKeys<FoldHash>>(FLOOR)
}
