//! PgBouncer in transaction mode: a connection to the server belongs to a client for a transaction.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use tollgate_distributed::{AnyStore, PostgresOptions, PostgresStore, StoreErrorKind, TokenRequester};
use tollgate_test_servers::process::Process;
use tollgate_test_servers::program::{find_program, free_port, is_installed, wait_until};

use crate::sql::bound;
use crate::sql::world::{World, failure, setting, take};
use crate::world::Server;

/// PgBouncer before a server, with a few connections to it.
struct Pooler {
    port: u16,
    process: Process,
    server: Server,
    _folder: TempDir,
}

impl Pooler {
    /// Starts both, with lines for the configuration of PgBouncer. There is none if a program is
    /// not installed.
    async fn start(connections: usize, more: &str) -> Option<Pooler> {
        if !is_installed("pgbouncer", "pgbouncer", &[]) {
            return None;
        }
        let server = Server::start(PostgresOptions::default()).await?;
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

    /// Returns the URL of the pooler, with parameters.
    fn url(&self, parameters: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres{parameters}", self.port)
    }

    fn store(&self, parameters: &str) -> PostgresStore {
        PostgresStore::connect(&self.url(parameters)).unwrap()
    }

    /// Connects as another application.
    async fn other(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(""), NoTls).await.unwrap();
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
            'enable_hashjoin', 'enable_mergejoin', 'jit', 'plan_cache_mode', 'default_transaction_isolation')";
    value(client, query).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_on_a_connection_that_others_get() {
    // With one connection to the server, each client gets that of the store.
    let Some(pooler) = Pooler::start(1, "").await else { return };
    let other = pooler.other().await;
    let before = session(&other).await;
    for parameters in ["", "?pooler=true"] {
        let store = pooler.store(parameters);
        let _ = take(&store, b"key").await;
        let _ = store.clean_up(Duration::ZERO).await;
        let _ = store.migrate().await;
        let requester = TokenRequester::new(store);
        let _ = requester.migrate().await;
        let _ = requester.request_token("acme").await;
        assert_eq!(session(&other).await, before, "{parameters}");
    }
    let store = PostgresStore::with_client(pooler.other().await);
    take(&store, b"key").await.unwrap();
    assert_eq!(session(&other).await, before, "a connection of the caller");
}

#[tokio::test]
async fn a_pooler_without_its_parameter_is_one_permanent_error() {
    // The second one drops the options that it does not know.
    for more in ["", "ignore_startup_parameters = options"] {
        let Some(pooler) = Pooler::start(2, more).await else { return };
        let (kind, text) = failure(&pooler.store("")).await;
        assert_eq!(kind, StoreErrorKind::Permanent, "{text}");
        assert!(text.contains("pooler=true"), "{text}");
        take(&pooler.store("?pooler=true"), b"key").await.unwrap();
        let any = AnyStore::open(&pooler.url("?connect_timeout=2&pooler=true")).unwrap();
        any.migrate().await.unwrap();
        take(&any, b"key").await.unwrap();
    }
}

#[test]
fn the_parameter_is_true_or_false() {
    for (parameters, known) in
        [("?pooler=false", true), ("?pooler=yes", false), ("?pooler=true&pooler=false", false)]
    {
        let opened = PostgresStore::connect(&format!("postgres://a@127.0.0.1:1/b{parameters}"));
        assert_eq!(opened.is_ok(), known, "{parameters}");
        if let Err(error) = opened {
            assert!(error.to_string().contains("pooler=true or pooler=false"), "{error}");
        }
    }
}

/// Loads four stores behind PgBouncer, and returns the server and the calls that failed.
async fn load(pooler: &mut Pooler, isolation: &str) -> u64 {
    let set = format!("ALTER ROLE postgres SET default_transaction_isolation = '{isolation}'");
    pooler.server.other.batch_execute(&set).await.unwrap();
    let stores: Vec<Arc<PostgresStore>> = (0..4).map(|_| Arc::new(pooler.store("?pooler=true"))).collect();
    let time = Duration::from_secs(setting("TOLLGATE_SECONDS", 2));
    let mut run = bound::begin(&pooler.server.store, b"hot").await;
    run.add(bound::load(&stores, 32, b"hot", time).await);
    println!("{isolation}: {} calls, {} failed, {} granted", run.calls, run.failed, run.granted());
    bound::no_token_is_lost_or_made(&pooler.server.store, b"hot", &run).await;
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
    let lock_timeout = Duration::from_millis(50);
    let options = PostgresOptions { pooler: true, lock_timeout, ..PostgresOptions::default() };
    let store = PostgresStore::connect_with(pooler.url("").parse().unwrap(), NoTls, options);
    take(&store, b"key").await.unwrap();
    pooler.server.other.batch_execute("BEGIN; SELECT FROM tollgate_buckets FOR UPDATE").await.unwrap();
    let (refused, text) = failure(&store).await;
    assert!(refused == StoreErrorKind::Refused && text.contains("lock timeout"), "{text}");
    pooler.server.other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(take(&store, b"key").await.unwrap().granted, 1);
}

#[tokio::test]
async fn a_prepared_statement_that_vanishes_is_no_outage() {
    let Some(pooler) = Pooler::start(1, "ignore_startup_parameters = options").await else { return };
    // The store believes that its session is its own.
    pooler.server.other.batch_execute("ALTER ROLE postgres SET tollgate.own = on").await.unwrap();
    let (store, other) = (pooler.store(""), pooler.other().await);
    take(&store, b"key").await.unwrap();
    assert!(session(&other).await.ends_with("prepared=1"), "the statement is prepared");
    for _ in 0..3 {
        other.batch_execute("DEALLOCATE ALL").await.unwrap();
        assert_eq!(take(&store, b"key").await.unwrap().granted, 1);
    }
}

#[tokio::test]
async fn a_pooler_that_is_killed_refuses_and_makes_no_token() {
    let Some(mut pooler) = Pooler::start(2, "").await else { return };
    let store = pooler.store("?pooler=true");
    take(&store, b"key").await.unwrap();
    pooler.process.kill();
    let kinds = [failure(&store).await.0, failure(&store).await.0];
    assert!(!kinds.contains(&StoreErrorKind::Permanent), "{kinds:?}");
    let row = pooler.server.rows().await;
    assert_eq!(row.len(), 1);
}
