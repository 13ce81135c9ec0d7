//! The stores that are measured, each with its server.

use std::io;
use std::path::Path;

use tempfile::TempDir;
use tollgate_test_servers::mariadb::{MariaDb, mariadb_is_installed};
use tollgate_test_servers::postgres::{Postgres, postgres_is_installed};
use tollgate_test_servers::process::Process;
use tollgate_test_servers::redis::{Redis, redis_is_installed};

/// A server that runs, or a file.
pub enum Server {
    /// A file, in a folder that is removed at the end. The processes have their own connections.
    Sqlite(TempDir),
    /// A server of Redis that saves nothing.
    Redis(Redis),
    /// A server of PostgreSQL.
    Postgres(Postgres),
    /// A server of MariaDB.
    MariaDb(MariaDb),
}

impl Server {
    /// The names of the stores.
    pub const NAMES: [&str; 4] = ["Redis", "PostgreSQL", "MariaDB", "SQLite"];

    /// Starts a server by the name of its store. `None` if the program is not installed.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn start(name: &str) -> io::Result<Option<Server>> {
        Ok(match name {
            "Redis" if redis_is_installed() => Some(Server::Redis(Redis::start(&[])?)),
            "PostgreSQL" if postgres_is_installed() => Some(Server::Postgres(Postgres::start(&[])?)),
            "MariaDB" if mariadb_is_installed() => Some(Server::MariaDb(MariaDb::start(&[])?)),
            "SQLite" => Some(Server::Sqlite(TempDir::with_prefix("tollgate-sqlite-")?)),
            _ => None,
        })
    }

    /// Returns the address of the store.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Server::Sqlite(folder) => format!("sqlite:{}", file(folder.path())),
            Server::Redis(server) => server.url(),
            Server::Postgres(server) => server.url(),
            Server::MariaDb(server) => server.url(),
        }
    }

    /// Returns the process of the server. A file has none.
    pub fn process(&mut self) -> Option<&mut Process> {
        match self {
            Server::Sqlite(_) => None,
            Server::Redis(server) => Some(server.process()),
            Server::Postgres(server) => Some(server.process()),
            Server::MariaDb(server) => Some(server.process()),
        }
    }
}

fn file(folder: &Path) -> String {
    folder.join("buckets.db").display().to_string()
}
