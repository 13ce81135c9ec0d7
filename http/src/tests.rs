// promise: layer
//! The bytes that clients of gRPC receive.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Request, Version};

use crate::request::key::Head;
use crate::response::grpc::{
    Code, DETAILS, GrpcForm, PUSHBACK, STATUS, base64, millis, response, status, trailers,
};

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
    let told = trailers(Code::ResourceExhausted, Some(Duration::from_millis(1_250)));
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
    let never = trailers(Code::ResourceExhausted, None);
    assert_eq!(never[PUSHBACK], "-1");
    assert!(!never.contains_key(DETAILS));
}

#[test]
fn a_frame_of_trailers_is_byte_for_byte_that_of_grpc_web() {
    let block = "grpc-status: 8\r\ngrpc-message: rate limit exceeded\r\ngrpc-retry-pushback-ms: -1\r\n";
    let frame = [&[0x80, 0, 0, 0, block.len() as u8], block.as_bytes()].concat();
    let body = |form| response(form, Code::ResourceExhausted, None).into_body();
    assert_eq!(body(GrpcForm::Web), frame);
    // Encoded by `base64` of coreutils.
    let text = "gAAAAE9ncnBjLXN0YXR1czogOA0KZ3JwYy1tZXNzYWdlOiByYXRlIGxpbWl0IGV4Y2VlZGVkDQpncnBjLXJldHJ5LXB1c2hiYWNrLW1zOiAtMQ0K";
    assert_eq!(body(GrpcForm::WebText), text);
    assert!(body(GrpcForm::Grpc).is_empty());
}

#[test]
fn the_forms_of_grpc() {
    use GrpcForm::{Grpc, Web, WebText};
    for (kind, of_2, of_1) in [
        ("application/grpc", Some(Grpc), None),
        ("application/grpc+proto", Some(Grpc), None),
        ("application/grpc;charset=x", Some(Grpc), None),
        ("Application/GRPC", Some(Grpc), None),
        ("application/GRPC\t;charset=x", Some(Grpc), None),
        ("application/grpc-web", Some(Web), Some(Web)),
        ("APPLICATION/grpc-Web+json", Some(Web), Some(Web)),
        ("application/grpc-web-text", Some(WebText), Some(WebText)),
        ("application/grpc-web-text+proto", Some(WebText), Some(WebText)),
        ("application/grpc-web-text-base64", None, None),
        ("application/grpc-anything", None, None),
        ("application/grpcx", None, None),
        ("application/grp", None, None),
        ("application/json", None, None),
        ("", None, None),
    ] {
        let form = |method, version| {
            let request = Request::builder().method(method).version(version).header(CONTENT_TYPE, kind);
            GrpcForm::of(Head::from(&request.body(()).unwrap()))
        };
        let versions = [Version::HTTP_2, Version::HTTP_3, Version::HTTP_11, Version::HTTP_10];
        assert_eq!(versions.map(|version| form("POST", version)), [of_2, of_2, of_1, of_1], "{kind}");
        for method in ["GET", "HEAD", "PUT", "post"] {
            assert_eq!(versions.map(|version| form(method, version)), [None; 4], "{method} {kind}");
        }
    }
    assert_eq!(GrpcForm::of(Head::from(&Request::post("/").body(()).unwrap())), None);
}
