//! Options that cannot work.

use std::net::TcpListener;

use crate::support::{Proxy, tollgate};

#[test]
fn a_bad_option_is_one_line_and_exit_code_2() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("it has an address");
    for (options, part) in [
        (
            "--upstream http://127.0.0.1:8080",
            "the upstream http://127.0.0.1:8080 is the address that clients connect to",
        ),
        ("--admin 127.0.0.1:8080", "the admin page cannot listen on 127.0.0.1:8080"),
        ("--limit fast", "or \"none\" for no limit"),
        ("--limit 0/s&burst&1", "--limit"),
        ("--upstream 127.0.0.1:3000", "http://"),
        ("--upstream http://", "http://"),
        ("--upstream http://a:99999", "65535"),
        ("--upstream http://a/path", "http://"),
        ("--upstream http://me:secret@a", "http://"),
        ("--upstream ftp://a", "https"),
        ("--upstream-ca no-such-file.pem", "no-such-file.pem"),
        ("--listen here", "127.0.0.1:8080"),
        (
            &format!("--listen {taken}"),
            &format!("cannot listen on {taken}: Address already in use (os error 98)\n"),
        ),
        ("--key cookie", "header:NAME"),
        ("--key header:", "header name"),
        ("--key header:a&b", "\"a b\""),
        ("--trust-proxy 10.0.0.0/33", "10.0.0.0/8"),
        ("--exempt-network 10.0.0.0/33", "10.0.0.0/8"),
        ("--exempt-path health", "begins with `/`"),
        ("--exempt-path /static/../*", "dot segment"),
        ("--exempt-method options", "OPTIONS"),
        ("--exempt-preflights=yes", "--exempt-preflights"),
        ("--admin 0.0.0.0:0", "--admin-public"),
        ("--admin [2001:db8::1]:0", "--admin-public"),
        (&format!("--admin {taken}"), "in use"),
        ("--admin-public", "needs --admin"),
        ("--inflight 0", "whole number"),
        ("--target 300ms", "needs --inflight"),
        ("--inflight 9 --target 2m", "1us and 1m"),
        ("--config no-such-file.toml", "no-such-file.toml"),
        ("--upstreem http://a", "did you mean '--upstream'?"),
        ("--timeout connec=5s", "did you mean `connect`?"),
        ("--limit", "--limit"),
        ("--nonsense", "--nonsense"),
        ("nonsense", "nonsense"),
        ("--limit=", "--limit"),
    ] {
        tollgate(options).assert_mistake("", part);
    }
}

#[test]
fn an_admin_address_for_others_has_to_be_meant() {
    let proxy = Proxy::start("--admin 0.0.0.0:0 --admin-public");
    assert!(proxy.admin.ip().is_unspecified());
}
