//! An example as a process, and a client of HTTP.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// A time longer than each step of a test that is not stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server, on a port of its own.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: String,
}

impl Server {
    /// Runs a program until it says where it listens.
    pub(crate) fn start(program: &str) -> Server {
        let mut program = Command::new(program);
        let process = program.arg("127.0.0.1:0").stdout(Stdio::piped()).spawn();
        Server::of(process.expect("it was built with the tests"))
    }

    /// The same, and the pipe of its stderr.
    pub(crate) fn start_with_stderr(program: &str) -> (Server, ChildStderr) {
        let mut process = Command::new(program)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was built with the tests");
        let stderr = process.stderr.take().expect("it is piped");
        (Server::of(process), stderr)
    }

    /// A process whose stdout is piped, once it says where it listens.
    pub(crate) fn of(mut process: Child) -> Server {
        let mut line = String::new();
        let out = process.stdout.as_mut().expect("it is piped");
        BufReader::new(out).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once("http://").expect("the line has a URL").1.to_owned();
        Server { process, address }
    }

    /// Stops it as a supervisor does, and has its exit code.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it does not stop");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the output of a program that ends by itself, and well.
pub(crate) fn output(program: &str, argument: &str) -> String {
    let mut process = Command::new(program).arg(argument).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    process.stdout.take().expect("it is piped").read_to_string(&mut text).unwrap();
    assert!(process.wait().unwrap().success(), "{text}");
    text
}

/// Serves a router in this process, on a port of its own.
pub(crate) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let service = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    address
}

/// A connection, which is kept alive.
pub(crate) struct Client(SendRequest<String>);

impl Client {
    pub(crate) async fn connect(address: &str) -> Client {
        Client::over(TcpStream::connect(address).await.unwrap()).await
    }

    pub(crate) async fn over(stream: TcpStream) -> Client {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Client(sender)
    }

    pub(crate) async fn send(&mut self, mut request: Request<String>) -> Response<Bytes> {
        request.headers_mut().insert("host", http::HeaderValue::from_static("example.test"));
        self.0.ready().await.unwrap();
        let response = self.0.send_request(request);
        let (head, body) = tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap().into_parts();
        Response::from_parts(head, body.collect().await.unwrap().to_bytes())
    }

    pub(crate) async fn get(&mut self, path: &str) -> Response<Bytes> {
        self.send(Request::get(path).body(String::new()).unwrap()).await
    }
}

pub(crate) fn status(response: &Response<Bytes>) -> u16 {
    response.status().as_u16()
}

pub(crate) fn says<'a>(response: &'a Response<Bytes>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}
