//! The process of a server.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::guard::Guard;
use crate::program::wait_until;

/// The longest time until a server ends after a SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A running server. It is killed when the value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    _guard: Guard,
}

impl Process {
    /// Starts a server whose data is in `folder`. If the tests are killed, a guard kills the server
    /// and removes the folder.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start(command: &mut Command, folder: &Path) -> io::Result<Process> {
        command.stdin(Stdio::null()).process_group(0);
        let mut child = command.spawn()?;
        match Guard::over(child.id(), folder) {
            Ok(guard) => Ok(Process { child, _guard: guard }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Returns the number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells whether the process has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Stops the process and its children by SIGSTOP, and waits until no thread of them runs. Their
    /// sockets stay open.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let processes = || children(self.id()).into_iter().chain([self.id()]);
        wait_until(STOP_LIMIT, || processes().all(is_stopped));
        Ok(())
    }

    /// Lets a frozen process and its children go on.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn thaw(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Ends the process at once, with its children.
    pub fn kill(&mut self) {
        let _ = self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// Asks the process to end, and kills it if it does not within ten seconds.
    pub fn stop(&mut self) {
        if let Some(id) = self.pid() {
            let _ = kill_process(id, Signal::TERM);
        }
        if !wait_until(STOP_LIMIT, || !self.is_running()) {
            self.kill();
        }
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()).ok()?)
    }

    /// Sends a signal to the process, then to each of its children, which may be in other process
    /// groups.
    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = self.pid().ok_or(io::ErrorKind::NotFound)?;
        let children = children(self.child.id());
        kill_process(pid, signal)?;
        for child in children.into_iter().filter_map(|child| Pid::from_raw(child as i32)) {
            let _ = kill_process(child, signal);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            self.kill();
        }
    }
}

/// Tells whether no thread of a process runs, from `/proc` of Linux; true on other systems. After a
/// SIGSTOP one thread takes the signal, and the others run until then.
#[must_use]
pub fn is_stopped(process: u32) -> bool {
    of_threads(process, "status")
        .all(|status| ["\nState:\tT", "\nState:\tZ"].iter().any(|state| status.contains(state)))
}

/// Returns the children of a process, from `/proc` of Linux; none on other systems.
fn children(process: u32) -> Vec<u32> {
    let lists = of_threads(process, "children");
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// Returns a file of `/proc` of each thread of a process.
fn of_threads(process: u32, file: &'static str) -> impl Iterator<Item = String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks.filter_map(move |task| fs::read_to_string(task.path().join(file)).ok())
}
