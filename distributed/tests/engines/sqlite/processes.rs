//! Several processes, and one after another, on one file.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tollgate::Quota;
use tollgate_distributed::{Amount, Bucket, Spec, SqliteStore, StoreAnswer};

use super::engine::File;
use crate::engine::{Engine, Rows, Stored, ask, exactly, now_us};
use crate::suite::load::{Run, begin, load, no_token_is_lost_or_made};

/// The environment variable with the file of a child.
const FILE: &str = "TOLLGATE_FILE";

#[tokio::test]
async fn a_file_keeps_its_buckets_when_it_is_opened_anew() {
    let mut file = File::open();
    // One token a day.
    let spec = Spec::new(Quota::per_day(1).burst(5), 0).unwrap();
    assert_eq!(ask(&file.store, b"key", spec, exactly(5)).await.granted, 5);
    let rows = file.rows().await;
    file.store = SqliteStore::in_memory().unwrap();
    assert_eq!(ask(&file.store, b"key", spec, exactly(5)).await.granted, 5, "another store");
    file.store = SqliteStore::open(&file.path).unwrap();
    assert_eq!(file.rows().await, rows);
    assert_eq!(ask(&file.store, b"key", spec, exactly(1)).await.granted, 0);
}

/// Replicas come and go: one opens the file while the last connection of another is closed.
#[test]
fn a_store_opens_its_file_beside_others_that_open_and_close_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counts");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| drop(SqliteStore::open(&path).expect("it opens"))));
        }
    });
}

/// Takes all tokens of an empty bucket by two processes in turn, ten times each. The clock of one
/// is ahead. Returns the tokens, those of the process on time, and those earned meanwhile.
async fn in_turns(ahead: Duration) -> (i64, i64, i64) {
    let mut file = File::open();
    let spec = Spec::new(Quota::per_second(100), 0).unwrap();
    let all = Amount { min: 1, max: 100, spent: 0, of_us: 0 };
    let (begun, mut granted, mut on_time) = (Instant::now(), 0, 0);
    assert_eq!(ask(&file.store, b"key", spec, all).await.granted, 100);
    for _ in 0..10 {
        // The step that a process takes at its own time.
        let stored = file.rows().await.remove(b"key".as_slice()).map(|row| row.bucket());
        let now_us = now_us() + ahead.as_micros() as u64;
        let (bucket, answer) = Bucket::step(stored, &spec, now_us, all);
        if let Some(bucket) = bucket {
            file.put(&Rows::from([(b"key".to_vec(), Stored::of(&bucket, &spec))])).await;
        }
        granted += answer.granted;
        on_time += ask(&file.store, b"key", spec, all).await.granted;
    }
    (granted + on_time, on_time, (100.0 * begun.elapsed().as_secs_f64()).ceil() as i64)
}

/// Up to a second the lead is earned once, and the others wait for it. A longer lead is earned in
/// each turn.
#[tokio::test]
async fn a_clock_that_is_ahead_of_the_others_earns_its_lead() {
    let (granted, on_time, earned) = in_turns(Duration::from_secs(1)).await;
    assert!((100..=100 + earned).contains(&granted), "{granted} granted, {earned} earned");
    assert!(on_time <= earned, "{on_time} on time, {earned} earned");
    assert_eq!(in_turns(Duration::from_secs(2)).await.0, 1_000);
}

/// A process that holds a file which was deleted or replaced shares its buckets with none that
/// opens the path later.
#[tokio::test]
async fn a_file_that_was_deleted_or_replaced_splits_the_processes() {
    let spec = Spec::new(Quota::per_day(1).burst(5), 0).unwrap();
    for replaced in [false, true] {
        let (before, other) = (File::open(), File::open());
        assert_eq!(ask(&before.store, b"key", spec, exactly(3)).await.granted, 3);
        if replaced {
            other.other.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
            fs::rename(&other.path, &before.path).unwrap();
        } else {
            fs::remove_file(&before.path).unwrap();
        }
        for kind in ["-wal", "-shm"] {
            fs::remove_file(format!("{}{kind}", before.path.display())).unwrap();
        }
        let later = [(); 2].map(|()| SqliteStore::open(&before.path).unwrap());
        let mut granted = Vec::new();
        for store in [&before.store, &later[0], &later[1]] {
            granted.push(ask(store, b"key", spec, exactly(2)).await.granted);
        }
        // Ten of a burst of five.
        granted.push(ask(&later[1], b"key", spec, exactly(1)).await.granted);
        assert_eq!(granted, [2, 2, 2, 1], "replaced: {replaced}");
        assert_eq!(ask(&before.store, b"key", spec, exactly(1)).await.granted, 0);
    }
}

#[tokio::test]
async fn three_processes_on_a_file_hold_the_bound() {
    let file = File::open();
    let mut run = begin(&file.store, b"hot").await;
    let children: Vec<Child> = (0..3).map(|_| start(&file.path)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let grants = text.lines().filter_map(|line| {
            let (granted, now_us) = line.strip_prefix("granted ")?.split_once(" at ")?;
            Some(StoreAnswer {
                granted: granted.parse().unwrap(),
                now_us: now_us.parse().unwrap(),
                credits: 0,
                ..StoreAnswer::default()
            })
        });
        let grants: Vec<StoreAnswer> = grants.collect();
        assert!(!grants.is_empty(), "a process was granted nothing");
        run.add(Run { grants, ..Run::default() });
    }
    no_token_is_lost_or_made(&file.store, b"hot", &run).await;
}

/// Starts this program anew, for one test.
fn start(path: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "sqlite::processes::a_process_of_three", "--ignored", "--nocapture"]);
    command.env(FILE, path).stdout(Stdio::piped()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of another test"]
async fn a_process_of_three() {
    let Some(path) = env::var_os(FILE) else { return };
    let store = Arc::new(SqliteStore::open(path).unwrap());
    let run = load(&[store], 16, b"hot", Duration::from_secs(2)).await;
    assert_eq!(run.failed, 0);
    for grant in run.grants {
        println!("granted {} at {}", grant.granted, grant.now_us);
    }
}
