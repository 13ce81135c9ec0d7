//! The work beside the requests: hits that the store is told later, tables, and the end.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use tollgate_distributed::{DistributedLimiter, OwnedOp};

use super::SharedCounts;

/// From one look for hits that the store was not told to the next.
const TELL: Duration = Duration::from_millis(100);
/// From one deletion of rows that are over to the next, and the time since then.
const CLEAN: Duration = Duration::from_secs(60);
const OVER_FOR: Duration = Duration::from_secs(600);
/// The most hits of a call that tells them.
const MOST_TOLD: usize = 64;
/// The longest time for the last hits at a stop.
const PATIENCE: Duration = Duration::from_secs(3);
/// From one question at the start to the next, and the longest time for them.
const WARMS: Duration = Duration::from_millis(20);
const MOST_WARMS: Duration = Duration::from_secs(1);

impl SharedCounts {
    /// Tells the store the hits that were granted without it, each tau.
    pub(super) async fn tell_each(self: Arc<Self>) {
        loop {
            sleep(TELL).await;
            self.tell().await;
        }
    }

    /// Tells the store the hits that were granted without it, and those that go back. What it does
    /// not take stays until its window is over.
    async fn tell(&self) {
        let _one_at_a_time = self.telling.lock().await;
        self.lent().retain(|id, _| self.with_known(*id, |known| known.has_news(self.now())));
        // Of many keys some are enough to see that the store answers.
        let most = if self.is_away() { MOST_TOLD } else { usize::MAX };
        let lent: Vec<_> = self.lent().iter().take(most).map(|(id, of)| (*id, of.clone())).collect();
        for part in lent.chunks(MOST_TOLD) {
            let mut ops = Vec::with_capacity(part.len());
            let mut lends = Vec::with_capacity(part.len());
            for (id, (op, _)) in part {
                let (amount, is_lent) = self.with_known(*id, |known| known.news(self.now()));
                ops.push(OwnedOp { amount, ..op.clone() });
                lends.push(is_lent);
            }
            let sent = self.now();
            let answers = self.buckets.call(ops.clone()).await;
            for ((((id, (_, law)), told), answer), is_lent) in part.iter().zip(ops).zip(answers).zip(lends) {
                self.with_known(*id, |known| match answer {
                    Some(answer) => _ = known.tell(law, told.amount, answer, sent),
                    None => {
                        known.not_told(told.amount, is_lent, self.now());
                        if self.is_away() {
                            known.owe_again(told.amount);
                        }
                    }
                });
            }
        }
    }

    /// Waits until the store answers, so that it decides the first requests. It waits for a second
    /// at most: a service starts without its store.
    pub(in crate::serve) async fn warm(&self) {
        let answers = async {
            loop {
                if self.store.migrate().await.is_ok() && self.store.answers().await {
                    return;
                }
                sleep(WARMS).await;
            }
        };
        let _ = timeout(MOST_WARMS, answers).await;
    }

    /// Creates the tables, and deletes rows that are over, until the process ends. While the store
    /// does not answer, it is asked again.
    pub(super) async fn prepare(self: Arc<Self>) {
        let mut is_told = false;
        while let Err(error) = self.store.migrate().await {
            if !std::mem::replace(&mut is_told, true) {
                tracing::warn!("the tables of the counts: {error}");
            }
            sleep(Duration::from_secs(1)).await;
        }
        loop {
            sleep(CLEAN).await;
            if let Err(error) = self.store.clean_up(OVER_FOR).await {
                tracing::debug!("the rows that are over: {error}");
            }
        }
    }

    /// Tells the store all hits, and gives all leases back: at most a few seconds.
    pub(in crate::serve) async fn shutdown(&self) {
        let windows: Vec<_> =
            self.windows.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let all = async {
            while !self.lent().is_empty() {
                self.tell().await;
                sleep(WARMS).await;
            }
            join_all(windows.iter().map(DistributedLimiter::shutdown)).await;
            self.buckets.shutdown().await;
            self.marks.shutdown().await;
        };
        if timeout(PATIENCE, all).await.is_err() {
            tracing::warn!("the store does not take the last hits within {PATIENCE:?}: they are lost");
        }
    }

    /// Forgets the keys whose windows are over.
    pub(in crate::serve) fn sweep(&self) {
        let unix = self.clock.unix_time();
        self.unsure().retain(|_, holds_until| unix < *holds_until);
        match (self.is_away(), self.since.load(Relaxed)) {
            (true, _) => self.since.store(0, Relaxed),
            (false, 0) => self.since.store(unix.as_secs(), Relaxed),
            _ => {}
        }
        let (map, now) = (self.known.pin(), self.now());
        // Values that are asked for once leave room for those that are over their limits.
        let is_tight = map.len() >= self.max_keys / 4 * 3;
        for (id, known) in &map {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.has_left = known.is_over(now) || is_tight && known.is_dispensable(now);
            if known.has_left {
                drop(known);
                map.remove(id);
            }
        }
    }
}
