//! Options that cannot work.

use std::net::TcpListener;

use super::process::{Proxy, run};

#[test]
fn a_bad_option_is_one_line_and_exit_code_2() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).expect("it has an address");
    let own = ["--upstream", "http://127.0.0.1:8080"];
    for (args, part) in [
        (&own[..], "the upstream http://127.0.0.1:8080 is the address that clients connect to"),
        (&["--admin", "127.0.0.1:8080"], "the admin page cannot listen on 127.0.0.1:8080"),
        (&["--limit", "fast"], "or \"none\" for no limit"),
        (&["--limit", "0/s burst 1"], "--limit"),
        (&["--limit", ""], "--limit"),
        (&["--upstream", "127.0.0.1:3000"], "http://"),
        (&["--upstream", "http://"], "http://"),
        (&["--upstream", "http://a:99999"], "65535"),
        (&["--upstream", "http://a/path"], "http://"),
        (&["--upstream", "http://me:secret@a"], "http://"),
        (&["--upstream", "ftp://a"], "https"),
        (&["--upstream-ca", "no-such-file.pem"], "no-such-file.pem"),
        (&["--listen", "here"], "127.0.0.1:8080"),
        (&["--listen", &taken.1], "in use"),
        (&["--key", "cookie"], "header:NAME"),
        (&["--key", "header:"], "header name"),
        (&["--key", "header:a b"], "\"a b\""),
        (&["--trust-proxy", "10.0.0.0/33"], "10.0.0.0/8"),
        (&["--exempt-network", "10.0.0.0/33"], "10.0.0.0/8"),
        (&["--exempt-path", "health"], "begins with `/`"),
        (&["--exempt-path", "/static/../*"], "dot segment"),
        (&["--exempt-method", "options"], "OPTIONS"),
        (&["--exempt-preflights=yes"], "--exempt-preflights"),
        (&["--admin", "0.0.0.0:0"], "--admin-public"),
        (&["--admin", "[2001:db8::1]:0"], "--admin-public"),
        (&["--admin", &taken.1], "in use"),
        (&["--admin-public"], "needs --admin"),
        (&["--inflight", "0"], "whole number"),
        (&["--target", "300ms"], "needs --inflight"),
        (&["--inflight", "9", "--target", "2m"], "1us and 1m"),
        (&["--workers", "0"], "whole number"),
        (&["--slow-at", "3s"], "--workers"),
        (&["--workers", "2", "--upstream", "http://a"], "--upstream"),
        (&["--config", "no-such-file.toml"], "no-such-file.toml"),
        (&["--upstreem", "http://a"], "did you mean '--upstream'?"),
        (&["--timeout", "connec=5s"], "did you mean `connect`?"),
        (&["--limit"], "--limit"),
        (&["--nonsense"], "--nonsense"),
        (&["nonsense"], "nonsense"),
    ] {
        let output = run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(part), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn an_admin_address_for_others_has_to_be_meant() {
    let proxy = Proxy::start(&["--admin", "0.0.0.0:0", "--admin-public"]);
    assert!(proxy.admin.ip().is_unspecified());
}
