// promise: layer
//! The responses of a layer.

use super::*;

#[test]
fn forms_of_headers() {
    let told = |form| {
        let (limiter, _mock) = limiter(Quota::per_second(2).burst(7));
        let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).headers(form).build();
        let mut service = layer.layer(Echo::default());
        let names = |response: Response<Bytes>| {
            let mut names: Vec<_> = response.headers().keys().map(|name| name.as_str().to_owned()).collect();
            names.sort();
            names
        };
        let granted = names(call(&mut service, from(A, "/")));
        (0..6).for_each(|_| drop(call(&mut service, from(A, "/"))));
        (granted, names(call(&mut service, from(A, "/"))))
    };
    let ietf = ["ratelimit", "ratelimit-policy"];
    let legacy = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    for (form, with) in [
        (Headers::None, vec![]),
        (Headers::RetryAfterOnly, vec![]),
        (Headers::Ietf, ietf.to_vec()),
        (Headers::Legacy, legacy.to_vec()),
        (Headers::Both, [&ietf[..], &legacy].concat()),
    ] {
        let (granted, refused) = told(form);
        assert_eq!(granted, with, "{form:?}");
        let mut with = with;
        // No cache may store a refusal, whatever it reports.
        with.push("cache-control");
        if form != Headers::None {
            with.push("retry-after");
        }
        with.sort();
        assert_eq!(refused, with, "{form:?}");
    }
}

#[test]
fn a_redirection_is_not_delayed() {
    let (limiter, _mock) = limiter(Quota::per_second(2));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    let mut service = layer.layer(Echo::default());
    assert!(says(&call(&mut service, from(A, "/302")), "ratelimit").is_some());
    let last = call(&mut service, from(A, "/302"));
    assert_eq!((status(&last), says(&last, "ratelimit")), (302, None));
    assert!(says(&last, "ratelimit-policy").is_some());
}

#[test]
fn refusals_have_the_response_that_was_asked_for() {
    let (limiter, _mock) = limiter(Quota::per_second(1));
    let problem = RateLimitLayer::builder(limiter.clone())
        .key(ClientIp::peer())
        .reject_as(Problem::QUOTA_EXCEEDED)
        .build();
    let own = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .reject_with(|refusal| {
            assert_eq!(refusal.denied().unwrap().reason(), Reason::Empty);
            refusal.response(Bytes::from(format!("wait {:?}", refusal.retry_after().unwrap())))
        })
        .build();
    let (mut problem, mut own) = (problem.layer(Echo::default()), own.layer(Echo::default()));
    assert_eq!(status(&call(&mut problem, from(A, "/"))), 200);
    let response = call(&mut problem, from(A, "/"));
    assert_eq!(says(&response, "content-type"), Some("application/problem+json"));
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&body["status"], &body["violated-policies"][0]), (&429.into(), &"default".into()));
    let response = call(&mut own, from(A, "/"));
    assert_eq!((response.body().as_ref(), says(&response, "retry-after")), (&b"wait 1s"[..], Some("1")));
}

#[test]
fn grpc_is_refused_in_its_own_way() {
    let (limiter, _mock) = limiter(Quota::every(Duration::from_millis(1_250)));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    let mut service = layer.layer(Echo::default());
    let grpc = || crate::serving::grpc(from(A, "/"));
    assert_eq!(status(&call(&mut service, grpc())), 200);
    let refused = call(&mut service, grpc());
    assert_eq!((status(&refused), refused.body().len()), (200, 0));
    assert_eq!(says(&refused, "content-type"), Some("application/grpc"));
    assert_eq!(
        (says(&refused, "grpc-status"), says(&refused, "grpc-retry-pushback-ms")),
        (Some("8"), Some("1250"))
    );
    // Decoded by googleapis-common-protos as RetryInfo of 1.25 s.
    let details = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaNQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIJCgcIARCA5Zp3";
    assert_eq!(says(&refused, "grpc-status-details-bin"), Some(details));
    assert!(says(&refused, "ratelimit").is_none() && says(&refused, "retry-after").is_none());
}

#[test]
fn decisions_are_shown() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (limiter, _mock) = limiter(Quota::per_second(1));
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .on_decision({
            let seen = seen.clone();
            move |head, decision| {
                seen.lock().unwrap().push((
                    head.uri.path().to_owned(),
                    decision.result().is_ok(),
                    decision.cost(),
                ));
            }
        })
        .build();
    let mut service = layer.layer(Echo::default());
    call(&mut service, from(A, "/a"));
    call(&mut service, from(A, "/b"));
    assert_eq!(*seen.lock().unwrap(), [("/a".to_owned(), true, 1), ("/b".to_owned(), false, 1)]);
}
