//! The process of the service, and the calls of a case.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::protobuf;
use tollgate_common::testing::{Running, address_after, until};

/// A time far above that of each step. Only a failing test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const SERVICE: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// The process of the service. A drop of this value ends it.
pub(crate) struct Service {
    process: Running,
    addresses: [SocketAddr; 3],
    runtime: Runtime,
    /// The listener for Prometheus alone, if a variable of the command asks for one.
    pub(crate) scraped: Option<SocketAddr>,
    /// The files, if this value has their folder.
    pub(crate) folder: Option<TempDir>,
}

impl Service {
    /// Starts the service on the files of a folder. An error has all lines before its end.
    pub(crate) fn start(folder: &Path, options: &[&str], env: &[(&str, &str)]) -> Result<Service, String> {
        Service::of_paths(&[folder], options, env)
    }

    /// Starts the service on these paths, or on none.
    pub(crate) fn of_paths(
        paths: &[&Path],
        options: &[&str],
        env: &[(&str, &str)],
    ) -> Result<Service, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.arg("serve").args(paths).args(options).env_clear().envs(env.iter().copied());
        for address in ["--grpc", "--http", "--admin"].iter().filter(|name| !options.contains(name)) {
            command.args([address, "127.0.0.1:0"]);
        }
        Service::of(&mut command)
    }

    /// Starts the service by a command.
    pub(crate) fn of(command: &mut Command) -> Result<Service, String> {
        let is_scraped = command.get_envs().any(|(name, _)| name == "USE_PROMETHEUS");
        let process = Running::merged(command);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let nowhere = SocketAddr::from(([0; 4], 0));
        let mut service = Service { process, addresses: [nowhere; 3], runtime, scraped: None, folder: None };
        for (index, before) in ["gRPC on ", "HTTP on ", "debug pages on "].into_iter().enumerate() {
            if is_scraped && index == 2 {
                let before = "Prometheus on ";
                service.scraped = Some(address_after(&service.line_with(before)?, before));
            }
            service.addresses[index] = address_after(&service.line_with(before)?, before);
        }
        Ok(service)
    }

    /// Starts the service on `examples/edge.yaml`, with years for its hours and days: no window
    /// ends under a test.
    pub(crate) fn of_the_example(options: &[&str]) -> Service {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/edge.yaml");
        let text = fs::read_to_string(example).expect("the example");
        let text = text.replace("unit: hour", "unit: year").replace("unit: day", "unit: year");
        // Of replicas each minute would have its own sum.
        let text =
            if options.contains(&"--store") { text.replace("unit: minute", "unit: year") } else { text };
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("edge.yaml"), text).expect("it is written");
        let started = Service::start(folder.path(), options, &[]);
        let mut service = started.unwrap_or_else(|error| panic!("{error}"));
        service.folder = Some(folder);
        service
    }

    /// Reads lines up to the first that contains `part`. The error is all lines before the end.
    pub(crate) fn line_with(&self, part: &str) -> Result<String, String> {
        let mut before = String::new();
        loop {
            match self.process.out.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(part) => return Ok(line),
                Ok(line) => before += &format!("{line}\n"),
                Err(RecvTimeoutError::Disconnected) => return Err(before),
                Err(RecvTimeoutError::Timeout) => panic!("no {part:?} in {before:?}"),
            }
        }
    }

    pub(crate) fn grpc(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub(crate) fn http_address(&self) -> SocketAddr {
        self.addresses[1]
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.addresses[2]
    }

    pub(crate) fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Stops the process until a signal `-CONT`.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
        until("stopped", || tollgate_test_servers::process::is_stopped(self.process.id()));
    }

    pub(crate) fn reload(&self) -> bool {
        self.http(true, "POST", "/reload", None)["status"] == 200
    }

    /// The resident memory in MB.
    #[cfg(target_os = "linux")]
    pub(crate) fn resident(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
    }

    /// The processor time so far, in seconds. A tick of it is 10 ms.
    #[cfg(all(target_os = "linux", feature = "redis"))]
    pub(crate) fn processor_time(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("it runs");
        let fields = stat.rsplit_once(") ").expect("behind the name").1.split(' ');
        let ticks = fields.skip(11).take(2).map(|field| field.parse::<f64>().expect("a number"));
        ticks.sum::<f64>() / 100.0
    }

    /// Stops the process, and returns its exit code.
    pub(crate) fn stop(&mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.process.exit_code()
    }

    /// Ends the process, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn should_rate_limit(&self, request: &Value) -> Value {
        self.runtime.block_on(async { Caller::connect(self.grpc()).await.should_rate_limit(request).await })
    }

    pub(crate) fn health(&self, service: &str) -> Value {
        match self.call(HEALTH, protobuf::health_request(service)) {
            Ok(message) => json!(protobuf::health(&message)),
            Err(error) => error["grpc"].clone(),
        }
    }

    pub(crate) fn call(&self, path: &str, message: Vec<u8>) -> Result<Bytes, Value> {
        self.runtime.block_on(async { Caller::connect(self.grpc()).await.call(path, message).await })
    }

    /// A request to the HTTP port, or to the page for the operator.
    pub(crate) fn http(&self, admin: bool, method: &str, path: &str, body: Option<&str>) -> Value {
        let address = self.addresses[1 + usize::from(admin)];
        let request = Request::builder().method(method).uri(path).header("host", address.to_string());
        let request = request.header("origin", format!("http://{address}"));
        let request = request.body(Full::new(Bytes::from(body.unwrap_or("").to_owned()))).expect("a request");
        let (head, body) = self.runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("the service listens");
            let (mut client, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1");
            tokio::spawn(connection);
            let (head, body) = client.send_request(request).await.expect("a response").into_parts();
            (head, body.collect().await.expect("a whole body").to_bytes())
        });
        let body = str::from_utf8(&body).expect("text");
        let kind = head.headers.get("content-type").map(|value| value.to_str().expect("it is ASCII"));
        let json: Option<Value> = serde_json::from_str(body).ok();
        json!({"status": head.status.as_u16(), "contentType": kind, "body": body, "json": json})
    }

    /// The counters of the service below `ratelimit.service.`; one that is not told is absent.
    pub(crate) fn counters(&self) -> Value {
        let page = self.http(true, "GET", "/stats", None);
        let lines = page["body"].as_str().expect("text").lines();
        let pairs = lines.filter_map(|line| {
            let (name, number) = line.strip_prefix("ratelimit.service.")?.split_once(": ")?;
            Some((name.to_owned(), json!(number.parse::<u64>().ok()?)))
        });
        Value::Object(pairs.collect())
    }

    /// Waits until the sum of the loads, good or bad, has grown.
    pub(crate) fn await_load(&self, before: &Value) -> &'static str {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let now = self.counters();
            for (name, word) in [("config_load_success", "loaded"), ("config_load_error", "rejected")] {
                if now[name] != before[name] {
                    return word;
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the files are not read again");
    }
}

/// A connection of gRPC.
pub(crate) struct Caller(SendRequest<Full<Bytes>>);

impl Caller {
    pub(crate) async fn connect(address: SocketAddr) -> Caller {
        let stream = TcpStream::connect(address).await.expect("the service listens");
        stream.set_nodelay(true).expect("it is open");
        Caller::over(stream).await
    }

    pub(crate) async fn over(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Caller {
        let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io))
            .await
            .expect("HTTP/2");
        tokio::spawn(shaken.1);
        Caller(shaken.0)
    }

    pub(crate) async fn should_rate_limit(&mut self, request: &Value) -> Value {
        match self.call(SERVICE, protobuf::request(request)).await {
            Ok(message) => protobuf::response(&message),
            Err(error) => json!({ "error": error }),
        }
    }

    /// The message of the answer, or its status of gRPC.
    async fn call(&mut self, path: &str, message: Vec<u8>) -> Result<Bytes, Value> {
        let mut frame = vec![0; 5];
        frame[1..].copy_from_slice(&u32::to_be_bytes(message.len() as u32));
        frame.extend(message);
        let request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let request = request.body(Full::new(Bytes::from(frame))).expect("a request");
        self.0.ready().await.expect("the connection stays open");
        let (head, body) = self.0.send_request(request).await.expect("a response").into_parts();
        let body = body.collect().await.expect("a whole body");
        assert_eq!(head.status, 200);
        let trailers = body.trailers().cloned().unwrap_or(head.headers);
        let text = |name| trailers.get(name).map_or("", |value| value.to_str().expect("it is ASCII"));
        if text("grpc-status") == "0" {
            return Ok(body.to_bytes().split_off(5));
        }
        let code = match text("grpc-status") {
            "2" => "UNKNOWN",
            "5" => "NOT_FOUND",
            other => other,
        };
        Err(json!({"grpc": code, "message": text("grpc-message").replace("%20", " ")}))
    }
}
