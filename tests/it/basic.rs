//! `examples/basic.rs` from the outside: its process.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

#[test]
fn the_basic_example_grants_two_of_three_and_tells_the_wait() {
    let output = run_example("basic", &[]);
    let stdout = String::from_utf8(output.stdout).expect("it is text");
    assert!(output.status.success(), "{stdout}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..2], ["request 1: granted, 1 left", "request 2: granted, 0 left"]);
    assert_eq!(lines.len(), 3, "{stdout}");
    // In a process that is stopped for half a second, a token comes back.
    let third = lines[2].strip_prefix("request 3: ").expect("it is the third");
    assert!(third.contains("retry after") || third.starts_with("granted"), "{third}");
}

/// Runs an example of the crate to its end. `target/<profile>/deps/it-<hash>` is this process, and
/// `target/<profile>/examples` has the examples.
pub(crate) fn run_example(name: &str, args: &[&str]) -> Output {
    let mut path: PathBuf = std::env::current_exe().expect("a path");
    path.pop();
    path.pop();
    path.extend(["examples", &format!("{name}{}", std::env::consts::EXE_SUFFIX)]);
    assert!(
        path.exists(),
        "{path:?} is missing: `cargo test --all-features` builds it, and so does \
         `cargo build --features tokio --example {name}`"
    );
    Command::new(path).args(args).stdin(Stdio::null()).output().expect("it starts")
}
