// promise: layer
//! The counts of a layer, and their text.

use super::*;

#[test]
fn clones_and_services_of_a_layer_count_together_and_layers_apart() {
    let limit = Arc::new(Inflight::fixed(2));
    let (one, other) = (InflightLayer::new(limit.clone()), InflightLayer::new(limit.clone()));
    let upstream = Upstream::default();
    let futures = [
        call(&mut one.layer(upstream.clone()), root()),
        call(&mut one.clone().layer(upstream.clone()).clone(), root()),
    ];
    assert_eq!(done(poll(&mut call(&mut other.layer(upstream), root()))).unwrap().status(), 503);
    assert_eq!((one.stats().admitted, one.stats().refused), (2, 0));
    assert_eq!((other.stats().admitted, other.stats().refused), (0, 1));
    assert_eq!((other.stats().inflight.in_flight, other.inflight().limit()), (2, 2));
    drop(futures);
}

/// The limit takes no notice of an answer that is no sample. A layer that counts on has the counts
/// of the one before.
#[test]
fn a_request_without_a_service_counts_as_one_of_the_layer() {
    let (limit, mock) = adaptive(20);
    let before = InflightLayer::new(limit);
    let layer = InflightLayer::builder(Inflight::fixed(4)).count_on(&before).build();
    let enter = |priority| before.try_enter(priority).unwrap();
    let requests = Priority::ALL.map(enter);
    mock.advance(Duration::from_millis(20));
    let [sample, no_sample, overloaded, given_up] = requests;
    let held = [
        sample.end(Outcome::Answered, true),
        no_sample.end(Outcome::Answered, false),
        overloaded.end(Outcome::Overloaded, false),
    ];
    assert_eq!(before.stats().inflight.in_flight, 4);
    drop((held, given_up));
    let stats = before.stats();
    assert_eq!((outcomes(&before), stats.inflight.in_flight), ([2, 1, 0, 1], 0));
    assert_eq!((stats.latencies.iter().sum::<u64>(), stats.latency_sum), (1, Duration::from_millis(20)));
    assert_eq!(stats.priorities.map(|by| by.admitted), [1; 4]);
    let held = [(); 2].map(|()| layer.try_enter(Priority::Background).unwrap());
    assert_eq!(layer.try_enter(Priority::Background).unwrap_err().in_flight(), 2);
    for stats in [layer.stats(), before.stats()] {
        assert_eq!(stats.priorities.map(|by| (by.admitted, by.refused)), [(3, 1), (1, 0), (1, 0), (1, 0)]);
    }
    assert_eq!((layer.stats().inflight.in_flight, before.stats().inflight.in_flight), (2, 0));
    drop(held);
}

#[test]
fn the_text_of_prometheus_has_bounded_labels_and_adds_up() {
    let (limit, mock) = adaptive(2);
    let layer = InflightLayer::builder(limit).name("a \"b\"").unwrap().build();
    let fixed = InflightLayer::builder(Inflight::fixed(7)).name("fixed").unwrap().build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    for millis in [1, 20, 20, 11_000] {
        upstream.says(Said::Status(200));
        let mut future = call(&mut service, root());
        mock.advance(Duration::from_millis(millis));
        done(poll(&mut future)).unwrap();
    }
    let held = [call(&mut service, root()), call(&mut service, root())];
    for _ in 0..5 {
        assert_eq!(done(poll(&mut call(&mut service, root()))).unwrap().status(), 503);
    }
    let text = prometheus_inflight(&[layer.stats(), fixed.stats()]);
    for line in [
        r#"tollgate_inflight{name="a \"b\""} 2"#,
        r#"tollgate_inflight{name="fixed"} 0"#,
        r#"tollgate_inflight_limit{name="fixed"} 7"#,
        r#"tollgate_inflight_target_seconds{name="a \"b\""} 0.3"#,
        r#"tollgate_inflight_refused_total{name="a \"b\"",priority="default"} 5"#,
        r#"tollgate_inflight_refused_total{name="a \"b\"",priority="background"} 0"#,
        r#"tollgate_inflight_changes_total{name="a \"b\"",why="in_vain"} 0"#,
        r#"tollgate_answer_seconds_bucket{name="a \"b\"",le="0.001"} 1"#,
        r#"tollgate_answer_seconds_bucket{name="a \"b\"",le="0.01"} 1"#,
        r#"tollgate_answer_seconds_bucket{name="a \"b\"",le="0.025"} 3"#,
        r#"tollgate_answer_seconds_bucket{name="a \"b\"",le="10"} 3"#,
        r#"tollgate_answer_seconds_bucket{name="a \"b\"",le="+Inf"} 4"#,
        r#"tollgate_answer_seconds_sum{name="a \"b\""} 11.041"#,
        r#"tollgate_answer_seconds_count{name="a \"b\""} 4"#,
        "# TYPE tollgate_answer_seconds histogram",
        "# TYPE tollgate_inflight_limit gauge",
        "# TYPE tollgate_inflight_refused_total counter",
    ] {
        assert_eq!(text.lines().filter(|is| *is == line).count(), 1, "{line}\n{text}");
    }
    // A fixed limit has no target and no latencies, and a family stands together.
    assert!(!text.contains("target_seconds{name=\"fixed\"") && !text.contains("bucket{name=\"fixed\""));
    let families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let mut unique = families.clone();
    unique.dedup();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(families.len(), unique.len());
    let series =
        |name: &str| text.lines().filter(|line| line.contains(name) && !line.starts_with('#')).count();
    assert_eq!((series("name=\"a"), series("name=\"fixed\"")), (36, 15));
    drop(held);
}

#[test]
fn a_name_out_of_bounds_is_an_error() {
    let name = |name: &str| InflightLayer::builder(Inflight::fixed(1)).name(name).map(|_| ());
    assert!(name("upstream-1").is_ok());
    assert_eq!(name("").unwrap_err().to_string(), "a name of 0 characters is out of the bounds of 1 and 64");
    assert!(name(&"x".repeat(65)).is_err() && name("a\nb").is_err());
}
