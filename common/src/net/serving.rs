//! The accept loop of a server, and its drain once it stops.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use super::crowd::{Crowd, Member, Owner};
use super::open::{Closed, Door, Peer, Stream, open};
use super::socket::{Listener, Socket};
use super::threads::Threads;
use crate::output::say;

/// The time for which a connection may be silent after a stop, before it is closed. A client that
/// goes on asking learns of the stop by its next response. To close at once would reset the
/// connection under a request that is on its way.
const SILENCE: Duration = Duration::from_secs(1);

/// The connections of a server, and the threads that drive them.
pub struct Connections {
    threads: Threads,
    pub clients: Arc<Crowd>,
    /// Whether each response is the last of its connection.
    closing: AtomicBool,
    /// Whether [`SILENCE`] after a stop is over. A connection that is not open by then is dropped.
    late: watch::Sender<bool>,
}

impl Connections {
    pub fn new(most: usize) -> Result<Connections, String> {
        let threads = Threads::start().map_err(|error| format!("cannot start threads: {error}"))?;
        let (clients, late) = (Crowd::new(most), watch::Sender::new(false));
        Ok(Connections { threads, clients, closing: AtomicBool::new(false), late })
    }

    /// Returns whether each response is the last of its connection.
    pub fn are_closing(&self) -> bool {
        // Relaxed: no other data is read that was written before the flag.
        self.closing.load(Relaxed)
    }

    /// Waits for the end of the silence after a stop.
    pub async fn late(&self) {
        // The sender lives as long as this value.
        let _ = self.late.subscribe().wait_for(|late| *late).await;
    }

    /// Waits until each thread has done the step of work that it is in, but not for long: a thread
    /// that hangs does not delay the end.
    pub async fn step(&self) {
        let _ = timeout(SILENCE, self.threads.step()).await;
    }

    /// Waits until the connection is open, but not beyond the silence after a stop, and not if it
    /// is to leave for a newcomer.
    pub async fn open(&self, socket: Socket, door: &Door) -> Option<(Stream, Peer)> {
        tokio::select! {
            opened = open(socket, door) => opened,
            () = door.activity.dismissed() => {
                (door.count)(Closed::Idle);
                None
            }
            () = self.late() => None,
        }
    }
}

/// A server, as the accept loop and the drain see it.
pub trait Answer: Send + Sync + 'static {
    /// The place of a connection among those of its address.
    type Place: Send + 'static;

    fn connections(&self) -> &Connections;

    /// Takes a place for the address, or returns `None` if the connection is to be closed.
    fn admit(&self, address: IpAddr) -> Option<Self::Place>;

    /// Returns the address that has a share of the connections.
    fn owner(&self, address: IpAddr) -> Owner;

    /// Notes a connection that is closed, since its owner has its share of busy ones.
    fn refused(&self);

    /// Serves a connection to its end.
    fn converse(
        self: Arc<Self>,
        newcomer: (Socket, Self::Place),
        member: Member,
        watcher: Watcher,
    ) -> impl Future<Output = ()> + Send;

    /// Returns the number of requests under way, also of those that have left their connection.
    fn under_way(&self) -> usize;

    /// Returns the longest times for a client that does not read, and for the drain.
    fn patience(&self) -> (Duration, Duration);
}

/// Serves connections until `stop`, and then answers the requests under way. Returns `true` if each
/// was answered, and `false` if some were cut.
pub async fn serve<A: Answer>(server: Arc<A>, listener: Listener, mut stop: oneshot::Receiver<()>) -> bool {
    let (draining, connections) = (GracefulShutdown::new(), server.connections());
    let admitted = |socket: Socket| {
        let place = server.admit(socket.peer)?;
        Some((socket, place))
    };
    let connect = |mut member: Member, newcomer| {
        connections.threads.spawn(|seat| {
            member.seat = Some(seat);
            server.clone().converse(newcomer, member, draining.watcher())
        });
    };
    // The connection that waits for a place, if all are taken by busy ones. Others wait in the
    // listener's backlog.
    let mut newcomer = None;
    loop {
        let next = async {
            if newcomer.is_none() {
                let socket = listener.accept(server.patience().0).await;
                newcomer = admitted(socket);
            }
            match &newcomer {
                Some((socket, _)) => Some(connections.clients.enter(server.owner(socket.peer)).await),
                None => None,
            }
        };
        let member = tokio::select! {
            member = next => member,
            _ = &mut stop => break,
        };
        match (member, newcomer.take()) {
            (Some(Some(member)), Some(newcomer)) => connect(member, newcomer),
            (Some(None), Some(_)) => server.refused(),
            _ => (),
        }
    }
    connections.closing.store(true, Relaxed);
    let backlog = listener.into_backlog(server.patience().0);
    for newcomer in newcomer.into_iter().chain(backlog.filter_map(admitted)) {
        let owner = server.owner(newcomer.0.peer);
        let Some(member) = connections.clients.try_enter(owner) else { break };
        connect(member, newcomer);
    }
    drain(&*server, draining).await
}

/// Waits for the requests under way. Returns `false` if that takes too long.
async fn drain(server: &impl Answer, draining: GracefulShutdown) -> bool {
    say(format_args!("draining {} connections", draining.count()));
    let silent = Instant::now() + SILENCE;
    let idle = || draining.count() == 0 && server.under_way() == 0;
    while !idle() && Instant::now() < silent {
        sleep(Duration::from_millis(10)).await;
    }
    server.connections().late.send_replace(true);
    let all = async {
        draining.shutdown().await;
        while server.under_way() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(server.patience().1, all).await.is_ok()
}
