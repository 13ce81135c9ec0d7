//! Servers with a handler for `/login`, which answers `login`. All other handlers answer 404.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use axum::Router;
use axum::extract::{Path as Captured, Request};
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{RateLimitLayer, key_fn};

const EXPRESS: &str = "express@5.3.0";

/// A server that ends when this value is dropped.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) at: SocketAddr,
    process: Option<Child>,
    _runtime: Option<Runtime>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // If the kill fails, the process ends by itself: its standard input is closed.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Starts Express in a process of Node. An error says that Node or Express is missing.
pub(crate) fn express() -> Result<Server, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("express");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut install = Command::new("npm");
    install.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--prefix", "."]);
    let install = install.arg(EXPRESS).current_dir(&folder).output();
    let install = install.map_err(|error| format!("npm does not start: {error}"))?;
    if !install.status.success() {
        return Err(format!("npm has no {EXPRESS}: {}", String::from_utf8_lossy(&install.stderr)));
    }

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/spellings/express.js");
    let mut node = Command::new("node");
    node.arg(script).env("NODE_PATH", folder.join("node_modules"));
    let mut process = node
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("node does not start: {error}"))?;
    let mut port = String::new();
    let output = process.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut port).expect("node prints text");
    let port = port.trim().parse().expect("node prints a port, or else its error is above");
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Ok(Server { name: "express", at, process: Some(process), _runtime: None })
}

/// Starts a server with one route for `/login` as it is written, and one that captures a path. axum
/// decodes the captured path.
pub(crate) fn axum_server() -> Server {
    serve("axum", routes())
}

/// Starts the same server under the layer: 5 requests an hour.
pub(crate) fn limited_axum_server() -> Server {
    let limiter = RateLimiter::new(Quota::per_hour(5));
    let layer = RateLimitLayer::builder(limiter).key(key_fn(|_| Some(()))).build();
    serve("axum", routes().layer(layer))
}

fn routes() -> Router {
    async fn captured(Captured(name): Captured<String>) -> (StatusCode, &'static str) {
        answer(&format!("/{name}"))
    }
    Router::new().route("/login", get(|| async { answer("/login") })).route("/{name}", get(captured))
}

/// Starts a server that strips parameters, decodes, takes a backslash for a slash, and resolves
/// dots.
pub(crate) fn stripping() -> Server {
    serve(
        "stripping",
        Router::new().fallback(|request: Request| async move { answer(&read(request.uri().path())) }),
    )
}

fn answer(path: &str) -> (StatusCode, &'static str) {
    if path == "/login" { (StatusCode::OK, "login") } else { (StatusCode::NOT_FOUND, "other") }
}

fn read(path: &str) -> String {
    let stripped: Vec<&str> =
        path.split('/').map(|segment| segment.split(';').next().unwrap_or("")).collect();
    let stripped = stripped.join("/");
    let mut parts = stripped.split('%');
    let mut path = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.chars().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                path.push(char::from(byte));
                path.push_str(&part[2..]);
            }
            None => {
                path.push('%');
                path.push_str(part);
            }
        }
    }
    let mut segments = vec![];
    for segment in path.split(['/', '\\']) {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

fn serve(name: &'static str, router: Router) -> Server {
    let runtime = Runtime::new().expect("threads can be started");
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
    let at = listener.local_addr().expect("it listens");
    runtime.spawn(async move { axum::serve(listener, router).await });
    Server { name, at, process: None, _runtime: Some(runtime) }
}
