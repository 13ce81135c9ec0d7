//! The rate limit service: its files, and the messages of its clients.
//!
//! The modules of the server are compiled here from their files, as a program has no library. Any
//! text is rules or errors. Any bytes are a request or none, and each request has as many statuses
//! as descriptors.

use std::sync::LazyLock;

use prost::Message;
use tollgate::Clock;

use tollgate_server::rules::load::{LoadOptions, load_all};
use tollgate_server::rules::tree::Rules;
use tollgate_server::serve::counts::{Algorithm, CountOptions, LimitCounts};
use tollgate_server::serve::decide::{DecisionOptions, decide};
use tollgate_server::serve::json;
use tollgate_server::serve::loaded::LoadedRules;
use tollgate_server::serve::messages::RateLimitRequest;

/// Rules with each field: the requests of the corpus have their keys.
const RULES: &str = include_str!("rate_limits.yaml");
/// The burst of these rules. A bucket that is full has that many left, which may be more than its
/// tokens of a period.
const BURST: u32 = 3;

fn counts(algorithm: Algorithm) -> LimitCounts {
    let clock = Clock::mock().0;
    LimitCounts::new(&CountOptions { max_keys: 1_024, clock, algorithm })
}

/// Reads a text as the only file of a configuration, and looks its words up in it.
pub fn read_rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let loaded = load_all(&[("a.yaml".to_owned(), text.clone())], LoadOptions::default());
    if loaded.errors.is_empty() {
        ask_each_word(&loaded.rules, &text);
        // More texts of limits than there may be are an error.
        let _ = counts(Algorithm::TokenBucket).load(loaded.rules);
    }
}

fn ask_each_word(rules: &Rules, text: &str) {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '*').collect();
    for domain in words.iter().filter_map(|word| rules.domain(word)) {
        for pair in words.windows(2) {
            for depth in 1..=3 {
                if let Some(limit) = domain.find(pair.iter().map(|key| (*key, pair[1])).take(depth)) {
                    assert!((limit.id as usize) < rules.limits().len());
                }
            }
        }
    }
}

/// Reads bytes as a message of gRPC, or of JSON behind a `{`, and decides on it twice.
pub fn decide_on(bytes: &[u8]) {
    static STATES: LazyLock<Vec<(LimitCounts, LoadedRules)>> = LazyLock::new(|| {
        let states = [Algorithm::FixedWindow, Algorithm::TokenBucket].map(|algorithm| {
            let rules = load_all(&[("a.yaml".to_owned(), RULES.to_owned())], LoadOptions::default());
            assert!(rules.errors.is_empty(), "{:?}", rules.errors);
            let counts = counts(algorithm);
            let loaded = counts.load(rules.rules).expect("few texts");
            (counts, loaded)
        });
        states.into()
    });
    let request = match bytes {
        [b'{', ..] => json::request(bytes).ok(),
        _ => RateLimitRequest::decode(bytes).ok(),
    };
    let Some(request) = request else { return };
    for (counts, loaded) in STATES.iter() {
        for stops_when_over in [false, true] {
            let options =
                DecisionOptions { stops_when_over, tells_metadata: true, ..DecisionOptions::default() };
            let Ok(answer) = decide(loaded, counts, &options, &request, counts.now()) else { continue };
            assert_eq!(answer.statuses.len(), request.descriptors.len());
            for status in &answer.statuses {
                assert!(
                    status
                        .current_limit
                        .as_ref()
                        .is_none_or(|limit| status.limit_remaining <= limit.requests_per_unit.max(BURST))
                );
            }
            let encoded = answer.encode_to_vec();
            assert_eq!(encoded.len(), answer.encoded_len());
            json::response(&answer);
        }
    }
}
