//! One file for all settings, which is read again at SIGHUP.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};
use std::thread;

use super::PATIENCE;
use super::process::{Client, Message, Proxy, command, recording_upstream, tollgate, upstream, url, write};
use super::support::{Folder, await_count, connect_from, count, stepwise};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[test]
fn check_prints_the_meaning_or_the_first_mistake() {
    let folder = Folder::new();
    let good = folder.write(
        "good.toml",
        "limit = \"7/h burst 9\"\n[[route]]\nprefix = \"/login\"\nlimit = \"5/m burst 5\"\n\
         [[route]]\nprefix = \"/sold\"\nlimit = \"1000/d fixed utc\"\n\
         [exempt]\nnetworks = [\"10.0.0.0/8\"]\npaths = [\"/login/*\"]\nmethods = [\"TRACE\"]\n\
         preflights = true\n",
    );
    let output = tollgate(&["check", "--demo", "--config", &good]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    for part in [
        "7/h burst 9",
        "route /login",
        "5/m burst 5, cost 1",
        "1000/d fixed utc, cost 1",
        "timeouts.connect",
        "exempt.networks                 10.0.0.0/8 ",
        "exempt.paths                    /login/* ",
        "exempt.methods                  TRACE ",
        "exempt.preflights               on ",
        "warning: exempt.paths /login/* takes /login out of the limit of route /login\n",
    ] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    for (text, place, part) in [
        ("", ":1:1: ", "empty"),
        ("\n# nothing\n", ":1:1: ", "empty"),
        ("limit = \"fast\"\n", ":1:9: ", "fast"),
        ("limit = \"5000/h sliding\"\n", ":1:9: ", "3 sub-windows"),
        ("key = \"peer\"\n[timeouts]\nconnekt = \"5s\"\n", ":3:", "connekt"),
        ("[[route]]\nprefix = \"/a\"\n", ":1:1: ", "limit"),
        ("[exempt]\npaths = [\"/a\", \"/b/../c\"]\n", ":2:16: ", "/b/../c"),
        ("[exempt]\nnetworks = [\"ten\"]\n", ":2:13: ", "ten"),
        ("[exempt]\nmethods = [\"GET\", \"get\"]\n", ":2:19: ", "get"),
        ("[exempt]\npreflight = true\n", ":2:1: ", "preflights"),
        ("upstream = [\"http://a\", \"ftp://b\"]\n", ":1:25: ", "ftp"),
        ("limit = \"5/s", ":1:", ""),
        ("shadow = true", ":1:14: ", "newline"),
        ("\u{1b}[31m = 1\n", ":1:2: ", ""),
        ("\"\\u001b[31m\" = 1\n", ":1:1: ", ""),
        ("limit = \"\\u001b[31m\"\n", ":1:9: ", ""),
    ] {
        let bad = folder.write("bad.toml", text);
        for command in ["check", "proxy"] {
            let output = tollgate(&[command, "--config", &bad]);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{text:?}: {stderr}");
            assert!(stderr.starts_with(&format!("error: {bad}{place}")), "{text:?}: {stderr}");
            assert!(stderr.contains(part) && !stderr.contains('\u{1b}'), "{text:?}: {stderr:?}");
            assert!(output.stdout.is_empty());
        }
    }
}

/// A proxy with a file whose text the test replaces.
struct Reloaded {
    proxy: Proxy,
    folder: Folder,
}

impl Reloaded {
    fn start(options: &[&str], text: &str) -> Reloaded {
        let folder = Folder::new();
        let config = folder.write("proxy.toml", text);
        let proxy = Proxy::start(&[options, &["--config", &config, "--admin", "127.0.0.1:0"]].concat());
        Reloaded { proxy, folder }
    }

    fn read(&self, text: &str) -> Vec<String> {
        self.folder.write("proxy.toml", text);
        self.proxy.reload()
    }
}

#[test]
fn upstreams_and_time_outs_change() {
    let (first, first_requests) = recording_upstream(OK);
    let (second, second_requests) = recording_upstream(OK);
    let silent = upstream(|mut connection| while Message::read_head(&mut connection).is_some() {});
    let file = |to, time| format!("upstream = [\"{}\"]\n[timeouts]\nresponse_head = \"{time}\"\n", url(to));
    let reloaded = Reloaded::start(&[], &file(first, "1h"));
    let mut client = reloaded.proxy.connect();
    assert_eq!(client.get("/").status, 200);
    let lines = reloaded.read(&file(second, "1h"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(client.get("/").status, 200);
    assert_eq!((first_requests.try_iter().count(), second_requests.try_iter().count()), (1, 1));
    reloaded.read(&file(silent, "10ms"));
    // The new time-out is also in force for open connections.
    assert_eq!(client.get("/").status, 504);
    await_count(&reloaded.proxy, "response_head_timeouts", 1);
}

#[test]
fn trust_shadow_and_keys_change() {
    let quota = "limit = \"1/h burst 1\"\n";
    let reloaded = Reloaded::start(&[], quota);
    let mut client = reloaded.proxy.connect();
    let forwarded = |host: u8| format!("X-Forwarded-For: 203.0.113.{host}\r\nX-Key: {host}\r\n");
    assert_eq!([1, 2].map(|host| client.get_with("/", &forwarded(host)).status), [200, 429]);
    reloaded.read(&format!("{quota}trust_proxy = [\"127.0.0.1\"]\n"));
    assert_eq!([1, 2, 1].map(|host| client.get_with("/", &forwarded(host)).status), [200, 200, 429]);
    reloaded.read(&format!("{quota}trust_proxy = []\n"));
    assert_eq!(client.get_with("/", &forwarded(3)).status, 429);
    reloaded.read("shadow = true\n");
    assert_eq!([0; 3].map(|_| client.get("/").status), [200; 3]);
    reloaded.read("shadow = false\n");
    assert_eq!(client.get("/").status, 429);
    reloaded.read("key = \"header:x-key\"\n");
    assert_eq!([8, 9, 8].map(|host| client.get_with("/", &forwarded(host)).status), [200, 200, 429]);
}

#[test]
fn a_window_keeps_the_used_tokens_under_another_limit_and_another_period() {
    let file = |rule: &str| format!("[[route]]\nprefix = \"/a\"\nlimit = \"{rule}\"\n");
    let reloaded = Reloaded::start(&[], &file("2/h sliding"));
    let mut client = reloaded.proxy.connect();
    assert_eq!([0; 3].map(|_| client.get("/a").status), [200, 200, 429]);
    let lines = reloaded.read(&file("3/h sliding"));
    assert_eq!(lines.last().map(|line| &**line), Some("limit /a: 3/h sliding, tokens are kept"));
    assert_eq!([0; 2].map(|_| client.get("/a").status), [200, 429]);
    let carried = "limit /a: 4/d sliding, tokens are carried over to other buckets, since 4/d sliding counts in \
                   another way than 3/h sliding";
    assert_eq!(reloaded.read(&file("4/d sliding")).last().map(|line| &**line), Some(carried));
    assert_eq!([0; 2].map(|_| client.get("/a").status), [200, 429]);
}

/// Another number of keys is another table, to which the tokens are carried over.
#[test]
fn the_keys_of_a_limit_have_a_number_that_changes() {
    let file = |keys| format!("limit = \"1/h burst 3\"\n[bounds]\nkeys_per_limit = {keys}\n");
    let reloaded = Reloaded::start(&[], &file("8"));
    let mut client = reloaded.proxy.connect();
    assert_eq!([0; 2].map(|_| client.get("/").status), [200; 2]);
    let lines = reloaded.read(&file("\"none\""));
    let carried = "limit default: 1/h burst 3, tokens are carried over to other buckets";
    assert!(lines.iter().any(|line| line == carried), "{lines:?}");
    assert_eq!([0; 2].map(|_| client.get("/").status), [200, 429]);
    assert_eq!(reloaded.read(&file("\"none\"")), [""; 0]);
    reloaded.read(&file("9"));
    assert_eq!(client.get("/").status, 429);
}

#[test]
fn the_cost_of_a_route_changes_and_its_tokens_stay() {
    let file = |cost| format!("[[route]]\nprefix = \"/a\"\nlimit = \"1/h burst 10\"\ncost = {cost}\n");
    let reloaded = Reloaded::start(&[], &file(1));
    let mut client = reloaded.proxy.connect();
    assert_eq!([0; 2].map(|_| client.get("/a").status), [200; 2]);
    reloaded.read(&file(3));
    // 8 tokens are left: two requests cost 3 each, and 2 tokens are too few.
    assert_eq!([0; 3].map(|_| client.get("/a").status), [200, 200, 429]);
    reloaded.read(&file(2));
    assert_eq!([0; 2].map(|_| client.get("/a").status), [200, 429]);
}

/// Otherwise the next reload would undo a limit that an operator has lowered in haste.
#[test]
fn a_limit_of_the_page_outlives_a_reload_that_does_not_name_one() {
    let reloaded = Reloaded::start(&[], "limit = \"100/h burst 100\"\n");
    let proxy = &reloaded.proxy;
    assert_eq!(proxy.ask_admin("POST", "/limit", "100/h burst 3").status, 204);
    assert_eq!(count(proxy, "limit_changes"), 1);
    let stays = "limit: stays 100/h burst 3; a restart makes it 100/s burst 200";
    assert_eq!(reloaded.read("shadow = false\n"), [stays]);
    assert_eq!(count(proxy, "limit_changes"), 1);
    let mut client = proxy.connect();
    assert_eq!([0; 4].map(|_| client.get("/").status), [200, 200, 200, 429]);
    // A file that names the limit overrides the page.
    let lines = reloaded.read("limit = \"100/h burst 100\"\n");
    assert!(lines.iter().any(|line| line == "limit: 100/h burst 100, was 100/h burst 3"), "{lines:?}");
    assert_eq!(count(proxy, "limit_changes"), 2);

    let proxy = Proxy::start(&["--limit", "100/h burst 100", "--admin", "127.0.0.1:0"]);
    assert_eq!(proxy.ask_admin("POST", "/limit", "100/h burst 1").status, 204);
    assert_eq!(proxy.reload(), [""; 0]);
    assert_eq!([0; 2].map(|_| proxy.connect().get("/").status), [200, 429]);
}

#[test]
fn limit_changes_and_reload_errors_are_counted() {
    let reloaded = Reloaded::start(&[], "limit = \"10/h burst 10\"\n");
    let counts = || ["limit_changes", "reload_errors"].map(|name| count(&reloaded.proxy, name));
    assert_eq!(counts(), [0, 0]);
    reloaded.read("limit = \"20/h burst 20\"\n[[route]]\nprefix = \"/a\"\nlimit = \"1/h burst 1\"\n");
    assert_eq!(counts(), [2, 0]);
    reloaded.read("limit = \"20/h burst 20\"\n");
    assert_eq!(counts(), [2, 0]);
    reloaded.folder.write("proxy.toml", "limit = \"fast\"\n");
    reloaded.proxy.signal("-HUP");
    assert!(reloaded.proxy.error().contains("fast"));
    assert_eq!(counts(), [2, 1]);
    assert_eq!(reloaded.proxy.ask_admin("POST", "/limit", "5/h burst 5").status, 204);
    assert_eq!(reloaded.proxy.ask_admin("POST", "/limit", "fast").status, 400);
    assert_eq!(counts(), [3, 1]);
    reloaded.read("remove_routes = [\"/a\"]\n");
    assert_eq!(counts(), [4, 1]);
}

/// The server of the process would reflect credentials, and answer health checks.
#[test]
fn a_file_without_an_upstream_is_refused() {
    let folder = Folder::new();
    for text in ["limit = \"5/s\"\n", "upstream = []\nlimit = \"5/s\"\n"] {
        let file = folder.write("none.toml", text);
        for command in ["check", "proxy"] {
            let output = tollgate(&[command, "--config", &file]);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
            assert!(
                stderr.contains("none.toml: no upstream is named") && stderr.contains("--demo"),
                "{stderr}"
            );
        }
        let by_option = tollgate(&["check", "--config", &file, "--upstream", "http://127.0.0.1:1"]);
        assert_eq!(by_option.status.code(), Some(0), "{text}");
    }
}

/// Nor does a reload remove the last upstream.
#[test]
fn a_reload_without_an_upstream_changes_nothing() {
    let folder = Folder::new();
    let file = folder.write("proxy.toml", "upstream = [\"http://127.0.0.1:1\"]\n");
    let args = ["--listen", "127.0.0.1:0", "--config", &file];
    let child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("text");
    assert!(line.contains(" to http://127.0.0.1:1, "), "{line}");
    folder.write("proxy.toml", "upstream = []\n");
    assert!(Command::new("kill").args(["-HUP", &child.id().to_string()]).status().is_ok());
    let mut error = String::new();
    BufReader::new(child.stderr.as_mut().expect("piped")).read_line(&mut error).expect("text");
    child.kill().expect("it was started here");
    child.wait().expect("it was started here");
    assert!(error.contains("no upstream is named"), "{error}");
    assert!(error.ends_with("; all settings stay as they were\n"), "{error}");
}

#[test]
fn places_for_requests_change_and_none_is_made_up() {
    let (held, is_asked, go_on) = stepwise();
    let file = |places| {
        let (upstream, bounds) = (url(held), format!("in_flight = {places}\nin_flight_per_key = 1\n"));
        format!("upstream = [\"{upstream}\"]\n[timeouts]\nqueue = \"20ms\"\n[bounds]\n{bounds}")
    };
    let reloaded = Reloaded::start(&[], &file(3));
    let from = AtomicU8::new(0);
    let ask = || {
        let mut client = connect_from([127, 0, 1, from.fetch_add(1, Relaxed)], reloaded.proxy.address);
        client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let under_way = || -> Client {
        let client = ask();
        is_asked.recv_timeout(PATIENCE).expect("there is a place");
        client
    };
    let mut open: Vec<Client> = (0..3).map(|_| under_way()).collect();
    assert_eq!(ask().read().status, 503);
    // All places are taken, so a lower number takes places that become free later.
    reloaded.read(&file(1));
    reloaded.read(&file(3));
    assert_eq!(ask().read().status, 503);
    reloaded.read(&file(2));
    let answer_one = |open: &mut Vec<Client>| {
        go_on.send(()).expect("the upstream waits");
        let mut statuses = open.iter_mut().map(|client| client.0.get_ref().set_nonblocking(true));
        assert!(statuses.all(|status| status.is_ok()));
        loop {
            let answered = open.iter().position(|client| client.0.get_ref().peek(&mut [0]).is_ok());
            if let Some(answered) = answered {
                let mut client = open.swap_remove(answered);
                client.0.get_ref().set_nonblocking(false).expect("it is open");
                assert_eq!(client.read().status, 200);
                return;
            }
        }
    };
    answer_one(&mut open);
    assert_eq!(ask().read().status, 503, "two are under way");
    answer_one(&mut open);
    open.push(under_way());
    assert_eq!(ask().read().status, 503, "two are under way again");
    reloaded.read(&file(3));
    open.push(under_way());
    assert_eq!(ask().read().status, 503);
    (0..3).for_each(|_| answer_one(&mut open));
}

/// Sends requests for one path until one is refused after `stop`. Returns the number of granted
/// requests.
fn ask_until_refused(mut client: Client, path: &str, stop: &AtomicBool) -> usize {
    let mut granted = 0;
    loop {
        let is_last = stop.load(Relaxed);
        match client.get(path).status {
            200 => granted += 1,
            429 if is_last => return granted,
            429 => (),
            status => panic!("{status}"),
        }
    }
}

#[test]
fn two_hundred_reloads_under_load_grant_exactly_the_quota() {
    const BURST: usize = 3_000;
    let quota = format!("1/h burst {BURST}");
    let login = format!("[[route]]\nprefix = \"/login\"\nlimit = \"{quota}\"\ncost = 2\nname = \"login\"\n");
    let other = |turn: usize| {
        let (burst, cost) = (100 + turn % 7, 1 + turn % 5);
        format!("[[route]]\nprefix = \"/other\"\nlimit = \"1/h burst {burst}\"\ncost = {cost}\n")
    };
    let file = |turn: usize| {
        let routes = match turn % 3 {
            0 => login.clone() + &other(turn),
            1 => other(turn) + &login,
            // A route that is not named stays.
            _ => other(turn),
        };
        let also =
            ["", "case_sensitive = true\n", "case_sensitive = false\n", "ipv6_prefix = 56\n"][turn % 4];
        let shared = format!("limit = \"{quota}\"\ntrust_proxy = [\"10.0.0.{}\"]\n", turn % 9);
        format!("{shared}{also}[timeouts]\nconnect = \"{}s\"\n{routes}", 1 + turn % 4)
    };
    let reloaded = Reloaded::start(&[], &file(0));
    let stop = AtomicBool::new(false);
    let granted = thread::scope(|scope| {
        let ask = |path| {
            let (client, stop) = (reloaded.proxy.connect(), &stop);
            scope.spawn(move || ask_until_refused(client, path, stop))
        };
        let clients = ["/", "/login", "/", "/login", "/other"].map(ask);
        for turn in 1..=200 {
            reloaded.read(&file(turn));
        }
        stop.store(true, Relaxed);
        clients.map(|client| client.join().expect("all its requests were answered"))
    });
    assert_eq!((granted[0] + granted[2], granted[1] + granted[3]), (BURST, BURST / 2), "{granted:?}");
}

/// The limit of an upstream, and the requests that it counts, are as before a reload.
#[test]
fn a_reload_keeps_the_limit_on_requests_in_flight() {
    let (sender, requests) = mpsc::channel();
    let sender = Mutex::new(sender);
    let holding = upstream(move |mut connection| {
        let _head = Message::read_head(&mut connection);
        // The test may have ended by then.
        let _ = sender.lock().expect("nothing panics under it").send(connection);
    });
    let folder = Folder::new();
    let text = |limit: &str, via: &str| {
        let upstreams = format!("upstream = [\"{}\"]\n", url(holding));
        format!("{upstreams}limit = \"none\"\nlame_duck = \"{via}\"\n[inflight]\nlimit = {limit}\n")
    };
    let refused = |proxy: &Proxy, count: usize| {
        let (metrics, priority) = (proxy.ask_admin("GET", "/metrics", "").body, "priority=\"critical\"");
        let line =
            format!("tollgate_inflight_refused_total{{name=\"{}\",{priority}}} {count}\n", url(holding));
        assert!(metrics.contains(&line), "no {line:?} in {metrics}");
    };
    let file = folder.write("proxy.toml", &text("1", "0s"));
    let proxy = Proxy::start(&["--config", &file, "--admin", "127.0.0.1:0"]);
    let ask = || {
        let mut client = proxy.connect();
        client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let mut first = (ask(), requests.recv_timeout(PATIENCE).expect("the upstream is asked"));
    assert_eq!(ask().read().status, 503);
    folder.write("proxy.toml", &text("1", "1ms"));
    assert_eq!(proxy.reload(), ["lame_duck: 1ms, was 0s"]);
    assert_eq!(ask().read().status, 503);
    // Another limit counts the requests that are in flight.
    folder.write("proxy.toml", &text("2", "1ms"));
    assert_eq!(proxy.reload(), ["inflight.limit: 2, was 1"]);
    let _second = (ask(), requests.recv_timeout(PATIENCE).expect("the upstream is asked"));
    assert_eq!(ask().read().status, 503);
    refused(&proxy, 3);
    write(&first.1, OK);
    assert_eq!(first.0.read().status, 200);
    // One that adapts begins at the limit in force, and goes on with the counts.
    folder.write("proxy.toml", &text("3\ntarget = \"50ms\"", "1ms"));
    assert_eq!(proxy.reload(), ["inflight.limit: 3, was 2", "inflight.target: 50ms, was none"]);
    let third = [(); 2].map(|()| (ask(), requests.recv_timeout(PATIENCE).expect("the upstream is asked")));
    assert_eq!(ask().read().status, 503);
    refused(&proxy, 4);
    drop(third);
    folder.write("proxy.toml", &text("\"none\"", "1ms"));
    assert_eq!(proxy.reload(), ["inflight.limit: none, was 3", "inflight.target: none, was 50ms"]);
    let _more = [(); 3].map(|()| (ask(), requests.recv_timeout(PATIENCE).expect("the upstream is asked")));
}
