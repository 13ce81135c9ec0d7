//! Waits for an effect, and work of another thread.

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tollgate_testing::wire::PATIENCE;

/// Asks for a condition until it is true. Between two looks the core is free for the other thread.
pub fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < PATIENCE, "not {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("there are threads"));

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    RUNTIME.block_on(async { tokio::time::timeout(PATIENCE, work).await }).expect("it takes far less")
}

pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    RUNTIME.spawn(work)
}
