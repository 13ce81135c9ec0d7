//! Requests whose head parsers could read in different ways.

use super::shape::{GET, POST, SECOND, SMUGGLED, Table, get, message, post};

/// Adds start lines.
pub(super) fn starts(table: &mut Table) {
    for (name, start) in [
        ("no version", "GET /smuggled"),
        ("no version, and a space", "GET /smuggled "),
        ("HTTP/0.9", "GET /smuggled HTTP/0.9"),
        ("HTTP/1.2", "GET /smuggled HTTP/1.2"),
        ("HTTP/1.10", "GET /smuggled HTTP/1.10"),
        ("HTTP/1.", "GET /smuggled HTTP/1."),
        ("HTTP/2.0", "GET /smuggled HTTP/2.0"),
        ("HTTP/2", "GET /smuggled HTTP/2"),
        ("http/1.1", "GET /smuggled http/1.1"),
        ("HTTP/1.1 and a space", "GET /smuggled HTTP/1.1 "),
        ("HTTP/1.1 and a word", "GET /smuggled HTTP/1.1 x"),
        ("HTTP/1.1 and NUL", "GET /smuggled HTTP/1.1\0"),
        ("HTTP /1.1", "GET /smuggled HTTP /1.1"),
        ("HTTPS/1.1", "GET /smuggled HTTPS/1.1"),
        ("a space in the target", "GET /smuggled y HTTP/1.1"),
        ("a version in the target", "GET /smuggled HTTP/1.1 HTTP/1.1"),
        ("a tab in the target", "GET /smuggled\ty HTTP/1.1"),
        ("a tab before the target", "GET\t/smuggled HTTP/1.1"),
        ("a tab before the version", "GET /smuggled\tHTTP/1.1"),
        ("two spaces before the target", "GET  /smuggled HTTP/1.1"),
        ("two spaces before the version", "GET /smuggled  HTTP/1.1"),
        ("a space before the method", " GET /smuggled HTTP/1.1"),
        ("no target", "GET HTTP/1.1"),
        ("no method", "/smuggled HTTP/1.1"),
        ("CR in the target", "GET /smuggled\rX HTTP/1.1"),
        ("LF in the target", "GET /smuggled\nX: y HTTP/1.1"),
        ("NUL in the target", "GET /smuggled\0 HTTP/1.1"),
        ("DEL in the target", "GET /smuggled\u{7f} HTTP/1.1"),
        ("no UTF-8 in the target", "GET /smuggled\u{ff} HTTP/1.1"),
        ("half UTF-8 in the target", "GET /smuggled\u{c3} HTTP/1.1"),
        ("NUL in the method", "G\0T /smuggled HTTP/1.1"),
        ("a colon in the method", "GET: /smuggled HTTP/1.1"),
        ("a high byte in the method", "G\u{c9}T /smuggled HTTP/1.1"),
        ("a header as the method", "X:y /smuggled HTTP/1.1"),
        ("a target of the authority's form", "GET a:80 HTTP/1.1"),
        ("a target of a host", "GET smuggled HTTP/1.1"),
        ("a target without a slash", "GET smuggled/x HTTP/1.1"),
        ("a target of a letter", "GET x HTTP/1.1"),
        ("a target of a query", "GET ?smuggled HTTP/1.1"),
        ("a target of backslashes", "GET \\\\smuggled\\x HTTP/1.1"),
        ("GET *", "GET * HTTP/1.1"),
        ("OPTIONS */x", "OPTIONS */x HTTP/1.1"),
        ("POST *", "POST * HTTP/1.1"),
        ("a URL with a user", "GET http://b@a/smuggled HTTP/1.1"),
        ("a URL with an empty user", "GET http://@a/smuggled HTTP/1.1"),
        ("a URL with two users", "GET http://a@b@a/smuggled HTTP/1.1"),
        ("a URL without a host", "GET http:///smuggled HTTP/1.1"),
        ("a URL with a port but no host", "GET http://:80/smuggled HTTP/1.1"),
        ("a URL with an open bracket", "GET http://[::1/smuggled HTTP/1.1"),
        ("a URL with a port of letters", "GET http://a:b/smuggled HTTP/1.1"),
        ("a URL with a space in the host", "GET http://a b/smuggled HTTP/1.1"),
        ("a URL of a file", "GET file:///smuggled HTTP/1.1"),
        ("a URL of a script", "GET javascript:alert(1) HTTP/1.1"),
        ("a URL without a scheme", "GET ://a/smuggled HTTP/1.1"),
        ("half the preface of HTTP/2", "PRI * HTTP/2.0"),
    ] {
        table.refused(name, &message(start, "", ""));
    }
    table.refused("HTTP/0.9 before another request", &format!("GET /smuggled\r\n{SMUGGLED}"));
    table.cut("a start line without an end", "GET /smuggled HTTP/1.1");
    table.cut("a head without an end", "GET /smuggled HTTP/1.1\r\nHost: a\r\n");
    table.cut("a head that ends in CR", "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r");
    table.cut("CR alone throughout", "GET /smuggled HTTP/1.1\rHost: a\r\r");
    table.refused("TLS", "\u{16}\u{3}\u{1}\u{1}\u{44}\u{1}\u{0}\u{1}\u{40}\u{3}\u{3}\r\n\r\n");
    table.refused("a PROXY header", &format!("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n{SMUGGLED}"));
    table.last(
        "half the preface of HTTP/2 behind a request",
        &format!("{}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", get("")),
        GET,
        "",
    );

    for (name, start, upstream) in [
        ("HTTP/1.1 before LF", "GET /x HTTP/1.1", GET),
        ("a URL", "GET http://a/x HTTP/1.1", GET),
        ("a URL of another host", "GET http://b/x HTTP/1.1", GET),
        ("a URL of another port", "GET http://a:81/x HTTP/1.1", GET),
        ("a URL of another scheme", "GET https://b/x HTTP/1.1", GET),
        ("a URL of an address of IPv6", "GET http://[::1]:80/x HTTP/1.1", GET),
        ("a URL without a path", "GET http://b HTTP/1.1", "GET / HTTP/1.1"),
        ("a URL with a query only", "GET http://b?x HTTP/1.1", "GET /?x HTTP/1.1"),
        ("a URL with a fragment only", "GET http://b#x HTTP/1.1", "GET / HTTP/1.1"),
        ("a fragment", "GET /x#smuggled HTTP/1.1", GET),
        ("a fragment after the query", "GET /x?y#smuggled HTTP/1.1", "GET /x?y HTTP/1.1"),
        ("OPTIONS *", "OPTIONS * HTTP/1.1", "OPTIONS * HTTP/1.1"),
        ("two slashes", "GET //b/x HTTP/1.1", "GET //b/x HTTP/1.1"),
        ("a URL in the path", "GET /http://b/x HTTP/1.1", "GET /http://b/x HTTP/1.1"),
        ("a backslash in the path", "GET /x\\y HTTP/1.1", "GET /x\\y HTTP/1.1"),
        ("an at sign in the path", "GET /@b HTTP/1.1", "GET /@b HTTP/1.1"),
        ("dots in the path", "GET /a/../../x HTTP/1.1", "GET /a/../../x HTTP/1.1"),
        (
            "CRLF as escapes",
            "GET /x%0d%0a%0d%0aGET%20/smuggled%20HTTP/1.1 HTTP/1.1",
            "GET /x%0d%0a%0d%0aGET%20/smuggled%20HTTP/1.1 HTTP/1.1",
        ),
        ("NUL as an escape", "GET /x%00 HTTP/1.1", "GET /x%00 HTTP/1.1"),
        ("no escapes", "GET /x%zz%u0000% HTTP/1.1", "GET /x%zz%u0000% HTTP/1.1"),
        ("UTF-8 in the path", "GET /\u{c3}\u{a9} HTTP/1.1", "GET /\u{c3}\u{a9} HTTP/1.1"),
        (
            "line separators in the path",
            "GET /\u{c4}\u{8d}\u{c4}\u{8a} HTTP/1.1",
            "GET /\u{c4}\u{8d}\u{c4}\u{8a} HTTP/1.1",
        ),
        ("a method in small letters", "get /x HTTP/1.1", "get /x HTTP/1.1"),
        ("an unknown method", "X-Y.Z!* /x HTTP/1.1", "X-Y.Z!* /x HTTP/1.1"),
        ("the method PRI", "PRI /x HTTP/1.1", "PRI /x HTTP/1.1"),
    ] {
        table.one(name, &message(start, "", ""), upstream, "");
    }
    table.one("empty lines before", &format!("\r\n\r\n{}", get("")), GET, "");
    table.one("LF alone throughout", "GET /x HTTP/1.1\nHost: a\n\n", GET, "");
    table.one("LF alone at the end", "GET /x HTTP/1.1\r\nHost: a\r\n\n", GET, "");
    table.last("HTTP/1.0", &message("GET /x HTTP/1.0", "", ""), GET, "");
    table.last("HTTP/1.0 without a host", "GET /x HTTP/1.0\r\n\r\n", GET, "");
}

pub(super) fn hosts(table: &mut Table) {
    for (name, lines) in [
        ("no host", ""),
        ("two hosts", "Host: a\r\nHost: b\r\n"),
        ("two equal hosts", "Host: a\r\nHost: a\r\n"),
        ("two hosts, one empty", "Host:\r\nHost: a\r\n"),
        ("an empty host", "Host:\r\n"),
        ("host of a space", "Host:  \r\n"),
        ("host with a space inside", "Host: a b\r\n"),
        ("host with a tab inside", "Host: a\tb\r\n"),
        ("host with a path", "Host: a/smuggled\r\n"),
        ("host with a query", "Host: a?b\r\n"),
        ("host with a fragment", "Host: a#b\r\n"),
        ("host with a backslash", "Host: a\\b\r\n"),
        ("host with a user", "Host: b@a\r\n"),
        ("host with an empty user", "Host: @a\r\n"),
        ("host with a quote", "Host: a\"\r\n"),
        ("host with angle brackets", "Host: <a>\r\n"),
        ("host with a high byte", "Host: \u{e9}\r\n"),
        ("host with NUL", "Host: a\0b\r\n"),
        ("host as a URL", "Host: http://a\r\n"),
        ("host with an open bracket", "Host: [::1\r\n"),
        ("host with a bracket behind", "Host: a]\r\n"),
        ("host with two ports", "Host: a:80:80\r\n"),
        ("host with a port of letters", "Host: a:b\r\n"),
        ("host with a port and a sign", "Host: a:+80\r\n"),
        ("host with a port too high", "Host: a:65536\r\n"),
        ("host with a port but no name", "Host: :80\r\n"),
        ("host with a percent sign", "Host: a%\r\n"),
        ("host on a folded line", "Host:\r\n a\r\n"),
        ("host, space before the colon", "Host : a\r\n"),
        ("host after a space", "X: y\r\n Host: a\r\n"),
        ("a list of hosts", "Host: a,b\r\n"),
        ("host after CR alone", "X: y\rHost: a\r\n"),
        ("host with an underscore in place of none", "Ho_st: a\r\n"),
    ] {
        table.refused(name, &format!("GET /smuggled HTTP/1.1\r\n{lines}\r\n"));
    }
    let two = "GET http://a/smuggled HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
    table.refused("a URL with two hosts", two);
    table.refused("a URL without a host header", "GET http://a/smuggled HTTP/1.1\r\n\r\n");
    table.refused("a URL with an odd host header", "GET http://a/smuggled HTTP/1.1\r\nHost: a/b\r\n\r\n");
    table.refused("two hosts of HTTP/1.0", "GET /smuggled HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n");
    for (name, lines) in [
        ("host without a space", "Host:a\r\n"),
        ("host in odd case", "hOsT: A.Example\r\n"),
        ("host with a port", "Host: a:81\r\n"),
        ("host of IPv6", "Host: [::1]:80\r\n"),
        ("host with odd characters", "Host: a!$&'()*+;=~_-.b\r\n"),
    ] {
        table.one(name, &format!("{GET}\r\n{lines}\r\n"), GET, "");
    }
}

pub(super) fn headers(table: &mut Table) {
    for (name, line) in [
        ("a header with a space in its name", "X Y: z\r\n"),
        ("a header with a space before the colon", "X : y\r\n"),
        ("a header without a name", ": y\r\n"),
        ("a header without a name, of a length", ":Content-Length: 5\r\n"),
        ("a header without a colon", "smuggled\r\n"),
        ("a request as a header", "GET /smuggled HTTP/1.1\r\n"),
        ("a header with a control character in its name", "X\u{1}: y\r\n"),
        ("a header with DEL in its name", "X\u{7f}: y\r\n"),
        ("a header with a high byte in its name", "X\u{e9}: y\r\n"),
        ("a header with a bracket in its name", "X[]: y\r\n"),
        ("a header with a quote in its name", "\"X\": y\r\n"),
        ("a header with a slash in its name", "X/Y: z\r\n"),
        ("a header with NUL in its name", "X\0: y\r\n"),
        ("a header with NUL", "X: y\0z\r\n"),
        ("a header with CR", "X: y\rz\r\n"),
        ("a header with CR at its end", "X: y\r\r\n"),
        ("a header with a vertical tab", "X: y\u{b}z\r\n"),
        ("a header with an escape character", "X: y\u{1b}z\r\n"),
        ("a header with DEL", "X: y\u{7f}z\r\n"),
        ("a folded header", "X: y\r\n z\r\n"),
        ("a folded header of a tab", "X: y\r\n\tz\r\n"),
        ("an empty folded line", "X: y\r\n \r\n"),
        ("a header of a pseudo name", ":path: /smuggled\r\n"),
    ] {
        table.refused(name, &message("GET /smuggled HTTP/1.1", line, ""));
    }
    for count in [100, 101, 1_000] {
        table.refused("too many headers", &message("GET /smuggled HTTP/1.1", &"X: y\r\n".repeat(count), ""));
    }
    let line = format!("X: {}\r\n", "y".repeat(70_000));
    table.refused("a header of 70 KB", &message("GET /smuggled HTTP/1.1", &line, ""));
    let line = format!("{}: y\r\n", "x".repeat(70_000));
    table.refused("a header with a name of 70 KB", &message("GET /smuggled HTTP/1.1", &line, ""));
    let target = "x".repeat(70_000);
    table.refused("a target of 70 KB", &message(&format!("GET /{target} HTTP/1.1"), "", ""));
    let method = "X".repeat(70_000);
    table.refused("a method of 70 KB", &message(&format!("{method} /smuggled HTTP/1.1"), "", ""));
    let lines = format!("X: {}\r\n", "y".repeat(1_000)).repeat(80);
    table.refused("headers of 80 KB", &message("GET /smuggled HTTP/1.1", &lines, ""));

    for (name, line) in [
        ("a header of high bytes", "X: \u{e9}\u{ff}\r\n"),
        ("a header of a tab", "X: y\tz\r\n"),
        ("an empty header", "X:\r\n"),
        ("a header of colons", "X:::\r\n"),
        (
            "claims of an untrusted client",
            "X-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\nX-Real-IP: 1.2.3.4\r\n",
        ),
        ("an open quote in Forwarded", "Forwarded: for=\"1.2.3.4\r\n"),
        (
            "claims with underscores",
            "X_Forwarded_For: 1.2.3.4\r\nX_Real_IP: 1.2.3.4\r\nX-Forwarded_For: 1.2.3.4\r\n",
        ),
    ] {
        table.one(name, &get(line), GET, "");
    }
}

/// Adds the headers `Connection`, `Upgrade` and `Expect`.
pub(super) fn connections(table: &mut Table) {
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                     Sec-WebSocket-Version: 13\r\n";
    for (name, line) in [
        ("Connection names Host", "Connection: Host\r\n"),
        ("Connection names X-Forwarded-For", "Connection: X-Forwarded-For\r\nX-Forwarded-For: 1.2.3.4\r\n"),
        ("Connection names Forwarded", "Connection: Forwarded\r\nForwarded: for=1.2.3.4\r\n"),
        (
            "Connection names X-Forwarded-Host",
            "Connection: X-Forwarded-Host, X-Real-IP, X-Forwarded-Proto\r\n",
        ),
        ("Connection names Via", "Connection: Via\r\nVia: 1.1 b\r\n"),
        ("Connection names Connection", "Connection: Connection\r\n"),
        ("Connection names a header", "X-Hop: 1\r\nConnection: X-Hop\r\nX-Hop: 2\r\n"),
        ("Connection names a header in odd case", "Connection: keep-alive ,\tx-hOP,\r\nX-Hop: 1\r\n"),
        ("two Connections", "Connection: keep-alive\r\nX-Hop: 1\r\nConnection: X-Hop\r\n"),
        ("Connection names a header beside a high byte", "Connection: \u{e9}, X-Hop\r\nX-Hop: 1\r\n"),
        ("TE and trailers", "Connection: TE\r\nTE: gzip, trailers\r\nTrailer: Host\r\n"),
        ("TE of no trailers", "TE: gzip, trailersx\r\n"),
        ("credentials for the proxy", "Proxy-Authorization: Basic eA==\r\n"),
        ("Connection of no names", "Connection: ,,, ,\r\n"),
        ("Connection of odd names", "Connection: (), \u{e9}, Keep-Alive\r\nKeep-Alive: 5\r\n"),
        ("an old Connection", "Proxy-Connection: keep-alive\r\nKeep-Alive: 5\r\n"),
        ("Connection names no header", "Connection: Upgrade\r\n"),
        ("an upgrade without a name", "Connection: Upgrade\r\nUpgrade:\r\n"),
        (
            "h2c",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
        ),
        ("h2c, unnamed", "Upgrade: h2c\r\n"),
        ("h2c beside websocket", "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n"),
        ("an upgrade to TLS", "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n"),
        (
            "a WebSocket without a key",
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        ),
        ("Expect without a body", "Expect: 100-continue\r\n"),
    ] {
        table.one(name, &get(line), GET, "");
    }
    for (name, lines, body) in [
        ("Connection names Content-Length", "Connection: Content-Length\r\nContent-Length: 5\r\n", "hello"),
        (
            "Connection names Transfer-Encoding",
            "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "Connection names Expect",
            "Connection: Expect\r\nExpect: 100-continue\r\nContent-Length: 5\r\n",
            "hello",
        ),
        ("Expect", "Expect: 100-continue\r\nContent-Length: 5\r\n", "hello"),
        ("Expect in capitals", "Expect: 100-CONTINUE\r\nContent-Length: 5\r\n", "hello"),
        ("Expect twice", "Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 5\r\n", "hello"),
        ("Expect of an unknown name", "Expect: y 100-continue\r\nContent-Length: 5\r\n", "hello"),
        (
            "Expect with chunks",
            "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
    ] {
        table.one(name, &post(lines, body), POST, "hello");
        let text = message("DELETE /x HTTP/1.1", lines, body);
        table.one(name, &text, "DELETE /x HTTP/1.1", "hello");
        let text = message("GET /x HTTP/1.1", lines, body);
        table.one(name, &text, GET, "hello");
    }
    let lines = "Connection: Content-Length, Transfer-Encoding\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n";
    let hidden = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    table.last("Connection names both lengths", &post(lines, &hidden), POST, SMUGGLED);
    let text = post("Expect: 100-continue\r\nContent-Length: 5\r\n", &format!("hello{SECOND}"));
    table.each("Expect and a second request", &text, &[(POST, "hello"), ("GET /second HTTP/1.1", "")]);

    // The upstream does not upgrade. So the second request is a request, and passes through the
    // proxy.
    let text = [get(websocket), SECOND.to_owned()].concat();
    table.each("a WebSocket that is refused", &text, &[(GET, ""), ("GET /second HTTP/1.1", "")]);
    let text = [get(&websocket.replace("13", "1")), SECOND.to_owned()].concat();
    table.each("a WebSocket of an old version", &text, &[(GET, ""), ("GET /second HTTP/1.1", "")]);
    let text = post(&format!("{websocket}Content-Length: {}\r\n", SMUGGLED.len()), SMUGGLED);
    table.one("a WebSocket with a body", &text, POST, SMUGGLED);
    let text = get(&format!("{websocket}Upgrade: h2c\r\n"));
    table.one("a WebSocket beside h2c", &text, GET, "");
    let text = message("GET /no-upgrade HTTP/1.0", websocket, "");
    table.last("a WebSocket of HTTP/1.0", &text, "GET /no-upgrade HTTP/1.1", "");
    let text = message("GET /no-upgrade HTTP/1.1", &websocket.replace("Version: 13", "Protocol: x"), "");
    table.one("a WebSocket without a version", &text, "GET /no-upgrade HTTP/1.1", "");
}
