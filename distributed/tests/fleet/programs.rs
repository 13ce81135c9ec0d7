//! The examples, run as programs. `cargo test --all-features` builds them before.

use std::process::Command;
use std::time::Instant;
use std::{env, fs};

use tempfile::TempDir;
#[cfg(any(feature = "mysql", feature = "redis"))]
use tollgate_test_servers::any::Engine;

use crate::Failure;

/// A port without a server.
#[cfg(feature = "redis")]
pub(crate) const CLOSED: &str = "redis://127.0.0.1:1";

/// Returns the command that runs an example.
pub(crate) fn example(name: &str) -> Command {
    let tests = env::current_exe().unwrap();
    let built = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(
        built.is_file(),
        "{} is missing: `cargo build --profile test --all-features --examples` builds it",
        built.display()
    );
    Command::new(built)
}

/// Runs an example to its end. Returns its output, and its time in seconds.
fn run(command: &mut Command) -> Result<(String, f64), Failure> {
    let begun = Instant::now();
    let output = command.output()?;
    let text = String::from_utf8(output.stdout)?;
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    print!("{text}");
    Ok((text, begun.elapsed().as_secs_f64()))
}

/// Returns the number before a text.
fn number_before(text: &str, after: &str) -> u32 {
    let before = text.split(after).next().unwrap();
    before.rsplit([' ', '\n']).next().unwrap().parse().unwrap()
}

#[test]
fn the_programs_of_the_pages_are_examples() -> Result<(), Failure> {
    let folder = env!("CARGO_MANIFEST_DIR");
    for (page, name) in [("README.md", "hello"), ("README.md", "service"), ("docs/from-incr.md", "from_incr")]
    {
        let page_text = fs::read_to_string(format!("{folder}/{page}"))?;
        let text = fs::read_to_string(format!("{folder}/examples/{name}.rs"))?;
        let head = text.lines().take_while(|line| line.starts_with("//!")).map(|line| line.len() + 1);
        let program = &text[head.sum()..];
        assert!(page_text.contains(program.trim_start()), "{page} has not the program `{name}`");
    }
    Ok(())
}

#[test]
fn hello_decides_each_request() -> Result<(), Failure> {
    let folder = TempDir::with_prefix("tollgate-hello-")?;
    let (text, _) = run(example("hello").env("TMPDIR", folder.path()))?;
    assert!(text.starts_with("1: granted, ") && text.lines().count() == 7, "{text}");
    Ok(())
}

#[test]
fn a_local_limit_refuses_a_flood_without_calls() -> Result<(), Failure> {
    let (text, seconds) = run(&mut example("local_first"))?;
    let granted = number_before(&text, " of 1,000 granted");
    assert!(granted >= 5 && f64::from(granted) <= 5.0 + 5.0 * seconds, "{text}");
    assert_eq!(granted + number_before(&text, " refused in this process"), 1_000);
    assert!(number_before(&text, " calls of the store") <= granted + 1, "{text}");
    Ok(())
}

/// Five callers a second ask for two tokens a second.
fn has_two_tokens_a_second(requester: &mut Command) -> Result<(), Failure> {
    let (text, seconds) = run(requester)?;
    let granted: Vec<_> = text.lines().map(|line| number_before(line, " of 5 granted")).collect();
    // The asks of a second and the pause before them last for an interval.
    assert!(granted.len() == 3 && granted.iter().all(|granted| *granted > 0), "{text}");
    // The full bucket, and one more for each interval that began.
    assert!(f64::from(granted.iter().sum::<u32>()) <= 2.0 + 2.0 * (seconds + 1.0), "{text}");
    Ok(())
}

#[test]
fn tokens_at_intervals_of_a_file() -> Result<(), Failure> {
    let folder = TempDir::with_prefix("tollgate-requester-")?;
    has_two_tokens_a_second(example("requester").env("TMPDIR", folder.path()))
}

#[cfg(feature = "mysql")]
#[test]
fn tokens_at_intervals_by_a_stored_procedure() -> Result<(), Failure> {
    let Some(server) = Engine::MariaDb.start()? else { return Ok(()) };
    has_two_tokens_a_second(example("stored_procedure").env("DATABASE_URL", server.url()))
}

/// The script and the window grant five requests, and the window alone goes on with its count.
#[cfg(feature = "redis")]
#[test]
fn a_fleet_moves_from_a_script() -> Result<(), Failure> {
    let Some(server) = Engine::Redis.start()? else { return Ok(()) };
    let (text, _) = run(example("from_incr").env("REDIS_URL", server.url()))?;
    let granted: Vec<_> = text.lines().map(|line| line.ends_with("granted: true")).collect();
    assert_eq!(granted, [true, true, true, true, true, false, false, false], "{text}");
    assert!(text.contains("alone, not enough tokens"), "{text}");
    Ok(())
}
