//! A flood of new keys, while a limiter holds as many keys as it may and none of them is idle.

use std::time::Instant;

use tollgate::Quota;

use super::effort::{Effort, say};
use super::throughput::held;
use crate::contenders::Nothing;
use crate::results::{Case, Times};
use crate::{Contender, Limiter, Setup};

/// New keys of a round.
const ROUND: usize = 20_000;

/// Times decisions on new keys alone, each contender on the same keys in the same round.
///
/// Twice as many keys as the limiter is set up for came before, untimed, and have each taken their
/// only token of the hour.
pub fn newcomers(effort: &Effort, contenders: &[&Contender<u64>]) -> Vec<Times> {
    let keys = effort.flood;
    let case = Case { what: "flood at capacity".to_owned(), path: String::new(), threads: 1, keys };
    say(format_args!("{}, {keys} keys", case.what));
    let before: Vec<u64> = (0..2 * keys as u64).collect();
    let full = |contender: &&Contender<u64>| {
        let limiter = (contender.make)(Setup { quota: Quota::per_hour(1), keys });
        limiter.count_granted(&before);
        limiter
    };
    let limiters: Vec<_> = contenders.iter().map(full).collect();
    let mut granted = vec![0; limiters.len()];
    let mut raw: Vec<Vec<f64>> = vec![Vec::new(); limiters.len()];
    let mut loops = Vec::new();
    for round in 0..effort.rounds {
        let first = before.len() + round * ROUND;
        let newcomers: Vec<u64> = (first as u64..).take(ROUND).collect();
        loops.push(nanos(&Nothing, &newcomers).0);
        for turn in 0..limiters.len() {
            let turn = (turn + round) % limiters.len();
            let (nanos, were) = nanos(&*limiters[turn], &newcomers);
            raw[turn].push(nanos);
            granted[turn] += were;
        }
    }
    let asked = effort.rounds * ROUND;
    let notes = |turn: usize| {
        let share = format!("{:.2} %", granted[turn] as f64 / asked as f64 * 100.0);
        [("granted".to_owned(), share)].into_iter().chain(held(&*limiters[turn])).collect()
    };
    let times = raw.into_iter().enumerate().map(|(turn, raw)| Times {
        case: case.clone(),
        contender: contenders[turn].name.to_owned(),
        raw,
        loops: loops.clone(),
        notes: notes(turn),
    });
    times.collect()
}

/// Returns the nanoseconds a decision, and the number of grants.
fn nanos(limiter: &dyn Limiter<u64>, keys: &[u64]) -> (f64, u64) {
    let start = Instant::now();
    let granted = limiter.count_granted(keys);
    (start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64, granted)
}
