//! The page, section by section.

use super::compare::{comparisons, samples};
use super::found;
use super::model;
use super::numbers::{count, grouped};
use super::plots::Plot;
use super::tables;
use crate::results::{About, Results};

/// All of `performance.md`.
pub(super) fn page(results: &Results, plots: &[Plot]) -> String {
    let samples = samples(results);
    let comparisons = comparisons(&samples);

    let mut sections = vec![head(&results.about)];
    let found = found::paragraphs(results, &samples, &comparisons);
    let found = found.into_iter().chain(plots.iter().map(Plot::link));
    sections.extend(section("What was found", found.map(Some)));
    sections.extend(section_of("What was to be reached", GOALS, tables::acceptance(results, &samples)));
    sections.extend(section_of("Where it loses", LOSSES, tables::losses(&comparisons, &results.laws)));
    sections.extend(laws(results));
    sections.extend(section("Decisions back to back", times(results)));
    sections.extend(single(results));
    let model = model::parts(results, &samples).into_iter().flatten().map(Some);
    sections.extend(section("What many cores would make of one hot bucket: a model", model));
    let folded = |summary, table: Option<String>| table.map(|table| details(summary, &table));
    let fairness = folded("Fairness of each contender", tables::fairness(results));
    sections.extend(section_of("Fairness", FAIRNESS, fairness));
    let memory = folded("Memory of each contender", tables::memory(results));
    sections.extend(section_of("Memory", MEMORY, memory));
    sections.extend(section_of("Room in a table", ROOM, tables::rooms(results)));
    let starts = folded("First decisions of each contender", tables::starts(results));
    sections.extend(section_of("Cold start", STARTS, starts));
    sections.extend(section_of("A proxy under load", PROXIES, tables::proxies(results)));
    sections.push(measured(results));
    sections.iter().map(|section| section.trim_end()).collect::<Vec<_>>().join("\n\n") + "\n"
}

const LOSSES: &str = "\
A row for each case in which a peer's median is below that of ours. Only like is compared with like: tollgate with peers that read a \
clock in each decision, its coarse clock with `governor, upkeep clock` and `rate-net, coarse clock`, its reading at hand with \
`better-bucket, reading at hand`. `tollgate, inline` is compared with every keyed peer that reads a clock in each decision, and \
`tollgate, spread` with every peer of one bucket that does, though itself it reads one for a batch of tokens. `tollgate, pinned`, \
`tollgate, inline, batches of 16` and `tollgate, hot keys spread` have no like and are in the tables below only.

Beside a peer is the median of ours / theirs, the highest first. Where the quartiles are on both sides of 1, the rounds do not tell who \
was faster; of fairness that is left out. A fairness ratio is that of the inverses of Jain's index; memory is what is resident, and who \
takes less is named.";

const GOALS: &str = "Ratios of the time of a decision, unless said otherwise: ours / theirs of each round, then the median. \
A median above its target has not reached it, however close.";

const LAWS: &str = "All threads take what they can get of one bucket on the real clock, 100,000 tokens/s, burst 100,000. Allowed is \
`burst + rate * T` over the time that it took.";

const LATENCIES: &str = "Two readings of a clock are in each time, and in both sides of a ratio. Nothing is done for a batch here: \
who is named \"reading at hand\" reads a clock for each decision.";

const CAPACITY: &str = "Flood at capacity: each decision is on a key that was never seen. The limiter has met as many of those before as it is set up for, \
and as many keys before them; each has taken its only token of the hour. In tollgate they share buckets, which are soon empty; \
rate-net keeps the debt of a key that it evicts in other tables, and grants to whom it can.";

const FAIRNESS: &str = "Decisions of each thread in the same time. Jain's index is 1 if all made as many, 1/n if one of n threads made all.";

const ROOM: &str = "Tables of 1,048,576 slots, made for three quarters as many keys, are filled with keys that were never seen. Each takes its only token \
of the hour, so none is ever idle; who finds no room is denied (`WhenFull::Deny`) and counted.";

const MEMORY: &str = "Each key has taken a token of a quota that earns one an hour: all are limited, and none is forgotten. Counted is what was asked of the allocator and not given back; resident is by how much the process grew. (A large table is mapped, and so not counted.)";

const STARTS: &str = "Each in a process of its own.";

const PROXIES: &str = "`tollgate proxy` under load by wrk: requests a second, and the time of one.";

fn head(about: &About) -> String {
    let quick = if about.quick {
        "\n\n**This is a quick run of three minutes: fewer rounds, wider quartiles. Do not quote it.**"
    } else {
        ""
    };
    format!(
        "# Performance{quick}\n\nHow long tollgate takes for a decision, beside other limiters that do the same work on the same machine. \
         Written by the program that measured it: every number is of that run, but for those in the reasons. A ratio is ours / theirs: below 1 tollgate is faster. \
         Beside a median are its quartiles."
    )
}

/// A section, if there is anything in it.
fn section(title: &str, parts: impl IntoIterator<Item = Option<String>>) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().map(|part| part.trim_end().to_owned()).collect();
    (!parts.is_empty()).then(|| format!("## {title}\n\n{}", parts.join("\n\n")))
}

/// A section that says what its table shows, if there is one.
fn section_of(title: &str, about: &str, table: Option<String>) -> Option<String> {
    section(title, [Some(about.to_owned()), Some(table?)])
}

/// Folded until it is asked for. Without the empty lines it would not be read as Markdown.
fn details(summary: &str, table: &str) -> String {
    format!("<details><summary>{summary}</summary>\n\n{}\n\n</details>", table.trim_end())
}

fn laws(results: &Results) -> Option<String> {
    let table = details("What each contender granted", &tables::laws(results)?);
    section("Do they limit?", [found::verdict(results), Some(LAWS.to_owned()), Some(table)])
}

/// A table for each kind and path.
fn times(results: &Results) -> Vec<Option<String>> {
    let table = |(what, path): (&str, &str)| {
        let summary = if path.is_empty() { what.to_owned() } else { format!("{what}, {path}") };
        tables::times(results, what, path).map(|table| details(&capitalised(&summary), &table))
    };
    let scenarios = tables::scenarios(results);
    let about = scenarios.iter().any(|(what, _)| *what == "flood at capacity").then(|| CAPACITY.to_owned());
    scenarios.into_iter().map(table).chain([about]).collect()
}

/// A table for each case.
fn single(results: &Results) -> Option<String> {
    let tables = tables::latencies(results);
    let folded: Vec<_> = tables.iter().map(|(case, table)| details(&capitalised(case), table)).collect();
    section_of("Single decisions", LATENCIES, (!folded.is_empty()).then(|| folded.join("\n\n")))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn measured(results: &Results) -> String {
    let about = &results.about;
    let mut machine = format!(
        "On {}, {}, {}, {}. {}.",
        about.processor,
        count(about.processors, "processor"),
        about.kernel,
        about.rustc,
        about.date
    );
    let rounds = results.times.iter().map(|of| of.raw.len());
    if let Some((least, most)) = rounds.clone().min().zip(rounds.max()) {
        let rounds = if least == most { grouped(most as u64) } else { format!("{least} to {most}") };
        machine += &format!(" Rounds: {rounds}.");
    }
    if about.seconds > 0 {
        machine += &format!(" The run took {} min {} s.", about.seconds / 60, about.seconds % 60);
    }
    let mut text = format!("## How it was measured\n\n{machine}\n\n{HOW}\n\n{AGAIN}");
    if let Some(versions) = tables::versions(results) {
        text += "\n\n";
        text += &details("Versions", &versions);
    }
    text
}

const HOW: &str = "\
* The law comes first: whoever grants more than it may, or less than it owes, is not timed.
* All contenders of a case are timed in turn in each round, so what else the machine does falls on all of them. Ratios are of one round each.
* Keys are drawn before the clock starts.
* Each decision reads a clock and refills its bucket, but for \"reading at hand\", batches and the clocks that a thread keeps, which are named so, and \"spread\", which reads one for a batch of tokens.
* std mutex is on the system's clock, parking_lot + quanta on the processor's counter as tollgate is.
* With 100,000 keys or more a token comes in 400 s, into a bucket of 2^23: however long they take to set up, none is idle. Keys held are those that a limiter says it has at the end; who has no room for a key has it share a bucket.
* tollgate has its feature `huge-pages`: `inline` tables of 2 MiB or more are mapped, and the system is advised to put them on huge pages.
* A batch of 16 is put together within the time that is taken, and reads one clock.
* What the loop takes by itself is timed in the same rounds and taken off: net is raw less the loop.
* A time is that of one thread, from one decision to the next. Total throughput is threads / net time.
* Memory and cold starts are measured in a process each.";

const AGAIN: &str = "\
Again, all of it, or in three minutes:

    cargo run --release --manifest-path benches/Cargo.toml --bin performance
    cargo run --release --manifest-path benches/Cargo.toml --bin performance -- --quick";
