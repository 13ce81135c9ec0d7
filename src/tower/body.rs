//! The body of a response: that of the inner service, or that of a refusal.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response of a [`RateLimit`](super::RateLimit): the inner one or a refusal's.
    ///
    /// The inner body may have any type, so a layer goes over any service. The default is an empty
    /// refusal. [`into_inner_or_else`](ResponseBody::into_inner_or_else) returns the inner type.
    #[derive(Clone)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: BodyKind<B>,
    }
}

pin_project! {
    #[derive(Clone)]
    #[project = BodyProjection]
    enum BodyKind<B> {
        Inner { #[pin] body: B },
        Refusal { bytes: Bytes },
    }
}

impl<B> ResponseBody<B> {
    #[inline]
    pub(crate) fn inner(body: B) -> ResponseBody<B> {
        ResponseBody { kind: BodyKind::Inner { body } }
    }

    /// Returns the inner service's body, or makes one of a refusal's bytes.
    ///
    /// # Examples
    ///
    /// A service of axum or hyper whose responses have the same type with a limit and without it.
    /// In axum, that also saves the box for a body of another type:
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Response;
    /// use tollgate::tower::ResponseBody;
    ///
    /// fn same<B: From<Bytes>>(response: Response<ResponseBody<B>>) -> Response<B> {
    ///     response.map(|body| body.into_inner_or_else(B::from))
    /// }
    /// let refusal = ResponseBody::<Vec<u8>>::from(Bytes::from("too many requests"));
    /// assert_eq!(same(Response::new(refusal)).body(), b"too many requests");
    /// ```
    pub fn into_inner_or_else(self, refusal: impl FnOnce(Bytes) -> B) -> B {
        match self.kind {
            BodyKind::Inner { body } => body,
            BodyKind::Refusal { bytes } => refusal(bytes),
        }
    }
}

impl<B> Default for ResponseBody<B> {
    fn default() -> Self {
        Bytes::new().into()
    }
}

impl<B> From<Bytes> for ResponseBody<B> {
    fn from(bytes: Bytes) -> Self {
        ResponseBody { kind: BodyKind::Refusal { bytes } }
    }
}

impl<B: Body<Data: From<Bytes>>> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            BodyProjection::Inner { body } => body.poll_frame(context),
            BodyProjection::Refusal { bytes } if bytes.is_empty() => Poll::Ready(None),
            BodyProjection::Refusal { bytes } => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes).into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body } => body.is_end_stream(),
            BodyKind::Refusal { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body } => body.size_hint(),
            BodyKind::Refusal { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

/// Prints no body.
impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused = matches!(self.kind, BodyKind::Refusal { .. });
        f.debug_struct("ResponseBody").field("refused", &refused).finish_non_exhaustive()
    }
}
