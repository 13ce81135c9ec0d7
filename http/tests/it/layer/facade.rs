// promise: layer
//! The statistics of a layer through the facade `metrics`.

use super::*;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

/// What was published, as Prometheus has it.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<String>>>);

struct Line(Book, Key);

impl Line {
    fn write(&self, value: impl std::fmt::Display) {
        let labels: Vec<_> =
            self.1.labels().map(|label| format!("{}=\"{}\"", label.key(), label.value())).collect();
        self.0.0.lock().unwrap().push(format!("{}{{{}}} {value}", self.1.name(), labels.join(",")));
    }
}

impl CounterFn for Line {
    fn increment(&self, _: u64) {
        panic!("counts are absolute");
    }

    fn absolute(&self, value: u64) {
        self.write(value);
    }
}

impl GaugeFn for Line {
    fn increment(&self, _: f64) {
        panic!("levels are absolute");
    }

    fn decrement(&self, _: f64) {
        panic!("levels are absolute");
    }

    fn set(&self, value: f64) {
        self.write(value);
    }
}

impl Recorder for Book {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Line(self.clone(), key.clone())))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Line(self.clone(), key.clone())))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("there are none")
    }
}

#[test]
fn the_facade_is_told_what_prometheus_is() {
    let (limiter, _mock) = limiter(Quota::per_second(1));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    let mut service = layer.layer(Echo::default());
    (0..3).for_each(|_| drop(call(&mut service, from(A, "/"))));
    let book = Book::default();
    with_local_recorder(&book, || layer.stats().publish());
    let text = prometheus(&[layer.stats()]);
    let mut lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let mut told = book.0.lock().unwrap().clone();
    lines.sort_unstable();
    told.sort();
    assert_eq!(told, lines);
}
