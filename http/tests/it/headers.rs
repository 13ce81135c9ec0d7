// promise: headers
//! The headers of a decision: whole seconds that keep their promises.

mod clients;
mod windows;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tollgate::{
    AnyRule, Clock, Denied, Granted, MockClock, Quota, RateLimiter, TokenBucket, Window, WindowCounter,
};
use tollgate_http::{Bare, Check, Headers, Policy, Problem, Refusal, Reject};

use tollgate_testing::{Random, cases, quota_numbers, quota_text, size};

fn policy(quota: &str) -> (Quota, Policy) {
    let quota = quota.parse().unwrap();
    (quota, Policy::new("default", quota).unwrap())
}

fn told(fields: impl IntoIterator<Item = (http::HeaderName, http::HeaderValue)>) -> HeaderMap {
    fields.into_iter().collect()
}

/// Returns a parameter of the only item of a list.
fn number(headers: &HeaderMap, name: &str, parameter: &str) -> u64 {
    let text = headers[name].to_str().unwrap();
    let found = text.split(';').skip(1).find_map(|part| part.strip_prefix(parameter)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {parameter} in {text}")).parse().unwrap()
}

fn number_of(policy: &Policy, parameter: &str) -> u64 {
    let mut headers = HeaderMap::new();
    policy.append_to(&mut headers);
    number(&headers, "ratelimit-policy", parameter)
}

/// Returns any quota that can be held, over all magnitudes.
fn quotas() -> impl Strategy<Value = Quota> {
    quota_numbers().prop_filter_map("cannot be held", |numbers| quota_text(numbers).parse().ok())
}

#[test]
fn retries_are_spread_by_key_and_only_where_they_are_told() {
    let (clock, _mock) = Clock::mock();
    let window = Window::per_hour(1).utc();
    let counter = WindowCounter::builder(window).clock(clock).build();
    let policy = Policy::new("hour", window).unwrap().spread_retries(Duration::from_secs(600));
    let granted = told(policy.for_key(u64::MAX).fields(&counter.try_acquire()));
    assert_eq!(number(&granted, "ratelimit", "t"), 3_600);
    let denied = counter.try_acquire().unwrap_err();
    let mut random = Random(4);
    let waits: Vec<u64> = (0..10_000)
        .map(|_| {
            let headers = told(policy.for_key(random.below(u64::MAX)).fields(&Err(denied)));
            let wait = headers["retry-after"].to_str().unwrap().parse().unwrap();
            assert_eq!(number(&headers, "ratelimit", "t"), wait);
            wait
        })
        .collect();
    assert_eq!((waits.iter().min(), waits.iter().max()), (Some(&3_600), Some(&4_200)));
    // Each of the ten minutes has about a tenth of the waits.
    let first = waits.iter().filter(|wait| **wait < 3_660).count();
    assert!((900..1_100).contains(&first), "{first}");
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(3_600)));
}

#[test]
fn what_is_left_took_its_time_to_come() {
    let (quota, policy) = policy("1/m burst 5");
    let (clock, mock) = Clock::mock();
    let bucket = TokenBucket::builder(quota).clock(clock).build();
    let _ = bucket.try_acquire_n(3).unwrap();
    for (seconds, expected) in
        [(0, "r=2;t=120"), (30, "r=2;t=150"), (15, "r=2;t=165"), (15, "r=3;t=180"), (300, "r=5;t=300")]
    {
        mock.advance(Duration::from_secs(seconds));
        let headers = told(policy.fields(&bucket.try_acquire_n(0)));
        assert_eq!(headers["ratelimit"], format!("\"default\";{expected}"));
    }
}

#[test]
fn waits_are_rounded_up_to_whole_seconds() {
    for (millis, expected) in [(1, 1), (999, 1), (1_000, 1), (1_001, 2), (1_900, 2), (86_400_001, 86_401)] {
        let quota = Quota::every(Duration::from_millis(millis));
        let (clock, _mock) = Clock::mock();
        let bucket = TokenBucket::builder(quota).clock(clock).build();
        assert!(bucket.try_acquire().is_ok());
        let policy = Policy::new("p", quota).unwrap();
        let denied = bucket.try_acquire().unwrap_err();
        assert_eq!(told(policy.fields(&Err(denied)))["retry-after"], expected.to_string());
    }
    // A key without room has no bucket that says when.
    let limiter = RateLimiter::<u64>::builder(Quota::per_hour(1))
        .max_keys(1)
        .when_full(tollgate::WhenFull::Deny)
        .build();
    assert!(limiter.try_acquire(&1).is_ok());
    let denied = limiter.try_acquire(&2).unwrap_err();
    let wait: u64 =
        told(policy("1/h").1.fields(&Err(denied)))["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(wait >= 1);
}

#[test]
fn the_classic_three() {
    let (quota, policy) = policy("100/s burst 200");
    let policy = policy.form(Headers::Both);
    let (clock, mock) = Clock::mock();
    let bucket = TokenBucket::builder(quota).clock(clock).build();
    let granted = bucket.try_acquire_n(51).unwrap();
    let headers = told(policy.fields(&Ok(granted)));
    let three = |headers: &HeaderMap| {
        ["limit", "remaining", "reset"]
            .map(|name| headers[&format!("x-ratelimit-{name}")].to_str().unwrap().to_owned())
    };
    assert_eq!(three(&headers), ["200", "149", "1"]);
    assert_eq!((&headers["ratelimit"], headers.len()), (&"\"default\";r=149;t=2".parse().unwrap(), 5));
    let _ = bucket.try_acquire_n(149).unwrap();
    assert_eq!(three(&told(policy.fields(&bucket.try_acquire()))), ["200", "0", "2"]);
    mock.advance(Duration::from_secs(9));
    assert_eq!(three(&told(policy.fields(&bucket.try_acquire_n(0)))), ["200", "200", "0"]);
}

#[test]
fn an_upstream_has_limits_of_its_own() {
    let (quota, policy) = policy("10/s");
    let policy = policy.form(Headers::Both);
    let granted = TokenBucket::new(quota).try_acquire_n(5).unwrap();
    for (theirs, remaining, limit) in
        [("3", "3", "7"), ("5", "5", "7"), ("6", "5", "10"), ("many", "5", "10")]
    {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining", theirs.parse().unwrap());
        headers.insert("x-ratelimit-limit", "7".parse().unwrap());
        headers.insert("ratelimit", "\"theirs\";r=3;t=1".parse().unwrap());
        policy.fields(&Ok(granted)).append_to(&mut headers);
        assert_eq!(
            (&headers["x-ratelimit-remaining"], &headers["x-ratelimit-limit"]),
            (&remaining.parse().unwrap(), &limit.parse().unwrap())
        );
        assert_eq!(headers.get_all("ratelimit").iter().count(), 2);
    }
}

#[test]
fn only_when_little_is_left() {
    let (quota, policy) = policy("10/s");
    let policy = policy.only_below(30);
    let (clock, _mock) = Clock::mock();
    let bucket = TokenBucket::builder(quota).clock(clock).build();
    let told: Vec<_> = (0..10).map(|_| told(policy.fields(&bucket.try_acquire()))).collect();
    let with = told.iter().map(|headers| headers.contains_key("ratelimit"));
    assert_eq!(with.filter(|with| *with).count(), 3);
    assert!(told.iter().all(|headers| headers.contains_key("ratelimit-policy")));
}

#[test]
fn names_and_units_are_printable() {
    let quota = Quota::per_second(65_536).burst(10 * 65_536);
    let policy = Policy::new(r#"a "b" \c"#, quota).unwrap().unit("content-bytes").unwrap();
    let headers = told(policy.fields(&TokenBucket::new(quota).try_acquire()));
    assert_eq!(headers["ratelimit-policy"], r#""a \"b\" \\c";q=655360;qu="content-bytes";w=10"#);
    let mut headers = HeaderMap::new();
    policy.with_rule(Quota::per_second(7)).append_to(&mut headers);
    assert_eq!(headers["ratelimit-policy"], r#""a \"b\" \\c";q=7;qu="content-bytes";w=1"#);
    for (name, error) in [
        ("", "a name of 0 characters is out of the bounds of 1 and 64"),
        (&"x".repeat(65), "a name of 65 characters is out of the bounds of 1 and 64"),
        ("a\nb", "character 1 of a name, '\\n', is not printable ASCII, ' ' to '~'"),
        ("éa", "character 0 of a name, 'é', is not printable ASCII, ' ' to '~'"),
        ("aé\u{7f}", "character 1 of a name, 'é', is not printable ASCII, ' ' to '~'"),
        ("a\u{7f}", "character 1 of a name, '\\u{7f}', is not printable ASCII, ' ' to '~'"),
    ] {
        assert_eq!(Policy::new(name, quota).unwrap_err().to_string(), error);
        assert_eq!(Policy::new("a", quota).unwrap().unit(name).unwrap_err().to_string(), error);
    }
    // An error stays short, however long the name is.
    assert!(Policy::new(&"é".repeat(100_000), quota).unwrap_err().to_string().len() < 100);
}

#[test]
fn no_token_left_is_told_with_the_wait_for_one() {
    for (quota, burst, told_of) in [
        // The next token is minutes away.
        ("1/10m", 1, "r=0;t=600"),
        ("1/10m burst 5", 5, "r=0;t=600"),
        ("1/m burst 2", 2, "r=0;t=60"),
        ("1/1500ms", 1, "r=0;t=2"),
        ("1/s burst 2", 2, "r=0;t=1"),
        ("100/s burst 200", 200, "r=0;t=1"),
        ("1/h", 1, "r=0;t=3600"),
    ] {
        let (quota, policy) = policy(quota);
        let (clock, mock) = Clock::mock();
        let bucket = TokenBucket::builder(quota).clock(clock).build();
        let headers = |n| told(policy.fields(&bucket.try_acquire_n(n)));
        assert_eq!(headers(burst)["ratelimit"], format!("\"default\";{told_of}"), "{quota}");
        // A part of the token has come.
        mock.advance(quota.period() / (2 * quota.tokens() as u32));
        let t = number(&headers(0), "ratelimit", "t");
        mock.advance(Duration::from_secs(t));
        assert!(bucket.try_acquire().is_ok(), "{quota}");
    }
}

#[test]
fn a_refused_cost_tells_the_tokens_that_are_left() {
    let (quota, policy) = policy("10/s burst 14");
    let policy = policy.form(Headers::Both);
    let (clock, _mock) = Clock::mock();
    let bucket = TokenBucket::builder(quota).clock(clock).build();
    let _ = bucket.try_acquire_n(10).unwrap();
    let headers = told(policy.fields(&bucket.try_acquire_n(10)));
    assert_eq!(headers["x-ratelimit-remaining"], "4");
    // The wait is for this cost: the client must not spend the rest meanwhile.
    assert_eq!(
        (&headers["ratelimit"], &headers["retry-after"]),
        (&"\"default\";r=0;t=1".parse().unwrap(), &"1".parse().unwrap())
    );
}

#[test]
fn grpc_without_a_key_is_not_told_of_a_limit() {
    let (_, policy) = policy("10/s");
    let mut request = Request::new(());
    let says = |response: &Response<Bytes>, name: &str| {
        response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    let http: Response<Bytes> = Bare.reject(&Refusal::new(&request, None, &policy));
    assert_eq!((http.status(), says(&http, "grpc-status")), (StatusCode::BAD_REQUEST, None));
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    // Media types have no case (RFC 9110, 8.3.1).
    request.headers_mut().insert("content-type", "Application/GRPC+proto".parse().unwrap());
    let refusal = Refusal::new(&request, None, &policy);
    let both: [Response<Bytes>; 2] = [Bare.reject(&refusal), Problem::QUOTA_EXCEEDED.reject(&refusal)];
    for response in both {
        assert_eq!((response.status(), response.body().len()), (StatusCode::OK, 0));
        assert_eq!(says(&response, "grpc-status").unwrap(), "3");
        assert_eq!(says(&response, "grpc-message").unwrap(), "request has nothing to limit it by");
        assert_eq!(says(&response, "grpc-retry-pushback-ms").unwrap(), "-1");
    }
    let both: [Response<Bytes>; 2] =
        [Bare.reject(&refusal.unauthenticated()), Problem::QUOTA_EXCEEDED.reject(&refusal.unauthenticated())];
    for response in both {
        assert_eq!(says(&response, "grpc-status").unwrap(), "16");
    }
    // Without the peer's address the server is at fault, whichever code a key needs. Any other
    // fault leaves it with the request.
    for refusal in [refusal.clone(), refusal.unauthenticated()] {
        let no_peer = refusal.clone().with_check(Some(Check::NoPeer));
        let both: [Response<Bytes>; 2] = [Bare.reject(&no_peer), Problem::QUOTA_EXCEEDED.reject(&no_peer)];
        for response in both {
            assert_eq!(
                (response.status(), says(&response, "grpc-status").unwrap()),
                (StatusCode::OK, "13".into())
            );
            assert_eq!(
                says(&response, "grpc-message").unwrap(),
                "server has nothing to limit the request by"
            );
        }
        let unreadable: Response<Bytes> =
            Bare.reject(&refusal.clone().with_check(Some(Check::UnreadableHop)));
        assert_ne!(says(&unreadable, "grpc-status").unwrap(), "13");
    }
    let AnyRule::Quota(quota) = policy.rule() else { unreachable!("it is of a quota") };
    let limiter = TokenBucket::new(quota);
    let denied = limiter.try_acquire_n(11).unwrap_err();
    let by_limit = Refusal::new(&request, Some(&denied), &policy).unauthenticated();
    let response: Response<Bytes> = Bare.reject(&by_limit);
    assert_eq!(says(&response, "grpc-status").unwrap(), "8");
}

#[test]
fn labels_of_prometheus_are_escaped() {
    use tollgate_http::{RateLimitLayer, prometheus};

    let limiter = RateLimiter::<u64>::new(Quota::per_second(1));
    let mut stats = RateLimitLayer::builder(limiter).shared().build().stats();
    stats.limits[0].policy = "a\n\"b\" \\c".to_owned();
    let text = prometheus(&[stats]);
    assert!(text.contains(r#"tollgate_keys{policy="a\n\"b\" \\c"} 0"#), "{text}");
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// `q / w` and `r / t` are no more than the rate, `q` is no less than the burst. No number is
    /// longer than 15 digits.
    #[test]
    fn what_clients_are_told_they_may_do(quota in quotas(), takes in proptest::collection::vec((1_u64..50, 0_u64..1 << 40), 1..6)) {
        let policy = Policy::new("default", quota).unwrap().form(Headers::Both);
        let (clock, mock) = Clock::mock();
        let bucket = TokenBucket::builder(quota).clock(clock).build();
        let (count, period) = (u128::from(quota.tokens()), quota.period().as_nanos());
        let at_most_the_rate = |tokens: u64, seconds: u64| {
            u128::from(tokens) * period <= count * u128::from(seconds) * 1_000_000_000
        };
        for (n, nanos) in takes {
            mock.advance(Duration::from_nanos(nanos));
            let headers = match bucket.try_acquire_n(n.min(quota.capacity())) {
                Ok(granted) => told(policy.fields(&Ok(granted))),
                Err(denied) => told(policy.fields(&Err(denied))),
            };
            let [q, w] = ["q", "w"].map(|name| number(&headers, "ratelimit-policy", name));
            let [r, t] = ["r", "t"].map(|name| number(&headers, "ratelimit", name));
            prop_assert!(w >= 1 && t >= 1 && r <= quota.capacity());
            prop_assert!(q >= quota.capacity() && q < 1_000_000_000_000_000);
            prop_assert!(at_most_the_rate(q, w), "{q} in {w} s of {quota}");
            prop_assert!(at_most_the_rate(r, t), "{r} in {t} s of {quota}");
            if let Some(wait) = headers.get("retry-after") {
                prop_assert_eq!((r, t.to_string()), (0, wait.to_str().unwrap().to_owned()));
            }
        }
    }
}

/// Writes random quotas and the headers of decisions on them to the file that `HEADERS` names, for
/// `verify/rigs/read-headers.py`.
///
/// A line has the quota's count, period and burst, the outcome, the tokens left, the wait, and the
/// headers. The wait is in nanoseconds: for the cost, or after a grant for one more token.
#[test]
#[ignore = "it writes a file"]
fn headers_for_another_parser() {
    use proptest::strategy::ValueTree;

    let path = std::env::var_os("HEADERS").expect("HEADERS names a file");
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = (quotas(), 1_u64..1_000, 0_u64..1 << 50, "[ -~]{1,20}");
    let mut lines = String::new();
    for case in 0..10_000 {
        let (quota, n, nanos, name) = strategy.new_tree(&mut runner).unwrap().current();
        let policy = Policy::new(&name, quota).unwrap().form(Headers::Both);
        let (clock, mock) = Clock::mock();
        let bucket = TokenBucket::builder(quota).clock(clock).build();
        let _ = bucket.try_acquire_n(if case % 2 == 0 { quota.capacity() } else { 0 });
        mock.advance(Duration::from_nanos(nanos >> (case % 50)));
        let (granted, left, wait, headers) = match bucket.try_acquire_n(n.min(quota.capacity())) {
            Ok(granted) => {
                let next = bucket.try_acquire().err().and_then(|denied| denied.retry_after());
                let next = next.map_or(0, |wait| wait.as_nanos());
                (1, granted.remaining(), next, told(policy.fields(&Ok(granted))))
            }
            Err(denied) => (
                0,
                denied.remaining(),
                denied.retry_after().unwrap().as_nanos(),
                told(policy.fields(&Err(denied))),
            ),
        };
        let value = |name: &str| headers.get(name).map_or("-", |value| value.to_str().unwrap());
        let fields =
            ["ratelimit-policy", "ratelimit", "retry-after", "x-ratelimit-limit", "x-ratelimit-remaining"];
        let fields: Vec<_> = fields.into_iter().chain(["x-ratelimit-reset"]).map(value).collect();
        let (count, period, burst) = (quota.tokens(), quota.period().as_nanos(), quota.capacity());
        lines += &format!(
            "{count}\t{period}\t{burst}\t{granted}\t{left}\t{wait}\t{name}\t{}\n",
            fields.join("\t")
        );
    }
    std::fs::write(path, lines).unwrap();
}
