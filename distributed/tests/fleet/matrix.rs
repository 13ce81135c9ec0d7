//! A sample of the crossed matrix on each engine: 40 cells of buckets and 75 of windows, each with
//! its failure on a real server. The time of a busy machine changes no verdict: the bound of a
//! bucket has the time that has passed, and that of a window has no time.
//!
//! ```text
//! cargo test -p tollgate-distributed --all-features --test fleet matrix -- --nocapture
//! ```

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mysql_async::prelude::Queryable;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep, sleep_until};
use tollgate::{Clock, Quota, Window};
use tollgate_distributed::{AnyStore, DistributedLimiter, DistributedStats, Lanes, Op, Store, StoreError};
use tollgate_test_servers::any::{AnyServer, Engine};
use tollgate_test_servers::net::{Cut, Direction, Proxy};

use crate::cells::cell::{CHANGES, Cell, CellRule, FAILURES, Failure, MODES, Mode, Rule, STEADY};
use crate::cells::granted::{Granted, note};
use crate::cells::law::{Figures, HEAD, Interval, row};
use crate::cells::load::{Run, Times, requests};
use crate::outage::until;
use crate::{Failure as Error, file};

/// In an outage, which begins and ends at any time, the processes have the limit once more; or
/// twice, if each of them begins two windows by itself.
const TIMES: Times = Times { fails: (0.3, 0.9), end: 1.4, period: 0.5, adds: [1.0, 2.0] };

/// The kinds of windows. No month ends in a run: the test of the edge has one.
const WINDOWS: [Rule; 3] = [Rule::FirstUse, Rule::Utc, Rule::Sliding];

/// The longest wait for the end of a failure.
const LIMIT: Duration = Duration::from_secs(20);

/// The delay of late answers, and the times for which answers are late or lost, and are not.
const LATE: Duration = Duration::from_millis(120);
const TURNS: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(100)];

/// The tables of an engine of SQL.
const TABLES: [&str; 2] = ["tollgate_buckets", "tollgate_counts"];

/// A server, or a file.
enum Place {
    File(TempDir),
    Server(AnyServer),
}

/// A store that notes the windows of its grants.
struct Watched(AnyStore, Arc<Mutex<Granted>>);

impl Store for Watched {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let called = self.0.acquire(ops).await;
        note(&self.1, ops);
        called
    }

    fn lanes(&self) -> Lanes {
        self.0.lanes()
    }
}

/// Returns the cells of an engine: those of the sample with its name. Together they have each
/// failure on each engine, of each kind of window as well, and each change in each mode by one
/// process and by four.
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
                let (change, mode, processes) = (CHANGES[index % 5], MODES[index % 3], [1, 4][index % 2]);
                sample.push((of, Cell { rule: Rule::Bucket, failure, change, mode, processes }));
            }
        }
    }
    assert_eq!(sample.len(), 40);
    let of_windows: Vec<_> = sample.iter().map(|(of, cell)| (*of, cell.failure)).collect();
    for (at, (of, failure)) in of_windows.iter().enumerate() {
        // Once for the cells of an engine with one failure.
        let rules = if of_windows[..at].contains(&(*of, *failure)) { [].as_slice() } else { &WINDOWS };
        for rule in rules {
            let index = sample.len();
            let (change, mode) = (CHANGES[index % 5], [Mode::Exact, Mode::Leased][index / 5 % 2]);
            let processes = [4, 1][index / 10 % 2];
            sample.push((of, Cell { rule: *rule, failure: *failure, change, mode, processes }));
        }
    }
    assert_eq!(sample.len(), 40 + 75);
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
            // The name of a count ends in a brace.
            let set =
                "for _, key in ipairs(redis.call('KEYS', '*:7*')) do redis.call('SET', key, 'hello') end";
            server.command(&["EVAL", set, "0"])?;
        }
        for table in TABLES {
            let trigger = match self {
                Place::File(_) => {
                    "CREATE TRIGGER spoilt_TABLE BEFORE UPDATE ON TABLE WHEN CAST(NEW.id AS TEXT) LIKE '%:7'
                     BEGIN SELECT RAISE(ABORT, 'the key is spoilt'); END"
                }
                Place::Server(AnyServer::Postgres(_)) => {
                    "CREATE OR REPLACE FUNCTION spoilt() RETURNS trigger LANGUAGE plpgsql AS
                     $do$ BEGIN RAISE EXCEPTION 'the key is spoilt'; END $do$;
                     CREATE TRIGGER spoilt BEFORE UPDATE ON TABLE FOR EACH ROW
                     WHEN (encode(NEW.id, 'escape') LIKE '%:7') EXECUTE FUNCTION spoilt()"
                }
                _ => {
                    "CREATE TRIGGER spoilt_TABLE BEFORE UPDATE ON TABLE FOR EACH ROW
                     IF NEW.id LIKE '%:7' THEN SIGNAL SQLSTATE '45000'; END IF"
                }
            };
            self.run(&trigger.replace("TABLE", table)).await?;
        }
        Ok(())
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
                for table in TABLES {
                    self.run(&format!("DELETE FROM {table}")).await?;
                }
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
    stats: impl Fn() -> Vec<DistributedStats>,
) -> Result<(), Error> {
    let any = |count: fn(&DistributedStats) -> u64| stats().iter().any(|of| count(of) > 0);
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
    let is_over = || stats().iter().all(|of| !of.breaker_open);
    until(LIMIT, || has_met() && is_over()).await.map(drop)
}

/// The begin of the cells of a group, and the end of their failure.
#[derive(Clone, Copy, Default)]
struct Phase {
    begun: Option<Instant>,
    is_over: bool,
}

/// The cells with one failure, which run at once.
struct Group {
    place: &'static str,
    url: String,
    failure: Failure,
    deadline: Duration,
    connected: AtomicUsize,
    phase: watch::Sender<Phase>,
}

impl Group {
    fn is_file(&self) -> bool {
        self.place == "SQLite"
    }

    fn is_through_proxy(&self) -> bool {
        matches!(self.failure, Failure::LateAnswers | Failure::LostAnswers)
    }

    /// Returns the outages and the restarts without data. From an outage on, a machine that is busy
    /// may be late at any time.
    fn outages(&self) -> &'static [(f64, f64)] {
        let count = match self.failure {
            Failure::Calm | Failure::LateAnswers | Failure::LostAnswers => 0,
            Failure::RestartedEmpty if !self.is_file() => 2,
            _ => 1,
        };
        &[(0.0, f64::MAX); 2][..count]
    }

    /// Runs a cell, and compares its grants with its bounds.
    async fn run<R: CellRule>(self: Arc<Self>, index: usize, cell: Cell) {
        let windows = Arc::<Mutex<Granted>>::default();
        let stores =
            (0..cell.processes).map(|_| Watched(AnyStore::open(&self.url).unwrap(), windows.clone()));
        let name = format!("matrix {index}");
        let limiters: Vec<DistributedLimiter<u64, _, R>> =
            cell.limiters(TIMES, &name, &Clock::new(), stores, self.deadline);
        for limiter in &limiters {
            // The first call connects.
            let connecting = Instant::now();
            while limiter.peek(&0).await.is_err() && connecting.elapsed() < LIMIT {}
        }
        let mut phase = self.phase.subscribe();
        self.connected.fetch_add(1, Relaxed);
        let begun = phase.wait_for(|phase| phase.begun.is_some()).await.unwrap().begun.unwrap();
        let events = requests(cell, TIMES, 0x9E37_79B9_7F4A_7C15 + index as u64);
        let mut record = Run::new(cell, TIMES, begun, limiters.clone()).send(&events).await;
        record.windows = windows.lock().unwrap().clone();
        record.begun_us = unix_us(begun);
        let figures = cell.keys().iter();
        let figures = figures.map(|key| Figures::of(cell, *key, TIMES, self.outages(), &record, &events));
        let figures: Vec<_> = figures.collect();
        println!("{:11}{cell} | {}", self.place, row(&figures));
        let stats = || limiters.iter().map(|of| of.stats()).collect::<Vec<_>>();
        for (key, figures) in cell.keys().iter().zip(&figures) {
            let local = figures.local.map(|[whole, _]| whole);
            let holds = [Some(figures.whole), local].iter().flatten().all(Interval::holds);
            assert!(holds, "{} {cell}: key {key} is above its bound: {figures:?}", self.place);
            // A part of the burst is granted, if no request is refused for a late answer.
            let least = if cell.rule == Rule::Bucket { 10 } else { cell.limit(TIMES) as i64 / 4 };
            let is_useful = figures.granted >= least || self.is_through_proxy() || *key != STEADY;
            assert!(is_useful, "{} {cell}: {figures:?}: {:?}", self.place, stats());
        }
        phase.wait_for(|phase| phase.is_over).await.unwrap();
        let met = meet(self.failure, self.is_file(), stats).await.map_err(|error| error.to_string());
        assert_eq!(met, Ok(()), "{} {cell}: {:?}", self.place, stats());
        // After the failure it grants again.
        let again = limiters[0].key(&STEADY).within(LIMIT).acquire().await;
        assert!(again.is_ok(), "{} {cell}: {again:?}: {:?}", self.place, stats());
    }
}

/// Returns the microseconds since 1970 at an instant. Of several readings of both clocks the one
/// counts that took the shortest time.
fn unix_us(at: Instant) -> u64 {
    let reading = |_| {
        let (before, unix, after) = (Instant::now(), SystemTime::now(), Instant::now());
        let unix = unix.duration_since(UNIX_EPOCH).unwrap_or_default();
        (after - before, (unix - before.duration_since(at)).as_micros() as u64)
    };
    (0..20).map(reading).min().map_or(0, |(_, unix_us)| unix_us)
}

/// Runs the cells with one failure, all at once.
async fn group(place: &mut Place, failure: Failure, cells: &[(usize, Cell)]) -> Result<(), Error> {
    let is_file = matches!(place, Place::File(_));
    let proxy = Proxy::start(if is_file { 0 } else { place.server().port() }).await?;
    // Without an outage no request is late, on a machine that is busy with other tests.
    let is_patient = matches!(failure, Failure::Calm | Failure::OneKeyBroken);
    let through = matches!(failure, Failure::LateAnswers | Failure::LostAnswers).then_some(&proxy);
    let group = Arc::new(Group {
        place: place.name(),
        url: place.url(through),
        failure,
        deadline: Duration::from_millis(if is_patient { 10_000 } else { 50 }),
        connected: AtomicUsize::new(0),
        phase: watch::Sender::default(),
    });
    let mut runs = JoinSet::new();
    for (index, cell) in cells {
        match cell.rule {
            Rule::Bucket => runs.spawn(group.clone().run::<Quota>(*index, *cell)),
            _ => runs.spawn(group.clone().run::<Window>(*index, *cell)),
        };
    }
    until(LIMIT * 2, || group.connected.load(Relaxed) == cells.len()).await?;
    let begun = Instant::now();
    group.phase.send_modify(|phase| phase.begun = Some(begun));
    place.fail(failure, begun, &proxy).await?;
    group.phase.send_modify(|phase| phase.is_over = true);
    runs.join_all().await;
    if failure == Failure::OneKeyBroken && is_file {
        for table in TABLES {
            place.run(&format!("DROP TRIGGER spoilt_{table}")).await?;
        }
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
