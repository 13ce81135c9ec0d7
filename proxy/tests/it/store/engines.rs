//! A store of each engine.

use rusqlite::Connection;
use tempfile::TempDir;
use tollgate_test_servers::any::{AnyServer, Engine};

use crate::support::PATIENCE;

/// A store that proxies can share.
pub(super) enum Server {
    /// A file, and the connection of this process that has its lock.
    Sqlite(TempDir, Option<Connection>),
    Other(Engine, AnyServer),
}

/// The engines that have a server, each with whether the proxy has it.
const ENGINES: [(Engine, bool); 3] = [
    (Engine::Redis, cfg!(feature = "redis")),
    (Engine::Postgres, cfg!(feature = "postgres")),
    (Engine::MariaDb, cfg!(feature = "mysql")),
];

/// Returns a file.
fn file() -> Server {
    Server::Sqlite(TempDir::with_prefix("tollgate-store-").expect("a folder"), None)
}

/// Starts the servers that are there, one after another.
pub(super) fn others() -> impl Iterator<Item = Server> {
    ENGINES
        .into_iter()
        .filter(|(_, is_there)| *is_there)
        .filter_map(|(engine, _)| Some(Server::Other(engine, engine.start().expect("it starts")?)))
}

/// Returns a file, and then the servers that are there.
pub(super) fn servers() -> impl Iterator<Item = Server> {
    std::iter::once_with(file).chain(others())
}

impl Server {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Server::Sqlite(..) => "SQLite",
            Server::Other(engine, _) => engine.name(),
        }
    }

    pub(super) fn url(&self) -> String {
        match self {
            Server::Sqlite(folder, _) => format!("sqlite:{}/limits.db", folder.path().display()),
            Server::Other(_, server) => server.url(),
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
            Server::Other(_, server) => server.process().kill(),
        }
    }

    /// Starts a killed server again, or unlocks the file.
    pub(super) fn bring_back(&mut self) {
        match self {
            Server::Sqlite(_, lock) => *lock = None,
            Server::Other(engine, server) => {
                server.restart().unwrap_or_else(|error| panic!("{engine:?} does not start again: {error}"));
            }
        }
    }
}
