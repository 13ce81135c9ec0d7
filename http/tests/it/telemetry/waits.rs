// promise: layer
//! The waits of requests as metrics.

use super::*;

/// The values of the histogram of waits, each with its labels.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<String>>>);

impl Book {
    /// Returns the values so far, and forgets them.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// One series of the histogram.
struct Series(Book, String);

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.0.0.lock().unwrap().push(format!("{} {value}", self.1));
    }
}

impl Recorder for Book {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &metrics::Metadata<'_>) -> Counter {
        panic!("the layer has no counter")
    }

    fn register_gauge(&self, _: &Key, _: &metrics::Metadata<'_>) -> Gauge {
        panic!("the layer has no gauge")
    }

    fn register_histogram(&self, key: &Key, _: &metrics::Metadata<'_>) -> Histogram {
        assert_eq!(key.name(), "tollgate_wait_seconds");
        let labels: Vec<_> = key.labels().map(|label| (label.key(), label.value())).collect();
        let [("policy", policy), ("result", result)] = labels[..] else { panic!("{labels:?}") };
        Histogram::from_arc(Arc::new(Series(self.clone(), format!("{policy} {result}"))))
    }
}

#[test]
fn the_waits_of_delayed_refused_and_banned_requests_are_measured() {
    let (clock, mock) = Clock::mock();
    let limit = LimitBy::new(buckets(Quota::per_second(2), &clock)).key(by("k")).name("number").unwrap();
    let limit = limit.ban_after(2, Duration::from_secs(60)).for_(Duration::from_secs(64)).unwrap();
    let layer = LayerBuilder::from(limit).measure_waits().when(|head| !head.headers.contains_key("skip"));
    let layer = layer.build();
    let delay = DelayLayer::by_timer(Duration::from_millis(600), timer(&mock));
    let delayed = Stack::new(layer.clone(), delay);
    let hurried = Stack::new(layer.clone(), DelayLayer::by_timer(Duration::from_millis(100), timer(&mock)));
    let book = Book::default();
    let measured_by = |layer| with_local_recorder(&book, || (ask(layer, &[1])[0], book.take()));
    let (measured, measured_in_haste) = (|| measured_by(&delayed), || measured_by(&hurried));
    let one = |text: &str| vec![text.to_owned()];
    assert_eq!([measured(), measured()], [(200, vec![]), (200, vec![])]);
    assert_eq!(measured(), (200, one("number delayed 0.5")));
    assert_eq!(measured_in_haste(), (429, one("number refused 0.4")));
    assert_eq!(measured_in_haste(), (429, one("number banned 64")));
    mock.advance(Duration::from_secs(30));
    assert_eq!(measured(), (429, one("number banned 34")));
    mock.advance(Duration::from_secs(60));
    assert_eq!(measured(), (200, vec![]));
    // A skipped request, and a refusal that no wait helps.
    let mut service = layer.layer(Upstream::default());
    let skipped = with_local_recorder(&book, || status(&call(&mut service, asks("/", &[("skip", "1")]))));
    assert_eq!((skipped, book.take()), (200, vec![]));
    let never = RateLimitLayer::builder(buckets(Quota::per_second(1), &clock)).key(by("k")).cost(|_| 2);
    let never = never.measure_waits().build();
    assert_eq!(with_local_recorder(&book, || ask(&never, &[1])), [429]);
    assert_eq!(book.take(), [] as [&str; 0]);
}

#[test]
fn a_refusal_in_shadow_mode_names_the_limit_that_refused() {
    let (clock, _mock) = Clock::mock();
    let limit = |quota, name| LimitBy::new(buckets(quota, &clock)).key(by("k")).name(name).unwrap();
    let silent = limit(Quota::per_hour(1), "silent").enforce(0);
    let layer = LayerBuilder::from(limit(Quota::per_hour(9), "enforced")).and(silent);
    let layer = layer.record_in_span().measure_waits().build();
    let (journal, book) = (Journal::new(Level::INFO), Book::default());
    let recorded = || {
        let span = tracing::info_span!("request", ratelimit.policy = Empty, ratelimit.outcome = Empty);
        assert_eq!(span.in_scope(|| ask(&layer, &[1])), [200]);
        let fields = journal.last_span();
        (fields["ratelimit.policy"].clone(), fields["ratelimit.outcome"].clone())
    };
    with_local_recorder(&book, || {
        journal.run(|| {
            assert_eq!(recorded(), ("enforced".to_owned(), "granted".to_owned()));
            assert_eq!(recorded(), ("silent".to_owned(), "refused".to_owned()));
        });
    });
    assert_eq!(book.take(), ["silent refused 3600"]);
}
