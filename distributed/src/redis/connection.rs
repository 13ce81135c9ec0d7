//! A connection, on which many calls are under way at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};

/// The nodes that one call is sent to, one after the other: each sends it on to the next.
const MAX_REDIRECTS: usize = 4;

type Answer<'a> = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;

/// A connection of the user's, whatever its type.
pub(crate) trait Foreign: Send + Sync {
    fn request<'a>(&'a self, command: &'a Cmd) -> Answer<'a>;
}

impl<C: ConnectionLike + Clone + Send + Sync> Foreign for C {
    fn request<'a>(&'a self, command: &'a Cmd) -> Answer<'a> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }
}

/// A connection to a server or to a cluster.
#[derive(Clone)]
pub(crate) enum Connection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
    Foreign(Arc<dyn Foreign>),
}

impl Connection {
    /// Sends a command, and returns its answer.
    pub(crate) async fn request(&self, command: &Cmd) -> RedisResult<Value> {
        let value = match self {
            Connection::Server(connection) => connection.clone().req_packed_command(command).await,
            Connection::Cluster(connection) => request_cluster(&mut connection.clone(), command).await,
            Connection::Foreign(connection) => connection.request(command).await,
        };
        value?.extract_error()
    }
}

/// Sends a command to the node of its key.
///
/// The client of redis-rs sends a command again after an error, also after one that tells nothing
/// about its effect. So it is built without retries, and redirections are followed here: the node
/// did not run the command.
async fn request_cluster(connection: &mut ClusterConnection, command: &Cmd) -> RedisResult<Value> {
    let mut result = extract(connection.req_packed_command(command).await);
    for _ in 0..MAX_REDIRECTS {
        let Some(redirect) = result.as_ref().err().and_then(Redirect::of) else {
            break;
        };
        let moved = redirect.request(connection, command).await;
        let lost = |error: &RedisError| error.kind() == ErrorKind::ClusterConnectionNotFound;
        result = if moved.as_ref().is_err_and(lost) {
            // The new map of the cluster may not have been read yet.
            extract(connection.req_packed_command(command).await)
        } else {
            moved
        };
    }
    result
}

fn extract(result: RedisResult<Value>) -> RedisResult<Value> {
    result.and_then(Value::extract_error)
}

/// Another node to ask.
struct Redirect {
    node: SingleNodeRoutingInfo,
    asking: bool,
}

impl Redirect {
    fn of(error: &RedisError) -> Option<Redirect> {
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? };
        Some(Redirect { node, asking: error.kind() == ErrorKind::Server(ServerErrorKind::Ask) })
    }

    async fn request(self, connection: &mut ClusterConnection, command: &Cmd) -> RedisResult<Value> {
        if !self.asking {
            let node = RoutingInfo::SingleNode(self.node);
            return extract(connection.route_command(command.clone(), node).await);
        }
        // A node that imports a slot takes the command behind `ASKING`; no other may come between.
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command.clone());
        let answers = connection.route_pipeline(pipeline, 0, 2, self.node).await?;
        let last = answers.into_iter().next_back();
        extract(last.ok_or_else(|| (ErrorKind::Parse, "no answer behind ASKING").into()))
    }
}
