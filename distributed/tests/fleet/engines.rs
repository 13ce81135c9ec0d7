//! A server of each engine.

use std::cell::Cell;
use std::io;

use tempfile::TempDir;
#[cfg(feature = "mysql")]
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};
#[cfg(feature = "postgres")]
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
use tollgate_test_servers::process::Process;
#[cfg(feature = "redis")]
use tollgate_test_servers::redis::{Data, Redis, redis_is_installed};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Engine {
    Sqlite,
    #[cfg(feature = "redis")]
    Redis,
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    MariaDb,
}

pub(crate) enum Server {
    Sqlite(TempDir, Cell<u32>),
    #[cfg(feature = "redis")]
    Redis(Redis),
    #[cfg(feature = "postgres")]
    Postgres(Postgres),
    #[cfg(feature = "mysql")]
    MariaDb(MariaDb),
}

impl Engine {
    /// Starts a server; `None` if its program is not installed.
    pub(crate) fn start(self) -> io::Result<Option<Server>> {
        Ok(match self {
            Engine::Sqlite => Some(Server::Sqlite(TempDir::with_prefix("tollgate-fleet-")?, Cell::new(0))),
            #[cfg(feature = "redis")]
            Engine::Redis if !redis_is_installed() => None,
            #[cfg(feature = "redis")]
            Engine::Redis => Some(Server::Redis(Redis::start(&[])?)),
            #[cfg(feature = "postgres")]
            Engine::Postgres if !postgres_is_installed() => None,
            #[cfg(feature = "postgres")]
            Engine::Postgres => Some(Server::Postgres(Postgres::start(&[])?)),
            #[cfg(feature = "mysql")]
            Engine::MariaDb if !mariadb_is_installed() => None,
            #[cfg(feature = "mysql")]
            Engine::MariaDb => Some(Server::MariaDb(MariaDb::start(&[])?)),
        })
    }
}

impl Server {
    pub(crate) fn url(&self) -> String {
        match self {
            Server::Sqlite(folder, turn) => {
                format!("sqlite:{}/{}.db", folder.path().display(), turn.get())
            }
            #[cfg(feature = "redis")]
            Server::Redis(server) => server.url(),
            #[cfg(feature = "postgres")]
            Server::Postgres(server) => server.url(),
            #[cfg(feature = "mysql")]
            Server::MariaDb(server) => server.url(),
        }
    }

    /// Returns the process of a server; `None` for SQLite.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
    pub(crate) fn process(&mut self) -> Option<&mut Process> {
        match self {
            Server::Sqlite(..) => None,
            #[cfg(feature = "redis")]
            Server::Redis(server) => Some(server.process()),
            #[cfg(feature = "postgres")]
            Server::Postgres(server) => Some(server.process()),
            #[cfg(feature = "mysql")]
            Server::MariaDb(server) => Some(server.process()),
        }
    }

    /// Starts a killed server again, with its data if it keeps them.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        match self {
            Server::Sqlite(..) => Ok(()),
            #[cfg(feature = "redis")]
            Server::Redis(server) => server.restart(Data::Empty),
            #[cfg(feature = "postgres")]
            Server::Postgres(server) => server.restart(),
            #[cfg(feature = "mysql")]
            Server::MariaDb(server) => server.restart(),
        }
    }

    /// Returns the URL, after all buckets were removed.
    pub(crate) fn fresh_url(&self) -> io::Result<String> {
        match self {
            Server::Sqlite(_, turn) => turn.set(turn.get() + 1),
            #[cfg(feature = "redis")]
            Server::Redis(server) => drop(server.command(&["FLUSHALL"])?),
            // A bucket of these tests is full again after a second.
            #[cfg(feature = "postgres")]
            Server::Postgres(_) => std::thread::sleep(std::time::Duration::from_millis(1_200)),
            #[cfg(feature = "mysql")]
            Server::MariaDb(_) => std::thread::sleep(std::time::Duration::from_millis(1_200)),
        }
        Ok(self.url())
    }
}
