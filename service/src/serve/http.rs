//! The answers over HTTP: `/json`, `/healthcheck`, and the listener for Prometheus.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;

use super::json;
use super::logged;
use super::messages::{Code, DESCRIPTORS, RateLimitRequest, RateLimitResponse};
use super::pages;
use super::room::Roomed;
use super::state::{MESSAGE, Service, Undecided};

/// The longest time for the body of a request.
const PATIENCE: Duration = Duration::from_secs(5);
const TEXT: &str = "text/plain; charset=utf-8";
/// The path of the checks, before the name of a profile.
const CHECK: &str = "/check/";
/// The header of a 400 that has the reason, and its most characters.
const REASON: HeaderName = HeaderName::from_static("x-tollgate-error");
const MOST_TOLD: usize = 300;
/// The most descriptors of the readings of a request.
const READINGS: usize = 4 * DESCRIPTORS;

/// Answers a request of the HTTP listener.
pub(super) async fn answer(
    service: Arc<Service>,
    peer: IpAddr,
    request: &mut Request<Incoming>,
) -> Response<Body> {
    match request.uri().path() {
        path if path.starts_with(CHECK) => check(&service, peer, request).await,
        "/json" => decision(&service, request.body_mut()).await,
        "/healthcheck" if service.is_healthy() => of(StatusCode::OK, TEXT, "OK"),
        "/healthcheck" => of(StatusCode::INTERNAL_SERVER_ERROR, TEXT, ""),
        _ => not_found("There are /json, /healthcheck and /check/NAME.\n"),
    }
}

/// Answers a request of the listener for Prometheus.
pub(super) fn metrics(service: &Service, request: &Request<Incoming>) -> Response<Body> {
    let settings = &service.in_force().settings;
    match request.uri().path() {
        path if path == settings.prometheus_path => {
            of(StatusCode::OK, "text/plain; version=0.0.4", pages::metrics(service))
        }
        _ => not_found("Another path has the metrics.\n"),
    }
}

async fn decision(service: &Service, body: &mut Incoming) -> Response<Body> {
    let body = timeout(PATIENCE, Roomed::new(body, MESSAGE, &service.room).collect()).await;
    let answer = match body {
        Ok(Ok(body)) => match json::request(&body.to_bytes()) {
            Ok(request) => service.ask(&request).await.map_err(|why| why.to_string()),
            Err(why) => Err(why),
        },
        Ok(Err(error)) => match error.downcast::<Status>() {
            Ok(status) => Ok(service.refuse_unread(status.message())),
            Err(error) => Err(error.to_string()),
        },
        Err(_) => Err("the body did not come in time".to_owned()),
    };
    match answer {
        Ok(answer) => {
            let is_refused = answer.overall_code() == Code::OverLimit;
            let status = if is_refused { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
            of(status, "application/json", json::response(&answer))
        }
        Err(why) => {
            tracing::warn!("/json is answered by an error: {why}");
            // The body is that of envoyproxy/ratelimit, so the reason is a header.
            let printable = why.chars().filter(|c| matches!(c, ' '..='~')).take(MOST_TOLD);
            let mut response = of(StatusCode::BAD_REQUEST, TEXT, "Bad Request\n");
            if let Ok(why) = HeaderValue::try_from(printable.collect::<String>()) {
                response.headers_mut().insert(REASON, why);
            }
            response
        }
    }
}

/// Asks a question, also of more descriptors than a message has. One of too many is refused: its
/// client chose a path that may be under each of thousands of rules.
pub(super) async fn asked_in_parts(
    service: &Service,
    message: &RateLimitRequest,
) -> Result<RateLimitResponse, Undecided> {
    let number = message.descriptors.len();
    if number <= DESCRIPTORS {
        return service.ask(message).await;
    }
    if number > READINGS {
        let why = format!("its readings make {number} descriptors, the most is {READINGS}");
        return Ok(service.refuse_unread(&why));
    }
    let mut whole = RateLimitResponse { overall_code: Code::Ok.into(), ..RateLimitResponse::default() };
    for descriptors in message.descriptors.chunks(DESCRIPTORS) {
        let (domain, descriptors) = (message.domain.clone(), descriptors.to_vec());
        let answer = service.ask(&RateLimitRequest { domain, descriptors, hits_addend: 0 }).await?;
        // OVER_LIMIT is above OK.
        whole.overall_code = whole.overall_code.max(answer.overall_code);
        whole.statuses.extend(answer.statuses);
    }
    Ok(whole)
}

/// Answers the check of a profile. The service has no decision before it has rules: that is 500, as
/// an outage is.
pub(super) async fn check<B>(service: &Service, peer: IpAddr, request: &Request<B>) -> Response<Body> {
    let in_force = service.in_force();
    let asked = request.uri().path_and_query().map_or("", |asked| asked.as_str());
    let asked = asked.strip_prefix(CHECK).unwrap_or_default();
    // Envoy puts the target of the client behind the name of the check.
    let (name, target) = asked.split_at(asked.find(['/', '?']).unwrap_or(asked.len()));
    let target = Some(target).filter(|target| target.starts_with('/'));
    let Some(check) = in_force.settings.checks.get(name) else {
        return not_found("There is no such check in the settings.\n");
    };
    if !check.may_ask(peer) {
        tracing::warn!("/check/{name} was asked from {peer}, which is in no network of its `from`");
        return of(StatusCode::FORBIDDEN, TEXT, "");
    }
    let domain = in_force.loaded.as_ref().and_then(|loaded| loaded.rules.domain(&check.domain));
    let message = check.request(peer, (request.method().as_str(), target), request.headers(), domain);
    let answer = match asked_in_parts(service, &message).await {
        Ok(answer) => {
            let (status, mut headers) = check.answer(&answer);
            if let Some(loaded) = in_force.loaded.as_ref().filter(|_| check.logs) {
                let told = logged::headers(loaded, &service.counts, &message, &answer).into_iter();
                headers.extend(told.filter_map(|(name, text)| Some((name.parse().ok()?, text))));
            }
            (status, headers)
        }
        Err(why) => {
            tracing::warn!("/check/{name} is answered by an error: {why}");
            (StatusCode::INTERNAL_SERVER_ERROR, Vec::new())
        }
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.0;
    for (name, value) in answer.1 {
        // A value has numbers and printable ASCII alone.
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn not_found(line: &'static str) -> Response<Body> {
    of(StatusCode::NOT_FOUND, TEXT, line)
}

fn of(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
