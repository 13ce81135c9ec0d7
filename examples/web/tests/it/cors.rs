// promise: layer
//! The layer beside tower-http's `CorsLayer`, in both orders: a preflight is never limited, and a
//! page of another origin reads each response, with the fields of the limit.

use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS};
use http::{Request, Response};
use hyper::body::Bytes;

use crate::support::{Client, Server, says, status};

const PAGE: &str = "http://page.test";
/// The fields of a limit that a page reads.
const FIELDS: [&str; 4] = ["retry-after", "ratelimit-policy", "ratelimit", "server-timing"];

/// Asks as a page of another origin.
fn ask(path: &str) -> Request<String> {
    Request::get(path).header("origin", PAGE).body(String::new()).unwrap()
}

fn preflight(path: &str) -> Request<String> {
    let request = Request::options(path).header("origin", PAGE);
    let request = request.header("access-control-request-method", "GET");
    request.header("access-control-request-headers", "x-api-key").body(String::new()).unwrap()
}

/// Returns the names that a browser exposes to a page: those of all values, together
/// (<https://fetch.spec.whatwg.org/#extract-header-list-values>).
fn exposed(response: &Response<Bytes>) -> Vec<String> {
    let values = response.headers().get_all(ACCESS_CONTROL_EXPOSE_HEADERS).iter();
    let names = values.flat_map(|value| value.to_str().unwrap().split(','));
    names.map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// Returns whether a browser lets the page read the response.
fn is_readable(response: &Response<Bytes>) -> bool {
    let mut values = response.headers().get_all(ACCESS_CONTROL_ALLOW_ORIGIN).iter();
    values.next().is_some_and(|origin| origin == PAGE) && values.next().is_none()
}

/// Asks three times, which are granted, and once more.
async fn granted_and_refused(client: &mut Client, path: &str) -> Vec<Response<Bytes>> {
    let mut responses = Vec::new();
    for status_of in [200, 200, 200, 429] {
        let response = client.send(ask(path)).await;
        assert_eq!(status(&response), status_of, "{path}");
        responses.push(response);
    }
    responses
}

#[tokio::test]
async fn a_preflight_is_never_limited_in_either_order() {
    let server = Server::start(env!("CARGO_BIN_EXE_cors"));
    let mut client = Client::connect(&server.address).await;
    for path in ["/inside", "/outside"] {
        for refused in [false, true] {
            for _ in 0..10 {
                let response = client.send(preflight(path)).await;
                assert!(response.status().is_success(), "{path}: {response:?}");
                assert!(is_readable(&response), "{path}: {response:?}");
                assert_eq!(says(&response, "access-control-allow-methods"), Some("GET"), "{path}");
                assert_eq!(says(&response, "access-control-allow-headers"), Some("x-api-key"), "{path}");
                assert_eq!(says(&response, "ratelimit"), None, "{path}");
            }
            // Preflights took no token, and the page is refused from here on.
            if !refused {
                granted_and_refused(&mut client, path).await;
            }
        }
    }
    drop(client);
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn an_option_request_that_is_no_preflight_is_limited_outside() {
    let server = Server::start(env!("CARGO_BIN_EXE_cors"));
    let mut client = Client::connect(&server.address).await;
    granted_and_refused(&mut client, "/outside").await;
    let options = Request::options("/outside").header("origin", PAGE).body(String::new()).unwrap();
    assert_eq!(status(&client.send(options).await), 429);
}

#[tokio::test]
async fn a_page_reads_a_refusal_and_its_fields_in_either_order() {
    let server = Server::start(env!("CARGO_BIN_EXE_cors"));
    let mut client = Client::connect(&server.address).await;
    for path in ["/inside", "/outside"] {
        for response in granted_and_refused(&mut client, path).await {
            assert!(is_readable(&response), "{path}: {response:?}");
            let exposed = exposed(&response);
            for field in FIELDS {
                assert_eq!(exposed.iter().filter(|name| *name == field).count(), 1, "{path}: {exposed:?}");
            }
            // A refusal never reaches the `CorsLayer` inside.
            let both = path == "/outside" && status(&response) == 200;
            assert_eq!(exposed.contains(&"x-trace-id".to_owned()), both, "{path}: {exposed:?}");
            assert!(says(&response, "ratelimit").is_some(), "{path}: {response:?}");
            assert_eq!(says(&response, "retry-after").is_some(), status(&response) == 429, "{path}");
        }
    }
    drop(client);
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn without_an_origin_no_field_is_exposed_by_the_layer() {
    let server = Server::start(env!("CARGO_BIN_EXE_cors"));
    let mut client = Client::connect(&server.address).await;
    for path in ["/inside", "/outside"] {
        for _ in 0..4 {
            let response = client.get(path).await;
            assert!(says(&response, "ratelimit").is_some(), "{path}");
            assert!(!exposed(&response).contains(&"ratelimit".to_owned()), "{path}: {response:?}");
        }
    }
}

#[tokio::test]
async fn names_of_the_cors_layer_replace_those_of_the_layer_inside() {
    use axum::Router;
    use axum::routing::get;
    use tollgate::{Quota, RateLimiter};
    use tollgate_http::RateLimitLayer;
    use tower_http::cors::{Any, CorsLayer};

    let limiter = RateLimiter::<()>::new(Quota::per_hour(10));
    let limit = RateLimitLayer::builder(limiter).shared().expose_headers().build();
    let names = FIELDS.map(http::HeaderName::from_static);
    for (cors, exposes) in [
        (CorsLayer::new().allow_origin(Any), true),
        (CorsLayer::new().allow_origin(Any).expose_headers([http::header::ETAG]), false),
        (CorsLayer::new().allow_origin(Any).expose_headers(names.clone()), true),
        (CorsLayer::permissive(), false),
    ] {
        let app = Router::new().route("/", get(|| async { "hello\n" })).layer(limit.clone()).layer(cors);
        let mut client = Client::connect(&crate::support::serve(app).await).await;
        let response = client.send(ask("/")).await;
        assert_eq!(exposed(&response).contains(&"ratelimit".to_owned()), exposes, "{response:?}");
    }
}
