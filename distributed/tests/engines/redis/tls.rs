//! TLS: the certificates of a server and of a client, as options of a URL.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tollgate_distributed::{Amount, AnyStore, Op, Store, StoreError, StoreErrorKind};
use tollgate_test_servers::program::{free_port, is_installed};
use tollgate_test_servers::redis::{Redis, redis_is_installed};

use super::engine::{ONE, counted};

fn openssl(folder: &Path, words: &str) {
    let output = Command::new("openssl").args(words.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an authority, and certificates of the server `localhost` and of a client.
fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    let of = |name: &str, more: &str| {
        openssl(folder.path(), &format!("{new} -keyout {name}.key -out {name}.pem -subj /CN={name}{more}"));
    };
    of("authority", "");
    let signed = " -CA authority.pem -CAkey authority.key -addext basicConstraints=CA:FALSE -addext";
    of("server", &format!("{signed} subjectAltName=DNS:localhost"));
    of("client", &format!("{signed} subjectAltName=DNS:client"));
    folder
}

async fn call(url: &str) -> Result<i64, StoreError> {
    let store = AnyStore::open(url)?;
    let mut ops = [Op::new(b"key", counted(100), Amount { min: 1, ..ONE })];
    store.acquire(&mut ops).await.map(|()| ops[0].answer.granted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_and_the_client_have_certificates() {
    if !redis_is_installed() || !is_installed("openssl", "openssl", &[]) {
        return;
    }
    let folder = certificates();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (ca, server_cert, server_key) = (file("authority.pem"), file("server.pem"), file("server.key"));
    let port = free_port().unwrap();
    let mut options =
        vec!["--tls-ca-cert-file", &ca, "--tls-cert-file", &server_cert, "--tls-key-file", &server_key];
    let port_text = port.to_string();
    options.extend(["--tls-auth-clients", "yes", "--tls-port", &port_text]);
    let _server = Redis::start(&options).unwrap();
    let own = format!("tls_cert={}&tls_key={}", file("client.pem"), file("client.key"));
    let timeouts = "connect_timeout_ms=20000&response_timeout_ms=20000";
    let at = |host: &str, query: &str| format!("rediss://{host}:{port}?{timeouts}&{query}");
    assert_eq!(call(&at("localhost", &format!("tls_ca={ca}&{own}"))).await.unwrap(), 1);
    let skipping = format!("tls_ca={ca}&{own}&tls_skip_hostname=true");
    assert_eq!(call(&at("127.0.0.1", &skipping)).await.unwrap(), 1);
    for (host, query, why) in [
        ("127.0.0.1", format!("tls_ca={ca}&{own}"), "another host"),
        ("localhost", own.clone(), "an authority of the test alone"),
        ("localhost", format!("{own}&tls_skip_hostname=true"), "the same, at any host"),
        ("localhost", format!("tls_ca={ca}"), "no certificate of the client"),
    ] {
        assert!(call(&at(host, &query)).await.is_err(), "{why}");
    }
    for (url, part) in [
        (at("localhost", "tls_ca=/nowhere/ca.pem"), "/nowhere/ca.pem"),
        (at("localhost", &format!("tls_cert={}", file("client.pem"))), "cannot be read"),
        (at("localhost", &format!("tls_ca={}", file("client.key"))), ""),
        (format!("redis://localhost:{port}?tls_ca={ca}"), "rediss"),
    ] {
        let error = call(&url).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(part.is_empty() || error.kind() == StoreErrorKind::Permanent, "{error}");
    }
}
