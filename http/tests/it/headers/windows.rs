// promise: headers
//! The fields of windows.

use super::*;

#[test]
fn windows_of_some_quotas() {
    for (quota, expected) in [
        ("100/s", "q=100;w=1"),
        ("100/s burst 200", "q=200;w=2"),
        ("100/s burst 5", "q=100;w=1"),
        ("1000/15m burst 50", "q=1000;w=900"),
        ("2/s burst 7", "q=8;w=4"),
        ("1/1500ms", "q=1;w=2"),
    ] {
        let (quota, policy) = policy(quota);
        let headers = told(policy.fields(&TokenBucket::new(quota).try_acquire()));
        assert_eq!(headers["ratelimit-policy"], format!("\"default\";{expected}"));
    }
}

/// The windows of each kind, and the policies that responses report of them.
const WINDOWS: [(&str, &str); 7] = [
    ("1000/d fixed utc", "q=1000;w=86400"),
    ("50/month fixed utc", "q=50;w=2678400"),
    ("60/m fixed", "q=60;w=61"),
    ("5/15m sliding", "q=5;w=957"),
    ("100/m sliding", "q=100;w=70"),
    ("100/m weighted", "q=100;w=120"),
    ("3/1500ms fixed", "q=3;w=2"),
];

#[test]
fn the_span_of_some_windows() {
    for (window, expected) in WINDOWS {
        let window: Window = window.parse().unwrap();
        let policy = Policy::new("default", window).unwrap();
        let headers = told(policy.fields(&WindowCounter::new(window).try_acquire()));
        assert_eq!(headers["ratelimit-policy"], format!("\"default\";{expected}"));
        // With headroom there are fewer sub-windows, and a layer reports those.
        let larger = window.with_limit(window.limit() * 3).unwrap();
        let roomy = WindowCounter::builder(window).headroom(larger).unwrap().build().rule();
        assert!(roomy.span() >= window.span() && roomy.sub_window() >= window.sub_window());
    }
}

/// A refusal's reset is its wait where all tokens of the window come back at one moment. Of other
/// windows it is the whole span.
#[test]
fn the_reset_of_a_refusal_is_its_wait_where_all_tokens_come_back_at_once() {
    for (text, edges) in [("5/h fixed", true), ("5/d fixed utc", true), ("5/month fixed utc", true)]
        .into_iter()
        .chain([("5/h sliding", false), ("5/h weighted", false), ("5/h sliding 20m", false)])
    {
        let (clock, mock) = Clock::mock();
        let window: Window = text.parse().unwrap();
        let policy = Policy::new("default", window).unwrap().form(Headers::Both);
        let counter = WindowCounter::builder(window).clock(clock).build();
        assert!(counter.try_acquire_n(5).is_ok());
        mock.advance(Duration::from_secs(600));
        let denied = counter.try_acquire().unwrap_err();
        let wait = denied.retry_after().unwrap().as_nanos().div_ceil(1_000_000_000) as u64;
        let (headers, span) = (told(policy.fields(&Err(denied))), number_of(&policy, "w"));
        assert!(wait < span, "{text}");
        assert_eq!(number(&headers, "ratelimit", "t"), wait, "{text}");
        let reset = if edges { wait } else { span };
        assert_eq!(headers["x-ratelimit-reset"], *reset.to_string(), "{text}");
    }
}

/// A client that spends at most `q` in any `w` is never refused. Nor is a client that spends at
/// most `r` within `t` of each response, and nothing before `t` where `r` is 0.
#[test]
fn a_client_that_keeps_to_a_window_is_never_refused() {
    let mut random = Random(3);
    for (window, _) in WINDOWS {
        for greedy in [true, false] {
            let window: Window = window.parse().unwrap();
            let policy = Policy::new("default", window).unwrap().form(Headers::Both);
            let (clock, mock) = Clock::mock();
            let counter = WindowCounter::builder(window).clock(clock).build();
            // The last headers, their time, and the tokens spent since.
            let (mut headers, mut came, mut since) = (HeaderMap::new(), 0, 0);
            let (mut now, mut spent) = (0_u64, Vec::<(u64, u64)>::new());
            for _ in 0..if greedy { size(1_000, 4_000) } else { size(2_000, 20_000) } {
                let span = window.span().as_nanos() as u64;
                let by = [0, 1, random.below(span / 50), random.below(span / 5), random.below(3 * span)];
                let by = by[random.below(5) as usize];
                mock.advance(Duration::from_nanos(by));
                now += by;
                let may = if greedy || headers.is_empty() {
                    let q = window.limit();
                    let w = policy.rule().capacity() / q * number_of(&policy, "w") * 1_000_000_000;
                    q - spent.iter().filter(|(at, _)| now - at < w).map(|(_, n)| n).sum::<u64>()
                } else {
                    let (r, t) = (number(&headers, "ratelimit", "r"), number(&headers, "ratelimit", "t"));
                    if now - came < t * 1_000_000_000 { r - since } else { u64::from(r == 0) }
                };
                let n = random.below(may + 1);
                if n > 0 {
                    let granted =
                        counter.try_acquire_n(n).unwrap_or_else(|denied| panic!("{window}: {denied}"));
                    spent.push((now, n));
                    (headers, came, since) = (told(policy.fields(&Ok(granted))), now, 0);
                    let seconds = granted.reset_after().as_nanos().div_ceil(1_000_000_000).to_string();
                    assert_eq!(headers["x-ratelimit-reset"], *seconds);
                    assert_eq!(headers["x-ratelimit-limit"], *window.limit().to_string());
                }
                // The client obeys a refusal as well.
                if let Err(denied) = counter.try_acquire_n(counter.peek().remaining() + 1) {
                    let refused = told(policy.fields(&Err(denied)));
                    let left = denied.retry_after().map(|_| 0).unwrap_or(denied.remaining());
                    assert_eq!(number(&refused, "ratelimit", "r"), left);
                    assert!(refused["x-ratelimit-reset"].to_str().unwrap().parse::<u64>().unwrap() > 0);
                }
            }
        }
    }
}
