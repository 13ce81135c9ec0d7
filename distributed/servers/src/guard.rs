//! A guard that ends a server whose tests were killed, or whose value is never dropped.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for one line. At the end of the input without one, kills the process and removes the
/// folder.
const SCRIPT: &str = r#"read -r line || { kill -9 "$1"; rm -rf "$2"; }"#;

/// A shell that outlives the tests by a moment.
///
/// Only the process of the tests holds the other end of its input.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts a guard over a process and its folder.
    pub(crate) fn over(process: u32, folder: &Path) -> io::Result<Guard> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "guard"]).arg(process.to_string()).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A process group of its own: an interrupt at the terminal does not end the guard.
        command.process_group(0).spawn().map(Guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            let _ = input.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_whose_tests_were_killed_kills_the_server_and_removes_its_data() {
        let folder = tempfile::tempdir().unwrap().keep();
        let mut server = Command::new("sleep").arg("60").spawn().unwrap();
        let mut guard = Guard::over(server.id(), &folder).unwrap();
        // The system closes the pipe of a process that ends.
        drop(guard.0.stdin.take());
        assert!(!server.wait().unwrap().success());
        drop(guard);
        assert!(!folder.exists());
    }

    #[test]
    fn a_guard_that_is_dismissed_does_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Command::new("sleep").arg("60").spawn().unwrap();
        drop(Guard::over(server.id(), folder.path()).unwrap());
        assert!(folder.path().exists());
        assert!(matches!(server.try_wait(), Ok(None)));
        server.kill().and_then(|()| server.wait()).unwrap();
    }
}
