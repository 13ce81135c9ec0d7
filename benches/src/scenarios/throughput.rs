//! Decisions back to back.

use std::time::Duration;

use super::effort::{Effort, say};
use crate::contenders::{FLOOR, Key, Nothing};
use crate::keys::Popularity;
use crate::results::{Case, Shares, Times};
use crate::timing::{self, BATCH, Draws, Lap, have_processors};
use crate::{Contender, Limiter, Path, Setup};

/// A limiter that has seen all of its keys.
struct Runner<K> {
    name: &'static str,
    limiter: Box<dyn Limiter<K>>,
    path: Path,
}

impl<K> Runner<K> {
    fn new(contender: &Contender<K>, path: Path, all: &[K]) -> Runner<K> {
        let limiter = (contender.make)(Setup { quota: path.quota(), keys: all.len() });
        assert_eq!(limiter.count_granted(all), all.len() as u64, "a key's bucket starts full");
        Runner { name: contender.name, limiter, path }
    }
}

/// Times all runners and the empty loop in turn, in each round.
fn time<K: Send + Sync>(
    case: &Case,
    effort: &Effort,
    runners: &[Runner<K>],
    draws: &Draws<K>,
) -> (Vec<Times>, Vec<Shares>) {
    if case.threads > effort.most_threads {
        return (Vec::new(), Vec::new());
    }
    say(format_args!("{}, {}, {} threads, {} keys", case.what, case.path, case.threads, case.keys));
    let (rounds, window) = match have_processors(case.threads) {
        true => (effort.rounds, effort.window),
        false => (effort.long_rounds, effort.long_window),
    };
    let mut loops = Vec::new();
    let mut laps: Vec<Vec<Vec<Lap>>> = runners.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        let nothing = draws.run(&Nothing, Path::Granted, window / 4);
        loops.push(timing::nanos(&nothing.expect("it grants all")));
        // No runner always comes after the same one.
        for turn in 0..runners.len() {
            let turn = (turn + round) % runners.len();
            let runner = &runners[turn];
            // A thread that lost its processor between its reading and its decision may find
            // another outcome.
            let mut tries = (0..5).map(|_| draws.run(&*runner.limiter, runner.path, window));
            laps[turn].extend(tries.find_map(|laps| laps));
        }
    }
    let of = |runner: &Runner<K>| runner.name.to_owned();
    let on_path = |(runner, laps): &(&Runner<K>, &Vec<Vec<Lap>>)| {
        let all = laps.len() == rounds;
        if !all {
            say(format_args!("{}: not all of its decisions are {}", runner.name, case.path));
        }
        all
    };
    let timed: Vec<_> = runners.iter().zip(&laps).filter(on_path).collect();
    let times = timed.iter().map(|(runner, laps)| Times {
        case: case.clone(),
        contender: of(runner),
        raw: laps.iter().map(|laps| timing::nanos(laps)).collect(),
        loops: loops.clone(),
        notes: held(&*runner.limiter).into_iter().collect(),
    });
    let shares = timed.iter().filter(|_| case.threads > 1).map(|(runner, laps)| Shares {
        case: case.clone(),
        contender: of(runner),
        jain: laps.iter().map(|laps| jain(laps)).collect(),
        least: laps.iter().map(|laps| least(laps)).collect(),
    });
    (times.collect(), shares.collect())
}

/// Returns the keys held as a note, if the limiter can tell.
pub(super) fn held<K>(limiter: &dyn Limiter<K>) -> Option<(String, String)> {
    let held = limiter.keys_held();
    (held > 0).then(|| ("keys held".to_owned(), held.to_string()))
}

/// Returns the decisions a second of each thread.
fn speeds(laps: &[Lap]) -> impl Iterator<Item = f64> {
    laps.iter().map(|lap| lap.decisions as f64 / lap.elapsed.as_secs_f64())
}

/// Returns Jain's index of fairness: <https://doi.org/10.48550/arXiv.cs/9809099>.
fn jain(laps: &[Lap]) -> f64 {
    let (sum, squares) = speeds(laps).fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (laps.len() as f64 * squares)
}

fn least(laps: &[Lap]) -> f64 {
    let fair = speeds(laps).sum::<f64>() / laps.len() as f64;
    speeds(laps).fold(f64::MAX, f64::min) / fair
}

fn case(what: impl Into<String>, path: Path, threads: usize, keys: usize) -> Case {
    Case { what: what.into(), path: path.name().to_owned(), threads, keys }
}

/// Times one bucket that all threads use.
pub fn one_bucket(effort: &Effort, contenders: &[Contender<()>]) -> (Vec<Times>, Vec<Shares>) {
    let (mut times, mut shares) = (Vec::new(), Vec::new());
    for path in [Path::Granted, Path::Refused] {
        let runners: Vec<_> =
            contenders.iter().map(|contender| Runner::new(contender, path, &[()])).collect();
        for &threads in effort.threads {
            let draws = Draws::new(threads, |_| vec![(); BATCH]);
            let done = time(&case("one bucket", path, threads, 1), effort, &runners, &draws);
            times.extend(done.0);
            shares.extend(done.1);
        }
    }
    (times, shares)
}

/// Times one window that all threads use, and a window for each of 1,000 keys.
pub fn windows(effort: &Effort, contenders: &[Contender<()>], with_keys: &[Contender<u64>]) -> Vec<Times> {
    let (mut times, all) = (Vec::new(), Vec::from_iter(0..1_000));
    for path in [Path::GrantedInWindows, Path::Refused] {
        let one: Vec<_> = contenders.iter().map(|contender| Runner::new(contender, path, &[()])).collect();
        let keyed: Vec<_> = with_keys.iter().map(|contender| Runner::new(contender, path, &all)).collect();
        for threads in [1, 2] {
            let draws = Draws::new(threads, |_| vec![(); BATCH]);
            times.extend(time(&case("window", path, threads, 1), effort, &one, &draws).0);
            let draws = Draws::new(threads, |thread| Popularity::Uniform.draw(all.len(), thread));
            times.extend(time(&case("keyed windows", path, threads, all.len()), effort, &keyed, &draws).0);
        }
    }
    times
}

/// Times one bucket whose quota is a tenth of the contender's own speed.
pub fn mixed(effort: &Effort, contenders: &[Contender<()>]) -> Vec<Times> {
    [1, 2].into_iter().flat_map(|threads| mixed_on(threads, effort, contenders)).collect()
}

fn mixed_on(threads: usize, effort: &Effort, contenders: &[Contender<()>]) -> Vec<Times> {
    let draws = Draws::new(threads, |_| vec![(); BATCH]);
    let share = |runner: &Runner<()>, window| {
        let laps = draws.run(&*runner.limiter, runner.path, window).expect("any outcome is on its path");
        let (granted, decisions) =
            laps.iter().fold((0, 0), |(g, d), lap| (g + lap.granted, d + lap.decisions));
        (granted as f64 / decisions as f64, decisions as f64 / laps[0].elapsed.as_secs_f64())
    };
    let runner = |contender: &Contender<()>| {
        let mut rate = 1_000_000.0;
        // Its own speed depends on the share.
        for _ in 0..8 {
            let path = Path::Mixed(rate as u64);
            let runner = Runner::new(contender, path, &[()]);
            let (granted, speed) = share(&runner, Duration::from_millis(50));
            if (0.07..0.13).contains(&granted) {
                return Some(runner);
            }
            rate = speed / 10.0;
        }
        say(format_args!("{}: no quota has it refuse 90 %", contender.name));
        None
    };
    let runners: Vec<_> = contenders.iter().filter_map(runner).collect();
    time(&case("one bucket", Path::Mixed(0), threads, 1), effort, &runners, &draws).0
}

/// Times a bucket for each key.
pub fn keyed(effort: &Effort, contenders: &[Contender<u64>]) -> Vec<Times> {
    let mut times = Vec::new();
    for &keys in effort.keys {
        times.extend(with_keys(effort, contenders, keys, "keyed", |key| key));
    }
    times
}

/// Times the forms in which a keyed limiter is asked, on 1 thread.
pub fn forms(effort: &Effort, contenders: &[Contender<u64>]) -> Vec<Times> {
    let mut times = Vec::new();
    for (keys, path) in [(1_000, Path::Granted), (1_000, Path::Refused), (1_000_000, Path::GrantedUnderPlans)]
    {
        let all: Vec<u64> = (0..keys as u64).collect();
        let runners: Vec<_> = contenders.iter().map(|contender| Runner::new(contender, path, &all)).collect();
        let draws = Draws::new(1, |thread| Popularity::Uniform.draw(keys, thread));
        times.extend(time(&case("forms", path, 1, keys), effort, &runners, &draws).0);
    }
    times
}

/// Times a bucket for each of 1,000 strings.
pub fn strings(effort: &Effort, contenders: &[Contender<String>]) -> Vec<Times> {
    with_keys(effort, contenders, 1_000, "strings", |key| format!("client-{key:08}"))
}

fn with_keys<K: Key>(
    effort: &Effort,
    contenders: &[Contender<K>],
    keys: usize,
    what: &str,
    name: fn(u64) -> K,
) -> Vec<Times> {
    let all: Vec<K> = (0..keys as u64).map(name).collect();
    let mut times = Vec::new();
    // With many keys a refusal takes as long as a grant: the look-up takes the time.
    let paths: &[Path] = match keys {
        1_000 => &[Path::Granted, Path::Refused],
        // Their setup takes longer than a full bucket needs to be idle.
        100_000.. => &[Path::GrantedNeverIdle],
        _ => &[Path::Granted],
    };
    for &path in paths {
        let asked = contenders.iter().filter(|contender| path != Path::Refused || contender.name != FLOOR);
        let runners: Vec<_> = asked.map(|contender| Runner::new(contender, path, &all)).collect();
        for popularity in [Popularity::Uniform, Popularity::Zipf] {
            if popularity == Popularity::Zipf && (keys == 1 || what == "strings") {
                continue;
            }
            for threads in [1, 2] {
                let what = format!("{what}, {}", popularity.name());
                let draws = Draws::new(threads, |thread| {
                    popularity.draw(keys, thread).into_iter().map(name).collect()
                });
                times.extend(time(&case(what, path, threads, keys), effort, &runners, &draws).0);
            }
        }
    }
    times
}
