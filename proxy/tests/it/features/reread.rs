//! A file that is read again: the settings that it names change, and no other does.

use std::fs;

use crate::support::{Certificate, Folder, Reloaded, check_text};

/// All there is in a file; each setting differs from the default one.
const RICH: &str = r#"# A comment, with ümläuts.
proxy_protocol = true
upstream = [
    "http://10.0.0.1:8000",
    "unix:/run/app.sock",
]
upstream_ca = "chain.pem"
preserve_host = true
via = "edge"
limit = "1000/s burst 2000"
key = ["peer", "header:x-api-key"]
ban = "20/1m for 10m"
trust_proxy = ["10.0.0.0/8", "192.0.2.1"]
ipv4_prefix = 24
ipv6_prefix = 56
case_sensitive = true
shadow = true
lame_duck = "15s"
drain = "1m 30s"
remove_routes = ["new"]

[tls]
cert = "chain.pem"
key = "key.pem"

[exempt]
networks = ["172.16.0.0/12", "192.0.2.7"]
paths = ["/health", "/static/*"]
methods = ["OPTIONS", "M-SEARCH"]
preflights = true

[admin]
listen = "127.0.0.1:0"
public = true
hosts = ["Admin.example.org"]

[bounds]
connections_per_address = 100
in_flight = 512
in_flight_per_key = 100
least_rate = 90
request_body = "10MiB"

[inflight]
limit = 100
target = "300ms"

[timeouts]
request_head = "11s"
keep_alive = "61s"
request_body = "12s"
whole_body = "2h"
queue = "13s"
connect = "14s"
response_head = "15s"
response_body = "16s"
slow_reader = "17s"
tunnel = "1h"

[store]
url = "sqlite:limits.db"
name = "edge"
mode = "exact"
deadline = "20ms"
on_outage = "deny"
share = 0.25

[log]
format = "json"
access = true
refusals = true

[[route]]
prefix = "/login"
limit = "50/m burst 50"
name = "login"
cost = 10

[[route]]
name = "search"
cost = 20
priority = "sheddable"
prefix = "/search"
limit = "100/s"

[[route]]
prefix = "/plain"
limit = "5/m burst 5"
"#;

/// Another file whose settings differ from those of [`RICH`], as do those of its two routes.
const OTHER: &str = r#"limit = "10/s burst 20"
key = "peer"
trust_proxy = ["172.16.0.0/12"]
upstream = ["http://10.0.0.2"]
ipv4_prefix = 16
ipv6_prefix = 48
shadow = false
case_sensitive = false
drain = "25s"
[exempt]
networks = ["198.51.100.0/24"]
paths = ["/ready"]
methods = []
preflights = false
[bounds]
connections_per_address = 25
in_flight_per_key = 12
in_flight = 25
[inflight]
limit = 25
target = "25ms"
[timeouts]
connect = "25s"
[[route]]
prefix = "/login"
cost = 15
limit = "15/m burst 15"
name = "login"
[[route]]
name = "search"
prefix = "/find"
limit = "15/s"
cost = 12
priority = "background"
[[route]]
name = "new"
prefix = "/new"
limit = "15/s"
"#;

/// Starts a proxy by a file beside a certificate.
fn start(text: &str) -> Reloaded {
    let folder = Folder::new();
    Certificate::new().write(&folder);
    Reloaded::in_folder(folder, text, "")
}

/// Returns the lines of changes, without those about another start.
fn changed(lines: Vec<String>) -> Vec<String> {
    let is_change = |line: &String| !line.contains(": stays") && !line.ends_with(" needs a restart");
    lines.into_iter().filter(is_change).collect()
}

#[test]
fn each_setting_of_the_file_is_one_that_can_be_described() {
    let folder = Folder::new();
    let lines = |text: &str| {
        let text = check_text(&folder, text, "--demo").text();
        let lines = text.lines().filter_map(|line| line.split_once("  "));
        lines
            .map(|(name, rest)| (name.to_owned(), rest.split_whitespace().collect::<Vec<_>>().join(" ")))
            .collect::<Vec<_>>()
    };
    Certificate::new().write(&folder);
    let (rich, default) = (lines(RICH), lines("shadow = false\n"));
    // Each setting differs from its default, or the file above has forgotten it.
    let same: Vec<_> = rich.iter().filter(|entry| default.contains(entry)).map(|entry| &*entry.0).collect();
    // A store has no line of waiting requests, and no file of the state.
    assert_eq!(same, ["listen", "delay", "state"]);
    let named = |name: &str| RICH.contains(&format!("\n{} = ", name.rsplit('.').next().unwrap_or(name)));
    let unnamed: Vec<_> = rich
        .iter()
        .filter(|(name, _)| !named(name) && !name.starts_with("route ") && name != "delay" && name != "state")
        .collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}

/// The other settings are as before: a file that was cut removes and loosens nothing.
#[test]
fn every_beginning_of_the_file_is_refused_or_changes_nothing() {
    let reread = start(RICH);
    let (mut taken, mut refused) = (0, 0);
    for end in 0..RICH.len() {
        match reread.try_read(&RICH.as_bytes()[..end]) {
            Ok(lines) => {
                let text = &RICH[..end];
                assert!(text.ends_with('\n'), "{text}");
                assert_eq!(changed(lines), [""; 0], "after {text}");
                taken += 1;
            }
            Err(error) => {
                assert!(!error.contains("panicked"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(taken > 30 && refused > 30, "{taken} taken, {refused} refused");
}

/// Of another file, the settings that it names up to the cut are taken, and the rest is as before.
#[test]
fn a_beginning_of_another_file_changes_what_it_names() {
    let reread = start(RICH);
    let name = |line: &str| line.split(": ").next().unwrap_or_default().to_owned();
    let whole = changed(reread.read(OTHER));
    assert!(whole.len() > 20, "{whole:?}");
    assert!(whole.iter().all(|line| !line.contains("removed") && !line.contains("gone")), "{whole:?}");
    let mut taken = 0;
    for end in OTHER.match_indices('\n').map(|(at, _)| at + 1) {
        reread.read(RICH);
        let text = &OTHER[..end];
        let Ok(lines) = reread.try_read(text) else { continue };
        taken += 1;
        let lines = changed(lines);
        for line in lines.iter().filter(|line| !line.starts_with("route ") && !line.starts_with("limit ")) {
            assert!(whole.contains(line), "{line} after {text}");
        }
        // What was cut off is as before.
        for (field, setting) in
            [("drain = ", "drain"), ("in_flight = ", "bounds.in_flight"), ("connect = ", "timeouts.connect")]
        {
            let is_changed = lines.iter().any(|line| name(line) == setting);
            assert_eq!(is_changed, text.contains(&format!("\n{field}")), "{setting} after {text}");
        }
        assert!(lines.iter().all(|line| !line.contains("removed") && !line.contains("gone")), "{lines:?}");
    }
    assert!(taken > 10, "{taken} taken");
}

/// Each byte of the file, replaced by another.
#[test]
fn no_text_is_a_panic() {
    let reread = start(RICH);
    let (mut taken, mut refused) = (0, 0);
    for at in 0..RICH.len() {
        let mut text = RICH.as_bytes().to_vec();
        text[at] = [b'\n', b'"', b'9'][at % 3];
        match reread.try_read(&text) {
            Ok(_) => taken += 1,
            Err(error) => {
                assert!(!error.contains("panicked"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(taken > 30 && refused > 300, "{taken} taken, {refused} refused");
}

#[test]
fn a_reload_changes_what_the_file_names_and_nothing_else() {
    let reread = start(RICH);
    let text = "limit = \"10/s\"\nremove_routes = [\"login\", \"gone\"]\n\
        [[route]]\nprefix = \"/find\"\nlimit = \"50/s\"\nname = \"search\"\n";
    let lines = reread.read(text);
    for line in [
        "limit: 10/s burst 10, was 1000/s burst 2000",
        "route search: 50/s burst 50, cost 20, priority sheddable, /find, was 100/s burst 100, cost 20, priority \
         sheddable, /search",
        "route login: removed, was 50/m burst 50, cost 10, /login",
        "route /plain: stays, though the file does not name it; remove_routes removes it",
        "route search: stays 50/s burst 50, cost 20, priority sheddable, /find; a restart makes it 50/s burst 50, cost 1, \
         /find",
        "shadow: stays on; a restart makes it off",
        "limit login: gone",
    ] {
        assert!(lines.iter().any(|known| known == line), "{line} is missing in {lines:#?}");
    }
    let of_settings = changed(lines).into_iter().filter(|line| !line.starts_with("limit "));
    assert_eq!(of_settings.count(), 3);
    // The same file once more changes nothing.
    assert_eq!(changed(reread.read(text)), [""; 0]);
    let lines = reread.read("[exempt]\npaths = [\"/ready\"]\nnetworks = []\n");
    for line in [
        "exempt.networks: none, was 172.16.0.0/12, 192.0.2.7/32",
        "exempt.paths: /ready, was /health, /static/*",
        "exempt.methods: stays OPTIONS, M-SEARCH; a restart makes it none",
        "exempt.preflights: stays on; a restart makes it off",
    ] {
        assert!(lines.iter().any(|known| known == line), "{line} is missing in {lines:#?}");
    }
    assert_eq!(changed(lines).len(), 2);
    let lines = reread.read("[store]\nurl = \"sqlite:limits.db\"\nshare = 0.5\nmode = \"leased\"\n");
    assert!(
        changed(lines.clone()).starts_with(&[
            "store.mode: leased, was exact".to_owned(),
            "store.share: 0.5, was 0.25".to_owned()
        ]),
        "{lines:?}"
    );
    // At a restart the file alone has no store.
    reread.refuses("[store]\nshare = 0.5\n", "tollgate.toml:2:9: store.share needs store.url");
    let lines = reread.read("[store]\nurl = \"none\"\n");
    assert!(lines[1].starts_with("store.url: none, was sqlite:"), "{lines:?}");
    // The keys are in this process from now on.
    assert_eq!(lines[0], "bounds.keys_per_limit: added, 1048576");
}

#[test]
fn routes_can_exchange_prefixes_but_not_take_one() {
    let text = |a: &str, b: &str| {
        format!(
            "[[route]]\nname = \"a\"\nprefix = \"{a}\"\nlimit = \"9/s\"\ncost = 9\n\
             [[route]]\nname = \"b\"\nprefix = \"{b}\"\nlimit = \"1/s\"\n"
        )
    };
    let reread = start(&text("/1", "/2"));
    assert_eq!(changed(reread.read(&text("/2", "/1"))).len(), 2);
    reread.refuses(
        "[[route]]\nname = \"a\"\nprefix = \"/1/\"\nlimit = \"9/s\"\n",
        "3:10: the route \"b\" has the prefix \"/1\", which has the same paths; remove_routes removes it",
    );
    // A cost that stays may be too much for a new limit.
    reread.refuses(
        "[[route]]\nname = \"a\"\nprefix = \"/2\"\nlimit = \"5/s\"\n",
        "4:9: a cost of 9 is out of the bounds of 1 and the burst, 5",
    );
}

#[test]
fn some_settings_need_a_restart() {
    let reread = start("shadow = true\n[admin]\nlisten = \"127.0.0.1:0\"\n");
    let lines = reread.read(
        "proxy_protocol = true\nvia = \"edge\"\nshadow = false\n\
         [tls]\ncert = \"/a\"\nkey = \"/b\"\n[admin]\nlisten = \"127.0.0.1:1\"\nhosts = [\"a\"]\n",
    );
    assert_eq!(
        lines,
        [
            "shadow: off, was on",
            "admin.hosts: a, was none",
            "tls.cert: /a needs a restart",
            "proxy_protocol: on needs a restart",
            "via: edge needs a restart",
            "admin.listen: 127.0.0.1:1 needs a restart",
        ]
    );
    // Nor can a listener appear. Other certificates do not need one.
    let tls = "[tls]\ncert = \"chain.pem\"\nkey = \"key.pem\"\n";
    let reread = start(tls);
    assert_eq!(changed(reread.read(&format!("{tls}[admin]\n"))), [""; 0]);
    let (chain, key) = (reread.folder.text("chain.pem"), reread.folder.text("key.pem"));
    let (other, other_key) = (reread.folder.text("2.pem"), reread.folder.text("2.key"));
    fs::copy(chain, &other).and_then(|_| fs::copy(key, &other_key)).expect("they are there");
    let lines = reread.read(&format!("[tls]\ncert = \"{other}\"\nkey = \"{other_key}\"\n"));
    assert!(lines[0].starts_with(&format!("tls.cert: {other}, was ")), "{lines:?}");
}

#[test]
fn a_file_that_cannot_be_read_or_started_with_is_an_error_of_a_reload() {
    let text = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    let reread = Reloaded::in_folder(Folder::new(), text, "--admin-host a");
    reread.refuses("shadow = true\n", "--admin-host needs --admin");
    for text in ["", "# nothing\n", "limit = \"10\n"] {
        reread.refuses(text, "");
    }
    fs::remove_file(reread.file()).expect("the file is there");
    let error = reread.try_reload().expect_err("it is gone");
    assert!(error.contains("No such file or directory (os error 2)"), "{error}");
}

/// The file cannot change a limit that an option names, and the admin page can.
#[test]
fn a_reload_leaves_a_limit_that_an_option_names() {
    let text = "limit = \"50/s\"\nshadow = true\n";
    let reread = Reloaded::in_folder(Folder::new(), text, "--limit 100/s --admin 127.0.0.1:0");
    assert_eq!(reread.ask_admin("POST", "/limit", "5/s").status, 204);
    let lines = reread.read(text);
    let stays = "limit: stays 5/s burst 5; a restart makes it 100/s burst 100";
    assert!(lines.contains(&stays.to_owned()), "{lines:?}");
}
