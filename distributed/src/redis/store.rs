//! The store on Redis.

use std::fmt;
use std::io;
use std::sync::Arc;

use redis::RedisResult;

use super::all_command::{all, names, read_all};
use super::command::{read_steps, steps};
use super::count_command::{counts, read_counts};
use super::errors::Failure;
use super::script::ScriptCall;
use super::server::Server;
use super::slots::slot_of;
use crate::law::amount::StoreAnswer;
use crate::law::any_law::Law;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::lanes::Lanes;
use crate::store::op::{Op, Store, in_turn, settle};

/// The most keys of a command.
const BATCH: usize = 64;

/// Buckets and counts in Redis (6.2 or later): in one server, in the master of some sentinels, or
/// in a cluster.
///
/// Up to 64 calls of a batch are one command: a script, on the server's clock. On a cluster each
/// call is a command of its own, and all are sent at once. A bucket expires when it is full, so the
/// server keeps only those in use. An evicted bucket is full again: `maxmemory-policy` should be
/// `noeviction`. Each bucket has an expiry, so every `volatile` policy evicts buckets;
/// `volatile-ttl` takes first those that are nearly full.
///
/// The store has one connection to each server, and calls share it. A clone is another handle to
/// the same store. Calls need a tokio runtime.
///
/// ```no_run
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::Quota;
/// use tollgate_distributed::{Amount, Op, RedisStore, Spec, Store};
///
/// let store = RedisStore::connect("redis://localhost").await?;
/// let spec = Spec::new(Quota::per_second(100), 0)?;
/// let mut calls = [Op::new(b"customer 17", spec, Amount { min: 1, max: 1, spent: 0, of_us: 0 })];
/// store.acquire(&mut calls).await?;
/// println!("{} token", calls[0].answer.granted);
/// # Ok(())
/// # }
/// ```
///
/// # Failures
///
/// A call is sent again only if the server answers that it did not run it: it lacks the script, or
/// another node of a cluster has the key. The store replaces a connection that is lost, that is
/// silent for the response timeout, or that leads to a server that refuses writes (a replica, after
/// a failover). A call whose future is dropped may still have its effect.
///
/// If a batch fails in part, the decided calls have their answers, `now_us` of the others is 0, and
/// the error is theirs. The calls of one command are decided together or not at all.
///
/// Each node of a cluster is a lane: a limiter calls it alone, so a node that fails or hangs takes
/// nothing from the keys of the others.
#[derive(Clone)]
pub struct RedisStore {
    server: Arc<Server>,
    prefix: Arc<[u8]>,
    guard: bool,
    lanes: Lanes,
}

impl RedisStore {
    pub(crate) fn new(server: Arc<Server>, prefix: Vec<u8>, guard: bool) -> RedisStore {
        RedisStore { server, prefix: prefix.into(), guard, lanes: Lanes::default() }
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Sends each group as one command, all at once. Returns the groups that failed.
    async fn send<'g, 'k>(
        &self,
        groups: impl Iterator<Item = &'g mut [Op<'k>]>,
        call: impl Fn(&[Op<'k>]) -> ScriptCall,
        read: impl Fn(&[i64], &mut [Op<'k>]) -> RedisResult<()>,
    ) -> Vec<Failed<'g, 'k>>
    where
        'k: 'g,
    {
        let sent: Vec<_> = groups.map(|group| (self.server.run(call(group)), group)).collect();
        let mut failed = Vec::new();
        for (answer, group) in sent {
            let ended = |ended| Err(Failure::sent(io::Error::other(ended).into()));
            let answer = answer.await.unwrap_or_else(ended);
            let read = answer.and_then(|numbers| read(&numbers, group).map_err(Failure::sent));
            if let Err(failure) = read {
                group.iter_mut().for_each(|op| op.answer = StoreAnswer::default());
                failed.push(Failed { group, failure });
            }
        }
        failed
    }
}

impl Store for RedisStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let call = |group: &[Op<'_>]| match group {
            [Op { law: Law::Count(_), .. }, ..] => counts(&self.prefix, group, self.guard),
            _ => steps(&self.prefix, group, self.guard),
        };
        let read = |numbers: &[i64], group: &mut [Op<'_>]| match group {
            [Op { law: Law::Count(_), .. }, ..] => read_counts(numbers, group),
            _ => read_steps(numbers, group),
        };
        let size = if self.server.is_single() { 1 } else { BATCH };
        // A command has calls of one law.
        let runs = ops.chunk_by_mut(|op, next| is_count(op) == is_count(next));
        let failed = self.send(runs.flat_map(|run| run.chunks_mut(size)), call, read).await;
        let (split, mut failed): (Vec<_>, Vec<_>) =
            failed.into_iter().partition(|failed| failed.failure.is_cross_slot());
        if !split.is_empty() {
            // A cluster behind one address, or on the connection of the caller. It ran none of
            // these calls.
            self.server.set_single();
            let calls = split.into_iter().flat_map(|failed| failed.group.chunks_mut(1));
            failed.extend(self.send(calls, call, read).await);
        }
        error_of(failed).map_or(Ok(()), Err)?;
        check_months(ops)
    }

    /// Runs one script. On a cluster the calls whose keys are in several slots are decided one by
    /// one, and given back after a refusal.
    async fn acquire_all(&self, ops: &mut [Op<'_>]) -> Result<Option<usize>, StoreError> {
        let mut slots: Vec<u16> = names(&self.prefix, ops).iter().map(|name| slot_of(name)).collect();
        slots.dedup();
        if ops.len() > BATCH || slots.len() > 1 && self.server.is_single() {
            return in_turn(self, ops).await;
        }
        let ended = |ended| Err(Failure::sent(io::Error::other(ended).into()));
        let answer = self.server.run(all(&self.prefix, ops, self.guard)).await.unwrap_or_else(ended);
        match answer.and_then(|numbers| read_all(&numbers, ops).map_err(Failure::sent)) {
            Err(failure) if failure.is_cross_slot() => {
                self.server.set_single();
                in_turn(self, ops).await
            }
            Err(failure) => {
                ops.iter_mut().for_each(|op| op.answer = StoreAnswer::default());
                Err(failure.into())
            }
            Ok(()) => {
                let refused = settle(ops);
                check_months(ops).map(|()| refused)
            }
        }
    }

    fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }

    /// Returns the lane of a key: on a cluster the node of its bucket's slot.
    fn lane(&self, key: &[u8]) -> u32 {
        self.server.lane(&[&self.prefix, key].concat())
    }

    fn probe_key(&self, lane: u32) -> Vec<u8> {
        [b":probe", self.server.tag(lane).as_bytes()].concat()
    }
}

/// Returns the error of the calls whose months are not those of the server's clock. The others are
/// decided.
fn check_months(ops: &[Op<'_>]) -> Result<(), StoreError> {
    let why = "the clock of the store is in none of the months of the call: the clocks are weeks apart";
    let is_outside = ops.iter().any(|op| op.answer.now_us == 0);
    if is_outside { Err(StoreError::new(StoreErrorKind::Permanent, why)) } else { Ok(()) }
}

fn is_count(op: &Op<'_>) -> bool {
    matches!(op.law, Law::Count(_))
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = String::from_utf8_lossy(&self.prefix);
        f.debug_struct("RedisStore")
            .field("prefix", &prefix)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

/// The calls of a command that failed.
struct Failed<'g, 'k> {
    group: &'g mut [Op<'k>],
    failure: Failure,
}

/// Returns the first error, with the kind that all have, or unknown if they differ.
fn error_of(failed: Vec<Failed<'_, '_>>) -> Option<StoreError> {
    let same = failed.windows(2).all(|pair| pair[0].failure.kind() == pair[1].failure.kind());
    let Failed { group, failure } = failed.into_iter().next()?;
    let kind = if same { failure.kind() } else { StoreErrorKind::Unknown };
    let bad = failure.bad_key().and_then(|place| group.get(place.checked_sub(1)?));
    Some(match bad {
        Some(op) => StoreError::new(kind, format!("the key \"{}\" holds no bucket", op.key.escape_ascii())),
        None => StoreError::new(kind, failure.error),
    })
}
