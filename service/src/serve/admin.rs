//! The debug listener: statistics, the rules in force, and a reload.

use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};

use super::clear::{NotCleared, clear};
use super::pages;
use super::reload::Source;
use super::state::Condition;
use tollgate_common::admin::{Body, Handler, not_allowed, of_type, text};
use tollgate_common::net::crowd::Activity;

const ROUTES: &str = "There are /, /stats, /rlconfig, /explain, /metrics, /healthz, /readyz, POST /reload and \
     DELETE /count?domain=DOMAIN&descriptor=k=v,k2=v2.\n";

/// The debug pages of the service.
pub(super) struct Pages(pub(super) Arc<Source>);

impl Handler for Pages {
    fn hosts(&self) -> Vec<String> {
        Vec::new()
    }

    fn is_ready(&self) -> Result<&'static str, &'static str> {
        let is_alone = self.0.service.shared.as_ref().is_some_and(|shared| shared.is_away());
        match *self.0.service.health.borrow() {
            // Its policy decides: no other replica would do better.
            Condition::Serving if is_alone => Ok("ready, and the store does not answer\n"),
            Condition::Serving => Ok("ready\n"),
            Condition::NotServing => Err("no domain is loaded\n"),
            Condition::Stopping => Err("stopping\n"),
        }
    }

    async fn answer(&self, _: &Arc<Activity>, request: Request<Incoming>) -> Response<Body> {
        let (method, path) = (request.method(), request.uri().path());
        let service = &self.0.service;
        let page = |kind, text: String| of_type(kind, Full::from(text).boxed_unsync());
        match path {
            "/reload" if method == Method::POST => self.reload().await,
            "/reload" => not_allowed("POST"),
            "/count" if method == Method::DELETE => {
                let query = request.uri().query().unwrap_or_default();
                match clear(service, query).await {
                    Ok(told) => text(StatusCode::OK, told),
                    Err(NotCleared::Query(why)) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
                    Err(NotCleared::Absent(why)) => {
                        text(StatusCode::NOT_FOUND, format!("{}\n", why.trim_end()))
                    }
                    Err(NotCleared::Refused(why)) => {
                        text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
                    }
                }
            }
            "/count" => not_allowed("DELETE"),
            "/" | "/stats" | "/rlconfig" | "/explain" | "/metrics" | "/healthz" | "/readyz"
                if method != Method::GET && method != Method::HEAD =>
            {
                not_allowed("GET, HEAD")
            }
            "/" => page("text/plain; charset=utf-8", format!("tollgate serve\n{ROUTES}")),
            "/stats" => page("text/plain; charset=utf-8", service.counts.statistics.lines()),
            "/rlconfig" => page("text/plain; charset=utf-8", pages::rules(service)),
            "/explain" => {
                match pages::explanation(service, request.uri().query().unwrap_or_default()).await {
                    Ok(told) => text(StatusCode::OK, told),
                    Err(why) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
                }
            }
            "/metrics" => page("text/plain; version=0.0.4", pages::metrics(service)),
            _ => text(StatusCode::NOT_FOUND, ROUTES),
        }
    }
}

impl Pages {
    async fn reload(&self) -> Response<Body> {
        let source = self.0.clone();
        let reloaded = tokio::task::spawn_blocking(move || source.reload()).await;
        match reloaded.unwrap_or_else(|error| Err(format!("cannot reload: {error}"))) {
            Ok(()) => text(StatusCode::OK, "loaded\n"),
            Err(why) => text(StatusCode::UNPROCESSABLE_ENTITY, format!("{why}\n")),
        }
    }
}
