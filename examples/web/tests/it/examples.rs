//! Each example does what its first page says.

use std::time::Instant;

use http::Request;

use crate::support::{Client, PATIENCE, Server, says, status};

#[tokio::test]
async fn axum_limits_by_address_and_stops_when_told() {
    let server = Server::start(env!("CARGO_BIN_EXE_axum"));
    let mut client = Client::connect(&server.address).await;
    let response = client.get("/").await;
    assert_eq!((status(&response), response.body().as_ref()), (200, &b"hello\n"[..]));
    assert_eq!(says(&response, "ratelimit-policy"), Some(r#""default";q=1000;w=1"#));
    assert_eq!(says(&response, "ratelimit"), Some(r#""default";r=999;t=1"#));
    drop(client);
    assert!(server.stop().await.success());
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
    let policies = |response: &http::Response<hyper::body::Bytes>| {
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
