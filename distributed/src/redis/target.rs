//! The servers to connect to.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisResult};

use super::connection::Connection;

/// How long a connection may take, and an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
}

/// The servers to connect to.
pub(crate) enum Target {
    Server(Client),
    Cluster(Box<ClusterClient>),
    /// The user's own connection, which connects itself.
    Foreign,
}

impl Target {
    /// Reads an address, such as `redis://user:password@host:6379/0`, or `redis+cluster://a,b,c`.
    pub(crate) fn open(url: &str, limits: Limits) -> RedisResult<Target> {
        let Some((scheme, nodes)) = url.split_once("+cluster://") else {
            let info = url.into_connection_info()?;
            let settings = TcpSettings::default().set_nodelay(true);
            return Client::open(info.set_tcp_settings(settings)).map(Target::Server);
        };
        let client = ClusterClient::builder(cluster_urls(scheme, nodes))
            .retries(0)
            .connection_timeout(limits.connect)
            .response_timeout(limits.response)
            .tcp_settings(TcpSettings::default().set_nodelay(true));
        client.build().map(|client| Target::Cluster(Box::new(client)))
    }

    /// Makes a connection.
    pub(crate) async fn connect(&self, limits: Limits) -> RedisResult<Connection> {
        match self {
            Target::Server(client) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(limits.connect))
                    .set_response_timeout(Some(limits.response));
                client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::Server)
            }
            Target::Cluster(client) => client.get_async_connection().await.map(Connection::Cluster),
            Target::Foreign => {
                Err((redis::ErrorKind::Client, "a connection of the user's is not remade").into())
            }
        }
    }
}

/// Returns the addresses of `user:password@host:port,host:port/path`, one for each node.
fn cluster_urls(scheme: &str, nodes: &str) -> Vec<String> {
    let (login, nodes) = nodes.rsplit_once('@').map_or(("", nodes), |(login, nodes)| (login, nodes));
    let end = nodes.find(['/', '?']).unwrap_or(nodes.len());
    let (hosts, path) = nodes.split_at(end);
    let at = if login.is_empty() { "" } else { "@" };
    hosts.split(',').map(|host| format!("{scheme}://{login}{at}{host}{path}")).collect()
}
