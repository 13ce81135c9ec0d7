//! The messages as bytes and as JSON.

use prost::Message;

use crate::serve::json;
use crate::serve::messages::*;

/// The bytes are written by hand, after the numbers of Envoy's `rls.proto` and `ratelimit.proto`.
#[test]
fn the_fields_have_the_numbers_of_the_protocol() {
    let entry = DescriptorEntry { key: "k".to_owned(), value: "v".to_owned() };
    let limit = Some(RateLimitOverride { requests_per_unit: 5, unit: 7 });
    let descriptors = vec![RateLimitDescriptor {
        entries: vec![entry],
        limit,
        hits_addend: Some(0),
        is_negative_hits: true,
    }];
    let request = RateLimitRequest { domain: "d".to_owned(), descriptors, hits_addend: 3 };
    // An entry, an override, an empty UInt64Value and a bool.
    let descriptor = b"\x0a\x06\x0a\x01k\x12\x01v\x12\x04\x08\x05\x10\x07\x1a\x00\x20\x01";
    let bytes = [&b"\x0a\x01d\x12\x12"[..], descriptor, b"\x18\x03"].concat();
    assert_eq!(request.encode_to_vec(), bytes);
    // A field that is not known: number 15, a text.
    assert_eq!(RateLimitRequest::decode(&*[&bytes[..], b"\x7a\x01x"].concat()), Ok(request));

    let current_limit = Some(CurrentLimit { requests_per_unit: 5, unit: 7, name: "n".to_owned() });
    let duration_until_reset = Some(WholeSeconds { seconds: 9 });
    let status = DescriptorStatus { code: 2, current_limit, limit_remaining: 4, duration_until_reset };
    let header = HeaderValue { key: "k".to_owned(), value: "v".to_owned() };
    let fields = [("m".to_owned(), Value { kind: Some(ValueKind::Bool(true)) })];
    let response = RateLimitResponse {
        overall_code: 1,
        statuses: vec![status],
        response_headers_to_add: vec![header],
        dynamic_metadata: Some(Struct { fields: fields.into() }),
    };
    let status = b"\x08\x02\x12\x07\x08\x05\x10\x07\x1a\x01n\x18\x04\x22\x02\x08\x09";
    let rest = b"\x1a\x06\x0a\x01k\x12\x01v\x32\x09\x0a\x07\x0a\x01m\x12\x02\x20\x01";
    assert_eq!(response.encode_to_vec(), [&b"\x08\x01\x12\x11"[..], status, rest].concat());
    assert_eq!(HealthCheckRequest { service: "s".to_owned() }.encode_to_vec(), b"\x0a\x01s");
    assert_eq!(HealthCheckResponse { status: ServingStatus::Serving.into() }.encode_to_vec(), b"\x08\x01");
}

#[test]
fn a_request_is_read_in_both_spellings() {
    let camel = r#"{"domain": "d", "hitsAddend": "3", "descriptors": [{"entries": [{"key": "k", "value": "v"}],
        "limit": {"requestsPerUnit": 5, "unit": "WEEK"}, "hitsAddend": "18446744073709551615", "isNegativeHits": true}]}"#;
    let snake = r#"{"domain": "d", "hits_addend": 3, "descriptors": [{"entries": [{"key": "k", "value": "v"}],
        "limit": {"requests_per_unit": 5, "unit": 7}, "hits_addend": 18446744073709551615, "is_negative_hits": true}]}"#;
    let request = json::request(camel.as_bytes()).unwrap();
    assert_eq!(json::request(snake.as_bytes()), Ok(request.clone()));
    assert_eq!(request.descriptors[0].hits_addend, Some(u64::MAX));
    let nulls = r#"{"domain": null, "hits_addend": null, "descriptors": [{"entries": null, "limit": null,
        "hits_addend": null, "is_negative_hits": null}]}"#;
    let empty =
        RateLimitRequest { descriptors: vec![RateLimitDescriptor::default()], ..RateLimitRequest::default() };
    assert_eq!(json::request(nulls.as_bytes()), Ok(empty));
}

#[test]
fn bytes_that_are_no_text_are_read_one_by_one() {
    for (bytes, text) in [
        (&b"plain"[..], "plain"),
        ("\u{e9}\u{10f7ff}".as_bytes(), "\u{e9}\u{10f7ff}"),
        (b"/a\xff.png", "/a\u{10f7ff}.png"),
        // The first two bytes of three.
        (b"\xe2\x82", "\u{10f7e2}\u{10f782}"),
    ] {
        assert_eq!(text_of(bytes), text);
    }
}

/// An integer of proto3 JSON is a number or a text, also with an exponent or a fraction of 0.
#[test]
fn a_number_of_hits_is_read_or_is_an_error() {
    for (text, hits) in [
        ("150", Some(150)),
        ("\"150\"", Some(150)),
        ("150.0", Some(150)),
        ("1.5e2", Some(150)),
        ("\"1.5e2\"", Some(150)),
        ("0", Some(0)),
        // As a field that is missing.
        ("null", Some(0)),
        ("4294967295", Some(u32::MAX)),
        ("4294967296", None),
        ("-1", None),
        ("1.5", None),
        ("1e99", None),
        ("\"\"", None),
        ("\" 1\"", None),
        ("\"+1\"", None),
        ("\"0x1\"", None),
        ("\"NaN\"", None),
        ("true", None),
        ("[1]", None),
    ] {
        for name in ["hitsAddend", "hits_addend"] {
            let request = json::request(format!("{{\"{name}\": {text}}}").as_bytes());
            assert_eq!(request.ok().map(|request| request.hits_addend), hits, "{text}");
            let one = json::request(format!("{{\"descriptors\": [{{\"{name}\": {text}}}]}}").as_bytes());
            let of_descriptor = one.ok().map(|request| request.descriptors[0].hits_addend);
            let wanted = match text {
                "null" => Some(None),
                "4294967296" => Some(Some(4_294_967_296)),
                _ => hits.map(|hits| Some(hits.into())),
            };
            assert_eq!(of_descriptor, wanted, "{text}");
        }
    }
}

/// A client can write each of them, and a caller that is open lets an error pass.
#[test]
fn a_text_that_is_no_unicode_is_read_all_the_same() {
    for (json, text) in [
        (&br"\ud800"[..], "\u{fffd}"),
        (br"a\uDFFF\uD83D.", "a\u{fffd}\u{fffd}."),
        (br"\ud800\ud83d\ude00\ude00", "\u{fffd}\u{1f600}\u{fffd}"),
        (br"\ud800\n\u00e9\ud8", ""),
        (br"\ud800\n\u00e9", "\u{fffd}\n\u{e9}"),
        // An escape of a backslash is none of a surrogate.
        (br"\\ud800\\\ud800", "\\ud800\\\u{fffd}"),
        (b"a\xff\\ud800\xc3\xa9", "a\u{10f7ff}\u{fffd}\u{e9}"),
        (b"\xed\xa0\x80", "\u{10f7ed}\u{10f7a0}\u{10f780}"),
    ] {
        let request = json::request(&[&b"{\"domain\": \""[..], json, b"\"}"].concat());
        let wanted = Some(text.to_owned()).filter(|text| !text.is_empty());
        assert_eq!(request.ok().map(|request| request.domain), wanted, "{}", json.escape_ascii());
    }
}

#[test]
fn a_request_that_the_protocol_does_not_have_is_one_error() {
    for (text, error) in [
        ("}", "this is no JSON: expected value at line 1 column 1"),
        ("[]", "a request is an object, not []"),
        (r#"{"domains": "d"}"#, "a request has no field `domains`"),
        (r#"{"domain": 1}"#, "domain: 1 is no string"),
        (r#"{"hitsAddend": -1}"#, "hitsAddend: -1 is no whole number from 0 to 4294967295"),
        (
            r#"{"hits_addend": "4294967296"}"#,
            "hits_addend: \"4294967296\" is no whole number from 0 to 4294967295",
        ),
        (r#"{"hits_addend": 1, "hitsAddend": 2}"#, "a request has the field `hits_addend` in both spellings"),
        (r#"{"descriptors": {}}"#, "descriptors: {} is no list"),
        (
            r#"{"descriptors": [{"entries": [{"k": "v"}]}]}"#,
            "descriptors: entries: an entry has no field `k`",
        ),
        (
            r#"{"descriptors": [{"isNegativeHits": 1}]}"#,
            "descriptors: isNegativeHits: 1 is neither true nor false",
        ),
        (
            r#"{"descriptors": [{"limit": {"unit": "hour"}}]}"#,
            "descriptors: limit: unit: \"hour\" is no unit",
        ),
    ] {
        assert_eq!(json::request(text.as_bytes()).unwrap_err(), error);
    }
    let deep = "[".repeat(10_000);
    assert!(json::request(deep.as_bytes()).unwrap_err().starts_with("this is no JSON: recursion limit"));
}
