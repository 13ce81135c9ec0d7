//! The number of files that the process may open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit on open files to the hard one. The soft one is low only for `select`.
pub fn open_files_limit() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current;
    limit.current = limit.maximum;
    let limit = if setrlimit(Resource::Nofile, limit).is_ok() { limit.current } else { soft };
    limit.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}
