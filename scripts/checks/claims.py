"""Checks the numbers of the pages that can be counted, in the repository or in the CSV files of
docs/performance, that the tables and plots of the pages are those of their CSV files, and that the
tests that docs/parity.md names are there. A sentence that is gone fails as well: its claim here is to
be taken out.
"""

import csv
import json
import re
import subprocess
from glob import glob
from pathlib import Path

WORDS = "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
faults = []
checked = 0


def page(path):
    return re.sub(r"\s+", " ", Path(path).read_text())


def number(text):
    word = text.lower()
    return WORDS.index(word) if word in WORDS else float(text.replace(",", ""))


def holds(path, what, said, counted):
    global checked
    checked += 1
    if said != counted:
        faults.append(f"{path}: {what}: {said} is said, and {counted} counted")


def claim(path, sentence, *counted):
    """Checks the numbers of a sentence, each a group of the pattern."""
    found = re.search(sentence, page(path))
    if not found:
        faults.append(f"{path}: there is no sentence like {sentence!r}")
        return
    for said, true in zip(found.groups(), counted, strict=True):
        holds(path, found[0], number(said), true)


def tests(path):
    return Path(path).read_text().count("#[test]")


def of_the_checks():
    lines = [line.split() for line in "".join(re.findall(r"faults='\n(.*?)'", page_lines("scripts/faults"), re.S)).splitlines()]
    names = {words[0] for words in lines}
    several = sum(sum(words[0] == name for words in lines) > 1 for name in names)
    by_loom_alone = len(names - {words[0] for words in lines if words[-1] != "loom"})
    claim("README.md", r"each of (\d+) deliberate faults fails a model", len(names))
    claim("docs/verification.md", r"(\d+) under loom and (\d+) under shuttle", len(names), len(names) - by_loom_alone)
    claim("docs/verification.md", r"All (\d+) are red under loom, (\w+) of them in several", len(names), several)
    claim("docs/verification.md", r"All but (\w+) are red under shuttle", by_loom_alone)
    models = "src/tests/models"
    claim("docs/verification.md", r"(\w+) models are of the inline table", tests(f"{models}/table.rs"))
    claim("docs/verification.md", r"(\w+) are of a word that counts windows", tests(f"{models}/windows.rs"))
    claim("docs/verification.md", r"json` has (\d+) cases", len(json.loads(Path("tests/conformance.json").read_text())))

    targets = {path.stem for path in Path("fuzz/fuzz_targets").glob("*.rs")}
    claim("README.md", r"(\w+) fuzz targets", len(targets))
    claim("docs/verification.md", r"(\w+) targets in `fuzz/`", len(targets))
    described = set(re.findall(r"^\* `(\w+)`:", page_lines("docs/verification.md"), re.M))
    holds("docs/verification.md", "fuzz targets without a description", targets - described, set())
    run = re.search(r"for target in ([\w ]+); do\n +step \"fuzz-", page_lines("scripts/verify-full"))
    holds("scripts/verify-full", "fuzz targets", set(run[1].split()), targets)


def page_lines(path):
    return Path(path).read_text()


def of_the_packages():
    # CI holds the crates below each set of features to these bounds.
    bounds = {row.rpartition(":")[0]: int(row.rpartition(":")[2]) for row in
              re.search(r"for row in (.*?); do", page(".ci/run"))[1].replace("\\", "").split()}
    claim("README.md", r"are (\d+) crates below the core", bounds["tollgate:"])
    claim("README.md", r"(\d+) below `tollgate-http`, (\d+) with `ipnet`", bounds["tollgate-http:"], bounds["tollgate-http:ipnet"])
    claim("README.md", r"(\d+) with `tracing`", bounds["tollgate-http:tracing"])
    claim("README.md", r"(\d+) below `tollgate-adaptive`", bounds["tollgate-adaptive:"])
    claim("README.md", r"Rust (\d+\.\d+) or later", float(re.search(r'rust-version = "(.*)"', page_lines("Cargo.toml"))[1]))


def of_the_fleet():
    """Checks the defaults and bounds of a shared limiter. Its tables of calls have a test: `the_table_of_calls`."""
    readme, folder = "distributed/README.md", "distributed/src"

    def constant(file, pattern):
        found = re.search(pattern, page_lines(f"{folder}/{file}"))
        return float(found[1].replace("_", "")) if found else f"no {pattern} in {folder}/{file}"

    builder = "limiter/builder.rs"
    claim(readme, r"is for: (\d+) ms by default", constant(builder, r"horizon: Some\(Duration::from_millis\((\d+)\)"))
    claim(readme, r"for a call for at most (\d+) ms", constant(builder, r"deadline: Duration::from_millis\((\d+)\)"))
    probes = r"probes: \(Duration::from_millis\((\d+)\), Duration::from_millis\((\d+)\)\)"
    first, last = map(int, re.search(probes, page_lines(f"{folder}/{builder}")).groups())
    claim(readme, r"after (\d+) to (\d+) ms, again", first / 2, last)
    claim(readme, r"`max_keys` \(([\d,]+)\)", constant(builder, r"max_keys: ([\d_]+)"))
    claim(readme, r"After (\w+) failures in a row", constant("store/breaker.rs", r"IN_A_ROW: u32 = (\d+)"))
    claim(readme, r"Tokens of an answer that comes within (\d+) s", constant("limiter/flush.rs", r"GIVE_UP: .*from_secs\((\d+)\)"))
    claim(readme, r"a batch of up to (\d+) keys", constant("limiter/flush.rs", r"MAX_BATCH: usize = (\d+)"))
    connections = [constant(f"{store}/options.rs", r"connections: (\d+)") for store in ["postgres", "mysql"]]
    claim(readme, r"connections of a store \| one \| one to each server \| (\d+) \| (\d+) \|", *connections)
    steps = [constant(f"../tests/engines/{file}", r"STEPS: u64 = ([\d_]+)") for file in ["engine.rs", "mysql/engine.rs"]]
    claim(readme, r"over ([\d,]+) random steps \(MariaDB: ([\d,]+)\)", *steps)


def of_the_peers():
    head = re.search(r"^\| feature \|.*$", page_lines("docs/parity.md"), re.M)[0]
    claim("README.md", r"compares the layer with (\w+) others", head.count("|") - 4)
    claim("docs/parity.md", r"The layer beside (\w+) others", head.count("|") - 4)
    head = re.search(r"^\|.*tollgate.*$", page_lines("docs/verbs.md"), re.M)[0]
    claim("README.md", r"translates each call to (\w+) other limiters", head.count("|") - 2 - head.count("| you want"))


def of_the_steps():
    named = set(re.findall(r'^    (?:step|of "[^"]+") "([^"]+)"', page_lines(".ci/run"), re.M))
    table = page_lines("CONTRIBUTING.md").split("| step of `.ci/run` | checks |")[1].split("\n\n")[0]
    cells = {name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1] if "|" in row else "")}
    holds("CONTRIBUTING.md", "steps of .ci/run", sorted(cells), sorted(named - {"servers for the tests"}))
    # Python keeps a folder of its own there.
    scripts = {str(path) for folder in ["scripts", "verify/rigs"] for path in Path(folder).iterdir() if path.is_file()}
    told = set(re.findall(r"`((?:scripts|verify/rigs)/[\w.-]+)", page_lines("CONTRIBUTING.md")))
    holds("CONTRIBUTING.md", "scripts without a row", scripts - told, set())
    for folder in re.findall(r"^\| `([\w./-]+/)`", page_lines("CONTRIBUTING.md").split("### The layers")[0], re.M):
        holds("CONTRIBUTING.md", "a folder", Path(folder).is_dir() or folder, True)


def of_the_front_page():
    """The axum program of README.md is compiled and run. The front pages of the core and of http have the same text."""
    program = re.search(r"```rust,ignore\n(use axum.*?)```", page_lines("README.md"), re.S)[1]
    lines = [line[4:] for line in page_lines("src/lib.rs").splitlines() if line.startswith("//!")]
    holds("src/lib.rs", "the axum program of README.md", program in "\n".join(lines) + "\n", True)
    holds("http/README.md", "the axum program of README.md", program in page_lines("http/README.md"), True)


def of_the_times():
    """Checks README's table of costs, and the counts of lost cases."""
    runs = {}
    for name, file in re.findall(r"\*\*(\w)\*\*:.*?\(performance/([\d-]+\.csv)\)", page("docs/performance.md")):
        with open(f"docs/performance/{file}") as lines:
            rows = [row for row in csv.DictReader(lines) if row["section"] == "Decisions back to back"]
        runs[name] = {(row["case"], row["contender"], row["measure"]): row["value"] for row in rows}
    cases = {
        "one bucket, granted, 1 thread": ("one bucket, granted, 1 thread", "tollgate"),
        "one bucket, granted, 2 threads": ("one bucket, granted, 2 threads", "tollgate"),
        "the same, `spread`": ("one bucket, granted, 2 threads", "tollgate, spread"),
        "one bucket, refused, 2 threads": ("one bucket, refused, 2 threads", "tollgate"),
        "1,000 keys, granted, 1 thread": ("keyed, uniform, granted, 1,000 keys, 1 thread", "tollgate"),
    }

    def nanos(run, case, contender):
        return float(runs[run][case, contender, "ns a decision, net"])

    def ratio(run, case, ours, theirs):
        """Returns the ratio that was taken in each round, or that of the medians."""
        each = runs[run].get((case, theirs, f"{ours} / this one"))
        return float(each) if each else nanos(run, case, ours) / nanos(run, case, theirs)

    table = re.search(r"\| case \| A: ns .*?\n\n", page_lines("README.md"), re.S)[0].splitlines()[2:-1]
    for line in table:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        case, ours = cases[name]
        mutex = "one mutex" if "keyed" in case else "std mutex"
        for run, cells in zip("AB", [cells[:3], cells[3:]], strict=True):
            true = [nanos(run, case, ours), ratio(run, case, ours, mutex), ratio(run, case, ours, "governor")]
            for said, true, parts in zip(cells, true, [0.5 if true[0] > 10 else 0.05, 0.0051, 0.0051], strict=True):
                near = abs(float(said) - true) <= parts
                holds("README.md", f"{name} on {run}", float(said), float(said) if near else true)
    keys = cases["1,000 keys, granted, 1 thread"][0]
    mutexes = [round(nanos(run, keys, name)) for name in ["one mutex", "rwlock map", "dashmap + mutex"] for run in "AB"]
    claim("README.md", r"whole map: (\d+) ns on A, (\d+) on B\..* takes (\d+) and (\d+) ns, .* (\d+) and (\d+)\. A and B", *mutexes)
    lost = re.search(r"\| all of tollgate \| (\d+) \(.*?\) of (\d+) \|.*?\| (\d+) \(.*?\) of (\d+)", page("docs/performance.md"))
    claim("README.md", r"loses (\d+) of (\d+) cases on A, and (\d+) of (\d+) on B", *map(int, lost.groups()))
    claim("docs/guide.md", r"in (\d+) of (\d+) cases on one processor, and in (\d+) of (\d+)", *map(int, lost.groups()))


def of_the_forms():
    """Checks the price of a form in instructions, beside the plain call of the same store."""
    counts = dict(re.findall(r"x86_64: (\S+) ([\d.]+)", page("verify/instructions.txt")))
    each = {"": "keyed", "-inline": "inline", "-one": "grant"}

    def price(forms, stores):
        ratios = [float(counts[form + store]) / float(counts[each[store]]) for form in forms for store in stores]
        return round(max(ratios), 1)

    keyed, part = ["", "-inline"], ["keep", "up-to"]
    prices = price(part, keyed), price(part, ["-one"]), price(["plan"], keyed)
    of_ask = r"`acquire_up_to` ([\d.]+) times as /// many \(([\d.]+) times on one bucket\), and a plan ([\d.]+) times; " \
        r"one that a function chooses ([\d.]+) times\. On /// a key a `refund` takes ([\d.]+) times as many, and a `hold` ([\d.]+) times"
    claim("src/limiter/ask.rs", of_ask, *prices, *(price([form], [""]) for form in ["plan-for", "refund", "hold"]))
    of_hook = r"key takes ([\d.]+) times the instructions of one /// without, and on one bucket ([\d.]+) times"
    claim("src/limiter/settings.rs", of_hook, price(["hook"], keyed), price(["hook"], ["-one"]))
    of_log = r"a request value of a key takes ([\d.]+) of the plain call. Up to `n` tokens and a kept part take ([\d.]+), and a plan ([\d.]+)\."
    claim("CHANGELOG.md", of_log, price(["key"], keyed), prices[0], prices[2])


def of_the_memory():
    """Checks the bytes of a key, and the instructions of a decision that the design tells."""
    with open(max(glob("docs/performance/2*.csv"))) as lines:
        counted = {row["contender"]: float(row["value"]) for row in csv.DictReader(lines)
                   if row["case"] == "u64, 1,000,000 keys" and row["measure"] == "bytes a key, counted"}
    each, table = round(counted["tollgate"]), round(counted["tollgate, inline"])
    claim("docs/guide.md", r"\| memory \| (\d+) bytes a key of 8 bytes, .*? (\d+) bytes a key of `max_keys`", each, table)
    claim("docs/guide.md", r"A key of 8 bytes takes (\d+) bytes of the allocator", each)
    claim("docs/recipes.md", r"a table of (\d+) bytes a key", table)
    claim("src/limiter/rate_limiter.rs", r"about /// (\d+) bytes and the key", each - 8)
    claim("src/limiter/builder.rs", r"a key /// takes (\d+) bytes", table)
    counts = dict(re.findall(r"x86_64: (\S+) ([\d.]+)", page("verify/instructions.txt")))
    told = [round(float(counts[name]) + 0.01) for name in ["grant", "refuse", "at", "keyed", "pinned"]]
    claim("docs/design.md", r"included: (\d+) for a grant of one bucket, (\d+) for a refusal, (\d+) with a reading at hand, (\d+) for a known key, (\d+) if pinned", *told)
    claim("docs/verification.md", r"under a watchdog of (\d+) s each", float(re.search(r"LIMIT: u64 = (\d+)", page_lines("tests/stress.rs"))[1]))


def absent(path, sentence, *proof):
    """Checks a sentence that names what is not there: it is gone, or none of the proofs of the feature is."""
    there = [text for file, text in proof if re.search(text, page_lines(file))]
    holds(path, f"{sentence!r} is said", bool(re.search(sentence, page(path))), not there)


def of_the_absent():
    asked, waits = "src/limiter/all_of.rs", r"pub (?:async )?fn (?:acquire|blocking_acquire|hold|reserve)\b"
    absent("docs/guide.md", r"`all_of` has no verb that waits, and none that holds", (asked, waits))
    absent("docs/recipes.md", r"No verb waits for two limits", (asked, waits))
    absent("docs/guide.md", r"`no_std` is not offered", ("src/lib.rs", r"#!\[(?:cfg_attr\([^)]*, )?no_std"))
    absent("docs/guide.md", r"No feature is on by default", ("Cargo.toml", r"(?m)^default = \[[^\]]"))


def of_the_figures():
    for script in ["tables", "plot"]:
        done = subprocess.run([f"scripts/{script}", "--check"], capture_output=True, text=True)
        holds(f"scripts/{script}", "differences", (done.stdout + done.stderr)[-200:] if done.returncode else "", "")


def of_parity():
    named = set(re.findall(r"([a-z/_]+\.rs)::([a-z_0-9]+)", page_lines("docs/parity.md")))
    holds("docs/parity.md", "tests that are not there", [test for test in sorted(named) if f"fn {test[1]}(" not in page_lines(test[0])], [])
    holds("docs/parity.md", "more than 20 tests", len(named) > 20 or len(named), True)


def main():
    for part in [of_the_figures, of_the_checks, of_the_fleet, of_the_packages, of_the_peers, of_the_steps, of_the_front_page,
                 of_the_times, of_the_forms, of_parity, of_the_memory, of_the_absent]:
        part()
    print(*faults, f"{checked} claims, {len(faults)} wrong", sep="\n")
    return bool(faults) or checked < 60
