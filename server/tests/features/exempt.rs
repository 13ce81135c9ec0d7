//! The allow list: requests that no limit applies to.
//!
//! The limit is one request an hour, and its token is gone before a verdict. So 200 tells that a
//! request is exempt, and 429 that it is not.

use hyper::Method;

use super::PATIENCE;
use super::process::{Client, Proxy, tollgate, url};
use super::proxy_protocol::{ask, v1};
use super::support::{Folder, Http2, connect_from, count, stepwise};

/// Spellings that servers accept for `/login`, each beside the name of a server.
const ACCEPTED: &str = include_str!("../spellings/accepted.txt");

fn start(options: &[&str]) -> Proxy {
    Proxy::start(&[&["--limit", "1/h burst 1", "--admin", "127.0.0.1:0"], options].concat())
}

/// Returns the counts of exempt, granted and refused requests of a limit.
fn decisions(proxy: &Proxy, policy: &str) -> [u64; 3] {
    let metrics = proxy.ask_admin("GET", "/metrics", "").body;
    ["exempt", "granted", "refused"].map(|result| {
        let name = format!("tollgate_decisions_total{{policy=\"{policy}\",result=\"{result}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().expect("a number")
    })
}

/// Takes the token of a client, and checks that there was one.
fn use_up(client: &mut Client, path: &str) {
    assert_eq!([0; 2].map(|_| client.get(path).status), [200, 429], "{path}");
}

#[test]
fn a_client_of_an_exempt_network_is_never_limited() {
    let proxy = start(&["--exempt-network", "127.0.1.0/24", "--exempt-network", "127.0.3.3"]);
    for address in [[127, 0, 1, 1], [127, 0, 1, 255], [127, 0, 3, 3]] {
        let mut client = connect_from(address, proxy.address);
        for _ in 0..3 {
            let reply = client.get("/");
            assert_eq!((reply.status, reply.header("ratelimit")), (200, None), "{address:?}");
        }
    }
    assert_eq!(decisions(&proxy, "default"), [9, 0, 0]);
    // An exempt client is no key.
    assert!(proxy.ask_admin("GET", "/metrics", "").body.contains("\ntollgate_keys{policy=\"default\"} 0\n"));
    for address in [[127, 0, 2, 1], [127, 0, 0, 1], [127, 0, 3, 2]] {
        use_up(&mut connect_from(address, proxy.address), "/");
    }
    assert_eq!(decisions(&proxy, "default"), [9, 3, 3]);
}

#[test]
fn an_exempt_address_counts_if_a_trusted_proxy_names_it_and_not_if_a_client_claims_it() {
    let proxy = start(&["--trust-proxy", "127.0.0.1", "--exempt-network", "10.0.0.0/8"]);
    let mut trusted = proxy.connect();
    let forwarded = |list: &str| format!("X-Forwarded-For: {list}\r\n");
    for list in ["10.1.2.3", "203.0.113.5, 10.1.2.3", "10.1.2.3, 127.0.0.1", "::ffff:10.1.2.3"] {
        let statuses = [0; 3].map(|_| trusted.get_with("/", &forwarded(list)).status);
        assert_eq!(statuses, [200; 3], "{list}");
    }
    assert_eq!(decisions(&proxy, "default"), [12, 0, 0]);
    // The trusted proxy has seen the last address, and its client wrote the rest.
    for (list, status) in [
        ("203.0.113.9", 200),
        ("203.0.113.9", 429),
        ("10.1.2.3, 203.0.113.9", 429),
        ("10.1.2.3,203.0.113.9", 429),
        ("10.1.2.3, 127.0.0.1, 203.0.113.9", 429),
        ("11.1.2.3", 200),
        ("11.1.2.3", 429),
        // A hop that is no address ends the list: the client is the trusted proxy itself.
        ("10.1.2.3, unknown", 200),
        ("10.1.2.3, unknown", 429),
        ("10.1.2.3.4", 429),
    ] {
        assert_eq!(trusted.get_with("/", &forwarded(list)).status, status, "{list}");
    }
    for claim in ["X-Real-IP: 10.1.2.3", "Forwarded: for=10.1.2.3", "X-Client-IP: 10.1.2.3"] {
        assert_eq!(trusted.get_with("/", &format!("{claim}\r\n")).status, 429, "{claim}");
    }
    let mut other = connect_from([127, 0, 0, 2], proxy.address);
    use_up(&mut other, "/");
    for claim in [
        "X-Forwarded-For: 10.1.2.3",
        "X-Forwarded-For: 10.1.2.3, 127.0.0.1",
        "X-Forwarded-For: 10.1.2.3\r\nX-Forwarded-For: 127.0.0.1",
        "Forwarded: for=10.1.2.3",
        "X-Real-IP: 10.1.2.3",
    ] {
        assert_eq!(other.get_with("/", &format!("{claim}\r\n")).status, 429, "{claim}");
    }
    assert_eq!(decisions(&proxy, "default")[0], 12);
}

#[test]
fn the_source_of_a_proxy_header_is_exempt_and_its_claims_are_not() {
    let options = ["--proxy-protocol", "--trust-proxy", "127.0.0.1", "--exempt-network", "10.0.0.0/8"];
    let proxy = start(&options);
    for _ in 0..3 {
        assert_eq!(ask(proxy.connect(), &v1("10.1.2.3")).status, 200);
    }
    assert_eq!(decisions(&proxy, "default"), [3, 0, 0]);
    for status in [200, 429] {
        let head = [&v1("203.0.113.9")[..], b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: "].concat();
        let mut client = proxy.connect();
        client.write(&String::from_utf8(head).expect("ASCII"));
        assert_eq!(client.send("10.1.2.3\r\n\r\n").status, status);
    }
    assert_eq!(decisions(&proxy, "default"), [3, 1, 1]);
}

/// The key is a header here, and the exemption is by the address all the same.
#[test]
fn a_network_is_exempt_whatever_the_key_is() {
    let proxy = start(&["--key", "header:x-key", "--exempt-network", "127.0.1.1"]);
    for (address, statuses) in [([127, 0, 1, 1], [200; 3]), ([127, 0, 1, 2], [200, 429, 429])] {
        let mut client = connect_from(address, proxy.address);
        assert_eq!([0; 3].map(|_| client.get_with("/", "X-Key: a\r\n").status), statuses, "{address:?}");
    }
    assert_eq!(decisions(&proxy, "default"), [3, 1, 2]);
}

#[test]
fn a_path_is_exempt_exactly_and_under_a_prefix_plainly() {
    let proxy = start(&["--exempt-path", "/health", "--exempt-path", "/static/*", "--exempt-path", "/a%20b"]);
    let mut client = proxy.connect();
    use_up(&mut client, "/");
    let exempt = [
        "/health",
        "/health?full=1",
        "/health?x=/../;",
        "http://a.example/health",
        "/static/",
        "/static/a.css",
        "/static/a/b/c.js?v=1",
        "/static/a/",
        "/static/.hidden/..a/a..",
        "/static/...",
        "/a%20b",
    ];
    for path in exempt {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
    assert_eq!(decisions(&proxy, "default")[0], exempt.len() as u64);
    for path in [
        "/health/",
        "/health/x",
        "/healthz",
        "/healt",
        "/HEALTH",
        "/%68ealth",
        "/health%20",
        "//health",
        "/./health",
        "/x/../health",
        "/health;x",
        "/health\\",
        "/static",
        "/statics",
        "/STATIC/a",
        "/%73tatic/a",
        "//static/a",
        "/x/../static/a",
        "/static//a",
        "/static//",
        "/static/./a",
        "/static/.",
        "/static/..",
        "/static/../login",
        "/static/a/../../login",
        "/static/a/..",
        "/static/%2e%2e/login",
        "/static/..%2flogin",
        "/static/..;/login",
        "/static/..\\login",
        "/static\\a",
        "/static;x/a",
        "/static/a;x",
        "/static/a%20b",
        "/static/caf\u{e9}",
        "/static%2fa",
        "/x/static/a",
        "/a%20b/",
        "/?/health",
        "/?path=/static/a",
        "http://a.example/?/static/a",
    ] {
        assert_eq!(client.get(path).status, 429, "{path}");
    }
    let http2 = Http2::connect(proxy.address);
    let uri = |path: &str| format!("http://a.example{path}");
    assert_eq!(http2.get(&uri("/static/a.css"), &[]).status, 200);
    for path in ["/static/../login", "/static/%2e%2e/login", "/static//a", "/health/"] {
        assert_eq!(http2.get(&uri(path), &[]).status, 429, "{path}");
    }
    assert_eq!(decisions(&proxy, "default")[0], exempt.len() as u64 + 1);
}

#[test]
fn no_spelling_takes_the_path_of_a_route_out_of_its_limit() {
    let folder = Folder::new();
    let file = "[[route]]\nprefix = \"/login\"\nlimit = \"1/h burst 1\"\n[exempt]\npaths = [\"/static/*\"]\n";
    let proxy = start(&["--config", &folder.write("routes.toml", file)]);
    let mut client = proxy.connect();
    use_up(&mut client, "/login");
    use_up(&mut client, "/");
    let ways_out = [
        "/static/..",
        "/static/x/../..",
        "/static/./..",
        "/static//..//..",
        "/static/%2e%2e",
        "/static/.%2E",
        "/static%2f..",
        "/static/x%2f..%2F..",
        "/static/..;x",
        "/static/..%3bx",
        "/static\\..",
        "/static/x\\..\\..",
        "/static/x%5c..%5c..",
        "//static",
        "/static;/..",
    ];
    let mut asked = 0;
    for spelling in ACCEPTED.lines().filter_map(|line| line.split_once(' ')).map(|(_, spelling)| spelling) {
        assert_eq!(client.get(spelling).status, 429, "{spelling}");
        for way in ways_out {
            let target = format!("{way}{spelling}");
            assert_eq!(client.get(&target).status, 429, "{target}");
            asked += 1;
        }
    }
    assert!(asked > 3_000, "{asked}");
    assert_eq!([decisions(&proxy, "/login")[0], decisions(&proxy, "default")[0]], [0, 0]);
    assert_eq!(client.get("/static/login").status, 200);
    assert_eq!([decisions(&proxy, "/login")[0], decisions(&proxy, "default")[0]], [0, 1]);
}

#[test]
fn no_spelling_but_its_own_makes_a_path_exempt() {
    let proxy = start(&["--exempt-path", "/login"]);
    let mut client = proxy.connect();
    use_up(&mut client, "/");
    let (mut exempt, mut limited) = (0, 0);
    for spelling in ACCEPTED.lines().filter_map(|line| line.split_once(' ')).map(|(_, spelling)| spelling) {
        let path = spelling.split(['?', '#']).next().expect("a path");
        let status = client.get(spelling).status;
        if path == "/login" {
            assert_eq!(status, 200, "{spelling}");
            exempt += 1;
        } else {
            assert_eq!(status, 429, "{spelling}");
            limited += 1;
        }
    }
    assert!(exempt > 3 && limited > 200, "{exempt} {limited}");
    assert_eq!(decisions(&proxy, "default"), [exempt, 1, limited + 1]);
}

#[test]
fn a_method_is_exempt_as_it_is_spelled() {
    let proxy = start(&["--exempt-method", "OPTIONS", "--exempt-method", "PROPFIND"]);
    let mut client = proxy.connect();
    use_up(&mut client, "/");
    let mut send = |method: &str| {
        let request = format!("{method} /login HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n");
        client.send(&request).status
    };
    for (method, status) in [
        ("OPTIONS", 200),
        ("PROPFIND", 200),
        ("options", 429),
        ("Options", 429),
        ("GET", 429),
        ("POST", 429),
        ("OPTION", 429),
        ("OPTIONSX", 429),
    ] {
        assert_eq!(send(method), status, "{method}");
    }
    let request =
        "POST / HTTP/1.1\r\nHost: a\r\nX-HTTP-Method-Override: OPTIONS\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.send(request).status, 429);
    assert_eq!(decisions(&proxy, "default")[0], 2);
}

#[test]
fn a_preflight_is_exempt_and_a_request_that_is_not_one_whole_is_limited() {
    let proxy = start(&["--exempt-preflights"]);
    let mut client = proxy.connect();
    use_up(&mut client, "/");
    let (origin, asks) = ("Origin: https://app.example\r\n", "Access-Control-Request-Method: PUT\r\n");
    for (method, headers, status) in [
        ("OPTIONS", format!("{origin}{asks}"), 200),
        ("OPTIONS", format!("{asks}Access-Control-Request-Headers: x-a\r\n{origin}"), 200),
        ("OPTIONS", origin.to_owned(), 429),
        ("OPTIONS", asks.to_owned(), 429),
        ("OPTIONS", String::new(), 429),
        ("GET", format!("{origin}{asks}"), 429),
        ("POST", format!("{origin}{asks}Content-Length: 0\r\n"), 429),
    ] {
        let request = format!("{method} /login HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n");
        assert_eq!(client.send(&request).status, status, "{method} {headers}");
    }
    let headers = [("origin", "https://app.example"), ("access-control-request-method", "PUT")];
    let http2 = Http2::connect(proxy.address);
    assert_eq!(http2.send(Method::OPTIONS, "http://a.example/", &headers, "").status, 200);
    assert_eq!(http2.send(Method::GET, "http://a.example/", &headers, "").status, 429);
    assert_eq!(decisions(&proxy, "default")[0], 3);
    // Without the option, a preflight is a request like others.
    let proxy = start(&[]);
    let mut client = proxy.connect();
    use_up(&mut client, "/");
    let preflight = format!("OPTIONS / HTTP/1.1\r\nHost: a.example\r\n{origin}{asks}\r\n");
    assert_eq!(client.send(&preflight).status, 429);
}

#[test]
fn a_reload_replaces_the_list_at_once_and_a_mistake_leaves_it() {
    let folder = Folder::new();
    let limit = "limit = \"1/h burst 1\"\n";
    let config = folder.write("exempt.toml", &format!("{limit}[exempt]\npaths = [\"/a\"]\n"));
    let proxy = Proxy::start(&["--config", &config, "--admin", "127.0.0.1:0"]);
    let read = |text: &str| {
        folder.write("exempt.toml", &format!("{limit}{text}"));
        proxy.reload()
    };
    let mut client = proxy.connect();
    use_up(&mut client, "/");
    assert_eq!(["/a", "/b"].map(|path| client.get(path).status), [200, 429]);
    let lines = read("[exempt]\npaths = [\"/b\"]\n");
    assert_eq!(lines, ["exempt.paths: /b, was /a"]);
    assert_eq!(["/a", "/b"].map(|path| client.get(path).status), [429, 200]);
    // The same connection, now by its address. A list that is not named stays.
    let lines = read("[exempt]\nnetworks = [\"127.0.0.1\"]\n");
    let stays = "exempt.paths: stays /b; a restart makes it none";
    assert_eq!(lines, ["exempt.networks: 127.0.0.1/32, was none", stays]);
    assert_eq!(["/a", "/b"].map(|path| client.get(path).status), [200, 200]);
    read("[exempt]\nnetworks = []\n");
    assert_eq!(["/a", "/b"].map(|path| client.get(path).status), [429, 200]);
    folder.write("exempt.toml", &format!("{limit}[exempt]\npaths = [\"/a\", \"/b/..\"]\n"));
    proxy.signal("-HUP");
    let error = proxy.error();
    assert!(error.contains("exempt.toml:3:16: \"/b/..\": ") && error.ends_with("as they were"), "{error}");
    assert_eq!(["/a", "/b"].map(|path| client.get(path).status), [429, 200]);
    read("[exempt]\npaths = []\nmethods = [\"GET\"]\n");
    assert_eq!(["/a", "/b"].map(|path| client.get(path).status), [200, 200]);
    read("[exempt]\nmethods = []\n");
    assert_eq!(["/a", "/b"].map(|path| client.get(path).status), [429, 429]);
    // The buckets and the counts are those of the start.
    assert_eq!(decisions(&proxy, "default"), [8, 1, 7]);
}

#[test]
fn an_exempt_request_obeys_the_bounds_on_requests_under_way() {
    let (held, is_asked, go_on) = stepwise();
    let bounds = ["--in-flight", "2", "--in-flight-per-key", "1", "--timeout", "queue=20ms"];
    let exempt = ["--exempt-network", "127.0.0.0/8", "--upstream", &url(held)];
    let proxy = start(&[&bounds[..], &exempt].concat());
    let ask = |last: u8| {
        let mut client = connect_from([127, 0, 0, last], proxy.address);
        client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let mut first = ask(1);
    is_asked.recv_timeout(PATIENCE).expect("there is a place");
    let reply = ask(1).read();
    assert_eq!(reply.status, 429);
    assert!(reply.body.contains("under way"), "{reply:?}");
    assert_eq!(count(&proxy, "in_flight_per_key_timeouts"), 1);
    let mut second = ask(2);
    is_asked.recv_timeout(PATIENCE).expect("there is a place");
    assert_eq!(ask(3).read().status, 503);
    assert_eq!(count(&proxy, "in_flight_timeouts"), 1);
    (0..2).for_each(|_| go_on.send(()).expect("the upstream waits"));
    assert_eq!([first.read().status, second.read().status], [200, 200]);
    assert_eq!(decisions(&proxy, "default"), [4, 0, 0]);
}

#[test]
fn an_exempt_request_is_counted_once_and_adds_no_series() {
    let folder = Folder::new();
    let file = "[[route]]\nprefix = \"/login\"\nlimit = \"1/h burst 1\"\nname = \"login\"\n\
                [exempt]\nnetworks = [\"127.0.1.0/24\"]\npaths = [\"/login\", \"/health\"]\nmethods = [\"GET\"]\n";
    let proxy = start(&["--config", &folder.write("counts.toml", file)]);
    let series = |policy: &str| {
        let label = format!("{{policy=\"{policy}\"");
        proxy.ask_admin("GET", "/metrics", "").body.lines().filter(|line| line.contains(&label)).count()
    };
    // 13 of the limit and four of its layer.
    assert_eq!([series("default"), series("login")], [17, 17]);
    // Several entries of the list name one request.
    for (path, times) in [("/login", 3), ("/health", 2), ("/", 1)] {
        for last in 1..=times {
            assert_eq!(connect_from([127, 0, 1, last], proxy.address).get(path).status, 200);
        }
    }
    assert_eq!([decisions(&proxy, "login"), decisions(&proxy, "default")], [[3, 0, 0], [3, 0, 0]]);
    assert_eq!([series("default"), series("login")], [17, 17]);
    // In shadow mode as well; a request without a limit has no decision.
    let proxy = start(&["--shadow", "--exempt-path", "/health"]);
    let mut client = proxy.connect();
    for path in ["/health", "/", "/"] {
        assert_eq!(client.get(path).status, 200);
    }
    assert_eq!(decisions(&proxy, "default"), [1, 1, 0]);
    let proxy = Proxy::start(&["--limit", "none", "--admin", "127.0.0.1:0", "--exempt-path", "/health"]);
    assert_eq!(proxy.connect().get("/health").status, 200);
    assert!(!proxy.ask_admin("GET", "/metrics", "").body.contains("tollgate_decisions_total"));
}

#[test]
fn a_list_that_takes_every_client_is_an_error() {
    for network in ["0.0.0.0/0", "::/0"] {
        let output = tollgate(&["check", "--exempt-network", network]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(&format!("the network {network} has every address")), "{stderr}");
        assert_ne!(output.status.code(), Some(0));
    }
    let output = tollgate(&["check", "--exempt-network", "10.0.0.0/8", "--exempt-preflights"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    assert!(stdout.lines().any(|line| line.starts_with("exempt.preflights ") && line.contains("  on ")));
}
