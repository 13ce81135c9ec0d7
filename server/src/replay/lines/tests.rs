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
        headers: vec![("referer", "https://e.example/".into()), ("user-agent", "x \\ y".into())],
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

#[test]
fn a_header_that_is_missing_is_absent() {
    let fields = FieldNames::default();
    let common = r#"::1 - - [01/Jan/1970:00:00:00 +0000] "GET / HTTP/1.1" 200 0"#;
    let line = of(common, &fields);
    assert_eq!((line.at, &*line.client, line.headers.len()), (Duration::ZERO, "::1", 0));
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
    ] {
        assert_eq!(read(line, &fields), None, "{line}");
    }
}

#[test]
fn a_field_that_is_unknown_is_refused() {
    let mut fields = FieldNames::default();
    assert!(fields.set("time").is_err_and(|error| error.contains("no '='")));
    assert!(fields.set("user=u").is_err_and(|error| error.contains("\"user\" is none of")));
}
