//! Reloads and restarts that change the home of a count: a key goes on with what it has used.

use futures_util::FutureExt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tollgate::{Clock, MockClock};
use tollgate_testing::Random;

use super::sources;
use super::variables;
use crate::rules::load::{LoadOptions, load};
use crate::serve::counts::{Algorithm, CountOptions, LimitCounts, Verb};
use crate::serve::json;
use crate::serve::messages::{Code, RateLimitResponse};
use crate::serve::options::ServeOptions;
use crate::serve::state::{Configured, Files, Service};
use tollgate_common::state_file::SavedPart;

use Algorithm::{FixedWindow, TokenBucket};

/// A service on a mock clock, of one file.
pub(super) struct Run {
    pub(super) service: Service,
    clock: Clock,
    pub(super) mock: MockClock,
    algorithm: Algorithm,
    max_keys: usize,
}

impl Run {
    pub(super) fn new(algorithm: Algorithm, max_keys: usize) -> Run {
        let (clock, mock) = Clock::mock();
        mock.advance(Duration::from_secs(1_789_992_000));
        let counts = LimitCounts::new(&CountOptions { max_keys, clock: clock.clone(), algorithm });
        Run { service: service(counts), clock, mock, algorithm, max_keys }
    }

    /// Puts rules in force, each the fields of a descriptor.
    pub(super) fn load(&self, rules: &[&str]) {
        let rules: String = rules.iter().map(|rule| format!("  - {{{rule}}}\n")).collect();
        let text = format!("domain: d\ndescriptors:\n{rules}");
        let loaded = load(&[("a.yaml".to_owned(), text)], LoadOptions::default()).unwrap();
        let loaded = self.service.counts.load(loaded).unwrap();
        let settings = self.service.in_force().settings.clone();
        self.service.set(Configured {
            settings,
            files: Files::default(),
            loaded: Some(loaded),
            version: String::new(),
        });
    }

    /// Asks for hits of the key `k` and a value. Returns whether they are granted, and those left.
    pub(super) fn ask(&self, value: &str, more: &str) -> (bool, u32) {
        let answer = self.answer(value, more);
        (answer.overall_code == Code::Ok as i32, answer.statuses[0].limit_remaining)
    }

    /// Returns whether a hit is granted by a limit, and not for want of one.
    fn is_granted(&self, value: &str) -> bool {
        let answer = self.answer(value, "");
        answer.overall_code == Code::Ok as i32 && answer.statuses[0].current_limit.is_some()
    }

    fn answer(&self, value: &str, more: &str) -> RateLimitResponse {
        let text = format!(
            r#"{{"domain": "d", "descriptors": [{{"entries": [{{"key": "k", "value": "{value}"}}]{more}}}]}}"#
        );
        self.service.ask(&json::request(text.as_bytes()).unwrap()).now_or_never().unwrap().unwrap()
    }

    fn saved(&self) -> Vec<SavedPart> {
        let secret = self.service.counts.hasher.key().to_vec();
        let mut parts = vec![SavedPart { name: "secret".to_owned(), bytes: secret }];
        let put = |name: &str, bytes: &[u8]| {
            parts.push(SavedPart { name: name.to_owned(), bytes: bytes.to_vec() });
            Ok(())
        };
        self.service.counts.each_part(put).unwrap();
        parts
    }

    /// Replaces the process by another one, which begins with these rules.
    pub(super) fn restart(&mut self, rules: &[&str]) {
        let mut parts = self.saved();
        let (algorithm, max_keys) = (self.algorithm, self.max_keys);
        let options = CountOptions { max_keys, clock: self.clock.clone(), algorithm };
        self.service = service(LimitCounts::of_saved(&mut parts, &options));
        self.load(rules);
        for part in parts.into_iter().rev() {
            self.service.counts.restore(&part).unwrap();
        }
    }
}

fn service(counts: LimitCounts) -> Service {
    let settings = sources::load(&ServeOptions::default(), &variables(&[])).unwrap();
    Service::of(settings, counts)
}

/// The other home of a count, and what is left there of what was left before.
const CHANGES: [(Algorithm, &str, u64, &str, u32); 20] = [
    (FixedWindow, "key: k, rate_limit: {limit: 5/h}", 5, "key: k, rate_limit: {limit: 6/h}", 0),
    (FixedWindow, "key: k, rate_limit: {limit: 5/h}", 3, "key: k, rate_limit: {limit: 9/h}", 2),
    (FixedWindow, "key: k, rate_limit: {limit: 9/h}", 3, "key: k, rate_limit: {limit: 5/h}", 2),
    (FixedWindow, HOUR, 3, "key: k, rate_limit: {limit: 5/h}", 2),
    (FixedWindow, "key: k, rate_limit: {limit: 5/h}", 3, HOUR, 2),
    (FixedWindow, HOUR, 5, "key: k, rate_limit: {limit: 9/h fixed}", 4),
    (FixedWindow, "key: k, rate_limit: {limit: 9/h sliding}", 4, HOUR, 1),
    (FixedWindow, HOUR, 4, "key: k, rate_limit: {unit: day, requests_per_unit: 9}", 5),
    (FixedWindow, HOUR, 5, "key: k, rate_limit: {unit: minute, requests_per_unit: 5}", 0),
    (FixedWindow, HOUR, 3, "key: k, rate_limit: {unit: hour, unit_multiplier: 2, requests_per_unit: 9}", 6),
    // A value is gained, or lost, or becomes a pattern.
    (FixedWindow, HOUR, 5, "key: k, value: v, rate_limit: {unit: hour, requests_per_unit: 5}", 0),
    (FixedWindow, "key: k, value: v, rate_limit: {unit: hour, requests_per_unit: 5}", 4, HOUR, 1),
    (FixedWindow, HOUR, 4, "key: k, value: v, rate_limit: {limit: 5/h}", 1),
    (FixedWindow, "key: k, value: v, rate_limit: {limit: 5/h}", 4, HOUR, 1),
    (
        FixedWindow,
        "key: k, value: v, rate_limit: {limit: 5/h}",
        4,
        "key: k, value: v*, rate_limit: {limit: 6/h}",
        1,
    ),
    (FixedWindow, "key: k*, rate_limit: {limit: 5/h}", 4, HOUR, 1),
    (
        FixedWindow,
        "key: k, shadow_mode: true, rate_limit: {limit: 5/h}",
        5,
        "key: k, rate_limit: {limit: 6/h}",
        0,
    ),
    (TokenBucket, HOUR, 5, "key: k, rate_limit: {unit: hour, requests_per_unit: 6}", 0),
    (TokenBucket, HOUR, 4, "key: k, value: v, rate_limit: {unit: day, requests_per_unit: 5}", 1),
    (TokenBucket, "key: k, rate_limit: {unit: hour, requests_per_unit: 9}", 3, HOUR, 2),
];
const HOUR: &str = "key: k, rate_limit: {unit: hour, requests_per_unit: 5}";

#[test]
fn a_key_keeps_its_count_when_a_change_puts_it_elsewhere() {
    type Change = fn(&mut Run, &str, &str);
    let ways: [(&str, Change); 5] = [
        ("a reload", |run, _, after| run.load(&[after])),
        ("a restart", |run, _, after| run.restart(&[after])),
        ("a restart, then a reload", |run, before, after| {
            run.restart(&[before]);
            run.load(&[after]);
        }),
        ("the rule is gone for a while", |run, _, after| {
            run.load(&["key: other, rate_limit: {limit: 7/h}"]);
            run.load(&["key: k, rate_limit: {unlimited: true}"]);
            run.restart(&["key: other"]);
            run.load(&[after]);
        }),
        ("20 times there and back", |run, before, after| {
            for _ in 0..20 {
                run.load(&[after]);
                run.load(&[before]);
            }
            run.load(&[after]);
        }),
    ];
    for (way, change) in ways {
        for (algorithm, before, used, after, left) in CHANGES {
            let mut run = Run::new(algorithm, 1_000);
            run.load(&[before]);
            run.ask("v", &format!(r#", "hits_addend": {used}"#));
            change(&mut run, before, after);
            let look = r#", "hits_addend": 0"#;
            let case = format!("{way}: {used} of {before}, then {after}");
            assert_eq!(run.ask("v", look).1, left, "{case}");
            assert_eq!(run.ask("v", look).1, left, "{case}: a second time");
            let granted = (0..20).filter(|_| run.ask("v", "").0).count();
            assert_eq!(granted as u32, left, "{case}");
            // Back to the first one nothing is left that was not.
            run.load(&[before]);
            let (_, back) = run.ask("v", look);
            let limit = if before.contains("9") { 9 } else { 5 };
            assert!(u64::from(back) + used <= limit, "{case}, then back: {back}");
        }
    }
}

/// A smaller limit has no room for all hits, and a larger one after it still has them.
#[test]
fn a_count_above_a_smaller_limit_is_not_forgotten() {
    for (large, small) in [
        ("{limit: 100/d fixed}", "{limit: 5/d fixed}"),
        ("{limit: 100/d fixed}", "{limit: 5/d}"),
        ("{unit: day, requests_per_unit: 100}", "{limit: 5/d fixed}"),
        ("{unit: day, requests_per_unit: 100}", "{limit: 5/d}"),
    ] {
        let run = Run::new(FixedWindow, 1_000);
        let load = |rule: &str| run.load(&[&format!("key: k, rate_limit: {rule}")]);
        load(large);
        run.ask("v", r#", "hits_addend": 90"#);
        load(small);
        assert!(!run.ask("v", "").0, "{small}");
        load(large);
        assert_eq!(run.ask("v", r#", "hits_addend": 0"#).1, 10, "{large}, {small}, and back");
    }
}

#[test]
fn a_debt_outlives_the_change_of_its_text() {
    let rule = |burst: u32| format!("key: k, rate_limit: {{limit: 60/m burst {burst}, charge: after}}");
    let run = Run::new(FixedWindow, 1_000);
    run.load(&[&rule(100)]);
    run.ask("v", r#", "hits_addend": 120"#);
    run.load(&[&rule(200)]);
    let look = r#", "hits_addend": 0"#;
    for (seconds, granted) in [(0, false), (20, false), (1, true)] {
        run.mock.advance(Duration::from_secs(seconds));
        assert_eq!(run.ask("v", look).0, granted, "{seconds} s later");
    }
}

/// The limits that stay as they are look nowhere else.
#[test]
fn an_unrelated_change_costs_a_limit_nothing_and_its_end_is_seen() {
    let run = Run::new(FixedWindow, 1_000);
    let rules = |text: &str| {
        run.load(&[
            "key: k, value: one, rate_limit: {unit: hour, requests_per_unit: 5}",
            &format!("key: k, value: two, rate_limit: {{limit: {text}}}"),
            "key: other, rate_limit: {limit: 5/h}",
        ]);
    };
    let live = || {
        let paths = run.service.counts.limit_paths();
        let live = std::cell::RefCell::new(Vec::new());
        paths.each(|_, state| live.borrow_mut().push(state.past.is_live()));
        live.into_inner()
    };
    rules("5/h");
    run.ask("two", "");
    rules("6/h");
    assert_eq!(live(), [false, true, false]);
    run.mock.advance(Duration::from_secs(3 * 3_600));
    run.ask("two", "");
    assert_eq!(live(), [false; 3]);
    run.service.counts.sweep();
    assert_eq!(run.service.counts.all_texts().len(), 2, "the text of no rule is forgotten");
}

#[test]
fn restarts_and_reloads_without_a_change_neither_use_nor_give() {
    for rule in [HOUR, "key: k, rate_limit: {limit: 100/h}", "key: k, rate_limit: {limit: 100/d fixed}"] {
        let mut run = Run::new(FixedWindow, 1_000);
        let rule = rule.replace("unit: 5", "unit: 100");
        run.load(&[&rule]);
        for taken in 1..=20 {
            assert_eq!(run.ask("v", ""), (true, 100 - taken), "{rule}");
            run.restart(&[&rule]);
        }
        (0..1_000).for_each(|_| run.load(&[&rule]));
        assert_eq!(run.ask("v", ""), (true, 79), "{rule}");
    }
}

/// Each limit grants 20 and no time passes, so no key is ever granted more.
#[test]
fn random_reloads_beside_threads_grant_no_key_more_than_a_model() {
    const OF_A_KEY: usize = 60;
    let asks = tollgate_testing::size(10_000, 100_000);
    for algorithm in [FixedWindow, TokenBucket] {
        let run = Run::new(algorithm, 1 << 20);
        let mut random = Random(7);
        let amounts = [
            "unit: month, requests_per_unit: 20",
            "unit: year, requests_per_unit: 20",
            "limit: 20/365d burst 20",
            "limit: 20/366d burst 20",
            "limit: 20/365d fixed",
        ];
        let mut reload = || {
            let mut rule = |value: &str| {
                let amount = random.pick(&amounts);
                (random.below(3) > 0).then(|| format!("key: k{value}, rate_limit: {{{amount}}}"))
            };
            let mut rules: Vec<String> = ["", ", value: 1*", ", value: v*", ", value: '77'"]
                .into_iter()
                .filter_map(&mut rule)
                .collect();
            if rules.is_empty() {
                rules.push("key: other".to_owned());
            }
            run.load(&rules.iter().map(String::as_str).collect::<Vec<_>>());
        };
        reload();
        let granted: Vec<AtomicU32> = (0..=asks / OF_A_KEY).map(|_| AtomicU32::new(0)).collect();
        let (asked, mut reloads) = (AtomicUsize::new(0), 0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let ask = asked.fetch_add(1, Relaxed);
                        if ask >= asks {
                            return;
                        }
                        // An early key comes back after many reloads.
                        let key = if ask.is_multiple_of(4) { ask / OF_A_KEY / 2 } else { ask / OF_A_KEY };
                        granted[key].fetch_add(run.is_granted(&key.to_string()).into(), Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                while asked.load(Relaxed) < asks {
                    run.saved();
                }
            });
            while asked.load(Relaxed) < asks {
                reload();
                reloads += 1;
            }
        });
        println!("{algorithm:?}: {asks} requests, {reloads} reloads");
        let over: Vec<_> = granted.iter().map(|granted| granted.load(Relaxed)).filter(|n| *n > 20).collect();
        assert_eq!(over, Vec::<u32>::new(), "{algorithm:?}: keys above 20");
        let mut run = run;
        run.restart(&["key: k, rate_limit: {limit: 20/367d burst 20}"]);
        for (key, granted) in granted.iter().enumerate().step_by(7) {
            let more = (0..21).filter(|_| run.is_granted(&key.to_string())).count() as u32;
            assert!(granted.load(Relaxed) + more <= 20, "{key}: {more} more after a restart");
        }
        assert!(granted.iter().any(|granted| granted.load(Relaxed) == 20));
    }
}

/// A count that a page shows is that of the limit in force, wherever the key is.
#[test]
fn a_look_finds_the_count_elsewhere() {
    let run = Run::new(FixedWindow, 1_000);
    run.load(&[HOUR]);
    run.ask("v", r#", "hits_addend": 4"#);
    run.load(&["key: k, rate_limit: {limit: 5/h}"]);
    let in_force = run.service.in_force();
    let loaded = in_force.loaded.as_ref().unwrap();
    let limit = loaded.rules.limits().next().unwrap();
    let text = br#"{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
    let request = json::request(text).unwrap();
    let key = run.service.counts.key("d", &request.descriptors[0].entries, &limit.shared);
    let counts = &run.service.counts;
    let counted = counts.count(loaded.counter(limit), key, (Verb::Look, 0), counts.now()).unwrap();
    assert_eq!(counted.remaining, 1);
}
