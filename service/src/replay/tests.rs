use std::fs;
use std::io::{Cursor, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tollgate::Clock;
use tollgate_testing::Random;

use super::command::{ReplayOptions, run};
use super::lines::FieldNames;
use super::logs::LogSource;
use super::run::{Replay, Side};
use crate::rules::load::{LoadOptions, load};
use crate::serve::checks::{Check, CheckedRequest};
use crate::serve::counts::{Algorithm, CountOptions, LimitCounts};
use crate::serve::decide::{DecisionOptions, decide};
use crate::serve::messages::Code;

const RULES: &str = r#"
domain: edge
descriptors:
  - key: ip
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    value: /login
    rate_limit: {limit: "2/m"}
"#;

const PROFILE: &str = r#"
[check.edge]
domain = "edge"
from = []
descriptors = [{ ip = "{client}" }, { path = "{path}" }]
"#;

fn rules(text: &str) -> crate::rules::tree::Rules {
    load(&[("edge.yaml".to_owned(), text.to_owned())], LoadOptions::default()).expect("valid rules")
}

fn check() -> Check {
    Check::all(PROFILE).expect("a valid profile").remove("edge").expect("its table")
}

fn replay(sides: &[&str], log: &str) -> (Replay, Value) {
    replay_by(Algorithm::FixedWindow, sides, log)
}

fn replay_by(algorithm: Algorithm, sides: &[&str], log: &str) -> (Replay, Value) {
    let options = || CountOptions { algorithm, ..CountOptions::default() };
    let sides = sides.iter().map(|text| Side::new(rules(text), options()).expect("few texts"));
    let mut replay = Replay::new(check(), FieldNames::default(), sides.collect());
    let mut bytes = 0;
    let logs = vec![LogSource::of("log", Cursor::new(log.to_owned()))];
    replay.read(logs, &mut |line| bytes += line).expect("no error of a file");
    assert_eq!(bytes, log.len());
    let report = replay.report();
    (replay, report)
}

fn line(at: u64, client: u64, path: &str) -> String {
    format!("{{\"time\":{at},\"client\":\"192.0.2.{client}\",\"path\":\"{path}\"}}\n")
}

/// The refusals of a service that is asked at the times of a log, which is in order.
fn live(log: &[(u64, u64, &str)]) -> u64 {
    let (clock, mock) = Clock::mock();
    let counts = LimitCounts::new(&CountOptions { clock, ..CountOptions::default() });
    let loaded = counts.load(rules(RULES)).expect("few texts");
    let (check, mut now, mut refused) = (check(), 0, 0);
    for (at, client, path) in log {
        mock.advance(Duration::from_secs(at - now));
        now = *at;
        let client = format!("192.0.2.{client}").into();
        let asked = CheckedRequest { client, method: "GET", target: path, host: "", header: &|_| None };
        let options = DecisionOptions::default();
        let answer = decide(&loaded, &counts, &options, &check.message(&asked), counts.now());
        refused += u64::from(answer.expect("a decision").overall_code() == Code::OverLimit);
    }
    refused
}

#[test]
fn a_log_is_refused_what_a_live_service_refuses_in_whatever_order_its_lines_are() {
    let mut random = Random(44);
    for _ in 0..20 {
        let mut at = 1_795_745_400;
        let mut log: Vec<_> = (0..500)
            .map(|_| {
                at += 1 + random.below(4);
                (at, random.below(5), random.pick(&["/", "/login", "/%6cogin"]))
            })
            .collect();
        let wanted = live(&log);
        // Each line is up to 50 s late.
        log.sort_by_cached_key(|(at, ..)| at + random.below(50));
        let text: String = log.iter().map(|(at, client, path)| line(*at, *client, path)).collect();
        let (_, report) = replay(&[RULES], &text);
        assert_eq!((&report["requests"], &report["late"]), (&500.into(), &0.into()));
        assert_eq!(report["sides"][0]["refused"], wanted);
        assert!(wanted > 0);
    }
}

#[test]
fn the_report_tells_keys_the_worst_minute_and_the_smallest_limits() {
    let begin = 1_795_745_400 / 60 * 60;
    // 5 requests of one client in a minute, then 4, and one of each of 90 others.
    let mut text: String = (0..5).map(|second| line(begin + second, 200, "/")).collect();
    text.extend((0..4).map(|second| line(begin + 60 + second, 200, "/")));
    text.extend((0..90).map(|client| line(begin + 120, client, "/")));
    text.push_str("no line of a log\n\n");
    let (replay, report) = replay(&[RULES], &text);
    assert_eq!((&report["requests"], &report["unreadable"]), (&99.into(), &1.into()));
    let limit = &report["sides"][0]["limits"][0];
    assert_eq!(limit["limit"], "3 per minute");
    for (name, wanted) in [("requests", 99), ("refused", 3), ("keys", 91), ("keys_refused", 1)] {
        assert_eq!(limit[name], wanted, "{name}");
    }
    assert_eq!(limit["worst_minute"]["refused"], 2);
    assert_eq!(limit["most_refused"][0]["key"], "ip=192.0.2.200");
    // A limit of 4 refuses 1 of 99, which is not under 1 %.
    assert_eq!([&limit["smallest"]["under 1 %"], &limit["smallest"]["none"]], ["5", "5"]);
    let words = replay.text(&report);
    for part in ["99 requests, 1 lines", "3 refused (3.03 %)", "2 refused at 20", "        3 ip=192.0.2.200"]
    {
        assert!(words.contains(part), "no {part:?} in {words}");
    }
    assert!(replay.timeline.svg().starts_with("<svg"));
}

#[test]
fn a_limit_of_text_form_is_tried_at_its_multiples() {
    let text: String = (0..16).map(|_| line(1_795_745_400, 1, "/login")).collect();
    let (_, report) = replay(&[RULES], &text);
    let limit = &report["sides"][0]["limits"][1];
    assert_eq!((&limit["refused"], &limit["smallest"]["none"]), (&14.into(), &"16/m burst 16".into()));
}

/// Weeks begin on Monday for the limit and for the smallest one. A Thursday is no edge.
#[test]
fn the_smallest_limit_of_a_week_counts_the_weeks_of_the_service() {
    let weekly = RULES.replace("unit: minute", "unit: week");
    // A Tuesday, and the Friday of the same week.
    let times = [1_790_078_400, 1_790_078_401, 1_790_337_600, 1_790_337_601];
    let text: String = times.iter().map(|at| line(*at, 1, "/")).collect();
    let limit = &replay(&[&weekly], &text).1["sides"][0]["limits"][0];
    assert_eq!((&limit["refused"], &limit["smallest"]["none"]), (&1.into(), &"4".into()));
}

#[test]
fn the_smallest_limit_of_a_bucket_is_a_bucket() {
    let begin = 1_795_745_400 / 60 * 60;
    // Three at the end of a minute and three at the begin of the next are within each window.
    let text: String = (57..63).map(|second| line(begin + second, 1, "/")).collect();
    let limit = &replay(&[RULES], &text).1["sides"][0]["limits"][0];
    assert_eq!((&limit["refused"], &limit["smallest"]["none"]), (&0.into(), &"3".into()));
    let limit = &replay_by(Algorithm::TokenBucket, &[RULES], &text).1["sides"][0]["limits"][0];
    assert_eq!((&limit["refused"], &limit["smallest"]["none"]), (&3.into(), &"6/m burst 6".into()));
}

/// Such as milliseconds in place of seconds.
#[test]
fn a_time_beyond_the_clock_is_no_line() {
    let text: String = (0..9).map(|n| line(1_795_745_400_000 + n, 1, "/login")).collect();
    let (replay, report) = replay(&[RULES], &text);
    assert_eq!((&report["requests"], &report["unreadable"]), (&0.into(), &9.into()));
    assert!(replay.timeline.svg().starts_with("<svg"));
}

/// Each decision of a live service is logged, but the first line has one that is wrong.
#[test]
fn logged_decisions_are_set_beside_those_of_the_replay() {
    let logged = |decisions: [&str; 7]| {
        let line = |decision: &&str| line(1_795_745_400, 1, "/").replace('}', &format!("{decision}}}"));
        replay(
            &[RULES, &RULES.replace("unit: 3", "unit: 8")],
            &decisions.iter().map(line).collect::<String>(),
        )
    };
    let (ok, over) = (r#","decision":"ok""#, r#","decision":"over""#);
    let (replay, report) = logged([over, ok, ok, over, over, ok, ""]);
    let told = |agree: u64, by_log: u64, by_replay: u64| {
        serde_json::json!(
            {"decisions": 6, "agree": agree, "refused_by_log": by_log, "refused_by_replay": by_replay}
        )
    };
    assert_eq!(
        [&report["sides"][0]["logged"], &report["sides"][1]["logged"]],
        [&told(4, 1, 1), &told(3, 3, 0)]
    );
    let line = "4 of 6 logged decisions agree; 1 refused by the log alone, 1 by the replay alone\n";
    assert!(replay.text(&report).contains(line), "{}", replay.text(&report));
    let (replay, report) = logged([""; 7]);
    assert!(report["sides"][0]["logged"].is_null() && !replay.text(&report).contains("logged"));
}

#[test]
fn the_clients_of_a_network_are_one_key() {
    let by_network = RULES.replace("key: ip\n", "key: ip\n    ipv4_prefix: 24\n");
    let text: String = (0..10).map(|client| line(1_795_745_400, client, "/")).collect();
    let (_, report) = replay(&[&by_network, RULES], &text);
    assert_eq!([&report["sides"][0]["refused"], &report["sides"][1]["refused"]], [7, 0]);
    let limit = &report["sides"][0]["limits"][0];
    assert_eq!(limit["most_refused"][0]["key"], "ip=192.0.2.0/24");
}

#[test]
fn two_configurations_are_set_side_by_side() {
    let text: String = (0..10).map(|_| line(1_795_745_400, 1, "/")).collect();
    let (replay, report) = replay(&[RULES, &RULES.replace("unit: 3", "unit: 8")], &text);
    assert_eq!(report["refused_only_by"], serde_json::json!([5, 0]));
    assert_eq!([&report["sides"][0]["refused"], &report["sides"][1]["refused"]], [7, 2]);
    assert!(replay.text(&report).contains("== first: 5 that the other one grants"));
}

#[test]
fn hostile_lines_end_nothing() {
    let mut text = vec![b'x'; 3 << 20];
    text.extend(b"\n\xff\xfe\n{\"time\":1e308,\"client\":\"a\",\"path\":\"/\"}\n");
    text.extend(line(u64::MAX / 2_000_000_000, 1, "/").bytes());
    text.extend(line(1, 1, "/").bytes());
    let side = Side::new(rules(RULES), CountOptions::default()).expect("few texts");
    let mut replay = Replay::new(check(), FieldNames::default(), vec![side]);
    replay.read(vec![LogSource::of("log", Cursor::new(text))], &mut |_| ()).expect("no error of a file");
    assert_eq!((replay.requests, replay.logs[0].unreadable), (2, 5));
}

/// The times of three files that overlap, or do not, with lines up to 50 s late.
#[test]
fn the_report_is_the_same_in_whatever_order_the_logs_are() {
    let mut random = Random(11);
    let folder = tempfile::tempdir().expect("a folder");
    let mut at = 1_795_745_400;
    let mut log: Vec<_> = (0..600)
        .map(|_| {
            at += random.below(5);
            (at, random.below(4), random.pick(&["/", "/login"]))
        })
        .collect();
    let wanted = live(&log);
    log.sort_by_cached_key(|(at, ..)| at + random.below(50));
    // Rotated, and written by several processes at a time. The first one is compressed.
    let mut texts = vec![String::new(); 6];
    for (number, (at, client, path)) in log.iter().enumerate() {
        let file = if number < 300 { number / 100 } else { 3 + random.below(3) as usize };
        texts[file] += &line(*at, *client, path);
    }
    let mut names: Vec<_> = (1..=6).map(|n| folder.path().join(format!("access.log.{n}"))).collect();
    for (name, text) in names.iter().zip(&texts) {
        fs::write(name, text).expect("it is written");
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(texts[0].as_bytes()).expect("it is in memory");
    fs::write(&names[0], gzip.finish().expect("it is in memory")).expect("it is written");
    for _ in 0..6 {
        names.rotate_left(1);
        let swapped = random.below(6) as usize;
        names.swap(0, swapped);
        let side = Side::new(rules(RULES), CountOptions::default()).expect("few texts");
        let mut replay = Replay::new(check(), FieldNames::default(), vec![side]);
        let logs = names.iter().map(|name| LogSource::new(&name.to_string_lossy())).collect();
        replay.read(logs, &mut |_| ()).expect("they can be read");
        let report = replay.report();
        assert_eq!((&report["requests"], &report["late"]), (&600.into(), &0.into()));
        assert_eq!(report["sides"][0]["refused"], wanted);
        assert_eq!(replay.doubts(), Vec::<String>::new());
    }
}

/// A file whose first line stands far behind later ones counts it as late, and ends nothing.
#[test]
fn a_line_from_before_the_begin_of_its_file_is_late() {
    let begin = 1_795_745_400;
    let text: String = [begin, begin + 200, begin - 3_600].map(|at| line(at, 1, "/")).concat();
    let (replay, report) = replay(&[RULES], &text);
    assert_eq!((&report["requests"], &report["late"]), (&3.into(), &1.into()));
    assert!(
        replay.doubts()[0].starts_with("1 of 3 lines of log stand over 60 s behind"),
        "{:?}",
        replay.doubts()
    );
}

/// Runs the command with these arguments, of which `{}` is a folder with the files.
fn command(files: &[(&str, &[u8])], arguments: &str) -> Result<bool, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let defaults = [("limits.yaml", RULES.as_bytes()), ("check.toml", PROFILE.as_bytes())];
    for (name, content) in defaults.iter().chain(files) {
        fs::write(folder.path().join(name), content).expect("it is written");
    }
    let arguments = arguments.replace("{}", &folder.path().to_string_lossy());
    let command = ReplayOptions::of(clap::Command::new("replay").no_binary_name(true));
    let matches = command.try_get_matches_from(arguments.split(' ')).map_err(|error| error.to_string())?;
    run(&ReplayOptions::given(&matches).map_err(|error| error.to_string())?)
}

#[test]
fn a_report_on_nothing_is_an_error() {
    let lines = |count| (0..count).map(|_| line(1_795_745_400, 1, "/")).collect::<String>();
    let half = format!("{}x\ny\n\n", lines(1));
    let most = format!("{}x\u{1b}\ny\n", lines(1));
    let late = [400, 600, 0].map(|at| line(1_795_745_000 + at, 1, "/")).concat();
    let other = PROFILE.replace("domain = \"edge\"", "domain = \"none\"");
    let header =
        PROFILE.replace("{ ip = \"{client}\" }, { path = \"{path}\" }", "{ ip = \"{header:x-key}\" }");
    let good = lines(4);
    for (profile, log, wanted) in [
        (PROFILE, good.as_bytes(), Ok(true)),
        (PROFILE, half.as_bytes(), Ok(true)),
        (PROFILE, most.as_bytes(), Ok(false)),
        (PROFILE, late.as_bytes(), Ok(false)),
        (PROFILE, b"", Err("there is no line in ")),
        (PROFILE, b"x\x1b\ny\n", Err("no line can be read; the first is {}/a.log:1: x\\u{1b}")),
        (PROFILE, b"\x28\xb5\x2f\xfd....", Err("`zstdcat {}/a.log | tollgate replay")),
        (PROFILE, b"\x1f\x8b\x08\0....", Err("cannot read {}/a.log: ")),
        (&other, good.as_bytes(), Ok(false)),
        (&header, good.as_bytes(), Ok(false)),
    ] {
        let files = [("check.toml", profile.as_bytes()), ("a.log", log)];
        let found = command(&files, "{}/limits.yaml --config {}/check.toml --check edge {}/a.log");
        match (found, wanted) {
            (Err(error), Err(part)) => {
                let (before, behind) = part.split_once("{}").unwrap_or((part, ""));
                assert!(error.contains(before) && error.contains(behind), "{error}");
            }
            (found, wanted) => assert_eq!(found, wanted.map_err(str::to_owned), "{profile}"),
        }
    }
}

#[test]
fn an_option_may_stand_between_the_name_of_a_check_and_its_logs() {
    let text = line(1_795_745_400, 1, "/");
    let files = [("a.log", text.as_bytes()), ("b.log", text.as_bytes())];
    for (arguments, wanted) in [
        ("{}/limits.yaml --config {}/check.toml --check edge {}/a.log {}/b.log", Ok(true)),
        ("{}/limits.yaml --config {}/check.toml --check edge --json {}/a.log {}/b.log", Ok(true)),
        ("{}/limits.yaml --check edge --config {}/check.toml --json {}/a.log", Ok(true)),
        ("--config {}/check.toml --check edge {}/a.log --json {}/limits.yaml", Ok(true)),
        ("{}/limits.yaml --config {}/check.toml --check edge", Err("--check needs a log behind its name")),
        (
            "--config {}/check.toml --check edge --json {}/a.log",
            Err("--check needs the files of the limits before it"),
        ),
        ("{}/limits.yaml --config {}/check.toml --check edge {}/a.log {}/a.log", Err("a.log is given twice")),
        ("{}/limits.yaml --config {}/check.toml --check edge {}/none.log", Err("cannot read ")),
        ("{}/limits.yaml --config {}/check.toml --check edge {}", Err("Is a directory")),
    ] {
        match (command(&files, arguments), wanted) {
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (found, wanted) => assert_eq!(found, wanted.map_err(str::to_owned), "{arguments}"),
        }
    }
}

/// Each limit of a list has the refusals of its own.
#[test]
fn a_list_has_an_account_of_each_limit() {
    let rules = "domain: edge\ndescriptors:\n  - key: ip\n    rate_limit: {limits: [2/m burst 2, {unit: hour, requests_per_unit: 3}]}\n";
    let begin = 1_795_745_400 / 3_600 * 3_600;
    let text: String =
        [0, 1, 2, 600, 601, 1_200].into_iter().map(|second| line(begin + second, 1, "/")).collect();
    let (_, report) = replay(&[rules], &text);
    let limits = &report["sides"][0]["limits"];
    assert_eq!((&limits[0]["refused"], &limits[1]["refused"]), (&1.into(), &3.into()));
    assert_eq!((&limits[0]["requests"], &report["sides"][0]["refused"]), (&6.into(), &4.into()));
    // In shadow mode each is counted, and refuses none.
    let (_, report) = replay(&[&rules.replace("key: ip", "key: ip\n    shadow_mode: true")], &text);
    let limits = &report["sides"][0]["limits"];
    assert_eq!([&limits[0]["refused"], &limits[1]["refused"]], [0, 0]);
    assert_eq!((&limits[0]["requests"], &report["sides"][0]["refused"]), (&6.into(), &0.into()));
}
