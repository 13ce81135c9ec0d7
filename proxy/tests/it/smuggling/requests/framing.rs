//! Requests whose body parsers could end in different places.

use super::shape::{GET, POST, SECOND, SMUGGLED, Table, chunked, get, message, post};

/// Adds lengths beside a transfer coding, and codings that parsers read in different ways.
pub(super) fn codings(table: &mut Table) {
    let length = 5 + SMUGGLED.len();
    let ended = format!("0\r\n\r\n{SMUGGLED}");
    let hidden = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    let both = |te: &str, body: &str| post(&format!("Content-Length: {length}\r\n{te}\r\n"), body);

    table.last("CL.TE", &both("Transfer-Encoding: chunked", &ended), POST, "");
    let text = post(&format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"), &ended);
    table.last("CL.TE, TE first", &text, POST, "");
    table.last(
        "TE.CL",
        &post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", &hidden),
        POST,
        SMUGGLED,
    );
    let text = post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", &hidden);
    table.last("TE.CL, TE first", &text, POST, SMUGGLED);
    table.last(
        "TE beside CL 0",
        &post("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", &hidden),
        POST,
        SMUGGLED,
    );
    table.last(
        "TE beside no CL",
        &post("Transfer-Encoding: chunked\r\nContent-Length: x\r\n", &hidden),
        POST,
        SMUGGLED,
    );
    let text = post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\nContent-Length: 7\r\n", &hidden);
    table.last("TE between two CLs", &text, POST, SMUGGLED);
    let text = post("Connection: keep-alive\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n", &ended);
    table.last("CL.TE with keep-alive", &text, POST, "");

    for (name, line) in [
        ("TE, space before the colon", "Transfer-Encoding : chunked"),
        ("TE, tab before the colon", "Transfer-Encoding\t: chunked"),
        ("TE, vertical tab before the colon", "Transfer-Encoding\u{b}: chunked"),
        ("TE, no-break space before the colon", "Transfer-Encoding\u{a0}: chunked"),
        ("TE, vertical tab before the value", "Transfer-Encoding: \u{b}chunked"),
        ("TE, form feed before the value", "Transfer-Encoding: \u{c}chunked"),
        ("TE, no-break space before the value", "Transfer-Encoding: \u{a0}chunked"),
        ("TE, NUL after the value", "Transfer-Encoding: chunked\0"),
        ("TE, NUL in the name", "Transfer\0-Encoding: chunked"),
        ("TE, DEL after the value", "Transfer-Encoding: chunked\u{7f}"),
        ("TE, next line after the value", "Transfer-Encoding: chunked\u{85}"),
        ("TE xchunked", "Transfer-Encoding: xchunked"),
        ("TE chunkedx", "Transfer-Encoding: chunkedx"),
        ("TE chunked, identity", "Transfer-Encoding: chunked, identity"),
        ("TE identity, chunked", "Transfer-Encoding: identity, chunked"),
        ("TE gzip, chunked", "Transfer-Encoding: gzip, chunked"),
        ("TE chunked, chunked", "Transfer-Encoding: chunked, chunked"),
        ("TE chunked and chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        ("TE chunked and identity", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        ("TE identity and chunked", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"),
        ("TE chunked and x", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x"),
        ("TE x and chunked", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked"),
        ("TE identity", "Transfer-Encoding: identity"),
        ("TE without a value", "Transfer-Encoding:"),
        ("TE chunked,", "Transfer-Encoding: chunked,"),
        ("TE , chunked", "Transfer-Encoding: , chunked"),
        ("TE with a parameter", "Transfer-Encoding: chunked;q=1"),
        ("TE quoted", "Transfer-Encoding: \"chunked\""),
        ("TE in single quotes", "Transfer-Encoding: 'chunked'"),
        ("TE, chunked and a space inside", "Transfer-Encoding: chun ked"),
        ("TE on a folded line", "Transfer-Encoding:\r\n chunked"),
        ("TE on a line folded with a tab", "Transfer-Encoding:\r\n\tchunked"),
        ("TE, continued on a folded line", "Transfer-Encoding: chunked\r\n , identity"),
        ("TE folded to the line before", "X: y\r\n Transfer-Encoding: chunked"),
        ("TE after CR alone", "X: y\rTransfer-Encoding: chunked"),
        ("TE before CR CR LF", "Transfer-Encoding: chunked\r"),
        ("TE after LF CR", "X: y\n\rTransfer-Encoding: chunked"),
    ] {
        table.refused(name, &both(line, &ended));
    }
    let text = format!(
        "{POST}\r\n Transfer-Encoding: chunked\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{ended}"
    );
    table.refused("a space before the first header", &text);
    let text = both("X: y\nTransfer-Encoding: chunked", &ended);
    table.last("TE after LF alone", &text, POST, "");
    table.last("TE after a tab", &both("Transfer-Encoding:\tchunked", &ended), POST, "");
    table.last("TE without a space", &both("Transfer-Encoding:chunked", &ended), POST, "");
    table.last("TE in capitals", &both("TRANSFER-ENCODING: CHUNKED", &ended), POST, "");
    table.one(
        "TE in odd case",
        &post("tRANSFER-eNCODING: cHuNkEd\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        POST,
        "hello",
    );
    let text = post(&format!("Transfer_Encoding: chunked\r\nContent-Length: {}\r\n", ended.len()), &ended);
    table.one("TE with an underscore", &text, POST, &ended);
    let text = post(&format!("TE: chunked\r\nContent-Length: {}\r\n", ended.len()), &ended);
    table.one("TE of the response", &text, POST, &ended);
    let text = message("POST /x HTTP/1.0", "Transfer-Encoding: chunked\r\n", &ended);
    table.refused("TE in HTTP/1.0", &text);
    let text = message("POST /x HTTP/1.0", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", &ended);
    table.refused("TE beside CL in HTTP/1.0", &text);
}

pub(super) fn lengths(table: &mut Table) {
    for (name, lines) in [
        ("two CLs", "Content-Length: 5\r\nContent-Length: 0\r\n"),
        ("two CLs, the first 0", "Content-Length: 0\r\nContent-Length: 5\r\n"),
        ("two CLs, the first empty", "Content-Length:\r\nContent-Length: 5\r\n"),
        ("a list of CLs", "Content-Length: 5, 6\r\n"),
        ("a list of equal CLs", "Content-Length: 5, 5\r\n"),
        ("a negative CL", "Content-Length: -1\r\n"),
        ("CL -0", "Content-Length: -0\r\n"),
        ("CL with a plus", "Content-Length: +5\r\n"),
        ("CL in hexadecimal", "Content-Length: 0x5\r\n"),
        ("CL with a letter", "Content-Length: 5a\r\n"),
        ("CL with an exponent", "Content-Length: 1e1\r\n"),
        ("CL with a fraction", "Content-Length: 5.0\r\n"),
        ("CL with an underscore inside", "Content-Length: 5_0\r\n"),
        ("CL with a space inside", "Content-Length: 5 5\r\n"),
        ("CL with a comma", "Content-Length: 5,\r\n"),
        ("CL with a semicolon", "Content-Length: 5;\r\n"),
        ("CL quoted", "Content-Length: \"5\"\r\n"),
        ("CL of 2^64", "Content-Length: 18446744073709551616\r\n"),
        ("CL of 2^64 + 5", "Content-Length: 18446744073709551621\r\n"),
        ("CL of 2^64 - 1", "Content-Length: 18446744073709551615\r\n"),
        ("CL of 2^64 - 2", "Content-Length: 18446744073709551614\r\n"),
        ("CL of 40 digits", "Content-Length: 5000000000000000000000000000000000000000\r\n"),
        ("CL without a value", "Content-Length:\r\n"),
        ("CL, space before the colon", "Content-Length : 5\r\n"),
        ("CL, vertical tab after the value", "Content-Length: 5\u{b}\r\n"),
        ("CL, NUL after the value", "Content-Length: 5\0\r\n"),
        ("CL in other digits", "Content-Length: \u{b2}\r\n"),
        ("CL on a folded line", "Content-Length:\r\n 5\r\n"),
        ("CL continued on a folded line", "Content-Length: 5\r\n 0\r\n"),
        ("CL before CR alone", "Content-Length: 5\rContent-Length: 0\r\n"),
    ] {
        table.refused(name, &post(lines, SMUGGLED));
    }
    let hello = |name, lines: &str, table: &mut Table| table.one(name, &post(lines, "hello"), POST, "hello");
    hello("two equal CLs", "Content-Length: 5\r\nContent-Length: 5\r\n", table);
    hello("CL with zeros before", "Content-Length: 0005\r\n", table);
    hello("CL with spaces around", "Content-Length:   5  \r\n", table);
    hello("CL with tabs around", "Content-Length:\t5\t\r\n", table);
    hello("CL without a space", "Content-Length:5\r\n", table);
    hello("CL before LF alone", "Content-Length: 5\nX: y\r\n", table);
    let length = SMUGGLED.len();
    table.cut("CL beyond the body", &post(&format!("Content-Length: {}\r\n", length + 1), SMUGGLED));
    table.cut("CL of 2^63", &post("Content-Length: 9223372036854775808\r\n", SMUGGLED));
    table.cut("CL without a body", &post("Content-Length: 1\r\n", ""));
    let text = post("Content-Length: 5\r\n", &format!("hello{SECOND}"));
    table.each("CL before the end", &text, &[(POST, "hello"), ("GET /second HTTP/1.1", "")]);
    let text = post("Content-Length: 0\r\n", SECOND);
    table.each("CL 0 and a second request", &text, &[(POST, ""), ("GET /second HTTP/1.1", "")]);
    table.each("no length", &post("", SECOND), &[(POST, ""), ("GET /second HTTP/1.1", "")]);
    // A server that follows CGI takes this header for a length.
    let text = post("Content_Length: 39\r\n", SECOND);
    table.each("CL with an underscore", &text, &[(POST, ""), ("GET /second HTTP/1.1", "")]);
    let text = post("Content_Length: 0\r\nContent-Length: 5\r\n", "hello");
    table.one("CL beside one with an underscore", &text, POST, "hello");
}

pub(super) fn chunks(table: &mut Table) {
    for (name, body) in [
        ("chunk size with a plus", "+5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with a minus", "-5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with 0x", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with h", "5h\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with an underscore", "0_5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size after a space", " 5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with a space inside", "0 5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size of 17 digits", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with NUL", "5\0\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with a vertical tab", "5\u{b}\r\nhello\r\n0\r\n\r\n"),
        ("chunk size with a comma", "5,\r\nhello\r\n0\r\n\r\n"),
        ("no chunk size", "\r\nhello\r\n0\r\n\r\n"),
        ("no chunk size but an extension", ";5\r\nhello\r\n0\r\n\r\n"),
        ("chunk size before LF alone", "5\nhello\n0\n\n"),
        ("chunk size before CR alone", "5\rhello\r\n0\r\n\r\n"),
        ("chunk size before CR CR LF", "5\r\r\nhello\r\n0\r\n\r\n"),
        ("extension before LF alone", "5;a\nhello\r\n0\r\n\r\n"),
        ("extension with LF inside", "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n"),
        ("extension with CR alone", "5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("data longer than the chunk", "5\r\nhello!\r\n0\r\n\r\n"),
        ("data shorter than the chunk", "8\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
        ("no CRLF after a chunk", "5\r\nhello0\r\n\r\n"),
        ("LF alone after a chunk", "5\r\nhello\n0\r\n\r\n"),
        ("CR alone after a chunk", "5\r\nhello\r0\r\n\r\n"),
        ("two letters after a chunk", "5\r\nhelloXX0\r\n\r\n"),
        ("the last chunk before LF alone", "5\r\nhello\r\n0\n\r\n"),
        ("a request as a trailer", "0\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
        ("a trailer with a space in its name", "0\r\nX Y: z\r\n\r\n"),
        ("a trailer with a space before the colon", "0\r\nContent-Length : 5\r\n\r\n"),
        ("a trailer before CR alone", "0\r\nX: y\rGET /smuggled HTTP/1.1\r\n\r\n"),
    ] {
        table.refused(name, &chunked(body));
    }
    table.refused("a long extension", &chunked(&format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(20_000))));
    table.refused("many trailers", &chunked(&format!("0\r\n{}\r\n", "X: y\r\n".repeat(1_000))));
    table.refused("a long trailer", &chunked(&format!("0\r\nX: {}\r\n\r\n", "y".repeat(70_000))));

    table.cut("no last chunk", &chunked("5\r\nhello\r\n"));
    table.cut("half a last chunk", &chunked("5\r\nhello\r\n0\r\n"));
    table.cut("half a chunk", &chunked("5\r\nhel"));
    table.cut("no chunk", &chunked(""));
    table.cut("chunk size of 16 digits", &chunked(&format!("FFFFFFFFFFFFFFFF\r\n{SMUGGLED}")));
    table.cut("trailers without an end", &chunked(&format!("0\r\n{}", "X: y\r\n")));

    for (name, body) in [
        ("chunk size with zeros before", "0000000000000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("chunk size before a space", "5 \r\nhello\r\n0\r\n\r\n"),
        ("an extension", "5;a=b\r\nhello\r\n0\r\n\r\n"),
        ("an extension after a space", "5 ;a=b\r\nhello\r\n0\r\n\r\n"),
        ("an extension with an open quote", "5;a=\"\r\nhello\r\n0\r\n\r\n"),
        ("an extension of the last chunk", "5\r\nhello\r\n0;GET /smuggled HTTP/1.1\r\n\r\n"),
        ("many zeros as the last chunk", "5\r\nhello\r\n000000\r\n\r\n"),
        (
            "trailers of a head",
            "5\r\nhello\r\n0\r\nHost: b\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\n\r\n",
        ),
        (
            "trailers of forwarding",
            "5\r\nhello\r\n0\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n\r\n",
        ),
    ] {
        table.one(name, &chunked(body), POST, "hello");
    }
    let text = post(
        "Trailer: Content-Length, Host\r\nTransfer-Encoding: chunked\r\n",
        "5\r\nhello\r\n0\r\nContent-Length: 9\r\nHost: b\r\n\r\n",
    );
    table.one("trailers that were announced", &text, POST, "hello");
    let text = chunked(&format!("5\r\nhello\r\n0\r\n\r\n{SECOND}"));
    table.each("chunks and a second request", &text, &[(POST, "hello"), ("GET /second HTTP/1.1", "")]);
}

/// Adds bodies of methods that rarely have one.
pub(super) fn bodies(table: &mut Table) {
    let length = format!("Content-Length: {}\r\n", SMUGGLED.len());
    let hidden = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    for (name, start) in [
        ("a request in the body of a GET", "GET /x HTTP/1.1"),
        ("a request in the body of a HEAD", "HEAD /x HTTP/1.1"),
        ("a request in the body of a DELETE", "DELETE /x HTTP/1.1"),
        ("a request in the body of a POST", "POST /x HTTP/1.1"),
        ("a request in the body of an OPTIONS", "OPTIONS /x HTTP/1.1"),
        ("a request in the body of a TRACE", "TRACE /x HTTP/1.1"),
        ("a request in the body of an unknown method", "FOO /x HTTP/1.1"),
    ] {
        table.one(name, &message(start, &length, SMUGGLED), start, SMUGGLED);
        table.one(name, &message(start, "Transfer-Encoding: chunked\r\n", &hidden), start, SMUGGLED);
    }
    table.one("TRACE", &message("TRACE /x HTTP/1.1", "", ""), "TRACE /x HTTP/1.1", "");
    let text = message("GET /x HTTP/1.0", &length, SMUGGLED);
    table.last("a request in the body of HTTP/1.0", &text, GET, SMUGGLED);
    let text = message("GET /x HTTP/1.0", &format!("Connection: keep-alive\r\n{length}"), SMUGGLED);
    table.one("the same with keep-alive", &text, GET, SMUGGLED);
    let three = [get(""), message("HEAD /x HTTP/1.1", "", ""), get("")].concat();
    table.each("three requests at once", &three, &[(GET, ""), ("HEAD /x HTTP/1.1", ""), (GET, "")]);
    table.last(
        "a request after the last",
        &[get("Connection: close\r\n"), SMUGGLED.to_owned()].concat(),
        GET,
        "",
    );
    let text = [get("Connection: close\r\nConnection: keep-alive\r\n"), SMUGGLED.to_owned()].concat();
    table.last("a request after the last, which is also kept alive", &text, GET, "");

    table.refused("CONNECT", &format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n{SMUGGLED}"));
    table.refused("CONNECT with a body", &message("CONNECT a:80 HTTP/1.1", &length, SMUGGLED));
    let text = message("CONNECT a:80 HTTP/1.1", "Transfer-Encoding: chunked\r\n", &hidden);
    table.refused("CONNECT with chunks", &text);
    table.refused("CONNECT with a path", &message("CONNECT /x HTTP/1.1", "", SMUGGLED));
}
