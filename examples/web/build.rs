//! Takes the program of axum from README.md, so that the pasted program is the tested one.

use std::path::Path;
use std::{env, fs};

const README: &str = "../../README.md";
/// The part in which the two programs differ.
const WITH: &str = "app.into_make_service_with_connect_info::<SocketAddr>()";

/// Replaces the only occurrence of a text.
fn replace(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "`{from}` is in the program once");
    text.replace(from, to)
}

fn main() {
    println!("cargo::rerun-if-changed={README}");
    let text = fs::read_to_string(README).expect("it is two directories up");
    let blocks = text.split("```rust,ignore\n").skip(1);
    let program = blocks.map(|rest| rest.split("```").next().expect("there is a first part"));
    let program = program.filter(|program| program.contains("use axum::")).collect::<Vec<_>>();
    assert_eq!(program.len(), 1, "README.md has one program of axum");
    // On any free port: tests run beside each other.
    let program = replace(program[0], "127.0.0.1:3000", "127.0.0.1:0");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let write =
        |name: &str, program: &str| fs::write(Path::new(&out).join(name), program).expect("it is writable");
    write("readme.rs", &program);
    write("readme_without_connect_info.rs", &replace(&program, WITH, "app"));
}
