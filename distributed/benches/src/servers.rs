//! The stores that are measured, each with its server.

use std::io;
use std::path::Path;

use tempfile::TempDir;
use tollgate_test_servers::any::{AnyServer, Engine};
use tollgate_test_servers::process::Process;

/// A server that runs, or a file.
pub enum Server {
    /// A file, in a folder that is removed at the end. The processes have their own connections.
    Sqlite(TempDir),
    /// A server. Redis saves nothing.
    Any(AnyServer),
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
        if name == "SQLite" {
            return Ok(Some(Server::Sqlite(TempDir::with_prefix("tollgate-sqlite-")?)));
        }
        match Engine::ALL.into_iter().find(|engine| engine.name() == name) {
            Some(engine) => Ok(engine.start()?.map(Server::Any)),
            None => Ok(None),
        }
    }

    /// Returns the address of the store.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Server::Sqlite(folder) => format!("sqlite:{}", file(folder.path())),
            Server::Any(server) => server.url(),
        }
    }

    /// Returns the process of the server. A file has none.
    pub fn process(&mut self) -> Option<&mut Process> {
        match self {
            Server::Sqlite(_) => None,
            Server::Any(server) => Some(server.process()),
        }
    }
}

fn file(folder: &Path) -> String {
    folder.join("buckets.db").display().to_string()
}
