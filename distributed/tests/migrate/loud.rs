//! Faults of the store on stderr, without a subscriber of `tracing`: each once. With one, they are
//! events.
//!
//! Each process is this program again: it runs the test `child`, with its task in the environment.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::Quota;
use tollgate_distributed::{AnyStore, DistributedLimiter};
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

/// A subscriber that prints each event to stdout.
struct Events;

/// The fields of an event.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tollgate_distributed")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        println!("event {}{}", event.metadata().level(), fields.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

type Limiter = DistributedLimiter<u64, AnyStore>;

fn limiter(url: &str) -> Limiter {
    let builder = Limiter::builder(Quota::per_hour(1_000), AnyStore::open(url).unwrap()).name("loud");
    let builder = builder.exact().deadline(Duration::from_secs(10));
    builder.probes(Duration::from_millis(1), Duration::from_millis(10)).build().unwrap()
}

/// Asks until the breaker is open, or until it is closed.
async fn until(limiter: &Limiter, is_open: bool) {
    let begun = Instant::now();
    while limiter.stats().breaker_open != is_open {
        assert!(begun.elapsed() < Duration::from_secs(60), "the breaker does not change");
        let _ = limiter.ask(&7).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("\n{}", if is_open { "down" } else { "up" });
}

#[test]
fn child() {
    let (Ok(task), Ok(url)) = (env::var("LOUD_TASK"), env::var("LOUD_URL")) else { return };
    if env::var("LOUD_EVENTS").is_ok() {
        tracing::subscriber::set_global_default(Events).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limiter = runtime.block_on(async { limiter(&url) });
    if let Some(path) = url.strip_prefix("sqlite:") {
        rusqlite::Connection::open(path).unwrap().execute("DROP TABLE tollgate_buckets", []).unwrap();
    }
    runtime.block_on(async {
        match task.as_str() {
            "ask" => {
                for key in 0..3 {
                    limiter.ask(&key).await.unwrap();
                }
            }
            "peek" => {
                for _ in 0..2 {
                    limiter.peek(&7).await.unwrap_err();
                }
            }
            "outages" => {
                for is_open in [true, false, true, false] {
                    until(&limiter, is_open).await;
                }
            }
            _ => {}
        }
    });
    drop(runtime);
    if task == "runtime" {
        for key in 0..3 {
            let _ = limiter.try_acquire_local(&key);
        }
    }
}

fn spawn(task: &str, url: &str, has_subscriber: bool) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "loud::child", "--nocapture"]).env("LOUD_TASK", task).env("LOUD_URL", url);
    if has_subscriber {
        command.env("LOUD_EVENTS", "");
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns the events of a process, and the lines that it wrote to stderr.
fn ends(mut child: Child) -> (Vec<String>, Vec<String>) {
    let mut stdout = String::new();
    child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut stdout).unwrap());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stdout}{stderr}");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    (lines(&stdout).into_iter().filter(|line| line.starts_with("event ")).collect(), lines(&stderr))
}

/// Each line has its part, and is of the limiter.
fn has(lines: &[String], parts: &[&str]) {
    assert_eq!(lines.len(), parts.len(), "{lines:#?}");
    for (line, part) in lines.iter().zip(parts) {
        assert!(line.contains("\"loud\"") && line.contains(part), "{lines:#?}");
    }
}

#[test]
fn the_first_permanent_error_is_on_stderr_once() {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("loud.db").display());
    for task in ["ask", "peek"] {
        has(&ends(spawn(task, &url, false)).1, &["no such table: tollgate_buckets"]);
    }
    let (events, lines) = ends(spawn("ask", &url, true));
    has(&lines, &[]);
    has(&events, &["no such table: tollgate_buckets"]);
    assert!(events[0].starts_with("event ERROR"), "{events:?}");
    if postgres_is_installed() {
        let server = Postgres::start(&[]).unwrap();
        let part = "function tollgate_acquire_1";
        has(&ends(spawn("ask", &server.url(), false)).1, &[part]);
    }
}

#[test]
fn the_end_of_the_runtime_is_on_stderr_once() {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("loud.db").display());
    has(&ends(spawn("runtime", &url, false)).1, &["the runtime of the limiter has ended"]);
}

/// Redis is not there at first, comes, goes and comes back.
#[cfg(feature = "redis")]
#[test]
fn the_first_outage_and_its_end_are_on_stderr_once() {
    use tollgate_test_servers::redis::{Data, Redis, redis_is_installed};

    if !redis_is_installed() {
        return;
    }
    let outage = |has_subscriber: bool| {
        let mut server = Redis::start(&[]).unwrap();
        server.process().kill();
        let mut child = spawn("outages", &server.url(), has_subscriber);
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (mut line, mut events, mut ups) = (String::new(), Vec::new(), 0);
        while stdout.read_line(&mut line).unwrap() > 0 {
            match line.trim_end() {
                "down" => server.restart(Data::Empty).unwrap(),
                "up" if ups == 0 => {
                    server.process().kill();
                    ups = 1;
                }
                event if event.starts_with("event ") => events.push(event.to_owned()),
                _ => {}
            }
            line.clear();
        }
        (events, ends(child).1)
    };
    let (first, end) = ("the store does not answer: the store refused the call", "the store answers again");
    let (_, lines) = outage(false);
    has(&lines, &[first, end]);
    assert!(lines[0].contains("Local { share: 1.0 }") && lines[0].contains("refused"), "{lines:?}");
    let (events, lines) = outage(true);
    has(&lines, &[]);
    // The second outage may begin with a call that was sent.
    has(&events, &[first, end, "the store does not answer", end]);
}
