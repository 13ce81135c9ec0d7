"""Reads Rust by its text: functions of the checks."""
import glob, os, re

# Comments, strings and characters; a lifetime is none of them.
TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^']+|[^'\\])'""", re.S)
IMPORT = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def code_of(text):
    """Returns the text without comments, with as many lines; a string is empty."""
    return TOKEN.sub(lambda token: ("" if token[0][0] == "/" else '""') + "\n" * token[0].count("\n"), text)


def sources(root):
    """Returns the code of each file below a folder, by its path from there, without tests."""
    paths = sorted(os.path.relpath(path, root) for path in glob.glob(f"{root}/**/*.rs", recursive=True))
    module = re.compile(r"#\[cfg\((?:all\()?test[^\]]*\]\s*(?:pub\S* )?mod \w+ \{")
    return {path: module.split(code_of(read(os.path.join(root, path))))[0] for path in paths
            if not re.search(r"(^|/)tests(/|\.rs$)", path)}


def expanded(tree, prefix=()):
    """Returns the paths of a `use` tree, each with the name that it has here."""
    group = re.match(r"^((?:\w+::)*)\{(.*)\}$", tree.strip(), re.S)
    if not group:
        path, _, name = re.sub(r"\s+", " ", tree.strip()).partition(" as ")
        path = prefix + tuple(part for part in path.split("::") if part != "self" or not prefix)
        return [(path, name or path[-1])]
    prefix += tuple(group[1].split("::")[:-1])
    items = re.findall(r"(?:[^,{}]|\{(?:[^{}]|\{[^{}]*\})*\})+", group[2])
    return [path for item in items if item.strip() for path in expanded(item, prefix)]


def imports(code):
    """Yields each import: its visibility, its path, and the name that it has here."""
    for public, tree in IMPORT.findall(code):
        for path, here in expanded(tree):
            yield public.strip(), path, here


def entries(code):
    """Yields each item of a block: its head without attributes, its attributes, and its body."""
    begin = at = depth = parens = 0
    for found in re.finditer(r"[{}();]", code):
        char = found[0]
        parens += {"(": 1, ")": -1}.get(char, 0)
        if char in "()" or parens:
            continue
        at = at if depth else found.end()
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char != "{" and depth == 0:
            head = code[begin:at - 1 if char == "}" else found.start()].strip()
            attributes = re.match(r"(?:#!?\[.*?\]\s*(?=#|\w))*", head, re.S)[0]
            yield head[len(attributes):], attributes, code[at:found.start()]
            begin = found.end()
