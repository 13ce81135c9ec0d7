//! Each example does as its first page says.

use std::io::Read;
use std::time::Instant;

use http::{Request, Response};
use hyper::body::Bytes;

use crate::support::{Client, PATIENCE, Server, output, says, status};

#[tokio::test]
async fn hello_limits_by_address_and_stops_when_told() {
    let server = Server::start(env!("CARGO_BIN_EXE_hello"));
    let mut client = Client::connect(&server.address).await;
    let response = client.get("/").await;
    assert_eq!((status(&response), response.body().as_ref()), (200, &b"hello\n"[..]));
    assert_eq!(says(&response, "ratelimit-policy"), Some(r#""default";q=1000;w=1"#));
    assert_eq!(says(&response, "ratelimit"), Some(r#""default";r=999;t=1"#));
    drop(client);
    assert!(server.stop().await.success());
}

/// A signal before the first poll of the future would end the process of this test.
#[cfg(unix)]
#[tokio::test]
async fn a_signal_is_caught_from_the_call_on() {
    let stopped = tollgate_web_examples::stop();
    let this = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &this]).status().unwrap().success());
    tokio::time::timeout(PATIENCE, stopped).await.expect("it was caught");
}

#[tokio::test]
async fn hyper_says_why_in_json() {
    let server = Server::start(env!("CARGO_BIN_EXE_hyper"));
    let mut client = Client::connect(&server.address).await;
    let begun = Instant::now();
    let refused = loop {
        let response = client.get("/").await;
        match status(&response) {
            200 => assert!(says(&response, "ratelimit").is_some() && begun.elapsed() < PATIENCE),
            _ => break response,
        }
    };
    assert_eq!((status(&refused), says(&refused, "retry-after")), (429, Some("1")));
    assert_eq!(says(&refused, "content-type"), Some("application/problem+json"));
    assert!(refused.body().ends_with(br#""violated-policies":["default"]}"#));
    drop(client);
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn only_logins_that_fail_count() {
    let server = Server::start(env!("CARGO_BIN_EXE_login"));
    let mut client = Client::connect(&server.address).await;
    let mut login = async |password: &str| {
        status(&client.send(Request::post("/login").body(password.to_owned()).unwrap()).await)
    };
    for _ in 0..20 {
        assert_eq!(login("open sesame").await, 200);
    }
    for _ in 0..5 {
        assert_eq!(login("guess").await, 401);
    }
    assert_eq!([login("guess").await, login("open sesame").await], [429, 429]);
    assert_eq!(status(&client.get("/").await), 200);
    drop(client);
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn each_tier_has_its_plan_and_strangers_have_none() {
    let server = Server::start(env!("CARGO_BIN_EXE_tiers"));
    let mut client = Client::connect(&server.address).await;
    let mut ask = async |key: Option<&str>| {
        let mut request = Request::get("/");
        if let Some(key) = key {
            request = request.header("X-API-Key", key);
        }
        client.send(request.body(String::new()).unwrap()).await
    };
    let policies = |response: &Response<Bytes>| {
        let policies = response.headers().get_all("ratelimit-policy").iter();
        policies.map(|policy| policy.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (free, pro) = (ask(Some("free-1")).await, ask(Some("pro-1")).await);
    assert_eq!([status(&free), status(&pro)], [200, 200]);
    assert_eq!(policies(&free), [r#""customer";q=5;w=1"#, r#""address";q=200;w=1"#]);
    assert_eq!(policies(&pro), [r#""customer";q=50;w=1"#, r#""address";q=200;w=1"#]);
    for stranger in [None, Some("made-up")] {
        let response = ask(stranger).await;
        assert_eq!(status(&response), 401);
        assert_eq!(policies(&response), [r#""address";q=200;w=1"#]);
    }
    // A free customer without tokens takes none of the other's.
    let begun = Instant::now();
    let refused = loop {
        let response = ask(Some("free-1")).await;
        match status(&response) {
            200 => assert!(begun.elapsed() < PATIENCE),
            _ => break response,
        }
    };
    assert_eq!((status(&refused), &policies(&refused)[0][..]), (429, r#""customer";q=5;w=1"#));
    assert_eq!(status(&ask(Some("pro-1")).await), 200);
    drop(client);
    assert!(server.stop().await.success());
}

/// Asks for a path until a response is there that the caller looks for, and returns those before it
/// as well.
async fn ask_until(
    client: &mut Client,
    request: impl Fn() -> Request<String>,
    found: impl Fn(&Response<Bytes>) -> bool,
) -> Vec<Response<Bytes>> {
    let (begun, mut responses) = (Instant::now(), Vec::new());
    loop {
        let response = client.send(request()).await;
        let is_last = found(&response);
        responses.push(response);
        if is_last {
            return responses;
        }
        assert!(begun.elapsed() < PATIENCE, "{:?}", responses.last());
    }
}

fn get(path: &str) -> Request<String> {
    Request::get(path).body(String::new()).unwrap()
}

const PAGE: &str = include_str!("../../src/bin/axum.html");

#[test]
fn the_program_of_the_page_is_under_80_lines() {
    assert!(include_str!("../../src/bin/axum.rs").lines().count() < 80);
}

#[tokio::test]
async fn the_page_has_a_button_for_each_path_of_its_server() {
    let server = Server::start(env!("CARGO_BIN_EXE_axum"));
    let mut client = Client::connect(&server.address).await;
    let page = client.get("/").await;
    assert_eq!((status(&page), page.body().as_ref()), (200, PAGE.as_bytes()));
    let paths: Vec<&str> =
        PAGE.split("data-path=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(paths.len(), 7);
    for path in paths {
        // The first request of each is granted, but for `/hello` only the first ones.
        let response = client.get(path).await;
        assert_eq!(status(&response), 200, "{path}");
    }
    drop(client);
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn the_page_exempts_logs_and_bans() {
    let (server, mut stderr) = Server::start_with_stderr(env!("CARGO_BIN_EXE_axum"));
    let mut client = Client::connect(&server.address).await;
    let banned = |response: &Response<Bytes>| {
        status(response) == 429 && says(response, "retry-after").unwrap().parse::<u64>().unwrap() > 2
    };
    let responses = ask_until(&mut client, || get("/hello"), banned).await;
    let (last, before) = responses.split_last().unwrap();
    assert_eq!(says(last, "retry-after"), Some("10"));
    let statuses: Vec<u16> = before.iter().map(status).collect();
    assert_eq!(statuses[..3], [200; 3]);
    // The fifth refusal begins the ban.
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 4);
    // The banned client is granted all that is exempt, without fields of a limit.
    for path in ["/health", "/static/logo.txt", "/", "/stats"] {
        let response = client.get(path).await;
        assert_eq!((status(&response), says(&response, "ratelimit")), (200, None), "{path}");
    }
    let stats = client.get("/stats").await;
    let stats = String::from_utf8(stats.body().to_vec()).unwrap();
    for count in [r#"result="exempt"} 5"#, r#"result="refused"} 5"#, r#"bans_total{policy="requests"} 1"#] {
        assert!(stats.contains(count), "{stats}");
    }
    drop(client);
    assert!(server.stop().await.success());
    let mut log = String::new();
    stderr.read_to_string(&mut log).unwrap();
    let refusals: Vec<&str> = log.lines().filter(|line| line.contains("tollgate: refused")).collect();
    assert_eq!(refusals.len(), 5, "{log}");
    assert!(refusals.iter().all(|line| line.contains(r#"policy="requests" key=""#)), "{log}");
    assert!(refusals[3].contains("banned=false") && refusals[4].contains("banned=true"), "{log}");
    assert!(!log.contains("127.0.0.1"), "{log}");
}

#[tokio::test]
async fn the_page_charges_the_bytes_of_a_download() {
    let server = Server::start(env!("CARGO_BIN_EXE_axum"));
    let mut client = Client::connect(&server.address).await;
    let begun = Instant::now();
    let responses = ask_until(&mut client, || get("/download"), |response| status(response) == 429).await;
    let bytes: usize = responses.iter().filter(|one| status(one) == 200).map(|one| one.body().len()).sum();
    // The burst and the bytes earned meanwhile, and a burst of debt.
    let earned = begun.elapsed().as_millis() as usize;
    assert!((8_000..=10_000 + earned).contains(&bytes), "{bytes} bytes in {earned} ms");
    let wait = says(responses.last().unwrap(), "retry-after").unwrap().parse::<u64>().unwrap();
    assert!(wait >= 1, "{wait}");
    drop(client);
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn the_page_lets_a_request_wait_and_tells_the_wait() {
    let server = Server::start(env!("CARGO_BIN_EXE_axum"));
    let mut client = Client::connect(&server.address).await;
    let waits = |response: &Response<Bytes>| says(response, "server-timing").is_some();
    let begun = Instant::now();
    let responses = ask_until(&mut client, || get("/slow"), waits).await;
    assert!(responses.iter().all(|response| status(response) == 200));
    let timing = says(responses.last().unwrap(), "server-timing").unwrap();
    let millis: u64 = timing.strip_prefix("ratelimit;dur=").unwrap().parse().unwrap();
    // A timer of a busy machine is late, and no wait is longer than the whole exchange.
    let all = begun.elapsed().as_millis() as u64;
    assert!((1..=all).contains(&millis), "{timing} in {all} ms");
    drop(client);
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn routes_have_limits_by_route_and_method() {
    let server = Server::start(env!("CARGO_BIN_EXE_routes"));
    let mut client = Client::connect(&server.address).await;
    let ask = |method: &str, path: &str, token: &str| {
        let request = Request::builder().method(method).uri(path);
        request.header("authorization", format!("Bearer {token}")).body(String::new()).unwrap()
    };
    let policies = |response: &Response<Bytes>| {
        let policies = response.headers().get_all("ratelimit-policy").iter();
        let name =
            |policy: &http::HeaderValue| policy.to_str().unwrap().split('"').nth(1).unwrap().to_owned();
        policies.map(name).collect::<Vec<_>>()
    };
    let read = client.send(ask("GET", "/items/1", "ada")).await;
    // The limit with the fewest tokens left is the last one.
    assert_eq!((status(&read), policies(&read)), (200, vec!["read".to_owned(), "account".to_owned()]));
    assert_eq!(read.body().as_ref(), b"item 1\n");
    // The third write of a minute is the last one, and a read is granted all the same.
    for _ in 0..3 {
        let write = client.send(ask("POST", "/items", "ada")).await;
        assert_eq!((status(&write), policies(&write).len()), (201, 3));
    }
    let refused = client.send(ask("POST", "/items", "bob")).await;
    assert_eq!((status(&refused), policies(&refused).contains(&"write-minute".to_owned())), (429, true));
    assert_eq!(status(&client.send(ask("GET", "/items/2", "bob")).await), 200);
    // The limit of writes is for one of the methods of its route.
    let list = client.send(ask("GET", "/items", "bob")).await;
    assert_eq!((status(&list), policies(&list)), (200, vec!["account".to_owned()]));
    // A token that no account has is no key.
    assert_eq!(status(&client.send(ask("GET", "/items/1", "made-up")).await), 400);
    drop(client);
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn an_admin_sees_a_ban_and_ends_it() {
    let server = Server::start(env!("CARGO_BIN_EXE_routes"));
    let mut client = Client::connect(&server.address).await;
    let read = |token: &'static str| {
        move || Request::get("/items/1").header("authorization", token).body(String::new()).unwrap()
    };
    let wait =
        |response: &Response<Bytes>| says(response, "retry-after").map(|wait| wait.parse::<u64>().unwrap());
    let banned = |response: &Response<Bytes>| wait(response) > Some(200);
    let responses = ask_until(&mut client, read("Bearer ada"), banned).await;
    let refusals: Vec<_> = responses.iter().filter(|response| status(response) == 429).collect();
    assert_eq!((refusals.len(), wait(refusals[2])), (3, Some(600)));
    assert!(wait(refusals[0]) <= Some(120) && wait(refusals[1]) <= Some(120));
    assert_eq!(status(&client.send(read("Bearer bob")()).await), 200);

    let stats = client.get("/admin/stats").await;
    let stats = String::from_utf8(stats.body().to_vec()).unwrap();
    assert!(stats.contains(r#"tollgate_bans_total{policy="account"} 1"#), "{stats}");
    let unban = || Request::post("/admin/unban/7").body(String::new()).unwrap();
    assert_eq!(status(&client.send(unban()).await), 204);
    assert_eq!(status(&client.send(unban()).await), 404);
    // Its tokens are still spent.
    let after = client.send(read("Bearer ada")()).await;
    assert_eq!((status(&after), wait(&after) <= Some(120)), (429, true));
    drop(client);
    assert!(server.stop().await.success());
}

#[test]
fn each_kind_of_overhead_is_as_it_says() {
    let source = include_str!("../../src/bin/overhead.rs");
    let arms = source.lines().filter_map(|line| line.strip_prefix("        \"")?.split_once("\" =>"));
    let kinds: Vec<&str> = arms.flat_map(|(kinds, _)| kinds.split("\" | \"")).collect();
    assert!(kinds.len() > 20 && kinds.contains(&"log-written"), "{kinds:?}");
    for kind in kinds {
        // It fails unless each response has the status of the kind.
        assert_eq!(output(env!("CARGO_BIN_EXE_overhead"), kind), "", "{kind}");
    }
}
