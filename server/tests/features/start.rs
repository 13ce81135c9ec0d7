//! The first minute: commands, the start text, and sentences.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use super::process::{Proxy, tollgate};
use super::support::{Certificate, Folder};

#[test]
fn the_command_alone_prints_what_there_is() {
    let output = tollgate(&[]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    for part in ["proxy", "check", "--help"] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    for args in [&["--help"][..], &["proxy", "--help"], &["check", "--help"], &["--version"]] {
        let output = tollgate(args);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(0), false), "{args:?}");
    }
    assert!(tollgate(&["--version"]).stdout.starts_with(b"tollgate 0."));
    let usage = tollgate(&["proxy", "--help"]).stdout;
    assert!(String::from_utf8_lossy(&usage).contains("Usage: tollgate proxy"));
    let output = tollgate(&["nonsense"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
}

/// Returns the command in a line of the start text.
fn command(proxy: &Proxy, name: &str) -> String {
    let line = proxy.line_with(name);
    line.split_once(':').expect("a name").1.trim().to_owned()
}

fn shell(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().expect("sh runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has_curl() -> bool {
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    if !has_curl {
        eprintln!("not tested: this host has no curl");
    }
    has_curl
}

#[test]
fn the_commands_of_the_start_text_show_a_request_and_a_refusal() {
    if !has_curl() {
        return;
    }
    let (folder, certificate) = (Folder::new(), Certificate::new());
    let (chain, key) = certificate.write(&folder);
    let socket = format!("unix:{}", folder.path("socket"));
    let tls = ["--tls-cert", &chain, "--tls-key", &key];
    let behind = ["--proxy-protocol", "--trust-proxy", "127.0.0.1", "--limit", "5/m burst 5"];
    for (listen, options) in [
        // The default limit, which is there without options.
        ("127.0.0.1:0", &[][..]),
        ("127.0.0.1:0", &tls),
        ("127.0.0.1:0", &behind),
        ("127.0.0.1:0", &["--limit", "1/h burst 1"]),
        (&socket, &["--limit", "5/s burst 10"]),
    ] {
        let proxy = Proxy::start_on(listen, options);
        let request = shell(&command(&proxy, "a request:"));
        assert!(request.starts_with("HTTP/1.1 200") || request.starts_with("HTTP/2 200"), "{request}");
        assert!(request.contains("GET / HTTP/1.1"), "{request}");
        let statuses = shell(&command(&proxy, "a refusal:"));
        let refused = statuses.lines().find_map(|line| line.trim().strip_suffix(" 429"));
        let refused: u32 = refused.unwrap_or_else(|| panic!("none in {statuses}")).parse().expect("a number");
        assert!(refused > 0, "{statuses}");
        // All other requests were granted.
        assert!(statuses.lines().all(|line| line.ends_with(" 429") || line.ends_with(" 200")), "{statuses}");
    }
}

/// A command that shows no refusal would be worse than no command.
#[test]
fn there_is_no_command_for_a_refusal_that_will_not_come() {
    for options in [&["--limit", "none"][..], &["--shadow"], &["--limit", "100000/s burst 100000"]] {
        let proxy = Proxy::start(options);
        command(&proxy, "a request:");
        let line = if options[0] == "--shadow" { None } else { Some(proxy.connect().get("/")) };
        drop(line);
        proxy.signal("-TERM");
        let mut rest = Vec::new();
        loop {
            let line = proxy.line();
            if line.starts_with("draining") {
                break;
            }
            rest.push(line);
        }
        assert!(rest.iter().all(|line| !line.contains("curl -")), "{options:?}: {rest:?}");
    }
}

#[test]
fn a_port_that_is_taken_is_one_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken: SocketAddr =
        taken.local_addr().map(|address| (address, std::mem::forget(taken)).0).expect("it has one");
    let output = tollgate(&["proxy", "--listen", &taken.to_string()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, format!("error: cannot listen on {taken}: Address already in use (os error 98)\n"));
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true));
}
