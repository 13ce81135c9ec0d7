// promise: no-overflow
//! Quotas as text, and the errors of quotas that cannot be held.

use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::{AnyRule, InvalidRule, Quota, TokenBucket, Window};

use crate::support::{DAY, HOUR, SECOND, Time, cases, ns, panic_of, quotas};

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn every_quota_is_read_from_what_it_prints(quota in quotas()) {
        let text = quota.to_string();
        prop_assert_eq!(text.parse(), Ok(quota), "{}", text);
        // Any spacing is read.
        let wide = text.replace('/', " / ").replace("burst", "  burst ");
        prop_assert_eq!(wide.parse(), Ok(quota), "{}", wide);
        let tight = text.replace(' ', "");
        prop_assert_eq!(tight.parse(), Ok(quota), "{}", tight);
    }

    /// The bound also holds from a grant to one exactly a period later.
    #[test]
    fn no_period_has_more_than_at_most_grants(
        limit in 2..2_000_u64,
        period in 1_000..HOUR,
        part in 0.0..1.0,
        calls in vec((0.0..2.0, 1..40_u64), 1..200),
    ) {
        let burst = 1 + (part * (limit - 2) as f64) as u64;
        let (clock, mut time) = Time::new();
        let bucket = TokenBucket::builder(Quota::at_most(limit, ns(period)).burst(burst)).clock(clock).build();
        let (mut now, mut grants) = (0, VecDeque::new());
        for (pause, n) in calls {
            // Pauses take up to some tokens' time, and now and then a period.
            let pause = if n == 39 { period } else { (pause * period as f64 / limit as f64) as u64 };
            now += pause;
            time.advance(pause);
            grants.push_back((now, bucket.ask().n(n).acquire_up_to().tokens()));
            while grants.front().is_some_and(|(then, _)| now - then > period) {
                grants.pop_front();
            }
            let sum: u64 = grants.iter().map(|(_, tokens)| tokens).sum();
            prop_assert!(sum <= limit, "{sum} of {limit} in {period} ns, burst {burst}");
        }
    }

    #[test]
    fn no_text_panics(text in "[0-9]{0,21}[ +/]{0,2}[0-9]{0,21}[a-z ]{0,7}(burst)?[ 0-9]{0,22}|\\PC{0,12}") {
        let read = text.parse::<Quota>();
        if let Ok(quota) = read {
            prop_assert_eq!(quota.to_string().parse(), Ok(quota));
        }
    }
}

#[test]
fn every_unit_is_read_by_its_sign_and_its_words() {
    let words = [
        (1, &["ns", "nanosecond", "nanoseconds"][..]),
        (1_000, &["us", "microsecond", "microseconds"]),
        (1_000_000, &["ms", "millisecond", "milliseconds"]),
        (SECOND, &["s", "second", "seconds", "sec", "secs"]),
        (60 * SECOND, &["m", "minute", "minutes", "min", "mins"]),
        (HOUR, &["h", "hour", "hours"]),
        (DAY, &["d", "day", "days"]),
    ];
    for (unit, words) in words {
        for word in words {
            for (text, period) in [
                (format!("3/{word} burst 7"), unit),
                (format!("3/1{word} burst 7"), unit),
                (format!("3/20{word} burst 7"), 20 * unit),
                (format!("3/20 {word} burst 7"), 20 * unit),
            ] {
                assert_eq!(
                    text.parse(),
                    Quota::try_per(3, ns(period)).and_then(|quota| quota.try_burst(7)),
                    "{text}"
                );
            }
        }
        let short = Quota::per(3, ns(unit)).burst(7).to_string();
        assert_eq!(short, format!("3/{} burst 7", words[0]));
    }
    assert_eq!("250/90s".parse(), Ok(Quota::per(250, Duration::from_secs(90))), "the burst is the count");
}

#[test]
fn at_most_leaves_the_rate_what_the_burst_does_not_take() {
    const STRICT: Quota = Quota::at_most(60, Duration::from_secs(60)).burst(15);
    assert_eq!(STRICT.to_string(), "45/m burst 15");
    for text in ["at most 60/m burst 15", " at most 60 / 1m burst 15", "at most60/60sburst15"] {
        assert_eq!(text.parse(), Ok(Quota::per_minute(45).burst(15)), "{text}");
    }
    // The client takes each token as it comes: the burst, and the 45th token a minute later.
    let (clock, mut time) = Time::new();
    let bucket = TokenBucket::builder(STRICT).clock(clock).build();
    let mut granted = bucket.ask().n(100).acquire_up_to().tokens();
    for _ in 0..60 {
        time.advance(SECOND);
        granted += bucket.ask().n(100).acquire_up_to().tokens();
    }
    assert_eq!(granted, 60);
}

#[test]
fn a_count_is_digits_and_nothing_else() {
    for (text, part) in [
        ("+5/s", "\"+5\""),
        ("-5/s", "\"-5\""),
        ("5/s burst +5", "\"+5\""),
        ("5_0/s", "\"5_0\""),
        ("\u{665}/s", "\"\u{665}\""),
    ] {
        let error = text.parse::<Quota>().unwrap_err().to_string();
        assert!(error.ends_with(&format!(": {part} is not a whole number under 2^64")), "{error}");
    }
    let error = "5/+1s".parse::<Quota>().unwrap_err().to_string();
    assert!(error.contains(": \"+1s\" is not a unit"), "{error}");
}

#[test]
fn the_named_periods_are_what_they_say() {
    assert_eq!(Quota::per_second(5).to_string(), "5/s burst 5");
    assert_eq!(Quota::per_minute(5).to_string(), "5/m burst 5");
    assert_eq!(Quota::per_hour(5).to_string(), "5/h burst 5");
    assert_eq!(Quota::per_day(5).to_string(), "5/d burst 5");
    assert_eq!(Quota::every(Duration::from_millis(1_500)).to_string(), "1/1500ms burst 1");
    let quota = Quota::per(9, Duration::from_secs(120)).burst(3);
    assert_eq!((quota.tokens(), quota.period(), quota.capacity()), (9, Duration::from_secs(120), 3));
    assert_eq!(quota.to_string(), "9/2m burst 3");
}

/// Each kind of error is one line that names the given value and the bound.
#[test]
fn every_error_names_the_value_and_the_bound() {
    let given = |tokens, period, burst| {
        Quota::try_per(tokens, period).and_then(|quota| quota.try_burst(burst)).unwrap_err()
    };
    let read = |text: &str| text.parse::<Quota>().unwrap_err();
    let over = u64::MAX.to_string();
    let strict = |limit, burst| Quota::at_most(limit, ns(SECOND)).try_burst(burst).unwrap_err();
    let kinds: [(InvalidRule, &[&str]); 20] = [
        (given(0, ns(1), 1), &["0 tokens", "the least is 1"]),
        (given(1, ns(0), 1), &["0 ns", "the least is 1 ns"]),
        (given(1, ns(1), 0), &["burst of 0", "the least is 1"]),
        (given(1, ns((1 << 62) + 1), 1), &["4611686018427387905 ns", "2^62 ns"]),
        (given(1, Duration::MAX, 1), &["18446744073709551615999999999 ns", "2^62 ns"]),
        (given(1, ns(1), (1 << 40) + 1), &["1099511627777", "2^40", "1099511627776"]),
        (given(1_001, ns(1), 5), &["1001 tokens every 1 ns", "10^12 tokens a second"]),
        (given(3, ns(1 << 62), 4), &["burst of 4", "3 tokens every 4611686018427387904 ns", "2^62 ns"]),
        (given(1_000, ns(1), (1 << 39) - 1), &["549755813887", "1000 tokens every 1 ns", "2^46 ns"]),
        (read("ten"), &["\"ten\"", "100/s burst 200"]),
        (read("ten/s"), &["\"ten\"", "a whole number under 2^64"]),
        (read("18446744073709551616/s"), &["\"18446744073709551616\"", "2^64"]),
        (read("10/s burst -3"), &["\"-3\"", "a whole number under 2^64"]),
        (read("10/fortnight"), &["\"fortnight\"", "ns, us, ms, s, m, h, d"]),
        (read("10/18446744073709551615d"), &["1593798687968505259536000000000000 ns", "2^62 ns"]),
        (read("0/s"), &["0 tokens", "the least is 1"]),
        (strict(10, 10), &["burst of 10", "the limit of 10 tokens"]),
        (strict(10, 0), &["burst of 0", "the least is 1"]),
        (read("at most 10/s burst 11"), &["burst of 11", "the limit of 10 tokens"]),
        (read("at most 10/s"), &["10/s", "at most 5000/h burst 500"]),
    ];
    for (error, parts) in &kinds {
        let text = error.to_string();
        for part in *parts {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(!text.contains('\n') && !text.ends_with('.'), "{text:?}");
        let error: &(dyn Error + Send + Sync + 'static) = error;
        assert!(error.source().is_none());
    }
    assert!(read(&format!("{over}/s")).to_string().contains(&over));
    for text in [
        "",
        "/",
        "10",
        "10/",
        "10/s burst",
        "10/s burst ten",
        "10/s burst 5 burst 6",
        "10/S",
        "10/s/s",
        "10/mss",
    ] {
        assert!(text.parse::<Quota>().is_err(), "{text:?} is no quota");
    }
}

/// The edges themselves can be held.
#[test]
fn the_bounds_are_within() {
    for (tokens, nanos, burst) in [(1, 1 << 62, 1), (1_000, 1, 1), (1_000, SECOND, 1 << 40), (1, 1, 1)] {
        let quota = Quota::try_per(tokens, ns(nanos)).and_then(|quota| quota.try_burst(burst));
        assert!(quota.is_ok(), "{tokens} every {nanos} ns, burst {burst}");
    }
}

#[test]
fn a_constant_is_checked_as_it_is_made() {
    const OF_A_CONSTANT: Quota = Quota::per_hour(1_000).burst(50);
    assert_eq!("1000/h burst 50".parse(), Ok(OF_A_CONSTANT));
}

/// The panics of the constructors name the bound, too.
#[test]
fn a_panic_says_the_bound() {
    for (make, bound) in [
        ((|| Quota::per_second(0)) as fn() -> Quota, "the least is 1"),
        (|| Quota::per_second(1).burst(0), "the least is 1"),
        (|| Quota::every(Duration::ZERO), "the least is 1 ns"),
        (|| Quota::every(Duration::MAX), "2^62 ns"),
        (|| Quota::per_second(1).burst((1 << 40) + 1), "2^40"),
        (|| Quota::per_second(1_000_000_000_001).burst(1), "10^12"),
        (|| Quota::per_day(1).burst(1 << 40), "2^62 ns"),
        (|| Quota::per(1_000, ns(1)).burst((1 << 39) - 1), "one word"),
    ] {
        let text = panic_of(make);
        assert!(text.contains(bound), "{bound:?} is not in {text:?}");
    }
}

/// Of two equal rates the error names the quota, not its headroom.
#[test]
fn a_headroom_of_the_same_rate_is_refused_by_the_name_of_the_quota() {
    let own = Quota::per_second(1_000_000_000).burst(1_000);
    for head in [Quota::every(ns(1)), Quota::per_minute(60_000_000_000), own] {
        let refused = TokenBucket::builder(own).headroom(head.burst(1 << 40)).unwrap_err().to_string();
        let named = "a burst of 1099511627776 at 1000000000 tokens every 1000000000 ns leaves one word";
        assert!(refused.starts_with(named), "{refused}");
    }
}

/// A rule is a quota, or a window by the word that says so.
#[test]
fn a_rule_is_read_as_what_it_says() {
    let second = Duration::from_secs(1);
    for (text, rule, numbers) in [
        ("100/s burst 200", AnyRule::from(Quota::per_second(100).burst(200)), (100, second, 200)),
        ("100/m fixed", AnyRule::from(Window::per_minute(100)), (100, 60 * second, 100)),
        ("7/m sliding", AnyRule::from(Window::per_minute(7).sliding()), (7, 60 * second, 7)),
        ("7/h weighted", AnyRule::from(Window::per_hour(7).weighted()), (7, 3_600 * second, 7)),
    ] {
        assert_eq!((text.parse(), rule.to_string()), (Ok(rule), text.to_owned()));
        assert_eq!((rule.tokens(), rule.period(), rule.capacity()), numbers);
    }
    for (text, what) in [("0/s", "quota"), ("0/s fixed", "limit")] {
        let refused = text.parse::<AnyRule>().unwrap_err().to_string();
        let reason = format!("a {what} of 0 tokens grants nothing: the least is 1");
        assert!(refused.ends_with(&reason), "{refused}");
    }
}
