//! The body of a response to a refused request.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;

/// The body of a response to a refused request: bytes, a text, or any [`Body`] that is there as a
/// whole, such as axum's of a `Json`.
///
/// The compiler finds the form: of bytes, or of a [`Body`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no body of a refusal",
    label = "neither bytes, a text, nor a `Body` of `http-body` 1"
)]
pub trait RefusalBody<Form> {
    /// Returns the bytes of the body; `None` if it fails, or would have to be waited for.
    fn into_bytes(self) -> Option<Bytes>;
}

/// The form of bytes and texts.
#[derive(Debug)]
pub enum OfBytes {}

/// The form of a [`Body`].
#[derive(Debug)]
pub enum OfBody {}

macro_rules! of_bytes {
    ($($bytes:ty),*) => {
        $(impl RefusalBody<OfBytes> for $bytes {
            fn into_bytes(self) -> Option<Bytes> {
                Some(self.into())
            }
        })*
    };
}

of_bytes!(Bytes, BytesMut, Vec<u8>, Box<[u8]>, &'static [u8], &'static str);

impl<B: Body> RefusalBody<OfBody> for B {
    fn into_bytes(self) -> Option<Bytes> {
        let (mut body, mut context) = (pin!(self), Context::from_waker(Waker::noop()));
        let (mut first, mut rest) = (Bytes::new(), Vec::new());
        loop {
            match body.as_mut().poll_frame(&mut context) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(mut data) = frame.into_data() else { continue };
                    let data = data.copy_to_bytes(data.remaining());
                    // The one frame of most bodies is not copied.
                    match first.is_empty() {
                        true => first = data,
                        false => rest.extend_from_slice(&data),
                    }
                }
                Poll::Ready(None) if rest.is_empty() => return Some(first),
                Poll::Ready(None) => return Some([&first[..], &rest].concat().into()),
                Poll::Ready(Some(Err(_))) | Poll::Pending => return None,
            }
        }
    }
}
