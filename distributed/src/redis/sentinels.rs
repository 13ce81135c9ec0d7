//! The sentinels of a master, which tell its address.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
};
use tokio::task::JoinSet;

use super::slots::Address;
use super::urls::at;

/// The sentinels of a master.
///
/// Each new connection asks all of them at once, so that one which is silent or behind costs
/// nothing. The first server that is the master is taken.
pub(crate) struct Sentinels {
    sentinels: Vec<Client>,
    name: String,
    /// The settings of the connections to the master.
    master: ConnectionInfo,
}

/// The end of a step.
enum Step {
    Told(RedisResult<Address>),
    Connected(RedisResult<MultiplexedConnection>),
}

impl Sentinels {
    pub(crate) fn new(
        sentinels: Vec<ConnectionInfo>,
        name: String,
        master: ConnectionInfo,
    ) -> RedisResult<Sentinels> {
        let sentinels = sentinels.into_iter().map(Client::open).collect::<RedisResult<_>>()?;
        Ok(Sentinels { sentinels, name, master })
    }

    /// Returns a connection to the master.
    ///
    /// # Errors
    ///
    /// The last error of a server or a sentinel; [`ErrorKind::InvalidClientConfig`] if each
    /// sentinel that answers knows no master of the name.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let mut steps = JoinSet::new();
        for at in 0..self.sentinels.len() {
            let (this, config) = (Arc::clone(self), config.clone());
            steps.spawn(async move { Step::Told(this.ask(at, &config).await) });
        }
        let mut told: Vec<Address> = Vec::new();
        let mut last = RedisError::from((ErrorKind::Io, "no sentinel answers"));
        while let Some(step) = steps.join_next().await {
            match step {
                Ok(Step::Connected(Ok(connection))) => return Ok(connection),
                Ok(Step::Told(Ok(address))) if !told.contains(&address) => {
                    told.push(address.clone());
                    let (this, config) = (Arc::clone(self), config.clone());
                    steps.spawn(async move { Step::Connected(this.reach(address, &config).await) });
                }
                Ok(Step::Told(Err(error)) | Step::Connected(Err(error))) => last = error,
                Ok(Step::Told(Ok(_))) | Err(_) => {}
            }
        }
        Err(last)
    }

    /// Asks a sentinel for the address of the master.
    async fn ask(&self, sentinel: usize, config: &AsyncConnectionConfig) -> RedisResult<Address> {
        let sentinel = &self.sentinels[sentinel];
        let mut connection = sentinel.get_multiplexed_async_connection_with_config(config).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let told: Option<(String, u16)> = command.query_async(&mut connection).await?;
        told.ok_or_else(|| {
            (ErrorKind::InvalidClientConfig, "no sentinel knows the master", self.name.clone()).into()
        })
    }

    /// Connects to a server, if it is the master: a sentinel may be behind.
    async fn reach(
        &self,
        (host, port): Address,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let client = Client::open(at(&self.master, host, port))?;
        let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
        let role = redis::cmd("ROLE").query_async::<Value>(&mut connection).await;
        match role {
            Ok(Value::Array(role)) if !role.first().is_some_and(is_master) => {
                Err((ErrorKind::Server(ServerErrorKind::ReadOnly), "the server is no longer the master")
                    .into())
            }
            // An account may lack the right to ask.
            Ok(_) => Ok(connection),
            Err(error) if error.code() == Some("NOPERM") => Ok(connection),
            Err(error) => Err(error),
        }
    }
}

fn is_master(role: &Value) -> bool {
    match role {
        Value::BulkString(role) => role == b"master",
        Value::SimpleString(role) => role == "master",
        _ => false,
    }
}
