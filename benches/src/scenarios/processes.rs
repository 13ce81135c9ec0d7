//! Measurements in a process for each contender: its first decision, and its memory.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::de::DeserializeOwned;
use tollgate::Quota;

use super::build::build;
use super::effort::{Effort, say};
use crate::contenders::{self, Key};
use crate::results::{ColdStart, Memory};
use crate::{Contender, Setup};

/// Builds the program that runs a contender in a process of its own, beside this program.
fn alone() -> io::Result<PathBuf> {
    build(".", "--bin alone")?;
    Ok(std::env::current_exe()?.with_file_name("alone"))
}

fn run<T: DeserializeOwned>(alone: &Path, args: &[&str]) -> io::Result<T> {
    let output = Command::new(alone).args(args).output()?;
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout)?),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// Times the first decisions of each contender's process.
///
/// # Errors
///
/// If one cannot be run.
pub fn starts(effort: &Effort, contenders: &[Contender<()>]) -> io::Result<Vec<ColdStart>> {
    let alone = alone()?;
    let start = |contender: &Contender<()>| {
        say(format_args!("first decision, {}", contender.name));
        let mut start = ColdStart { contender: contender.name.to_owned(), ..ColdStart::default() };
        for _ in 0..effort.processes {
            let [made, first, second] = run(&alone, &["start", contender.name])?;
            start.made.push(made);
            start.first.push(first);
            start.second.push(second);
        }
        Ok(start)
    };
    contenders.iter().map(start).collect()
}

/// Makes a limiter, decides twice, and prints the time of each.
pub fn print_start(name: &str) {
    let contender = find(contenders::one_bucket(), name);
    let setup = Setup { quota: crate::Path::Granted.quota(), keys: 1 };
    let begun = Instant::now();
    let limiter = (contender.make)(setup);
    let made = begun.elapsed();
    let begun = Instant::now();
    assert!(limiter.try_acquire(&()), "a bucket starts full");
    let first = begun.elapsed();
    let begun = Instant::now();
    assert!(limiter.try_acquire(&()), "there is more than one token");
    let second = begun.elapsed();
    println!("{:?}", [made, first, second].map(|time| time.as_secs_f64() * 1e9));
}

/// Returns all contenders with a bucket or a window for each key.
fn stores<K: Key>() -> Vec<Contender<K>> {
    contenders::keyed().into_iter().chain(contenders::keyed_windows()).collect()
}

fn find<K>(contenders: Vec<Contender<K>>, name: &str) -> Contender<K> {
    let found = contenders.into_iter().find(|contender| contender.name == name);
    found.unwrap_or_else(|| panic!("no contender is called {name}"))
}

/// Measures the memory of each contender's keys.
///
/// # Errors
///
/// If a process cannot be run.
pub fn memory(effort: &Effort, contenders: &[Contender<u64>]) -> io::Result<Vec<Memory>> {
    let kinds = effort.keys.iter().filter(|&&keys| keys >= 1_000).map(|&keys| ("u64", keys));
    let (alone, mut memory) = (alone()?, Vec::new());
    for (kind, keys) in kinds.chain([("string", 1_000_000)]) {
        say(format_args!("memory of {keys} keys, {kind}"));
        for contender in contenders {
            let [counted, resident, allocations, held] =
                run::<[u64; 4]>(&alone, &["memory", contender.name, kind, &keys.to_string()])?;
            let (contender, kind, held) = (contender.name.to_owned(), kind.to_owned(), held as usize);
            memory.push(Memory { contender, kind, keys, counted, resident, allocations, held });
        }
    }
    Ok(memory)
}

/// Fills a limiter, and prints four numbers.
///
/// They are the bytes asked of the allocator, the bytes by which the process grew, the allocations
/// of a million decisions on those keys, and the keys held. `count` returns the bytes that its
/// argument asked for and kept, and the number of allocations.
pub fn print_memory(name: &str, kind: &str, keys: usize, count: fn(&mut dyn FnMut()) -> (u64, u64)) {
    match kind {
        "u64" => print_memory_of(find(stores(), name), keys, |key| key, count),
        "string" => {
            print_memory_of(find(stores(), name), keys, |key| format!("client-{key:08}"), count);
        }
        _ => panic!("keys are u64 or string, not {kind}"),
    }
}

fn print_memory_of<K: Key>(
    contender: Contender<K>,
    keys: usize,
    key: fn(u64) -> K,
    count: fn(&mut dyn FnMut()) -> (u64, u64),
) {
    // No bucket is ever full again: a limiter that forgets idle keys finds none.
    let quota = Quota::per_hour(1).burst(2_000);
    // Clocks and threads' records, which a process makes at first use, are no key's memory.
    assert!((contender.make)(Setup { quota, keys: 1 }).try_acquire(&key(0)), "a bucket starts full");
    let mut limiter = None;
    let before = resident();
    let (counted, _) = count(&mut || {
        let made = (contender.make)(Setup { quota, keys });
        for number in 0..keys as u64 {
            assert!(made.try_acquire(&key(number)), "a key's bucket starts full");
        }
        limiter = Some(made);
    });
    let grown = resident() - before;
    let limiter = limiter.expect("it was made");
    let known: Vec<K> = (0..keys.min(1_000) as u64).map(key).collect();
    let (_, allocations) = count(&mut || {
        for _ in 0..1_000_000 / known.len() {
            assert_eq!(limiter.count_granted(&known), known.len() as u64, "there are tokens");
        }
    });
    println!("{:?}", [counted, grown, allocations, limiter.keys_held() as u64]);
}

/// Returns the bytes of the process that are in memory: proc(5), `VmRSS`.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .map_or(0, |kibibytes: u64| kibibytes * 1024)
}
