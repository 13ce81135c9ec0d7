//! A cluster: each call goes to the master of its key's slot.
//!
//! This is not the cluster client of redis-rs. That one sends a call again after an error that
//! leaves its effect open, and while it looks for a dead node the calls to all others wait.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::chain::Chain;
use super::errors::{Failure, is_of_connection};
use super::link::{Limits, Link, Route};
use super::node::Node;
use super::script::ScriptCall;
use super::slots::{Address, Range, SLOTS, read_slots, slot_of};
use super::urls::at;
use crate::store::single::{Pending, Single};

/// The most nodes that one call is sent to, by redirections.
const MAX_REDIRECTS: usize = 4;

/// The nodes that are asked at once for the map of the slots.
const ASKED: usize = 3;

/// The least time from one look at the map of the slots to the next, while there is a map.
const LOOK: Duration = Duration::from_millis(100);

/// The most nodes. A cluster of Redis has a thousand at most.
const MAX_NODES: usize = 4_000;

/// A node, and its address.
struct Member {
    address: Address,
    node: Node,
}

/// Chains that one node is sent in a pipeline.
struct NodePart {
    member: Arc<Member>,
    asking: bool,
    chains: Vec<Chain>,
}

/// Adds a chain to the part of a node.
fn add(parts: &mut Vec<NodePart>, member: Arc<Member>, asking: bool, chain: Chain) {
    let is_same = |part: &&mut NodePart| part.asking == asking && Arc::ptr_eq(&part.member, &member);
    match parts.iter_mut().find(is_same) {
        Some(part) => part.chains.push(chain),
        None => parts.push(NodePart { member, asking, chains: vec![chain] }),
    }
}

#[derive(Default)]
struct Map {
    members: HashMap<Address, Arc<Member>>,
    /// The master of each slot. Empty before the first look.
    masters: Vec<Option<Arc<Member>>>,
    /// The first slot of each slot's master. Empty before the first look.
    lanes: Vec<u16>,
    look: Single<(), RedisError>,
    looked: Option<Instant>,
    /// The index of the first node that the next look asks.
    turn: usize,
}

/// A cluster, known by some of its nodes.
pub(crate) struct Cluster {
    /// The settings of the connections to all nodes.
    template: ConnectionInfo,
    seeds: Vec<Address>,
    limits: Limits,
    map: Mutex<Map>,
}

impl Cluster {
    /// Returns a cluster that connects at its first call.
    pub(crate) fn new(seeds: Vec<ConnectionInfo>, limits: Limits) -> RedisResult<Cluster> {
        let invalid = |text| RedisError::from((ErrorKind::InvalidClientConfig, text));
        let address = |seed: &ConnectionInfo| match seed.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Ok((host.clone(), *port))
            }
            _ => Err(invalid("a node of a cluster has a host and a port")),
        };
        let addresses = seeds.iter().map(address).collect::<RedisResult<_>>()?;
        let template = seeds.into_iter().next().ok_or_else(|| invalid("a cluster has nodes"))?;
        Ok(Cluster { template, seeds: addresses, limits, map: Mutex::default() })
    }

    /// Waits until the masters are known.
    pub(crate) async fn connect(self: &Arc<Self>) -> RedisResult<()> {
        let look = self.look(&mut self.map());
        look.result().await
    }

    /// Runs a script on the master of a slot. A node that answers with a redirection did not run
    /// it.
    pub(crate) async fn run(self: &Arc<Self>, slot: u16, call: &ScriptCall) -> Result<Vec<i64>, Failure> {
        let mut member = self.master(slot).await.map_err(Failure::not_sent)?;
        let mut asking = false;
        for _ in 0..MAX_REDIRECTS {
            let failure = match member.node.run(call, asking).await {
                Ok(numbers) => return Ok(numbers),
                Err(failure) => failure,
            };
            let Some(redirect) = failure.redirect() else {
                if is_of_connection(&failure.error) {
                    self.look_soon(&mut self.map());
                }
                return Err(failure);
            };
            asking = redirect.asking;
            let address = resolved(redirect.address, &member);
            member = self.redirected(slot, address, asking).map_err(Failure::not_sent)?;
        }
        Err(circle())
    }

    /// Sends the commands of all chains at once, in one pipeline for each node. A chain that a node
    /// answers with a redirection goes on at the other node: the first one did not run the rest.
    pub(crate) async fn send(self: &Arc<Self>, chains: Vec<Chain>) -> Vec<Chain> {
        let mut ended = Vec::new();
        let mut parts = self.parts(chains, &mut ended).await;
        for _ in 0..MAX_REDIRECTS {
            let mut sent = JoinSet::new();
            for NodePart { member, asking, mut chains } in std::mem::take(&mut parts) {
                sent.spawn(async move {
                    member.node.send(&mut chains, asking).await;
                    (member, chains)
                });
            }
            while let Some(answered) = sent.join_next().await {
                let Ok((member, chains)) = answered else { continue };
                for chain in chains {
                    match self.next_of(&chain, &member) {
                        None => ended.push(chain),
                        Some(Ok((member, asking))) => add(&mut parts, member, asking, chain),
                        Some(Err(error)) => ended.push(chain.failed(Failure::not_sent(error))),
                    }
                }
            }
        }
        ended.extend(parts.into_iter().flat_map(|part| part.chains).map(|chain| chain.failed(circle())));
        ended
    }

    /// Returns the chains by the masters of their slots. Chains without a master have ended.
    async fn parts(self: &Arc<Self>, chains: Vec<Chain>, ended: &mut Vec<Chain>) -> Vec<NodePart> {
        let mut parts = Vec::new();
        let mut lacking: Option<RedisError> = None;
        for chain in chains {
            let known = self.map().masters.get(usize::from(slot_of(&chain.key))).cloned().flatten();
            let master = match (known, &lacking) {
                (Some(master), _) => Ok(master),
                // One look is for all of them.
                (None, Some(error)) => Err(error.clone()),
                (None, None) => self.master(slot_of(&chain.key)).await,
            };
            match master {
                Ok(master) => add(&mut parts, master, false, chain),
                Err(error) => {
                    lacking = Some(error.clone());
                    ended.push(chain.failed(Failure::not_sent(error)));
                }
            }
        }
        parts
    }

    /// Returns the node that has the rest of a chain after a redirection, and whether it is for
    /// this chain only.
    fn next_of(self: &Arc<Self>, chain: &Chain, asked: &Member) -> Option<RedisResult<(Arc<Member>, bool)>> {
        let failure = chain.failure()?;
        let Some(redirect) = failure.redirect() else {
            if is_of_connection(&failure.error) {
                self.look_soon(&mut self.map());
            }
            return None;
        };
        let (asking, address) = (redirect.asking, resolved(redirect.address, asked));
        Some(self.redirected(slot_of(&chain.key), address, asking).map(|member| (member, asking)))
    }

    /// Returns the lane of a slot: the first slot of the same master, as of the last look. So a
    /// replica that takes the place of a master has its lane. Slots without a master are one lane.
    pub(crate) fn lane(&self, slot: u16) -> u16 {
        self.map().lanes.get(usize::from(slot)).copied().unwrap_or(0)
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the master of a slot, after a look if none is known.
    async fn master(self: &Arc<Self>, slot: u16) -> RedisResult<Arc<Member>> {
        let look = {
            let mut map = self.map();
            match map.masters.get(usize::from(slot)) {
                Some(Some(master)) => return Ok(Arc::clone(master)),
                Some(None) if !map.is_old() => return Err(no_master()),
                _ => self.look(&mut map),
            }
        };
        look.result().await?;
        self.map().masters.get(usize::from(slot)).cloned().flatten().ok_or_else(no_master)
    }

    /// Returns the node of a redirection.
    fn redirected(self: &Arc<Self>, slot: u16, to: Address, asking: bool) -> RedisResult<Arc<Member>> {
        let mut map = self.map();
        let member = self.member(&mut map, to)?;
        if !asking {
            if let Some(master) = map.masters.get_mut(usize::from(slot)) {
                *master = Some(Arc::clone(&member));
            }
            self.look_soon(&mut map);
        }
        Ok(member)
    }

    fn member(&self, map: &mut Map, address: Address) -> RedisResult<Arc<Member>> {
        if let Some(member) = map.members.get(&address) {
            return Ok(Arc::clone(member));
        }
        if map.members.len() >= MAX_NODES {
            return Err((ErrorKind::ClusterConnectionNotFound, "a cluster of too many nodes").into());
        }
        let (host, port) = address.clone();
        let client = Client::open(at(&self.template, host, port))?;
        let node = Node::new(Link::new(Route::Server(Box::new(client)), self.limits));
        let member = Arc::new(Member { address: address.clone(), node });
        map.members.insert(address, Arc::clone(&member));
        Ok(member)
    }

    /// Looks at the map of the slots in the background, if the last look is old.
    fn look_soon(self: &Arc<Self>, map: &mut Map) {
        if map.is_old() {
            self.look(map);
        }
    }

    /// Looks at the map of the slots, by one task for all callers.
    fn look(self: &Arc<Self>, map: &mut Map) -> Pending<(), RedisError> {
        map.looked = Some(Instant::now());
        map.look.join(|| Arc::clone(self).look_now())
    }

    async fn look_now(self: Arc<Self>) -> RedisResult<()> {
        let found = self.ask_some().await;
        let mut map = self.map();
        map.look.end();
        let (asked, ranges) = found?;
        let mut masters = vec![None; usize::from(SLOTS)];
        for range in ranges {
            let master = self.member(&mut map, resolved(range.master, &asked))?;
            masters[usize::from(range.first)..=usize::from(range.last)].fill(Some(master));
        }
        let mut firsts = HashMap::new();
        let first = |(slot, master): (u16, &Option<Arc<Member>>)| {
            *firsts.entry(master.as_ref().map(Arc::as_ptr)).or_insert(slot)
        };
        map.lanes = (0..SLOTS).zip(&masters).map(first).collect();
        map.masters = masters;
        // A call under way keeps its node by an `Arc`.
        let used: HashSet<Address> = map
            .masters
            .iter()
            .flatten()
            .map(|master| master.address.clone())
            .chain(self.seeds.clone())
            .collect();
        map.members.retain(|address, _| used.contains(address));
        Ok(())
    }

    /// Asks some nodes for the map of the slots, and returns the first answer.
    async fn ask_some(&self) -> RedisResult<(Arc<Member>, Vec<Range>)> {
        let mut asked = JoinSet::new();
        for member in self.some_members()? {
            asked.spawn(ask(member));
        }
        let mut last = RedisError::from((ErrorKind::ClusterConnectionNotFound, "no node can be asked"));
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) => last = error,
                Err(_ended) => {}
            }
        }
        Err(last)
    }

    /// Returns the nodes whose turn it is to be asked.
    fn some_members(&self) -> RedisResult<Vec<Arc<Member>>> {
        let mut map = self.map();
        for seed in &self.seeds {
            self.member(&mut map, seed.clone())?;
        }
        map.turn = map.turn.wrapping_add(ASKED);
        let (count, turn) = (map.members.len(), map.turn);
        Ok(map.members.values().cycle().skip(turn % count.max(1)).take(ASKED.min(count)).cloned().collect())
    }
}

impl Map {
    fn is_old(&self) -> bool {
        self.looked.is_none_or(|looked| looked.elapsed() >= LOOK)
    }
}

async fn ask(member: Arc<Member>) -> RedisResult<(Arc<Member>, Vec<Range>)> {
    let mut command = redis::cmd("CLUSTER");
    let reply = member.node.ask(command.arg("SLOTS")).await?;
    let ranges = read_slots(&reply).ok_or((ErrorKind::Parse, "the answer is not one of slots"))?;
    Ok((member, ranges))
}

/// Returns an address from a node's answer. Without a host, the host is that of the node.
fn resolved((host, port): Address, asked: &Member) -> Address {
    if host.is_empty() || host == "?" { (asked.address.0.clone(), port) } else { (host, port) }
}

fn circle() -> Failure {
    Failure::not_sent((ErrorKind::ClusterConnectionNotFound, "each node names another one").into())
}

fn no_master() -> RedisError {
    (ErrorKind::Server(ServerErrorKind::ClusterDown), "no node has the slot").into()
}
