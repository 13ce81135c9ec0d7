//! One file for all settings, which is read again at SIGHUP.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::thread;

use crate::support::{
    Connection, Folder, GET, Held, OK, Proxy, Reloaded, Upstream, check_text, serve, tollgate,
};

#[test]
fn check_prints_the_meaning_or_the_first_mistake() {
    let folder = Folder::new();
    let text = check_text(
        &folder,
        "limit = \"7/h burst 9\"\n[[route]]\nprefix = \"/login\"\nlimit = \"5/m burst 5\"\n\
         [[route]]\nprefix = \"/sold\"\nlimit = \"1000/d fixed utc\"\n\
         [exempt]\nnetworks = [\"10.0.0.0/8\"]\npaths = [\"/login/*\"]\nmethods = [\"TRACE\"]\n\
         preflights = true\n",
        "--demo",
    );
    let text = text.text();
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
        assert!(text.contains(part), "{part} in {text}");
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
        for command in ["check", ""] {
            let ended = tollgate(&format!("{command} --config {bad}"));
            ended.assert_mistake(&format!("{bad}{place}"), part);
            assert!(!ended.error.contains('\u{1b}'), "{text:?}: {:?}", ended.error);
        }
    }
}

#[test]
fn upstreams_and_time_outs_change() {
    let [first, second] = [(); 2].map(|()| Upstream::answering(OK));
    let silent = serve(|mut connection| while connection.request().is_some() {});
    let file = |to, time| format!("upstream = [\"{to}\"]\n[timeouts]\nresponse_head = \"{time}\"\n");
    let reloaded = Reloaded::start(&file(first.url(), "1h"));
    let mut client = reloaded.connect();
    assert_eq!(client.get("/").status, 200);
    let lines = reloaded.read(&file(second.url(), "1h"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(client.get("/").status, 200);
    assert_eq!((first.count(), second.count()), (1, 1));
    reloaded.read(&file(silent, "10ms"));
    // The new time-out is also in force for open connections.
    assert_eq!(client.get("/").status, 504);
    reloaded.await_count("response_head_timeouts", 1);
}

#[test]
fn trust_shadow_and_keys_change() {
    let quota = "limit = \"1/h burst 1\"\n";
    let reloaded = Reloaded::start(quota);
    let mut client = reloaded.connect();
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
    let reloaded = Reloaded::start(&file("2/h sliding"));
    let mut client = reloaded.connect();
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
    let reloaded = Reloaded::start(&file("8"));
    let mut client = reloaded.connect();
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
    let reloaded = Reloaded::start(&file(1));
    let mut client = reloaded.connect();
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
    let reloaded = Reloaded::start("limit = \"100/h burst 100\"\n");
    assert_eq!(reloaded.ask_admin("POST", "/limit", "100/h burst 3").status, 204);
    assert_eq!(reloaded.count("limit_changes"), 1);
    let stays = "limit: stays 100/h burst 3; a restart makes it 100/s burst 200";
    assert_eq!(reloaded.read("shadow = false\n"), [stays]);
    assert_eq!(reloaded.count("limit_changes"), 1);
    assert_eq!(reloaded.statuses("/"), [200, 200, 200, 429]);
    // A file that names the limit overrides the page.
    let lines = reloaded.read("limit = \"100/h burst 100\"\n");
    assert!(lines.iter().any(|line| line == "limit: 100/h burst 100, was 100/h burst 3"), "{lines:?}");
    assert_eq!(reloaded.count("limit_changes"), 2);

    let proxy = Proxy::start("--limit 100/h");
    assert_eq!(proxy.ask_admin("POST", "/limit", "100/h burst 1").status, 204);
    assert_eq!(proxy.reload(), [""; 0]);
    assert_eq!(proxy.statuses("/"), [200, 429]);
}

#[test]
fn limit_changes_and_reload_errors_are_counted() {
    let reloaded = Reloaded::start("limit = \"10/h burst 10\"\n");
    let counts = || ["limit_changes", "reload_errors"].map(|name| reloaded.count(name));
    assert_eq!(counts(), [0, 0]);
    reloaded.read("limit = \"20/h burst 20\"\n[[route]]\nprefix = \"/a\"\nlimit = \"1/h burst 1\"\n");
    assert_eq!(counts(), [2, 0]);
    reloaded.read("limit = \"20/h burst 20\"\n");
    assert_eq!(counts(), [2, 0]);
    reloaded.refuses("limit = \"fast\"\n", "fast");
    assert_eq!(counts(), [2, 1]);
    assert_eq!(reloaded.ask_admin("POST", "/limit", "5/h burst 5").status, 204);
    assert_eq!(reloaded.ask_admin("POST", "/limit", "fast").status, 400);
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
        for command in ["check", ""] {
            let ended = tollgate(&format!("{command} --config {file}"));
            ended.assert_mistake(&format!("{file}: no upstream is named"), "--demo");
        }
        tollgate(&format!("check --config {file} --upstream http://127.0.0.1:1")).text();
    }
}

/// Nor does a reload remove the last upstream.
#[test]
fn a_reload_without_an_upstream_changes_nothing() {
    let folder = Folder::new();
    let file = folder.write("proxy.toml", "upstream = [\"http://127.0.0.1:1\"]\n");
    let proxy = Proxy::on("127.0.0.1:0", &format!("--config {file}"));
    folder.write("proxy.toml", "upstream = []\n");
    let error = proxy.try_reload().expect_err("a mistake");
    assert!(error.contains("no upstream is named"), "{error}");
    assert!(error.ends_with("; all settings stay as they were"), "{error}");
}

#[test]
fn places_for_requests_change_and_none_is_made_up() {
    let upstream = Upstream::holding();
    let file = |places| {
        let bounds = format!("in_flight = {places}\nin_flight_per_key = 1\n");
        format!("upstream = [\"{}\"]\n[timeouts]\nqueue = \"20ms\"\n[bounds]\n{bounds}", upstream.url())
    };
    let reloaded = Reloaded::start(&file(3));
    let from = AtomicU8::new(0);
    let ask = || reloaded.write_from([127, 0, 1, from.fetch_add(1, Relaxed)], GET);
    let under_way = || (ask(), upstream.next());
    let answer = |(mut client, held): (Connection, Held)| {
        held.answer(OK);
        assert_eq!(client.read().status, 200);
    };
    let mut open = Vec::from([(); 3].map(|()| under_way()));
    assert_eq!(ask().read().status, 503);
    // All places are taken, so a lower number takes places that become free later.
    reloaded.read(&file(1));
    reloaded.read(&file(3));
    assert_eq!(ask().read().status, 503);
    reloaded.read(&file(2));
    answer(open.remove(0));
    assert_eq!(ask().read().status, 503, "two are under way");
    answer(open.remove(0));
    open.push(under_way());
    assert_eq!(ask().read().status, 503, "two are under way again");
    reloaded.read(&file(3));
    open.push(under_way());
    assert_eq!(ask().read().status, 503);
    open.into_iter().for_each(answer);
}

/// Sends requests for one path until one is refused after `stop`. Returns the number of granted
/// requests.
fn ask_until_refused(mut client: Connection, path: &str, stop: &AtomicBool) -> usize {
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
    let reloaded = Reloaded::start(&file(0));
    let stop = AtomicBool::new(false);
    let granted = thread::scope(|scope| {
        let ask = |path| {
            let (client, stop) = (reloaded.connect(), &stop);
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
    let upstream = Upstream::holding();
    let text = |limit: &str, via: &str| {
        let upstreams = format!("upstream = [\"{}\"]\n", upstream.url());
        format!("{upstreams}limit = \"none\"\nlame_duck = \"{via}\"\n[inflight]\nlimit = {limit}\n")
    };
    let proxy = Reloaded::start(&text("1", "0s"));
    let refused = || {
        let labels = format!("name=\"{}\",priority=\"critical\"", upstream.url());
        proxy.metric(&format!("tollgate_inflight_refused_total{{{labels}}}"))
    };
    let asks = || (proxy.write(GET), upstream.next());
    let status = || proxy.write(GET).read().status;
    let mut first = asks();
    assert_eq!(status(), 503);
    assert_eq!(proxy.read(&text("1", "1ms")), ["lame_duck: 1ms, was 0s"]);
    assert_eq!(status(), 503);
    // Another limit counts the requests that are in flight.
    assert_eq!(proxy.read(&text("2", "1ms")), ["inflight.limit: 2, was 1"]);
    let _second = asks();
    assert_eq!((status(), refused()), (503, 3));
    first.1.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(first.0.read().status, 200);
    // One that adapts begins at the limit in force, and goes on with the counts.
    let lines = proxy.read(&text("3\ntarget = \"50ms\"", "1ms"));
    assert_eq!(lines, ["inflight.limit: 3, was 2", "inflight.target: 50ms, was none"]);
    let third = [(); 2].map(|()| asks());
    assert_eq!((status(), refused()), (503, 4));
    drop(third);
    let lines = proxy.read(&text("\"none\"", "1ms"));
    assert_eq!(lines, ["inflight.limit: none, was 3", "inflight.target: none, was 50ms"]);
    let _more = [(); 3].map(|()| asks());
}
