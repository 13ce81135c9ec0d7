//! The common parts of the servers of PostgreSQL and MariaDB.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::account::Account;
use crate::process::Process;
use crate::program::{free_port, wait_until};

/// The longest time until a server accepts connections.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A kind of server.
pub(crate) trait Kind {
    /// The account under which root runs the server.
    const ACCOUNT: &str;
    /// A text in the server's log once it accepts connections.
    const READY: &str;

    /// Returns the command that fills a folder with a new database.
    fn create(data: &Path) -> io::Result<Command>;
    /// Returns the command of the server.
    fn serve(data: &Path, port: u16) -> io::Result<Command>;
}

/// A server and its folder.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) process: Process,
    pub(crate) port: u16,
    options: Vec<String>,
    folder: TempDir,
}

impl Database {
    /// Creates a database, and starts a server on it.
    pub(crate) fn start<K: Kind>(options: &[&str]) -> io::Result<Database> {
        let folder = TempDir::with_prefix("tollgate-sql-")?;
        let account = Account::of(K::ACCOUNT)?;
        account.own(folder.path())?;
        let mut create = K::create(&data(folder.path()))?;
        let output = account
            .run(&mut create)
            .env("TMPDIR", folder.path())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            let text = [output.stdout, output.stderr].concat();
            return Err(io::Error::other(String::from_utf8_lossy(&text).into_owned()));
        }
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let mut attempts = 3;
        loop {
            let port = free_port()?;
            attempts -= 1;
            match launch::<K>(port, &options, folder.path()) {
                Ok(process) => return Ok(Database { process, port, options, folder }),
                // Another process may have taken the port first.
                Err(error) if attempts == 0 => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Returns the log of the server since its start.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Kills the server if it runs, and starts it on the same port with the same data.
    pub(crate) fn restart<K: Kind>(&mut self) -> io::Result<()> {
        if self.process.is_running() {
            self.process.kill();
        }
        self.process = launch::<K>(self.port, &self.options, self.folder.path())?;
        Ok(())
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Starts a server, and waits until it accepts connections.
fn launch<K: Kind>(port: u16, options: &[String], folder: &Path) -> io::Result<Process> {
    let path = folder.join("log");
    let log = File::create(&path)?;
    let mut command = K::serve(&data(folder), port)?;
    Account::of(K::ACCOUNT)?.run(&mut command).args(options).env("TMPDIR", folder).current_dir(folder);
    command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log));
    let mut process = Process::start(&mut command, folder)?;
    let text = || fs::read_to_string(&path).unwrap_or_default();
    let mut ended = false;
    let ready = wait_until(START_LIMIT, || {
        ended = !process.is_running();
        ended || text().contains(K::READY)
    });
    if !ready || ended {
        return Err(io::Error::other(format!("the server at port {port} does not start: {}", text())));
    }
    Ok(process)
}
