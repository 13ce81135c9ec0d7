//! A client that keeps to the quota of the server it asks.
//!
//! ```text
//! cargo run --release --features tokio --example client
//! cargo run --release --features tokio --example client -- --mode refuse
//! cargo run --release --features tokio --example client -- --limit "100/s burst 200" --url http://127.0.0.1:8080/
//! ```
//!
//! Eight tasks share one bucket and one limited call, a GET over connections that are kept alive.
//! With `--mode wait` a call over the quota waits its turn, first come, first served. With
//! `--mode refuse` the call fails at once, and no request is sent. Without `--url` the upstream is
//! a small server in this process.
//!
//! At the end one line has the numbers of requests sent and refused, the time, and the number that
//! the quota allows in that time. An option that cannot work is one sentence on stderr and exit
//! code 2. An upstream that does not answer is one sentence and exit code 1.

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header;
use hyper::http::uri::Authority;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tollgate::{Quota, TokenBucket};

mod upstream;

/// Calls that are under way at a time.
const TASKS: u64 = 8;

type BoxError = Box<dyn Error + Send + Sync>;

/// A client that keeps to a quota.
#[derive(Parser)]
struct Options {
    /// Quota of the upstream
    #[arg(long, value_name = "QUOTA", default_value = "20/s burst 5")]
    limit: Quota,
    /// How many requests to make
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Server to ask, as http://HOST[:PORT]/; one in this process if not given
    #[arg(long, value_name = "URL", value_parser = upstream::url)]
    url: Option<Authority>,
    /// Mode of a request over the quota: `wait` for its turn, or `refuse` it
    #[arg(long, value_name = "MODE", default_value = "wait", value_parser = mode)]
    mode: Mode,
}

#[derive(Clone, Copy)]
enum Mode {
    Wait,
    Refuse,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(help) if !help.use_stderr() => help.exit(),
        // The rest of clap's text is usage and hints; its first line is the sentence.
        Err(error) => return fail(2, error.to_string().lines().next().unwrap_or("error: bad options")),
    };
    // Each task owes one token at most, so no waiting task is turned away.
    let bucket = match TokenBucket::builder(options.limit).max_debt(TASKS) {
        Ok(builder) => builder.build(),
        Err(invalid) => return fail(2, &format!("error: the limit leaves no room for who waits: {invalid}")),
    };
    match run(options, bucket).await {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(1, &format!("error: {error}")),
    }
}

fn fail(code: u8, sentence: &str) -> ExitCode {
    eprintln!("{sentence}");
    ExitCode::from(code)
}

async fn run(options: Options, bucket: TokenBucket) -> Result<String, BoxError> {
    let Options { limit, requests, url, mode } = options;
    let authority = match url {
        Some(authority) => authority,
        None => upstream::start().await?,
    };
    let upstream = Arc::new(Upstream { authority, idle: Mutex::default() });
    // A limited call borrows its bucket, and tasks may live as long as the process. So the bucket
    // does, too.
    let bucket: &TokenBucket = Box::leak(Box::new(bucket));
    let fetch = Arc::new(bucket.ask().limited(move |request: u64| {
        let upstream = upstream.clone();
        async move { upstream.get(request).await }
    }));
    let made = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (fetch, made) = (fetch.clone(), made.clone());
        tasks.spawn(async move {
            let (mut sent, mut refused) = (0, 0);
            loop {
                // Relaxed: the tasks share nothing but the count.
                let request = made.fetch_add(1, Relaxed);
                if request >= requests {
                    return Ok::<_, BoxError>((sent, refused));
                }
                let answer = match mode {
                    Mode::Wait => fetch.call(request).await,
                    Mode::Refuse => match fetch.try_call(request) {
                        Ok(answer) => Ok(answer.await),
                        Err(denied) => Err(denied),
                    },
                };
                match answer {
                    Ok(answer) => {
                        answer?;
                        sent += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
        });
    }
    let (mut sent, mut refused) = (0_u64, 0_u64);
    while let Some(task) = tasks.join_next().await {
        let counts = task??;
        (sent, refused) = (sent + counts.0, refused + counts.1);
    }
    let took = start.elapsed();
    let (seconds, rate) = (took.as_secs_f64(), sent as f64 / took.as_secs_f64());
    let allowed = allowed(limit, took);
    Ok(format!(
        "sent {sent}, refused {refused}, in {seconds:.3} s: {rate:.1}/s; {limit} allows {allowed} in that time"
    ))
}

/// Returns the burst and the tokens that are earned in `time`.
fn allowed(quota: Quota, time: Duration) -> u128 {
    let earned = time.as_nanos().saturating_mul(quota.tokens().into()) / quota.period().as_nanos();
    earned + u128::from(quota.capacity())
}

/// Connections to the upstream, at most one for each task.
struct Upstream {
    authority: Authority,
    idle: Mutex<Vec<SendRequest<Empty<Bytes>>>>,
}

impl Upstream {
    /// Sends one request and reads the answer to its end.
    async fn get(&self, number: u64) -> Result<(), BoxError> {
        let mut request = Request::get(format!("/{number}"))
            .header(header::HOST, self.authority.as_str())
            .body(Empty::new())?;
        loop {
            let idle = self.idle.lock().expect("nothing panics under this lock").pop();
            let kept_alive = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match connection.try_send_request(request).await {
                Ok(mut response) => {
                    while let Some(frame) = response.body_mut().frame().await {
                        frame?;
                    }
                    if connection.ready().await.is_ok() {
                        self.idle.lock().expect("nothing panics under this lock").push(connection);
                    }
                    return Ok(());
                }
                // The upstream closed an idle connection. The request comes back unsent: try the
                // next connection.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if kept_alive => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>, BoxError> {
        let address = format!("{}:{}", self.authority.host(), self.authority.port_u16().unwrap_or(80));
        let unreachable = |error| format!("cannot reach http://{}/: {error}", self.authority);
        let stream = TcpStream::connect(address).await.map_err(unreachable)?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its errors reach the task that waits for a response.
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn mode(text: &str) -> Result<Mode, &'static str> {
    match text {
        "wait" => Ok(Mode::Wait),
        "refuse" => Ok(Mode::Refuse),
        _ => Err("expected `wait` or `refuse`"),
    }
}
