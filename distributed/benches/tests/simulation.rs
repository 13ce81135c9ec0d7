//! Small fleets of the simulation: no mode mints tokens, and leases save calls.

use tollgate_distributed_benches::simulation::{self, DEMAND, OVERSHOOT, TURNS};

#[test]
fn small_fleets_keep_the_bounds() {
    let rows = simulation::measure(true).unwrap();
    let places = rows.0.iter().filter(|row| row.measure == "over");
    let mut number = 0;
    for row in places {
        let value = |measure: &str| {
            rows.find([&row.section, &row.case, &row.contender, measure]).expect("each fleet has all numbers")
        };
        let (over, unused) = (value("over").median, value("unused, at most").median);
        let pauses = [TURNS, OVERSHOOT].contains(&row.section.as_str());
        // Tokens that are leased and unused while the bucket fills are above the burst.
        let most = match row.contender.as_str() {
            "leased" if pauses => unused,
            // A lease of a small burst has a token for each process more.
            "leased" => unused.min(8.0),
            _ => 1e-6,
        };
        assert!(over <= most, "{row:?}: {over} tokens, {unused} of them on lease");
        assert!(value("under").median < 15.0 && value("granted").median > 0.0, "{row:?}");
        number += 1;
    }
    assert!(number >= 30, "{number} fleets");
    let calls = |mode| rows.find([DEMAND, "2", mode, "round trips"]).unwrap().median;
    assert!(calls("leased") * 15.0 < calls("exact"), "{} and {}", calls("leased"), calls("exact"));
}
