//! MariaDB.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::database::{Database, Kind};
use crate::process::Process;
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
#[derive(Debug)]
pub struct MariaDb(Database);

impl MariaDb {
    /// Starts a server with options as on the command line, such as `["--sysdate-is-now"]`.
    ///
    /// # Errors
    ///
    /// The server does not start within 30 seconds.
    pub fn start(options: &[&str]) -> io::Result<MariaDb> {
        Database::start::<Kinds>(options).map(MariaDb)
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// Returns the address, as a client takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://test@127.0.0.1:{}/tests", self.0.port)
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
}

fn program(name: &str) -> io::Result<PathBuf> {
    find_program(name, &[]).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name))
}
