// promise: law, never-late
//! Cases of six other limiters' test suites, with the answers of the ideal bucket:
//! `tests/conformance.json`, or the file that `TOLLGATE_CONFORMANCE` names.
//!
//! Each event is compared with the table and with the exact reference. The table is the ideal
//! bucket; this crate is at most one tick ahead of it. So:
//!
//! * a grant of the table is granted (where a tick is worth several tokens, at most one tick late);
//! * a refusal of the table is refused, unless its wait is under one tick;
//! * `remaining` is equal, unless one tick more completes a token;
//! * `retry_after` is never later, and earlier by less than a tick.
//!
//! After a refusal that became a grant, the rest of the table's case is about another bucket. From
//! there on only the reference judges, which follows the grants.

use std::{env, fs};

use ::serde::Deserialize;
use tollgate::{Denied, Granted, Quota, RateLimiter, Reason, TokenBucket};
use tollgate_testing::reference::{Ideal, Unit};

use super::{InStore, Room, in_table};
use crate::support::{Time, answer, nanos, quota_text};

#[derive(Deserialize)]
struct Case {
    source: String,
    name: String,
    #[serde(default)]
    tags: Vec<String>,
    rate: Rate,
    burst: u64,
    events: Vec<Event>,
    #[serde(skip)]
    subject: Subject,
}

#[derive(Deserialize)]
struct Rate {
    tokens: u64,
    per_ns: u64,
}

/// The limiter that a case runs on.
#[derive(Clone, Copy, Default)]
enum Subject {
    #[default]
    Bucket,
    Spread,
    Key,
}

enum Tested {
    Bucket(Box<TokenBucket>),
    Key(RateLimiter<u64>),
}

impl Tested {
    fn try_acquire_n(&self, n: u64) -> Result<Granted, Denied> {
        match self {
            Tested::Bucket(bucket) => bucket.try_acquire_n(n),
            Tested::Key(limiter) => limiter.try_acquire_n(&7, n),
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Event {
    #[serde(rename = "t_ns")]
    t: u64,
    n: u64,
    allow: bool,
    remaining: u64,
    #[serde(rename = "retry_after_ns")]
    retry_after: Option<u64>,
    #[serde(default)]
    never: bool,
    /// Nanoseconds by which an earlier request would have been granted as well.
    #[serde(rename = "slack_ns")]
    slack: Option<u64>,
}

impl Case {
    fn title(&self) -> String {
        format!("{}: {}", self.source, self.name)
    }

    fn is(&self, tag: &str) -> bool {
        self.tags.iter().any(|one| one == tag)
    }

    fn quota(&self) -> Result<Quota, tollgate::InvalidRule> {
        quota_text((self.rate.tokens, self.rate.per_ns, self.burst)).parse()
    }

    /// Returns a bucket after the first `events` of this case, and its clock.
    fn after(&self, quota: Quota, events: usize) -> (Tested, Time) {
        let (clock, mut time) = Time::new();
        let bucket = match self.subject {
            Subject::Bucket => Tested::Bucket(TokenBucket::builder(quota).clock(clock).build().into()),
            Subject::Spread => {
                Tested::Bucket(TokenBucket::builder(quota).clock(clock).spread().build().into())
            }
            Subject::Key => Tested::Key(RateLimiter::stored(quota).clock(clock).room(1).build()),
        };
        for event in &self.events[..events] {
            time.set(event.t);
            let _ = bucket.try_acquire_n(event.n);
        }
        (bucket, time)
    }

    /// Returns the decision on `n` tokens at `t`, after the first `events`.
    fn at(&self, quota: Quota, events: usize, t: u64, n: u64) -> Result<Granted, Denied> {
        let (bucket, mut time) = self.after(quota, events);
        time.set(t);
        bucket.try_acquire_n(n)
    }
}

/// One tick of a case's quota, as a span of time and in tokens.
struct Tick<'a> {
    case: &'a Case,
    unit: Unit,
}

impl Tick<'_> {
    /// Returns whether `nanos`, themselves rounded up, are under one tick.
    fn is_over(&self, nanos: u64) -> bool {
        let tick = u128::from(self.case.rate.per_ns) << self.unit.scale;
        (u128::from(nanos.saturating_sub(1)) * u128::from(self.case.rate.tokens)) << self.unit.fraction < tick
    }

    /// Returns the most whole tokens that `nanos`, less than one nanosecond more, and a tick earn.
    fn most(&self, nanos: u64) -> u64 {
        let Unit { fraction, scale, .. } = self.unit;
        let per = u128::from(self.case.rate.per_ns);
        let earned = ((u128::from(nanos) + 1) * u128::from(self.case.rate.tokens)) << fraction;
        u64::try_from((earned + (per << scale)) / (per << fraction)).expect("a level is below 2^41")
    }
}

/// Counts of the run, and of allowed differences from the table.
#[derive(Default)]
struct Tally {
    cases: usize,
    events: usize,
    waits: usize,
    slacks: usize,
    out_of_range: Vec<String>,
    early: Vec<String>,
    late: Vec<String>,
    remaining_differs: Vec<String>,
    earlier_hints: usize,
}

fn table(subject: Subject) -> (Vec<Case>, bool) {
    let own = env::var_os("TOLLGATE_CONFORMANCE");
    let text = match &own {
        Some(path) => fs::read_to_string(path).expect("TOLLGATE_CONFORMANCE names a file"),
        None => include_str!("../conformance.json").to_owned(),
    };
    let cases: Vec<Case> = serde_json::from_str(&text).expect("a list of cases");
    (cases.into_iter().map(|case| Case { subject, ..case }).collect(), own.is_none())
}

fn hold(case: &Case, quota: Quota, tally: &mut Tally) {
    let unit = Unit::choose(case.rate.tokens, case.rate.per_ns, case.burst).expect("a quota has a unit");
    let tick = Tick { case, unit };
    let (bucket, mut time) = case.after(quota, 0);
    let mut ideal = Ideal::new(case.rate.tokens, case.rate.per_ns, case.burst);
    let mut same = true;
    for (index, event) in case.events.iter().enumerate() {
        let Event { t, n, .. } = *event;
        let at = format!("{}, event {index}: {event:?}", case.title());
        time.set(t);
        let decision = bucket.try_acquire_n(n);
        ideal.take(t, n, answer(decision)).unwrap_or_else(|wrong| panic!("{at}: {wrong}"));
        tally.events += 1;
        if same {
            same = agrees(&tick, event, decision, &at, tally);
        }

        // The wait is enough, and the least.
        if let Some(wait) = decision.err().and_then(|denied| denied.retry_after()).map(nanos) {
            assert!(wait > 0 && case.at(quota, index + 1, t + wait, n).is_ok(), "{at}: {wait} is too early");
            assert!(case.at(quota, index + 1, t + wait - 1, n).is_err(), "{at}: {wait} is not the least");
            tally.waits += 1;
        }
        // An event with slack is also granted by the slack earlier, in an unchanged bucket.
        let before = case.events[..index].iter().map(|event| event.t).max().unwrap_or(0);
        let earlier = event.slack.and_then(|slack| t.checked_sub(slack)).filter(|t| *t >= before);
        if let Some(earlier) = earlier.filter(|_| same && unit.scale == 0) {
            assert!(case.at(quota, index, earlier, n).is_ok(), "{at}: not granted at {earlier}");
            tally.slacks += 1;
        }
    }
}

/// Returns whether the decision is the table's. Panics at a difference that is not allowed.
fn agrees(
    tick: &Tick<'_>,
    event: &Event,
    decision: Result<Granted, Denied>,
    at: &str,
    tally: &mut Tally,
) -> bool {
    let remaining = match decision {
        Ok(granted) => granted.remaining(),
        Err(denied) => denied.remaining(),
    };
    let denied = match (event.allow, decision) {
        (true, Ok(_)) => {
            if remaining != event.remaining {
                let most = event.slack.map_or(event.remaining, |slack| tick.most(slack));
                let late = if tick.unit.scale > 0 { 1 << tick.unit.scale } else { 0 };
                let least = event.remaining.saturating_sub(late);
                assert!((least..=most).contains(&remaining), "{at}: {remaining} remain");
                tally.remaining_differs.push(at.to_owned());
            }
            return true;
        }
        (true, Err(denied)) => {
            let wait = denied.retry_after().map(nanos);
            assert!(tick.unit.scale > 0 && wait.is_some_and(|wait| tick.is_over(wait)), "{at}: {denied}");
            tally.late.push(at.to_owned());
            return false;
        }
        (false, Ok(_)) => {
            assert!(event.retry_after.is_some_and(|wait| tick.is_over(wait)), "{at}: granted");
            tally.early.push(at.to_owned());
            return false;
        }
        (false, Err(denied)) => denied,
    };
    if event.never {
        assert_eq!((denied.reason(), denied.retry_after()), (Reason::TooMany, None), "{at}");
        assert_eq!(remaining, event.remaining, "{at}");
        return true;
    }
    let theirs = event.retry_after.expect("a refusal is for ever or has a wait");
    let ours = nanos(denied.retry_after().expect("it is not for ever"));
    assert_eq!(denied.reason(), Reason::Empty, "{at}");
    if ours > theirs {
        assert!(tick.unit.scale > 0 && tick.is_over(ours - theirs), "{at}: a hint of {ours} is late");
    } else {
        assert!(tick.is_over(theirs - ours), "{at}: a hint of {ours} is early by more than a tick");
        tally.earlier_hints += usize::from(ours != theirs);
    }
    if remaining != event.remaining {
        // The level is below `n` by the tokens that the wait earns.
        let short =
            u128::from(theirs - 1) * u128::from(tick.case.rate.tokens) / u128::from(tick.case.rate.per_ns);
        let level = event.n - u64::try_from(short).expect("a level is below 2^41");
        assert!(remaining > event.remaining && remaining <= level + tick.most(0), "{at}: {remaining} remain");
        tally.remaining_differs.push(at.to_owned());
    }
    true
}

#[test]
fn the_cases_of_other_limiters_hold() {
    // A `TokenBucket` has no store: one run is enough.
    if !in_table() {
        hold_all(Subject::Bucket);
        hold_all(Subject::Spread);
    }
    hold_all(Subject::Key);
}

fn hold_all(subject: Subject) {
    let (cases, own) = table(subject);
    let mut tally = Tally::default();
    for case in &cases {
        match case.quota() {
            Ok(quota) => {
                hold(case, quota, &mut tally);
                tally.cases += 1;
            }
            Err(error) => {
                assert!(case.is("extreme") || case.is("zero-rate"), "{}: {error}", case.title());
                tally.out_of_range.push(format!("{} ({error})", case.title()));
            }
        }
    }
    let lists = [
        ("out of range", &tally.out_of_range),
        ("granted within a tick before its time", &tally.early),
        ("granted within a tick after its time", &tally.late),
        ("remaining is one tick ahead", &tally.remaining_differs),
    ];
    println!("{} cases of {}, {} events", tally.cases, cases.len(), tally.events);
    println!("exact both ways: {} waits; {} slacks", tally.waits, tally.slacks);
    println!("hints earlier than the table's, by less than a tick: {}", tally.earlier_hints);
    for (what, list) in lists {
        println!("{what}: {}", list.len());
        list.iter().for_each(|line| println!("    {line}"));
    }

    assert!(tally.events > 0, "no case was run");
    if own {
        assert_eq!((cases.len(), tally.cases, tally.events), (62, 59, 851));
        assert_eq!(lists.map(|(_, list)| list.len()), [3, 0, 2, 1]);
        let refused = ["TestZeroLimit", "TestTinyLimit (golang/go#71154)", "TestEvery MaxInt64 ns"];
        assert!(tally.out_of_range.iter().zip(refused).all(|(line, name)| line.contains(name)));
    }
}
