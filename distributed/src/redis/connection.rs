//! A connection that many calls share at a time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ErrorKind, Pipeline, RedisResult, Value};

type AnswerFuture<'a, T> = Pin<Box<dyn Future<Output = RedisResult<T>> + Send + 'a>>;

/// A connection of the caller, of any type.
pub(crate) trait Foreign: Send + Sync {
    fn request<'a>(&'a self, command: &'a Cmd) -> AnswerFuture<'a, Value>;
    fn request_all<'a>(&'a self, pipeline: &'a Pipeline) -> AnswerFuture<'a, Vec<Value>>;
}

impl<C: ConnectionLike + Clone + Send + Sync> Foreign for C {
    fn request<'a>(&'a self, command: &'a Cmd) -> AnswerFuture<'a, Value> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }

    fn request_all<'a>(&'a self, pipeline: &'a Pipeline) -> AnswerFuture<'a, Vec<Value>> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_commands(pipeline, 0, pipeline.len()).await })
    }
}

/// A connection to a server.
#[derive(Clone)]
pub(crate) enum Connection {
    Own(MultiplexedConnection),
    Foreign(Arc<dyn Foreign>),
}

impl Connection {
    /// Sends a command, and returns its answer.
    ///
    /// With `asking`, the node is one to which a slot is being moved. It accepts a command right
    /// after an `ASKING`, so both are sent in one pipeline.
    pub(crate) async fn request(&self, command: &Cmd, asking: bool) -> RedisResult<Value> {
        let value = match self {
            Connection::Own(connection) if asking => ask(connection.clone(), command).await,
            Connection::Own(connection) => connection.clone().send_packed_command(command).await,
            Connection::Foreign(connection) => connection.request(command).await,
        };
        value?.extract_error()
    }

    /// Sends commands at once, and returns an answer or an error of the server for each.
    pub(crate) async fn request_all(&self, pipeline: &Pipeline) -> RedisResult<Vec<Value>> {
        match self {
            Connection::Own(connection) => {
                connection.clone().send_packed_commands(pipeline, 0, pipeline.len()).await
            }
            Connection::Foreign(connection) => connection.request_all(pipeline).await,
        }
    }
}

async fn ask(mut connection: MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").add_command(command.clone());
    let answers = connection.send_packed_commands(&pipeline, 0, 2).await?;
    answers.into_iter().next_back().ok_or_else(|| (ErrorKind::Parse, "no answer behind ASKING").into())
}
