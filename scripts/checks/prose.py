"""Checks the English of comments and pages by the rules of CONTRIBUTING.md that a script can check.

    scripts/check prose                        fails on a rate above its bound, and on a line over 100 columns
    scripts/check prose --list                 prints each place, too
    scripts/check prose --only-comments REV    fails if a change since REV is more than comments of *.rs

Prints the rates of banned words for each 1,000 words, by folder and by page, and lines of code on
pages over 80 columns.
"""
import os, re, subprocess

CHECKED = (
    r"src/|http/|testing/|adaptive/(?!tests/it/layer\.rs)|distributed/|service/|proxy/|common/|docs/|scripts/|\.ci/|tests/(?!it/layer\.rs)|verify/|fuzz/|benches/|"
    r"examples/|[A-Z]+\.md"
)

BANNED = {
    "who": (r"\b(?:who|whoever|nobody|somebody|anybody|everybody)\b", 0.3),
    "he": (r"\b(?:he|his|him)\b", 0.0),
    "what": (r"\bwhat\b", 1.0),
    "so many": (r"\bso (?:many|much|few|often|long|soon|late)\b", 0.1),
}
COLUMNS = 100
# rustdoc cuts a line of code behind these, except in the pages of the distributed mode.
CODE_COLUMNS, WITH_CODE = 80, r"(?!distributed/).*\.md$"
# Folders whose rates are those of all that is in them.
BIG = ("common/src", "proxy/src", "service/src")


def comments(path):
    """The number, the columns and the text of each line of prose. A heading may be a question."""
    code = False
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for number, line in enumerate(lines, 1):
        if path.endswith(".md"):
            code ^= line.startswith("```")
            if not code and not line.startswith(("    ", "|", "#")):
                columns = 0 if re.search(r"\]\(http|^\[.*\]: http", line) else len(line)
                yield number, columns, re.sub(r"`[^`]*`", "`code`", line)
        elif not path.endswith(".rs"):
            if found := re.match(r"\s*# (.*)", line):
                yield number, len(line), re.sub(r"`[^`]*`", "`code`", found[1])
        elif found := re.search(r"(?:^|[\s;{},)])//[/!]?(?:\s|$)(.*)", line):
            code ^= found[1].startswith("```")
            if not code:
                # The row of a table is one line, here as on a page.
                columns = 0 if found[1].startswith("|") else len(line)
                yield number, columns, re.sub(r"`[^`]*`", "`code`", found[1])


def wide_code(path):
    """Returns the lines of code that are too wide, unless rustdoc hides the line or one word fills it."""
    with open(path, encoding="utf-8") as file:
        parts = file.read().split("\n```")
    for at, part in enumerate(parts):
        first = sum(part.count("\n") + 1 for part in parts[:at])
        for number, line in enumerate(part.splitlines()[1:] if at % 2 else [], first + 2):
            words = line.split()
            if len(line) > CODE_COLUMNS and words[0] != "#" and max(map(len, words)) < CODE_COLUMNS * 3 // 4:
                yield f"{path}:{number}: {len(line)} columns of code, at most {CODE_COLUMNS}"


def check(show):
    found, groups = [], {}
    listed = subprocess.run(
        ["git", "ls-files", "*.rs", "*.md", "scripts", "verify/rigs", ".ci"], capture_output=True, text=True, check=True
    )
    for path in listed.stdout.split():
        if re.match(CHECKED, path):
            group = path if path.endswith(".md") else os.path.dirname(path)
            groups.setdefault(next((b for b in BIG if path.startswith(b)), group), []).append(path)
    print(f"{'in 1,000 words':24} {'words':>7} " + " ".join(f"{name:>8}" for name in BANNED))
    for group, paths in sorted(groups.items()):
        text = [(path, *line) for path in paths for line in comments(path)]
        words = sum(len(re.findall(r"[A-Za-z']+", line[3])) for line in text)
        rates = []
        for name, (pattern, bound) in BANNED.items():
            hits = [line for line in text for _ in re.findall(pattern, line[3], re.I)]
            rates.append(1000 * len(hits) / max(words, 1))
            # One word of a small folder is no rate.
            if rates[-1] > bound and (len(hits) > 1 or bound == 0):
                found.append(f"{group}: '{name}' {rates[-1]:.2f} times in 1,000 words, at most {bound}")
            if show:
                found += [f"{path}:{number}: {line}" for path, number, _, line in hits]
        for path in paths:
            found += wide_code(path) if re.match(WITH_CODE, path) else []
        long = [f"{path}:{number}: {columns} columns" for path, number, columns, _ in text if columns > COLUMNS]
        found += long
        print(f"{group:24} {words:7} " + " ".join(f"{rate:8.2f}" for rate in rates))
    return found


def code_lines(revision):
    """Changed lines of Rust that are no comments. A comment behind code is not told apart."""
    diff = subprocess.run(["git", "diff", "-U0", revision, "--", "*.rs"], capture_output=True, text=True, check=True)
    lines = [line for line in diff.stdout.splitlines() if re.match(r"[+-](?![+-])", line)]
    return [line for line in lines if not re.match(r"[+-]\s*(?://.*)?$", line)]


def main(option="", revision="HEAD"):
    found = code_lines(revision) if option == "--only-comments" else check(option == "--list")
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)
