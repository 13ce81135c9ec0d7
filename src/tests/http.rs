// promise: layer
//! The bytes that clients of gRPC receive.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

use crate::http::grpc::{Code, DETAILS, PUSHBACK, STATUS, base64, content_type, headers, millis, status};

#[test]
fn the_vectors_of_rfc_4648() {
    for (bytes, text) in
        [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE")]
    {
        assert_eq!(base64(bytes.as_bytes()), text);
    }
    assert_eq!(base64(&[0xfb, 0xff]), "+/8");
}

#[test]
fn a_wait_is_what_googles_decoder_reads() {
    let told = headers(
        HeaderValue::from_static("application/grpc"),
        Code::ResourceExhausted,
        Some(Duration::from_millis(1_250)),
    );
    // Decoded by googleapis-common-protos as RetryInfo of 1.25 s.
    let bytes = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaNQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIJCgcIARCA5Zp3";
    assert_eq!(
        (&told[DETAILS], &told[STATUS], &told[PUSHBACK]),
        (&bytes.parse().unwrap(), &8.into(), &1250.into())
    );
}

#[test]
fn a_wait_is_rounded_up_and_never_wraps() {
    assert_eq!(millis(Duration::from_nanos(1)), 1);
    assert_eq!(millis(Duration::from_nanos(1_000_001)), 2);
    assert_eq!(millis(Duration::MAX), i32::MAX as u32);
    status(Code::ResourceExhausted, Duration::MAX);
    let never = headers(HeaderValue::from_static("application/grpc"), Code::ResourceExhausted, None);
    assert_eq!(never[PUSHBACK], "-1");
    assert!(!never.contains_key(DETAILS));
}

#[test]
fn the_kinds_of_grpc() {
    for (asked, answered) in [
        ("application/grpc", Some("application/grpc")),
        ("application/grpc+proto", Some("application/grpc")),
        ("application/grpc;charset=x", Some("application/grpc")),
        ("application/grpc-web", Some("application/grpc-web")),
        ("application/grpc-web-text", Some("application/grpc-web-text")),
        ("Application/GRPC", Some("application/grpc")),
        ("application/GRPC\t;charset=x", Some("application/grpc")),
        ("APPLICATION/grpc-Web", Some("APPLICATION/grpc-Web")),
        ("application/grpcx", None),
        ("application/grp", None),
        ("application/json", None),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(asked));
        assert_eq!(content_type(&headers).as_ref().map(|value| value.to_str().unwrap()), answered);
    }
}
