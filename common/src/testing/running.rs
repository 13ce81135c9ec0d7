//! Processes that go on until a test ends them.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;

use tollgate_testing::wire::PATIENCE;

/// A process. A drop of this value ends it.
pub struct Running {
    child: RefCell<Child>,
    /// The lines of its stdout. The channel ends with the process.
    pub out: Receiver<String>,
    /// The lines of its stderr, unless those are among the others.
    pub errors: Receiver<String>,
}

impl Running {
    /// Starts a process. Threads read its lines, so it never waits for a test that does not.
    pub fn start(command: &mut Command) -> Running {
        Running::over(command, false)
    }

    /// Starts a process, whose lines of stderr are among those of stdout.
    pub fn merged(command: &mut Command) -> Running {
        Running::over(command, true)
    }

    fn over(command: &mut Command, is_merged: bool) -> Running {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let ((lines, out), (to, errors)) = (mpsc::channel(), mpsc::channel());
        read_lines(child.stderr.take().expect("piped"), if is_merged { lines.clone() } else { to });
        read_lines(child.stdout.take().expect("piped"), lines);
        Running { child: RefCell::new(child), out, errors }
    }

    pub fn id(&self) -> u32 {
        self.child.borrow().id()
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
    }

    /// Waits for the end of the process, and returns its exit code. Its lines up to then are lost.
    pub fn exit_code(&self) -> Option<i32> {
        // The channel ends with the process. This wait has a bound, and `wait` has none.
        loop {
            match self.out.recv_timeout(PATIENCE) {
                Ok(_) => (),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the process does not end"),
            }
        }
        self.child.borrow_mut().wait().expect("it was started here").code()
    }

    /// Ends the process, and waits for its end.
    pub fn kill(&self) {
        let mut child = self.child.borrow_mut();
        // The call fails only if the process has already ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends the lines of a pipe. The thread ends with the process.
fn read_lines(pipe: impl Read + Send + 'static, to: Sender<String>) {
    thread::spawn(move || {
        BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| to.send(line))
    });
}

/// Returns the address that a line has after a text, with or without a scheme before it.
pub fn address_after(line: &str, before: &str) -> SocketAddr {
    let rest = line.split_once(before).map_or(line, |(_, rest)| rest);
    let address = rest.split_once("://").map_or(rest, |(_, rest)| rest);
    let address = address.split([' ', '/']).next().and_then(|text| text.parse().ok());
    address.unwrap_or_else(|| panic!("no address in {line:?}"))
}
