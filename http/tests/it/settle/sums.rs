// promise: layer
//! The sum of all costs.

use super::*;

#[test]
fn tokens_left_and_costs_are_all_the_tokens() {
    let kind = |answer: ResponseHead<'_>| {
        let kind = answer.headers.get("kind")?.to_str().ok()?;
        KINDS.into_iter().find(|known| *known == kind)
    };
    let requests = size(2_000, 10_000);
    // More than all requests cost, and less: then a part is owed.
    for capacity in [1 << 30, 800 * requests] {
        let quota = Quota::per_second(1_000).burst(capacity);
        let mut random = Random(capacity);
        let mut scene = Scene::new(quota, move |answer| match kind(answer) {
            Some("bytes") => Cost::bytes(),
            Some("trailer") => Cost::trailer(COST),
            Some("body") => Cost::of_body(8, |last| last.first().map(|first| u64::from(*first) * 10)),
            Some("header") => of_header(answer),
            _ => Cost::ESTIMATE,
        });
        let (mut costs, mut owing) = (0, 0);
        // Bodies that are read later, in any order.
        let mut open: Vec<(ResponseBody<Frames>, Sum)> = Vec::new();
        for _ in 0..requests {
            let sum = Sum::random(&mut random);
            scene.estimate = Estimate(sum.estimate);
            let response = ask(&mut scene.service, scene.estimate, Ok(sum.response())).unwrap();
            if response.status() == 429 {
                owing += 1;
            } else {
                open.push((response.into_body(), sum));
            }
            while open.len() > random.below(20) as usize {
                let (mut body, mut sum) = open.swap_remove(random.below(open.len() as u64) as usize);
                let pulled = random.below(sum.frames.len() as u64 + 2) as usize;
                (0..pulled).for_each(|_| drop(pull(&mut body)));
                sum.cut_after(pulled);
                drop(body);
                costs += sum.cost();
                let taken: u64 = open.iter().map(|(_, sum)| sum.at_once()).sum();
                let left = capacity.saturating_sub(costs + taken);
                assert_eq!(scene.left(), left);
            }
        }
        for (body, mut sum) in open {
            drop(body);
            sum.cut_after(0);
            costs += sum.cost();
        }
        assert_eq!(scene.left(), capacity.saturating_sub(costs));
        assert_eq!(owing > 0, capacity < costs, "{costs}");
        if capacity < costs {
            assert!(owing > requests / 10 && costs < 2 * capacity, "{owing} {costs}");
            scene.is_granted_in((costs - capacity + 1) * MILLISECOND);
        }
    }
}

const KINDS: [&str; 5] = ["bytes", "trailer", "body", "header", "estimate"];

/// A random response, and the sum of its costs.
struct Sum {
    kind: &'static str,
    estimate: u64,
    header: u64,
    frames: Vec<Result<Vec<u8>, u64>>,
    is_cut: bool,
}

impl Sum {
    /// Leaves the frames that were pulled. The body is cut unless its end or its trailers were.
    fn cut_after(&mut self, pulled: usize) {
        self.is_cut = pulled <= self.frames.len();
        self.frames.truncate(pulled);
        self.is_cut &= self.frames.last().is_none_or(Result::is_ok);
    }

    fn random(random: &mut Random) -> Sum {
        let mut frames = Vec::new();
        for _ in 0..random.below(5) {
            frames.push(Ok((0..random.below(2_000)).map(|_| random.below(256) as u8).collect()));
        }
        if random.below(2) == 0 {
            frames.push(Err(random.below(4_000)));
        }
        Sum {
            kind: KINDS[random.below(KINDS.len() as u64) as usize],
            estimate: random.below(3_000),
            header: random.below(4_000),
            frames,
            is_cut: false,
        }
    }

    fn response(&self) -> Response<Frames> {
        let steps = self.frames.iter().map(|frame| match frame {
            Ok(bytes) => Step::Data(Bytes::from(bytes.clone())),
            Err(trailer) => Step::Trailers(with_values(&[&trailer.to_string()])),
        });
        let mut response = brings(steps);
        response.headers_mut().insert("kind", HeaderValue::from_static(self.kind));
        response.headers_mut().insert(COST, self.header.into());
        response
    }

    /// Returns the cost of a body that is not read yet.
    fn at_once(&self) -> u64 {
        if self.kind == "header" { self.header } else { self.estimate }
    }

    /// Returns the cost of the frames, all of which have passed.
    fn cost(&self) -> u64 {
        let bytes: Vec<u8> = self.frames.iter().flatten().flatten().copied().collect();
        let all = bytes.len() as u64;
        let last = &bytes[bytes.len().saturating_sub(8)..];
        match self.kind {
            "bytes" => all.max(1),
            "trailer" => {
                self.frames.iter().find_map(|frame| frame.as_ref().err().copied()).unwrap_or(self.estimate)
            }
            "body" => {
                let found = last.first().map_or(self.estimate, |first| u64::from(*first) * 10);
                if self.is_cut { found.max(self.estimate) } else { found }
            }
            _ => self.at_once(),
        }
    }
}
