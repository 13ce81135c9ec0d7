"""Packages each crate that is to be published, builds it from its package alone, and prints the
files and the size of each package.

    scripts/check packages            the lists of files, the metadata, the links and the lock files: no build
    scripts/check packages --build    and the builds

A package has at most 152 files and, as crates.io keeps it, 1 MB. It has its metadata. The links of
its README and of the pages that its documentation includes lead somewhere on crates.io and docs.rs:
a link within docs.rs names a page of the crate, a heading of it, or a file of the package. A link
from a page of the repository to another one names a file and a heading of it. Exit code 77: the
packages were not built.

The lock files agree: a package that one of them has in a compatible version has the version of the
workspace's Cargo.lock, so that it is built once. The check prints the commands that align them.
"""
import collections, glob, json, os, re, shutil, subprocess

FILES, BYTES = 152, 1_000_000
METADATA = ("categories", "description", "documentation", "keywords", "license", "readme", "rust_version")
faults = []


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def slug(heading):
    """Returns the anchor of a heading, as rustdoc and most forges write it."""
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(path):
    with open(path, encoding="utf-8") as file:
        return {slug(line) for line in re.findall(r"^#+ (.*)", file.read(), re.M)}


class Crate:
    def __init__(self, package):
        self.package, self.name = package, package["name"]
        self.folder = os.path.relpath(os.path.dirname(package["manifest_path"]))
        self.files = output("cargo", "package", "--locked", "--allow-dirty", "--list", "-p", self.name).split()
        # The pages of the documentation, by their path there. A page of doctests alone is of none.
        self.pages, self.included = {}, set()
        for source in glob.glob(f"{self.folder}/src/**/*.rs", recursive=True):
            with open(source, encoding="utf-8") as file:
                text = file.read()
            includes = r'(#\[cfg\((?:all\()?doctest[^\n]*\n)?#!?\[.*doc = include_str!\("(.*?)"\)\)?\](?:\npub mod (\w+))?'
            for test, path, module in re.findall(includes, text):
                if not test:
                    page = os.path.normpath(os.path.join(os.path.dirname(source), path))
                    self.included.add(page)
                    self.pages[f"{module}/" if module else ""] = page

    def links(self):
        """Yields the pages that leave the repository, with their links."""
        for page in sorted({os.path.normpath(f"{self.folder}/README.md"), *self.included}):
            with open(page, encoding="utf-8") as file:
                for link in re.findall(r"(?<!!)\[[^][]*\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", file.read(), re.M):
                    yield page, "".join(link)


def fault_of(page, link, crates):
    """Returns the fault of a link, or None."""
    if link.startswith("#"):
        return None if link[1:] in headings(page) else "there is no such heading"
    # A README is no page of a module: crates.io has it too.
    if link.startswith("crate::"):
        return "leads nowhere on crates.io" if page.endswith("README.md") else None
    if not link.startswith("https://"):
        return "is no address: crates.io and docs.rs have no such file"
    if found := re.match(r"https://docs\.rs/crate/([\w-]+)/latest/source/(.*)", link):
        crate = crates.get(found[1])
        return None if crate and found[2].split("#")[0] in crate.files else "there is no such file in the package"
    if not (found := re.match(r"https://docs\.rs/([\w-]+)(?:/latest/(\w+)/(\w+/)?(?:index\.html)?(?:#(.*))?)?$", link)):
        return None
    name, module, path, heading = found.groups()
    if not name.startswith("tollgate") or not module:
        return None
    if name not in crates or module != name.replace("-", "_"):
        return "there is no such crate"
    if path and path not in crates[name].pages:
        return "there is no such page"
    return "there is no such heading" if heading and path and heading not in headings(crates[name].pages[path]) else None


def relative_faults():
    """Yields the links between pages of the repository that lead to no file or to no heading."""
    for page in output("git", "ls-files", "*.md").split():
        with open(page, encoding="utf-8") as file:
            text = re.sub(r"^```.*?^```", "", file.read(), flags=re.M | re.S)
        for link in re.findall(r"(?<!!)\[[^][]*\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", text, re.M):
            link = "".join(link)
            # Notes begin as references do.
            if re.match(r"\w+:", link) or not re.search(r"[./#]", link):
                continue
            path, _, heading = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(target):
                yield f"{page}: {link}: there is no such file"
            elif heading and target.endswith(".md") and heading not in headings(target):
                yield f"{page}: {link}: there is no such heading"


def locked(path):
    """Returns the versions of each package of a registry."""
    versions = collections.defaultdict(set)
    with open(path, encoding="utf-8") as file:
        for name, version in re.findall(r'name = "(.*)"\nversion = "(.*)"\nsource', file.read()):
            versions[name].add(version)
    return versions


def compatible(version):
    """Returns the part of a version that a compatible one has too."""
    return re.match(r"0\.0\.\d+|0\.\d+|\d+", version)[0]


def lock_faults():
    """Yields the commands that align a lock file with the workspace's."""
    common = locked("Cargo.lock")
    for path in sorted(path for path in glob.glob("*/Cargo.lock") + glob.glob("*/*/Cargo.lock") if not path.startswith("target")):
        for name, versions in sorted(locked(path).items()):
            for version in versions - common[name]:
                if same := [known for known in common[name] if compatible(known) == compatible(version)]:
                    manifest = path.replace("Cargo.lock", "Cargo.toml")
                    yield f"cargo update --manifest-path {manifest} -p {name}@{version} --precise {same[0]}"


def main(option=""):
    unreachable = None
    metadata = json.loads(output("cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"))
    packages = metadata["packages"]
    crates = {p["name"]: Crate(p) for p in packages if p["publish"] is None}
    for crate in crates.values():
        faults.extend(f"{crate.name}: its manifest has no {key}" for key in METADATA if not crate.package[key])
        faults.extend(f"{crate.name}: its package has no {name}" for name in ("LICENSE-APACHE", "LICENSE-MIT")
                      if name not in crate.files)
        for page, link in crate.links():
            if fault := fault_of(page, link, crates):
                faults.append(f"{page}: {link}: {fault}")
        if len(crate.files) > FILES:
            faults.append(f"{crate.name}: {len(crate.files)} files, at most {FILES}")
    faults.extend(relative_faults())
    faults.extend(lock_faults())
    if option == "--build":
        # Cargo keeps the packages of an earlier run and their builds, of the same version and other
        # code.
        home = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
        earlier = glob.glob(f"{home}/registry/src/-*/tollgate*")
        for built in glob.glob(f"{metadata['target_directory']}/debug/deps/tollgate*.d"):
            with open(built, encoding="utf-8") as file:
                if "/registry/src/-" in file.read():
                    number = os.path.basename(built)[:-2].rpartition("-")[2]
                    earlier += glob.glob(f"{metadata['target_directory']}/debug/.fingerprint/tollgate*-{number}")
        for folder in earlier:
            shutil.rmtree(folder)
        command = ["cargo", "publish", "--dry-run", "--locked", "--allow-dirty", "--workspace"]
        built = subprocess.run(command, capture_output=True, text=True)
        expected = r"warning: (ignoring \w+ `.*` as `.*` is not included|aborting upload due to dry run)"
        warnings = [line for line in built.stderr.splitlines() if re.match("warning", line) and not re.match(expected, line)]
        unreachable = re.search(r"--offline was specified|failed to download from `https://index", built.stderr)
        if (built.returncode and not unreachable) or warnings:
            faults.append(f"{' '.join(command)}:\n{built.stderr}")
        for crate in crates.values() if not built.returncode else []:
            folder, name = f"{metadata['target_directory']}/package", f"{crate.name}-{crate.package['version']}"
            packed = os.path.getsize(f"{folder}/tmp-crate/{name}.crate")
            size = sum(os.path.getsize(f"{folder}/{name}/{file}") for file in crate.files)
            print(f"{crate.name}: {len(crate.files)} files, {size / 1e6:.2f} MB, packed {packed / 1e6:.2f} MB")
            if packed > BYTES:
                faults.append(f"{crate.name}: {packed} bytes packed, at most {BYTES}")
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{len(crates)} packages, {len(faults)} faults")
    if unreachable and not faults:
        print("did not run: no package was built, since the registry cannot be reached")
        return 77
    return bool(faults)
