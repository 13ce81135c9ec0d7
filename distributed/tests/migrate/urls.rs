//! The URLs of `AnyStore`: each opens its store, or is one permanent error that says how to go on.

use std::fmt::Debug;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts};
use tollgate::Quota;
use tollgate_distributed::{
    Amount, AnyStore, DistributedLimiter, MemoryStore, MySqlOptions, MySqlStore, Op, PostgresStore, Spec,
    SqliteStore, Store, StoreError, StoreErrorKind, TokenRequester,
};
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};
use tollgate_test_servers::program::{free_port, is_installed};

pub(crate) async fn take(store: &AnyStore) -> Result<i64, StoreError> {
    let spec = Spec::new(Quota::per_day(1).burst(10), 0).unwrap();
    let mut ops = [Op::new(b"key", spec, Amount { min: 1, max: 1, spent: 0, of_us: 0 })];
    store.acquire(&mut ops).await.map(|()| ops[0].answer.granted)
}

/// Returns the text of the permanent error of a URL.
fn refused(url: &str) -> String {
    let error = AnyStore::open(url).err().unwrap_or_else(|| panic!("{url} is open"));
    assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
    error.to_string()
}

#[test]
fn errors_name_the_scheme_and_the_known_ones() {
    let text = refused("valkey://user:secret@host");
    for part in ["\"valkey\"", "sqlite, redis, rediss, redis+cluster", "postgresql, mysql, mariadb"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("secret"), "{text}");
    assert!(refused("secret").contains("is not the scheme") && !refused("secret").contains("secret"));
    assert!(refused("sqlite:").contains("needs a path"));
}

/// No text of a store has the password of its URL.
fn is_a_handle<S: Store + Clone + Debug>(store: &S) {
    let text = format!("{store:?} {:#?}", store.clone());
    assert!(!text.contains("secret") && text.contains(".."), "{text}");
}

#[tokio::test]
async fn each_scheme_opens_its_store_and_no_text_of_it_has_the_password() {
    for host in ["user:secret@127.0.0.1:1/db", "user:secret%21@127.0.0.1:1/db"] {
        for (scheme, name) in [("postgres", "Postgres"), ("postgresql", "Postgres"), ("mysql", "MySql")] {
            let store = AnyStore::open(&format!("{scheme}://{host}")).unwrap();
            assert!(format!("{store:?}").starts_with(name), "{store:?}");
            is_a_handle(&store);
            is_a_handle(&Arc::new(store));
        }
    }
    is_a_handle(&AnyStore::open("sqlite::memory:").unwrap());
    is_a_handle(&MemoryStore::new(|| 0));
    is_a_handle(&SqliteStore::in_memory().unwrap());
    is_a_handle(&PostgresStore::connect("postgres://user:secret@host/db").unwrap());
    is_a_handle(&MySqlStore::connect("mysql://user:secret@host/db").unwrap());
}

/// The options of a store are taken from its URL, and those of the client stay there.
#[tokio::test]
async fn a_url_has_the_options_of_its_store() {
    let url = "postgres://host/db?statement_timeout_ms=250&sslmode=disable&unlogged=true";
    let text = format!("{:?}", AnyStore::open(url).unwrap());
    for part in ["statement_timeout: 250ms", "unlogged: true", "lock_timeout: 500ms"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(refused("postgres://host/db?sslmode=require&connections=3").contains("sslmode=require"));
    assert!(refused("postgres://host/db?connections=few").contains("connections=few"));
    assert!(refused("mysql://host/db?call_timeout_ms=1s").contains("call_timeout_ms=1s"));
    assert!(AnyStore::open("mysql://host/db?connections=2&call_timeout_ms=900").is_ok());
    #[cfg(feature = "redis")]
    {
        let url = "redis://host/1?prefix=shop:&cold_start_guard=true&response_timeout_ms=90";
        let text = format!("{:?}", AnyStore::open(url).unwrap());
        assert!(text.contains("shop:") && text.contains("guard: true"), "{text}");
        assert!(refused("redis://host?prefix=shop").contains("prefix"));
        assert!(refused("redis://host?cold_start_guard=maybe").contains("cold_start_guard=maybe"));
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn each_scheme_of_redis_opens_its_store() {
    for hosts in ["redis://:secret@127.0.0.1:1", "redis+cluster://:secret@127.0.0.1:1,127.0.0.1:2"] {
        let store = AnyStore::open(hosts).unwrap();
        assert!(matches!(store, AnyStore::Redis(_)), "{hosts}");
        assert_eq!(store.clean_up(Duration::ZERO).await.unwrap(), 0);
        is_a_handle(&store);
        let AnyStore::Redis(store) = store else { continue };
        is_a_handle(&store);
        // A store without tables has no rows to take tokens from.
        let requester = TokenRequester::new(AnyStore::Redis(store));
        assert_eq!(requester.migrate().await.unwrap_err().kind(), StoreErrorKind::Permanent);
        assert_eq!(requester.request_token("a").await.unwrap_err().kind(), StoreErrorKind::Permanent);
    }
    #[cfg(not(feature = "redis-tls"))]
    for url in ["rediss://127.0.0.1:1", "rediss+cluster://127.0.0.1:1"] {
        assert!(refused(url).contains("TLS"), "{}", refused(url));
    }
}

/// The builder of a limiter takes a store. A clone serves a requester, and the clean-up.
#[tokio::test]
async fn one_store_serves_a_limiter_a_requester_and_the_clean_up() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("x.db");
    let store = AnyStore::open(&format!("sqlite:{}", path.display())).unwrap();
    let builder = DistributedLimiter::<String, _>::builder(Quota::per_second(1_000_000_000), store.clone());
    let limiter = builder.name("a").exact().deadline(Duration::from_secs(10)).build().unwrap();
    limiter.ask("key").await.unwrap();
    let requester = TokenRequester::new(Arc::new(store.clone()));
    requester.migrate().await.unwrap();
    let row = "INSERT INTO token_buckets VALUES ('acme', 1, 1, 1000000000, 1000000 * unixepoch())";
    rusqlite::Connection::open(&path).unwrap().execute(row, []).unwrap();
    assert!(requester.request_token("acme").await.unwrap());
    assert!(!TokenRequester::new(store.clone()).request_token("acme").await.unwrap());
    let deleted = loop {
        match store.clean_up(Duration::ZERO).await.unwrap() {
            0 => tokio::task::yield_now().await,
            deleted => break deleted,
        }
    };
    assert_eq!((deleted, store.clean_up(Duration::ZERO).await.unwrap()), (1, 0));
}

#[tokio::test]
async fn a_clean_up_leaves_a_bucket_that_is_not_full() {
    let store = AnyStore::open("sqlite::memory:").unwrap();
    assert_eq!(take(&store).await.unwrap(), 1);
    assert_eq!(store.clean_up(Duration::ZERO).await.unwrap(), 0);
}

#[test]
fn a_host_before_a_file_is_refused() {
    for url in ["sqlite://x.db", "sqlite://data/x.db"] {
        let text = refused(url);
        assert!(text.contains(url) && text.contains("sqlite:PATH"), "{text}");
    }
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("x.db");
    for slashes in ["", "//"] {
        let url = format!("sqlite:{slashes}{}", path.display());
        assert!(AnyStore::open(&url).is_ok() && path.exists(), "{url}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[tokio::test]
async fn tls_that_no_url_can_have_is_refused_at_once() {
    for mode in ["require", "verify-full"] {
        let text = refused(&format!("postgres://user:secret@host/db?sslmode={mode}"));
        assert!(text.contains("sslmode") && !text.contains("secret"), "{text}");
    }
    for scheme in ["mysql", "mariadb"] {
        // The client is compiled without TLS here.
        let text = refused(&format!("{scheme}://user:secret@host/db?require_ssl=true"));
        let parts = ["require_ssl", "feature", "native-tls-tls", "rustls-tls"];
        assert!(parts.iter().all(|part| text.contains(part)) && !text.contains("secret"), "{text}");
        assert!(AnyStore::open(&format!("{scheme}://user@host/db?require_ssl=false")).is_ok());
    }
    if !postgres_is_installed() {
        return;
    }
    let server = Postgres::start(&[]).unwrap();
    for mode in ["disable", "prefer"] {
        let store = AnyStore::open(&format!("{}?sslmode={mode}", server.url())).unwrap();
        store.migrate().await.unwrap();
        assert_eq!(take(&store).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_client_of_mariadb_without_tls_is_one_permanent_error() {
    if !mariadb_is_installed() || !is_installed("openssl", "openssl", &[]) {
        return;
    }
    // The account of the server reads it.
    let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let (key, certificate) = (folder.path().join("key"), folder.path().join("certificate"));
    let mut make = Command::new("openssl");
    make.args(["req", "-x509", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=127.0.0.1", "-keyout"]);
    assert!(make.arg(&key).arg("-out").arg(&certificate).output().unwrap().status.success());
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let options = [format!("--ssl-key={}", key.display()), format!("--ssl-cert={}", certificate.display())];
    let server = MariaDb::start(&options.each_ref().map(String::as_str)).unwrap();
    // No URL has these options here.
    let opts = OptsBuilder::from_opts(Opts::from_url(&server.url()).unwrap()).ssl_opts(SslOpts::default());
    let store = AnyStore::MySql(MySqlStore::connect_with(opts, MySqlOptions::default()));
    for _ in 0..2 {
        let error = take(&store).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
        assert!(error.to_string().contains("TLS"), "{error}");
    }
}

#[tokio::test]
async fn another_name_of_mariadb_opens_it() {
    if !mariadb_is_installed() {
        return;
    }
    let server = MariaDb::start(&[]).unwrap();
    let store = AnyStore::open(&server.url().replace("mysql:", "mariadb:")).unwrap();
    store.migrate().await.unwrap();
    assert_eq!(take(&store).await.unwrap(), 1);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_socket_of_redis_is_a_store() {
    use tollgate_test_servers::redis::{Redis, redis_is_installed};

    if !redis_is_installed() {
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("socket").display().to_string();
    let _server = Redis::start(&["--unixsocket", &path]).unwrap();
    for scheme in ["redis+unix", "unix"] {
        let store = AnyStore::open(&format!("{scheme}://{path}")).unwrap();
        assert_eq!(take(&store).await.unwrap(), 1, "{scheme}");
    }
}

/// A server that is not there is named with the cause.
#[tokio::test]
async fn a_closed_port_is_an_error_with_its_cause() {
    let port = free_port().unwrap();
    let schemes = [
        "postgres://user@",
        "mysql://user@",
        #[cfg(feature = "redis")]
        "redis://",
    ];
    for scheme in schemes {
        let error = take(&AnyStore::open(&format!("{scheme}127.0.0.1:{port}/0")).unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
        assert!(error.to_string().to_lowercase().contains("connection refused"), "{error}");
    }
}
