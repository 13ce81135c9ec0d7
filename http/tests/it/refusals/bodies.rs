// promise: layer
//! The bodies of refusals: any that are there as a whole.

use http_body::Frame;
use http_body_util::Full;
use tollgate_http::{LayerBuilder, RefusalBody};

use super::*;

/// A body of some frames, the last first. `None` is one to wait for.
struct Frames(Vec<Option<Result<&'static str, &'static str>>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match self.0.pop() {
            None => Poll::Ready(None),
            Some(None) => Poll::Pending,
            Some(Some(frame)) => Poll::Ready(Some(frame.map(|text| Frame::data(text.into())))),
        }
    }
}

/// Returns the body and the content type of a refusal with this body.
fn refused<T: RefusalBody<Form> + 'static, Form>(body: fn() -> T) -> (Bytes, bool) {
    let limiter = RateLimiter::<IpAddr>::new(Quota::BLOCKED);
    let builder: LayerBuilder<IpAddr> = RateLimitLayer::builder(limiter).key(ClientIp::peer());
    let layer = builder.reject_with(move |refusal| {
        let mut response = refusal.response(body());
        response.headers_mut().insert("x-own", "1".parse().unwrap());
        response
    });
    let response = answer(&mut layer.build().layer(Empty(Echo::default())), from(A, "/"));
    assert_eq!(response.status(), 429);
    let is_own = response.headers().contains_key("x-own");
    (response.into_body(), is_own)
}

#[test]
fn a_refusal_has_any_body_that_is_there_as_a_whole() {
    let own = |text: &'static str| (Bytes::from(text), true);
    assert_eq!(refused(|| "text"), own("text"));
    assert_eq!(refused(|| "text".to_owned()), own("text"));
    assert_eq!(refused(|| Bytes::from("bytes")), own("bytes"));
    assert_eq!(refused(|| b"bytes".to_vec()), own("bytes"));
    assert_eq!(refused(|| Full::new(Bytes::from("full"))), own("full"));
    assert_eq!(refused(|| Frames(vec![Some(Ok("b")), Some(Ok("")), Some(Ok("a"))])), own("ab"));
    assert_eq!(refused(|| Frames(vec![])), own(""));
}

#[test]
fn a_refusal_whose_body_fails_or_has_to_be_waited_for_is_bare() {
    let bare = (Bytes::new(), false);
    assert_eq!(refused(|| Frames(vec![Some(Err("broken")), Some(Ok("a"))])), bare);
    assert_eq!(refused(|| Frames(vec![Some(Ok("b")), None, Some(Ok("a"))])), bare);
}
