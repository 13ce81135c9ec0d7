//! A server of any engine.

use std::io;

use crate::mariadb::{MariaDb, mariadb_is_installed};
use crate::postgres::{Postgres, postgres_is_installed};
use crate::process::Process;
use crate::redis::{Data, Redis, redis_is_installed};

/// The engines that have a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Engine {
    Redis,
    Postgres,
    MariaDb,
}

/// A server of one of the engines, with an empty store.
#[expect(missing_docs, reason = "the names say all")]
pub enum AnyServer {
    Redis(Redis),
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Engine {
    /// All engines.
    pub const ALL: [Engine; 3] = [Engine::Redis, Engine::Postgres, Engine::MariaDb];

    /// Starts a server; `None` if its program is not installed.
    ///
    /// # Errors
    ///
    /// The program does not start.
    pub fn start(self) -> io::Result<Option<AnyServer>> {
        Ok(match self {
            Engine::Redis if redis_is_installed() => Some(AnyServer::Redis(Redis::start(&[])?)),
            Engine::Postgres if postgres_is_installed() => Some(AnyServer::Postgres(Postgres::start(&[])?)),
            Engine::MariaDb if mariadb_is_installed() => Some(AnyServer::MariaDb(MariaDb::start(&[])?)),
            _ => None,
        })
    }

    /// Returns the name of the engine.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Engine::Redis => "Redis",
            Engine::Postgres => "PostgreSQL",
            Engine::MariaDb => "MariaDB",
        }
    }
}

impl AnyServer {
    /// Returns the URL of the store.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            AnyServer::Redis(server) => server.url(),
            AnyServer::Postgres(server) => server.url(),
            AnyServer::MariaDb(server) => server.url(),
        }
    }

    /// Returns the port on the loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            AnyServer::Redis(server) => server.port(),
            AnyServer::Postgres(server) => server.port(),
            AnyServer::MariaDb(server) => server.port(),
        }
    }

    /// Returns the process, which can be frozen or killed.
    pub fn process(&mut self) -> &mut Process {
        match self {
            AnyServer::Redis(server) => server.process(),
            AnyServer::Postgres(server) => server.process(),
            AnyServer::MariaDb(server) => server.process(),
        }
    }

    /// Starts a killed server again, at the same port. Redis has lost its buckets.
    ///
    /// # Errors
    ///
    /// The program does not start.
    pub fn restart(&mut self) -> io::Result<()> {
        match self {
            AnyServer::Redis(server) => server.restart(Data::Empty),
            AnyServer::Postgres(server) => server.restart(),
            AnyServer::MariaDb(server) => server.restart(),
        }
    }
}
