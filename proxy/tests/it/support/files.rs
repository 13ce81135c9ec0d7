//! A proxy whose file the test replaces.

use std::ops::Deref;

use super::{Ended, Folder, Proxy, tollgate};

/// The name of the file of settings.
const FILE: &str = "tollgate.toml";

/// Runs the check of a file of this text.
pub(crate) fn check_text(folder: &Folder, text: impl AsRef<[u8]>, options: &str) -> Ended {
    tollgate(&format!("check --config {} {options}", folder.write(FILE, text)))
}

/// A proxy with a file whose text the test replaces.
pub(crate) struct Reloaded {
    proxy: Proxy,
    pub(crate) folder: Folder,
}

impl Reloaded {
    /// Starts a proxy by a file, with an admin page.
    pub(crate) fn start(text: &str) -> Reloaded {
        Reloaded::in_folder(Folder::new(), text, "--admin 127.0.0.1:0")
    }

    /// Starts a proxy by a file in a folder, with these options alone. A file without an upstream
    /// has that of the process.
    pub(crate) fn in_folder(folder: Folder, text: &str, options: &str) -> Reloaded {
        let file = folder.write(FILE, text);
        let proxy = Proxy::on("127.0.0.1:0", &format!("--demo --config {file} {options}"));
        Reloaded { proxy, folder }
    }

    /// Returns the path of the file.
    pub(crate) fn file(&self) -> String {
        self.folder.text(FILE)
    }

    /// Makes the proxy read another text. Returns the lines that it prints, or its complaint.
    pub(crate) fn try_read(&self, text: impl AsRef<[u8]>) -> Result<Vec<String>, String> {
        self.folder.write(FILE, text);
        self.proxy.try_reload()
    }

    /// Makes the proxy read another text, and returns the lines that it prints.
    pub(crate) fn read(&self, text: &str) -> Vec<String> {
        self.folder.write(FILE, text);
        self.proxy.reload()
    }

    /// Makes the proxy read a text with a mistake. Returns its complaint, and checks that the
    /// complaint has this part.
    pub(crate) fn refuses(&self, text: impl AsRef<[u8]>, part: &str) -> String {
        let error = self.try_read(text).expect_err("a mistake");
        assert!(error.contains(part), "no {part:?} in {error}");
        assert!(error.contains("; all settings stay as they were"), "{error}");
        error
    }
}

impl Deref for Reloaded {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}
