//! PgBouncer in transaction mode: a connection to the server belongs to a client for a transaction.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use tollgate_distributed::{PostgresOptions, PostgresStore, StoreErrorKind, TokenRequester};
use tollgate_test_servers::process::Process;
use tollgate_test_servers::program::{find_program, free_port, is_installed, wait_until};

use super::engine::Postgres;
use crate::engine::{Engine, failure, load_time, take};
use crate::suite::load;

/// PgBouncer before a server, with a few connections to it.
struct Pooler {
    port: u16,
    process: Process,
    server: Postgres,
    _folder: TempDir,
}

impl Pooler {
    /// Starts both, with lines for the configuration of PgBouncer. There is none if a program is
    /// not installed.
    async fn start(connections: usize, more: &str) -> Option<Pooler> {
        if !is_installed("pgbouncer", "pgbouncer", &[]) {
            return None;
        }
        let server = Postgres::start_with(PostgresOptions::default()).await?;
        let folder = TempDir::with_prefix("tollgate-pooler-").unwrap();
        let port = free_port().unwrap();
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\npool_mode = transaction\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             default_pool_size = {connections}\n{more}\n",
            server.server.port()
        );
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, text).unwrap();
        let log = folder.path().join("log");
        let output = fs::File::create(&log).unwrap();
        let mut command = Command::new(find_program("pgbouncer", &[]).unwrap());
        // Root may not run it.
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.args(["-u", "postgres"]);
        }
        command.arg(&file).stdout(Stdio::null()).stderr(output);
        let mut process = Process::start(&mut command, folder.path()).unwrap();
        let text = || fs::read_to_string(&log).unwrap();
        let up = || text().contains("process up") || !process.is_running();
        assert!(wait_until(Duration::from_secs(10), up) && process.is_running(), "{}", text());
        Some(Pooler { port, process, server, _folder: folder })
    }

    fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn store(&self) -> PostgresStore {
        PostgresStore::connect(&self.url()).unwrap()
    }

    /// Connects as another application.
    async fn other(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// Returns the first value of a query without a prepared statement.
async fn value(client: &Client, query: &str) -> String {
    let rows = client.simple_query(query).await.unwrap();
    let row = rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.unwrap().to_owned()
}

/// The session as another application finds it.
async fn session(client: &Client) -> String {
    let query = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) || ' prepared='
        || (SELECT count(*) FROM pg_prepared_statements) FROM pg_settings WHERE source = 'session'
        OR name IN ('statement_timeout', 'lock_timeout', 'synchronous_commit', 'enable_seqscan',
            'enable_hashjoin', 'enable_mergejoin', 'jit', 'plan_cache_mode', 'transaction_isolation')";
    value(client, query).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_on_a_connection_that_others_get() {
    for mode in ["transaction", "statement"] {
        // With one connection to the server, each client gets that of the store.
        let Some(pooler) = Pooler::start(1, &format!("pool_mode = {mode}")).await else { return };
        let set = "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'";
        pooler.server.other.batch_execute(set).await.unwrap();
        let other = pooler.other().await;
        let before = session(&other).await;
        assert!(before.contains("transaction_isolation=serializable"), "{before}");
        let store = pooler.store();
        store.migrate().await.unwrap();
        take(&store, b"key").await.unwrap();
        store.clean_up(Duration::ZERO).await.unwrap();
        let requester = TokenRequester::new(store);
        requester.migrate().await.unwrap();
        assert!(!requester.request_token("acme").await.unwrap());
        assert_eq!(session(&other).await, before, "{mode}");
        let store = PostgresStore::with_client(pooler.other().await);
        take(&store, b"key").await.unwrap();
        assert_eq!(session(&other).await, before, "a connection of the caller");
    }
}

/// Loads four stores behind PgBouncer, and returns the number of the calls that failed.
async fn load(pooler: &mut Pooler, isolation: &str) -> u64 {
    let set = format!("ALTER ROLE postgres SET default_transaction_isolation = '{isolation}'");
    pooler.server.other.batch_execute(&set).await.unwrap();
    // A busy machine is no conflict.
    let (lock_timeout, statement_timeout) = (Duration::from_secs(20), Duration::from_secs(20));
    let options = PostgresOptions { lock_timeout, statement_timeout, ..PostgresOptions::default() };
    let store = || PostgresStore::connect_with(pooler.url().parse().unwrap(), NoTls, options.clone());
    let stores: Vec<Arc<PostgresStore>> = (0..4).map(|_| Arc::new(store())).collect();
    let time = load_time(2);
    let mut run = load::begin(&pooler.server.store, b"hot").await;
    run.add(load::load(&stores, 32, b"hot", time).await);
    println!("{isolation}: {} calls, {} failed, {} granted", run.calls, run.failed, run.granted());
    load::no_token_is_lost_or_made(&pooler.server.store, b"hot", &run).await;
    run.failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_under_load_also_by_a_role_at_serializable() {
    for isolation in ["read committed", "repeatable read", "serializable"] {
        let Some(mut pooler) = Pooler::start(3, "").await else { return };
        assert_eq!(load(&mut pooler, isolation).await, 0, "{isolation}");
    }
}

#[tokio::test]
async fn the_timeouts_of_the_options_hold_behind_a_pooler() {
    let Some(pooler) = Pooler::start(2, "").await else { return };
    // Those of the role do not count.
    let set =
        "ALTER ROLE postgres SET statement_timeout = '30s'; ALTER ROLE postgres SET lock_timeout = '30s'";
    pooler.server.other.batch_execute(set).await.unwrap();
    let (short, long) = (Duration::from_millis(300), Duration::from_secs(9));
    for (lock_timeout, statement_timeout, why) in
        [(short, long, "lock timeout"), (long, short, "statement timeout")]
    {
        let options = PostgresOptions { lock_timeout, statement_timeout, ..PostgresOptions::default() };
        let store = PostgresStore::connect_with(pooler.url().parse().unwrap(), NoTls, options);
        take(&store, b"key").await.unwrap();
        pooler.server.other.batch_execute("BEGIN; SELECT FROM tollgate_buckets FOR UPDATE").await.unwrap();
        let (refused, text) = failure(&store).await;
        assert!(refused == StoreErrorKind::Refused && text.contains(why), "{text}");
        pooler.server.other.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(take(&store, b"key").await.unwrap().granted, 1);
    }
}

#[tokio::test]
async fn a_session_that_others_reset_is_no_outage() {
    let Some(pooler) = Pooler::start(1, "").await else { return };
    let (store, other) = (pooler.store(), pooler.other().await);
    for _ in 0..3 {
        take(&store, b"key").await.unwrap();
        other.batch_execute("DEALLOCATE ALL").await.unwrap();
        other.batch_execute("DISCARD ALL").await.unwrap();
    }
}

#[tokio::test]
async fn a_pooler_that_is_killed_refuses_and_makes_no_token() {
    let Some(mut pooler) = Pooler::start(2, "").await else { return };
    let store = pooler.store();
    take(&store, b"key").await.unwrap();
    pooler.process.kill();
    let kinds = [failure(&store).await.0, failure(&store).await.0];
    assert!(!kinds.contains(&StoreErrorKind::Permanent), "{kinds:?}");
    let row = pooler.server.rows().await;
    assert_eq!(row.len(), 1);
}
