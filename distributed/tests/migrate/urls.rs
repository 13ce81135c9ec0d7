//! The URLs of `AnyStore`: each opens its store, or is one permanent error that says how to go on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tollgate::Quota;
use tollgate_distributed::{Amount, AnyStore, Op, Spec, Store, StoreError, StoreErrorKind};
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};
use tollgate_test_servers::program::{free_port, is_installed};

pub(crate) async fn take(store: &AnyStore) -> Result<i64, StoreError> {
    let spec = Spec::new(Quota::per_day(1).burst(10), 0).unwrap();
    let mut ops = [Op::new(b"key", spec, Amount { min: 1, max: 1, spent: 0 })];
    store.acquire(&mut ops).await.map(|()| ops[0].answer.granted)
}

/// Returns the text of the permanent error of a URL.
fn refused(url: &str) -> String {
    let error = AnyStore::open(url).err().unwrap_or_else(|| panic!("{url} is open"));
    assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
    error.to_string()
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
    let store = AnyStore::open(&format!("{}?require_ssl=true", server.url())).unwrap();
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
