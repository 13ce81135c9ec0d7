//! Limits for some paths, from a file that is read again.

use crate::support::{Connection, Folder, Reloaded, tollgate};

fn start(text: &str) -> Reloaded {
    Reloaded::in_folder(Folder::new(), text, "--limit 3/h")
}

/// Returns the number of granted requests, which are the first of `requests`.
fn granted(client: &mut Connection, path: &str, requests: usize) -> usize {
    let statuses: Vec<u16> = (0..requests).map(|_| client.get(path).status).collect();
    let granted = statuses.iter().take_while(|status| **status == 200).count();
    assert!(statuses[granted..].iter().all(|status| *status == 429), "{statuses:?}");
    granted
}

#[test]
fn the_longest_prefix_has_the_limit() {
    let proxy = start(
        r#"
        route = [
            { prefix = "/a", limit = "1/h burst 1" },
            { prefix = "/a/b/", limit = "2/h burst 2", name = "b" },
            { prefix = "/dear", limit = "10/h burst 10", cost = 4 },
        ]
"#,
    );
    let mut client = proxy.connect();
    for (path, burst) in [("/a/b/c?d", 2), ("/a?b", 1), ("/abc", 3), ("/dear", 2)] {
        assert_eq!(granted(&mut client, path, 4), burst, "{path}");
    }
    // Many servers take each of these for `/a`, whose bucket is empty.
    for path in ["/a/", "/a/c", "//a", "/./a", "/x/../a", "/%61", "/%2e%2E/%61", "http://a.example/a", "/A"] {
        assert_eq!(granted(&mut client, path, 1), 0, "{path}");
    }
    let refused = client.get("/a/b");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"b\";q=2;w=3600"));
    // Other paths are under `--limit`, which `/abc` has used up.
    for path in ["/", "/b", "/dearest", "/%", "/%6"] {
        assert_eq!(granted(&mut client, path, 1), 0, "{path}");
    }
}

#[test]
fn a_hangup_reads_the_file_again_and_tokens_are_kept() {
    let login = |limit| format!("[[route]]\nprefix = \"/login\"\nlimit = \"{limit}\"\n");
    let proxy = start(&login("5/h burst 5"));
    let mut client = proxy.connect();
    let read_again = |text: &str| {
        let lines = proxy.read(text);
        lines.into_iter().find(|line| line.starts_with("limit /login: ")).expect("a line of the limit")
    };
    assert_eq!(granted(&mut client, "/login", 3), 3);

    let line = read_again(&(login("5/h burst 10") + "[[route]]\nprefix = \"/new\"\nlimit = \"1/h\"\n"));
    assert!(line.ends_with("5/h burst 10, tokens are kept"), "{line}");
    // 2 of 5 tokens were left and are kept. Neither 7 nor 10 are there.
    let reply = client.get("/login");
    assert!(reply.header("ratelimit").is_some_and(|left| left.starts_with("\"/login\";r=1;")), "{reply:?}");
    assert_eq!(reply.header("ratelimit-policy"), Some("\"/login\";q=10;w=7200"));
    assert_eq!(granted(&mut client, "/login", 2), 1);
    assert_eq!(granted(&mut client, "/new", 2), 1);

    // The limit exceeds the layout of the words, and the next one is of another kind. Each time the
    // client keeps its tokens: none.
    for (limit, part) in [
        ("1/h burst 1000000", "tokens are carried over to other buckets, since a burst of 1000000 is over"),
        ("1000/d fixed", "carried over to other buckets, since 1000/d fixed counts in another way"),
    ] {
        let line = read_again(&login(limit));
        assert!(line.contains(part), "{line}");
        assert_eq!(client.get("/login").status, 429);
    }
    let line = read_again(&login("1000000/s burst 1000000"));
    assert!(line.contains("tokens are carried over"), "{line}");
    // The first request takes the empty bucket over, which fills within a second.
    client.get("/login");

    // An empty file removes no limit. A file that does not name the route leaves its limit.
    proxy.refuses("", "empty");
    proxy.read("limit = \"3/h burst 3\"\n");
    assert_eq!(client.get("/login").status, 200);

    assert!(read_again("remove_routes = [\"/login\"]\n").ends_with("gone"));
    assert_eq!(granted(&mut client, "/login", 4), 3);
}

#[test]
fn a_file_with_a_mistake_changes_nothing() {
    let before = "[[route]]\nprefix = \"/a\"\nlimit = \"2/h burst 2\"\n";
    let proxy = start(before);
    let mut client = proxy.connect();
    assert_eq!(granted(&mut client, "/a", 1), 1);
    let name = proxy.file();
    for (mistake, line, part) in [
        ("limit = \"0/s burst 1\"\n", 5, "1"),
        ("limit = \"fast\"\n", 5, "fast"),
        ("limit = 5\n", 5, "100/s burst 200"),
        ("limit = \"1/s burst 2000000000000\"\n", 5, "1099511627776"),
        ("limit = \"3/s\"\ncost = 4\n", 6, "the burst, 3"),
        ("limit = \"3/s\"\ncost = 0\n", 6, "1"),
        ("limit = \"3/s\"\nname = \"\"\n", 6, "name"),
        ("limit = \"3/s\"\nname = \"/a\"\n", 6, "taken"),
        ("limit = \"3/s\"\ncosts = 4\n", 6, "costs"),
        ("limit = \n", 5, ""),
    ] {
        let place = format!("{name}:{line}:");
        let error = proxy.refuses(format!("{before}[[route]]\n{mistake}prefix = \"/b\"\n"), part);
        assert!(error.contains(&format!(" {place}")), "{mistake:?}: {error}");
        tollgate(&format!("--config {name}")).assert_mistake(&place, part);
    }
    for prefix in ["a", "", "/a/", "/a?b", "/a#b"] {
        let route = format!("[[route]]\nlimit = \"1/h\"\nname = \"n\"\nprefix = \"{prefix}\"\n");
        let error = proxy.refuses(format!("{before}{route}"), "prefix");
        assert!(error.contains(&format!(" {name}:")), "{error}");
    }
    assert_eq!(granted(&mut client, "/a", 2), 1);
    assert_eq!(granted(&mut client, "/b", 4), 3);
}
