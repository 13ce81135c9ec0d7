//! The queue to the thread: its end, and callers that are dropped.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tollgate::Quota;
use tollgate_distributed::Spec;

use super::engine::File;
use crate::engine::{ask, exactly};

fn spec() -> Spec {
    Spec::new(Quota::per_day(1).burst(100), 0).unwrap()
}

/// Polls a future once. Returns whether it waits.
async fn waits<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}

#[tokio::test]
async fn calls_on_one_key_in_one_transaction_see_each_other() {
    let file = File::open();
    file.other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = &file.store;
    let calls = (0..50).map(|_| async move { ask(store, b"key", spec(), exactly(3)).await.granted });
    let mut calls: Vec<_> = calls.map(Box::pin).collect();
    for call in &mut calls {
        assert!(waits(call.as_mut()).await);
    }
    file.other.execute_batch("COMMIT").unwrap();
    let mut granted = 0;
    for call in calls {
        granted += call.await;
    }
    assert_eq!(granted, 99, "33 of 50 calls are granted 3 of 100 tokens");
}

#[tokio::test]
async fn a_store_that_is_dropped_releases_its_file() {
    let file = File::open();
    ask(&file.store, b"key", spec(), exactly(1)).await;
    let File { store, other, path, .. } = file;
    // The last connection to a file removes its log. Of two that close at once neither may be last.
    drop(other);
    drop(store);
    let log = format!("{}-wal", path.display());
    for _ in 0..12_000 {
        if !std::path::Path::new(&log).exists() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the thread has the file open after a minute");
}
