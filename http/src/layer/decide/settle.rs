//! The cost of a request that is known only from its response.

use std::fmt;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, HeaderName};
use http_body::Frame;

use crate::layer::limit::counts::{LimitCounters, count};
use crate::layer::limit::dyn_limit::{Adjust, Adjustment};
use crate::response::head::ResponseHead;
use tollgate::Granted;

/// The cost of a request by its response, from the closure of
/// [`LayerBuilder::settle_on`](crate::LayerBuilder::settle_on).
///
/// | cost | tokens |
/// |---|---|
/// | [`Cost::ESTIMATE`] | those of [`cost`](crate::LayerBuilder::cost), 1 by default |
/// | [`Cost::tokens`] | a number, such as that of a header |
/// | [`Cost::bytes`] | by the bytes of the body, as they pass |
/// | [`Cost::trailer`] | the number in a trailer |
/// | [`Cost::of_body`] | a number that a closure finds in the last bytes of the body |
///
/// A cost by bytes is at least one token, and any cost is at least that of
/// [`at_least`](Cost::at_least): else requests whose responses have no bytes would have no limit.
#[derive(Clone)]
pub struct Cost {
    source: CostSource,
    /// The least tokens that a request costs.
    least: u64,
}

type Parse = Arc<dyn Fn(&[u8]) -> Option<u64> + Send + Sync>;

#[derive(Clone)]
enum CostSource {
    Estimate,
    Tokens(u64),
    Bytes,
    Trailer(HeaderName),
    Body(usize, Parse),
}

impl Cost {
    /// The estimate: the tokens that the request took.
    pub const ESTIMATE: Cost = Cost { source: CostSource::Estimate, least: 0 };

    const fn by(source: CostSource) -> Cost {
        Cost { source, least: 0 }
    }

    /// Sets the least tokens that a request costs, whatever its response has.
    ///
    /// The default is 1 for a cost by bytes, and 0 for the others.
    ///
    /// # Examples
    ///
    /// A request costs the work for it, also as a HEAD:
    ///
    /// ```
    /// use tollgate_http::Cost;
    ///
    /// let cost = Cost::bytes().at_least(1_000);
    /// # let _ = cost;
    /// ```
    #[must_use]
    pub fn at_least(self, tokens: u64) -> Cost {
        Cost { least: tokens, ..self }
    }

    /// Costs `n` tokens.
    #[must_use]
    pub fn tokens(n: u64) -> Cost {
        Cost::by(CostSource::Tokens(n))
    }

    /// Costs one token for each byte of the body, and at least one.
    ///
    /// The bytes are charged as they pass. A body that is cut, because the client goes away or the
    /// inner service fails, costs the bytes that passed. The rest of the estimate is refunded: all
    /// but one token after a HEAD, a 304, or a body that is empty or unread. So set the least cost
    /// by [`at_least`](Cost::at_least) if such a request has its price.
    #[must_use]
    pub fn bytes() -> Cost {
        Cost { source: CostSource::Bytes, least: 1 }
    }

    /// Costs the number in a trailer of this name, as of a stream of gRPC.
    ///
    /// Without one trailer of this name that is a number, it costs the estimate, and counts as
    /// [`estimated`](crate::LimitStats::estimated).
    #[must_use]
    pub fn trailer(name: HeaderName) -> Cost {
        Cost::by(CostSource::Trailer(name))
    }

    /// Costs the number that a closure finds in the last `keep` bytes of the body.
    ///
    /// These are the whole body if it is no longer. They are copied as they pass, and the closure
    /// is called once, when the body ends or is cut. If it returns `None`, the request costs the
    /// estimate, and counts as [`estimated`](crate::LimitStats::estimated).
    ///
    /// A body that is cut costs the estimate at least: a client that goes away before the end of
    /// the answer gets no refund for it.
    ///
    /// # Examples
    ///
    /// The tokens of a model, from a field of JSON:
    ///
    /// ```
    /// use tollgate_http::Cost;
    ///
    /// let cost = Cost::of_body(64 << 10, |body| {
    ///     let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    ///     answer["usage"]["total_tokens"].as_u64()
    /// });
    /// # let _ = cost;
    /// ```
    #[must_use]
    pub fn of_body(keep: usize, parse: impl Fn(&[u8]) -> Option<u64> + Send + Sync + 'static) -> Cost {
        Cost::by(CostSource::Body(keep, Arc::new(parse)))
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            CostSource::Estimate => f.write_str("ESTIMATE"),
            CostSource::Tokens(n) => write!(f, "tokens({n})"),
            CostSource::Bytes => f.write_str("bytes()"),
            CostSource::Trailer(name) => write!(f, "trailer({name})"),
            CostSource::Body(keep, _) => write!(f, "of_body({keep}, ..)"),
        }?;
        write!(f, ".at_least({})", self.least)
    }
}

pub(crate) type SettleOn = Arc<dyn Fn(ResponseHead<'_>) -> Cost + Send + Sync>;

/// The tokens that a granted request has taken at its limits.
#[derive(Default)]
pub(crate) struct Charged {
    adjusts: Vec<Adjust>,
    tokens: u64,
}

impl Charged {
    pub(super) fn new(tokens: u64) -> Charged {
        Charged { adjusts: Vec::new(), tokens }
    }

    /// Adds the way to change the take of a limit.
    pub(super) fn push(&mut self, adjust: Adjust) {
        self.adjusts.push(adjust);
    }

    /// Makes `tokens` the cost of the request. Returns the tokens left at the limit that decided.
    pub(super) fn settle(&mut self, tokens: u64) -> Option<Granted> {
        let adjustment = match tokens.checked_sub(self.tokens) {
            Some(0) => return None,
            Some(more) => Adjustment::Charge(more),
            None => Adjustment::Refund(self.tokens - tokens),
        };
        self.tokens = tokens;
        // Each limit is adjusted, and one of them decided.
        self.adjusts.iter().fold(None, |left, adjust| adjust(adjustment).or(left))
    }

    /// Settles by a cost that is known, or returns a meter for the body of this response.
    pub(super) fn settle_by(
        mut self,
        cost: Cost,
        head: ResponseHead<'_>,
        counters: Arc<LimitCounters>,
    ) -> (Option<Granted>, Option<Box<Meter>>) {
        let Cost { source, least } = cost;
        let kind = match source {
            CostSource::Estimate => return (self.settle(self.tokens.max(least)), None),
            CostSource::Tokens(n) => return (self.settle(n.max(least)), None),
            CostSource::Bytes => MeterKind::Bytes { passed: 0 },
            CostSource::Trailer(name) => MeterKind::Trailer { name, found: None },
            CostSource::Body(keep, parse) => MeterKind::Body { keep, last: Vec::new(), parse },
        };
        let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let meter = Meter { charged: self, kind, least, to_come: length, has_ended: false, counters };
        (None, Some(Box::new(meter)))
    }
}

/// The meter of a body that its request pays for, from [`Passed::respond`](crate::Passed::respond).
///
/// It settles the cost by the frames that it sees, the last time when it is dropped. A body that is
/// dropped before its end is cut: see [`Cost`].
#[must_use = "a body whose meter is dropped early is a body that was cut"]
pub struct Meter {
    charged: Charged,
    kind: MeterKind,
    /// The least tokens that the request costs.
    least: u64,
    /// The bytes to come by the `Content-Length`, behind which a server reads no end of the body.
    to_come: Option<u64>,
    /// Whether the whole body has passed.
    has_ended: bool,
    counters: Arc<LimitCounters>,
}

enum MeterKind {
    Bytes {
        passed: u64,
    },
    Trailer {
        name: HeaderName,
        found: Option<u64>,
    },
    Body {
        keep: usize,
        last: Vec<u8>,
        parse: Parse,
    },
    /// The cost stays as it is.
    Settled,
}

impl Meter {
    /// Sees a frame that passes, and returns it.
    pub fn see<D: Buf + From<Bytes>>(&mut self, frame: Frame<D>) -> Frame<D> {
        if let (Some(to_come), Some(data)) = (&mut self.to_come, frame.data_ref()) {
            *to_come = to_come.saturating_sub(data.remaining() as u64);
        }
        if frame.is_trailers() || self.to_come == Some(0) {
            self.end();
        }
        match &mut self.kind {
            MeterKind::Bytes { passed } => {
                if let Some(data) = frame.data_ref() {
                    *passed = passed.saturating_add(data.remaining() as u64);
                    if *passed > self.charged.tokens {
                        self.charged.settle(*passed);
                    }
                }
            }
            MeterKind::Trailer { name, found } => {
                if let Some(trailers) = frame.trailers_ref() {
                    let mut values = trailers.get_all(&*name).iter();
                    let only = values.next().filter(|_| values.next().is_none());
                    *found = only.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                }
            }
            MeterKind::Body { keep, last, .. } => {
                return frame.map_data(|mut data| {
                    let bytes = data.copy_to_bytes(data.remaining());
                    last.extend_from_slice(tail(&bytes, *keep));
                    // Moved once for `keep` bytes, not once for each frame.
                    if last.len() > keep.saturating_mul(2) {
                        last.drain(..last.len() - *keep);
                    }
                    bytes.into()
                });
            }
            MeterKind::Settled => {}
        }
        frame
    }

    /// Notes that the whole body has passed.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Leaves the cost as it is.
    pub(crate) fn leave(&mut self) {
        self.kind = MeterKind::Settled;
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let found = match std::mem::replace(&mut self.kind, MeterKind::Settled) {
            MeterKind::Bytes { passed } => {
                self.charged.settle(passed.max(self.least));
                return;
            }
            MeterKind::Trailer { found, .. } => found,
            // A panic of the closure beside another one would end the process.
            MeterKind::Body { .. } if std::thread::panicking() => None,
            MeterKind::Body { keep, last, parse } => parse(tail(&last, keep)),
            MeterKind::Settled => return,
        };
        if found.is_none() {
            count(&self.counters.estimated);
        }
        let estimate = self.charged.tokens;
        // A client that goes away before the end gets no refund.
        let least = if self.has_ended { self.least } else { self.least.max(estimate) };
        self.charged.settle(found.unwrap_or(estimate).max(least));
    }
}

/// Returns the last `keep` bytes.
fn tail(bytes: &[u8], keep: usize) -> &[u8] {
    &bytes[bytes.len().saturating_sub(keep)..]
}

/// Prints no body.
impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}
