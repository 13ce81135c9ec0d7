//! The errors of the text forms: each names the text, the form, and the value with its bound.

use std::fmt::Display;
use std::str::FromStr;

use tollgate::{AnyRule, Quota, Window};

use tollgate_testing::{Random, size};

const QUOTA: &str = "a quota such as \"100/s burst 200\"";
const STRICT: &str = "a quota such as \"at most 5000/h burst 500\"";
const WINDOW: &str = "a window such as \"1000/d fixed utc\" or \"5/15m sliding\"";
const RULE: &str = "a rule such as \"100/s burst 200\" or \"1000/d fixed utc\"";

fn refused<T: FromStr<Err: Display>>(text: &str) -> String {
    match text.parse::<T>() {
        Ok(_) => panic!("{text:?} is read"),
        Err(error) => error.to_string(),
    }
}

/// Checks that the error has the whole text, the form of the type, and this fault.
fn says<T: FromStr<Err: Display>>(form: &str, cases: &[(&str, &str)]) {
    for (text, fault) in cases {
        assert_eq!(refused::<T>(text), format!("cannot read {text:?} as {form}: {fault}"));
    }
}

#[test]
fn a_text_that_is_no_quota_says_what_is_wrong_with_it() {
    let units = "a unit: ns, us, ms, s, m, h, d, w or its word";
    says::<Quota>(
        QUOTA,
        &[
            ("20 per second", "it has no \"/\" between a count and a period"),
            ("", "it has no \"/\" between a count and a period"),
            ("/s", "there is no count before the \"/\""),
            ("ten/s", "\"ten\" is not a whole number under 2^64"),
            ("+5/s", "\"+5\" is not a whole number under 2^64"),
            ("1e3/s", "\"1e3\" is not a whole number under 2^64"),
            ("18446744073709551616/s", "\"18446744073709551616\" is not a whole number under 2^64"),
            ("10/", "there is no period after the \"/\""),
            ("10/ burst 5", "there is no period after the \"/\""),
            ("100/10", &format!("the period \"10\" has no unit: {}", &units[8..])),
            ("10/fortnight", &format!("\"fortnight\" is not {units}")),
            ("10/1.5s", &format!("\".5s\" is not {units}")),
            ("10/S", &format!("\"S\" is not {units}")),
            ("50/month", "a civil month is a fixed window by the calendar: 50/month fixed utc"),
            ("10/s burst", "there is no count after \"burst\""),
            ("10/s burst ten", "\"ten\" is not a whole number under 2^64"),
            ("100/s bursts 50", "\"bursts\" is not \"burst\""),
            ("100/s Burst 50", "\"Burst\" is not \"burst\""),
            ("10/s burst 5 burst 6", "\"5 burst 6\" is not a whole number under 2^64"),
            ("5/15m sliding", "it is a window"),
            ("5/month fixed utc", "it is a window"),
            ("5/m sliding burst 3", "\"sliding\" is a word of windows"),
            ("5/d Fixed", "\"Fixed\" is not \"fixed\", a word of windows"),
            ("At most 5/h burst 1", "\"At most\" is not \"at most\""),
            ("0/s", "a quota of 0 tokens grants nothing: the least is 1"),
            ("1/0s", "a period of 0 ns has no rate: the least is 1 ns"),
            ("1/s burst 0", "a burst of 0 grants nothing: the least is 1"),
            (
                "1/s burst 1099511627777",
                "a burst of 1099511627777 is over the bound of 2^40 = 1099511627776 tokens",
            ),
            ("1/200000d", "a period of 17280000000000000000 ns is over the bound of 2^62 ns (146 years)"),
            ("1/99999999d", "a period of 8639999913600000000000 ns is over the bound of 2^62 ns (146 years)"),
        ],
    );
    says::<Quota>(
        STRICT,
        &[
            ("at most 5/h", "the burst is missing"),
            ("at most 5", "it has no \"/\" between a count and a period"),
            (
                "at most 5/h burst 5",
                "a burst of 5 is not below the limit of 5 tokens: nothing would be earned",
            ),
        ],
    );
}

#[test]
fn a_text_that_is_no_window_says_what_is_wrong_with_it() {
    let kinds = "\"fixed\", \"sliding\" or \"weighted\"";
    says::<Window>(
        WINDOW,
        &[
            ("ten", "it has no \"/\" between a count and a period"),
            ("/s fixed", "there is no count before the \"/\""),
            ("x/s fixed", "\"x\" is not a whole number under 2^64"),
            ("10/", "there is no period after the \"/\""),
            ("100/m", &format!("it is a quota: a window says {kinds}")),
            ("100/s burst 200", &format!("it is a quota: a window says {kinds}")),
            ("100/month", &format!("it does not say {kinds}")),
            ("100/m slide", &format!("\"slide\" is not {kinds}")),
            ("5/d Fixed", "\"Fixed\" is not \"fixed\""),
            ("5/15 fixed", "the period \"15\" has no unit: ns, us, ms, s, m, h, d, w or its word"),
            ("5/fortnight sliding", "\"fortnight\" is not a unit: ns, us, ms, s, m, h, d, w or its word"),
            ("5/m sliding burst 3", "a window has no burst: leave \"burst\" out"),
            ("5/m fixed utc 3", "\"3\" is one word too many"),
            ("5/m weighted 3", "\"3\" is one word too many"),
            ("5/month fixed", "a civil month is a fixed window by the calendar: 5/month fixed utc"),
            ("5/h sliding 0s", "a granularity of 0 ns is under the bound of 1 ns"),
            ("0/m fixed", "a limit of 0 tokens grants nothing: the least is 1"),
            ("5/100us fixed", "a window of 100000 ns is under the bound of 1 ms"),
        ],
    );
}

#[test]
fn a_text_that_is_no_rule_names_both_forms() {
    says::<AnyRule>(
        RULE,
        &[
            ("20 per second", "it has no \"/\" between a count and a period"),
            ("7/fortnight", "\"fortnight\" is not a unit: ns, us, ms, s, m, h, d, w or its word"),
            ("5/d Fixed", "\"Fixed\" is not \"fixed\""),
            ("5/m sliding burst 3", "a window has no burst: leave \"burst\" out"),
            ("0/d fixed utc", "a limit of 0 tokens grants nothing: the least is 1"),
            ("at most 5/h", "the burst is missing"),
        ],
    );
}

/// A week is a unit of every rule.
#[test]
fn a_quota_of_weeks_is_read() {
    for text in ["7/week", "7/1w", "7/2 weeks burst 7", "7/w burst 7"] {
        let weeks = if text.contains('2') { 2 } else { 1 };
        let quota = Quota::per(7, std::time::Duration::from_secs(weeks * 604_800));
        assert_eq!((text.parse(), text.parse()), (Ok(quota), Ok(AnyRule::from(quota))), "{text}");
    }
}

/// Texts of all the words of the grammar, and of near ones, in any order.
#[test]
fn each_text_is_read_or_its_error_names_the_text_and_no_empty_value() {
    const WORDS: [&str; 40] = [
        "",
        " ",
        "/",
        "0",
        "1",
        "5",
        "15",
        "007",
        "18446744073709551615",
        "18446744073709551616",
        "-1",
        "+2",
        "1.5",
        "s",
        "m",
        "h",
        "d",
        "w",
        "week",
        "month",
        "ms",
        "ns",
        "second",
        "fixed",
        "sliding",
        "weighted",
        "Fixed",
        "utc",
        "utc+2",
        "utc-11",
        "utc+999",
        "burst",
        "bursts",
        "at most",
        "at",
        "most",
        "10/s",
        "5/15m",
        "\u{665}",
        "\u{0}",
    ];
    fn check<T: FromStr<Err: Display> + Display>(text: &str, forms: &[&str]) -> bool {
        match text.parse::<T>() {
            Ok(value) => {
                let written = value.to_string();
                let again = written.parse::<T>().unwrap_or_else(|error| panic!("{text:?}: {error}"));
                assert_eq!(again.to_string(), written, "{text:?}");
                true
            }
            Err(error) => {
                let message = error.to_string();
                let named = forms.iter().any(|form| {
                    let fault = message.strip_prefix(&format!("cannot read {text:?} as {form}: "));
                    fault.is_some_and(|fault| !fault.is_empty() && !fault.contains("\"\""))
                });
                assert!(named, "{message}");
                assert!(!message.contains('\n') && !message.ends_with('.'), "{message}");
                false
            }
        }
    }
    let mut random = Random(3);
    let mut read = [0; 3];
    for _ in 0..size(20_000, 200_000) {
        let words = 1 + random.below(6);
        let spaced = random.below(2) == 0;
        let mut text = String::new();
        for word in 0..words {
            if spaced && word > 0 {
                text.push(' ');
            }
            text.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
        }
        read[0] += usize::from(check::<Quota>(&text, &[QUOTA, STRICT]));
        read[1] += usize::from(check::<Window>(&text, &[WINDOW]));
        read[2] += usize::from(check::<AnyRule>(&text, &[RULE]));
    }
    assert!(read.iter().all(|read| *read > size(5, 50)), "{read:?}");
}

#[cfg(feature = "serde")]
#[test]
fn an_error_of_serde_is_that_of_the_text() {
    fn error<T: serde::de::DeserializeOwned + std::fmt::Debug>(json: &str) -> String {
        serde_json::from_str::<T>(json).expect_err("it is none").to_string()
    }
    let text = error::<Quota>("\"5/15m sliding\"");
    let wanted = refused::<Quota>("5/15m sliding");
    assert!(text.starts_with(&wanted), "{text}");
    assert!(error::<Window>("\"100/m\"").starts_with(&refused::<Window>("100/m")));
    assert!(error::<AnyRule>("\"7/fortnight\"").starts_with(&refused::<AnyRule>("7/fortnight")));
    assert!(error::<Quota>("5").contains(QUOTA) && error::<Window>("5").contains(WINDOW));
    assert!(error::<AnyRule>("5").contains(RULE));
}

/// The texts that an error advises are read as rules: the examples of its form, and others in
/// quotes or after a colon. None has a method's name, which the writer of a text cannot say.
#[test]
fn each_advised_text_is_read() {
    const WORDS: [&str; 13] = [
        "5000/h", "0", "7", "/", "month", "0/s", "5/month", "sliding", "fixed", "utc+2", "burst", "at most",
        "9",
    ];
    let mut random = Random(1);
    let mut advised = 0;
    let mut read = |text: &str, error: &str| {
        let said = &error[error.find(text).expect("it names the text") + text.len()..];
        // The other quotes have a part of the given text, and so may the end.
        let quoted = said.split('"').skip(2).step_by(2);
        let quoted = quoted.filter(|part| part.contains('/') && *part != "/" && !text.contains(part));
        let colon = said
            .rsplit_once(": ")
            .map(|(_, end)| end)
            .filter(|end| end.contains("/month") && !end.starts_with('"'));
        for text in quoted.chain(colon) {
            assert!(text.parse::<AnyRule>().is_ok(), "{error}: {text:?} is not read");
            advised += 1;
        }
        assert!(!error.contains("::") && !error.contains("headroom"), "{error}");
    };
    for text in ["5000/h sliding", "5000/h sliding 1m", "1000000/m sliding", "5/month fixed", "5/month"] {
        read(text, &text.parse::<AnyRule>().unwrap_err().to_string());
    }
    for _ in 0..size(5_000, 50_000) {
        let words = (0..1 + random.below(4)).map(|_| WORDS[random.below(13) as usize]);
        let text = words.collect::<Vec<_>>().join(" ");
        let errors =
            [text.parse::<Quota>().err(), text.parse::<Window>().err(), text.parse::<AnyRule>().err()];
        errors.into_iter().flatten().for_each(|error| read(&text, &error.to_string()));
    }
    for _ in 0..10_000 {
        let [limit, period] = [40, 58].map(|bits| 1 << random.below(bits));
        let (limit, period) = (1 + random.below(limit), 1_000_000 + random.below(period));
        let longest =
            if random.below(2) == 0 { String::new() } else { format!(" {}ns", random.below(period) + 1) };
        let text = format!("{limit}/{period}ns sliding{longest}");
        if let Err(error) = text.parse::<AnyRule>() {
            read(&text, &error.to_string());
        }
    }
    assert!(advised > 10_000, "{advised}");
}
