//! The end of a decision.

use bytes::Bytes;
use http::Response;

use super::after::After;
use super::decision::Decision;

/// The next step of a request that was decided on.
pub(crate) enum Action {
    /// Passes the request on with its decision; the response needs work.
    Pass(Option<Decision>, After),
    Refuse(Response<Bytes>),
}
