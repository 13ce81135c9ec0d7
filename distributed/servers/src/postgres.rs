//! PostgreSQL.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::database::{Database, Kind};
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
pub type Postgres = Database<PostgresKind>;

/// The programs of PostgreSQL.
#[derive(Debug)]
pub struct PostgresKind;

impl Kind for PostgresKind {
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

    fn url(port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres")
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
