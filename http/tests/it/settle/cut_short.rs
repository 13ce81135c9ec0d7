// promise: layer
//! Requests that are cut short.

use super::*;

/// A service whose response never comes.
#[derive(Clone)]
struct Silent;

impl Service<Request<Brought>> for Silent {
    type Response = Response<Frames>;
    type Error = Failed;
    type Future = std::future::Pending<Brought>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Brought>) -> Self::Future {
        std::future::pending()
    }
}

#[test]
fn a_request_without_a_response_costs_the_estimate() {
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    assert_eq!(ask(&mut scene.service, ESTIMATE, Err(Failed)).unwrap_err(), Failed);
    assert_eq!(scene.left(), 900);
    let mut silent = scene.layer.layer(Silent);
    for (polls, left) in [(0, 800), (1, 700), (5, 600)] {
        let mut response = Box::pin(silent.call(request(ESTIMATE, Err(Failed))));
        for _ in 0..polls {
            assert!(response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(response);
        assert_eq!(scene.left(), left);
    }
}

/// Estimates of a tenth of the budget, of requests that end in each way.
#[test]
fn an_estimate_comes_back_by_the_status_alone_and_once() {
    let status = |status: u16| Ok(Response::builder().status(status).body(Frames::default()).unwrap());
    for (brought, cost, refunded) in [
        (Err(Failed), 1_000, 0),
        (status(500), 0, 1),
        (status(503), 0, 1),
        (status(499), 1_000, 0),
        (status(200), 7, 0),
    ] {
        for requests in [1, 10] {
            let mut scene = Scene::with(Quota::per_minute(10_000), |layer| {
                layer
                    .refund_on(|status| status.is_server_error())
                    .settle_on(|answer| if answer.status == 499 { Cost::ESTIMATE } else { Cost::tokens(7) })
            });
            for _ in 0..requests {
                let brought = brought.as_ref().map(|answer| {
                    Response::builder().status(answer.status()).body(Frames::default()).unwrap()
                });
                drop(ask(&mut scene.service, Estimate(1_000), brought.map_err(|_| Failed)));
            }
            assert_eq!(10_000 - scene.left(), requests * cost);
            assert_eq!(scene.layer.stats().refunded, requests * refunded);
        }
    }
}

#[test]
fn a_panic_of_the_service_costs_the_estimate() {
    #[derive(Clone)]
    struct Panics;
    impl Service<Request<Brought>> for Panics {
        type Response = Response<Frames>;
        type Error = Failed;
        type Future = Ready<Brought>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Brought>) -> Self::Future {
            panic!("of the service")
        }
    }
    let scene = Scene::new(BYTES, |_| Cost::of_body(64, |_| Some(1)));
    let mut service = scene.layer.layer(Panics);
    let thread = thread::spawn(move || drop(service.call(request(ESTIMATE, Err(Failed)))));
    assert!(thread.join().is_err());
    assert_eq!(scene.left(), 900);
}

#[test]
fn a_body_that_is_taken_out_leaves_the_estimate_or_the_bytes_that_passed() {
    for (frames, cost) in [(0, 100), (1, 100), (2, 500)] {
        let mut scene = Scene::new(BYTES, |_| Cost::bytes());
        let mut body = scene.body([data(50), data(450), data(450)]);
        (0..frames).for_each(|_| assert!(pull(&mut body).unwrap().is_ok()));
        let inner = body.into_inner_or_else(|_| panic!("it is no refusal"));
        assert_eq!((inner.0.len(), scene.left()), (3 - frames, 1_000 - cost));
        drop(inner);
        assert_eq!(scene.left(), 1_000 - cost);
    }
    let mut scene = Scene::new(BYTES, |_| Cost::of_body(9, |_| panic!("it is not called")));
    drop(scene.body([data(50)]).into_inner_or_else(|_| panic!("it is no refusal")));
    assert_eq!(scene.left(), 900);
}

#[test]
fn a_clone_of_a_body_costs_nothing() {
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    let mut body = scene.body([data(300), data(400)]);
    assert!(pull(&mut body).unwrap().is_ok());
    let mut clone = body.clone();
    assert_eq!((read(&mut clone).0.len(), scene.left()), (400, 700));
    drop(clone);
    assert_eq!(scene.left(), 700);
    read(&mut body);
    drop(body);
    assert_eq!(scene.left(), 300);
}
