//! Time that processes were on a processor: proc(5), `schedstat`.

use std::fs;
use std::time::Duration;

/// Returns the time of this process, of all its threads.
#[must_use]
pub fn of_this() -> Duration {
    of_threads("self")
}

/// Returns the time of a process and of its children.
#[must_use]
pub fn of(process: u32) -> Duration {
    let children = children(process).into_iter().map(of);
    of_threads(&process.to_string()) + children.sum::<Duration>()
}

fn of_threads(process: &str) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let nanos = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        let before = of_this();
        let sum = (0..50_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        assert!(std::hint::black_box(sum) < u64::MAX);
        let took = of_this() - before;
        assert!(took > Duration::from_millis(1), "{took:?}");
        assert!(of(std::process::id()) >= took);
    }
}
