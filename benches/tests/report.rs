//! The page of a run that never was: its numbers are made up so that what is to be said of them is known.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_benches::report;
use tollgate_benches::results::{
    About, Case, Latencies, Law, Memory, Proxy, Results, Room, Shares, Start, Times,
};

#[test]
fn a_ratio_is_computed_in_each_round() {
    let mut results = Results::default();
    results.times.push(times("one bucket", "granted", 2, 1, "tollgate", &[11.0, 21.0, 10.0]));
    results.times.push(times("one bucket", "granted", 2, 1, "std mutex", &[41.0, 201.0, 20.0]));
    // Net of a loop of 1 ns: 10/40, 20/200, 9/19. The ratio of the medians would be 10/40 too, of raw ones 11/41.
    let page = page("ratio", &results);
    assert_has(&page, "| 2 | std mutex | 40.0 (29.5 to 120) | 41.0 (30.5 to 121) | 0.250 (0.175 to 0.362) |");
    assert_has(
        &page,
        "With 2 threads tollgate takes 10.0 ns and is 4.00 times as fast as std mutex (ratio 0.250, quartiles 0.175 to 0.362).",
    );
    assert_has(
        &page,
        "| one bucket, granted, 2 threads | tollgate / std mutex | 0.250 (0.175 to 0.362) | ≤ 0.27 | reached |",
    );
}

#[test]
fn a_loss_is_listed_with_its_reason() {
    let mut results = Results::default();
    for (contender, ns) in [("tollgate", 15.0), ("governor", 11.0), ("someone else", 9.0)] {
        results.times.push(times("keyed, uniform", "granted", 1, 1_000, contender, &[ns; 3]));
    }
    results.laws.push(law("someone else", 30_000));
    let page = page("loss", &results);
    assert_has(&page, "in the same case, 2 times, and lost 2 of them, to `governor` 1, `someone else` 1.");
    // One row, the fastest first.
    let row = "| keyed, uniform, 1,000 keys, granted, 1 thread | tollgate | `someone else` 1.750, `governor` 1.400 | ";
    let row = page.lines().find_map(|line| line.strip_prefix(row)).expect("a row of the case");
    assert_has(row, "`someone else`: no reason known; `governor`: a guard of the map costs");
    assert_has(row, "`someone else` does not keep the law: 30,000 granted where 20,000 are allowed |");
    let verdict = "0 of 1 contender kept the law each time. Granted more than the law allows, so not timed: `someone else`.";
    assert_has(&page, verdict);
}

#[test]
fn only_like_is_lost_to() {
    let mut results = Results::default();
    for (contender, ns) in [
        ("tollgate", 21.0),
        ("tollgate, coarse clock", 11.0),
        ("tollgate, reading at hand", 11.0),
        ("governor", 16.0),
        ("governor, upkeep clock", 9.0),
        ("better-bucket, reading at hand", 6.0),
        ("none: the two readings", 2.0),
    ] {
        results.times.push(times("one bucket", "granted", 1, 1, contender, &[ns; 3]));
    }
    let page = page("like", &results);
    let case = "| one bucket, granted, 1 thread | ";
    let rows =
        page.lines().filter_map(|line| line.strip_prefix(case)?.split_once(" | a peer's word is one time"));
    let rows = rows.map(|(row, _)| row).filter(|row| row.contains('`'));
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            "tollgate | `governor` 1.333",
            "tollgate, coarse clock | `governor, upkeep clock` 1.250",
            "tollgate, reading at hand | `better-bucket, reading at hand` 2.00",
        ]
    );
    assert_has(&page, "the fastest peer that reads a clock each time is governor at 15.0 ns");
}

#[test]
fn what_the_rounds_do_not_tell_says_so() {
    let mut results = Results::default();
    results.times.push(times("one bucket", "granted", 1, 1, "tollgate", &[9.0, 12.0, 13.0, 14.0, 9.0]));
    results.times.push(times("one bucket", "granted", 1, 1, "governor", &[11.0; 5]));
    for (contender, jain) in [("tollgate", [0.9, 0.8, 0.7]), ("governor", [0.8, 0.81, 0.8])] {
        results.shares.push(Shares { jain: jain.to_vec(), ..shares(contender, 1.0) });
    }
    let page = page("untold", &results);
    assert_has(&page, "| `governor` 1.100 (0.800 to 1.200: the rounds do not tell) |");
    assert_has(
        &page,
        "lost 0 of them. In 1 more the median ratio is above 1.000, but the rounds do not tell.",
    );
    assert!(!page.contains("| fairness, one bucket"), "of fairness only what the rounds tell");
}

#[test]
fn words_follow_the_numbers() {
    let with = |ours: f64| {
        let mut results = Results::default();
        results.times.push(times("one bucket", "refused", 1, 1, "tollgate", &[ours; 3]));
        results.times.push(times("one bucket", "refused", 1, 1, "std mutex", &[11.0; 3]));
        page("words", &results)
    };
    let (won, lost) = (with(3.0), with(12.0));
    assert_has(&won, "5.00 times as fast as std mutex");
    assert_has(&won, "A refusal writes nothing");
    assert!(!won.contains("## Where it loses"));
    assert_has(&lost, "10 % slower than std mutex");
    assert!(!lost.contains("A refusal writes nothing"), "no reason is given for what is not so");
    assert_has(&lost, "## Where it loses");
}

#[test]
fn what_is_not_reached_says_so() {
    let mut results = Results::default();
    results.times.push(times("one bucket", "granted", 1, 1, "tollgate", &[14.0; 3]));
    results.times.push(times("one bucket", "granted", 1, 1, "governor", &[11.0; 3]));
    let page = page("goals", &results);
    assert_has(
        &page,
        "| 1.300 (1.300 to 1.300) | ≤ 1.00 (aim 0.90) | **not reached**: a peer's word is one time",
    );
    assert_has(&page, "| - | ≤ 0.40 | not measured |");
}

#[test]
fn what_newcomers_find_is_compared() {
    let page = page("newcomers", &made_up());
    let case = "flood at capacity, 262,144 keys, 1 thread";
    assert_has(
        &page,
        &format!("| {case} | tollgate, inline / rate-net, at its cap (rate-net on its own hasher"),
    );
    assert_has(&page, "| 0.500 (0.500 to 0.500) | ≤ 0.70 | reached |");
    assert_has(&page, "<summary>Flood at capacity</summary>");
    assert_has(&page, "| ns a decision, net | raw | tollgate / this one | granted |");
    assert_has(&page, "| - | 0.39 % |");
    assert_has(&page, "| 60 % | 5,700,000 | 0.00030 % (17) | 90,000 | 0.00111 % (1) |");
    assert_has(&page, "| 0.00030 % (17 of 5,700,000) | < 0.01 % | reached |");
    assert_has(
        &page,
        "all limited, in 75 % of its slots | bytes a key of tollgate, inline, the larger of the two |",
    );
}

#[test]
fn a_refusal_in_ten_thousand_is_one_too_many() {
    let with = |refused| {
        let results = Results { rooms: vec![room(0.6, 1_000_000, refused)], ..Results::default() };
        page("refused", &results)
    };
    assert!(!with(100).contains("< 0.01 % | reached"));
    assert_has(&with(99), "| 0.00990 % (99 of 1,000,000) | < 0.01 % | reached |");
}

#[test]
fn a_model_says_that_it_is_one_and_what_two_cores_did() {
    let page = page("model", &made_up());
    assert_has(&page, "**This is a model, not a measurement.**");
    assert_has(&page, "a cache line goes from one core to another in 60.0 ns,");
    assert_has(
        &page,
        "Of two cores it says 16.7 million grants a second of the plain word, where 58.8 million were measured;",
    );
    // 1 / 60 ns; 8 / 60 ns; 8 cores of 64 grants in 8 ns each, and 77 ns for the batch.
    assert_has(&page, "| 8 | 1 | 16.7 | 133 | 869 | ");
    assert_has(&page, "| 128 | 2 | 5.95 | ");
    let mut results = made_up();
    results.transfers.clear();
    assert!(!written("no model", &results).0.contains("a model"), "it needs all that it is made of");
}

#[test]
fn what_was_not_measured_is_left_out() {
    let (page, docs) = written("nothing", &Results::default());
    let titles: Vec<&str> = page.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(titles, ["# Performance", "## How it was measured"]);
    assert_eq!(fs::read_dir(docs.join("performance")).unwrap().count(), 0);
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn all_of_it() {
    let (page, docs) = written("all", &made_up());
    for title in [
        "What was found",
        "Where it loses",
        "What was to be reached",
        "Do they limit?",
        "Decisions back to back",
        "Single decisions",
        "Fairness",
        "What many cores would make of one hot bucket: a model",
        "Memory",
        "Room in a table",
        "Cold start",
        "A proxy under load",
        "How it was measured",
    ] {
        assert_has(&page, &format!("\n## {title}\n"));
    }
    for (plot, labels) in [
        ("throughput", ["threads on one bucket", "million decisions/s, all threads", "refused"]),
        ("latency", ["a decision took longer than", "p99.9", "10^-5"]),
        ("keys", ["ns a decision, net", "10,000,000", "granted, 1 thread, uniform keys"]),
        ("memory", ["bytes a key", "u64 keys", "dashed: resident"]),
        ("tokens", ["seconds on a mock clock", "tokens", "one bucket"]),
    ] {
        assert_has(&page, &format!("(performance/{plot}.svg)"));
        let svg = fs::read_to_string(docs.join(format!("performance/{plot}.svg"))).unwrap();
        assert_has(&svg, "<svg width=\"800\"");
        for label in labels.iter().chain(&["tollgate"]) {
            assert_has(&svg, label);
        }
    }
    assert!(!page.contains("NaN") && !page.contains("inf"));
    assert_has(&page, "The run took 12 min 34 s.");
    assert_has(&page, "| p99.99, one bucket, granted, 16 threads | tollgate / std mutex |");
    assert_has(&page, "with std mutex; one in 10,000 longer than ");
    assert_has(
        &page,
        "answered every 19.6 µs; a decision on 1 key takes 40.5 ns with 2 threads, 0.21 % of that.",
    );
}

#[test]
fn long_tables_are_folded() {
    let page = page("folded", &made_up());
    let parts: Vec<&str> = page.split("<details>").collect();
    for folded in &parts[1..] {
        let (table, _) = folded.split_once("</details>").expect("what is opened is closed");
        let is_read = table.contains("</summary>\n\n| ") && table.ends_with(" |\n\n");
        assert!(is_read, "Markdown needs empty lines about it: {table}");
    }
    let open = parts.iter().filter_map(|part| part.rsplit("</details>").next()).flat_map(str::lines).count();
    assert!(open < 400, "{open} lines are not folded");
}

#[test]
fn a_quick_run_says_so() {
    let mut results = Results::default();
    assert!(!page("slow", &results).contains("Do not quote it"));
    results.about.quick = true;
    assert_has(&page("quick", &results), "# Performance\n\n**This is a quick run of three minutes");
}

#[track_caller]
fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in:\n{text}");
}

fn page(name: &str, results: &Results) -> String {
    written(name, results).0
}

/// The page, and where it is, for who wants to look at it.
fn written(name: &str, results: &Results) -> (String, PathBuf) {
    let docs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name);
    if docs.exists() {
        fs::remove_dir_all(&docs).unwrap();
    }
    report::write(results, &docs).unwrap();
    (fs::read_to_string(docs.join("performance.md")).unwrap(), docs)
}

fn case(what: &str, path: &str, threads: usize, keys: usize) -> Case {
    Case { what: what.to_owned(), path: path.to_owned(), threads, keys }
}

/// With a loop of 1 ns in it.
fn times(what: &str, path: &str, threads: usize, keys: usize, contender: &str, raw: &[f64]) -> Times {
    let case = case(what, path, threads, keys);
    let (contender, loops) = (contender.to_owned(), vec![1.0; raw.len()]);
    Times { case, contender, raw: raw.to_vec(), loops, notes: Vec::new() }
}

fn law(contender: &str, granted: u64) -> Law {
    Law {
        kind: "one bucket".to_owned(),
        contender: contender.to_owned(),
        threads: 2,
        granted,
        least: 19_000.0,
        most: 20_000.0,
    }
}

/// Rounds about a value.
fn about(value: f64) -> Vec<f64> {
    [0.97, 1.0, 1.01, 1.06, 0.99].map(|part| part * value).to_vec()
}

const ALONE: [(&str, f64); 11] = [
    ("tollgate", 17.0),
    ("tollgate, spread", 8.0),
    ("tollgate, coarse clock", 9.0),
    ("tollgate, reading at hand", 7.0),
    ("std mutex", 48.0),
    ("parking_lot + quanta", 27.0),
    ("governor", 18.0),
    ("governor, upkeep clock", 10.0),
    ("ratelimit", 42.0),
    ("leaky-bucket", 95.0),
    ("better-bucket", 14.0),
];

const KEYED: [(&str, f64); 12] = [
    ("tollgate", 27.0),
    ("tollgate, pinned", 23.0),
    ("tollgate, inline", 16.0),
    ("tollgate, inline, batches of 16", 8.0),
    ("rwlock map", 75.0),
    ("dashmap + mutex", 57.0),
    ("one mutex", 65.0),
    ("governor", 33.0),
    ("governor, its hasher", 44.0),
    ("rate-net", 120.0),
    ("leaky-bucket", 160.0),
    ("pingora-limits", 21.0),
];

fn made_up() -> Results {
    Results {
        about: About {
            processor: "A Processor".to_owned(),
            processors: 2,
            kernel: "Linux 6.1".to_owned(),
            rustc: "rustc 1.95.0".to_owned(),
            versions: vec![("governor".to_owned(), "0.10".to_owned())],
            date: "2026-01-01".to_owned(),
            quick: false,
            seconds: 754,
        },
        laws: vec![law("tollgate", 19_900), law("better-bucket", 21_000), law("rate-net", 11_000)],
        times: made_up_times(),
        latencies: ALONE.iter().map(|&(contender, ns)| made_up_latencies(contender, ns)).collect(),
        shares: vec![shares("tollgate", 0.999), shares("std mutex", 0.81)],
        memory: made_up_memory(),
        rooms: vec![room(0.6, 5_700_000, 17), room(0.75, 7_100_000, 2_300)],
        transfers: about(60.0),
        starts: vec![start("tollgate", 12e6), start("governor", 11e6)],
        proxies: vec![
            proxy("none", 51_000.0),
            proxy("tollgate, granting all", 50_600.0),
            proxy("tollgate, refusing nearly all", 90_000.0),
        ],
        levels: vec![
            (0.0, 10.0),
            (0.1, 10.0),
            (0.1, 0.0),
            (1.1, 10.0),
            (1.5, 10.0),
            (1.5, 6.0),
            (1.9, 10.0),
            (2.0, 10.0),
        ],
    }
}

fn made_up_times() -> Vec<Times> {
    let mut all = Vec::new();
    let mut flood = times("flood at capacity", "", 1, 1 << 18, "tollgate, inline", &about(201.0));
    flood.notes = vec![("granted".to_owned(), "0.39 %".to_owned())];
    all.push(flood);
    all.push(times("flood at capacity", "", 1, 1 << 18, "rate-net, at its cap", &about(401.0)));
    let mut add = |what, path, threads, keys, contender, net: f64| {
        let raw: Vec<f64> = about(net).iter().map(|ns| ns + 1.0).collect();
        all.push(times(what, path, threads, keys, contender, &raw));
    };
    for threads in [1, 2, 4, 8, 16] {
        for (n, (contender, ns)) in ALONE.iter().enumerate() {
            let crowd = threads as f64 / 2.0;
            let contended = if threads == 1 { *ns } else { ns * crowd * (2.0 + n as f64 / 2.0) };
            let read = if contender.contains("mutex") { contended } else { ns * 0.7 * crowd.max(1.0) };
            add("one bucket", "granted", threads, 1, contender, contended);
            add("one bucket", "refused", threads, 1, contender, read);
        }
    }
    for (decade, keys) in [1, 10, 100, 1_000, 16_000, 128_000, 1_000_000, 10_000_000].into_iter().enumerate()
    {
        for (n, (contender, ns)) in KEYED.iter().enumerate() {
            let cold = 1.0 + (decade as f64 - 3.0).max(0.0) * (1.0 + 0.1 * n as f64);
            add("keyed, uniform", "granted", 1, keys, contender, ns * cold);
            add("keyed, uniform", "granted", 2, keys, contender, ns * cold * 1.5);
            add("keyed, Zipf", "granted", 2, keys, contender, ns * cold * 0.8);
        }
    }
    all
}

fn made_up_latencies(contender: &str, ns: f64) -> Latencies {
    let parts = (0..=60).map(|n| 1.0 - 10_f64.powf(-f64::from(n) / 10.0)).chain([1.0]);
    let quantiles =
        parts.map(|part| (part, ns + 20.0 + ns * (1e-6 / (1.0 - part + 1e-6)).sqrt() * 1e4)).collect();
    Latencies {
        case: case("one bucket", "granted", 16, 1),
        contender: contender.to_owned(),
        quantiles,
        p999: about(ns * 320.0),
        decisions: 10_000_000,
        notes: vec![("keys held".to_owned(), "1".to_owned())],
    }
}

fn shares(contender: &str, jain: f64) -> Shares {
    let case = case("one bucket", "granted", 2, 1);
    Shares { case, contender: contender.to_owned(), jain: vec![jain; 5], least: vec![jain * 0.9; 5] }
}

fn made_up_memory() -> Vec<Memory> {
    let mut all = Vec::new();
    for keys in [1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
        for (n, (contender, _)) in KEYED.iter().enumerate() {
            let counted = (keys * (48 + 12 * n) + 20_000 * (n + 1)) as u64;
            let (contender, kind) = ((*contender).to_owned(), "u64".to_owned());
            all.push(Memory {
                contender,
                kind,
                keys,
                counted,
                resident: counted * 5 / 4 + 100_000,
                allocations: 0,
                held: keys,
            });
        }
    }
    all
}

fn room(load: f64, inserts: u64, refused: u64) -> Room {
    Room {
        load,
        slots: 1 << 20,
        tables: 9,
        inserts,
        refused,
        last_inserts: 90_000,
        last_refused: refused / 9,
    }
}

fn start(contender: &str, first: f64) -> Start {
    Start { contender: contender.to_owned(), made: about(900.0), first: about(first), second: about(60.0) }
}

fn proxy(limiter: &str, requests: f64) -> Proxy {
    let micros = 1e6 / requests;
    Proxy {
        limiter: limiter.to_owned(),
        requests: about(requests),
        p50: about(micros),
        p99: about(micros * 9.0),
    }
}
