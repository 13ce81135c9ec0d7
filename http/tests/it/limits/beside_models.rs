// promise: layer
//! Layers of random limits, beside a model of each limit.

use super::*;

/// The tokens of one limit, in tenths: one tenth each 10 ms.
struct Model {
    limiter: RateLimiter<u64, Quota, Fixed>,
    /// The first of its keys.
    first: u64,
    burst: u64,
    tenths: [u64; KEYS],
    /// Whether refusals of a key are enforced.
    enforced: [bool; KEYS],
}

const KEYS: usize = 3;
const HEADERS: [&str; 3] = ["k0", "k1", "k2"];
const UNLESS: [&str; 3] = ["unless0", "unless1", "unless2"];

impl Model {
    fn new(burst: u64, percent: u8, first: u64, clock: &Clock) -> Model {
        let builder = RateLimiter::builder(Quota::per_second(10).burst(burst)).hasher(Fixed::default());
        let limiter = builder.clock(clock.clone()).build();
        // A cost over the burst is refused if refusals are enforced, and takes no token.
        let probe = LimitBy::new(limiter.clone()).key(by("k")).enforce(percent);
        let probe = LayerBuilder::from(probe).cost(|_| 1_000).build();
        let mut probe = probe.layer(Upstream::default());
        let mut enforces = |key: usize| {
            let key = (first + key as u64).to_string();
            status(&call(&mut probe, asks("/", &[("k", &key)]))) == 429
        };
        let enforced = std::array::from_fn(&mut enforces);
        assert!(percent > 0 || enforced == [false; KEYS]);
        assert!(percent < 100 || enforced == [true; KEYS]);
        Model { limiter, first, burst, tenths: [10 * burst; KEYS], enforced }
    }

    fn pass(&mut self, tenths: u64) {
        self.tenths = self.tenths.map(|before| (before + tenths).min(10 * self.burst));
    }
}

/// Counts of the outcomes of a random run.
#[derive(Debug, Default)]
struct Seen {
    refused: u32,
    over: u32,
    several_over: u32,
    granted: u32,
    skipped: u32,
    silent: u32,
}

/// Runs random requests on a layer of random limits, each beside its model.
fn run_beside_models(random: &mut Random, steps: u64, seen: &mut Seen) {
    let (clock, mock) = Clock::mock();
    let count = 1 + random.below(3) as usize;
    let percents: Vec<u8> = (0..count).map(|_| [0, 0, 40, 100, 100][random.below(5) as usize]).collect();
    let mut models: Vec<_> = percents
        .iter()
        .map(|percent| Model::new(2 + random.below(5), *percent, random.below(1 << 40), &clock))
        .collect();
    let mut limits = models.iter().zip(&percents).enumerate().map(|(i, (model, percent))| {
        let limit = LimitBy::new(model.limiter.clone())
            .key(by(HEADERS[i]))
            .on_missing_key(OnMissingKey::Allow)
            .name(&i.to_string())
            .unwrap();
        let limit = limit.when(move |head| !head.headers.contains_key(UNLESS[i]));
        if *percent == 0 { limit.enforce(0) } else { limit.enforce(*percent) }
    });
    let decided = Arc::new(Mutex::new(None));
    let note = decided.clone();
    let first = LayerBuilder::from(limits.next().unwrap());
    let layer = limits
        .fold(first, LayerBuilder::and)
        .cost(|head| head.headers["cost"].to_str().unwrap().parse().unwrap())
        .on_decision(move |_, decision| *note.lock().unwrap() = Some(decision.result().is_ok()))
        .build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let mut stats = layer.stats();
    for step in 1..=steps {
        let cost = 1 + random.below(3);
        let mut request = asks("/", &[("cost", &cost.to_string())]);
        let mut keys = [None; 3];
        for (i, key) in keys.iter_mut().enumerate().take(count) {
            let (chosen, how) = (random.below(KEYS as u64) as usize, random.below(8));
            if how > 0 {
                request.headers_mut().insert(HEADERS[i], (models[i].first + chosen as u64).into());
            }
            if how == 1 {
                request.headers_mut().insert(UNLESS[i], 1.into());
            }
            *key = (how > 1).then_some(chosen);
        }
        // The reference: an enforced limit refuses alone, all that grant take, one in shadow mode
        // takes last.
        let applies = |i: usize| keys[i].map(|key| (key, models[i].enforced[key]));
        let is_over = |i: usize| keys[i].is_some_and(|key| models[i].tenths[key] < 10 * cost);
        let enforced: Vec<usize> =
            (0..count).filter(|i| applies(*i).is_some_and(|(_, enforced)| enforced)).collect();
        let silent: Vec<usize> =
            (0..count).filter(|i| applies(*i).is_some_and(|(_, enforced)| !enforced)).collect();
        let refuses: Vec<usize> = enforced.iter().copied().filter(|i| is_over(*i)).collect();
        let over: Vec<usize> = silent.iter().copied().filter(|i| is_over(*i)).collect();
        let takes: Vec<usize> = match refuses[..] {
            [] => (0..count).filter(|i| keys[*i].is_some() && !is_over(*i)).collect(),
            _ => Vec::new(),
        };
        for i in takes {
            models[i].tenths[keys[i].unwrap()] -= 10 * cost;
        }

        let response = call(&mut service, request);
        let about = format!("step {step}, {percents:?}, {keys:?}, refuses {refuses:?}, over {over:?}");
        assert_eq!(status(&response) == 429, !refuses.is_empty(), "{about}");
        for model in &models {
            for key in 0..KEYS {
                let left = model.limiter.peek(&(model.first + key as u64)).remaining();
                assert_eq!(left, model.tenths[key] / 10, "{about}, key {key}");
            }
        }
        let names: Vec<_> = enforced.iter().map(usize::to_string).collect();
        assert_eq!(named(&response), names, "{about}");
        assert_eq!(response.headers().contains_key("ratelimit"), !enforced.is_empty(), "{about}");
        let is_ok =
            (!enforced.is_empty() || !silent.is_empty()).then_some(refuses.is_empty() && over.is_empty());
        assert_eq!(decided.lock().unwrap().take(), is_ok, "{about}");
        if refuses.is_empty() {
            let extensions = upstream.last().extensions;
            assert_eq!(extensions.get().map(|said: &Decision| said.result().is_ok()), is_ok, "{about}");
        }
        // One counter has one more: that of a limit with this outcome.
        let now = layer.stats();
        assert_eq!((requests(&now), upstream.calls() as u64), (step, step - now.refused), "{about}");
        let more = |of: fn(&tollgate_http::LimitStats) -> u64| -> Vec<usize> {
            (0..count).filter(|i| of(&now.limits[*i]) > of(&stats.limits[*i])).collect()
        };
        let (granted, refused, shadow) =
            (more(|limit| limit.granted), more(|limit| limit.refused), more(|limit| limit.shadow_refused));
        match (&granted[..], &refused[..], &shadow[..]) {
            ([at], [], []) => {
                assert_eq!(is_ok, Some(true), "{about}");
                assert!(if enforced.is_empty() { &silent } else { &enforced }.contains(at), "{about} {at}");
                seen.granted += 1;
                seen.silent += u32::from(enforced.is_empty());
            }
            ([], [at], []) => {
                assert!(refuses.contains(at), "{about} {at}");
                seen.refused += 1;
            }
            ([], [], [at]) => {
                assert!(refuses.is_empty() && over.contains(at), "{about} {at}");
                seen.over += 1;
                seen.several_over += u32::from(over.len() > 1);
            }
            ([], [], []) => {
                assert_eq!((is_ok, now.skipped), (None, stats.skipped + 1), "{about}");
                seen.skipped += 1;
            }
            all => panic!("{about}: {all:?}"),
        }
        stats = now;
        let pause = random.below(8);
        mock.advance(Duration::from_millis(10 * pause));
        models.iter_mut().for_each(|model| model.pass(pause));
    }
}

#[test]
fn a_request_is_refused_exactly_if_an_enforced_limit_refuses() {
    let (mut random, mut seen) = (Random(22), Seen::default());
    for _ in 0..80 {
        run_beside_models(&mut random, 100, &mut seen);
    }
    let Seen { refused, over, several_over, granted, skipped, silent } = seen;
    let rare = [refused, over, several_over, granted, skipped, silent];
    assert!(rare.iter().all(|count| *count > 100), "{seen:?}");
    assert_eq!(refused + over + granted + skipped, 8_000);
}
