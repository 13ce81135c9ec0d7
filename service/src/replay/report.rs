//! The report of a replay: JSON, and the same as text.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::logs::LogSource;
use super::order::SPAN;
use super::run::{Asked, Replay, Side};
use crate::rules::tree::{Amount, RuleLimit};

/// The most refused keys that are named for each limit.
const MOST_REFUSED: usize = 20;
/// The shares of refusals for which the smallest limit is told.
const SHARES: [(&str, f64); 3] = [("under 1 %", 0.01), ("under 0.1 %", 0.001), ("none", 0.0)];
/// A log is in doubt if more than one line in this number is late.
const LATE: u64 = 10;
/// The width of the row of blocks.
const COLUMNS: usize = 60;

impl Replay {
    pub(super) fn report(&self) -> Value {
        json!({
            "requests": self.requests,
            "unreadable": self.sum(|log| log.unreadable),
            "late": self.sum(|log| log.late),
            "logs": self.logs.iter().map(LogSource::report).collect::<Vec<_>>(),
            "refused_only_by": if self.sides.len() == 2 { json!(self.only) } else { Value::Null },
            "sides": self.sides.iter().map(Side::report).collect::<Vec<_>>(),
        })
    }

    fn sum(&self, of: fn(&LogSource<Asked>) -> u64) -> u64 {
        self.logs.iter().map(of).sum()
    }

    /// Returns the sentences for which the report is not that of the logs.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        for log in &self.logs {
            let LogSource { name, lines, unreadable, late, .. } = log;
            if unreadable * 2 > *lines {
                let first = log.first_unreadable().unwrap_or_default();
                doubts.push(format!(
                    "{unreadable} of {lines} lines of {name} cannot be read; the first is {first}"
                ));
            }
            if late * LATE > *lines {
                doubts.push(format!(
                    "{late} of {lines} lines of {name} stand over {} s behind later ones, and count at the wrong \
                     time: name each file by itself",
                    SPAN.as_secs()
                ));
            }
        }
        for (name, _) in self.headers.borrow().iter().filter(|(_, is_there)| !**is_there) {
            doubts.push(format!(
                "no line has the header {name}, which the check reads: its requests count by their clients; log it, \
                 or name its field by --field header:{name}=FIELD"
            ));
        }
        if let Some(side) = self.sides.iter().position(|side| side.unlimited == self.requests) {
            let side = ["the first", "the other"][side];
            doubts.push(format!(
                "no request met a limit of {side} configuration: see the domain and the descriptors of the check"
            ));
        }
        doubts
    }

    pub(super) fn text(&self, report: &Value) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} requests, {} lines that cannot be read, {} later than 60 s",
            self.requests, report["unreadable"], report["late"]
        );
        for log in self.logs.iter().filter(|log| log.unreadable + log.late > 0) {
            let LogSource { name, lines, unreadable, late, .. } = log;
            let first =
                log.first_unreadable().map_or(String::new(), |first| format!("; the first is {first}"));
            let _ = writeln!(
                text,
                "  {name}: {lines} lines, {unreadable} that cannot be read, {late} later{first}"
            );
        }
        let _ = writeln!(text, "refused over time: [{}]", self.timeline.blocks(COLUMNS));
        for (index, side) in report["sides"].as_array().into_iter().flatten().enumerate() {
            if self.sides.len() == 2 {
                let _ = writeln!(
                    text,
                    "\n== {}: {} that the other one grants",
                    ["first", "--against"][index],
                    self.only[index]
                );
            }
            let _ = writeln!(
                text,
                "{} refused{}; {} met no limit",
                side["refused"],
                share(&side["refused"], &json!(self.requests)),
                side["unlimited"]
            );
            if let Some(logged) = side["logged"].as_object() {
                let _ = writeln!(
                    text,
                    "{} of {} logged decisions agree; {} refused by the log alone, {} by the replay alone",
                    logged["agree"],
                    logged["decisions"],
                    logged["refused_by_log"],
                    logged["refused_by_replay"]
                );
            }
            for limit in side["limits"].as_array().into_iter().flatten() {
                write_limit(&mut text, limit);
            }
        }
        text
    }
}

impl Side {
    /// Returns how the decisions of the log agree with those of the replay; nothing without any.
    fn agreement(&self) -> Value {
        let [[both_granted, by_replay], [by_log, both_refused]] = self.logged;
        let agree = both_granted + both_refused;
        match agree + by_replay + by_log {
            0 => Value::Null,
            decisions => json!({
                "decisions": decisions,
                "agree": agree,
                "refused_by_log": by_log,
                "refused_by_replay": by_replay,
            }),
        }
    }

    fn report(&self) -> Value {
        let limits = self.loaded.rules.limits().zip(&self.tallies).map(|(limit, tally)| {
            let (keys, keys_refused) = tally.keys();
            let minute = Duration::from_secs(tally.worst.0 * 60);
            let worst = (tally.worst.1 > 0).then(|| {
                json!({"at": humantime::format_rfc3339_seconds(UNIX_EPOCH + minute).to_string(), "refused": tally.worst.1})
            });
            let most = tally.most_refused(MOST_REFUSED);
            json!({
                "at": limit.at.to_string(),
                "limit": amount(limit),
                "requests": tally.requests,
                "refused": tally.refused,
                "keys": keys,
                "keys_refused": keys_refused,
                "worst_minute": worst,
                "most_refused": most.iter().map(|(key, n)| json!({"key": key, "refused": n})).collect::<Vec<_>>(),
                "smallest": SHARES.iter().map(|(name, share)| ((*name).to_owned(), json!(tally.smallest(*share)))).collect::<serde_json::Map<_, _>>(),
            })
        });
        json!({
            "refused": self.refused,
            "unlimited": self.unlimited,
            "logged": self.agreement(),
            "limits": limits.collect::<Vec<_>>(),
        })
    }
}

fn amount(limit: &RuleLimit) -> String {
    match &limit.amount {
        Amount::Unlimited => "unlimited".to_owned(),
        Amount::Window { unit, requests } => format!("{requests} per {}", unit.text()),
        Amount::Windows { unit, times, requests, .. } => format!("{requests} per {times} {}s", unit.text()),
        Amount::Text(text, _) => text.to_string(),
    }
}

fn share(part: &Value, of: &Value) -> String {
    let (part, of) = (part.as_f64().unwrap_or(0.0), of.as_f64().unwrap_or(0.0));
    if of > 0.0 { format!(" ({:.2} %)", 100.0 * part / of) } else { String::new() }
}

fn write_limit(text: &mut String, limit: &Value) {
    let words = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let _ = writeln!(text, "\n{}: {}", words(&limit["at"]), words(&limit["limit"]));
    let _ = writeln!(
        text,
        "  {} requests, {} refused{}; {} keys, {} of them refused",
        limit["requests"],
        limit["refused"],
        share(&limit["refused"], &limit["requests"]),
        limit["keys"],
        limit["keys_refused"],
    );
    if limit["requests"] == 0 {
        return;
    }
    if let Some(worst) = limit["worst_minute"].as_object() {
        let _ = writeln!(text, "  worst minute: {} refused at {}", worst["refused"], words(&worst["at"]));
    }
    let smallest = SHARES.iter().map(|(name, _)| format!("{name}: {}", words(&limit["smallest"][name])));
    let _ = writeln!(text, "  smallest limit that refuses {}", smallest.collect::<Vec<_>>().join(", "));
    for refused in limit["most_refused"].as_array().into_iter().flatten() {
        let _ =
            writeln!(text, "  {:>9} {}", refused["refused"].as_u64().unwrap_or(0), words(&refused["key"]));
    }
}
