"""Checks the lists of the public items of the published crates, and that each has a caller.

    scripts/check api              fails if a list differs, or if there is neither a caller nor a reason
    scripts/check api --write      writes the lists anew: api.txt, and those of the other crates
    scripts/check api --report     prints items without a caller, and fails if a list differs

It plants a method without a caller first, and fails if that is not seen.

The lists are a scan of the text: the exports of lib.rs and of public modules, with their methods,
variants and public fields. A caller stands in examples/, in a package above the crate without its
tests, or in a program of a page that `cargo test` runs: a front page of a crate or module, or one
that it includes. A program has a type if it imports it, or calls a method that returns it. A call
is `.name(` in a program that has the type, or `Type::name`. Variants and fields need no caller, nor
do the lines of api-exceptions.txt, each with its reason.
"""
import collections, glob, os, pathlib, re

from checks.rust_source import code_of, entries, imports, read, sources

# The sources and the list of each crate, and the folders of programs that may call it.
ABOVE = ["examples", "http/examples", "adaptive/examples", "distributed/examples", "common/src", "service/src", "service/examples", "proxy/src", "pingora/src", "pingora/examples"]
CRATES = {"tollgate": ("src", "api.txt", ABOVE + ["http/src", "adaptive/src", "distributed/src"]),
          "tollgate_http": ("http/src", "http/api.txt", ABOVE + ["adaptive/src", "distributed/src"]),
          "tollgate_adaptive": ("adaptive/src", "adaptive/api.txt", ABOVE + ["verify/src"]),
          "tollgate_distributed": ("distributed/src", "distributed/api.txt", ABOVE + ["distributed/src/bin"])}
# Many types have methods of these names: the type, or what returns it, is in the same file.
COMMON = "as_str build clear clone contains default end fmt get insert is_empty iter len limit max min name new next remove".split()
GENERIC = r"(?:::<(?:[^<>;]|<(?:[^<>;]|<[^<>;]*>)*>)*>)?"
# An item, or a part of an item, and the types that its use brings.
Item = collections.namedtuple("Item", "kind name owner gives is_method", defaults=[None, frozenset(), False])


def types(text, owner=None):
    return {owner if word == "Self" else word for word in re.findall(r"\b[A-Z]\w*", text)}


class Crate:
    """The public items of a crate, and the parts of each type."""

    def __init__(self, folder, planted=""):
        self.defined, self.items = {}, {}
        self.parts, self.gives = collections.defaultdict(dict), collections.defaultdict(set)
        files = sources(folder) | {"planted": planted}
        code = "\n".join(files.values())
        macro = re.compile(r"macro_rules! (\w+) \{\s*\([^\n]*\) => \{(.*?)\n    \};", re.S)
        self.macros = dict(found for text in files.values() for found in macro.findall(text))
        self.alias = dict(re.findall(r"\bpub type (\w+)[^=;]*=\s*(?:\w+::)*(\w+)", code))
        self.scan(code)
        self.export(files, "", "lib.rs", "")
        self.exported = {item.name for item in self.items.values()}

    def scan(self, code):
        for head, attributes, body in entries(code):
            if re.search(r"cfg\((all\()?test|doc\(hidden\)", attributes):
                continue
            macro = self.macros.get(head.rstrip("! "), "")
            if "$name" in macro:
                name = re.search(r"\b[A-Z]\w+", re.sub(r"#\[.*", "", body))[0]
                self.scan(re.sub(r"\$\(.*?\)[?*]", "", macro.replace("$name", name)))
            elif found := re.match(r"pub (?:(?:const|async) )*(struct|enum|trait|fn|type|const|static) (\w+)(.*)", head, re.S):
                kind, name, rest = found.groups()
                self.defined[name] = Item(kind, name)
                self.gives[name] |= types(rest.partition("->")[2] + self.alias.get(name, ""))
                self.members(kind, name, re.sub(r"#\[(?!doc\(hidden)[^\]]*\]", "", body))
            elif head.startswith("impl"):
                self.implementation(head[4:].strip(), body)

    def members(self, kind, owner, body):
        payload = r"(\([^()]*(?:\([^()]*\)[^()]*)*\)|\{[^{}]*\})?(?=\s*(?:,|=|$))"
        named = {"struct": ("field", r"\bpub (\w+): ([^\n]*)"), "enum": ("variant", r"(?:^|,)\s*([A-Z]\w*)\s*" + payload)}
        if kind in named:
            part, pattern = named[kind]
            self.parts[owner] |= {(part, name): Item(part, name, owner, types(of)) for name, of in re.findall(pattern, body)}
        for head, attributes, _ in entries(body) if kind == "trait" else []:
            self.function(head, owner, attributes, is_required=True)

    def function(self, head, owner, attributes, is_required=False):
        if "doc(hidden)" not in attributes and (found := re.search(r"\b(fn|const) (?!fn|unsafe)(\w+)(.*)", head, re.S)):
            kind, name, rest = found.groups()
            is_method = bool(re.search(r"\(\s*(?:&\s*)?(?:'\w+ )?(?:mut )?self\b", rest))
            # The types that it returns, and those that it hands to a function of the caller.
            given = rest if is_required else rest.partition("->")[2] + " ".join(re.findall(r"\bFn\w*\((.*?)\) ", rest))
            self.parts[owner][kind, name] = Item(kind, name, owner, types(given, owner), is_method)

    def implementation(self, head, body):
        # Without parameters and bounds, which may name other types.
        head = re.split(r"\bwhere\b", head.replace("->", ""))[0]
        while "<" in head:
            head = re.sub(r"<[^<>]*>", "", head)
        of, _, target = head.rpartition(" for ")
        owner = re.match(r"[&\s]*(?:\w+::)*(\w*)", target)[1]
        owner = self.alias.get(owner, owner)
        if of:
            self.gives[owner] |= types(" ".join(re.findall(r"\btype \w+[^=;]*= ([^;]+);", body)), owner)
        for part, attributes, _ in entries(re.sub(r"\b(\w+)!\(\);", lambda call: self.macros.get(call[1], ""), body)):
            if part.startswith("pub "):
                self.function(part, owner, attributes)

    def export(self, files, folder, path, prefix):
        for public, (*_, name), here in imports(files[path]):
            if public == "pub" and not here.endswith("fuzzing"):
                self.items[prefix + here] = self.defined.get(name, Item("use", name))
        for name in re.findall(r"(?<!\S)pub mod ([a-z]\w*)\s*;", files[path]):
            face = next(face for face in (f"{folder}{name}.rs", f"{folder}{name}/mod.rs") if face in files)
            self.export(files, f"{folder}{name}/", face, f"{prefix}{name}::")

    def listed(self):
        """Returns the lines of the list, each with its item."""
        return {f"{item.kind} {path}{f'::{item.name}' if item.owner else ''}": item
                for path, of in sorted(self.items.items()) for item in [of] + sorted(self.parts[of.name].values())}


class Program:
    """The types that a program has, and its calls."""

    def __init__(self, name, crate, code):
        self.crate, self.local = crate, collections.defaultdict(set)
        paths = [found[1:] for found in imports(code)]
        paths += [(tuple(path.split("::")), "") for path in re.findall(r"\b\w+(?:::\w+)+", code)]
        modules = {path[-1] for path, _ in paths if path[0] == name and path[-1].islower()} | {name}
        for path, here in paths:
            at = next((at for at, part in enumerate(path) if part in crate.exported), 0)
            if at and path[0] in modules:
                for of in {path[at], crate.alias.get(path[at], path[at])}:
                    self.local[of] |= {path[at], here}
        self.named = set(re.findall(rf"\b(\w+)(?={GENERIC}::(\w+))", code))
        # The methods that are called, or that are defined for a trait of the crate.
        self.dotted = set(re.findall(rf"\.\s*(\w+)\s*{GENERIC}\(", code))
        if any(owner in self.local for owner in re.findall(r"\b(\w+)(?:<[^{}]*>)? for\b", code)):
            self.dotted |= set(re.findall(r"\bfn (\w+)", code))
        self.has, new = set(), set(self.local)
        while new := new - self.has:
            self.has |= new
            called = [part.gives for of in new for part in crate.parts[of].values() if self.calls(part)]
            new = set().union(*called, *[crate.gives[of] for of in new])

    def calls(self, part):
        names = {(name, part.name) for name in self.local.get(part.owner, set()) | {part.owner}}
        return part.kind in ("field", "variant") or bool(names & self.named) or (part.is_method and part.name in self.dotted)

    def uses(self, item):
        return item.owner in self.has and self.calls(item) if item.owner else item.name in self.has or item.name in self.local


def programs(folders):
    """Yields the files of each program: those of a package are together, and so is a block of a page."""
    for folder in folders:
        together = collections.defaultdict(list)
        for path, code in sources(folder).items():
            together[folder if folder.endswith("src") else path.partition("src/")[0]].append(code)
        yield from together.values()
    for front in [f"{folder}/lib.rs" for folder, _, _ in CRATES.values()] + ["examples/web/src/lib.rs"] + glob.glob("src/*/mod.rs"):
        pages = [read(os.path.join(os.path.dirname(front), page)) for page in re.findall(r'include_str!\("(.*?\.md)"\)', read(front))]
        for page in pages + ["\n".join(re.findall(r"^//! ?(.*)", read(front), re.M)) + "\n"]:
            for kind, block in re.findall(r"^```([^\n]*)\n(.*?)^```", page, re.M | re.S):
                if re.fullmatch(r"(rust|no_run|should_panic|,)*", kind):
                    yield [code_of(re.sub(r"^# ", "", block, flags=re.M))]


def without_caller(name, crate, programs):
    """Returns the lines of the list that no program uses."""
    left = {line: item for line, item in crate.listed().items() if item.kind not in ("field", "variant")}
    for files in programs:
        whole, apart = [Program(name, crate, "\n".join(files))], [Program(name, crate, code) for code in files]
        left = {line: item for line, item in left.items()
                if not any(program.uses(item) for program in (apart if item.name in COMMON else whole))}
    return set(left)


def control():
    """Plants a method: alone, beside code that does not call it, and with a caller."""
    crate, line = Crate("src", "impl Quota { pub fn planted(&self) -> u64 { 0 } }"), "fn Quota::planted"
    uncalled = {"": True, "use tollgate::Quota; // quota.planted()": True, "use tollgate::Jitter; x.planted();": True,
                "use tollgate::Quota; let planted = 1;": True, "use tollgate::Quota; quota.planted();": False,
                "tollgate::Quota::planted(&quota);": False}
    return line not in Crate("src").listed() and line in crate.listed() and all(
        expected == (line in without_caller("tollgate", crate, [[code_of(code)]])) for code, expected in uncalled.items())


def main(option=""):
    if not control():
        print("a planted method without a caller is not seen")
        return True
    exceptions, faults, uncalled = re.findall(r"^(\w+): (\w+ \S+): .", read("api-exceptions.txt"), re.M), [], []
    for name, (folder, path, folders) in CRATES.items():
        crate = Crate(folder)
        lines, text = crate.listed(), "\n".join([*crate.listed(), ""])
        print(f"{name}: {len(crate.items)} items, {sum(bool(item.owner) and item.kind == 'fn' for item in lines.values())} methods")
        if option == "--write":
            pathlib.Path(path).write_text(text, encoding="utf-8")
        elif not os.path.exists(path) or read(path) != text:
            faults.append(f"{path} is not the list of the public items: `scripts/check api --write` writes it anew")
        missing, excepted = without_caller(name, crate, programs(folders)), {line for of, line in exceptions if of == name}
        uncalled += [f"{name}: {line}: no caller" for line in lines if line in missing - excepted]
        uncalled += [f"{name}: {line}: needs no exception" for line in sorted(excepted - missing)]
    print(*uncalled, *faults, f"{len(uncalled)} without a caller, or with a needless exception", sep="\n")
    return bool(faults or (uncalled and option not in ("--report", "--write")))
