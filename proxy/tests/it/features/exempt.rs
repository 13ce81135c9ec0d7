//! The allow list: requests that no limit applies to.
//!
//! The limit is one request an hour, and its token is gone before a verdict. So 200 tells that a
//! request is exempt, and 429 that it is not.

use super::proxy_protocol::{ask, v1};
use crate::support::{Connection, GET, Http2, OK, Proxy, Reloaded, tollgate};

fn start(options: &str) -> Proxy {
    Proxy::start(&format!("--limit 1/h {options}"))
}

/// Returns the counts of exempt, granted and refused requests of a limit.
fn decisions(proxy: &Proxy, policy: &str) -> [u64; 3] {
    ["exempt", "granted", "refused"].map(|result| proxy.decided(policy, result))
}

/// Takes the token of a client, and checks that there was one.
fn use_up(client: &mut Connection, path: &str) {
    assert_eq!([0; 2].map(|_| client.get(path).status), [200, 429], "{path}");
}

#[test]
fn a_client_of_an_exempt_network_is_never_limited() {
    let proxy = start("--exempt-network 127.0.1.0/24 --exempt-network 127.0.3.3");
    for address in [[127, 0, 1, 1], [127, 0, 1, 255], [127, 0, 3, 3]] {
        let mut client = proxy.connect_from(address);
        for _ in 0..3 {
            let reply = client.get("/");
            assert_eq!((reply.status, reply.header("ratelimit")), (200, None), "{address:?}");
        }
    }
    assert_eq!(decisions(&proxy, "default"), [9, 0, 0]);
    // An exempt client is no key.
    assert_eq!(proxy.metric("tollgate_keys{policy=\"default\"}"), 0);
    for address in [[127, 0, 2, 1], [127, 0, 0, 1], [127, 0, 3, 2]] {
        use_up(&mut proxy.connect_from(address), "/");
    }
    assert_eq!(decisions(&proxy, "default"), [9, 3, 3]);
}

#[test]
fn an_exempt_address_counts_if_a_trusted_proxy_names_it_and_not_if_a_client_claims_it() {
    let proxy = start("--trust-proxy 127.0.0.1 --exempt-network 10.0.0.0/8");
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
    for claim in ["X-Real-IP: 10.1.2.3", "Forwarded: for=10.1.2.3", "X-Connection-IP: 10.1.2.3"] {
        assert_eq!(trusted.get_with("/", &format!("{claim}\r\n")).status, 429, "{claim}");
    }
    let mut other = proxy.connect_from([127, 0, 0, 2]);
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
    let proxy = start("--proxy-protocol --trust-proxy 127.0.0.1 --exempt-network 10.0.0.0/8");
    for _ in 0..3 {
        assert_eq!(ask(proxy.connect(), &v1("10.1.2.3")).status, 200);
    }
    assert_eq!(decisions(&proxy, "default"), [3, 0, 0]);
    for status in [200, 429] {
        let mut client = proxy.connect();
        client.try_write(v1("203.0.113.9")).expect("the proxy reads");
        assert_eq!(client.get_with("/", "X-Forwarded-For: 10.1.2.3\r\n").status, status);
    }
    assert_eq!(decisions(&proxy, "default"), [3, 1, 1]);
}

/// The key is a header here, and the exemption is by the address all the same.
#[test]
fn a_network_is_exempt_whatever_the_key_is() {
    let proxy = start("--key header:x-key --exempt-network 127.0.1.1");
    for (address, statuses) in [([127, 0, 1, 1], [200; 3]), ([127, 0, 1, 2], [200, 429, 429])] {
        let mut client = proxy.connect_from(address);
        assert_eq!([0; 3].map(|_| client.get_with("/", "X-Key: a\r\n").status), statuses, "{address:?}");
    }
    assert_eq!(decisions(&proxy, "default"), [3, 1, 2]);
}

#[test]
fn a_path_is_exempt_exactly_and_under_a_prefix_plainly() {
    let proxy = start("--exempt-path /health --exempt-path /static/* --exempt-path /a%20b");
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
    assert_eq!(http2.get("/static/a.css").status, 200);
    for path in ["/static/../login", "/static/%2e%2e/login", "/static//a", "/health/"] {
        assert_eq!(http2.get(path).status, 429, "{path}");
    }
    assert_eq!(decisions(&proxy, "default")[0], exempt.len() as u64 + 1);
}

#[test]
fn a_method_is_exempt_as_it_is_spelled() {
    let proxy = start("--exempt-method OPTIONS --exempt-method PROPFIND");
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

/// The tests of `tollgate-http` have the forms of a preflight.
#[test]
fn a_preflight_is_exempt_if_the_option_says_so() {
    let headers = "Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n";
    for (options, statuses) in [("--exempt-preflights", [200, 429]), ("", [429, 429])] {
        let proxy = start(options);
        let mut client = proxy.connect();
        use_up(&mut client, "/");
        let mut send = |method: &str| {
            client.send(&format!("{method} / HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n")).status
        };
        assert_eq!(["OPTIONS", "GET"].map(&mut send), statuses, "{options}");
    }
}

#[test]
fn a_reload_replaces_the_list_at_once_and_a_mistake_leaves_it() {
    let limit = "limit = \"1/h burst 1\"\n";
    let proxy = Reloaded::start(&format!("{limit}[exempt]\npaths = [\"/a\"]\n"));
    let read = |text: &str| proxy.read(&format!("{limit}{text}"));
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
    proxy.refuses(format!("{limit}[exempt]\npaths = [\"/a\", \"/b/..\"]\n"), ".toml:3:16: \"/b/..\": ");
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
    let bounds = "--in-flight 2 --in-flight-per-key 1 --timeout queue=20ms";
    let options = format!("--limit 1/h {bounds} --exempt-network 127.0.0.0/8");
    let (upstream, proxy) = Proxy::held(&options);
    let ask = |last: u8| proxy.write_from([127, 0, 0, last], GET);
    let first = (ask(1), upstream.next());
    let reply = ask(1).read();
    assert_eq!(reply.status, 429);
    assert!(reply.body.contains("under way"), "{reply:?}");
    assert_eq!(proxy.count("in_flight_per_key_timeouts"), 1);
    let second = (ask(2), upstream.next());
    assert_eq!(ask(3).read().status, 503);
    assert_eq!(proxy.count("in_flight_timeouts"), 1);
    for (mut client, held) in [first, second] {
        held.answer(OK);
        assert_eq!(client.read().status, 200);
    }
    assert_eq!(decisions(&proxy, "default"), [4, 0, 0]);
}

#[test]
fn an_exempt_request_is_counted_once_and_adds_no_series() {
    let text = "limit = \"1/h\"\n[[route]]\nprefix = \"/login\"\nlimit = \"1/h burst 1\"\nname = \"login\"\n\
                [exempt]\nnetworks = [\"127.0.1.0/24\"]\npaths = [\"/login\", \"/health\"]\nmethods = [\"GET\"]\n";
    let proxy = Reloaded::start(text);
    let series = |policy: &str| {
        let label = format!("{{policy=\"{policy}\"");
        proxy.metrics().lines().filter(|line| line.contains(&label)).count()
    };
    // 13 of the limit and five of its layer.
    assert_eq!([series("default"), series("login")], [18, 18]);
    // Several entries of the list name one request.
    for (path, times) in [("/login", 3), ("/health", 2), ("/", 1)] {
        for last in 1..=times {
            assert_eq!(proxy.connect_from([127, 0, 1, last]).get(path).status, 200);
        }
    }
    assert_eq!([decisions(&proxy, "login"), decisions(&proxy, "default")], [[3, 0, 0], [3, 0, 0]]);
    assert_eq!([series("default"), series("login")], [18, 18]);
    // In shadow mode as well; a request without a limit has no decision.
    let proxy = start("--shadow --exempt-path /health");
    let mut client = proxy.connect();
    for path in ["/health", "/", "/"] {
        assert_eq!(client.get(path).status, 200);
    }
    assert_eq!(decisions(&proxy, "default"), [1, 1, 0]);
    let proxy = Proxy::start("--limit none --exempt-path /health");
    assert_eq!(proxy.get("/health").status, 200);
    assert!(!proxy.metrics().contains("tollgate_decisions_total"));
}

#[test]
fn a_list_that_takes_every_client_is_an_error() {
    for network in ["0.0.0.0/0", "::/0"] {
        let ended = tollgate(&format!("check --exempt-network {network}"));
        ended.assert_mistake("", &format!("the network {network} has every address"));
    }
    let text = tollgate("check --exempt-network 10.0.0.0/8 --exempt-preflights").text();
    assert!(text.lines().any(|line| line.starts_with("exempt.preflights ") && line.contains("  on ")));
}
