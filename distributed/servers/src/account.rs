//! The account of a server that refuses to run as root.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// An account of the system. Root runs servers under it; other accounts run servers under their
/// own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account(Option<(u32, u32)>);

impl Account {
    /// Returns the account of a server, as its Debian package makes it.
    ///
    /// # Errors
    ///
    /// Root runs the tests, and there is no such account.
    pub(crate) fn of(name: &str) -> io::Result<Account> {
        if !rustix::process::getuid().is_root() {
            return Ok(Account(None));
        }
        let accounts = fs::read_to_string("/etc/passwd")?;
        let found = accounts.lines().find_map(|line| {
            let mut fields = line.strip_prefix(name)?.strip_prefix(':')?.split(':').skip(1);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        });
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("there is no account {name}"));
        found.map(|ids| Account(Some(ids))).ok_or_else(missing)
    }

    /// Makes the account the owner of a file.
    ///
    /// # Errors
    ///
    /// The file is missing.
    pub(crate) fn own(self, path: &Path) -> io::Result<()> {
        self.0.map_or(Ok(()), |(user, group)| chown(path, Some(user), Some(group)))
    }

    /// Lets a command run under the account.
    pub(crate) fn run(self, command: &mut Command) -> &mut Command {
        match self.0 {
            Some((user, group)) => command.gid(group).uid(user),
            None => command,
        }
    }
}
