//! The settings of the store: at the start, at a reload, and on the page.

use std::fs;

use tempfile::TempDir;

use super::process::Proxy;
use super::{start_by, statuses};

/// Makes the proxy read another text, and returns the lines that it prints.
fn reload(folder: &TempDir, proxy: &Proxy, text: &str) -> Vec<String> {
    fs::write(folder.path().join("proxy.toml"), text).expect("the folder is there");
    proxy.reload()
}

/// A store in memory ends with its connection.
#[test]
fn a_reload_keeps_the_connection_of_a_store_that_stays() {
    let folder = TempDir::new().expect("a folder");
    let store = "[store]\nurl = \"sqlite::memory:\"\ndeadline = \"10s\"\n";
    let proxy = start_by(&folder, &format!("limit = \"3/h\"\n{store}"));
    let mut client = proxy.connect();
    assert_eq!(statuses(&mut client, "/", 4), [200, 200, 200, 429]);
    let lines = reload(&folder, &proxy, &format!("limit = \"3/h\"\nshadow = false\n{store}"));
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(statuses(&mut client, "/", 1), [429]);
    // Another limit is one of the same bucket.
    let lines = reload(&folder, &proxy, &format!("limit = \"3/h burst 5\"\n{store}"));
    assert!(lines.contains(&"limit default: 3/h burst 5, tokens are kept".to_owned()), "{lines:?}");
    assert_eq!(statuses(&mut client, "/", 1), [429]);
    // Another mode has leases of its own, on the same connection.
    let lines = reload(&folder, &proxy, &format!("limit = \"3/h\"\n{store}mode = \"exact\"\n"));
    let kept = "limit default: 3/h burst 3, tokens are kept in the store".to_owned();
    assert!(
        lines.contains(&"store.mode: exact, was leased".to_owned()) && lines.contains(&kept),
        "{lines:?}"
    );
    assert_eq!(statuses(&mut client, "/", 1), [429]);
}

#[test]
fn a_reload_that_changes_the_store_changes_the_buckets() {
    let folder = TempDir::new().expect("a folder");
    let with = |file: &str| format!("limit = \"2/h\"\n[store]\nurl = \"{file}\"\ndeadline = \"10s\"\n");
    let proxy = start_by(&folder, &with("sqlite:one.db"));
    let mut client = proxy.connect();
    assert_eq!(statuses(&mut client, "/", 3), [200, 200, 429]);
    let moved = "limit default: 2/h burst 2, all buckets anew, since they are elsewhere".to_owned();
    assert!(reload(&folder, &proxy, &with("sqlite:two.db")).contains(&moved));
    assert_eq!(statuses(&mut client, "/", 3), [200, 200, 429]);
    assert!(reload(&folder, &proxy, &with("sqlite:one.db")).contains(&moved));
    assert_eq!(statuses(&mut client, "/", 1), [429]);
    // Without a store the buckets are in this process.
    assert!(reload(&folder, &proxy, "limit = \"2/h\"\n[store]\nurl = \"none\"\n").contains(&moved));
    assert_eq!(statuses(&mut client, "/", 3), [200, 200, 429]);
    // A file that is no database changes nothing.
    fs::write(folder.path().join("no.db"), "this is no database, but a text of some length\n".repeat(99))
        .expect("the folder is there");
    fs::write(folder.path().join("proxy.toml"), with("sqlite:no.db")).expect("the folder is there");
    proxy.signal("-HUP");
    let error = proxy.error();
    assert!(error.contains("cannot open sqlite:") && error.contains("all settings stay"), "{error}");
    assert_eq!(statuses(&mut client, "/", 1), [429]);
}

#[test]
fn the_page_changes_the_quota_of_the_shared_bucket() {
    let folder = TempDir::new().expect("a folder");
    let proxy = start_by(&folder, "limit = \"2/h\"\n[store]\nurl = \"sqlite:a.db\"\ndeadline = \"10s\"\n");
    let mut client = proxy.connect();
    assert_eq!(client.get("/").status, 200);
    assert_eq!(proxy.ask_admin("POST", "/limit", "2/h burst 4").status, 204);
    assert_eq!(client.get("/").header("ratelimit-policy"), Some("\"default\";q=4;w=7200"));
    let refused = proxy.ask_admin("POST", "/limit", "5/15m sliding");
    assert!(refused.status == 400 && refused.body.contains("counts in another way"), "{}", refused.body);
}

fn tollgate(args: &[&str]) -> (Option<i32>, String, String) {
    let output = super::process::tollgate(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn check_reads_a_url_and_asks_no_server() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("new.db");
    let url = format!("sqlite:{}", file.display());
    let (code, told, error) = tollgate(&["check", "--store", &url]);
    assert_eq!((code, &*error), (Some(0), ""));
    assert!(told.contains(&url) && !file.exists(), "{told}");
    let mut urls = vec![("sqlite:", "expected sqlite:PATH"), ("memcached://a", "expected sqlite:PATH")];
    let mut good = Vec::new();
    if cfg!(feature = "redis") {
        good.push(("redis://:hunter2@192.0.2.1", "redis://:***@192.0.2.1"));
        good.push(("redis://[::1]:6379/0", "redis://[::1]:6379/0"));
        urls.push(("redis://:hunter2@a:port", "URL did not parse"));
    }
    if cfg!(feature = "postgres") {
        good.push(("postgres://ada:hunter2@192.0.2.1/limits", "postgres://ada:***@192.0.2.1/limits"));
        good.push(("postgres://ada@192.0.2.1/limits", "postgres://ada@192.0.2.1/limits"));
        good.push(("postgres://ada@192.0.2.1/limits?user=hun@ter2", "postgres://***?..."));
        good.push((
            "postgres://ada@192.0.2.1/limits?password=hunter2",
            "postgres://ada@192.0.2.1/limits?...",
        ));
        urls.push(("postgres://a:hunter2@b:port/c", "invalid value for option `port`"));
    }
    if cfg!(feature = "mysql") {
        good.push(("mysql://ada:hunter2@192.0.2.1/limits", "mysql://ada:***@192.0.2.1/limits"));
        urls.push(("mysql://a:hunter2@b:port/c", "invalid port number"));
    }
    for (url, part) in good {
        let (code, told, error) = tollgate(&["check", "--store", url]);
        assert_eq!((code, &*error), (Some(0), ""));
        assert!(told.contains(part) && !told.contains("hunter2"), "{told}");
    }
    for command in ["check", "proxy"] {
        for (url, part) in &urls {
            let (code, _, error) = tollgate(&[command, "--store", url]);
            assert!(code == Some(2) && error.contains(part), "{command} {url}: {code:?} {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
