//! What many cores would make of one hot bucket: reckoned from what two were measured to do.

use super::compare::{Measure, OURS, SPREAD, Sample, Subject, case, rounds};
use super::numbers::{Spread, grouped, short};
use crate::results::Results;

const CORES: [usize; 5] = [8, 16, 32, 64, 128];

/// Tokens that a core takes at once; the last is the most that a spread bucket leases.
const BATCHES: [usize; 3] = [8, 64, 512];

/// A spread bucket has no more, however many cores there are.
const MOST_CELLS: usize = 64;

/// How much longer a cache line takes to another socket. 2.1 to 2.8 times, of four pairs of Intel's.
const FARTHER: f64 = 2.8;

/// Nanoseconds that were measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// A cache line from one core to another.
    transfer: f64,
    /// A grant of a bucket's word that is in the core's own cache.
    grant: f64,
    /// One of tokens at hand.
    at_hand: f64,
}

impl Costs {
    fn of(results: &Results, samples: &[Sample]) -> Option<Costs> {
        let alone = |contender| median(rounds(samples, &granted(1), contender)?);
        Some(Costs { transfer: median(&results.transfers)?, grant: alone(OURS)?, at_hand: alone(SPREAD)? })
    }

    fn farther(self) -> Costs {
        Costs { transfer: self.transfer * FARTHER, ..self }
    }

    /// Grants a nanosecond of all cores on the plain word: each has to wait for the word to come from another core.
    fn plain(&self) -> f64 {
        1.0 / self.transfer
    }

    /// The same of a spread bucket, by the least of what bounds it: the cores' own work, their cells if they have to share
    /// them, and the word, which a batch needs once.
    fn spread(&self, cores: usize, batch: usize) -> f64 {
        let (cores, cells, batch) = (cores as f64, cores.min(MOST_CELLS) as f64, batch as f64);
        let own = cores * batch / (batch * self.at_hand + self.transfer + self.grant);
        let shared = if cores > cells { cells / self.transfer } else { f64::INFINITY };
        own.min(shared).min(batch / self.transfer)
    }
}

fn granted(threads: usize) -> Subject {
    Subject { measure: Measure::Time, case: case("one bucket", 1, "granted", threads) }
}

fn median(rounds: &[f64]) -> Option<f64> {
    Spread::of(rounds).map(|of| of.median).filter(|&median| median > 0.0)
}

/// Of grants a nanosecond.
fn millions(grants: f64) -> String {
    short(grants * 1e3)
}

/// Paragraphs and a table, if all that they need was measured.
pub(super) fn parts(results: &Results, samples: &[Sample]) -> Option<Vec<String>> {
    let costs = Costs::of(results, samples)?;
    let mut parts = vec![format!(
        "**This is a model, not a measurement.** It is reckoned from three medians of this run: a cache line goes from one core to another in {} ns, \
         a grant of a word that no other core wants takes {} ns, one of tokens at hand {} ns.",
        short(costs.transfer),
        short(costs.grant),
        short(costs.at_hand)
    )];
    parts.push(ASSUMPTIONS.to_owned());
    parts.extend(check(&costs, samples));
    parts.push(format!("Million grants a second of all cores, by the model:\n\n{}", table(&costs)));
    Some(parts)
}

const ASSUMPTIONS: &str = "It assumes:

* Transfers of one line come one after another, and each grant of the plain word, and each batch of a spread one, needs one. \
No attempt is in vain, though cores that lose races move the line once more; and no core has several grants out of one transfer, though who has the line \
may go on while the others wait.
* Cores do nothing but take tokens, of which there are enough. A core whose requests have other work in them asks less often.
* A spread bucket leases as many tokens at once as the column says. It does so while they are a quarter of the burst, shared by the cores, \
or less: 64 cores in batches of 512 need a burst of 131,072. It has 64 cells at most: of 128 cores two pass each to and fro.
* Across two sockets every transfer takes 2.8 times as long. [Published medians](https://github.com/nviennot/core-to-core-latency) of pairs of \
Intel's server processors are 2.1 to 2.8 times those of one socket.";

/// What the model says of two cores, beside what they did.
fn check(costs: &Costs, samples: &[Sample]) -> Option<String> {
    let measured = |contender| Some(2.0 / median(rounds(samples, &granted(2), contender)?)?);
    let (plain, spread) = (measured(OURS)?, measured(SPREAD)?);
    let most = BATCHES[BATCHES.len() - 1];
    Some(format!(
        "Of two cores it says {} million grants a second of the plain word, where {} million were measured; of a spread bucket in batches of {most} {} million, \
         where {} million were.",
        millions(costs.plain()),
        millions(plain),
        millions(costs.spread(2, most)),
        millions(spread)
    ))
}

fn table(costs: &Costs) -> String {
    let batches = BATCHES.map(|batch| format!("spread, batches of {}", grouped(batch as u64))).join(" | ");
    let mut text = format!("| cores | sockets | plain word | {batches} |\n");
    text += &format!("{}|\n", "|--:".repeat(3 + BATCHES.len()));
    for (sockets, costs) in [(1, *costs), (2, costs.farther())] {
        for cores in CORES {
            let spread = BATCHES.map(|batch| millions(costs.spread(cores, batch))).join(" | ");
            text += &format!("| {cores} | {sockets} | {} | {spread} |\n", millions(costs.plain()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bounds_a_spread_bucket_is_the_least() {
        let costs = Costs { transfer: 60.0, grant: 30.0, at_hand: 10.0 };
        assert_eq!(costs.plain() * 60.0, 1.0);
        // Each core by itself: 512 grants of 10 ns and 90 ns for the batch.
        assert_eq!(costs.spread(8, 512), 8.0 * 512.0 / 5_210.0);
        // The word: a batch of 8 in 60 ns.
        assert_eq!(costs.spread(64, 8), 8.0 / 60.0);
        // Two cores share a cell, which goes to and fro.
        assert_eq!(costs.spread(128, 512), 64.0 / 60.0);
        assert!(costs.farther().plain() < costs.plain() / 2.0);
    }
}
