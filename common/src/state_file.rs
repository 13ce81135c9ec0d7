//! The file of a server's state: named parts, for the next process.
//!
//! *Invariant:* the file is a whole one at any time, because a save is written beside it and then
//! renamed. Each process writes under a name of its own, so two processes with one file never mix.
//!
//! *Invariant:* a file that this process has neither read nor saved is not replaced. One of the
//! same secret is merged before, and any other one is kept aside.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::io::Errno;
use siphasher::sip::SipHasher13;

use crate::settings::file;

/// The begin of each file, before its version.
const MAGIC: &[u8] = b"tollgate state ";
const VERSION: u8 = b'1';
/// The names of the parts that have the secret of the keys' hasher, and the time at which the
/// counts began. That of a limiter has more words.
const SECRET: &str = "secret";
const BEGAN: &str = "began";
/// The end of the name of a save that is not yet whole, before 16 digits.
const NEW: &str = ".new-";
/// The most files of one kind that are kept aside.
const MOST_ASIDE: usize = 9;
/// The most links behind each other.
const MOST_LINKS: usize = 40;
/// The times that a save begins anew because another process saves meanwhile, without a lock.
const TRIES: usize = 5;
/// The waits for the lock of another process's save, 2 s in all.
const LOCK_TRIES: u32 = 400;
const LOCK_WAIT: Duration = Duration::from_millis(5);

/// The saved state of a limiter, or of something else that is named.
pub struct SavedPart {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Takes the secret of the keys' hasher out of the parts of a file.
pub fn take_secret(parts: &mut Vec<SavedPart>) -> Option<[u8; 16]> {
    take(parts, SECRET)
}

fn take<const N: usize>(parts: &mut Vec<SavedPart>, name: &str) -> Option<[u8; N]> {
    let index = parts.iter().position(|part| part.name == name)?;
    parts.remove(index).bytes.try_into().ok()
}

/// The begin of the counts, in seconds since 1970, and the time of the save that they go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub began: u64,
    pub saved: Option<u64>,
}

impl Origin {
    /// Returns the origin of counts that begin now.
    pub fn now() -> Origin {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Origin { began: now.map_or(0, |now| now.as_secs()), saved: None }
    }
}

/// The device, the number, the length and the time of the last write of a file.
type FileMark = (u64, u64, u64, (i64, i64));

fn mark(found: &fs::Metadata) -> FileMark {
    (found.dev(), found.ino(), found.len(), (found.mtime(), found.mtime_nsec()))
}

/// The path of the file.
pub struct StateFile {
    path: PathBuf,
    /// The end of the name of the file of a save that is not yet whole.
    new: String,
    /// The file that this process has read or saved last.
    known: Option<FileMark>,
    origin: Origin,
    /// The reason why no state is restored.
    anew: String,
}

impl StateFile {
    /// Returns the path, and the parts of the file there.
    ///
    /// One that is no whole state is a warning, is kept aside, and has no parts. One that cannot be
    /// read, and a path where none can be saved, are an error of one sentence.
    pub fn open(path: &Path) -> Result<(StateFile, Vec<SavedPart>), String> {
        check(path)?;
        let new = format!("{NEW}{:016x}", RandomState::new().hash_one(0));
        let (origin, anew) = (Origin::now(), "it is not there".to_owned());
        let mut file = StateFile { path: path.to_owned(), new, known: None, origin, anew };
        let cannot = |error: io::Error| format!("cannot read the state in {}: {error}", path.display());
        let target = target(path).map_err(cannot)?;
        remove_stale(&target);
        let parts = file.read(&target).map_err(cannot)?;
        Ok((file, parts))
    }

    fn read(&mut self, target: &Path) -> io::Result<Vec<SavedPart>> {
        let (found, bytes) = match read(target) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        match parse(&bytes) {
            Ok(mut parts) => {
                let saved = u64::try_from(found.3.0).unwrap_or_default();
                let began = take(&mut parts, BEGAN).map_or(saved, u64::from_le_bytes);
                (self.known, self.origin) = (Some(found), Origin { began, saved: Some(saved) });
                Ok(parts)
            }
            Err(why) => {
                let aside = keep_aside(target, ".bad")?;
                self.warn(&format!("no state is restored: {why}; it is kept as {}", aside.display()));
                self.anew = why;
                Ok(Vec::new())
            }
        }
    }

    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Gives each part to its limiter, the last one first. One that is refused is a warning, and
    /// the file is kept aside, for the next save has less.
    ///
    /// A limiter is written after the ones that it has replaced. If it takes the parts of both, it
    /// has room for its own.
    pub fn restore(&self, parts: Vec<SavedPart>, to: impl Fn(&SavedPart) -> Result<(), String>) {
        let mut is_whole = true;
        for part in parts.into_iter().rev() {
            if let Err(why) = to(&part) {
                self.warn(&format!("the state of `{}` is not restored: {why}", part.name));
                is_whole = false;
            }
        }
        if !is_whole {
            let kept = target(&self.path).and_then(|target| {
                let aside = free_name(&target, ".aside")?;
                fs::hard_link(&target, &aside).map(|()| aside)
            });
            self.warn(&match kept {
                Ok(aside) => format!("the former state is kept as {}", aside.display()),
                Err(error) => format!("the former state is not kept: {error}"),
            });
        }
    }

    /// Writes a line about the begin of the counts, of which this number of keys is restored.
    pub fn tell(&self, keys: usize) {
        let path = self.path.display();
        match self.origin.saved {
            Some(saved) => {
                let saved = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(saved));
                tracing::info!("{path}: {keys} keys are restored, which were saved at {saved}");
            }
            None => tracing::info!("{path}: counts begin anew: {}", self.anew),
        }
    }

    fn warn(&self, what: &str) {
        tracing::warn!("{}: {what}", self.path.display());
    }

    /// Saves after each interval, and at the end of the saver, on a thread of its own. A save that
    /// fails is a warning, and leaves the former file as it is.
    ///
    /// `merge` takes the parts of another process, which has the same secret and has saved since.
    pub fn save_each(
        mut self,
        interval: Duration,
        parts: impl Fn(&mut Writer) -> io::Result<()> + Send + 'static,
        merge: impl Fn(Vec<SavedPart>) + Send + 'static,
    ) -> Result<Saver, String> {
        let (end, ended) = mpsc::channel();
        let save = move || loop {
            let is_end = ended.recv_timeout(interval) != Err(RecvTimeoutError::Timeout);
            if let Err(error) = self.save(&parts, &merge) {
                self.warn(&format!("the state is not saved: {error}"));
            }
            if is_end {
                return;
            }
        };
        let thread = thread::Builder::new().name("state".to_owned()).spawn(save);
        let thread = thread.map_err(|error| format!("cannot start threads: {error}"))?;
        Ok(Saver { end, thread })
    }

    fn save(
        &mut self,
        parts: impl Fn(&mut Writer) -> io::Result<()>,
        merge: impl Fn(Vec<SavedPart>),
    ) -> io::Result<()> {
        // A link is followed each time, since it may point elsewhere meanwhile.
        let target = target(&self.path)?;
        let new = with_end(&target, &self.new);
        let folder = locked(folder_of(&target))?;
        let saved = self.write_and_rename(&target, &new, parts, merge);
        if saved.is_err() {
            // A part of a state takes room until the next try.
            let _ = fs::remove_file(&new);
        }
        saved?;
        folder.sync_all()
    }

    fn write_and_rename(
        &mut self,
        target: &Path,
        new: &Path,
        parts: impl Fn(&mut Writer) -> io::Result<()>,
        merge: impl Fn(Vec<SavedPart>),
    ) -> io::Result<()> {
        for _ in 0..TRIES {
            // It is locked until it is renamed.
            let Writer { file, secret, .. } = self.write(new, &parts)?;
            let there = match fs::metadata(target) {
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                found => Some(found?),
            };
            there.as_ref().map_or(Ok(()), file::check_kind)?;
            let there = there.as_ref().map(mark);
            if there.is_none() || there == self.known {
                self.known = Some(mark(&file.metadata()?));
                return fs::rename(new, target);
            }
            let (found, bytes) = read(target)?;
            let others = parse(&bytes).map(|mut parts| {
                let _: Option<[u8; 8]> = take(&mut parts, BEGAN);
                (take_secret(&mut parts), parts)
            });
            let (end, why) = match others {
                Ok((other, parts)) if other == secret => {
                    merge(parts);
                    self.known = Some(found);
                    continue;
                }
                Ok(_) => (".aside", "it is of other counts, and was not there at the start".to_owned()),
                Err(why) => (".bad", why),
            };
            let aside = keep_aside(target, end)?;
            self.warn(&format!("{why}: it is kept as {}", aside.display()));
        }
        Err(io::Error::other("another process saves there at the same time"))
    }

    /// Writes the new file, which only its owner can read: it may have a secret.
    fn write(&self, new: &Path, parts: impl Fn(&mut Writer) -> io::Result<()>) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(new)?;
        // For `remove_stale`. Some file systems have no locks.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut to = Writer { file, sum: SipHasher13::new(), secret: None };
        to.write(MAGIC)?;
        to.write(&[VERSION])?;
        to.put(BEGAN, &self.origin.began.to_le_bytes())?;
        parts(&mut to)?;
        to.write(&to.sum.finish().to_le_bytes())?;
        to.file.sync_all()?;
        Ok(to)
    }
}

/// Checks that a state can be read from a path, if it is there, and be saved there.
pub fn check(path: &Path) -> Result<(), String> {
    let cannot = |error: io::Error| format!("the state cannot be in {}: {error}", path.display());
    let target = target(path).map_err(cannot)?;
    match file::open(&target) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot(error)),
        _ => (),
    }
    let folder = folder_of(&target);
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        let error = io::Error::from(error);
        format!("the state cannot be saved in the folder {}: {error}", folder.display())
    })
}

/// Returns the file that a path is, or that its links lead to, which may not be there yet.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&at) {
            Ok(to) => at = folder_of(&at).join(to),
            Err(_) => return Ok(at),
        }
    }
    Err(io::Error::other(format!("more than {MOST_LINKS} links behind each other")))
}

/// Opens a folder for a save that no other one is between. It is locked until it is closed, unless
/// the file system has no locks or a process holds one for long.
fn locked(folder: &Path) -> io::Result<File> {
    let folder = File::open(folder)?;
    for _ in 0..LOCK_TRIES {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_WAIT),
            _ => break,
        }
    }
    Ok(folder)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn read(target: &Path) -> io::Result<(FileMark, Vec<u8>)> {
    let mut file = file::open(target)?;
    let (found, mut bytes) = (mark(&file.metadata()?), Vec::new());
    file.read_to_end(&mut bytes)?;
    Ok((found, bytes))
}

/// Removes the files of saves whose processes ended in the middle of them. A file of a process that
/// runs is locked.
fn remove_stale(target: &Path) {
    let Some(name) = target.file_name() else { return };
    let begin = [name.as_encoded_bytes(), NEW.as_bytes()].concat();
    let is_ours = |name: &[u8]| {
        let digits = name.strip_prefix(&*begin);
        digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
    };
    for entry in fs::read_dir(folder_of(target)).into_iter().flatten().flatten() {
        if is_ours(entry.file_name().as_encoded_bytes())
            && let Ok(file) = file::open(&entry.path())
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Renames a file to a name that is free, and returns that.
fn keep_aside(target: &Path, end: &str) -> io::Result<PathBuf> {
    let aside = free_name(target, end)?;
    fs::rename(target, &aside).map(|()| aside)
}

fn free_name(target: &Path, end: &str) -> io::Result<PathBuf> {
    let names = (1..=MOST_ASIDE).map(|number| match number {
        1 => with_end(target, end),
        number => with_end(target, &format!("{end}-{number}")),
    });
    let is_free =
        |name: &PathBuf| fs::symlink_metadata(name).is_err_and(|it| it.kind() == ErrorKind::NotFound);
    let full = || io::Error::other(format!("{MOST_ASIDE} files {end} are beside {}", target.display()));
    names.into_iter().find(is_free).ok_or_else(full)
}

/// A new file, and the check sum of its bytes.
pub struct Writer {
    file: File,
    sum: SipHasher13,
    secret: Option<[u8; 16]>,
}

impl Writer {
    /// Writes the secret of the keys' hasher.
    pub fn put_secret(&mut self, secret: &[u8; 16]) -> io::Result<()> {
        self.secret = Some(*secret);
        self.put(SECRET, secret)
    }

    pub fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        for bytes in [name.as_bytes(), bytes] {
            self.write(&(bytes.len() as u64).to_le_bytes())?;
            self.write(bytes)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.write(bytes);
        self.file.write_all(bytes)
    }
}

/// The thread that saves.
pub struct Saver {
    end: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Saver {
    /// Saves a last time.
    pub fn end(self) {
        drop(self.end);
        // Its panic has been printed.
        let _ = self.thread.join();
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Reads the parts of a whole file. The error says why it is none.
fn parse(bytes: &[u8]) -> Result<Vec<SavedPart>, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is no state of this program")?;
    let version = *rest.first().ok_or("it is cut")?;
    if version != VERSION {
        let [version, own] = [version, VERSION].map(|byte| byte.escape_ascii());
        return Err(format!("it has version {version}, and this program reads version {own}"));
    }
    let mut sum = SipHasher13::new();
    let damaged = || "it is cut or damaged: its check sum is another one".to_owned();
    let (whole, told) = bytes.split_last_chunk().ok_or_else(damaged)?;
    sum.write(whole);
    if sum.finish() != u64::from_le_bytes(*told) {
        return Err(damaged());
    }
    let mut rest = whole.get(MAGIC.len() + 1..).ok_or_else(damaged)?;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let [name, bytes] = [text(&mut rest), text(&mut rest)];
        let name = String::from_utf8(name.ok_or_else(damaged)?.to_vec()).map_err(|_| damaged())?;
        parts.push(SavedPart { name, bytes: bytes.ok_or_else(damaged)?.to_vec() });
    }
    Ok(parts)
}

/// Cuts a text off, which has its length before it.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let (text, after) = after.split_at_checked(u64::from_le_bytes(*length).try_into().ok()?)?;
    *rest = after;
    Some(text)
}

#[cfg(test)]
mod tests;
