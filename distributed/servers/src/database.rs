//! The servers of SQL: PostgreSQL and MariaDB.

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::account::Account;
use crate::process::Process;
use crate::program::{free_port, wait_until};

/// The longest time until a server accepts connections.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A kind of server of SQL.
pub trait Kind {
    /// The account under which root runs the server.
    const ACCOUNT: &str;
    /// A text in the server's log once it accepts connections.
    const READY: &str;

    /// Returns the command that fills a folder with a new database.
    ///
    /// # Errors
    ///
    /// The program is not installed.
    fn create(data: &Path) -> io::Result<Command>;
    /// Returns the command of the server.
    ///
    /// # Errors
    ///
    /// The program is not installed, or a file cannot be written.
    fn serve(data: &Path, port: u16) -> io::Result<Command>;
    /// Returns the address of the server's database, as a client takes it.
    fn url(port: u16) -> String;
}

/// A server of SQL on the loopback, and its folder.
#[derive(Debug)]
pub struct Database<K> {
    process: Process,
    port: u16,
    options: Vec<String>,
    folder: TempDir,
    kind: PhantomData<K>,
}

impl<K: Kind> Database<K> {
    /// Creates a database, and starts a server on it, with options as on the command line.
    ///
    /// # Errors
    ///
    /// The server does not start within 30 seconds.
    pub fn start(options: &[&str]) -> io::Result<Database<K>> {
        let folder = TempDir::with_prefix("tollgate-sql-")?;
        let account = Account::of(K::ACCOUNT)?;
        account.own(folder.path())?;
        fill::<K>(&data(folder.path()), account)?;
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let mut attempts = 3;
        loop {
            let port = free_port()?;
            attempts -= 1;
            match launch::<K>(port, &options, folder.path()) {
                Ok(process) => return Ok(Database { process, port, options, folder, kind: PhantomData }),
                // Another process may have taken the port first.
                Err(error) if attempts == 0 => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address, as a client takes it.
    #[must_use]
    pub fn url(&self) -> String {
        K::url(self.port)
    }

    /// Returns the process: to freeze, thaw or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns the log of the server since its start.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Kills the server if it runs, and starts it on the same port with the same data.
    ///
    /// Processes of a killed server may hold its memory for a moment. No server starts before they
    /// end, so this tries again.
    ///
    /// # Errors
    ///
    /// The server does not start within 30 seconds.
    pub fn restart(&mut self) -> io::Result<()> {
        if self.process.is_running() {
            self.process.kill();
        }
        let mut launched = launch::<K>(self.port, &self.options, self.folder.path());
        wait_until(START_LIMIT, || {
            if launched.is_err() {
                launched = launch::<K>(self.port, &self.options, self.folder.path());
            }
            launched.is_ok()
        });
        self.process = launched?;
        Ok(())
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Fills a folder with a new database.
///
/// To make one takes a second of a processor, and to copy one a tenth of that. So the first one is
/// kept beside the program, and its name is a hash of the command that made it and of the owner.
fn fill<K: Kind>(data: &Path, account: Account) -> io::Result<()> {
    let folder = data.parent().unwrap_or(data);
    let mut create = K::create(data)?;
    let mut maker = DefaultHasher::new();
    fs::metadata(folder)?.uid().hash(&mut maker);
    format!("{:?}", K::create(Path::new("data"))?).hash(&mut maker);
    fs::metadata(create.get_program())?.modified()?.hash(&mut maker);
    let kept = env::current_exe()?.with_file_name(format!("{}-{:016x}", K::ACCOUNT, maker.finish()));
    if kept.exists() {
        return copy(&kept, data);
    }
    account.run(&mut create).env("TMPDIR", folder).current_dir(folder).stdin(Stdio::null());
    complete(&mut create)?;
    // Another process may be about the same: the folder appears whole, or not at all.
    let beside = TempDir::with_prefix_in("tollgate-sql-", kept.parent().unwrap_or(&kept))?;
    let made = beside.path().join("data");
    copy(data, &made)?;
    let _ = fs::rename(&made, &kept);
    Ok(())
}

/// Copies a folder, with the owners of its files.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    complete(Command::new("cp").arg("-a").arg(from).arg(to))
}

/// Runs a command to its end. The error of one that fails has its output.
fn complete(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()))
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
