"""Checks that each unit and word of a rule's text, and each option of a program, stands in the code and
in the lists and pages that have all of them, and names the place that lacks one, or has one too many.

    scripts/check words

* The units are those of src/rule/period.rs: the error there, the doc of `Quota`, and the words of the
  fuzz target `quota_text` have each of them.
* The words are those that the readers of src/rule compare with: the docs of the rules, the guide and
  the fuzzer's dictionary have each.
* The options and variables are the rows of the tables of settings: the README of the program has each,
  and each option of a README is in the code.

A list that this cannot read any more fails as well. It sees a planted unit, word and option first.
"""
import re

from checks.rust_source import read, sources

PERIOD, QUOTA, FUZZ, DICT = "src/rule/period.rs", "src/rule/rate.rs", "fuzz/src/quota_text.rs", "fuzz/dict/quota_text"
READERS = ["src/rule/quota_text.rs", "src/rule/window_text.rs"]
# The pages that have each word of a text.
PAGES = {"the docs of the rules": [QUOTA, "src/rule/window.rs"], "docs/guide.md": ["docs/guide.md"], DICT: [DICT]}
# A program's page, the sources that have its settings, and the fewest options and variables of it.
PROGRAMS = {"service/README.md": (["service/src", "common/src"], 40), "proxy/README.md": (["proxy/src", "common/src"], 40)}

OF_CARGO = {"release"}


def literals(text):
    return re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r"//[^\n]*", "", text))


def difference(place, found, wanted, what="unit"):
    """Yields what a place lacks, and what it has beside."""
    yield from (f"{place}: lacks the {what} `{name}`" for name in sorted(wanted - found))
    yield from (f"{place}: has the {what} `{name}`, which the code lacks" for name in sorted(found - wanted))


def units(files):
    """Returns the short units, and all names of units: a longer one also with an s."""
    code = files(PERIOD)
    table = re.search(r"const UNITS.*?\];", code, re.S)[0]
    reader = re.search(r"fn unit_nanos.*?\n}", code, re.S)[0]
    arms = [arm for arm in re.findall(r"^\s+((?:\"\w+\"(?: \| )?)+) =>", reader, re.M)]
    names = {name for text in [table, *arms] for name in literals(text)}
    short = {name for name in names if len(name) < 3}
    return short, names | {f"{name}s" for name in names if len(name) > 2}


def of_units(files):
    short, names = units(files)
    forms = re.search(r'const FORMS: &str = "(.*?) or its word"', files(PERIOD))[1]
    yield from difference(f"{PERIOD}: FORMS", set(forms.split(", ")), short)
    doc = re.search(r"Units are `(.*?)` and their words", files(QUOTA).replace("\n/// ", " "))[1]
    yield from difference(f"{QUOTA}: the doc of Quota", set(doc.split()), short)
    table = re.search(r"const UNITS.*?= \[(.*?)\];", files(FUZZ), re.S)[1]
    yield from difference(f"{FUZZ}: UNITS", {name for name, nanos in re.findall(r'\("(\w+)", ([\d_]+)\)', table) if nanos != "0"}, names)


def of_words(files):
    words = {"burst"}
    for path in READERS:
        text = re.sub(r"//[^\n]*", "", files(path))
        words |= set(re.findall(r'const \w+: &str = "([a-z ]+)"', text) + re.findall(r'\(?"([a-z]{3,})"(?:, [\w()]+)?\)? =>', text))
    if len(words) < 8:
        yield f"{READERS}: only {len(words)} words are read"
    for place, paths in PAGES.items():
        text = "\n".join(map(files, paths))
        yield from (f"{place}: lacks the word `{word}`" for word in sorted(words) if not re.search(rf"\b{word}\b", text))


def has(text, word):
    return re.search(rf"(?<![\w-]){word}\b(?!-)", text)


def of_options(files):
    for page, (folders, least) in PROGRAMS.items():
        text = files(page)
        code = "\n".join(files(f"{folder}/{path}") for folder in folders for path in sources(folder))
        # A row of `settings!`: the name in a file, the option with the form of its value, the
        # variable, and the sentence. The page has the variable, and the option or the name.
        rows = re.findall(r'^\s+"([\w.]+)",\s+"(?:([a-z][a-z0-9]*(?:-[a-z]+)*)(?: [^"\n]*)?)?"(?: = "(\w+)")?,\s+"[^"\n]*"\s*(?:=>|:)',
                          code, re.M)
        if len(rows) < least:
            yield f"{folders[0]}: only {len(rows)} options and variables are read, of {least} at least"
        for name, option, variable in sorted(rows):
            names = [variable] if variable and not option else [f"--{option}"] * bool(option) + [name.rpartition(".")[2]]
            lacks = [word for word in {names[0], variable} - {""} if not has(text, word)]
            if variable in lacks or lacks and not any(has(text, name) for name in names):
                yield f"{page}: lacks `{variable if variable in lacks else names[0]}`"
        told = set(re.findall(r"`--([a-z]+(?:-[a-z]+)*)", text)) - OF_CARGO
        yield from (f"{page}: has `--{option}`, which {folders[0]} lacks" for option in sorted(told)
                    if not re.search(rf'"(?:--)?{option}[" ]|\b{option.replace("-", "_")}: |--{option}\b', code))


def faults(planted=None):
    path, old, new = planted or ("", "", "")

    def files(name):
        return read(name).replace(old, new, 1) if name == path else read(name)
    return [fault for part in (of_units, of_words, of_options) for fault in part(files)]


# A change of a file, and a fault that it must be: of the code without its lists, and the other way.
PLANTED = [
    ((PERIOD, '("ns", 1)', '("ns", 1), ("ps", 0)'), f"{QUOTA}: the doc of Quota: lacks the unit `ps`"),
    ((PERIOD, '"hour" =>', '"hour" | "hr" =>'), f"{FUZZ}: UNITS: lacks the unit `hr`"),
    ((FUZZ, '("ns", 1)', '("ns", 1), ("ps", 1)'), f"{FUZZ}: UNITS: has the unit `ps`, which the code lacks"),
    ((READERS[1], '("weighted", None) =>', '("weighted", None) | ("hopping", None) =>'), "docs/guide.md: lacks the word `hopping`"),
    (("service/README.md", "`--admin-public`", "`--admin-planted`"), "service/README.md: lacks `--admin-public`"),
    (("proxy/README.md", "`--store-share`", "`--store-planted`"), "proxy/README.md: has `--store-planted`, which proxy/src lacks"),
]


def main():
    found = [f"not seen, though it is planted: {fault}" for planted, fault in PLANTED if fault not in faults(planted)] + faults()
    print(*found, f"{len(found)} places of units, words and options", sep="\n")
    return bool(found)
