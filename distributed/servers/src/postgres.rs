//! PostgreSQL.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::database::{Database, Kind};
use crate::process::Process;
use crate::program::{find_program, is_installed};

/// Tells whether PostgreSQL is installed. Prints a line if it is not.
#[must_use]
pub fn postgres_is_installed() -> bool {
    is_installed("postgres", "postgresql", &folders())
}

/// A server of PostgreSQL on the loopback, with an empty database `postgres`.
///
/// It accepts no connection over a Unix socket. A crash of the machine may lose its data, and a
/// crash of the server does not.
#[derive(Debug)]
pub struct Postgres(Database);

impl Postgres {
    /// Starts a server with options as on the command line, such as `["-c",
    /// "max_connections=200"]`.
    ///
    /// # Errors
    ///
    /// The server does not start within 30 seconds.
    pub fn start(options: &[&str]) -> io::Result<Postgres> {
        Database::start::<Kinds>(options).map(Postgres)
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// Returns the address, as a client takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.0.port)
    }

    /// Returns the log of the server since its start.
    #[must_use]
    pub fn log(&self) -> String {
        self.0.log()
    }

    /// Returns the process: to freeze, thaw or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.0.process
    }

    /// Kills the server if it runs, and starts it on the same port with the same data.
    ///
    /// # Errors
    ///
    /// The server does not start within 30 seconds.
    pub fn restart(&mut self) -> io::Result<()> {
        self.0.restart::<Kinds>()
    }
}

struct Kinds;

impl Kind for Kinds {
    const ACCOUNT: &str = "postgres";
    const READY: &str = "database system is ready to accept connections";

    fn create(data: &Path) -> io::Result<Command> {
        let mut command = Command::new(program("initdb")?);
        command.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
        command.arg("--pgdata").arg(data);
        Ok(command)
    }

    fn serve(data: &Path, port: u16) -> io::Result<Command> {
        let mut command = Command::new(program("postgres")?);
        command.args(["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1"]);
        command.args(["-c", "unix_socket_directories=", "-p", &port.to_string(), "-D"]).arg(data);
        Ok(command)
    }
}

fn program(name: &str) -> io::Result<PathBuf> {
    find_program(name, &folders()).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name))
}

/// Returns the folders of Debian's packages, the newest version first.
fn folders() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path()).collect();
    let number = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok();
    folders.sort_by_key(|folder| std::cmp::Reverse(number(folder)));
    folders.into_iter().map(|folder| folder.join("bin")).collect()
}
