// promise: layer
//! Costs that a body tells: by its bytes, in its trailer, in its text.

use super::*;

#[test]
fn each_byte_costs_a_token_as_its_frame_passes() {
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    let response = scene.ask(brings([50, 50, 0, 1, 899, 500].map(data)));
    assert_eq!((scene.left(), reported(&response)), (900, 900));
    let mut body = response.into_body();
    for left in [900, 900, 900, 899, 0, 0] {
        assert!(pull(&mut body).unwrap().is_ok());
        assert_eq!(scene.left(), left);
    }
    // The last frame is owed before the body ends.
    scene.is_refused(501 * MILLISECOND);
    assert!(pull(&mut body).is_none());
    drop(body);
    scene.is_granted_in(501 * MILLISECOND);
}

#[test]
fn bytes_below_the_estimate_are_refunded_when_the_body_ends() {
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    let mut body = scene.body([data(10), Step::Trailers(with_values(&["500"])), data(20)]);
    assert_eq!(read(&mut body).0.len(), 30);
    assert_eq!(scene.left(), 900);
    drop(body);
    assert_eq!(scene.left(), 970);
}

#[test]
fn a_response_without_bytes_costs_a_token_or_the_floor_that_is_set() {
    let status = |status: u16| {
        let mut response = brings([]);
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    };
    for (cost, floor) in [
        (Cost::bytes(), 1),
        (Cost::bytes().at_least(40), 40),
        // Without one, these cost nothing, as before.
        (Cost::bytes().at_least(0), 0),
    ] {
        for estimate in [0, 1, 100] {
            // To HEAD, a 304, a body of no bytes, and one that the client does not read.
            for response in [status(200), status(304), brings([data(0), data(0)]), brings([data(500)])] {
                let is_unread = !response.body().0.is_empty();
                let cost = cost.clone();
                let mut scene = Scene::new(BYTES, move |_| cost.clone());
                scene.estimate = Estimate(estimate);
                let mut body = scene.ask(response).into_body();
                while !is_unread && pull(&mut body).is_some() {}
                drop(body);
                assert_eq!(scene.left(), 1_000 - floor, "{floor} {estimate}");
            }
        }
    }
}

#[test]
fn a_floor_is_the_least_of_any_cost() {
    let of = |estimate, cost: Cost, brought: Response<Frames>| {
        let mut scene = Scene::new(BYTES, move |_| cost.clone());
        scene.estimate = Estimate(estimate);
        read(&mut scene.ask(brought).into_body());
        1_000 - scene.left()
    };
    for (estimate, floor, expected) in [(100, 30, 100), (100, 300, 300), (0, 1, 1)] {
        assert_eq!(of(estimate, Cost::ESTIMATE.at_least(floor), brings([])), expected);
        assert_eq!(of(estimate, Cost::trailer(COST).at_least(floor), brings([])), expected);
        assert_eq!(of(estimate, Cost::of_body(9, |_| None).at_least(floor), brings([])), expected);
        assert_eq!(of(estimate, Cost::tokens(5).at_least(floor), brings([])), floor.max(5));
        assert_eq!(of(estimate, Cost::of_body(9, |_| Some(5)).at_least(floor), brings([])), floor.max(5));
    }
    // These have no floor unless it is set: the inner service tells the number.
    assert_eq!(of(100, Cost::tokens(0), brings([])), 0);
    assert_eq!(of(100, Cost::of_body(9, |_| Some(0)), brings([])), 0);
}

#[test]
fn bytes_cost_their_number_over_any_estimate() {
    for (frames, tokens) in [
        (&[][..], 1),
        (&[0], 1),
        (&[1], 1),
        (&[99], 99),
        (&[100], 100),
        (&[101], 101),
        (&[50, 50], 100),
        (&[50, 51], 101),
        (&[1; 101], 101),
        (&[200, 0, 1], 201),
        (&[700], 700),
    ] {
        let mut scene = Scene::new(BYTES, |_| Cost::bytes());
        for estimate in [0, 1, 100] {
            scene.limiter.remove(&KEY);
            scene.estimate = Estimate(estimate);
            let mut body = scene.body(frames.iter().copied().map(data));
            let mut bytes = 0;
            while let Some(frame) = pull(&mut body) {
                bytes += frame.unwrap().into_data().unwrap().len() as u64;
                let so_far = bytes.max(estimate);
                assert_eq!(scene.left(), 1_000 - so_far, "{frames:?} {estimate}");
            }
            drop(body);
            assert_eq!(scene.left(), 1_000 - tokens, "{frames:?} {estimate}");
        }
    }
}

#[test]
fn a_cut_body_costs_the_bytes_that_passed() {
    let steps = || [data(300), data(5), Step::Fail, data(600)];
    // Dropped after each number of frames.
    for (frames, cost) in [(0, 1), (1, 300), (2, 305)] {
        let mut scene = Scene::new(BYTES, |_| Cost::bytes());
        let mut body = scene.body(steps());
        (0..frames).for_each(|_| assert!(pull(&mut body).unwrap().is_ok()));
        drop(body);
        assert_eq!(scene.left(), 1_000 - cost, "{frames}");
    }
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    let mut body = scene.body(steps());
    let passed: Vec<_> = (0..3).map(|_| pull(&mut body).unwrap().is_ok()).collect();
    assert_eq!((passed, scene.left()), (vec![true, true, false], 695));
    drop(body);
    assert_eq!(scene.left(), 695);
}

#[test]
fn one_number_in_a_trailer_is_the_cost_when_the_body_ends() {
    for (values, cost) in [
        (&["250"][..], 250),
        (&["0"], 0),
        (&[" 7 "], 7),
        // The estimate, for want of one number.
        (&[], 100),
        (&["3", "4"], 100),
        (&["3", "3"], 100),
        (&["x"], 100),
        (&[""], 100),
        (&["-1"], 100),
        (&["1.5"], 100),
        (&["18446744073709551616"], 100),
    ] {
        let mut scene = Scene::new(BYTES, |_| Cost::trailer(COST));
        let mut trailers = with_values(values);
        trailers.insert("x-other", 9.into());
        let mut body = scene.body([data(400), Step::Trailers(trailers.clone())]);
        let (bytes, seen) = read(&mut body);
        assert_eq!((bytes.len(), seen), (400, Some(trailers)), "the frames pass unchanged");
        assert_eq!(scene.left(), 900, "{values:?}");
        drop(body);
        assert_eq!(scene.left(), 1_000 - cost, "{values:?}");
    }
}

#[test]
fn a_body_that_is_cut_before_its_trailer_costs_the_estimate() {
    for pulled in 0..3 {
        let mut scene = Scene::new(BYTES, |_| Cost::trailer(COST));
        let mut body = scene.body([data(400), data(400), Step::Trailers(with_values(&["250"]))]);
        (0..pulled).for_each(|_| assert!(pull(&mut body).unwrap().is_ok()));
        drop(body);
        assert_eq!(scene.left(), 900, "{pulled}");
    }
    let mut scene = Scene::new(BYTES, |_| Cost::trailer(COST));
    drop(scene.body([]));
    assert_eq!(scene.left(), 900);
}

/// The last number after `usage:` of a stream that tells one in each chunk.
fn last_usage(body: &[u8]) -> Option<u64> {
    let text = str::from_utf8(body).ok()?;
    text.rsplit_once("usage:")?.1.split_once(';')?.0.parse().ok()
}

/// A client that goes away before the end of the answer has no refund by the part that passed. A
/// server that knows the length does not read the end.
#[test]
fn a_body_that_is_cut_costs_its_estimate_at_least() {
    let chunks = ["usage:1;", "usage:60;", "usage:350;"].map(|text| Step::Data(Bytes::from(text)));
    let failing = || chunks[..2].iter().cloned().chain([Step::Fail]);
    let whole = |length: Option<u64>| {
        let mut response = brings(chunks.clone());
        response.headers_mut().extend(length.map(|length| (CONTENT_LENGTH, length.into())));
        response
    };
    let by_body = |_: ResponseHead<'_>| Cost::of_body(64, last_usage);
    for (response, pulled, estimate, cost) in [
        (whole(None), 0, 100, 100),
        (whole(None), 1, 100, 100),
        (whole(None), 2, 100, 100),
        (whole(None), 3, 100, 350),
        (whole(None), 4, 100, 350),
        // The end of the body was read, or not.
        (whole(None), 3, 500, 500),
        (whole(None), 4, 500, 350),
        (whole(Some(27)), 3, 500, 350),
        (whole(Some(28)), 3, 500, 500),
        (whole(Some(27)), 2, 500, 500),
        // Without an estimate it costs the known part.
        (whole(None), 2, 0, 60),
        (whole(None), 0, 0, 0),
        (brings(failing()), 3, 100, 100),
        (brings(failing()), 3, 10, 60),
    ] {
        let mut scene = Scene::new(BYTES, by_body);
        scene.estimate = Estimate(estimate);
        let mut body = scene.ask(response).into_body();
        (0..pulled).for_each(|_| drop(pull(&mut body)));
        drop(body);
        assert_eq!(1_000 - scene.left(), cost, "{pulled} of {estimate}");
        let stats = scene.layer.stats();
        assert_eq!((stats.estimated, stats.limits[0].estimated), (u64::from(pulled == 0), stats.estimated));
    }
}

/// Returns the tokens of a model.
fn tokens_of_json(body: &[u8]) -> Option<u64> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    answer["usage"]["total_tokens"].as_u64()
}

#[test]
fn a_number_in_the_body_is_the_cost_when_it_ends() {
    let json = r#"{"choices":["hello"],"usage":{"total_tokens":250}}"#;
    let no_number = r#"{"usage":{"total_tokens":"many"}}"#;
    for (text, keep, cost) in [
        (json, 1_000, 250),
        (json, json.len(), 250),
        (json, usize::MAX, 250),
        // The last bytes alone are no JSON.
        (json, json.len() - 1, 100),
        (json, 0, 100),
        (no_number, 1_000, 100),
        (r#"{"usage":{"total_tokens":"400"}}"#, 1_000, 100),
        (r#"{"usage":{"total_tokens":-5}}"#, 1_000, 100),
        (r#"{"usage":{"total_tokens":1e9}}"#, 1_000, 100),
        (r#"{"choices":["hello"]}"#, 1_000, 100),
        // The begin of gzip.
        ("\u{1f}\u{8b}", 1_000, 100),
        ("no json", 1_000, 100),
        ("", 1_000, 100),
    ] {
        for size in [1, 7, 1_000] {
            let mut scene = Scene::new(BYTES, move |_| Cost::of_body(keep, tokens_of_json));
            let frames = text.as_bytes().chunks(size).map(|bytes| Step::Data(Bytes::copy_from_slice(bytes)));
            let trailers = with_values(&["9"]);
            let mut body = scene.body(frames.chain([Step::Trailers(trailers.clone())]));
            assert_eq!(read(&mut body), (text.as_bytes().to_vec(), Some(trailers)));
            assert_eq!(scene.left(), 900);
            drop(body);
            assert_eq!(scene.left(), 1_000 - cost, "{text} {keep} {size}");
            // The estimate stays, and the operator sees it.
            assert_eq!(scene.layer.stats().estimated, u64::from(cost == 100), "{text} {keep} {size}");
        }
    }
}

#[test]
fn the_last_bytes_that_passed_are_shown_once() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut random = Random(1);
    for round in 0..500 {
        let keep = random.below(50) as usize;
        let whole: Vec<u8> = (0..random.below(200)).map(|_| random.below(256) as u8).collect();
        let mut frames = Vec::new();
        let mut rest = &whole[..];
        while !rest.is_empty() {
            let (frame, after) = rest.split_at((random.below(40) as usize).min(rest.len()));
            frames.push(Step::Data(Bytes::copy_from_slice(frame)));
            rest = after;
        }
        let pulled = random.below(frames.len() as u64 + 2) as usize;
        let least = if pulled > frames.len() { 0 } else { ESTIMATE.0 };
        let mut scene = Scene::new(BYTES, {
            let seen = seen.clone();
            move |_| {
                let seen = seen.clone();
                Cost::of_body(keep, move |last| {
                    seen.lock().unwrap().push(last.to_vec());
                    Some(last.len() as u64)
                })
            }
        });
        let mut body = scene.body(frames);
        let mut passed = Vec::new();
        for _ in 0..pulled {
            let frame = pull(&mut body);
            passed.extend(frame.into_iter().flat_map(|frame| frame.unwrap().into_data().unwrap()));
        }
        assert!(seen.lock().unwrap().is_empty());
        drop(body);
        assert_eq!(passed, whole[..passed.len()]);
        let last = passed.split_off(passed.len().saturating_sub(keep));
        assert_eq!(scene.left(), 1_000 - least.max(last.len() as u64));
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [last], "{round}");
    }
}

#[test]
fn a_panic_beside_a_body_costs_the_bytes_that_passed_or_the_estimate() {
    let costs = [|| Cost::bytes(), || Cost::of_body(9, |_| panic!("it is not called"))];
    for (cost, left) in costs.into_iter().zip([700, 900]) {
        let mut scene = Scene::new(BYTES, move |_| cost());
        let mut body = scene.body([data(300), data(300)]);
        let thread = thread::spawn(move || {
            assert!(pull(&mut body).unwrap().is_ok());
            panic!("a task fails");
        });
        assert!(thread.join().is_err());
        assert_eq!(scene.left(), left);
    }
}
