// promise: inflight
//! The limit that adapts, over its own word and controller, in the [closed loop]: each figure of
//! `adaptive/docs/in-flight.md` is within its bound.
//!
//! A figure is the mean of three seeds. The mock clock is the only clock. `closed_loop --write`
//! puts the same figures into the page.
//!
//! [closed loop]: tollgate_verify::closed_loop

use std::sync::OnceLock;

use tollgate_verify::acceptance::{Figure, Measured, OVERLOADED};
use tollgate_verify::disturbance::SCENARIOS;
use tollgate_verify::policies::{CEILING, FLOOR, Results};

fn measured() -> &'static Measured {
    static MEASURED: OnceLock<Measured> = OnceLock::new();
    MEASURED.get_or_init(Measured::now)
}

/// Checks the `count` figures of a requirement.
fn kept(requirement: &str, count: usize) {
    let all: Vec<Figure> = measured().figures();
    let these: Vec<&Figure> = all.iter().filter(|figure| figure.requirement == requirement).collect();
    assert_eq!(these.len(), count, "{requirement}");
    let broken: Vec<&&Figure> = these.iter().filter(|figure| !figure.is_kept()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A longer way is no reason to refuse, but for the seconds in which the limit rises.
#[test]
fn nothing_is_refused_while_the_server_keeps_up() {
    kept("refused", 2);
    kept("refused after three seconds", 1);
}

#[test]
fn an_overloaded_server_does_what_it_can() {
    kept("goodput", OVERLOADED.len());
    kept("goodput, few", 1);
}

#[test]
fn nine_tenths_are_answered_within_the_target() {
    kept("p90, in targets", OVERLOADED.len());
}

/// The control has the same goodput elsewhere: only the guard is missing.
#[test]
fn a_fall_that_does_not_help_is_taken_back_and_without_the_guard_it_is_not() {
    kept("goodput, far", 1);
    kept("goodput without the guard (a control)", 1);
    for name in OVERLOADED {
        let goodput = measured().unguarded.mean(name, |outcome| outcome.goodput);
        assert!(goodput >= 0.97, "{name}: {goodput}");
    }
}

#[test]
fn the_limit_is_steady_while_the_load_is() {
    kept("variation of the limit", 11);
}

#[test]
fn two_seconds_after_the_disturbance_nine_tenths_are_answered() {
    kept("seconds back to 9/10", 10);
}

#[test]
fn eight_proxies_that_do_not_know_of_each_other_share_a_server() {
    kept("goodput, 8 proxies", 11);
    kept("p90 in targets, 8 proxies", 7);
}

#[test]
fn the_lower_priorities_are_refused_first() {
    kept("served, critical", 1);
    kept("served, sheddable", 1);
}

#[test]
fn a_quota_that_adapts_follows_the_server_within_its_floor_and_its_ceiling() {
    kept("goodput, a quota that adapts", 4);
    kept("refused, a quota that adapts", 1);
    kept("seconds back, a quota that adapts", 1);
    let rate = |quota: tollgate::Quota| quota.tokens() as f64 / quota.period().as_secs_f64();
    for outcome in SCENARIOS.iter().flat_map(|scenario| measured().quota.runs(scenario.name)) {
        let (least, most) = outcome.span;
        // A share of a rate is rounded down, by a millionth at most.
        assert!(least >= rate(FLOOR) * (1.0 - 1e-6) && most <= rate(CEILING), "{least} to {most}");
    }
    // It did change: the bounds are those of the quota and not of an easy load.
    let least = measured().quota.mean("capacity", |outcome| outcome.span.0);
    assert!(least < rate(CEILING) / 4.0, "{least}");
}

/// A quota that stays is for a server of one size.
#[test]
fn a_quota_that_stays_collapses_when_the_server_loses_half_of_its_workers() {
    let fixed = Results::of(tollgate_verify::policies::FIXED_QUOTA);
    let goodput = fixed.mean("capacity", |outcome| outcome.goodput);
    assert!(goodput < 0.2, "{goodput}");
}

/// Without a limit, or with one that was tuned for another server, the loop collapses. So the
/// figures above are those of the limit and not of an easy load.
#[test]
fn without_a_limit_that_follows_the_server_there_is_a_collapse() {
    let nothing = Results::of(tollgate_verify::policies::NOTHING);
    for name in OVERLOADED {
        let goodput = nothing.mean(name, |outcome| outcome.goodput);
        assert!(goodput < 0.2, "{name}: {goodput}");
    }
    let few = measured().fixed.mean("few", |outcome| outcome.goodput);
    assert!(few < 0.2, "{few}");
}

/// A wider bound is for a figure that needs it: none stays after its cause is gone.
#[test]
fn a_figure_with_a_wider_bound_is_outside_of_the_asked_one() {
    for figure in measured().figures() {
        assert_eq!(figure.known.is_some(), figure.is_outside(), "{figure:?}");
    }
}
