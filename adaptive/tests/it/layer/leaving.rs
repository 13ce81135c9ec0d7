// promise: layer
//! Requests that leave without an answer.

use super::*;

#[test]
fn a_request_that_is_cancelled_leaves_at_every_stage() {
    let (limit, mock) = adaptive(10);
    let layer = InflightLayer::builder(limit.clone()).until(Until::Body).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    // Called, but not polled.
    let future = call(&mut service, root());
    assert_eq!(limit.in_flight(), 1);
    drop(future);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [0, 0, 0, 1]));
    // It waits for the inner service.
    upstream.state.busy.store(3, Relaxed);
    let mut future = call(&mut service, root());
    assert!(poll(&mut future).is_pending());
    assert_eq!((limit.in_flight(), upstream.calls()), (1, 1), "it holds its place while it waits");
    drop(future);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [0, 0, 0, 2]));
    // It is passed on after a wait.
    upstream.state.busy.store(2, Relaxed);
    let mut future = call(&mut service, root());
    assert!(poll(&mut future).is_pending() && poll(&mut future).is_pending());
    assert_eq!((limit.in_flight(), upstream.calls()), (1, 2));
    drop(future);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [0, 0, 0, 3]));
    // Its answer is there, and not read.
    upstream.says(Said::Body(Frames::of(vec![Poll::Pending])));
    let mut future = call(&mut service, root());
    drop(done(poll(&mut future)).unwrap());
    assert_eq!(limit.in_flight(), 0, "a future that is done holds no place");
    assert_eq!(outcomes(&layer), [1, 0, 0, 3]);
    drop(future);
    // A refused one has none to leave.
    limit.set_limit(1).unwrap();
    let full = limit.try_enter().unwrap();
    drop(call(&mut service, root()));
    assert_eq!((limit.in_flight(), layer.stats().refused), (1, 1));
    drop(full);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [1, 0, 0, 3]));
    drop(mock);
}

#[test]
fn an_error_of_the_inner_service_leaves() {
    let limit = Arc::new(Inflight::fixed(10));
    let layer = InflightLayer::builder(limit.clone()).until(Until::Body).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    upstream.says(Said::Error);
    assert_eq!(done(poll(&mut call(&mut service, root()))).unwrap_err(), Gone);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [0, 1, 0, 0]));
    // It is gone at once, and after a wait: its error is that of the response.
    upstream.state.is_gone.store(1, Relaxed);
    for busy in [0, 2] {
        upstream.state.busy.store(busy, Relaxed);
        let mut future = call(&mut service, root());
        if busy > 0 {
            assert!(poll(&mut future).is_pending());
        }
        assert_eq!(done(poll(&mut future)).unwrap_err(), Gone);
        assert_eq!(limit.in_flight(), 0);
    }
    assert_eq!((outcomes(&layer), upstream.calls()), ([0, 3, 0, 0], 1));
}

#[test]
fn a_panic_leaves() {
    let limit = Arc::new(Inflight::fixed(10));
    let upstream = Upstream::default();
    let classify = |_: tollgate_http::ResponseHead<'_>| -> Outcome { panic!("the closure panics") };
    let layers =
        [InflightLayer::new(limit.clone()), InflightLayer::builder(limit.clone()).classify(classify).build()];
    let says = [vec![Said::PanicAtOnce, Said::Panic], vec![Said::Status(200)]];
    for (layer, says) in layers.into_iter().zip(says) {
        let panics = says.len() as u64;
        for said in says {
            upstream.says(said);
            let mut service = layer.layer(upstream.clone());
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let mut future = call(&mut service, root());
                assert_eq!(limit.in_flight(), 1);
                let _ = poll(&mut future);
            }));
            let text = *caught.unwrap_err().downcast::<&str>().unwrap();
            assert!(text.contains("panics"), "{text}");
            assert_eq!(limit.in_flight(), 0);
        }
        let stats = layer.stats();
        assert_eq!((stats.admitted, stats.answered + stats.overloaded + stats.failed), (panics, 0));
    }
}
