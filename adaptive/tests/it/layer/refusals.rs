// promise: layer
//! Refusals for want of a place.

use super::*;

#[test]
fn the_lowest_priority_is_refused_first() {
    let limit = Arc::new(Inflight::fixed(16));
    let layer = InflightLayer::builder(limit.clone())
        .priority(|head| {
            let name = &head.uri.path()[1..];
            *Priority::ALL.iter().find(|priority| priority.name() == name).expect("it is a priority")
        })
        .build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let mut held = Vec::new();
    // Half, three quarters, 230 of 256 and all of 16 places.
    for (priority, most) in Priority::ALL.into_iter().zip([8, 12, 14, 16]) {
        let request = || at(&format!("/{}", priority.name()));
        while limit.in_flight() < most {
            held.push(call(&mut service, request()));
        }
        let refused = done(poll(&mut call(&mut service, request()))).unwrap();
        assert_eq!((refused.status().as_u16(), limit.in_flight()), (503, most));
        // Each lower one is refused, too.
        for lower in Priority::ALL.into_iter().filter(|lower| *lower < priority) {
            let refused = done(poll(&mut call(&mut service, at(&format!("/{}", lower.name())))));
            assert_eq!(refused.unwrap().status(), 503, "{lower:?} beside {priority:?}");
        }
    }
    let stats = layer.stats();
    let by_priority = stats.priorities.map(|by| (by.priority, by.admitted, by.refused));
    let [background, sheddable, default, critical] = Priority::ALL;
    assert_eq!(by_priority, [(background, 8, 4), (sheddable, 4, 3), (default, 2, 2), (critical, 2, 1)]);
    assert_eq!((stats.admitted, stats.refused, upstream.calls()), (16, 10, 16));
    drop(held);
    assert_eq!(limit.in_flight(), 0);
}

#[test]
fn a_refusal_touches_no_inner_service_and_tells_the_wait() {
    let limit = Arc::new(Inflight::fixed(1));
    let layer = InflightLayer::new(limit.clone());
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let first = call(&mut service, root());
    let before = (upstream.state.polls.load(Relaxed), upstream.calls());
    // Also while the inner service is busy, or gone.
    upstream.state.busy.store(usize::MAX, Relaxed);
    let mut refused = call(&mut service, root());
    let response = done(poll(&mut refused)).unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &1.into()));
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert_eq!((response.headers().len(), response.body().is_end_stream()), (2, true));
    assert_eq!((upstream.state.polls.load(Relaxed), upstream.calls()), before);
    assert_eq!((limit.in_flight(), layer.stats().refused), (1, 1));
    drop((first, refused));
    assert_eq!(limit.in_flight(), 0);
}

#[test]
fn a_refusal_is_made_as_the_closure_says() {
    let limit = Arc::new(Inflight::fixed(1));
    let full = limit.try_enter().unwrap();
    let problem = InflightLayer::builder(limit.clone())
        .reject_with(|refusal| refusal.problem(Problem::TEMPORARY_REDUCED_CAPACITY))
        .build();
    let text = InflightLayer::builder(limit.clone())
        .priority(|_| Priority::Sheddable)
        .reject_with(|refusal| {
            let text = format!("{:?} {}: {}", refusal.priority(), refusal.head().uri, refusal.overloaded());
            let mut response = refusal.response(text);
            response.headers_mut().insert("retry-after", 7.into());
            response
        })
        .build();
    let answer = |layer: &InflightLayer| {
        done(poll(&mut call(&mut layer.layer(Upstream::default()), at("/a")))).unwrap().map(|body| {
            let mut bytes = None;
            let _ = body.into_inner_or_else(|refusal| {
                bytes = Some(refusal);
                Frames::default()
            });
            bytes.expect("it is a refusal")
        })
    };
    let response = answer(&problem);
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["retry-after"], "1");
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["status"], 503);
    let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    assert_eq!(body["type"], kind);
    let response = answer(&text);
    assert_eq!(response.headers()["retry-after"], "7");
    assert_eq!(response.body(), "Sheddable /a: 1 requests are in flight, and the limit is 1");
    drop(full);
    assert_eq!(limit.in_flight(), 0);
}

#[test]
fn a_refusal_of_grpc_is_unavailable_with_the_wait() {
    let limit = Arc::new(Inflight::fixed(1));
    let full = limit.try_enter().unwrap();
    let bare = InflightLayer::new(limit.clone());
    let problem = InflightLayer::builder(limit.clone())
        .reject_with(|refusal| refusal.problem(Problem::TEMPORARY_REDUCED_CAPACITY))
        .build();
    for layer in [bare, problem] {
        let mut service = layer.layer(Upstream::default());
        let response = done(poll(&mut call(&mut service, grpc(root())))).unwrap();
        assert_eq!((response.status().as_u16(), response.body().is_end_stream()), (200, true));
        let says = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap());
        assert_eq!(says("content-type"), Some("application/grpc"));
        assert_eq!(says("grpc-status"), Some("14"));
        assert_eq!(says("grpc-message"), Some("too many requests in flight"));
        assert_eq!(says("grpc-retry-pushback-ms"), Some("1000"));
        // Protobuf: the code is `08 0e`, and `RetryInfo` of one second is `0a 02 08 01` at the end.
        let details = says("grpc-status-details-bin").unwrap();
        assert!(details.starts_with("CA4") && details.ends_with("EgQKAggB"), "{details}");
        assert_eq!((says("retry-after"), says("cache-control")), (None, Some("no-store")));
        assert_eq!(response.headers().len(), 6);
    }
    drop(full);
}

fn grpc(mut request: Request<()>) -> Request<()> {
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    request.headers_mut().insert("content-type", "application/grpc+proto".parse().unwrap());
    request
}
