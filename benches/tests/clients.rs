//! The table of docs/guide.md is the one that is computed.

use tollgate_benches::scenarios;

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
