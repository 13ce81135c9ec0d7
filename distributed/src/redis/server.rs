//! A server or a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Client, RedisResult};
use tokio::task::JoinHandle;

use super::chain::Chain;
use super::cluster::Cluster;
use super::errors::Failure;
use super::link::{Limits, Link, Route};
use super::node::Node;
use super::script::ScriptCall;
use super::sentinels::Sentinels;
use super::slots::{SLOTS, slot_of, tag_of};
use super::tls_files::TlsFiles;
use super::urls::Servers;

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

    /// Returns the servers at a URL, to which the first call connects.
    pub(crate) fn open(url: &str, limits: Limits, tls: &TlsFiles) -> RedisResult<Server> {
        Ok(match Servers::read(url, tls)? {
            Servers::One(info) => Server::of(Link::new(Route::Server(Box::new(Client::open(info)?)), limits)),
            Servers::Sentinels { sentinels, name, master } => {
                let sentinels = Sentinels::new(sentinels, name, master)?;
                Server::of(Link::new(Route::Sentinels(Arc::new(sentinels)), limits))
            }
            Servers::Cluster(seeds) => {
                let nodes = Nodes::Cluster(Arc::new(Cluster::new(seeds, limits)?));
                Server { nodes, single: AtomicBool::new(true) }
            }
        })
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
