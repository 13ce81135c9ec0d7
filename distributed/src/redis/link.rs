//! The link to a server: its connection, and the task that makes the next one.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult};
use tokio::time::timeout;

use super::connection::Connection;
use super::sentinels::Sentinels;
use crate::store::single::Single;

/// The longest time to a connection, and to an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
}

/// The way to a server.
#[derive(Clone)]
pub(crate) enum Route {
    Server(Box<Client>),
    /// The sentinels, which each new connection asks for the master.
    Sentinels(Arc<Sentinels>),
}

/// A connection, and its number in the order of creation.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) connection: Connection,
    number: u64,
}

#[derive(Default)]
struct LinkState {
    current: Option<Live>,
    next: Single<Live, RedisError>,
    made: u64,
}

/// The link to a server. At most one task makes a connection.
pub(crate) struct Link {
    /// `None` on a connection of the caller, which reconnects by itself or never.
    source: Option<Route>,
    limits: Limits,
    state: Mutex<LinkState>,
}

impl Link {
    /// Returns a link that connects at its first use.
    pub(crate) fn new(source: Route, limits: Limits) -> Link {
        Link { source: Some(source), limits, state: Mutex::default() }
    }

    /// Returns a link on one connection, which is never replaced.
    pub(crate) fn of(connection: Connection, limits: Limits) -> Link {
        let current = Some(Live { connection, number: 0 });
        Link { source: None, limits, state: Mutex::new(LinkState { current, ..LinkState::default() }) }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the connection in use, or waits for the next one.
    pub(crate) async fn get(self: &Arc<Self>) -> RedisResult<Live> {
        let next = {
            let mut state = self.state();
            match (&state.current, &self.source) {
                (Some(live), _) => return Ok(live.clone()),
                (None, Some(source)) => state.next.join(|| Arc::clone(self).connect(source.clone())),
                (None, None) => return Err(io::Error::from(io::ErrorKind::NotConnected).into()),
            }
        };
        next.result().await
    }

    /// Takes a connection out of use.
    pub(crate) fn retire(&self, failed: &Live) {
        let mut state = self.state();
        if self.source.is_some() && state.current.as_ref().is_some_and(|live| live.number == failed.number) {
            state.current = None;
        }
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(self: Arc<Self>, source: Route) -> RedisResult<Live> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limits.connect))
            .set_response_timeout(Some(self.limits.response));
        let made = async {
            match source {
                Route::Server(client) => client.get_multiplexed_async_connection_with_config(&config).await,
                Route::Sentinels(sentinels) => sentinels.connect(&config).await,
            }
        };
        let made = timeout(self.limits.connect, made).await;
        let made = made.unwrap_or_else(|elapsed| Err(io::Error::from(elapsed).into()));
        let mut state = self.state();
        state.next.end();
        let connection = Connection::Own(made?);
        state.made += 1;
        let live = Live { connection, number: state.made };
        state.current = Some(live.clone());
        Ok(live)
    }
}
