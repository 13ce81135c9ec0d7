//! The body of a response: that of the inner service, or that of a refusal.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::layer::decide::settle::Meter;

pin_project! {
    /// The body of a response of a [`RateLimit`](crate::RateLimit) or a
    /// [`LimitInflight`](crate::LimitInflight): the inner one or a refusal's.
    ///
    /// The inner body may have any type, so a layer goes over any service. The default is an empty
    /// refusal. [`into_inner_or_else`](ResponseBody::into_inner_or_else) returns the inner type.
    pub struct ResponseBody<B> {
        #[pin]
        kind: BodyKind<B>,
    }
}

pin_project! {
    #[project = BodyProjection]
    enum BodyKind<B> {
        Inner { #[pin] body: B },
        Metered { #[pin] body: B, meter: Box<Meter> },
        // In a box, so that the bodies of other layers are no larger.
        Held { #[pin] body: B, guard: Option<Box<dyn Send + Sync>> },
        Refusal { bytes: Bytes },
    }
}

impl<B> ResponseBody<B> {
    /// Wraps the body of a response whose cost may depend on it, with the meter of
    /// [`Passed::respond`](crate::Passed::respond).
    #[inline]
    pub fn metered(body: B, meter: Option<Box<Meter>>) -> ResponseBody<B> {
        let kind = match meter {
            None => BodyKind::Inner { body },
            Some(meter) => BodyKind::Metered { body, meter },
        };
        ResponseBody { kind }
    }

    /// Wraps the body of an inner service, which passes unchanged. It costs no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_http::ResponseBody;
    ///
    /// let body = ResponseBody::new("hello");
    /// assert_eq!(body.into_inner_or_else(|_| "refused"), "hello");
    /// ```
    #[inline]
    pub fn new(body: B) -> ResponseBody<B> {
        ResponseBody::metered(body, None)
    }

    /// Wraps the body of an inner service, and drops a guard when the body ends, fails or is
    /// dropped.
    ///
    /// [`into_inner_or_else`](ResponseBody::into_inner_or_else) drops the guard at once, and a
    /// clone of the body has none. The guard costs a box.
    ///
    /// # Examples
    ///
    /// A permit of a semaphore that a response keeps to its end:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tollgate_http::ResponseBody;
    ///
    /// let permit = Arc::new(());
    /// let body = ResponseBody::holding("hello", permit.clone());
    /// assert_eq!(Arc::strong_count(&permit), 2);
    /// drop(body);
    /// assert_eq!(Arc::strong_count(&permit), 1);
    /// ```
    pub fn holding(body: B, guard: impl Send + Sync + 'static) -> ResponseBody<B> {
        ResponseBody { kind: BodyKind::Held { body, guard: Some(Box::new(guard)) } }
    }

    /// Returns the inner service's body, or makes one of a refusal's bytes.
    ///
    /// A cost that [depends on the body](crate::LayerBuilder::settle_on) stays the estimate, or the
    /// bytes that have passed. A [held](Self::holding) guard is dropped.
    ///
    /// # Examples
    ///
    /// A service of axum or hyper whose responses have the same type with a limit and without it.
    /// In axum, that also saves the box for a body of another type:
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Response;
    /// use tollgate_http::ResponseBody;
    ///
    /// fn same<B: From<Bytes>>(response: Response<ResponseBody<B>>) -> Response<B> {
    ///     response.map(|body| body.into_inner_or_else(B::from))
    /// }
    /// let refusal = ResponseBody::<Vec<u8>>::from(Bytes::from("too many requests"));
    /// assert_eq!(same(Response::new(refusal)).body(), b"too many requests");
    /// ```
    pub fn into_inner_or_else(self, refusal: impl FnOnce(Bytes) -> B) -> B {
        match self.kind {
            BodyKind::Inner { body } | BodyKind::Held { body, .. } => body,
            BodyKind::Metered { body, mut meter } => {
                meter.leave();
                body
            }
            BodyKind::Refusal { bytes } => refusal(bytes),
        }
    }
}

/// The clone of a body that is still to be paid for costs nothing, and a clone holds no place.
impl<B: Clone> Clone for ResponseBody<B> {
    fn clone(&self) -> Self {
        let kind = match &self.kind {
            BodyKind::Inner { body } | BodyKind::Metered { body, .. } | BodyKind::Held { body, .. } => {
                BodyKind::Inner { body: body.clone() }
            }
            BodyKind::Refusal { bytes } => BodyKind::Refusal { bytes: bytes.clone() },
        };
        ResponseBody { kind }
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
            BodyProjection::Metered { mut body, meter } => {
                let frame = ready!(body.as_mut().poll_frame(context));
                let frame = frame.map(|frame| frame.map(|frame| meter.see(frame)));
                if frame.is_none() || (matches!(frame, Some(Ok(_))) && body.is_end_stream()) {
                    meter.end();
                }
                Poll::Ready(frame)
            }
            BodyProjection::Held { mut body, guard } => {
                let frame = ready!(body.as_mut().poll_frame(context));
                if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
                    *guard = None;
                }
                Poll::Ready(frame)
            }
            BodyProjection::Refusal { bytes } if bytes.is_empty() => Poll::Ready(None),
            BodyProjection::Refusal { bytes } => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes).into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body } | BodyKind::Metered { body, .. } | BodyKind::Held { body, .. } => {
                body.is_end_stream()
            }
            BodyKind::Refusal { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body } | BodyKind::Metered { body, .. } | BodyKind::Held { body, .. } => {
                body.size_hint()
            }
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
