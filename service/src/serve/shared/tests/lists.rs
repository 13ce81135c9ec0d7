//! Lists of limits over a store.

use std::path::Path;
use std::time::Duration;

use super::{Code, Fleet, LoadOptions, MILLI, RULES, StoreSettings, load, settings};
use crate::serve::counts::Algorithm;
use crate::serve::shared::settings::{Layout, StoreUrl};

/// Two buckets and a window of one key, each with a count of its own that both replicas have.
#[tokio::test(start_paused = true)]
async fn each_limit_of_a_list_has_a_count_in_the_store() {
    for lease in [Duration::ZERO, 100 * MILLI] {
        let fleet = Fleet::new(2, &StoreSettings { lease, ..settings() });
        assert_eq!(fleet.status(0, "list", 10, false).await.limit_remaining, 20, "{lease:?}");
        assert_eq!(fleet.status(1, "list", 15, false).await.limit_remaining, 5, "{lease:?}");
        let refused = fleet.status(0, "list", 10, false).await;
        assert_eq!((refused.code(), refused.limit_remaining), (Code::OverLimit, 0), "{lease:?}");
        assert_eq!(fleet.status(1, "list", 4, true).await.limit_remaining, 0, "{lease:?}");
        // An hour later the bucket of an hour is full, and that of a day has most of its use.
        fleet.pass(Duration::from_secs(3_600)).await;
        assert_eq!(fleet.status(1, "list", 20, false).await.limit_remaining, 10, "{lease:?}");
        fleet.pass(Duration::from_secs(3_600)).await;
        let left = fleet.status(1, "list", 0, false).await.limit_remaining;
        assert_eq!(left, 60 - 31 - 20 + 8, "{lease:?}: of the bucket of a day");
    }
}

#[test]
fn the_keys_of_the_reference_have_no_lists() {
    let rules = load(&[("d.yaml".to_owned(), RULES.to_owned())], LoadOptions::default()).unwrap();
    for (layout, told) in [
        (Layout::Tollgate, ""),
        (Layout::Envoy, "one count of a descriptor, and no `limits`"),
        (Layout::Envoy, "has the values as they are, and no `ipv4_prefix` or `ipv6_prefix`"),
        (Layout::Envoy, "windows of one unit, and no `unit_multiplier`"),
    ] {
        let url = StoreUrl::read("sqlite:counts", Path::new("/"));
        let settings = StoreSettings { url: Some(url.unwrap()), layout, ..settings() };
        let found = settings.not_shared(&rules, Algorithm::FixedWindow);
        let lines: Vec<String> = found.iter().map(|finding| finding.to_string()).collect();
        assert!(if told.is_empty() {
            lines.is_empty()
        } else {
            lines.iter().any(|line| line.ends_with(told))
        });
    }
}
