//! The connection in use, and the making of the next one.
//!
//! A connection is made by a task of its own: a caller with a short deadline does not stop it, and
//! callers that come meanwhile wait for the same one. So at most one is being made.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{RedisError, RedisResult};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::connection::Connection;
use super::target::{Limits, Target};

/// The least time between two connections that are made while another is in use.
const RENEWAL: Duration = Duration::from_secs(1);

/// A connection to all nodes of a cluster may take longer than one.
const CLUSTER: u32 = 8;

/// A connection, numbered in the order of making.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) connection: Connection,
    number: u64,
}

type Attempt = watch::Receiver<Option<RedisResult<Live>>>;

#[derive(Default)]
struct State {
    current: Option<Live>,
    attempt: Option<Attempt>,
    made: u64,
    renewed: Option<Instant>,
}

/// The way to a server or a cluster.
pub(crate) struct Link {
    target: Target,
    limits: Limits,
    state: Mutex<State>,
}

impl Link {
    /// Returns a link that connects when it is first used.
    pub(crate) fn new(target: Target, limits: Limits) -> Link {
        Link { target, limits, state: Mutex::default() }
    }

    /// Returns a link that has one connection for good.
    pub(crate) fn of(connection: Connection, limits: Limits) -> Link {
        let current = Some(Live { connection, number: 0 });
        Link { target: Target::Foreign, limits, state: Mutex::new(State { current, ..State::default() }) }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster(_))
    }

    /// Returns the connection in use, or waits for the next one.
    pub(crate) async fn get(self: &Arc<Self>) -> RedisResult<Live> {
        let mut attempt = {
            let mut state = self.state();
            if let Some(live) = &state.current {
                return Ok(live.clone());
            }
            self.attempt(&mut state)
        };
        let ended = || RedisError::from(io::Error::other("the runtime that connects has ended"));
        let made = attempt.wait_for(Option::is_some).await.map_err(|_| ended())?;
        made.clone().unwrap_or_else(|| Err(ended()))
    }

    /// Takes a connection out of use. That of a cluster stays until another one is there: most of its
    /// nodes may be well.
    pub(crate) fn retire(self: &Arc<Self>, failed: &Live) {
        let mut state = self.state();
        if state.current.as_ref().is_none_or(|live| live.number != failed.number) {
            return;
        }
        match self.target {
            Target::Server(_) => state.current = None,
            Target::Cluster(_) if state.renewed.is_none_or(|at| at.elapsed() >= RENEWAL) => {
                state.renewed = Some(Instant::now());
                self.attempt(&mut state);
            }
            Target::Cluster(_) | Target::Foreign => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the attempt that is under way, or begins one.
    fn attempt(self: &Arc<Self>, state: &mut State) -> Attempt {
        // One whose runtime has ended is not under way.
        if let Some(attempt) = state.attempt.as_ref().filter(|attempt| attempt.has_changed().is_ok()) {
            return attempt.clone();
        }
        let (done, attempt) = watch::channel(None);
        state.attempt = Some(attempt.clone());
        tokio::spawn(Arc::clone(self).connect(done));
        attempt
    }

    async fn connect(self: Arc<Self>, done: watch::Sender<Option<RedisResult<Live>>>) {
        let limit = self.limits.connect * if self.is_cluster() { CLUSTER } else { 1 };
        let made = timeout(limit, self.target.connect(self.limits)).await;
        let made = made.unwrap_or_else(|elapsed| Err(io::Error::from(elapsed).into()));
        let mut state = self.state();
        state.attempt = None;
        let live = made.map(|connection| {
            state.made += 1;
            Live { connection, number: state.made }
        });
        if let Ok(live) = &live {
            state.current = Some(live.clone());
        }
        drop(state);
        let _ = done.send(Some(live));
    }
}
