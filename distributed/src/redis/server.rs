//! Calls of scripts on a server or a cluster.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::{Cmd, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::command::numbers;
use super::errors::{Failure, is_no_script, is_of_connection};
use super::link::{Link, Live};
use super::script::Script;

/// The times that a call is sent while the server says that it lacks the script. It may lose the
/// script again after a load.
const MAX_SENDS: usize = 4;

/// A server or a cluster, and the script that it is to run.
pub(crate) struct Server {
    link: Arc<Link>,
    /// Whether calls have one key each.
    single: AtomicBool,
}

/// A script, and the number of times that it was given to a server.
pub(crate) struct Loaded {
    pub(crate) script: Script,
    loads: AtomicU64,
    loading: Mutex<()>,
}

impl Loaded {
    pub(crate) fn new(text: &'static str) -> Loaded {
        Loaded { script: Script::new(text), loads: AtomicU64::new(0), loading: Mutex::new(()) }
    }

    /// Gives the script to the server, unless another call did since `seen`.
    ///
    /// An error of one node of a cluster is not one of the node that is called next, so only that
    /// one's answer counts.
    ///
    /// # Orderings
    ///
    /// The lock orders the loads. A reader of an old number loads once more than needed.
    async fn load(&self, server: &Server, live: &Live, seen: u64) {
        let _one = self.loading.lock().await;
        if self.loads.load(Ordering::Relaxed) == seen {
            let _ = server.request(live, &self.script.load(), Ok).await;
            self.loads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Server {
    pub(crate) fn new(link: Link) -> Server {
        let single = AtomicBool::new(link.is_cluster());
        Server { link: Arc::new(link), single }
    }

    /// Waits for a connection.
    pub(crate) async fn connect(&self) -> Result<(), Failure> {
        self.link.get().await.map(drop).map_err(Failure::not_sent)
    }

    /// Tells whether a call may have one key only. It is relaxed: a call with several keys is refused
    /// by the cluster and sent anew.
    pub(crate) fn is_single(&self) -> bool {
        self.single.load(Ordering::Relaxed)
    }

    /// Makes all later calls have one key each.
    pub(crate) fn set_single(&self) {
        self.single.store(true, Ordering::Relaxed);
    }

    /// Runs a script, whose answer is a list of numbers.
    ///
    /// It runs in a task of its own: if the caller goes away, the silence of a server is noticed all
    /// the same.
    pub(crate) fn run(
        self: &Arc<Self>,
        loaded: &Arc<Loaded>,
        command: Cmd,
        length: usize,
    ) -> JoinHandle<Result<Vec<i64>, Failure>> {
        let (server, loaded) = (Arc::clone(self), Arc::clone(loaded));
        tokio::spawn(async move { server.send(&loaded, &command, length).await })
    }

    async fn send(&self, loaded: &Loaded, command: &Cmd, length: usize) -> Result<Vec<i64>, Failure> {
        let mut sends = 1;
        loop {
            let seen = loaded.loads.load(Ordering::Relaxed);
            let live = self.link.get().await.map_err(Failure::not_sent)?;
            let answer = self.request(&live, command, |reply| numbers(&reply, length)).await;
            match answer {
                Err(error) if is_no_script(&error) && sends < MAX_SENDS => {
                    loaded.load(self, &live, seen).await;
                    sends += 1;
                }
                answer => return answer.map_err(Failure::sent),
            }
        }
    }

    /// Sends one command, and reads its answer. A connection that fails is not used again.
    async fn request<T>(
        &self,
        live: &Live,
        command: &Cmd,
        read: impl FnOnce(Value) -> RedisResult<T>,
    ) -> RedisResult<T> {
        let answer = timeout(self.link.limits().response, live.connection.request(command)).await;
        let answer = answer.unwrap_or_else(|elapsed| Err(io::Error::from(elapsed).into())).and_then(read);
        if answer.as_ref().is_err_and(is_of_connection) {
            self.link.retire(live);
        }
        answer
    }
}
