//! The counts of envoyproxy/ratelimit, as a store.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::Clock;

use super::chain::Chain;
use super::errors::Failure;
use super::incr_command::{Counted, PROBES, spec_of};
use super::server::Server;
use super::slots::SLOTS;
use super::store::RedisStore;
use crate::law::amount::StoreAnswer;
use crate::law::any_law::Law;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::lanes::Lanes;
use crate::store::op::{Op, Store};
use crate::store::random::random;

/// The counts of [envoyproxy/ratelimit] in Redis, exactly as that service writes them.
///
/// So a fleet of that service and processes with this store share one count for each limit: a fleet
/// is moved over pod by pod. It is a store for such a fleet. A [`RedisStore`] has more laws, is on
/// the clock of the server, and counts no token of a refused call.
///
/// * The key of a call is that of the service without the begin of its window, such as
///   `domain_key_value_`, of any length. The store writes its prefix before the key, and behind it
///   the begin in seconds since 1970 by the clock of **this process**. It is a multiple of the
///   period, whatever the offset of the spec: a week begins on a Thursday.
/// * All tokens that a call asks for are counted, by an `INCRBY` and an `EXPIRE`, also those that
///   are not granted. A call for no token is a `GET`.
/// * Tokens go back by a script that leaves no count below 0. The service has no such call. With
///   `of_us` 0 they belong to the present window.
/// * The commands of all calls are one pipeline for each server, and all are sent at once. An
///   `INCRBY` is sent again only to another node of a cluster, if the first one did not run it.
///
/// The laws are fixed windows of whole seconds. Any other one is an error of its call: see
/// [`check`](IncrStore::check).
///
/// A call that fails is as one of a [`RedisStore`]. The key of a batch that holds no number is an
/// error of that call alone.
///
/// [envoyproxy/ratelimit]: https://github.com/envoyproxy/ratelimit
///
/// ```no_run
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tollgate_distributed::{Amount, CountSpec, IncrStore, Op, RedisStore, Store};
///
/// let redis = RedisStore::builder().lazy("redis://localhost")?;
/// let store = IncrStore::new(redis).jitter(Duration::from_secs(300));
/// let spec = CountSpec::new("10/min fixed utc".parse()?, Duration::ZERO)?;
/// IncrStore::check(&spec.into())?;
/// let amount = Amount { min: 1, max: 1, ..Amount::default() };
/// let mut calls = [Op::new(b"shop_client_ada_", spec, amount)];
/// store.acquire(&mut calls).await?;
/// println!("{} of 10 are left", calls[0].answer.credits);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct IncrStore {
    server: Arc<Server>,
    /// The server of the limits of one second, if it is another one.
    per_second: Option<Arc<Server>>,
    prefix: Arc<[u8]>,
    jitter: Duration,
    clock: Clock,
    lanes: Lanes,
}

/// The first lane of the server for limits of one second.
const SECONDS: u32 = 1 << 16;
const _: () = assert!(SECONDS > SLOTS as u32);

impl IncrStore {
    /// Returns a store on the servers of another one, whose prefix and guard do not matter.
    #[must_use]
    pub fn new(redis: RedisStore) -> IncrStore {
        let clock = Clock::from_fn(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        IncrStore {
            server: Arc::clone(redis.server()),
            per_second: None,
            prefix: Arc::default(),
            jitter: Duration::ZERO,
            clock,
            lanes: Lanes::default(),
        }
    }

    /// Sets the bytes before each key, none by default: `CACHE_KEY_PREFIX` of the service.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<Vec<u8>>) -> IncrStore {
        IncrStore { prefix: prefix.into().into(), ..self }
    }

    /// Sets the servers of the limits of one second, by default those of all: `REDIS_PERSECOND`.
    #[must_use]
    pub fn per_second(self, redis: &RedisStore) -> IncrStore {
        IncrStore { per_second: Some(Arc::clone(redis.server())), ..self }
    }

    /// Sets the bound of the time that is added to an expiry: each is of whole seconds below it, by
    /// chance. It is 0 by default: `EXPIRATION_JITTER_MAX_SECONDS`.
    #[must_use]
    pub fn jitter(self, below: Duration) -> IncrStore {
        IncrStore { jitter: below, ..self }
    }

    /// Sets the clock whose [`unix_time`](Clock::unix_time) tells the windows, for tests. It is the
    /// time of the system by default.
    #[must_use]
    pub fn clock(self, clock: Clock) -> IncrStore {
        IncrStore { clock, ..self }
    }

    /// Tells whether the store counts by a law.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Permanent`] with the reason: a bucket; a sliding window; one from the
    /// first use; a month by the calendar; one that is not of whole seconds.
    pub fn check(law: &Law) -> Result<(), StoreError> {
        spec_of(law).map(drop).map_err(unlawful)
    }

    fn server_of(&self, counted: &Counted) -> (&Arc<Server>, u32) {
        match &self.per_second {
            Some(server) if counted.is_per_second => (server, SECONDS),
            _ => (&self.server, 0),
        }
    }

    /// Returns the seconds by which an expiry is longer.
    fn jitter_s(&self) -> u64 {
        random().checked_rem(self.jitter.as_secs()).unwrap_or(0)
    }
}

impl Store for IncrStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let now = self.clock.unix_time();
        let mut errors: Vec<StoreError> = Vec::new();
        let mut counted = Vec::with_capacity(ops.len());
        let mut chains = [Vec::new(), Vec::new()];
        for (call, op) in ops.iter_mut().enumerate() {
            op.answer = StoreAnswer::default();
            let of = Counted::of(&self.prefix, op, now).map_err(|why| errors.push(unlawful(why))).ok();
            if let Some(of) = &of {
                let side = usize::from(self.server_of(of).1 > 0);
                chains[side].push(Chain::new(call, of.name.clone(), of.commands(self.jitter_s())));
            }
            counted.push(of);
        }
        let servers = [Some(&self.server), self.per_second.as_ref()];
        let calls = servers.into_iter().flatten().zip(chains).filter(|(_, chains)| !chains.is_empty());
        let sent: Vec<_> = calls.map(|(server, chains)| (chains.len(), server.send(chains))).collect();
        for (count, answered) in sent {
            let chains = answered.await.unwrap_or_default();
            // The rest ended with the runtime.
            errors.extend((chains.len()..count).map(|_| ended().into()));
            for chain in chains {
                let (call, ended) = (chain.call, chain.end());
                let Some(of) = &counted[call] else { continue };
                match ended.and_then(|answers| of.read(&answers).map_err(Failure::sent)) {
                    Ok(answer) => ops[call].answer = answer,
                    Err(failure) => errors.push(error_of(of, failure)),
                }
            }
        }
        first_of(errors)
    }

    fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }

    /// Returns the lane of a call: the server for limits of one second is one, and each node of a
    /// cluster. The begin of its window is a part of a key, so the next window may be in another.
    fn lane_of(&self, op: &Op<'_>) -> u32 {
        let counted = Counted::of(&self.prefix, op, self.clock.unix_time());
        counted.map_or(0, |counted| {
            let (server, first) = self.server_of(&counted);
            first + server.lane(&counted.name)
        })
    }

    fn probe_key(&self, lane: u32) -> Vec<u8> {
        let (server, probe) = match &self.per_second {
            Some(server) if lane >= SECONDS => (server, PROBES[1]),
            _ => (&self.server, PROBES[0]),
        };
        format!("{probe}{}", server.tag(lane % SECONDS)).into_bytes()
    }
}

/// Returns the failure of a call whose task has ended without an answer.
fn ended() -> Failure {
    Failure::sent(io::Error::other("the task of the call has ended").into())
}

fn unlawful(why: &str) -> StoreError {
    let why = format!("the counts of envoyproxy/ratelimit are those of fixed windows: {why}");
    StoreError::new(StoreErrorKind::Permanent, why)
}

/// Returns the error of a call. It names a key that holds no count.
fn error_of(counted: &Counted, failure: Failure) -> StoreError {
    if !failure.is_of_value() {
        return failure.into();
    }
    let why = format!("the key \"{}\" holds no count: {}", counted.name.escape_ascii(), failure.error);
    StoreError::new(StoreErrorKind::Permanent, why)
}

/// Returns the first error, with the kind that all have, or unknown if they differ.
fn first_of(errors: Vec<StoreError>) -> Result<(), StoreError> {
    let same = errors.windows(2).all(|pair| pair[0].kind() == pair[1].kind());
    match errors.into_iter().next() {
        Some(error) if same => Err(error),
        Some(error) => Err(StoreError::new(StoreErrorKind::Unknown, error)),
        None => Ok(()),
    }
}

impl fmt::Debug for IncrStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = String::from_utf8_lossy(&self.prefix);
        f.debug_struct("IncrStore")
            .field("prefix", &prefix)
            .field("per_second", &self.per_second.is_some())
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}
