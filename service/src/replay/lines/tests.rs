use std::time::Duration;

use super::{FieldNames, LogLine, read};

fn of<'a>(line: &'a str, fields: &'a FieldNames) -> LogLine<'a> {
    read(line, fields).unwrap_or_else(|| panic!("{line} is not read"))
}

#[test]
fn a_line_of_each_format_is_the_same_request() {
    let mut fields = FieldNames::default();
    for field in ["time=ts", "client=ip", "path=uri", "header:User-Agent=agent", "header:Referer=from"] {
        fields.set(field).expect("it is known");
    }
    let wanted = LogLine {
        at: Duration::from_secs(1_795_745_400),
        client: "203.0.113.7".into(),
        method: "POST".into(),
        target: "/a%20b?c=\"d\"".into(),
        headers: vec![
            ("referer".into(), "https://e.example/".into()),
            ("user-agent".into(), "x \\ y".into()),
        ],
        was_refused: None,
    };
    for line in [
        r#"203.0.113.7 - ada lovelace [27/Nov/2026:03:10:00 +0100] "POST /a%20b?c=\"d\" HTTP/1.1" 200 12 "https://e.example/" "x \\ y""#,
        r#"203.0.113.7 - - [26/Nov/2026:20:40:00 -0530] "POST /a%20b?c=\x22d\x22 HTTP/1.1" 429 - "https://e.example/" "x \x5c y" more"#,
    ] {
        assert_eq!(of(line, &fields), wanted);
    }
    for time in ["1795745400", "1795745400.0", "\"2026-11-27T02:10:00Z\"", "\"2026-11-27 02:10:00\""] {
        let line = format!(
            r#"{{"ts":{time},"other":[1,{{}}],"ip":"203.0.113.7","method":"POST","uri":"/a%20b?c=\"d\"","agent":"x \\ y","from":"https://e.example/"}}"#
        );
        let mut found = of(&line, &fields);
        found.headers.sort();
        assert_eq!(found, wanted, "{time}");
    }
}

/// The lines of nginx 1.22, HAProxy 2.6, Caddy 2.6 and Envoy 1.40 were written by these.
#[test]
fn the_logs_of_the_proxies_of_the_pages_are_read() {
    let whole = "203.0.113.7|POST|/a?c=\"d\"|";
    for (line, wanted) in [
        // nginx with $time_iso8601, and with a zone of minutes.
        (
            r#"203.0.113.7 - ada lovelace [2026-11-27T03:10:00+01:00] "POST /a?c=\x22d\x22 HTTP/1.1" 200 0 "-" "x \x5C \x22y\x22""#,
            "user-agent=x \\ \"y\"",
        ),
        (r#"203.0.113.7 - - [2026-11-26T20:40:00-05:30] "POST /a?c=\x22d\x22 HTTP/1.1" 200 0"#, ""),
        (r#"203.0.113.7 - x [y] [27/Nov/2026:02:10:00 +0000] "POST /a?c=\x22d\x22 HTTP/1.1" 200 0"#, ""),
        (
            r#"<190>Nov 27 02:10:00 edge nginx: 203.0.113.7 - - [27/Nov/2026:02:10:00 +0000] "POST /a?c=\x22d\x22 HTTP/1.1" 200 0"#,
            "",
        ),
        (
            r#"2026-11-27T02:10:00.1Z stdout F 203.0.113.7 - - [27/Nov/2026:02:10:00 +0000] "POST /a?c=\x22d\x22 HTTP/1.1" 200 0"#,
            "",
        ),
        // vhost_combined of Apache.
        (
            r#"www.example.com:443 203.0.113.7 - - [27/Nov/2026:02:10:00 +0000] "POST /a?c=\"d\" HTTP/1.1" 200 0 "-" "-""#,
            "host=www.example.com",
        ),
        (
            r#"192.0.2.1:80 203.0.113.7 - - [27/Nov/2026:02:10:00 +0000] "POST /a?c=\"d\" HTTP/1.1" 200 0 "-" "-""#,
            "host=192.0.2.1",
        ),
        (
            r#"www.example.com 203.0.113.7 - - [27/Nov/2026:02:10:00 +0000] "POST /a?c=\"d\" HTTP/1.1" 200 0"#,
            "host=www.example.com",
        ),
        (r#"203.0.113.7:5000 - - [27/Nov/2026:02:10:00 +0000] "POST /a?c=\"d\" HTTP/1.1" 200 0"#, ""),
        // HAProxy: without a prefix, to a server of syslog, and as such servers write it.
        (
            r#"203.0.113.7:58506 [27/Nov/2026:02:10:00.000] f f/<NOSRV> 0/-1/-1/-1/0 200 49 - - LR-- 1/1/0/0/0 0/0 {x \ #22y#22} "POST /a?c=#22d#22 HTTP/1.1""#,
            "",
        ),
        (
            r#"<134>Nov 27 02:10:00 haproxy[14]: 203.0.113.7:5 [27/Nov/2026:02:10:00.000] f~ b/s 0/0/3/6/1 200 27 - - ---- 1/1/1/1/0 0/0 "POST /a?c=#22d#22 HTTP/2.0" 0/0000000000000000/0/0/0 -/TLSv1.3/TLS_AES_256_GCM_SHA384"#,
            "",
        ),
        (
            r#"2026-11-27T02:10:00.1+00:00 edge haproxy[14]: 203.0.113.7:5 [27/Nov/2026:02:10:00.000] f b/s 0/0/3/6/1 200 27 - - ---- 1/1/1/1/0 0/0 "POST /a?c=#22d#22 HTTP/1.1""#,
            "",
        ),
        (
            r#"<134>1 2026-11-27T02:10:00Z edge haproxy 14 - - 203.0.113.7:5 [27/Nov/2026:02:10:00.000] f b/s 0/0/3/6/1 200 27 - - ---- 1/1/1/1/0 0/0 "POST /a?c=#22d#22 HTTP/1.1""#,
            "",
        ),
        // Envoy, which escapes no quote.
        (
            r#"[2026-11-27T02:10:00.000Z] "POST /a?c="d" HTTP/1.1" 200 - 0 0 0 - "9.9.9.9,203.0.113.7" "x \ "y"" "3b3f" "a.example" "-""#,
            "x-forwarded-for=9.9.9.9,203.0.113.7 user-agent=x \\ \"y\" x-request-id=3b3f host=a.example",
        ),
        // Caddy, with the address that it trusts, and before it had one.
        (
            r#"{"level":"info","ts":1795745400.0,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.1","client_ip":"203.0.113.7","proto":"HTTP/1.1","method":"POST","host":"a.example","uri":"/a?c=\"d\"","headers":{"Authorization":["REDACTED"],"User-Agent":["x"],"Cookie":[]}},"duration":0.00003,"status":200}"#,
            "host=a.example user-agent=x",
        ),
        (
            r#"Nov 27 02:10:00 edge caddy[7]: {"ts":1795745400,"request":{"remote_ip":"203.0.113.7","method":"POST","host":"a.example","uri":"/a?c=\"d\"","headers":{}}}"#,
            "host=a.example",
        ),
        // Traefik.
        (
            r#"{"ClientHost":"203.0.113.7","RequestHost":"a.example","RequestMethod":"POST","RequestPath":"/a?c=\"d\"","StartUTC":"2026-11-27T02:10:00.000000000Z"}"#,
            "host=a.example",
        ),
        // `tollgate-proxy --access-log`.
        (
            r#"2026-11-27T02:10:00.000000Z  INFO request client=203.0.113.7 method=POST target="/a?c=\"d\"" version=HTTP/1.1 status=200 upstream="http://[::1]:1" bytes=0 end=Whole duration_ms=0.1"#,
            "",
        ),
        (
            r#"Nov 27 02:10:00 edge tollgate[7]: 2026-11-27T02:10:00.000000Z  INFO request client=203.0.113.7 method=POST target="/a?c=\"d\"" version=HTTP/1.1"#,
            "",
        ),
        (
            r#"{"timestamp":"2026-11-27T02:10:00.000000Z","level":"INFO","message":"request","client":"203.0.113.7","method":"POST","target":"/a?c=\"d\"","version":"HTTP/1.1"}"#,
            "",
        ),
    ] {
        let fields = FieldNames::default();
        let found = of(line, &fields);
        assert_eq!(found.at, Duration::from_secs(1_795_745_400), "{line}");
        let headers: Vec<_> = found.headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let text = format!("{}|{}|{}|{}", found.client, found.method, found.target, headers.join(" "));
        assert_eq!(text, format!("{whole}{wanted}"), "{line}");
    }
}

/// A check asks for the network of 64 bits, and for the address of IPv4 inside of one of IPv6.
#[test]
fn a_client_is_the_one_of_a_check() {
    let fields = FieldNames::default();
    for (address, wanted) in [
        ("2001:db8::1:2:3:4", "2001:db8::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[2001:db8::1]:443", "2001:db8::"),
        ("192.0.2.1:443", "192.0.2.1"),
        ("host.example", "host.example"),
    ] {
        let common = format!(r#"{address} - - [01/Jan/1970:00:00:00 +0000] "GET / HTTP/1.1" 200 0"#);
        assert_eq!(of(&common, &fields).client, wanted);
        let json = format!(r#"{{"time":0,"client":"{address}","path":"/"}}"#);
        assert_eq!(of(&json, &fields).client, wanted);
    }
    let haproxy = r#"2001:db8::1:49592 [28/Nov/2026:18:31:01.459] f f/s 0/0 200 49 - - "GET /v6 HTTP/1.1""#;
    assert_eq!(of(haproxy, &fields).client, "2001:db8::");
}

#[test]
fn a_header_that_is_missing_is_absent() {
    let fields = FieldNames::default();
    let common = r#"::1 - - [01/Jan/1970:00:00:00 +0000] "GET / HTTP/1.1" 200 0"#;
    let line = of(common, &fields);
    assert_eq!((line.at, &*line.client, line.headers.len()), (Duration::ZERO, "::", 0));
    let combined = format!("{common} \"-\" \"-\"");
    assert_eq!(of(&combined, &fields).headers, []);
}

#[test]
fn days_are_those_of_the_calendar() {
    let fields = FieldNames::default();
    for (date, seconds) in [
        ("29/Feb/2024", 1_709_164_800),
        ("01/Mar/2024", 1_709_251_200),
        ("01/Jan/2000", 946_684_800),
        ("31/Dec/2099", 4_102_358_400),
        ("01/Mar/2100", 4_107_542_400),
    ] {
        let line = format!(r#"a - - [{date}:00:00:00 +0000] "GET / HTTP/1.1" 200 0"#);
        assert_eq!(of(&line, &fields).at.as_secs(), seconds, "{date}");
    }
}

#[test]
fn a_line_that_is_none_is_no_request() {
    let fields = FieldNames::default();
    for line in [
        "",
        "{",
        "{}",
        "{\"time\":-1,\"client\":\"a\",\"path\":\"/\"}",
        "{\"time\":1e300,\"client\":\"a\",\"path\":\"/\"}",
        "a - - [] \"GET / HTTP/1.1\" 200 0",
        "a - - [32/Nov/2026:03:10:00 +0000] \"GET / HTTP/1.1\" 200 0",
        "a - - [27/Nop/2026:03:10:00 +0000] \"GET / HTTP/1.1\" 200 0",
        "a - - [01/Jan/1970:00:00:00 +0100] \"GET / HTTP/1.1\" 200 0",
        "a - - [27/Nov/2026:03:10:00 +0000] \"-\" 400 0",
        "a - - [27/Nov/2026:03:10:00 +0000] \"GET / HTTP/1.1",
        "a - - [27/Növ/2026:03:10:00 +000] \"GET / HTTP/1.1\" 200 0",
        "a - - [27/Nov/2026:03:10:00 +++00] \"GET / HTTP/1.1\" 200 0",
        "a - - [27/Nov/2026:03:10:00 +0160] \"GET / HTTP/1.1\" 200 0",
        // A time, or the number of syslog, is no client.
        "2026-11-27T02:10:00Z stdout P a - - [27/Nov/2026:03:10:00 +0000] \"GET / HTTP/1.1\" 200 0",
        "<1>1 a - - [27/Nov/2026:03:10:00 +0000] \"GET / HTTP/1.1\" 200 0",
        // Of a request that HAProxy could not read, and of TCP.
        "192.0.2.1:5 [27/Nov/2026:03:10:00.000] f f/<NOSRV> -1/-1 400 0 - - PR-- 1/1 0/0 \"<BADREQ>\"",
        "192.0.2.1:5 [27/Nov/2026:03:10:00.000] f b/s 1/0/1 200 -- 1/1/1/1/0 0/0",
        // Envoy that tells no client, and a client that writes a value of the line.
        "[2026-11-27T02:10:00.000Z] \"GET / HTTP/1.1\" 200 - 0 0 0 - \"-\" \"x\" \"i\" \"a\" \"-\"",
        "[2026-11-27T02:10:00.000Z] \"GET / HTTP/1.1\" 200 - 0 0 0 - \"1.1.1.1\" \"x,2.2.2.2\" \"x\" \"i\" \"a\" \"-\"",
        "2026-11-27T02:10:00Z  WARN the upstream is down client=1.1.1.1 method=GET target=\"/\"",
    ] {
        assert_eq!(read(line, &fields), None, "{line}");
    }
    // A walk over its brackets has an end.
    assert_eq!(read(&" [".repeat(1 << 19), &fields), None);
}

#[test]
fn a_field_that_is_unknown_is_refused() {
    let mut fields = FieldNames::default();
    assert!(fields.set("time").is_err_and(|error| error.contains("no '='")));
    assert!(fields.set("user=u").is_err_and(|error| error.contains("\"user\" is none of")));
}

/// A word that is none of both is no decision.
#[test]
fn the_decision_of_a_line_is_that_of_its_field() {
    let mut named = FieldNames::default();
    named.set("decision=response.x-tollgate-decision").expect("it is known");
    let default = FieldNames::default();
    for (fields, more, wanted) in [
        (&default, r#","decision":"over""#, Some(true)),
        (&default, r#","decision":"ok""#, Some(false)),
        (&default, r#","decision":"\"over\"""#, Some(true)),
        (&default, r#","decision":"-""#, None),
        (&default, r#","decision":null"#, None),
        (&default, "", None),
        (&named, r#","decision":"ok","response":{"x-tollgate-decision":["over"]}"#, Some(true)),
        (&named, r#","decision":"ok""#, None),
    ] {
        let line = format!(r#"{{"time":1795745400,"client":"192.0.2.1","path":"/"{more}}}"#);
        assert_eq!(of(&line, fields).was_refused, wanted, "{line}");
    }
    // Envoy 1.40 wrote it.
    let envoy = r#"{"client":"192.0.2.1","decision":"over","key":"dee4104ddbfec633","limit":"edge.remote_address","method":"GET","path":"/a?b=c","time":"2026-11-29T20:58:01.934Z"}"#;
    let read = of(envoy, &default);
    assert_eq!((&*read.client, &*read.target, read.was_refused), ("192.0.2.1", "/a?b=c", Some(true)));
}
