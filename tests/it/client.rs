//! `examples/client.rs` from the outside: its process, and an upstream that counts.

use std::process::Output;
use std::time::Instant;

use tollgate_testing::upstream::{OK, Upstream, refusing};

use crate::basic::run_example;

/// Tokens a second of the quota that these tests wait for, and its burst.
const RATE: f64 = 50.0;
const BURST: f64 = 5.0;
const LIMIT: &str = "50/s burst 5";

#[test]
fn who_waits_sends_all_and_never_too_soon() {
    let upstream = Upstream::answering(OK);
    let start = Instant::now();
    let output = run(&["--limit", LIMIT, "--requests", "30", "--mode", "wait", "--url", &upstream.url()]);
    let most = BURST + RATE * start.elapsed().as_secs_f64();
    assert_eq!(counts(&output), (30, 0));
    assert_eq!(upstream.count(), 30);
    assert!(30.0 <= most, "30 requests arrived where at most {most} may");
}

#[test]
fn who_is_refused_sends_nothing() {
    let upstream = Upstream::answering(OK);
    let start = Instant::now();
    let output = run(&["--limit", LIMIT, "--requests", "200", "--mode", "refuse", "--url", &upstream.url()]);
    let most = BURST + RATE * start.elapsed().as_secs_f64();
    let (sent, refused) = counts(&output);
    assert_eq!(sent + refused, 200);
    assert_eq!(upstream.count() as u64, sent);
    assert!((BURST..=most).contains(&(sent as f64)), "{sent} requests arrived where at most {most} may");

    // No token comes in the time of the run, so exactly the burst is sent.
    let upstream = Upstream::answering(OK);
    let output = run(&["--limit", "3/h", "--requests", "20", "--mode", "refuse", "--url", &upstream.url()]);
    assert_eq!(counts(&output), (3, 17));
    assert_eq!(upstream.count(), 3);
}

#[test]
fn it_brings_its_own_upstream() {
    assert_eq!(counts(&run(&["--limit", "1000/s burst 10", "--requests", "50"])), (50, 0));
}

#[test]
fn a_bad_option_is_one_line_and_exit_code_2() {
    for (args, part) in [
        (&["--limit", "fast"][..], "fast"),
        (&["--limit", "0/s burst 1"], "--limit"),
        (&["--limit", "1/50000d"], "no room"),
        (&["--requests", "0"], "--requests"),
        (&["--requests", "many"], "many"),
        (&["--url", "127.0.0.1:3000"], "http://"),
        (&["--url", "http://a/path"], "http://"),
        (&["--url", "https://a"], "https"),
        (&["--mode", "maybe"], "`refuse`"),
        (&["--nonsense"], "--nonsense"),
    ] {
        fails(args, 2, part);
    }
    fails(&["--requests", "1", "--url", &refusing()], 1, "cannot reach");
}

fn fails(args: &[&str], code: i32, part: &str) {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(part), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}");
}

/// Returns the sent and the refused requests of the one line that the example prints.
fn counts(output: &Output) -> (u64, u64) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.lines().count() == 1, "{output:?}");
    let number = |name| -> u64 {
        let after = stdout.split_once(name).unwrap_or_else(|| panic!("no {name:?} in {stdout:?}")).1;
        after.split(',').next().expect("a first part").parse().expect("a number")
    };
    (number("sent "), number("refused "))
}

/// Runs the example to its end.
fn run(args: &[&str]) -> Output {
    run_example("client", args)
}
