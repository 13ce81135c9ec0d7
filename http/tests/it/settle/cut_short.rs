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
