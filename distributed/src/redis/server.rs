//! A server or a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionInfo, IntoConnectionInfo, RedisResult};
use tokio::task::JoinHandle;

use super::chain::Chain;
use super::cluster::Cluster;
use super::errors::Failure;
use super::link::{Limits, Link};
use super::node::Node;
use super::script::ScriptCall;
use super::slots::{SLOTS, slot_of, tag_of};

/// A server or a cluster.
pub(crate) struct Server {
    nodes: Nodes,
    /// Whether calls have one key each. Relaxed: a cluster refuses a call with several keys, which
    /// is then sent again, one key each.
    single: AtomicBool,
}

#[derive(Clone)]
enum Nodes {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Server {
    /// Returns a server on a link.
    pub(crate) fn of(link: Link) -> Server {
        Server { nodes: Nodes::One(Arc::new(Node::new(link))), single: AtomicBool::new(false) }
    }

    /// Reads an address, such as `redis://user:password@host:6379/0`, or `redis+cluster://a,b,c`.
    pub(crate) fn open(url: &str, limits: Limits) -> RedisResult<Server> {
        let Some((scheme, nodes)) = url.split_once("+cluster://") else {
            return Ok(Server::of(Link::new(Client::open(info(url)?)?, limits)));
        };
        let seeds = cluster_urls(scheme, nodes).iter().map(|url| info(url)).collect::<RedisResult<_>>()?;
        let nodes = Nodes::Cluster(Arc::new(Cluster::new(seeds, limits)?));
        Ok(Server { nodes, single: AtomicBool::new(true) })
    }

    /// Waits for a connection.
    pub(crate) async fn connect(&self) -> Result<(), Failure> {
        let connected = match &self.nodes {
            Nodes::One(node) => node.connect().await,
            Nodes::Cluster(cluster) => cluster.connect().await,
        };
        connected.map_err(Failure::not_sent)
    }

    /// Tells whether a call must have one key only.
    pub(crate) fn is_single(&self) -> bool {
        self.single.load(Ordering::Relaxed)
    }

    /// Lets each later call have one key only.
    pub(crate) fn set_single(&self) {
        self.single.store(true, Ordering::Relaxed);
    }

    /// Returns the lane of a key: the node of its slot. One server is one lane.
    pub(crate) fn lane(&self, key: &[u8]) -> u32 {
        match &self.nodes {
            Nodes::One(_) => 0,
            Nodes::Cluster(cluster) => u32::from(cluster.lane(slot_of(key))),
        }
    }

    /// Returns the end of a key that belongs to a lane.
    pub(crate) fn tag(&self, lane: u32) -> String {
        match (&self.nodes, u16::try_from(lane)) {
            (Nodes::Cluster(_), Ok(slot)) if slot < SLOTS => format!("{{{}}}", tag_of(slot)),
            _ => String::new(),
        }
    }

    /// Runs a script in a task. So the silence of a server is noticed
    /// also if the caller is dropped.
    pub(crate) fn run(&self, call: ScriptCall) -> JoinHandle<Result<Vec<i64>, Failure>> {
        match self.nodes.clone() {
            Nodes::One(node) => tokio::spawn(async move { node.run(&call, false).await }),
            Nodes::Cluster(cluster) => {
                let slot = slot_of(&call.key);
                tokio::spawn(async move { cluster.run(slot, &call).await })
            }
        }
    }

    /// Sends the commands of all chains at once, in a task as [`run`](Server::run) does: one
    /// pipeline for each node. Returns the chains in any order.
    pub(crate) fn send(&self, mut chains: Vec<Chain>) -> JoinHandle<Vec<Chain>> {
        match self.nodes.clone() {
            Nodes::One(node) => tokio::spawn(async move {
                node.send(&mut chains, false).await;
                chains
            }),
            Nodes::Cluster(cluster) => tokio::spawn(async move { cluster.send(chains).await }),
        }
    }
}

fn info(url: &str) -> RedisResult<ConnectionInfo> {
    Ok(url.into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

/// Returns the addresses of `user:password@host:port,host:port/path`, one for each node.
fn cluster_urls(scheme: &str, nodes: &str) -> Vec<String> {
    let (login, nodes) = nodes.rsplit_once('@').map_or(("", nodes), |(login, nodes)| (login, nodes));
    let end = nodes.find(['/', '?']).unwrap_or(nodes.len());
    let (hosts, path) = nodes.split_at(end);
    let at = if login.is_empty() { "" } else { "@" };
    hosts.split(',').map(|host| format!("{scheme}://{login}{at}{host}{path}")).collect()
}
