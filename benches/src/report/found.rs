//! What was found, in words that follow the numbers.

use super::compare::{
    BATCHES, Comparison, HOT, INLINE, Measure, NONE, OURS, SPREAD, Sample, Subject, case, is_peer_by_default,
    ratio, rounds,
};
use super::numbers::{Spread, count, grouped, lasting, short};
use super::tables::quantile;
use crate::results::{Law, Proxy, Results};

const MUTEX: &str = "std mutex";

/// A mutex on the clock that ours has.
const ALIKE: &str = "parking_lot + quanta";

/// Paragraphs.
pub(super) fn paragraphs(results: &Results, samples: &[Sample], comparisons: &[Comparison]) -> Vec<String> {
    let all = [
        one_bucket(
            samples,
            "granted",
            "A grant is a load, a reading of the clock and a compare-and-swap of one word. \
             A mutex is written when it is taken and again when it is given back; who loses its processor in between makes all others wait.",
        ),
        one_bucket(
            samples,
            "refused",
            "A refusal writes nothing: threads read the same cache line and need not take it from each other. \
             A mutex is written by each refusal as by each grant.",
        ),
        fastest(samples),
        many_keys(samples),
        hot(samples),
        tail(results, samples),
        proxy(results, samples),
        lost(comparisons),
        broken(results),
    ];
    all.into_iter().flatten().collect()
}

fn of_bucket(measure: Measure, path: &str, threads: usize) -> Subject {
    Subject { measure, case: case("one bucket", 1, path, threads) }
}

/// Against a mutex, and why, if the word wins.
fn one_bucket(samples: &[Sample], path: &str, why: &str) -> Option<String> {
    let against = |peer: &'static str| {
        let of = move |&threads: &usize| {
            let subject = of_bucket(Measure::Time, path, threads);
            let net = Spread::of(rounds(samples, &subject, OURS)?)?;
            Some((threads, net, ratio(samples, &subject, OURS, peer)?))
        };
        [1, 2, 16].iter().filter_map(of).collect::<Vec<_>>()
    };
    let found = against(MUTEX);
    if found.is_empty() {
        return None;
    }
    let sentence = |(threads, net, ratio): &(usize, Spread, Spread)| {
        let threads = count(*threads, "thread");
        format!(
            "With {threads} tollgate takes {} ns and is {} {MUTEX} ({}).",
            short(net.median),
            ratio.is_to(),
            ratio.ratio_in_text()
        )
    };
    let mut sentences: Vec<String> = found.iter().map(sentence).collect();
    let alike = against(ALIKE);
    if !alike.is_empty() {
        let ratios = alike.iter().map(|(threads, _, ratio)| {
            format!("{} with {}", ratio.ratio_in_text(), count(*threads, "thread"))
        });
        let ratios = ratios.collect::<Vec<_>>().join(", ");
        sentences.push(format!(
            "{MUTEX} reads the system's clock; to {ALIKE}, on the clock that tollgate has: {ratios}."
        ));
    }
    if found.iter().chain(&alike).all(|(_, _, ratio)| is_won(ratio)) {
        sentences.push(why.to_owned());
    }
    Some(format!("**One bucket, {path}.** {}", sentences.join(" ")))
}

fn is_won(ratio: &Spread) -> bool {
    ratio.median < 1.0 && !ratio.is_undecided()
}

/// The fastest peer at one bucket, alone on it, that reads a clock each time.
fn fastest(samples: &[Sample]) -> Option<String> {
    let sentence = |path: &str| {
        let subject = of_bucket(Measure::Time, path, 1);
        let peers = samples.iter().filter(|of| of.subject == subject && is_peer_by_default(&of.contender));
        let times = peers.filter_map(|of| Some((of, Spread::of(&of.rounds)?.median)));
        let (peer, time) = times.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let ratio = ratio(samples, &subject, OURS, &peer.contender)?;
        Some(format!(
            "Where all is {path}, the fastest peer that reads a clock each time is {} at {} ns; tollgate is {} it ({}).",
            peer.contender,
            short(time),
            ratio.is_to(),
            ratio.ratio_in_text()
        ))
    };
    let sentences: Vec<String> = ["granted", "refused"].into_iter().filter_map(sentence).collect();
    (!sentences.is_empty()).then(|| format!("**1 thread, the fastest peer.** {}", sentences.join(" ")))
}

/// The table, where keys are not in the caches.
fn many_keys(samples: &[Sample]) -> Option<String> {
    let of = |keys: usize| {
        let subject = Subject { measure: Measure::Time, case: case("keyed, uniform", keys, "granted", 1) };
        let net = |contender| Some(short(Spread::of(rounds(samples, &subject, contender)?)?.median));
        let to = |ours, theirs| Some(ratio(samples, &subject, ours, theirs)?.ratio_in_text());
        let (table, map, governor) = (net(INLINE)?, net(OURS)?, to(INLINE, "governor")?);
        let batch = net(BATCHES).zip(to(BATCHES, INLINE));
        let batch =
            batch.map(|(net, ratio)| format!("; asked for 16 at a time {net} ns ({ratio} to single calls)"));
        Some(format!(
            "With {} a decision takes {table} ns in a table, {map} ns in the map; to governor the table's is {governor}{}.",
            count(keys, "key"),
            batch.unwrap_or_default()
        ))
    };
    let sentences: Vec<String> = [128_000, 1_000_000, 10_000_000].into_iter().filter_map(of).collect();
    (!sentences.is_empty()).then(|| format!("**Many keys, 1 thread.** {}", sentences.join(" ")))
}

/// One bucket that is spread over cores, and one key.
fn hot(samples: &[Sample]) -> Option<String> {
    let of = |&threads: &usize| {
        let subject = of_bucket(Measure::Time, "granted", threads);
        let net = Spread::of(rounds(samples, &subject, SPREAD)?)?.median;
        let ratio = ratio(samples, &subject, SPREAD, OURS)?.ratio_in_text();
        Some(format!(
            "With {} a grant takes {} ns, {ratio} to the one word.",
            count(threads, "thread"),
            short(net)
        ))
    };
    let key = |(threads, keys)| {
        let subject =
            Subject { measure: Measure::Time, case: case("keyed, uniform", keys, "granted", threads) };
        let ratio = ratio(samples, &subject, HOT, OURS)?.ratio_in_text();
        Some(format!("{ratio} of {} with {}", count(keys, "key"), count(threads, "thread")))
    };
    let mut sentences: Vec<String> = [1, 2, 16].iter().filter_map(of).collect();
    let keys: Vec<String> = [(2, 1), (1, 1), (1, 1_000)].into_iter().filter_map(key).collect();
    if !keys.is_empty() {
        sentences.push(format!(
            "A limiter whose contended keys are spread, to one whose keys are not: {}.",
            keys.join(", ")
        ));
    }
    (!sentences.is_empty()).then(|| format!("**Spread over cores.** {}", sentences.join(" ")))
}

fn tail(results: &Results, samples: &[Sample]) -> Option<String> {
    let subject = of_bucket(Measure::P999, "granted", 16);
    let ratio = ratio(samples, &subject, OURS, MUTEX)?;
    let of = |contender: &str| {
        results.latencies.iter().find(|of| of.case == subject.case && of.contender == contender)
    };
    let (ours, theirs) = (of(OURS)?, of(MUTEX)?);
    let at = |of, part| quantile(of, part).map(lasting);
    let why = if is_won(&ratio) {
        " A thread that loses its processor holds nothing that the others need."
    } else {
        ""
    };
    Some(format!(
        "**The tail.** With 16 threads on {}, one decision in 1,000 takes longer than {} with tollgate, {} with {MUTEX}; \
         one in 10,000 longer than {}, {} with {MUTEX}. The longest of {} took {}, the longest of {MUTEX}'s {} {}. \
         Round by round tollgate's p99.9 is {} {MUTEX}'s ({}).{why}",
        count(results.about.processors, "processor"),
        at(ours, 0.999)?,
        at(theirs, 0.999)?,
        at(ours, 0.9999)?,
        at(theirs, 0.9999)?,
        grouped(ours.decisions),
        at(ours, 1.0)?,
        grouped(theirs.decisions),
        at(theirs, 1.0)?,
        length(&ratio),
        ratio.ratio_in_text()
    ))
}

/// In words, of a ratio of times: "ours is {} theirs".
fn length(ratio: &Spread) -> String {
    if ratio.is_undecided() {
        return "as long, as far as the rounds tell, as".to_owned();
    }
    let (change, word) =
        ((ratio.median - 1.0).abs() * 100.0, if ratio.median < 1.0 { "less" } else { "more" });
    format!("{change:.0} % {word} than")
}

/// A proxy's limiter that refuses nothing.
const GRANTING: &str = "tollgate, granting all";

/// Below this part of the requests it is said not to matter.
const MATTERS: f64 = 0.05;

fn proxy(results: &Results, samples: &[Sample]) -> Option<String> {
    let without = results.proxies.iter().find(|of| of.limiter == NONE)?;
    let median = |values: &[f64]| Spread::of(values).map(|of| short(of.median));
    let with = |of: &Proxy| {
        Some((of.limiter.clone(), median(&of.requests)?, Spread::of_ratios(&of.requests, &without.requests)?))
    };
    let with: Vec<_> = results.proxies.iter().filter(|of| of.limiter != NONE).filter_map(with).collect();
    // Who grants all lets through as much work as none.
    let (_, _, granting) = with.iter().find(|(limiter, ..)| limiter == GRANTING)?;
    let does_not_matter = (1.0 - granting.median).abs() < MATTERS;
    let title = if does_not_matter { "Where it does not matter" } else { "In a proxy" };
    let sentence = |(limiter, requests, ratio): &(String, String, Spread)| {
        format!("With {limiter}, it is {requests}: {} ({}).", change(ratio), ratio.ratio_in_text())
    };
    let mut sentences: Vec<String> = with.iter().map(sentence).collect();
    sentences.extend(part_of_a_request(without, samples));
    Some(format!(
        "**{title}.** A whole proxy without a limiter answers {} requests/s. {}",
        median(&without.requests)?,
        sentences.join(" ")
    ))
}

/// Of one key, as wrk's is: threads of the proxy meet at its bucket.
fn part_of_a_request(without: &Proxy, samples: &[Sample]) -> Option<String> {
    let subject = Subject { measure: Measure::Time, case: case("keyed, uniform", 1, "granted", 2) };
    let decision = Spread::of(rounds(samples, &subject, OURS)?)?.median;
    let request = 1e9 / Spread::of(&without.requests)?.median;
    Some(format!(
        "Without a limiter a request is answered every {}; a decision on 1 key takes {} with 2 threads, {:.2} % of that.",
        lasting(request),
        lasting(decision),
        decision / request * 100.0
    ))
}

/// In words, of a ratio of requests.
fn change(ratio: &Spread) -> String {
    if ratio.is_undecided() {
        return "no difference that the rounds tell".to_owned();
    }
    let part = (ratio.median - 1.0).abs() * 100.0;
    format!("{part:.1} % {}", if ratio.median < 1.0 { "fewer" } else { "more" })
}

fn lost(comparisons: &[Comparison]) -> Option<String> {
    if comparisons.is_empty() {
        return None;
    }
    let of = |ours: &[&str]| comparisons.iter().filter(|one| ours.contains(&&*one.ours)).collect::<Vec<_>>();
    let default = of(&[OURS]);
    let is_slower = |one: &&&Comparison| one.is_lost() && !one.ratio.is_undecided();
    let slower = |of: &[&Comparison]| of.iter().filter(is_slower).count();
    let untold = |of: &[&Comparison]| of.iter().filter(|one| one.is_lost()).count() - slower(of);
    let number = |number: usize| grouped(number as u64);
    let mut text = format!(
        "**Where it loses.** tollgate as it is by default was compared with a peer that reads a clock each time, in the same case, \
         {} times, and lost {} of them",
        number(default.len()),
        number(slower(&default))
    );
    let mut peers: Vec<(&str, usize)> = Vec::new();
    for one in default.iter().filter(is_slower) {
        match peers.iter_mut().find(|(name, _)| *name == one.theirs) {
            Some((_, times)) => *times += 1,
            None => peers.push((&one.theirs, 1)),
        }
    }
    peers.sort_by_key(|&(_, times)| std::cmp::Reverse(times));
    let peers: Vec<String> = peers.iter().map(|(name, times)| format!("`{name}` {times}")).collect();
    if !peers.is_empty() {
        text += &format!(", to {}", peers.join(", "));
    }
    text += &format!(
        ". In {} more the median ratio is above 1.000, but the rounds do not tell.",
        number(untold(&default))
    );
    for (how, whom, variants) in [
        ("With its buckets in a table", "such peers", of(&[INLINE])),
        ("Spread over cores", "such peers", of(&[SPREAD])),
        (
            "On a coarse clock and with a reading at hand",
            "peers that do the same",
            of(&["tollgate, coarse clock", "tollgate, reading at hand"]),
        ),
    ] {
        if !variants.is_empty() {
            text += &format!(
                " {how}, it was compared with {whom} {} times, and lost {}; in {} more the rounds do not tell.",
                number(variants.len()),
                number(slower(&variants)),
                number(untold(&variants))
            );
        }
    }
    if comparisons.iter().any(Comparison::is_lost) {
        text += " All are [listed](#where-it-loses), with the reasons that are known.";
    }
    Some(text)
}

/// Who does not limit does not do the same work.
fn broken(results: &Results) -> Option<String> {
    let sentences = who_broke(results).join(" ");
    (!sentences.is_empty())
        .then(|| format!("**Not the same work.** {sentences} [The numbers](#do-they-limit) are below."))
}

fn who_broke(results: &Results) -> Vec<String> {
    let names = |is_broken: fn(&Law) -> bool| {
        let mut names: Vec<String> = Vec::new();
        for law in results.laws.iter().filter(|law| is_broken(law)) {
            let name = format!("`{}`", law.contender);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    };
    let (more, less) = (names(|law| !law.is_kept()), names(|law| !law.is_prompt()));
    let mut sentences = Vec::new();
    if !more.is_empty() {
        sentences.push(format!("Granted more than the law allows, so not timed: {more}."));
    }
    if !less.is_empty() {
        sentences.push(format!("Granted less than the law owes, so not timed: {less}."));
    }
    sentences
}

/// How many limit, and who does not.
pub(super) fn verdict(results: &Results) -> Option<String> {
    // Whether it held each time, of each contender of a kind.
    let mut all: Vec<(&str, &str, bool)> = Vec::new();
    for law in &results.laws {
        match all.iter_mut().find(|one| (one.0, one.1) == (&law.kind, &law.contender)) {
            Some(one) => one.2 &= law.holds(),
            None => all.push((&law.kind, &law.contender, law.holds())),
        }
    }
    let kept = all.iter().filter(|one| one.2).count();
    let mut sentences = vec![format!("{kept} of {} kept the law each time.", count(all.len(), "contender"))];
    sentences.extend(who_broke(results));
    (!all.is_empty()).then(|| sentences.join(" "))
}
