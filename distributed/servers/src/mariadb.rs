//! MariaDB.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::database::{Database, Kind};
use crate::program::{find_program, is_installed};

/// The statements of each start: an account for tests, and their database.
const INIT: &str = "CREATE USER IF NOT EXISTS test@'127.0.0.1';
GRANT ALL ON *.* TO test@'127.0.0.1' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS tests;
";

/// Tells whether MariaDB is installed. Prints a line if it is not.
#[must_use]
pub fn mariadb_is_installed() -> bool {
    is_installed("mariadbd", "mariadb-server", &[])
}

/// A server of MariaDB on the loopback, with an empty database `tests`.
pub type MariaDb = Database<MariaDbKind>;

/// The programs of MariaDB.
#[derive(Debug)]
pub struct MariaDbKind;

impl Kind for MariaDbKind {
    const ACCOUNT: &str = "mysql";
    const READY: &str = "ready for connections";

    fn create(data: &Path) -> io::Result<Command> {
        let mut command = Command::new(program("mariadb-install-db")?);
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        command.args(["--skip-name-resolve", "--innodb-log-file-size=16M"]);
        command.arg(format!("--datadir={}", data.display()));
        Ok(command)
    }

    fn serve(data: &Path, port: u16) -> io::Result<Command> {
        let file = |name: &str| data.with_file_name(name);
        fs::write(file("init"), INIT)?;
        let mut command = Command::new(program("mariadbd")?);
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        command.args(["--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M"]);
        command.arg(format!("--port={port}")).arg(format!("--datadir={}", data.display()));
        command.arg(format!("--socket={}", file("socket").display()));
        command.arg(format!("--pid-file={}", file("pid").display()));
        command.arg(format!("--init-file={}", file("init").display()));
        Ok(command)
    }

    fn url(port: u16) -> String {
        format!("mysql://test@127.0.0.1:{port}/tests")
    }
}

fn program(name: &str) -> io::Result<PathBuf> {
    find_program(name, &[]).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name))
}
