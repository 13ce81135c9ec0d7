//! The first minute: commands, the start text, and sentences.

use std::process::Command;

use crate::support::{Certificate, Folder, Proxy, tollgate};

#[test]
fn the_help_says_what_there_is() {
    for (line, part) in [
        ("--help", "Usage: tollgate-proxy [OPTIONS]"),
        ("check --help", "Usage: tollgate-proxy check"),
        ("--version", "tollgate-proxy 0."),
    ] {
        let text = tollgate(line).text();
        assert!(!text.is_empty() && text.contains(part), "{line}: {text}");
    }
    tollgate("nonsense").assert_mistake("", "");
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
    let socket = format!("unix:{}", folder.text("socket"));
    let tls = format!("{} --limit 5/m", certificate.options(&folder));
    for (listen, options) in [
        // The default limit, which is there without options. On a busy machine it may earn its
        // tokens faster than they are asked for.
        ("127.0.0.1:0", ""),
        ("127.0.0.1:0", &tls),
        ("127.0.0.1:0", "--proxy-protocol --trust-proxy 127.0.0.1 --limit 5/m"),
        ("127.0.0.1:0", "--limit 1/h"),
        (&socket, "--limit 5/h&burst&10"),
    ] {
        let proxy = Proxy::on(listen, options);
        let request = shell(&command(&proxy, "a request:"));
        assert!(request.starts_with("HTTP/1.1 200") || request.starts_with("HTTP/2 200"), "{request}");
        assert!(request.contains("GET / HTTP/1.1"), "{request}");
        let statuses = shell(&command(&proxy, "a refusal:"));
        let refused = statuses.lines().find_map(|line| line.trim().strip_suffix(" 429")).unwrap_or("0");
        let refused: u32 = refused.parse().expect("a number");
        assert!(refused > 0 || options.is_empty(), "{statuses}");
        // All other requests were granted.
        assert!(statuses.lines().all(|line| line.ends_with(" 429") || line.ends_with(" 200")), "{statuses}");
    }
}

/// A command that shows no refusal would be worse than no command.
#[test]
fn there_is_no_command_for_a_refusal_that_will_not_come() {
    for options in ["--limit none", "--shadow", "--limit 100000/s"] {
        let proxy = Proxy::on("127.0.0.1:0", options);
        command(&proxy, "a request:");
        proxy.signal("-TERM");
        let lines = std::iter::repeat_with(|| proxy.line());
        let rest: Vec<_> = lines.take_while(|line| !line.starts_with("draining")).collect();
        assert!(rest.iter().all(|line| !line.contains("curl -")), "{options:?}: {rest:?}");
    }
}
