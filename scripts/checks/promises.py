"""Checks the table of promises in docs/verification.md, with the tests that hold each.

    scripts/check promises            fails if the table of the page differs, or a promise has no test
    scripts/check promises --write    puts the table there

A test file names its promises in its first line: `// promise: law, never-late`. `git grep 'promise: .*law'` lists them.
"""
import collections, os, re, subprocess, sys

# The name, the promise, the tiers that check it, the command that runs its checks, and a change
# that they were seen to find.
PROMISES = [
    ("law", "at most `burst + rate * T` and one tick's worth", "`cargo test`, `.ci/run`, full", "`scripts/models loom`", "faults"),
    ("never-late", "each grant of the ideal bucket; `retry_after` is exact", "`cargo test`, `.ci/run`, full", "`cargo test`", "mutants"),
    ("no-overflow", "no step overflows or commits a reserved word", "`cargo test`, full", "`cargo test -p tollgate --lib properties`", "a field too narrow, no clamp"),
    ("one-bucket", "a key has one bucket; an eviction changes no decision", "`cargo test`, `.ci/run`, full", "`scripts/models loom`", "faults"),
    ("bounded", "at most `max_keys` keys, in bounded memory", "`cargo test`, `.ci/run`, full", "`cargo test` in `verify/`", "-"),
    ("flood", "made-up addresses cost no more memory, and no series", "full", "`cargo test` in `verify/`", "-"),
    ("inflight", "`count <= limit` at each admission; the limit follows the server", "`cargo test`, `.ci/run`, full", "`cargo test` in `verify/`", "faults"),
    ("headers", "a client that obeys the headers is granted", "`cargo test`, `.ci/run`, full", "`verify/rigs/headers`", "by hand"),
    ("client-ip", "no client chooses its own key", "`cargo test`, `.ci/run`, full", "`scripts/fuzz headers 60s`", "by hand"),
    ("layer", "one count a request; a refusal holds nothing", "`cargo test`, `.ci/run`, full", "`cargo test` in `examples/web/`", "by hand"),
    ("replicas", "replicas of the service on one store grant no more than one service, and end no request in an error", "`cargo test`, `.ci/run`, full", "`cargo test -p tollgate-server --all-features replicas`", "by hand"),
    ("state", "a restored limiter grants no more than one that went on, and at most a tick less", "`cargo test`, `.ci/run`, full", "`cargo test --tests state`", "by hand"),
    ("hostile-keys", "keys with hostile code lock no caller out", "full", "`cargo test` in `verify/`", "a plain map hangs"),
]
PAGE = "docs/verification.md"
BEGIN, END = "<!-- promises -->\n", "<!-- end -->\n"


def tests():
    """The number of test files by promise and folder."""
    listed = subprocess.run(["git", "ls-files", "*.rs", "*.py"], capture_output=True, text=True, check=True)
    found = {name: collections.Counter() for name, *_ in PROMISES}
    for path in listed.stdout.split():
        with open(path, encoding="utf-8") as file:
            if tag := re.fullmatch(r"(?://|#) promise: (.*)\n", file.readline()):
                for name in tag[1].split(", "):
                    if name not in found:
                        sys.exit(f"{path}:1: no promise is named '{name}'")
                    found[name][os.path.dirname(path)] += 1
    return found


def table(found):
    rows = ["| name | promise | tiers | test files | run it again | seen to fail by |", "|---|---|---|---|---|---|"]
    for name, promise, tiers, command, control in PROMISES:
        files = ", ".join(f"`{folder}` {count}" for folder, count in sorted(found[name].items()))
        rows.append(f"| `{name}` | {promise} | {tiers} | {files} | {command} | {control} |")
    return "\n".join(rows) + "\n"


def main(option=""):
    found = tests()
    with open(PAGE, encoding="utf-8") as file:
        before, written, after = re.fullmatch(f"(.*{BEGIN})(.*)({END}.*)", file.read(), re.S).groups()
    if option == "--write":
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(before + table(found) + after)
        return False
    faults = [f"'{name}' has no test" for name in found if not found[name]]
    faults += [f"{PAGE} has another table: scripts/check promises --write"] * (written != table(found))
    print(*faults, f"{len(found)} promises, {len(faults)} faults", sep="\n")
    return bool(faults)
