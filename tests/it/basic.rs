//! `examples/basic.rs` from the outside: its process.

use std::path::{Path, PathBuf};
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
/// `target/<profile>/examples` has the examples. `cargo test --test it` does not build them.
pub(crate) fn run_example(name: &str, args: &[&str]) -> Output {
    let this: PathBuf = std::env::current_exe().expect("a path");
    let profile = this.ancestors().nth(2).expect("a folder of the profile");
    let path = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if !path.exists() {
        build_example(name, profile);
    }
    Command::new(path).args(args).stdin(Stdio::null()).output().expect("it starts")
}

fn build_example(name: &str, profile: &Path) {
    let folder = profile.file_name().and_then(|name| name.to_str()).expect("a profile's name");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args([
        "build",
        "--quiet",
        "--all-features",
        "--example",
        name,
    ]);
    cargo.args(["--profile", if folder == "debug" { "test" } else { folder }]);
    cargo.arg("--target-dir").arg(profile.parent().expect("a folder of all profiles"));
    assert!(cargo.status().expect("cargo starts").success(), "{cargo:?} fails");
}
