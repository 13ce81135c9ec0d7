//! A server of each engine.

use rusqlite::Connection;
use tempfile::TempDir;
#[cfg(feature = "mysql")]
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};
#[cfg(feature = "postgres")]
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};
#[cfg(feature = "redis")]
use tollgate_test_servers::redis::{Data, Redis, redis_is_installed};

use super::PATIENCE;

/// A store that proxies can share.
pub(super) enum Server {
    /// A file, and the connection of this process that has its lock.
    Sqlite(TempDir, Option<Connection>),
    #[cfg(feature = "redis")]
    Redis(Redis),
    #[cfg(feature = "postgres")]
    Postgres(Postgres),
    #[cfg(feature = "mysql")]
    MariaDb(MariaDb),
}

/// Starts the servers that are there, one after another.
pub(super) fn servers() -> impl Iterator<Item = Server> {
    let starts: Vec<fn() -> Option<Server>> = vec![
        || Some(Server::Sqlite(TempDir::with_prefix("tollgate-store-").expect("a folder"), None)),
        #[cfg(feature = "redis")]
        || redis_is_installed().then(|| Server::Redis(Redis::start(&[]).expect("it starts"))),
        #[cfg(feature = "postgres")]
        || postgres_is_installed().then(|| Server::Postgres(Postgres::start(&[]).expect("it starts"))),
        #[cfg(feature = "mysql")]
        || mariadb_is_installed().then(|| Server::MariaDb(MariaDb::start(&[]).expect("it starts"))),
    ];
    starts.into_iter().filter_map(|start| start())
}

impl Server {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Server::Sqlite(..) => "SQLite",
            #[cfg(feature = "redis")]
            Server::Redis(_) => "Redis",
            #[cfg(feature = "postgres")]
            Server::Postgres(_) => "PostgreSQL",
            #[cfg(feature = "mysql")]
            Server::MariaDb(_) => "MariaDB",
        }
    }

    pub(super) fn url(&self) -> String {
        match self {
            Server::Sqlite(folder, _) => format!("sqlite:{}/limits.db", folder.path().display()),
            #[cfg(feature = "redis")]
            Server::Redis(server) => server.url(),
            #[cfg(feature = "postgres")]
            Server::Postgres(server) => server.url(),
            #[cfg(feature = "mysql")]
            Server::MariaDb(server) => server.url(),
        }
    }

    /// Kills a server. The file of SQLite is locked by this process instead.
    pub(super) fn take_away(&mut self) {
        match self {
            Server::Sqlite(folder, lock) => {
                let file = Connection::open(folder.path().join("limits.db")).expect("a database");
                file.busy_timeout(PATIENCE).expect("a time");
                file.execute_batch("BEGIN EXCLUSIVE").expect("the proxies let it go");
                *lock = Some(file);
            }
            #[cfg(feature = "redis")]
            Server::Redis(server) => server.process().kill(),
            #[cfg(feature = "postgres")]
            Server::Postgres(server) => server.process().kill(),
            #[cfg(feature = "mysql")]
            Server::MariaDb(server) => server.process().kill(),
        }
    }

    /// Starts a killed server again, or unlocks the file.
    pub(super) fn bring_back(&mut self) {
        let started = match self {
            Server::Sqlite(_, lock) => {
                *lock = None;
                Ok(())
            }
            #[cfg(feature = "redis")]
            Server::Redis(server) => server.restart(Data::Empty),
            #[cfg(feature = "postgres")]
            Server::Postgres(server) => server.restart(),
            #[cfg(feature = "mysql")]
            Server::MariaDb(server) => server.restart(),
        };
        started.unwrap_or_else(|error| panic!("{} does not start again: {error}", self.name()));
    }
}
