//! nginx, HAProxy, Caddy and Envoy in front of the checks over HTTP, by the files of `examples/`.
//! The statements are those of docs/nginx.md, docs/haproxy.md, docs/caddy.md and docs/envoy.md.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use tempfile::TempDir;
use tollgate_testing::upstream::{OK, Upstream};
use tollgate_testing::wire::{Connection, Message};

use crate::client::{PATIENCE, Service};
use crate::envoy::example;
use crate::walk;

/// A text of an example, and the text that takes its place.
type Change = (&'static str, &'static str);

/// A proxy: its files below `examples/`, and its command.
struct Recipe {
    files: &'static [&'static str],
    command: &'static [&'static str],
    /// A longer deadline of its questions, for a busy machine.
    patience: Change,
    /// The changes by which a header of the client reaches the check, as the pages say.
    key: &'static [Change],
    /// The change by which it is closed while the service is away.
    close: Change,
    /// The statuses of a closed proxy while the service is stopped, and when it is gone.
    closed: [u16; 2],
}

const NGINX: Recipe = Recipe {
    files: &["nginx.conf"],
    command: &["nginx", "-p", ".", "-c", "nginx.conf", "-g", "daemon off; pid nginx.pid; error_log stderr;"],
    patience: ("100ms", "20s"),
    key: &[(
        "X-Real-IP $remote_addr;",
        "X-Real-IP $remote_addr; proxy_set_header X-Api-Key $http_x_api_key;",
    )],
    close: ("error_page 500 502 503 504 =200 /_open;", ""),
    closed: [500, 500],
};

const HAPROXY: Recipe = Recipe {
    files: &["haproxy.cfg", "haproxy.lua"],
    command: &["haproxy", "-db", "-f", "haproxy.cfg"],
    patience: ("DEADLINE = 0.05", "DEADLINE = 20"),
    key: &[
        ("X-Real-IP: %s", "X-Real-IP: %s\\r\\nX-Api-Key: %s"),
        ("get:src()", "get:src(), get:req_hdr(\"x-api-key\")"),
    ],
    close: ("#http-request return status 503", "http-request return status 503"),
    closed: [503, 503],
};

const CADDY: Recipe = Recipe {
    files: &["Caddyfile"],
    command: &["caddy", "run", "--adapter", "caddyfile", "--config", "Caddyfile"],
    patience: ("100ms", "20s"),
    key: &[],
    close: ("reverse_proxy @away 127.0.0.1:9000", ""),
    closed: [504, 502],
};

/// Envoy, by its filter for checks over HTTP. The filter for rate limits has tests of its own.
const ENVOY: Recipe = Recipe {
    files: &["envoy-http.yaml"],
    command: &["envoy", "-c", "envoy-http.yaml", "--use-dynamic-base-id", "--concurrency", "1"],
    patience: ("timeout: 0.1s", "timeout: 20s"),
    key: &[("{exact: x-forwarded-for}", "{exact: x-forwarded-for}, {exact: x-api-key}")],
    close: ("failure_mode_allow: true", "failure_mode_allow: false"),
    closed: [503, 503],
};

/// A process of a proxy, the service that it asks, and the folder of its files.
struct Proxy {
    child: Child,
    address: SocketAddr,
    service: Service,
    upstream: Upstream<Message>,
    _folder: TempDir,
}

/// An address that no other test has: proxies of Debian cannot take a free port and tell it.
fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(8_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    (Ipv4Addr::new(127, 64 | high, middle, low), NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// The spellings of an address in the files: of most, of Lua, and of Envoy.
fn spellings(address: SocketAddr) -> [String; 3] {
    let (ip, port) = (address.ip(), address.port());
    [address.to_string(), format!("\"{ip}\", {port}"), format!("address: {ip}, port_value: {port}")]
}

impl Proxy {
    /// Starts the service and the proxy, with changes of its files. Each check asks for a key too.
    fn start(recipe: &Recipe, changes: &[Change]) -> Proxy {
        let folder = tempfile::tempdir().expect("a folder");
        let checks = folder.path().join("checks.toml");
        let text = fs::read_to_string(example("checks.toml")).expect("the example");
        let path = "  { path = \"{path}\" },\n";
        assert!(text.contains(path));
        let key = format!("{path}  {{ api_key = \"{{header:x-api-key}}\" }},\n");
        fs::write(&checks, text.replace(path, &key)).expect("it is written");
        let options = ["--config", checks.to_str().expect("UTF-8")];
        let service = Service::of_the_example(&options);
        let (address, upstream) = (own_address(), Upstream::answering(OK));
        let bind = ("bind 127.0.0.1\n".to_owned(), format!("bind {}\n", address.ip()));
        let mut ports = vec![bind, ("http://:8000".to_owned(), format!("http://:{}", address.port()))];
        for (from, to) in [(8_000, address), (9_000, upstream.address), (8_080, service.http_address())] {
            ports.extend(spellings(SocketAddr::from(([127, 0, 0, 1], from))).into_iter().zip(spellings(to)));
        }
        let text_of = |name| fs::read_to_string(example(name)).expect("the example");
        for (from, _) in changes {
            assert!(recipe.files.iter().any(|name| text_of(name).contains(from)), "{from}");
        }
        for name in recipe.files {
            let text = changes.iter().fold(text_of(name), |text, (from, to)| text.replace(from, to));
            let text = ports.iter().fold(text, |text, (from, to)| text.replace(from, to));
            // Caddy's port of administration is one for the machine.
            let text = text.replace("\n\tservers {", "\n\tadmin off\n\tservers {");
            fs::write(folder.path().join(name), text).expect("it is written");
        }
        let program = if recipe.command[0] == "envoy" { std::env::var_os("ENVOY") } else { None };
        let mut command = Command::new(program.unwrap_or_else(|| recipe.command[0].into()));
        command.args(&recipe.command[1..]).current_dir(&folder).env("HOME", folder.path());
        let errors = fs::File::create(folder.path().join("errors")).expect("a file");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn();
        let mut proxy =
            Proxy { child: child.expect("it starts"), address, service, upstream, _folder: folder };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = proxy.child.try_wait().expect("a child");
            let errors = || fs::read_to_string(proxy._folder.path().join("errors"));
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "{:?}", errors());
        }
        proxy
    }

    /// The answer to a request from an address of this host.
    fn ask(&self, from: u8, line: &str, headers: &str) -> Message {
        let mut connection = Connection::connect_from([127, 0, 0, from], self.address);
        connection.write(&format!("{line} HTTP/1.1\r\nHost: edge\r\n{headers}Connection: close\r\n\r\n"));
        connection.reply("GET").expect("a response").expect("a response").0
    }

    fn get(&self, path: &str) -> u16 {
        self.ask(1, &format!("GET {path}"), "").status
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx has workers, which SIGTERM ends. Each call fails only if the process has ended.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

fn a_limit_is_told_and_its_end_is_a_429_with_a_time(recipe: &Recipe) {
    let proxy = Proxy::start(recipe, &[recipe.patience]);
    let answer = proxy.ask(1, "GET /", "");
    let told = |answer: &Message, name| answer.header(name).unwrap_or_default().to_owned();
    assert!(told(&answer, "ratelimit").contains(";r=599;t="), "{answer:?}");
    assert!(told(&answer, "ratelimit-policy").ends_with(";q=600;w=60"), "{answer:?}");
    proxy.upstream.next();
    let mut client = Connection::connect(proxy.address);
    let post = "POST /a HTTP/1.1\r\nHost: edge\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(client.send(post).status, 200);
    let passed = proxy.upstream.next();
    assert!(passed.start.starts_with("POST /a ") && passed.body == "body", "{passed:?}");
    assert_eq!([0; 6].map(|_| proxy.get("/login")), [200, 200, 200, 200, 200, 429]);
    let answer = proxy.ask(1, "GET /login", "");
    let wait = told(&answer, "retry-after").parse().unwrap_or(0);
    assert!((1..=31_536_000).contains(&wait), "{answer:?}");
    assert!(told(&answer, "ratelimit").starts_with("\"login\";r=0;t="), "{answer:?}");
    assert_eq!(told(&answer, "ratelimit-policy"), "\"login\";q=5;w=31536000");
    assert_eq!(told(&answer, "cache-control"), "no-store");
}

fn no_spelling_of_a_path_passes_its_limit(recipe: &Recipe) {
    let proxy = Proxy::start(recipe, &[recipe.patience]);
    walk::spellings(proxy.address);
    let long = format!("/login?{}", "a".repeat(7_900));
    assert_eq!(proxy.get(&long), 429);
}

fn no_value_passes_a_limit(recipe: &Recipe) {
    let proxy = Proxy::start(recipe, &[&[recipe.patience], recipe.key].concat());
    walk::values(proxy.address);
}

fn a_header_of_a_client_hides_nothing(recipe: &Recipe) {
    let proxy = Proxy::start(recipe, &[recipe.patience]);
    let forged = |number| {
        format!(
            "X-Real-IP: 192.0.2.{number}\r\nX-Forwarded-For: 192.0.2.{number}\r\nX-Original-URI: /free\r\n\
             X-Forwarded-Uri: /free\r\nX-Original-Method: PUT\r\nX-Forwarded-Method: PUT\r\n\
             X-Forwarded-Host: free\r\n"
        )
    };
    let ask = |from, line: &str, number| proxy.ask(from, line, &forged(number)).status;
    assert_eq!([1, 2, 3].map(|number| ask(9, "GET /report", number)), [200, 200, 429]);
    assert_eq!(ask(10, "GET /report", 1), 200);
    assert_eq!([1, 2, 3, 4, 5, 6].map(|number| ask(9, "GET /login", number)), [200, 200, 200, 200, 200, 429]);
    // Neither a head that is too long for the service, nor headers that the client calls its own.
    let long = (0..3).map(|number| format!("X-Long-{number}: {}\r\n", "a".repeat(7_000)));
    let own = "Connection: X-Real-IP, X-Forwarded-For, X-Forwarded-Uri, X-Original-URI\r\n";
    for headers in [&long.collect::<String>(), own] {
        let statuses = ["GET /login", "GET /report"].map(|line| proxy.ask(9, line, headers).status);
        assert!(statuses.iter().all(|status| [400, 429, 431].contains(status)), "{statuses:?}");
    }
}

fn a_service_that_is_stopped_or_gone_is_passed_by_or_refused_as_the_file_says(recipe: &Recipe) {
    for (changes, [stopped, gone]) in [(&[][..], [200, 200]), (&[recipe.close], recipe.closed)] {
        let mut proxy = Proxy::start(recipe, changes);
        proxy.service.freeze();
        assert_eq!(proxy.get("/"), stopped, "stopped");
        proxy.service.signal("-CONT");
        let begin = Instant::now();
        while proxy.ask(1, "GET /", "").header("ratelimit").is_none() {
            assert!(begin.elapsed() < PATIENCE, "it does not go on");
        }
        proxy.service.kill();
        let answer = proxy.ask(1, "GET /", "");
        assert_eq!(answer.status, gone, "gone");
        assert_eq!(answer.body == "ok", gone == 200, "{answer:?}");
    }
}

/// Each statement as a test of each proxy.
macro_rules! tests {
    ($recipe:ident in $module:ident: $($statement:ident)*) => {
        mod $module {
            $(#[test]
            #[ignore = "needs the proxy: verify/rigs/behind-proxies"]
            fn $statement() {
                super::$statement(&super::$recipe);
            })*
        }
    };
    ($($recipe:ident in $module:ident),*) => {
        $(tests!($recipe in $module: a_limit_is_told_and_its_end_is_a_429_with_a_time
            no_spelling_of_a_path_passes_its_limit
            no_value_passes_a_limit
            a_header_of_a_client_hides_nothing
            a_service_that_is_stopped_or_gone_is_passed_by_or_refused_as_the_file_says);)*
    };
}

tests!(NGINX in nginx, HAPROXY in haproxy, CADDY in caddy, ENVOY in envoy);
