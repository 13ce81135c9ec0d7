//! The calls of Kuadrant's service over gRPC.

use std::sync::Arc;

use hyper::Request;
use hyper::Response;
use hyper::body::Incoming;
use prost::DecodeError;
use tonic::Status;
use tonic::body::Body;

use super::messages::{CommitRequest, CommitResponse, ReserveRequest, ReserveResponse};
use crate::serve::decided::{Decide, decided};
use crate::serve::messages::{RateLimitRequest, RateLimitResponse};
use crate::serve::state::{MESSAGE, Service};

/// The name of the service, before the names of its calls.
pub(in crate::serve) const NAME: &str = "kuadrant.service.ratelimit.v1.RateLimitService";

/// The most bytes of an id.
const ID: usize = 1 << 20;

/// A request of `CheckRateLimit`.
struct CheckCall(RateLimitRequest);

/// A request of `Report`.
struct ReportCall(RateLimitRequest);

/// Answers a call of this service; `None` for an unknown one.
pub(in crate::serve) async fn answer(
    service: &Arc<Service>,
    path: &str,
    request: Request<Incoming>,
) -> Option<Response<Body>> {
    let service = service.clone();
    Some(match path.strip_prefix('/')?.strip_prefix(NAME)? {
        "/CheckRateLimit" => decided::<CheckCall>(service, request).await,
        "/Report" => decided::<ReportCall>(service, request).await,
        "/Reserve" => decided::<ReserveRequest>(service, request).await,
        "/Commit" => decided::<CommitRequest>(service, request).await,
        _ => return None,
    })
}

impl Decide for CheckCall {
    type Answer = RateLimitResponse;

    fn read(bytes: &[u8]) -> Result<CheckCall, DecodeError> {
        RateLimitRequest::read(bytes).map(CheckCall)
    }

    async fn decide(self, service: &Arc<Service>) -> Result<RateLimitResponse, Status> {
        Ok(service.check_rate_limit(self.0).await?)
    }

    fn refused(service: &Service, why: &str) -> Option<RateLimitResponse> {
        Some(service.refuse_unread(why))
    }
}

/// No request waits for its answer, so one that is too long is an error.
impl Decide for ReportCall {
    type Answer = RateLimitResponse;

    fn read(bytes: &[u8]) -> Result<ReportCall, DecodeError> {
        RateLimitRequest::read(bytes).map(ReportCall)
    }

    async fn decide(self, service: &Arc<Service>) -> Result<RateLimitResponse, Status> {
        Ok(service.report(&self.0).await?)
    }
}

impl Decide for ReserveRequest {
    type Answer = ReserveResponse;

    fn read(bytes: &[u8]) -> Result<ReserveRequest, DecodeError> {
        ReserveRequest::read(bytes)
    }

    async fn decide(self, service: &Arc<Service>) -> Result<ReserveResponse, Status> {
        Ok(service.reserve(self).await?)
    }

    fn refused(service: &Service, why: &str) -> Option<ReserveResponse> {
        let code = service.refuse_unread(why).overall_code;
        Some(ReserveResponse { code, ..ReserveResponse::default() })
    }
}

/// As of [`Report`].
impl Decide for CommitRequest {
    type Answer = CommitResponse;
    /// Each reservation can be committed: beside its descriptors there is room for its id.
    const MOST: usize = MESSAGE + ID;

    fn read(bytes: &[u8]) -> Result<CommitRequest, DecodeError> {
        CommitRequest::read(bytes)
    }

    async fn decide(self, service: &Arc<Service>) -> Result<CommitResponse, Status> {
        service.commit(self).await
    }
}
