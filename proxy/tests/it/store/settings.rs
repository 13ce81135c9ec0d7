//! The settings of the store: at the start, at a reload, and on the page.

use crate::support::{Folder, Reloaded, tollgate};

/// A store in memory ends with its connection.
#[test]
fn a_reload_keeps_the_connection_of_a_store_that_stays() {
    let store = "[store]\nurl = \"sqlite::memory:\"\ndeadline = \"10s\"\n";
    let proxy = Reloaded::start(&format!("limit = \"3/h\"\n{store}"));
    assert_eq!(proxy.statuses("/"), [200, 200, 200, 429]);
    let lines = proxy.read(&format!("limit = \"3/h\"\nshadow = false\n{store}"));
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(proxy.statuses("/"), [429]);
    // Another limit is one of the same bucket.
    let lines = proxy.read(&format!("limit = \"3/h burst 5\"\n{store}"));
    assert!(lines.contains(&"limit default: 3/h burst 5, tokens are kept".to_owned()), "{lines:?}");
    assert_eq!(proxy.statuses("/"), [429]);
    // Another mode has leases of its own, on the same connection.
    let lines = proxy.read(&format!("limit = \"3/h\"\n{store}mode = \"exact\"\n"));
    let kept = "limit default: 3/h burst 3, tokens are kept in the store".to_owned();
    assert!(
        lines.contains(&"store.mode: exact, was leased".to_owned()) && lines.contains(&kept),
        "{lines:?}"
    );
    assert_eq!(proxy.statuses("/"), [429]);
}

#[test]
fn a_reload_that_changes_the_store_changes_the_buckets() {
    let with = |file: &str| format!("limit = \"2/h\"\n[store]\nurl = \"{file}\"\ndeadline = \"10s\"\n");
    let proxy = Reloaded::start(&with("sqlite:one.db"));
    assert_eq!(proxy.statuses("/"), [200, 200, 429]);
    let moved = "limit default: 2/h burst 2, all buckets anew, since they are elsewhere".to_owned();
    assert!(proxy.read(&with("sqlite:two.db")).contains(&moved));
    assert_eq!(proxy.statuses("/"), [200, 200, 429]);
    assert!(proxy.read(&with("sqlite:one.db")).contains(&moved));
    assert_eq!(proxy.statuses("/"), [429]);
    // Without a store the buckets are in this process.
    assert!(proxy.read("limit = \"2/h\"\n[store]\nurl = \"none\"\n").contains(&moved));
    assert_eq!(proxy.statuses("/"), [200, 200, 429]);
    // A file that is no database changes nothing.
    proxy.folder.write("no.db", "this is no database, but a text of some length\n".repeat(99));
    proxy.refuses(with("sqlite:no.db"), "cannot open sqlite:");
    assert_eq!(proxy.statuses("/"), [429]);
}

#[test]
fn the_page_changes_the_quota_of_the_shared_bucket() {
    let proxy = Reloaded::start("limit = \"2/h\"\n[store]\nurl = \"sqlite:a.db\"\ndeadline = \"10s\"\n");
    let mut client = proxy.connect();
    assert_eq!(client.get("/").status, 200);
    assert_eq!(proxy.ask_admin("POST", "/limit", "2/h burst 4").status, 204);
    assert_eq!(client.get("/").header("ratelimit-policy"), Some("\"default\";q=4;w=7200"));
    let refused = proxy.ask_admin("POST", "/limit", "5/15m sliding");
    assert!(refused.status == 400 && refused.body.contains("counts in another way"), "{}", refused.body);
}

#[test]
fn check_reads_a_url_and_asks_no_server() {
    let folder = Folder::new();
    let file = folder.text("new.db");
    let told = tollgate(&format!("check --store sqlite:{file}")).text();
    assert!(told.contains(&file) && !std::path::Path::new(&file).exists(), "{told}");
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
        let told = tollgate(&format!("check --store {url}")).text();
        assert!(told.contains(part) && !told.contains("hunter2"), "{told}");
    }
    for command in ["check", ""] {
        for (url, part) in &urls {
            let ended = tollgate(&format!("{command} --store {url}"));
            ended.assert_mistake("", part);
            assert!(!ended.error.contains("hunter2"), "{}", ended.error);
        }
    }
}
