//! A real client of gRPC, and a real server: the package `grpcio` of Python.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::{Authority, Folder, Proxy, refusing};

const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/upstreams/peers.py");

/// The server. It ends with its input.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(files: &[&str]) -> Server {
        let mut command = Command::new("python3");
        let command = command.arg(PEERS).arg("server").args(files);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python runs");
        let mut port = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut port).expect("it prints its port");
        Server { child, port: port.trim().to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether Python has the packages.
fn is_there() -> bool {
    let mut command = Command::new("python3");
    let output = command.args(["-c", "import grpc, google.rpc.error_details_pb2"]).output();
    let found = output.is_ok_and(|output| output.status.success());
    if !found {
        println!("did not run: pip install grpcio googleapis-common-protos");
    }
    found
}

/// Runs the client to its end.
fn client(command: &str, address: &str, authority: &[&str]) {
    let mut client = Command::new("python3");
    let output = client.arg(PEERS).args([command, address]).args(authority).output().expect("Python runs");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{command}: {stdout}{stderr}");
}

#[test]
fn grpc_passes_without_tls() {
    if !is_there() {
        return;
    }
    let server = Server::start(&[]);
    let url = format!("h2c://127.0.0.1:{}", server.port);
    for (limit, command) in [("none", "ask"), ("1/h", "refused")] {
        let proxy = Proxy::over(&url, &format!("--limit {limit}"));
        client(command, &proxy.address.to_string(), &[]);
    }
}

#[test]
fn grpc_passes_over_tls_on_both_sides() {
    if !is_there() {
        return;
    }
    let (folder, authority) = (Folder::new(), Authority::new());
    let ca = authority.write(&folder);
    let (chain, key) = authority.sign("localhost").write(&folder);
    let server = Server::start(&[&chain, &key]);
    let url = format!("https://localhost:{}", server.port);
    let tls = format!("--tls-cert {chain} --tls-key {key} --upstream-ca {ca}");
    for (limit, command) in [("none", "ask"), ("1/h", "refused")] {
        let proxy = Proxy::over(&url, &format!("--limit {limit} {tls}"));
        client(command, &format!("localhost:{}", proxy.address.port()), &[&ca]);
    }
}

#[test]
fn an_upstream_that_is_gone_is_unavailable_to_grpc() {
    if !is_there() {
        return;
    }
    let proxy = Proxy::over(&refusing().replace("http", "h2c"), "");
    client("gone", &proxy.address.to_string(), &[]);
}
