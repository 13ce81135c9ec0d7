//! Several processes, and one after another, on one file.

use std::env;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tollgate::Quota;
use tollgate_distributed::{Answer, Spec, SqliteStore};

use crate::sql::bound::{Run, begin, load, no_token_is_lost_or_made};
use crate::sql::world::{World, ask, exactly};
use crate::world::File;

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
            Some(Answer { granted: granted.parse().unwrap(), now_us: now_us.parse().unwrap(), credits: 0 })
        });
        let grants: Vec<Answer> = grants.collect();
        assert!(grants.len() > 100, "a process was granted {}", grants.len());
        run.add(Run { grants, ..Run::default() });
    }
    no_token_is_lost_or_made(&file.store, b"hot", &run).await;
}

/// Starts this program anew, for one test.
fn start(path: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "processes::a_process_of_three", "--ignored", "--nocapture"]);
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
