//! The table of docs/guide.md is the one that is computed, and so are the plots of the mock clock.

use std::path::Path;

use tollgate_benches::rows::Rows;
use tollgate_benches::{report, scenarios};

#[test]
fn the_guide_has_what_clients_get() {
    let clients = scenarios::clients();
    let table = scenarios::table(&clients);
    println!("{table}");
    assert!(include_str!("../../docs/guide.md").contains(&table), "the table is\n{table}");
    // The laws of the guide, on the same runs.
    for of in &clients {
        let most = match of.algorithm {
            "bucket" | "weighted" | "fixed, first use" => 119,
            "fixed utc" => 120,
            _ => 60,
        };
        assert!(of.most() <= most, "{}, {}: {}", of.algorithm, of.client, of.most());
    }
}

#[test]
fn the_plots_have_what_is_computed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance");
    let committed = Rows::read(&folder.join("simulated.csv")).unwrap();
    assert!(
        committed.0 == report::simulated().0,
        "performance --simulated writes docs/performance/simulated.csv"
    );
}
