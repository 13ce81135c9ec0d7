//! Programs of servers, and free ports for them.

use std::env;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Returns the path of a program: in `PATH`, in the `sbin` folders, or in `folders`.
#[must_use]
pub fn find_program(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let known = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    known.chain(folders.iter().cloned()).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Tells whether a program is installed. Prints a line for the log of the tests if it is not.
///
/// With `WITHOUT_SERVERS` in the environment no program counts as installed, so that tests with
/// servers can run apart from the others.
#[must_use]
pub fn is_installed(name: &str, package: &str, folders: &[PathBuf]) -> bool {
    if env::var_os("WITHOUT_SERVERS").is_some() {
        println!("did not run: {name} is for a run without WITHOUT_SERVERS");
        return false;
    }
    let found = find_program(name, folders).is_some();
    if !found {
        println!("did not run: {name} is not installed (apt-get install {package})");
    }
    found
}

/// The first port that is handed out. The ports are below those that Linux gives to clients, from
/// 32,768 on.
const FIRST_PORT: u16 = 12_000;
const PORTS: u16 = 20_000;

static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// Returns a free port of the loopback that the system gives to no client. So a server can restart
/// on it.
///
/// # Errors
///
/// No port of a thousand is free.
pub fn free_port() -> io::Result<u16> {
    // Processes of tests begin at different ports.
    let begin = (process::id().wrapping_mul(131) % u32::from(PORTS)) as u16;
    for _ in 0..1_000 {
        let step = NEXT_PORT.fetch_add(1, Ordering::Relaxed) % PORTS;
        let port = FIRST_PORT + ((u32::from(begin) + u32::from(step)) % u32::from(PORTS)) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port of a thousand is free"))
}

/// Calls `check` until it is true, or until `limit` has passed. Returns whether it was true.
pub fn wait_until(limit: Duration, mut check: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if check() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
