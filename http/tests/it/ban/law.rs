// promise: layer
//! Bans by their law, beside a model.

use super::*;

/// A rule of bans: the refusals, their window, and the duration.
#[derive(Clone, Copy, Debug)]
struct Rule {
    refusals: u64,
    window: Duration,
    duration: Duration,
}

impl Rule {
    /// Returns the window of the refusals before the last, as the layer chooses it.
    fn sliding(self) -> Option<Window> {
        let before = self.refusals.checked_sub(1).filter(|before| *before > 0)?;
        let window = Window::per(before, self.window);
        let by = |parts| window.granularity(self.window / parts);
        Some(window.try_sliding().or_else(|_| by(2)).or_else(|_| by(1)).unwrap())
    }
}

/// A key of the reference.
#[derive(Default)]
struct Listed {
    /// Times of the refusals that count.
    refusals: Vec<u64>,
    banned_until: u64,
}

/// The law of bans, on lists of times in nanoseconds.
struct Law {
    rule: Rule,
    sub_window: u64,
    keys: HashMap<u8, Listed>,
}

/// The law's word on a refusal by the limit.
#[derive(Debug, PartialEq, Eq)]
enum Begins {
    Must,
    /// The time of the first refusal is between the window, and the window and a sub-window.
    May,
    MustNot,
}

impl Law {
    fn new(rule: Rule) -> Law {
        let sub_window = rule.sliding().and_then(|window| window.sub_window()).unwrap_or_default();
        Law { rule, sub_window: sub_window.as_nanos() as u64, keys: HashMap::new() }
    }

    /// Returns the rest of a ban.
    fn banned(&mut self, key: u8, now: u64) -> Option<u64> {
        let until = self.keys.entry(key).or_default().banned_until;
        until.checked_sub(now).filter(|rest| *rest > 0)
    }

    fn begins(&mut self, key: u8, now: u64) -> Begins {
        let window = self.rule.window.as_nanos() as u64;
        let (before, late) = (self.rule.refusals as usize - 1, window + self.sub_window);
        let refusals = &self.keys.entry(key).or_default().refusals;
        let within = |span: u64| refusals.iter().filter(|time| now - **time < span).count();
        match (within(window) >= before, within(late) >= before) {
            (true, _) => Begins::Must,
            (false, true) => Begins::May,
            (false, false) => Begins::MustNot,
        }
    }

    /// Notes a refusal, and the duration of the ban that it begins.
    fn note(&mut self, key: u8, now: u64, ban: Option<Duration>) {
        let listed = self.keys.entry(key).or_default();
        match ban {
            Some(duration) => listed.banned_until = now + duration.as_nanos() as u64,
            None => listed.refusals.push(now),
        }
    }
}

/// Runs a random sequence of requests through a layer and through the law beside it.
fn walk(rule: Rule, quota: Quota, steps: u64, seed: u64) -> [u64; 6] {
    let (clock, mock) = Clock::mock();
    let buckets = || RateLimiter::<IpAddr>::builder(quota).clock(clock.clone()).build();
    let windows = |window| RateLimiter::<u8, _>::builder(window).clock(clock.clone()).build();
    let (beside, strikes) = (buckets(), rule.sliding().map(windows));
    let (last, hook) = last();
    let layer = RateLimitLayer::builder(buckets())
        .key(ClientIp::peer())
        .ban_after(rule.refusals, rule.window)
        .for_(rule.duration)
        .unwrap()
        .on_decision(hook)
        .reject_with(reject)
        .build();
    let mut service = layer.layer(Echo::default());
    let (mut random, mut law, mut now) = (Random(seed), Law::new(rule), 0_u64);
    let [mut granted, mut refused, mut banned, mut begun, mut may, mut ended] = [0; 6];
    let mut ends: Vec<u64> = Vec::new();
    let keys = if rule.refusals > 100 { 1 } else { 4 };
    for step in 0..steps {
        let key = random.below(keys) as u8;
        let peer = IpAddr::from([192, 0, 2, key]);
        // A short time, a long one, or the time to a nanosecond before, at or after the end of a
        // ban or of a refusal's window.
        let until = law.banned(key, now).map(|rest| now + rest);
        let edge = match (until, random.below(16), random.below(1 + rule.refusals / 4)) {
            (Some(until), 0, _) => until,
            (None, 0, 0) if !ends.is_empty() => ends[random.below(ends.len() as u64) as usize],
            _ => 0,
        };
        let by = match (edge, random.below(64.max(8 * rule.refusals))) {
            (edge, _) if edge > now => (edge - now) + random.below(3) - 1,
            (_, 0) => random.below(2 * (rule.window.max(rule.duration).as_nanos() as u64)),
            (_, 1..=8) => random.below(rule.window.as_nanos() as u64 / rule.refusals),
            (_, 9..=16) => random.below(rule.duration.as_nanos() as u64 / 8),
            _ => random.below(1_000),
        };
        mock.advance(Duration::from_nanos(by));
        now += by;
        ends.retain(|end| *end + 1 >= now);
        let text = format!("{rule:?}, step {step} at {now}, key {key}");
        let rest = law.banned(key, now);
        assert_eq!(layer.banned(&peer), rest.map(Duration::from_nanos), "{text}");
        let response = call(&mut service, from(&peer.to_string(), "/"));
        let result = last.lock().unwrap().take().expect("the layer decided");
        let expected = match rest {
            Some(rest) => {
                banned += 1;
                Err((Some(Duration::from_nanos(rest)), true))
            }
            None => match beside.try_acquire(&peer) {
                Ok(of) => {
                    granted += 1;
                    Ok(of.remaining())
                }
                Err(denied) => {
                    refused += 1;
                    let by_law = law.begins(key, now);
                    let begins = strikes.as_ref().is_none_or(|strikes| strikes.try_acquire(&key).is_err());
                    match by_law {
                        Begins::Must => assert!(begins, "{text}: a ban begins"),
                        Begins::MustNot => assert!(!begins, "{text}: no ban begins"),
                        Begins::May => may += 1,
                    }
                    let told = result.err().and_then(|denied| denied.retry_after());
                    let ban = begins.then(|| assert_whole(told, rule.duration, &text));
                    law.note(key, now, ban);
                    begun += u64::from(begins);
                    ends.push(now + ban.unwrap_or(rule.window).as_nanos() as u64);
                    Err((ban.or(denied.retry_after()), begins))
                }
            },
        };
        match (expected, result) {
            (Ok(remaining), Ok(granted)) => {
                assert_eq!((status(&response), granted.remaining()), (200, remaining), "{text}");
                ended += u64::from(law.keys[&key].banned_until > 0);
            }
            (Err((wait, by_ban)), Err(denied)) => {
                assert_eq!((status(&response), denied.retry_after()), (429, wait), "{text}");
                assert_eq!(is_ban(&response), Some(by_ban), "{text}");
                let wait = wait.expect("a wait").max(Duration::from_nanos(1));
                assert_eq!(says(&response, "retry-after"), Some(&*seconds(wait).to_string()), "{text}");
            }
            (expected, result) => panic!("{text}: {result:?} instead of {expected:?}"),
        }
        let stats = layer.stats();
        assert_eq!((stats.granted, stats.refused, stats.banned), (granted, refused, banned), "{text}");
        assert_eq!((stats.bans, stats.unbanned_full, requests(&stats)), (begun, 0, step + 1), "{text}");
    }
    [granted, refused, banned, begun, may, ended]
}

const STEPS: u64 = 5_000;

#[test]
fn each_ban_begins_and_ends_by_the_law() {
    let rules = [
        (1, MINUTE, 10 * SECOND),
        (1, SECOND, HOUR),
        (2, MINUTE, 10 * SECOND),
        (2, SECOND, MINUTE),
        (3, 7 * SECOND, Duration::from_nanos(999_999_937)),
        (5, MINUTE, 2 * MINUTE),
        (10, 10 * SECOND, SECOND),
        (30, HOUR, MINUTE),
        (300, HOUR, MINUTE),
        (1_500, 100 * SECOND, 30 * SECOND),
        (3, MS, 3 * MS),
    ];
    let mut sums = [0; 6];
    for (seed, (refusals, window, duration)) in rules.into_iter().enumerate() {
        let rule = Rule { refusals, window, duration };
        let quota = Quota::every(duration.max(window) / 4).burst(2);
        let counts = walk(rule, quota, STEPS, seed as u64);
        println!("{rule:?}: {counts:?}");
        let [granted, refused, banned, begun, _, ended] = counts;
        let few = if refusals > 100 { 0 } else { 9 };
        assert!(granted > few && refused > 50, "{rule:?}: {counts:?}");
        assert!(banned > few && begun > few && ended > few, "{rule:?}: {counts:?}");
        sums = std::array::from_fn(|n| sums[n] + counts[n]);
    }
    // The law leaves few refusals open.
    assert!(sums[4] * 10 < sums[1], "{sums:?}");
}
