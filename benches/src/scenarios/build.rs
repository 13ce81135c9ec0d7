//! Programs of the project that a scenario runs.

use std::io;
use std::path::Path;
use std::process::Command;

/// Runs `cargo build` for a package of the project, given the folder of its manifest.
pub(super) fn build(manifest: &str, args: &str) -> io::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest).join("Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]).arg(manifest);
    match command.args(args.split(' ')).status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("cargo build {args} failed"))),
    }
}
