//! A real Envoy in front of the service, by the files of `examples/`: row by row of docs/envoy.md.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

mod gateways;
mod of_control_plane;
mod rolling;

use crate::client::{PATIENCE, Service};
use tollgate_common::testing::frames::{RESET, fields, frame, head};
use tollgate_common::testing::{Frames, until};

/// An Envoy, the service that it asks, and an upstream that holds back `/jobs/held` until a permit.
pub(crate) struct Edge {
    envoy: Child,
    pub(crate) address: SocketAddr,
    service: Service,
    permits: Arc<Semaphore>,
    client: Client<HttpConnector, Empty<Bytes>>,
    runtime: Runtime,
}

pub(crate) fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

impl Edge {
    /// Starts all three. `change` is applied to the file of Envoy.
    pub(crate) fn start(change: impl FnOnce(String) -> String) -> Edge {
        Edge::start_with(&[], change)
    }

    /// Starts all three, and the service with options.
    fn start_with(options: &[&str], change: impl FnOnce(String) -> String) -> Edge {
        Edge::start_on(Service::of_the_example(options), change)
    }

    /// Starts the others beside a service.
    fn start_on(service: Service, change: impl FnOnce(String) -> String) -> Edge {
        let runtime = Runtime::new().expect("a runtime");
        let permits = Arc::new(Semaphore::new(0));
        let upstream = runtime.block_on(serve(permits.clone()));
        let folder = tempfile::tempdir().expect("a folder");
        let text = fs::read_to_string(example("envoy.yaml")).expect("the example");
        let mut text = change(text);
        for (from, to) in [(10000, 0), (9901, 0), (9000, upstream.port()), (8081, service.grpc().port())] {
            let from = format!("port_value: {from}}}");
            assert!(text.contains(&from), "{from}");
            text = text.replace(&from, &format!("port_value: {to}}}"));
        }
        let file = folder.path().join("envoy.yaml");
        fs::write(&file, text).expect("it is written");
        let admin = folder.path().join("admin");
        let mut command = Command::new(std::env::var_os("ENVOY").expect("the path of Envoy"));
        command.arg("-c").arg(file).arg("--admin-address-path").arg(&admin).args([
            "--use-dynamic-base-id",
            "--concurrency",
            "1",
        ]);
        let mut envoy = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(envoy.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let started =
            lines.find(|line| line.contains("starting main dispatch loop") || line.contains("[critical]"));
        assert!(started.as_ref().is_some_and(|line| !line.contains("[critical]")), "{started:?}");
        // A pipe that is not read would stop Envoy. Its words are shown with a test that fails.
        std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut edge =
            Edge { envoy, address: SocketAddr::from(([0; 4], 0)), service, permits, client, runtime };
        edge.address = fs::read_to_string(admin).expect("it listens").parse().expect("an address");
        let listeners: Value =
            serde_json::from_str(&edge.get("/listeners?format=json", &[]).2).expect("JSON");
        let port = &listeners["listener_statuses"][0]["local_address"]["socket_address"]["port_value"];
        edge.address.set_port(port.as_u64().expect("a port") as u16);
        // The port is bound before Envoy listens: it awaits the first health checks.
        until("listening", || TcpStream::connect(edge.address).is_ok());
        edge
    }

    /// The status, the headers and the body of a response.
    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, String) {
        self.runtime.block_on(self.request(path, headers))
    }

    fn request(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> impl Future<Output = (u16, HeaderMap, String)> + Send + 'static {
        let mut request = Request::get(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.client.request(request.body(Empty::new()).expect("a request"));
        async {
            let (head, body) = response.await.expect("a response").into_parts();
            let body = body.collect().await.expect("a whole body").to_bytes();
            (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).expect("text"))
        }
    }

    fn statuses<const N: usize>(&self, path: &str, headers: &[(&str, &str)]) -> [u16; N] {
        std::array::from_fn(|_| self.get(path, headers).0)
    }

    /// Waits until a counter of the service is told: Envoy does not wait for the end of a charge.
    fn await_counter(&self, name: &str, wanted: u64) {
        let begin = Instant::now();
        loop {
            let found = self.service.counters()[name].as_u64().unwrap_or(0);
            if found == wanted {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{name} is {found}, not {wanted}");
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        if let Ok(Some(ended)) = self.envoy.try_wait() {
            eprintln!("Envoy has ended: {ended}");
        }
        // The call fails only if the process has already ended.
        let _ = self.envoy.kill();
        let _ = self.envoy.wait();
    }
}

async fn serve(permits: Arc<Semaphore>) -> SocketAddr {
    let held = async |State(permits): State<Arc<Semaphore>>| permits.acquire().await.expect("open").forget();
    let router = Router::new()
        .route("/jobs/held", axum::routing::get(held))
        .fallback(async |uri: Uri| {
            ([("x-cost", "60"), ("x-target", &*uri.to_string())], "served").into_response()
        })
        .with_state(permits);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async { axum::serve(listener, router).await });
    address
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    headers[name].to_str().expect("ASCII").parse().expect("a number")
}

#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn a_limit_is_told_in_headers_and_its_end_is_a_429_with_a_time() {
    let edge = Edge::start(|text| text);
    let (status, headers, body) = edge.get("/", &[]);
    assert_eq!((status, &*body), (200, "served"));
    assert_eq!(headers["x-ratelimit-limit"], "600, 600;w=60");
    assert!(number(&headers, "x-ratelimit-remaining") >= 599 && number(&headers, "x-ratelimit-reset") <= 60);
    assert_eq!(edge.statuses("/login", &[]), [200, 200, 200, 200, 200, 429]);
    let (status, headers, _) = edge.get("/login", &[]);
    assert_eq!(
        (status, &headers["x-ratelimit-limit"]),
        (429, &"5, 5;w=31536000;name=\"login\", 600;w=60".parse().expect("ASCII"))
    );
    assert!((1..=31_536_000).contains(&number(&headers, "retry-after")), "{headers:?}");
    assert_eq!(headers["cache-control"], "no-store");
}

#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn tokens_are_charged_at_the_end_of_a_response() {
    let edge = Edge::start(|text| text);
    let user = [("x-user", "ada")];
    let hits = "rate_limit.edge.model_user.total_hits";
    // A look takes none; each response has cost 60 of 100, so that the second goes beyond.
    for charged in [60, 120] {
        assert_eq!(edge.get("/model", &user).0, 200);
        edge.await_counter(hits, charged);
    }
    assert_eq!(edge.statuses("/model", &user), [429, 429]);
    assert_eq!(edge.get("/model", &[("x-user", "bob")]).0, 200);
    // All requests without a user are one.
    for charged in [240, 300] {
        assert_eq!(edge.get("/model", &[]).0, 200);
        edge.await_counter(hits, charged);
    }
    for path in ["/model", "//MODEL", "/mode%6c", "/x/..;/model", "/;a/model", "/%256dodel"] {
        assert_eq!(edge.get(path, &[]).0, 429, "{path}");
    }
}

#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn requests_in_flight_give_their_place_back() {
    let edge = Edge::start(|text| text);
    let user = [("x-user", "ada")];
    let returned = "rate_limit.edge.job_user.total_negative_hits";
    let held = edge.runtime.spawn(edge.request("/jobs/held", &user));
    edge.await_counter("rate_limit.edge.job_user.total_hits", 1);
    for passed in 1..=8 {
        assert_eq!(edge.get("/jobs", &user).0, 200);
        edge.await_counter(returned, passed);
    }
    let more = [0; 2].map(|_| edge.runtime.spawn(edge.request("/jobs/held", &user)));
    edge.await_counter("rate_limit.edge.job_user.total_hits", 11);
    assert_eq!(edge.get("/jobs", &user).0, 429);
    // The refusal has counted one as well, and its end gives it back.
    edge.await_counter(returned, 9);
    edge.permits.add_permits(3);
    for one in more.into_iter().chain([held]) {
        assert_eq!(edge.runtime.block_on(one).expect("no panic").0, 200);
    }
}

#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn hits_of_a_virtual_host_are_ignored_by_envoy() {
    let edge = Edge::start(|text| {
        let action =
            "- actions: [{masked_remote_address: {v4_prefix_mask_len: 32, v6_prefix_mask_len: 64}}]\n";
        assert!(text.contains(action));
        text.replace(action, &format!("{action}                          hits_addend: {{number: 0}}\n"))
    });
    assert_eq!(edge.get("/", &[]).0, 200);
    assert!(edge.service.counters().as_object().expect("names").iter().any(|(name, value)| {
        name.starts_with("rate_limit.edge.masked_remote_address")
            && name.ends_with(".total_hits")
            && value == 1
    }));
}

#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn a_route_that_envoy_answers_itself_is_not_limited() {
    let edge = Edge::start(|text| {
        let route = "- match: {prefix: /}\n                          route: *service\n";
        assert!(text.contains(route));
        text.replace(
            route,
            "- match: {prefix: /}\n                          direct_response: {status: 204}\n",
        )
    });
    assert_eq!(edge.get("/", &[]).0, 204);
    let counters = edge.service.counters();
    let hits = counters.as_object().expect("names").iter().filter(|(name, _)| name.ends_with(".total_hits"));
    assert!(hits.clone().count() > 0 && hits.into_iter().all(|(_, hits)| hits == 0), "{counters}");
}

#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn a_service_that_is_stopped_or_gone_is_passed_by_or_refused_as_the_file_says() {
    for (deny, status) in [(false, StatusCode::OK), (true, StatusCode::INTERNAL_SERVER_ERROR)] {
        let mut edge = Edge::start(|text| {
            assert!(text.contains("failure_mode_deny: false"));
            text.replace("failure_mode_deny: false", &format!("failure_mode_deny: {deny}"))
        });
        assert_eq!(edge.get("/", &[]).0, 200);
        edge.service.freeze();
        assert_eq!(edge.get("/", &[]).0, status.as_u16(), "stopped, {deny}");
        edge.service.signal("-CONT");
        let begin = Instant::now();
        while edge.get("/", &[]).0 != 200 {
            assert!(begin.elapsed() < PATIENCE, "it does not go on");
        }
        edge.service.kill();
        assert_eq!(edge.get("/", &[]).0, status.as_u16(), "gone, {deny}");
    }
}

/// The retries of a route are for answers of an upstream, and this filter answers itself.
#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn a_refusal_is_asked_for_once_whatever_a_route_retries() {
    let edge = Edge::start(|text| {
        let route = "route: &service {cluster: service}";
        assert!(text.contains(route));
        let on = "retry_on: \"retriable-4xx,resource-exhausted,retriable-status-codes\"";
        let policy = format!("{{{on}, retriable_status_codes: [429], num_retries: 2}}");
        text.replace(route, &format!("route: &service {{cluster: service, retry_policy: {policy}}}"))
    });
    assert_eq!(edge.statuses("/login", &[]), [200, 200, 200, 200, 200, 429, 429]);
    edge.await_counter("rate_limit.edge.path_/login.total_hits", 7);
}

/// Sends a request of any bytes, and returns the status.
fn status_of(at: SocketAddr, target: &[u8], headers: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(at).expect("it listens");
    let head = [b"GET ", target, b" HTTP/1.1\r\nhost: a\r\nconnection: close\r\n", headers, b"\r\n"];
    // Envoy may answer, and close, before it has read all.
    let _ = stream.write_all(&head.concat());
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// The limit of the login is used up, and holds for each request. No request passes, whatever the
/// path and the header have.
#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn no_value_of_a_client_turns_a_limit_off() {
    let edge = Edge::start(|text| {
        let actions = [
            "{generic_key: {descriptor_key: path, descriptor_value: /login}}",
            "{request_headers: {header_name: x-user, descriptor_key: model_user}}",
        ];
        let action = |action: &str| format!("                        - actions: [{action}]\n");
        let first = "                        - actions: [{masked_remote_address: {v4_prefix_mask_len: 32, v6_prefix_mask_len: 64}}]\n";
        let changes = [
            (first, first.to_owned() + &actions.map(action).concat()),
            (
                "stat_prefix: edge",
                "stat_prefix: edge\n                max_request_headers_kb: 8192".to_owned(),
            ),
            // A busy machine shall let none pass.
            ("timeout: 0.1s", "timeout: 10s".to_owned()),
        ];
        changes.iter().fold(text, |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        })
    });
    assert_eq!(edge.statuses("/", &[]), [200, 200, 200, 200, 200, 429]);
    let header = |value: &[u8]| [b"x-user: ", value, b"\r\n"].concat();
    let lengths = [0, 1, 4_095, 4_096, 4_097, 16 << 10, 60 << 10, 1 << 20, 3 << 20, 5 << 20];
    let long = lengths.map(|length| b"v".repeat(length)).into_iter().chain([b"\xff".repeat(60 << 10)]);
    let bytes = (1..=255).filter(|byte| !b"\r\n".contains(byte)).map(|byte| vec![b'v', byte, b'v']);
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"/".to_vec(), Vec::new()),
        (b"/".to_vec(), [header(b"a"), header(b"b")].concat()),
        (b"/".to_vec(), [header(b""), header(b"")].concat()),
    ];
    for value in long.chain(bytes) {
        rows.push((b"/".to_vec(), header(&value)));
        rows.push(([b"/?", &*value].concat(), header(b"a")));
    }
    let asked = rows.len();
    let mut told = std::collections::BTreeMap::<u16, usize>::new();
    for (target, headers) in rows {
        *told.entry(status_of(edge.address, &target, &headers)).or_default() += 1;
    }
    println!("{asked} requests by their status: {told:?}");
    assert!(told.keys().all(|status| [429, 400, 431].contains(status)), "{told:?}");
    // Envoy itself refuses control characters, and a path that is not ASCII.
    assert!(told[&429] > 300, "{told:?}");
}

/// Envoy ends the question of a request that its client takes back, on the connection that carries
/// the questions of all.
#[test]
#[ignore = "needs Envoy: verify/rigs/behind-proxies"]
fn requests_that_are_taken_back_fail_no_question_of_others() {
    let edge = Edge::start(|text| text.replace("timeout: 0.1s", "timeout: 10s"));
    assert_eq!(edge.statuses("/login", &[]), [200, 200, 200, 200, 200, 429]);
    let fields = fields("GET", "/", &[]);
    let reset = |number| [head(number, 1, &fields), frame(RESET, 0, number, &8_u32.to_be_bytes())].concat();
    let burst: Vec<u8> = (0..85).flat_map(|number| reset(2 * number + 1)).collect();
    let told: Vec<u16> = (0..100)
        .map(|_| {
            let mut client = Frames::connect(edge.address, &[]);
            // Envoy may close the connection before all is written.
            let _ = client.try_write(&burst);
            edge.get("/login", &[]).0
        })
        .collect();
    let passed = told.iter().filter(|status| **status != 429).count();
    assert_eq!(passed, 0, "of {}", told.len());
}
