//! The files of a configuration: those that are given, and all of YAML below folders.
//!
//! *Invariant:* a path below a folder is read, is an error, or is among those that are not read for
//! their names. So no limit is absent without a word.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tollgate_common::settings::error::few;
use tollgate_common::settings::file;

/// The most bytes of a file.
const LARGEST: u64 = 16 << 20;
/// The most paths that are looked at, and the most folders in each other.
const MOST_PATHS: usize = 10_000;
const DEEPEST: usize = 16;
/// The times that files are read which change meanwhile.
const TRIES: usize = 4;
/// The most paths that a line names.
const MOST_NAMED: usize = 8;

/// The files of the configuration and of the settings, as they are found at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The paths of the configuration's files, in the order in which they are loaded.
    pub(crate) files: Vec<PathBuf>,
    /// The paths below folders that are not read for their names.
    pub(crate) unread: Vec<PathBuf>,
    /// What tells a changed file, of each path that was looked at.
    marks: Vec<(PathBuf, Result<Mark, io::ErrorKind>)>,
    /// The first fault of the listing itself.
    fault: Option<String>,
}

/// The length, the number, and the times of a change of the content and of the file.
type Mark = (u64, u64, (i64, i64), (i64, i64));

impl Listing {
    /// Lists the files of a configuration, and others that are not of it.
    pub(crate) fn of<'a>(paths: &[PathBuf], others: impl IntoIterator<Item = &'a Path>) -> Listing {
        let mut listing = Listing::default();
        paths.iter().for_each(|path| listing.add(path, 0));
        for path in others {
            listing.mark(path);
        }
        listing
    }

    fn mark(&mut self, path: &Path) -> Option<fs::Metadata> {
        let found = fs::metadata(path);
        let mark = |file: &fs::Metadata| {
            (file.len(), file.ino(), (file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()))
        };
        self.marks.push((path.to_owned(), found.as_ref().map(mark).map_err(io::Error::kind)));
        found.ok()
    }

    /// Adds a path that is given, or that a folder has.
    fn add(&mut self, path: &Path, depth: usize) {
        if self.marks.len() > MOST_PATHS || depth > DEEPEST {
            let bounds =
                format!("more than {MOST_PATHS} paths, or more than {DEEPEST} folders inside each other");
            self.fault.get_or_insert(bounds);
            return;
        }
        match self.mark(path) {
            Some(found) if found.is_dir() => match entries(path) {
                Ok(below) => below.iter().for_each(|path| self.add_entry(path, depth + 1)),
                Err(why) => _ = self.fault.get_or_insert(format!("cannot list {}: {why}", path.display())),
            },
            // One that is missing, a link to nothing, and a pipe are errors of the reader.
            _ if depth == 0 || is_yaml(path) => self.files.push(path.to_owned()),
            _ => self.unread.push(path.to_owned()),
        }
    }

    /// Adds a path that a folder has. What begins with a dot is hidden on purpose, unless its name
    /// is one of YAML.
    fn add_entry(&mut self, path: &Path, depth: usize) {
        match (is_hidden(path), is_yaml(path)) {
            (false, _) => self.add(path, depth),
            (true, true) => self.unread.push(path.to_owned()),
            (true, false) => (),
        }
    }

    /// Returns some of the paths that are not read for their names, if there are any.
    pub(crate) fn told_unread(&self) -> Option<String> {
        let paths = few(self.unread.iter().map(|path| path.display()), MOST_NAMED, ", ");
        (!self.unread.is_empty()).then(|| format!("{UNREAD}: {paths}"))
    }
}

/// The reason why a path of a folder is not read.
pub(crate) const UNREAD: &str = "not read, since only names in .yaml and .yml without a dot before are";

/// Returns the paths in a folder, in their order.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.take(MOST_PATHS + 1).map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    if paths.len() > MOST_PATHS {
        return Err(io::Error::other(format!("it has more than {MOST_PATHS} paths")));
    }
    paths.sort_unstable();
    Ok(paths)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Reads the files until none changes meanwhile. Returns each path with its text. No file at all is
/// an error, for the absence of limits is seldom meant.
pub(crate) fn read(paths: &[PathBuf], others: &[&Path]) -> Result<(Listing, Vec<(String, String)>), String> {
    let list = || Listing::of(paths, others.iter().copied());
    let text = |path: &PathBuf| Ok((path.display().to_string(), file::read(path, LARGEST)?));
    let mut before = list();
    for _ in 0..TRIES {
        let texts: Result<Vec<_>, String> = match before.fault.clone() {
            Some(fault) => Err(fault),
            None => before.files.iter().map(text).collect(),
        };
        let after = list();
        if after == before {
            let texts = texts?;
            if texts.is_empty() {
                let paths = few(paths.iter().map(|path| path.display()), MOST_NAMED, ", ");
                let unread = before.told_unread().map_or(String::new(), |told| format!("; {told}"));
                return Err(format!("no file .yaml or .yml in {paths}{unread}"));
            }
            return Ok((before, texts));
        }
        before = after;
    }
    Err("the files of the configuration change while they are read".to_owned())
}
