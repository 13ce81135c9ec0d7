//! A sample of the crossed matrix on each engine: 40 cells, each with its failure on a real server.
//! The time of a busy machine changes no verdict: a bound has the time that has passed.
//!
//! ```text
//! cargo test -p tollgate-distributed --all-features --test fleet matrix -- --nocapture
//! ```

use std::time::Duration;

use mysql_async::prelude::Queryable;
use tempfile::TempDir;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep, sleep_until};
use tollgate::Clock;
use tollgate_distributed::{AnyStore, DistributedLimiter, DistributedStats};
use tollgate_test_servers::any::{AnyServer, Engine};
use tollgate_test_servers::net::{Cut, Direction, Proxy};

use crate::cells::cell::{CHANGES, Cell, FAILURES, Failure, KEYS, MODES, STEADY};
use crate::cells::law::{Figures, HEAD, Window, row};
use crate::cells::load::{Run, Times, requests};
use crate::outage::until;
use crate::{Failure as Error, file};

const TIMES: Times = Times { fails: (0.3, 0.9), end: 1.4 };

/// The longest wait for the end of a failure.
const LIMIT: Duration = Duration::from_secs(20);

/// The delay of late answers, and the times for which answers are late or lost, and are not.
const LATE: Duration = Duration::from_millis(120);
const TURNS: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(100)];

/// A server, or a file.
enum Place {
    File(TempDir),
    Server(AnyServer),
}

/// Returns the cells of an engine: those of the sample with its name. Together they have each
/// failure on each engine, and each change in each mode by one process and by four.
fn sample(engine: &str) -> Vec<(usize, Cell)> {
    let mut sample = Vec::new();
    for failure in FAILURES {
        for of in ["SQLite", "Redis", "PostgreSQL", "MariaDB"] {
            let cells = match (of, failure) {
                // A file has no network and no server.
                ("SQLite", Failure::LateAnswers | Failure::LostAnswers | Failure::StoreDown) => 0,
                ("SQLite", _) | (_, Failure::Calm | Failure::StoreDown) => 1,
                _ => 2,
            };
            for _ in 0..cells {
                let index = sample.len();
                let (change, mode) = (CHANGES[index % 5], MODES[index % 3]);
                sample.push((of, Cell { failure, change, mode, processes: [1, 4][index % 2] }));
            }
        }
    }
    assert_eq!(sample.len(), 40);
    let cells = sample.into_iter().enumerate().filter(|(_, (of, _))| *of == engine);
    cells.map(|(index, (_, cell))| (index, cell)).collect()
}

impl Place {
    fn name(&self) -> &'static str {
        match self {
            Place::File(_) => "SQLite",
            Place::Server(AnyServer::Redis(_)) => Engine::Redis.name(),
            Place::Server(AnyServer::Postgres(_)) => Engine::Postgres.name(),
            Place::Server(AnyServer::MariaDb(_)) => Engine::MariaDb.name(),
        }
    }

    /// Returns the URL of the store, through a proxy if there is one.
    fn url(&self, proxy: Option<&Proxy>) -> String {
        match (self, proxy) {
            (Place::File(folder), _) => file(folder),
            (Place::Server(server), None) => server.url(),
            (Place::Server(server), Some(proxy)) => {
                server.url().replace(&server.port().to_string(), &proxy.port().to_string())
            }
        }
    }

    fn server(&mut self) -> &mut AnyServer {
        match self {
            Place::Server(server) => server,
            Place::File(_) => unreachable!("a file has no process"),
        }
    }

    /// Runs statements of the engine's SQL.
    async fn run(&self, sql: &str) -> Result<(), Error> {
        match self {
            Place::File(folder) => {
                let connection = rusqlite::Connection::open(folder.path().join("fleet.db"))?;
                connection.busy_timeout(LIMIT)?;
                connection.execute_batch(sql)?;
            }
            Place::Server(AnyServer::Postgres(server)) => {
                let (client, connection) =
                    tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await?;
                let connection = tokio::spawn(connection);
                client.batch_execute(sql).await?;
                connection.abort();
            }
            Place::Server(AnyServer::MariaDb(server)) => {
                mysql_async::Conn::from_url(server.url()).await?.query_drop(sql).await?;
            }
            Place::Server(AnyServer::Redis(_)) => {}
        }
        Ok(())
    }

    /// Makes the calls of the key 7 fail, of all limiters.
    async fn spoil(&self) -> Result<(), Error> {
        if let Place::Server(AnyServer::Redis(server)) = self {
            let set =
                "for _, key in ipairs(redis.call('KEYS', '*:7')) do redis.call('SET', key, 'hello') end";
            server.command(&["EVAL", set, "0"])?;
        }
        self.run(match self {
            Place::File(_) => {
                "CREATE TRIGGER spoilt BEFORE UPDATE ON tollgate_buckets WHEN CAST(NEW.id AS TEXT) LIKE '%:7'
                 BEGIN SELECT RAISE(ABORT, 'the key is spoilt'); END"
            }
            Place::Server(AnyServer::Postgres(_)) => {
                "CREATE FUNCTION spoilt() RETURNS trigger LANGUAGE plpgsql AS
                 $do$ BEGIN RAISE EXCEPTION 'the key is spoilt'; END $do$;
                 CREATE TRIGGER spoilt BEFORE UPDATE ON tollgate_buckets FOR EACH ROW
                 WHEN (encode(NEW.id, 'escape') LIKE '%:7') EXECUTE FUNCTION spoilt()"
            }
            _ => {
                "CREATE TRIGGER spoilt BEFORE UPDATE ON tollgate_buckets FOR EACH ROW
                 IF NEW.id LIKE '%:7' THEN SIGNAL SQLSTATE '45000'; END IF"
            }
        })
        .await
    }

    /// Lets the store fail.
    async fn fail(&mut self, failure: Failure, begun: Instant, proxy: &Proxy) -> Result<(), Error> {
        let at = |second: f64| sleep_until(begun + Duration::from_secs_f64(second));
        at(TIMES.fails.0).await;
        match (failure, &mut *self) {
            (Failure::Calm, _) => {}
            (Failure::LateAnswers, _) => {
                for _ in 0..2 {
                    proxy.delay(Direction::Answers, LATE);
                    sleep(TURNS[0]).await;
                    proxy.delay(Direction::Answers, Duration::ZERO);
                    sleep(TURNS[1]).await;
                }
            }
            (Failure::LostAnswers, _) => {
                for _ in 0..2 {
                    proxy.lose(Direction::Answers, true);
                    sleep(TURNS[0]).await;
                    // Bytes of these connections are missing.
                    proxy.cut(Cut::Reset);
                    proxy.lose(Direction::Answers, false);
                    sleep(TURNS[1]).await;
                }
            }
            (Failure::StoreBack, Place::File(folder)) => {
                let connection = rusqlite::Connection::open(folder.path().join("fleet.db"))?;
                connection.busy_timeout(LIMIT)?;
                connection.execute_batch("BEGIN EXCLUSIVE")?;
                at(TIMES.fails.1).await;
                connection.execute_batch("COMMIT")?;
            }
            (Failure::StoreDown | Failure::StoreBack, _) => {
                let process = self.server().process();
                process.freeze()?;
                at(if failure == Failure::StoreBack { TIMES.fails.1 } else { TIMES.end + 0.2 }).await;
                process.thaw()?;
            }
            (Failure::RestartedEmpty, _) => {
                if let Place::Server(server) = self {
                    server.process().kill();
                    at(TIMES.fails.1).await;
                    block_in_place(|| server.restart())?;
                }
                self.run("DELETE FROM tollgate_buckets").await?;
            }
            (Failure::OneKeyBroken, _) => self.spoil().await?,
        }
        Ok(())
    }
}

/// Waits until the processes have met the failure, and its end.
async fn meet(
    failure: Failure,
    is_file: bool,
    limiters: &[DistributedLimiter<u64, AnyStore>],
) -> Result<(), Error> {
    let any = |count: fn(&DistributedStats) -> u64| limiters.iter().any(|of| count(&of.stats()) > 0);
    let none = |count: fn(&DistributedStats) -> u64| !any(count);
    let has_met = || match failure {
        Failure::Calm => none(|stats| stats.breaker_opened + stats.by_fallback),
        Failure::LateAnswers => any(|stats| stats.calls_late),
        Failure::LostAnswers => any(|stats| stats.calls_unknown),
        // A file loses its rows without an outage.
        Failure::RestartedEmpty if is_file => true,
        Failure::StoreDown | Failure::StoreBack | Failure::RestartedEmpty => any(|stats| stats.by_fallback),
        Failure::OneKeyBroken => {
            any(|stats| stats.calls_permanent.min(stats.by_fallback)) && none(|stats| stats.breaker_opened)
        }
    };
    let is_over = || limiters.iter().all(|of| !of.stats().breaker_open);
    until(LIMIT, || has_met() && is_over()).await.map(drop)
}

/// Runs the cells with one failure, all at once.
async fn group(place: &mut Place, failure: Failure, cells: &[(usize, Cell)]) -> Result<(), Error> {
    let is_file = matches!(place, Place::File(_));
    let proxy = Proxy::start(if is_file { 0 } else { place.server().port() }).await?;
    let through = matches!(failure, Failure::LateAnswers | Failure::LostAnswers).then_some(&proxy);
    // Without an outage no request is late, on a machine that is busy with other tests.
    let is_patient = matches!(failure, Failure::Calm | Failure::OneKeyBroken);
    let deadline = Duration::from_millis(if is_patient { 10_000 } else { 50 });
    let mut runs = JoinSet::new();
    let mut all = Vec::new();
    for (index, cell) in cells {
        let stores = (0..cell.processes).map(|_| AnyStore::open(&place.url(through)));
        let stores = stores.collect::<Result<Vec<_>, _>>()?;
        all.push((*cell, *index, cell.limiters(&format!("matrix {index}"), &Clock::new(), stores, deadline)));
    }
    for limiter in all.iter().flat_map(|(_, _, limiters)| limiters) {
        // The first call connects.
        let connecting = Instant::now();
        while limiter.peek(&0).await.is_err() && connecting.elapsed() < LIMIT {}
    }
    let begun = Instant::now();
    for (cell, index, limiters) in &all {
        let (run, cell, index) = (Run::new(*cell, begun, limiters.clone()), *cell, *index);
        runs.spawn(async move {
            let events = requests(cell, TIMES, 0x9E37_79B9_7F4A_7C15 + index as u64);
            (index, run.send(&events).await, events)
        });
    }
    place.fail(failure, begun, &proxy).await?;
    let records = runs.join_all().await;
    // From an outage on, a machine that is busy may be late at any time.
    let more = [(0.0, f64::MAX); 2];
    let more = match failure {
        Failure::Calm | Failure::LateAnswers | Failure::LostAnswers => &[],
        Failure::RestartedEmpty if !is_file => &more[..],
        _ => &more[..1],
    };
    for (index, record, events) in records {
        let (cell, _, limiters) = all.iter().find(|(_, of, _)| *of == index).ok_or("no such cell")?;
        let figures = KEYS.map(|key| Figures::of(*cell, key, TIMES, more, &record, &events));
        println!("{:11}{cell} | {}", place.name(), row(&figures));
        for (key, figures) in KEYS.iter().zip(&figures) {
            let local = figures.local.map(|[whole, _]| whole);
            let holds = [Some(figures.whole), local].iter().flatten().all(Window::holds);
            assert!(holds, "{} {cell}: key {key} is above its bound: {figures:?}", place.name());
            // A part of the burst is granted, if no request is refused for a late answer.
            let is_useful = figures.granted >= 10 || through.is_some() || *key != STEADY;
            assert!(is_useful, "{} {cell}: {figures:?}", place.name());
        }
        let met = meet(failure, is_file, limiters).await;
        met.map_err(|error| format!("{} {cell}: {error}: {:?}", place.name(), limiters[0].stats()))?;
    }
    if failure == Failure::OneKeyBroken && is_file {
        place.run("DROP TRIGGER spoilt").await?;
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn run(mut place: Place) -> Result<(), Error> {
    AnyStore::open(&place.url(None))?.migrate().await?;
    let sample = sample(place.name());
    println!("           {HEAD}");
    for failure in FAILURES {
        let cells: Vec<_> = sample.iter().filter(|(_, cell)| cell.failure == failure).copied().collect();
        if !cells.is_empty() {
            group(&mut place, failure, &cells).await?;
        }
    }
    Ok(())
}

fn run_on(engine: Engine) -> Result<(), Error> {
    engine.start()?.map_or(Ok(()), |server| run(Place::Server(server)))
}

#[test]
fn sqlite() -> Result<(), Error> {
    run(Place::File(TempDir::with_prefix("tollgate-fleet-")?))
}

#[test]
fn redis() -> Result<(), Error> {
    run_on(Engine::Redis)
}

#[test]
fn postgres() -> Result<(), Error> {
    run_on(Engine::Postgres)
}

#[test]
fn mariadb() -> Result<(), Error> {
    run_on(Engine::MariaDb)
}
