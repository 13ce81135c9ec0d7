"""Checks each command of the pages: `cargo` and `scripts/` in blocks, in code spans, and in
comments of programs.

Its script, package, target, features and profile must be there, and a filter must match a test. The
cheap ones are run: those on the build of `cargo test`, and lists. Each command in a `sh` block of
CONTRIBUTING.md is run, here or by a step of .ci/run or scripts/verify-full: a step without a filter
stands for the same command with one.

    scripts/check commands           checks, and runs the cheap ones: with cargo, so it is a step of its own
    scripts/check commands --list    prints each command with its pages
"""

import json
import os
import re
import shlex
import subprocess

# Those on the build of README's command, so only the tests take time. It is a step of its own.
SHARED_BUILD = re.compile(r"^cargo test (?!$)(?!(.* )?(-p|--package|--manifest-path|--features|--all-features|--profile|--release) )")
# With one of these a command is checked, and not run.
VARIABLES = r"(?:[A-Z_]+=\S* )*"
LISTS = {"scripts/faults --table", "scripts/check promises", "scripts/verify-full --list", "cargo tree -e normal"}
# Words that stand for others, in commands that name a form.
FORMS = {"TARGET", "CHECKER", "NAME", "FOLDER", "STEP", "FOLDER/Cargo.toml"}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def commands():
    """Returns the pages of each command."""
    found = {}

    def add(page, text):
        text = re.sub(r"\s+#\s.*", "", " ".join(text.split())).removesuffix(" ...")
        if re.match(VARIABLES + r"(cargo (\+\w+ )?(test|run|bench|doc|tree|check|build)\b|(scripts|verify/rigs)/\w)", text):
            found.setdefault(text, set()).add(page)

    for page in output("git", "ls-files", "*.md").split():
        if page == "CHANGELOG.md":
            continue
        text = open(page).read()
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M):
            for line in block.replace("\\\n", " ").splitlines():
                add(page, line)
        for line in re.findall(rf"^    (?={VARIABLES}(?:cargo|scripts|verify/rigs))(.*)", text, re.M):
            add(page, re.split(r"\s{3,}", line)[0])
        for span in re.findall(rf"`({VARIABLES}(?:cargo|scripts/|verify/rigs/)[^`]*)`", text):
            add(page, span)
    for line in output("git", "grep", "-E", r"^ *//[/!] *([A-Z_]+=[^ ]* )*cargo (test|run|bench) ", "--", "*.rs").splitlines():
        page, comment = line.split(":", 1)
        add(page, re.split(r"\s{3,}", re.sub(r"^ *//[/!] *", "", comment))[0])
    return found


def of_contributing():
    """Returns the commands in the `sh` blocks of CONTRIBUTING.md."""
    blocks = re.findall(r"^```sh\n(.*?)^```", open("CONTRIBUTING.md").read(), re.S | re.M)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines = [" ".join(re.sub(r"(^|\s+)#\s.*", "", line).split()) for line in lines]
    return [line for line in lines if line and not line.startswith(".ci/run")]


def is_a_step(command):
    """Returns whether a step is the command, or the command without its filter."""
    steps = " ".join((open(".ci/run").read() + open("scripts/verify-full").read()).replace("\\\n", " ").replace("--locked ", "").split())
    unfiltered = re.sub(r" [\w:]+::$", "", command)
    return any(re.search(rf"[ ']{re.escape(form)}( step| }}|'| --)", steps) for form in (command, unfiltered))


metadata_of = {}


def metadata(manifest):
    if manifest not in metadata_of:
        told = output("cargo", "metadata", "--locked", "--no-deps", "--format-version", "1", "--manifest-path", manifest)
        metadata_of[manifest] = json.loads(told)
    return metadata_of[manifest]


def closure(package, chosen):
    """Returns the features that `chosen` turn on."""
    on, rest = set(), list(chosen)
    while rest:
        feature = rest.pop()
        if feature in package["features"] and feature not in on:
            on.add(feature)
            rest += package["features"][feature]
    return on


def faults_of_cargo(words, page):
    verb, words = words[0], words[1:]
    own = words[words.index("--") + 1 :] if "--" in words else []
    words = words[: words.index("--")] if "--" in words else words
    options, filters, flags = {}, [], set()
    takes = {"--manifest-path", "--test", "--bin", "--example", "--bench", "--package", "-p", "--features", "--profile", "-e"}
    while words:
        word = words.pop(0)
        if word in takes:
            options.setdefault({"-p": "--package"}.get(word, word), []).append(words.pop(0))
        elif word.startswith("-"):
            flags.add(word)
        else:
            filters.append(word)
    manifest = options.get("--manifest-path", ["Cargo.toml"])[0]
    if manifest in FORMS:
        return
    # A comment of a program is about its own package.
    if not os.path.exists(manifest):
        yield f"there is no {manifest}"
        return
    packages = {package["name"]: package for package in metadata(manifest)["packages"]}
    root = next((p for p in packages.values() if os.path.samefile(p["manifest_path"], manifest)), None)
    chosen = [packages[name] for name in options.get("--package", []) if name in packages]
    for name in options.get("--package", []):
        if name not in packages:
            yield f"there is no package {name}"
            return
    members = metadata(manifest)["workspace_default_members"]
    default = [package for package in packages.values() if package["id"] in members]
    chosen = chosen or (list(packages.values()) if "--workspace" in flags else default if verb in ("test", "bench") else [root])
    for kind in ["test", "bin", "example", "bench"]:
        for name in options.get(f"--{kind}", []):
            targets = [(p, t) for p in chosen for t in p["targets"] if kind in t["kind"] and t["name"] == name]
            if not targets:
                yield f"there is no {kind} {name}"
                continue
            package, target = targets[0]
            asked = [f for given in options.get("--features", []) for f in re.split("[, ]", given)]
            asked += [] if "--no-default-features" in flags else ["default"]
            on = set(package["features"]) if "--all-features" in flags else closure(package, asked)
            # The tests of a package may ask it for features of its own.
            if verb == "test":
                on |= {f for d in package["dependencies"] if d["name"] == package["name"] for f in d["features"]}
            missing = set(target.get("required-features", [])) - on
            if missing:
                yield f"{kind} {name} requires the features {', '.join(sorted(missing))}"
    if verb == "run" and "--example" not in options and "--bin" not in options:
        bins = [t for p in chosen for t in p["targets"] if "bin" in t["kind"]]
        if len(bins) != 1 and not any(p["default_run"] for p in chosen):
            yield f"cargo run could mean any of {len(bins)} programs"
    if verb == "bench" and "--bench" not in options:
        targets = [t for p in chosen for t in p["targets"]]
        if not any("bench" in t["kind"] for t in targets):
            yield "the package has no bench"
    if verb == "test":
        for part in filters + [word for word in own if not word.startswith("-")]:
            last = part.rstrip(":").split("::")[-1]
            if subprocess.run(["git", "grep", "-qE", rf"\b(mod|fn) \w*{last}", "--", "*.rs"]).returncode:
                yield f"no test is named {part}"


def faults(command, page):
    words = shlex.split(re.sub(VARIABLES, "", command, count=1))
    if words[0] == "cargo":
        words = [word for word in words[1:] if not word.startswith("+")]
        yield from faults_of_cargo(words, page)
    elif not os.access(words[0], os.X_OK):
        if words[0] not in ("scripts/common.sh", "scripts/measurements.py", "verify/rigs/read-headers.py"):
            yield f"{words[0]} is no program"
    elif words[0] == "scripts/fuzz" and words[1:2] and words[1] not in FORMS:
        if not os.path.exists(f"fuzz/fuzz_targets/{words[1]}.rs"):
            yield f"there is no fuzz target {words[1]}"


def run(command):
    """Runs a cheap command, and returns whether it passed and, if it tests, ran a test."""
    told = subprocess.run(command.replace("cargo ", "cargo --locked ", 1), shell=True, text=True, capture_output=True)
    tests = sum(map(int, re.findall(r"^running (\d+) tests?$", told.stdout, re.M)))
    passed = told.returncode == 0 and (tests or " test " not in command)
    if not passed:
        print(told.stdout, told.stderr, sep="\n")
    return passed


def main(option=""):
    found = commands()
    if option == "--list":
        for command, pages in sorted(found.items()):
            print(f"{command}   ({', '.join(sorted(pages))})")
        return 0
    failed = 0
    for command, pages in sorted(found.items()):
        for page in sorted(pages):
            for fault in faults(command, page):
                print(f"{page}: `{command}`: {fault}")
                failed += 1
    # The same with its output is the same.
    of_pages = [command for command in sorted(found) if command.removesuffix(" -- --nocapture") not in found or
                not command.endswith(" -- --nocapture")]
    cheap = [command for command in of_pages if SHARED_BUILD.match(f"{command} ") or command in LISTS]
    for command in of_contributing():
        if command in cheap or is_a_step(command):
            continue
        if command in found and command.startswith("cargo test -p tollgate "):
            cheap.append(command)
        else:
            print(f"CONTRIBUTING.md: `{command}`: CI does not run it")
            failed += 1
    for command in [] if failed else cheap:
        print(f"  runs {command}", flush=True)
        if not run(command):
            print(f"{', '.join(found[command])}: `{command}` fails")
            failed += 1
    print(f"{len(found)} commands, {len(cheap)} of them run; {failed} wrong")
    return int(failed > 0 or len(found) < 50)

