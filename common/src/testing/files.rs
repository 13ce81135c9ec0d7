//! Folders of a test.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// A folder that is removed when this value is dropped. Its path is short enough for a Unix socket.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(TempDir::with_prefix("tollgate-").expect("a folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the path as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("the names are ASCII").to_owned()
    }

    /// Writes a file, and returns its path as text.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.text(name);
        fs::write(&path, text).expect("it can be written");
        path
    }
}
