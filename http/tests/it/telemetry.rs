// promise: layer
//! Refusals as events of `tracing`, decisions as fields of a span, waits as a histogram.

mod waits;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Recorder, SharedString, Unit, with_local_recorder,
};
use tollgate::{Clock, MockClock, Quota};
use tollgate_http::{DelayLayer, LayerBuilder, LimitBy, RateLimitLayer};
use tower_layer::{Layer, Stack};
use tower_service::Service;
use tracing::field::{Empty, Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_core::span::Current;

use crate::limits::{Upstream, asks, buckets, by, status};
use crate::serving::call;

/// The text of each field.
type Fields = BTreeMap<&'static str, String>;

/// Fields that are read.
#[derive(Default)]
struct Reader(Fields);

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// A span and the fields that were recorded in it.
struct SpanFields {
    metadata: &'static Metadata<'static>,
    fields: Fields,
}

/// A subscriber that keeps all events and fields up to a level, in one thread.
#[derive(Clone)]
struct Journal {
    level: Level,
    events: Arc<Mutex<Vec<Fields>>>,
    spans: Arc<Mutex<Vec<SpanFields>>>,
    entered: Arc<Mutex<Vec<Id>>>,
}

impl Journal {
    fn new(level: Level) -> Journal {
        Journal { level, events: Arc::default(), spans: Arc::default(), entered: Arc::default() }
    }

    /// Returns the events so far, and forgets them.
    fn take(&self) -> Vec<Fields> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    /// Returns the fields of the last span.
    fn last_span(&self) -> Fields {
        self.spans.lock().unwrap().last().expect("there is a span").fields.clone()
    }

    fn run<T>(&self, test: impl FnOnce() -> T) -> T {
        tracing::subscriber::with_default(self.clone(), test)
    }
}

impl Subscriber for Journal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        (target == "tollgate" || target.starts_with(module_path!())) && *metadata.level() <= self.level
    }

    fn event(&self, event: &Event<'_>) {
        assert_eq!((event.metadata().target(), *event.metadata().level()), ("tollgate", Level::INFO));
        let mut reader = Reader::default();
        event.record(&mut reader);
        self.events.lock().unwrap().push(reader.0);
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = self.spans.lock().unwrap();
        spans.push(SpanFields { metadata: span.metadata(), fields: Fields::new() });
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut reader = Reader::default();
        values.record(&mut reader);
        self.spans.lock().unwrap()[span.into_u64() as usize - 1].fields.extend(reader.0);
    }

    fn enter(&self, span: &Id) {
        self.entered.lock().unwrap().push(span.clone());
    }

    fn exit(&self, _: &Id) {
        self.entered.lock().unwrap().pop();
    }

    fn current_span(&self) -> Current {
        let last = self.entered.lock().unwrap().last().cloned();
        last.map_or_else(Current::none, |id| {
            let metadata = self.spans.lock().unwrap()[id.into_u64() as usize - 1].metadata;
            Current::new(id, metadata)
        })
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
}

/// Returns the status of a request of each key.
fn ask<L, B>(layer: &L, keys: &[u64]) -> Vec<u16>
where
    L: Layer<Upstream, Service: Service<Request<()>, Response = Response<B>, Error = Infallible>>,
{
    let mut service = layer.layer(Upstream::default());
    keys.iter().map(|key| status(&call(&mut service, asks("/", &[("k", &key.to_string())])))).collect()
}

fn fields(list: &[(&'static str, &str)]) -> Fields {
    list.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

const PLENTY: Quota = Quota::per_second(1_000_000);

/// Returns timers that move the clock on by their waits.
fn timer(mock: &MockClock) -> impl Fn(Duration) -> std::future::Ready<()> + Send + Sync + use<> {
    let mock = mock.clone();
    move |wait| {
        mock.advance(wait);
        std::future::ready(())
    }
}

#[test]
fn a_refusal_is_one_event_and_a_grant_is_none() {
    let (clock, mock) = Clock::mock();
    let limit = LimitBy::new(buckets(Quota::per_second(2).burst(1), &clock)).key(by("k"));
    let limit = limit.name("by number").unwrap().log_refusals_by(PLENTY, |key| format!("the key {key}"));
    let limit = limit.ban_after(3, Duration::from_secs(60)).for_(Duration::from_secs(90)).unwrap();
    let layer = LayerBuilder::from(limit).build();
    let journal = Journal::new(Level::INFO);
    journal.run(|| {
        assert_eq!(ask(&layer, &[7]), [200]);
        assert_eq!(journal.take(), []);
        let event = |wait, banned| {
            fields(&[
                ("message", "refused"),
                ("policy", "by number"),
                ("key", "the key 7"),
                ("retry_after_ms", wait),
                ("banned", banned),
                ("suppressed", "0"),
            ])
        };
        assert_eq!(ask(&layer, &[7]), [429]);
        assert_eq!(journal.take(), [event("500", "false")]);
        assert_eq!(ask(&layer, &[7]), [429]);
        assert_eq!(journal.take(), [event("500", "false")]);
        // The third refusal begins a ban.
        assert_eq!(ask(&layer, &[7]), [429]);
        assert_eq!(journal.take(), [event("90000", "true")]);
        mock.advance(Duration::from_secs(30));
        assert_eq!(ask(&layer, &[7]), [429]);
        assert_eq!(journal.take(), [event("60000", "true")]);
        assert_eq!(ask(&layer, &[8]), [200]);
        assert_eq!(journal.take(), []);
        // Of 399.9 ms, rounded up.
        mock.advance(Duration::from_micros(100_100));
        assert_eq!(ask(&layer, &[8]), [429]);
        assert_eq!(journal.take()[0]["retry_after_ms"], "400");
    });
    let stats = layer.stats();
    assert_eq!((stats.granted, stats.refused, stats.banned), (2, 4, 1));
}

#[test]
fn a_refusal_that_no_wait_helps_and_one_without_a_key_lack_these_fields() {
    let clock = Clock::mock().0;
    let never = RateLimitLayer::builder(buckets(Quota::per_second(1), &clock)).key(by("k")).cost(|_| 2);
    let never = never.log_refusals(PLENTY).build();
    let shared = RateLimitLayer::builder(buckets(Quota::per_second(1), &clock)).shared();
    let shared = shared.log_refusals(PLENTY).build();
    let journal = Journal::new(Level::INFO);
    journal.run(|| {
        assert_eq!(ask(&never, &[1]), [429]);
        let [event] = &journal.take()[..] else { panic!("one event") };
        assert_eq!(
            event.keys().copied().collect::<Vec<_>>(),
            ["banned", "key", "message", "policy", "suppressed"]
        );
        assert_eq!(ask(&shared, &[1, 1]), [200, 429]);
        let shared = [
            ("message", "refused"),
            ("policy", "default"),
            ("retry_after_ms", "1000"),
            ("banned", "false"),
            ("suppressed", "0"),
        ];
        assert_eq!(journal.take(), [fields(&shared)]);
    });
}

#[test]
fn a_request_that_is_passed_on_by_shadow_mode_has_an_event_and_one_that_is_delayed_has_none() {
    let (clock, mock) = Clock::mock();
    let limit = || LimitBy::new(buckets(Quota::per_hour(1), &clock)).key(by("k")).log_refusals(PLENTY);
    let other = || LimitBy::new(buckets(Quota::per_hour(9), &clock)).key(by("k"));
    let journal = Journal::new(Level::INFO);
    for layer in [
        LayerBuilder::from(limit()).enforce(0),
        LayerBuilder::from(limit().enforce(0)),
        LayerBuilder::from(other()).and(limit().enforce(0)),
        LayerBuilder::from(limit().enforce(0)).and(other()),
    ] {
        let layer = layer.build();
        journal.run(|| assert_eq!(ask(&layer, &[1, 1, 1]), [200; 3]));
        let events = journal.take();
        assert_eq!(events.len(), 2);
        assert!(events.iter().all(|event| event["retry_after_ms"] == "3600000"), "{events:?}");
        assert_eq!(layer.stats().shadow_refused, 2);
    }
    // The take refuses, and the places in line decide.
    let layer = LayerBuilder::from(limit()).build();
    let delay = DelayLayer::by_timer(Duration::from_secs(3_599), |_| std::future::pending());
    journal.run(|| assert_eq!(ask(&Stack::new(layer.clone(), delay), &[1, 1]), [200, 429]));
    assert_eq!((journal.take().len(), layer.stats().delayed), (1, 0));
    let delay = DelayLayer::by_timer(Duration::from_secs(3_600), timer(&mock));
    journal.run(|| assert_eq!(ask(&Stack::new(layer.clone(), delay), &[1]), [200]));
    assert_eq!((journal.take().len(), layer.stats().delayed), (0, 1));
}

#[test]
fn events_are_at_most_those_of_the_quota_and_the_rest_is_told() {
    let (clock, mock) = Clock::mock();
    let layer = RateLimitLayer::builder(buckets(Quota::per_hour(1), &clock)).key(by("k"));
    let layer = layer.log_refusals(Quota::per_second(2).burst(3)).build();
    let journal = Journal::new(Level::INFO);
    let suppressed = |events: &[Fields]| -> u64 {
        events.iter().map(|event| event["suppressed"].parse::<u64>().unwrap()).sum()
    };
    journal.run(|| {
        assert_eq!(ask(&layer, &[1; 101])[1..], [429; 100]);
        let events = journal.take();
        assert_eq!((events.len(), suppressed(&events)), (3, 0));
        mock.advance(Duration::from_millis(500));
        assert_eq!(ask(&layer, &[1; 40]), [429; 40]);
        let events = journal.take();
        assert_eq!((events.len(), suppressed(&events)), (1, 97));
        // In any time, the quota bounds the events, and each refusal is in one of them.
        let (mut refusals, mut told) = (39, 0);
        for step in 0..200 {
            let requests = step % 7;
            refusals += ask(&layer, &vec![1; requests]).iter().filter(|status| **status == 429).count();
            let events = journal.take();
            assert!(events.len() <= 3, "{step}");
            told += events.len() + suppressed(&events) as usize;
            assert!(told <= refusals, "{step}");
            mock.advance(Duration::from_millis(100));
        }
        mock.advance(Duration::from_secs(9));
        refusals += ask(&layer, &[1]).len();
        let events = journal.take();
        assert_eq!(told + events.len() + suppressed(&events) as usize, refusals);
        assert!(refusals > 600);
    });
}

#[test]
fn a_digest_is_the_same_for_a_key_and_tells_no_key() {
    let (clock, _mock) = Clock::mock();
    let quota = Quota::per_hour(1);
    let layer = RateLimitLayer::builder(buckets(quota, &clock)).key(by("k")).log_refusals(PLENTY).build();
    let again = RateLimitLayer::builder(buckets(quota, &clock)).key(by("k")).log_refusals(PLENTY).build();
    let journal = Journal::new(Level::INFO);
    let digests = |layer: &RateLimitLayer<u64>| -> Vec<String> {
        let keys: Vec<u64> = (1_000_000..1_000_100).collect();
        journal.run(|| {
            ask(layer, &keys);
            journal.take();
            ask(layer, &keys);
        });
        journal.take().iter().map(|event| event["key"].clone()).collect()
    };
    let (first, second) = (digests(&layer), digests(&layer));
    assert_eq!((first.len(), &first), (100, &second));
    let mut different = first.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 100);
    let is_digest = |text: &String| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(first.iter().all(is_digest), "{first:?}");
    // Neither the key nor a function of the key alone.
    let tells =
        |(text, key): (&String, u64)| text.contains(&key.to_string()) || *text == format!("{key:016x}");
    assert!(!first.iter().zip(1_000_000..).any(tells));
    assert!(first.iter().zip(&digests(&again)).all(|(one, other)| one != other));
}

#[test]
fn the_text_of_a_key_is_made_for_an_event_only() {
    let (clock, mock) = Clock::mock();
    let texts = Arc::<AtomicU64>::default();
    let count = texts.clone();
    let text = move |key: &u64| {
        count.fetch_add(1, Relaxed);
        key.to_string()
    };
    let limit = LimitBy::new(buckets(Quota::per_hour(1), &clock)).key(by("k"));
    let layer = LayerBuilder::from(limit.log_refusals_by(Quota::per_second(2), text)).build();
    let warnings = Journal::new(Level::WARN);
    warnings.run(|| assert_eq!(ask(&layer, &[1; 10])[1..], [429; 9]));
    assert_eq!((warnings.take().len(), texts.load(Relaxed)), (0, 0));
    // These took no token of the events' quota, and are not told.
    let journal = Journal::new(Level::INFO);
    journal.run(|| ask(&layer, &[1; 10]));
    let events = journal.take();
    assert_eq!((events.len(), texts.load(Relaxed)), (2, 2));
    assert!(events.iter().all(|event| event["suppressed"] == "0"));
    mock.advance(Duration::from_secs(1));
    journal.run(|| ask(&layer, &[1]));
    assert_eq!((journal.take()[0]["suppressed"].as_str(), texts.load(Relaxed)), ("8", 3));
}

#[test]
fn a_decision_is_in_the_fields_of_the_span() {
    let (clock, mock) = Clock::mock();
    let limit = LimitBy::new(buckets(Quota::per_second(2), &clock)).key(by("k")).name("number").unwrap();
    let limit = limit.ban_after(2, Duration::from_secs(60)).for_(Duration::from_secs(90)).unwrap();
    let layer = LayerBuilder::from(limit).record_in_span();
    let delay = DelayLayer::by_timer(Duration::from_millis(600), timer(&mock));
    let layer = layer.build();
    let hurried = DelayLayer::by_timer(Duration::from_millis(100), timer(&mock));
    let (layer, hurried) = (Stack::new(layer.clone(), delay), Stack::new(layer, hurried));
    let journal = Journal::new(Level::INFO);
    let recorded_by = |layer| {
        let span = tracing::info_span!(
            "request",
            ratelimit.policy = Empty,
            ratelimit.outcome = Empty,
            ratelimit.remaining = Empty,
            ratelimit.wait_ms = Empty,
        );
        let status = span.in_scope(|| ask(layer, &[1])[0]);
        (status, journal.last_span())
    };
    let recorded = || recorded_by(&layer);
    let with = |outcome, remaining, wait: Option<&str>| {
        let mut with = fields(&[
            ("ratelimit.policy", "number"),
            ("ratelimit.outcome", outcome),
            ("ratelimit.remaining", remaining),
        ]);
        with.extend(wait.map(|wait| ("ratelimit.wait_ms", wait.to_owned())));
        with
    };
    journal.run(|| {
        assert_eq!(recorded(), (200, with("granted", "1", None)));
        assert_eq!(recorded(), (200, with("granted", "0", None)));
        assert_eq!(recorded(), (200, with("delayed", "0", Some("500"))));
        // The next token comes in a second. In 400 ms the request may wait for it.
        assert_eq!(recorded_by(&hurried), (429, with("refused", "0", Some("400"))));
        assert_eq!(recorded_by(&hurried), (429, with("banned", "0", Some("90000"))));
        mock.advance(Duration::from_secs(30));
        assert_eq!(recorded(), (429, with("banned", "0", Some("60000"))));
        // A span that declares one of the fields, none, and no span.
        let span = tracing::info_span!("request", ratelimit.outcome = Empty, other = Empty);
        assert_eq!(span.in_scope(|| ask(&layer, &[1])), [429]);
        assert_eq!(journal.last_span(), fields(&[("ratelimit.outcome", "banned")]));
        let span = tracing::info_span!("request");
        assert_eq!(span.in_scope(|| ask(&layer, &[1])), [429]);
        assert_eq!(journal.last_span(), Fields::new());
        assert_eq!(ask(&layer, &[1]), [429]);
        assert_eq!(journal.last_span(), Fields::new());
    });
    assert_eq!(journal.take(), []);
    assert_eq!(ask(&layer, &[1]), [429]);
}
