//! The machine and the versions of a run.

use std::io;
use std::num::NonZero;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::results::About;

/// Returns the machine, and the versions of the compiler and of all contenders.
///
/// # Errors
///
/// If a command such as `uname` is not there.
pub fn about() -> io::Result<About> {
    let told = |program: &str, args: &[&str]| -> io::Result<String> {
        let output = Command::new(program).args(args).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    Ok(About {
        processor: name.map_or("unknown", |(_, name)| name).to_owned(),
        processors: thread::available_parallelism().map_or(1, NonZero::get),
        kernel: told("uname", &["-sr"])?,
        pauses: pauses(),
        rustc: told("rustc", &["--version"])?,
        commit: told("git", &["describe", "--always", "--dirty"])?,
        versions: versions(include_str!("../../Cargo.lock"), NAMES),
        date: told("date", &["-u", "+%Y-%m-%d"])?,
    })
}

/// Returns the pauses of a thread that reads the counter for a second, and does nothing else.
///
/// If a decision takes long enough for one in 1,000 to meet a pause, its p99.9 is that of the
/// pauses.
fn pauses() -> String {
    let clock = quanta::Clock::new();
    let (begin, mut pauses) = (clock.raw(), Vec::new());
    let mut last = begin;
    while clock.delta(begin, last) < Duration::from_secs(1) {
        let now = clock.raw();
        let pause = clock.delta(last, now);
        if pause >= LEAST_PAUSE {
            pauses.push(pause);
        }
        last = now;
    }
    pauses.sort_unstable();
    let median = pauses.get(pauses.len() / 2).map_or(0.0, |pause| pause.as_secs_f64() * 1e6);
    format!("{} a second, of {median:.0} us", pauses.len())
}

/// Longer than a decision takes by itself.
const LEAST_PAUSE: Duration = Duration::from_micros(5);

/// The contenders and their main dependencies.
const NAMES: &str = "better-bucket dashmap governor leaky-bucket limitador papaya parking_lot pingora-limits quanta \
    rate-net ratelimit ratelock tokio-rate-limit tollgate trypema";

/// Returns the versions in a lock file of some packages, whose names have a blank in between.
pub fn versions(lock: &str, names: &str) -> Vec<(String, String)> {
    let value = |line: &str, key| Some(line.strip_prefix(key)?.trim_matches('"').to_owned());
    let package = |text: &str| {
        let name = text.lines().find_map(|line| value(line, "name = "))?;
        let version = text.lines().find_map(|line| value(line, "version = "))?;
        names.split(' ').any(|known| known == name).then_some((name, version))
    };
    lock.split("[[package]]").filter_map(package).collect()
}
