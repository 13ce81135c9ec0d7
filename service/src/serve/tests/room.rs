//! The bound on the keys of all limits, and the part of each.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::moved::Run;
use crate::serve::counts::Algorithm::{self, FixedWindow, TokenBucket};
use crate::serve::key_room::{KeyRoom, Share};

fn keys(run: &Run) -> usize {
    let text = run.service.counts.prometheus(false);
    let keys = text.lines().filter(|line| line.starts_with("tollgate_serve_keys{"));
    keys.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}

/// The kinds of the limits that are flooded, and of the one that is not.
const FLOODS: [(Algorithm, &[&str], &str); 4] = [
    (FixedWindow, &["unit: hour, requests_per_unit: 3"], "unit: hour, requests_per_unit: 3"),
    (FixedWindow, &["unit: hour, requests_per_unit: 3"], "unit: day, requests_per_unit: 3"),
    (TokenBucket, &["unit: hour, requests_per_unit: 3"], "unit: hour, requests_per_unit: 3"),
    (
        FixedWindow,
        &[
            "unit: minute, requests_per_unit: 3",
            "unit: hour, requests_per_unit: 3",
            "unit: day, requests_per_unit: 3",
            "limit: 1/h burst 3",
            "limit: 2/h burst 3",
            "limit: 3/h burst 3",
            "limit: 3/h fixed",
            "limit: 3/d sliding",
        ],
        "limit: 4/h burst 3",
    ),
];

#[test]
fn a_flood_under_some_limits_leaves_new_keys_of_another_alone_and_the_sum_is_bounded() {
    for (algorithm, flooded, quiet) in FLOODS {
        let run = Run::new(algorithm, 1_024);
        let mut rules: Vec<String> = (flooded.iter().enumerate())
            .map(|(at, amount)| format!("key: k, value: {at}_*, rate_limit: {{{amount}}}"))
            .collect();
        rules.push(format!("key: k, value: quiet*, rate_limit: {{{quiet}}}"));
        run.load(&rules.iter().map(String::as_str).collect::<Vec<_>>());
        let flood = |clients: std::ops::Range<u32>| {
            for client in clients {
                run.ask(&format!("{}_{client}", client as usize % flooded.len()), "");
            }
        };
        flood(0..3_000);
        for new in 0..40 {
            let asked = [(); 4].map(|()| run.ask(&format!("quiet{new}"), ""));
            assert_eq!(asked, [(true, 2), (true, 1), (true, 0), (false, 0)], "{algorithm:?}, {quiet}: {new}");
            flood(3_000 + 20 * new..3_020 + 20 * new);
        }
        assert!(keys(&run) <= 1_024, "{} keys", keys(&run));
        assert!(run.service.counts.room.shared() > 1_000);
    }
}

/// A key that shared a count has the use of that count, when there is room again.
#[test]
fn a_key_that_has_shared_a_count_does_not_begin_anew() {
    let run = Run::new(FixedWindow, 1_024);
    run.load(&[
        "key: k, value: day*, rate_limit: {unit: day, requests_per_unit: 3}",
        "key: k, value: minute*, rate_limit: {unit: minute, requests_per_unit: 3}",
    ]);
    for client in 0..2_000 {
        run.ask(&format!("minute{client}"), "");
    }
    let of_day: Vec<String> = (0..2_000).map(|client| format!("day{client}")).collect();
    let granted = |values: &[String]| -> Vec<u32> {
        values.iter().map(|value| (0..4).filter(|_| run.ask(value, "").0).count() as u32).collect()
    };
    let before = granted(&of_day);
    assert!(before.iter().filter(|granted| **granted == 3).count() > 256);
    assert!(before.iter().filter(|granted| **granted == 0).count() > 256);
    run.mock.advance(Duration::from_secs(120));
    run.service.counts.sweep();
    let after = granted(&of_day);
    let sums: Vec<u32> = before.iter().zip(&after).map(|(before, after)| before + after).collect();
    assert!(sums.iter().all(|sum| *sum <= 3), "a key was granted {:?}", sums.iter().max());
}

#[test]
fn the_keys_of_windows_that_are_over_are_freed_and_there_is_room_again() {
    for algorithm in [FixedWindow, TokenBucket] {
        let run = Run::new(algorithm, 1_024);
        run.load(&["key: k, rate_limit: {unit: minute, requests_per_unit: 3}"]);
        for _ in 0..3 {
            for client in 0..2_000 {
                run.ask(&client.to_string(), "");
            }
            assert!((900..=1_024).contains(&keys(&run)), "{} keys", keys(&run));
            run.mock.advance(Duration::from_secs(125));
            run.service.counts.sweep();
            assert_eq!(keys(&run), 0, "{algorithm:?}");
            assert_eq!(run.ask("new", ""), (true, 2));
            run.mock.advance(Duration::from_secs(125));
            run.service.counts.sweep();
        }
    }
}

/// Each order of two new keys beside a count of the keys: one found room without a question, one
/// took a slot. A count that forgot one of them would let one more in, for good.
#[test]
fn a_key_that_comes_during_a_count_is_not_forgotten() {
    // The part of the count before which a step of a key is: its beginning, its look, and its end.
    for moments in 0..3_u32.pow(5) {
        let moment = |step: u32| moments / 3_u32.pow(step) % 3;
        if moment(0) > moment(1) || moment(2) > moment(3) || moment(3) > moment(4) {
            continue;
        }
        let (room, share, held) = (KeyRoom::new(32), Share::default(), Cell::new(0));
        room.divide(&[(&share, 1, false)]);
        let enter = || held.set(held.get() + 1);
        let take = || assert!(room.take(&share, true));
        let (begin, arrive) = (|| assert!(!room.begin([0; 16])), || room.arrive());
        let steps: [&dyn Fn(); 5] = [&enter, &begin, &take, &enter, &arrive];
        let left = RefCell::new((0..5).collect::<Vec<u32>>());
        let run_before = |part: u32| {
            left.borrow_mut().retain(|step| {
                let is_left = moment(*step) >= part;
                if !is_left {
                    steps[*step as usize]();
                }
                is_left
            });
        };
        run_before(1);
        room.count(|| {
            let seen = held.get();
            run_before(2);
            seen
        });
        run_before(3);
        while room.take(&share, true) {
            enter();
            room.arrive();
        }
        let usable = 30;
        assert!((usable - 2..=usable).contains(&held.get()), "{moments}: {} keys are held", held.get());
    }
}
