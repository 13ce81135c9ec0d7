//! One server, and the scripts that it has loaded.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::chain::{Chain, note_answers, pipeline_of};
use super::command::numbers;
use super::errors::{Failure, is_no_script, is_of_connection};
use super::link::{Link, Live};
use super::script::{Script, ScriptCall};

/// The most times that a call is sent while the server lacks the script: it may lose the script
/// again after a load.
const MAX_SENDS: usize = 4;

/// One server.
///
/// # Orderings
///
/// `loads` is relaxed: the lock `loading` orders the loads of scripts. A caller that reads an old
/// number loads a script once more than needed.
pub(crate) struct Node {
    link: Arc<Link>,
    loads: AtomicU64,
    loading: Mutex<()>,
}

impl Node {
    pub(crate) fn new(link: Link) -> Node {
        Node { link: Arc::new(link), loads: AtomicU64::new(0), loading: Mutex::new(()) }
    }

    /// Waits for a connection.
    pub(crate) async fn connect(&self) -> RedisResult<()> {
        self.link.get().await.map(drop)
    }

    /// Runs a script, and returns the numbers of its answer.
    ///
    /// The call is sent again only if the server lacks the script: then it did not run.
    pub(crate) async fn run(&self, call: &ScriptCall, asking: bool) -> Result<Vec<i64>, Failure> {
        let mut sends = 1;
        loop {
            let seen = self.loads.load(Ordering::Relaxed);
            let live = self.link.get().await.map_err(Failure::not_sent)?;
            let read = |reply| numbers(&reply, call.length);
            match self.request(&live, &call.command, asking, read).await {
                Err(error) if is_no_script(&error) && sends < MAX_SENDS => {
                    self.load(call.script, &live, seen).await.map_err(Failure::not_sent)?;
                    sends += 1;
                }
                answer => return answer.map_err(Failure::sent),
            }
        }
    }

    /// Sends a command that only reads.
    pub(crate) async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        let live = self.link.get().await?;
        self.request(&live, command, false, Ok).await
    }

    /// Sends the rest of all chains in one pipeline, and notes the answers.
    pub(crate) async fn send(&self, chains: &mut [Chain], asking: bool) {
        let live = match self.link.get().await {
            Ok(live) => live,
            Err(error) => return fail_all(chains, Failure::not_sent(error)),
        };
        let pipeline = pipeline_of(chains, asking);
        let answers = timeout(self.link.limits().response, live.connection.request_all(&pipeline)).await;
        match answers.unwrap_or_else(|elapsed| Err(io::Error::from(elapsed).into())) {
            Ok(answers) => note_answers(chains, answers, asking),
            Err(error) => fail_all(chains, Failure::sent(error)),
        }
        if chains.iter().filter_map(Chain::failure).any(|failure| is_of_connection(&failure.error)) {
            self.link.retire(&live);
        }
    }

    /// Loads a script into the server, unless another caller did since `seen`.
    async fn load(&self, script: &Script, live: &Live, seen: u64) -> RedisResult<()> {
        let _one = self.loading.lock().await;
        if self.loads.load(Ordering::Relaxed) == seen {
            self.request(live, &script.load(), false, Ok).await?;
            self.loads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sends one command, and reads its answer. A connection that fails is not used again.
    async fn request<T>(
        &self,
        live: &Live,
        command: &Cmd,
        asking: bool,
        read: impl FnOnce(Value) -> RedisResult<T>,
    ) -> RedisResult<T> {
        let answer = timeout(self.link.limits().response, live.connection.request(command, asking)).await;
        let answer = answer.unwrap_or_else(|elapsed| Err(io::Error::from(elapsed).into())).and_then(read);
        if answer.as_ref().is_err_and(is_of_connection) {
            self.link.retire(live);
        }
        answer
    }
}

fn fail_all(chains: &mut [Chain], failure: Failure) {
    chains.iter_mut().for_each(|chain| chain.fail(failure.clone()));
}
