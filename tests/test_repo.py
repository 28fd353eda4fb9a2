"""Rules of the repository as a whole."""

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Absolute paths of somebody's machine. Each has a class of one character, not to match itself.
FORBIDDEN = re.compile(
    rb"(?<![\w.:~])/(?:hom[e]/\w|User[s]/\w|roo[t]\b|wor[k]/|tmp/bas[h]|op[t]/(?:pypi|wheels))"
)


def tracked_files() -> list[Path]:
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    # A file deleted but not yet committed is still listed.
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_program_has_left_its_files_here():
    found = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path.suffix != ".png" and b"\0" in path.read_bytes()
    ]
    assert not found, "pictures are the only binary files: " + ", ".join(found)


def test_what_is_not_published_is_not_installed_by_name():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked_files()
        if path.suffix in (".py", ".md") and path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if re.search(r"pip install\s+[\"']?graphfw", line)
    ]
    assert not found, "install it from a clone, or name the package that is missing: " + str(found)


def test_what_checkers_are_to_ignore_has_a_reason():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked_files()
        if path.suffix == ".py"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if re.search(r"# (type: ignore\[[\w,-]+\]|noqa: \w+)$", line)
    ]
    assert not found, "say why behind it: " + str(found)


HEADLESS = (
    *("What ", "Which ", "Those ", "Return what ", "Returns what ", "Yield what "),
    *("Who ", "How ", "Where ", "When ", "Why ", "So many ", "So much ", "So few ", "So far "),
)
"""First words of docstrings that leave a reader to guess the noun."""


def test_docstrings_begin_with_a_noun_or_a_verb():
    found = []
    for path in tracked_files():
        name = path.relative_to(ROOT).as_posix()
        is_ours = path.suffix == ".py" and name.startswith(("graphfw/", "tests/"))
        if not is_ours:
            continue
        source = path.read_text("utf-8")
        if not any([f'"{words}' in source for words in HEADLESS]):
            continue  # parsing takes long
        for node in ast.walk(ast.parse(source)):
            text = node.value if isinstance(node, ast.Expr) else None
            if isinstance(text, ast.Constant) and str(text.value).startswith(HEADLESS):
                found.append(f"{name}:{node.lineno}: {str(text.value).splitlines()[0]}")
    assert not found, "name what it is or returns: " + "\n".join(found)


WORDS_TO_AVOID = {
    "cell": "work_item: a cell is recurrent",
    "cells": "work_items",
    "trip": "iteration",
    "trips": "iterations",
    "told": "argument, message or report",
    "behind": "after, trailing, or owner",
    "alone": "single, sole, or separate",
    "turned": "transposed, reversed, or pixel_major",
    "glance": "call_key",
    "seeing": "window_bounds",
    "place": "position, index, address, location or slot; in_place is the field's",
    "places": "positions, indices, addresses or output_sizes",
    "part": "section, slice, chunk, component, term, fraction or submodule: see the glossary",
    "parts": "sections, slices, chunks, components, terms, fractions or submodules",
    "given": "operand, feed, argument, parameter or captured",
}
"""Words of names in the runtime and the passes, and the glossary's words for them."""

AVOIDED_IN_PACKAGE = {*"trip trips told behind alone turned place places part parts".split()}
"""Words that no name of the package has. (A recurrent layer has cells.)"""

AVOIDED_EVERYWHERE = AVOIDED_IN_PACKAGE - {"alone"}
"""Words that no name in tests, benchmarks and examples has. (Names of tests are prose.)"""

PROSE = re.compile(r'(?s:""".*?""")|#.*')
USUAL = re.compile("in_?place|round_?trip", re.IGNORECASE)
"""Terms of the field that have such a word."""


def sources(*folders: str) -> Iterator[tuple[str, str]]:
    """Yield the files of Python code in folders, by name and as text."""
    for path in tracked_files():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".py" and name.startswith(folders):
            yield name, path.read_text("utf-8")


def avoided_in(name: str) -> Set[str]:
    """Return the words that names in a file don't have."""
    if name.startswith(("graphfw/runtime/", "graphfw/passes/")):
        return WORDS_TO_AVOID.keys()
    return AVOIDED_IN_PACKAGE if name.startswith("graphfw/") else AVOIDED_EVERYWHERE


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield all names that a file gives to something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def test_names_are_words_of_the_glossary():
    found = []
    for name, source in sources("graphfw/", "tests/", "benchmarks/", "examples/"):
        avoided = avoided_in(name)
        code = USUAL.sub("", PROSE.sub("", source)).lower()
        words = re.split(r"[\W_]+", code)
        names = {Path(name).stem}
        if avoided & {*words}:  # parsing takes long
            names.update(defined(ast.parse(source)))
        used = {
            (given, word)
            for given in names
            if not given.startswith("test_")
            for word in USUAL.sub("", given).lower().split("_")
        }
        found += [
            f"{name}: {given}: say {WORDS_TO_AVOID[word]}"
            for given, word in sorted(used)
            if word in avoided
        ]
    assert not found, "\n".join(found)


def test_classes_have_names_of_their_own():
    """A class whose name begins with an underscore is private to its module."""
    where = defaultdict(list)
    for name, source in sources("graphfw/"):
        for kind in re.findall(r"^ *class (\w+)[:(]", source, re.MULTILINE):
            assert len(kind) > 1, f"{name}: class {kind}: say what it is"
            if not kind.startswith("_"):
                where[kind].append(name)
    several = {kind: files for kind, files in where.items() if len(files) > 1}
    assert not several, "give one of each another name: " + str(several)


def test_no_machine_paths():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0].decode()}"
        for path in tracked_files()
        for number, line in enumerate(path.read_bytes().splitlines(), start=1)
        if (match := FORBIDDEN.search(line))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "hit"),
    [
        (b"cd /roo" + b"t", True),
        (b"'/wor" + b"k/main'", True),
        (b"/tmp/bas" + b"h_jobs", True),
        (b"/hom" + b"e/someone/graphfw", True),
        (b"https://example.org/root", False),
        (b"see framework/work/x and ./work/x", False),
    ],
)
def test_what_counts_as_a_machine_path(line: bytes, hit: bool):
    assert bool(FORBIDDEN.search(line)) is hit


@pytest.mark.parametrize("name", ["main", "test"])
def test_readme_has_the_commands(name: str):
    """A marked block is run as it stands, one command a line, so that no failure is lost."""
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("no README.md yet")
    text = readme.read_text(encoding="utf-8")
    blocks = re.findall(rf"^<!-- ci:{name} -->\n+```(?:bash|sh)\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) == 1, f"README.md needs one fenced block after <!-- ci:{name} -->"
    assert blocks[0].strip(), "the block is empty"
    assert not re.search(r"&&|\|\||;", blocks[0]), "write one command a line"
