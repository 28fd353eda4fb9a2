"""The code in the documentation runs as it stands, page by page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.functions import FUNCTIONS
from graphfw.ir.op import REGISTRY
from graphfw.runtime.numpy_executor import passes

DOCS = Path(__file__).parent.parent / "docs"
FIGURES = DOCS / "benchmarks"
PACKAGE = DOCS.parent / "graphfw"
ALL = sorted(
    page
    for page in DOCS.rglob("*.md")
    if FIGURES not in page.parents or page == FIGURES / "README.md"
)
WITH_CODE = [page for page in ALL if "```python" in page.read_text("utf-8")]
INTERNALS = [page for page in ALL if page.is_relative_to(DOCS / "internals")]
PAGES = [page for page in WITH_CODE if page not in INTERNALS]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"\n\n```text\n(.*?)^```", BLOCK.flags)
"""The output behind a block."""


@pytest.fixture
def _registries_restored():
    """Forget the ops that a page adds."""
    ops, functions = dict(REGISTRY), dict(FUNCTIONS)
    yield
    for registry, before in ((REGISTRY, ops), (FUNCTIONS, functions)):
        registry.clear()
        registry.update(before)


def test_there_are_pages():
    assert len(PAGES) >= 9


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_lines_are_short(page):
    """Rows of tables and addresses can't be broken."""
    long = [
        f"{number}: {line}"
        for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1)
        if len(line) > 120 and not line.startswith("|") and "https://" not in line
    ]
    assert not long, "break after 120 characters:\n" + "\n".join(long)


def test_the_site_has_every_page():
    listed = re.findall(r": (\S+\.md)$", (DOCS.parent / "mkdocs.yml").read_text("utf-8"), re.M)
    pages = [page.relative_to(DOCS).as_posix() for page in ALL]
    assert sorted(listed) == sorted(pages)


# A loop that a time limit ends is too long to be evaluated once more.
@pytest.mark.filterwarnings("ignore:verify. the loop made at sessions.md")
@pytest.mark.usefixtures("_registries_restored")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_page_runs(page, monkeypatch, tmp_path, request):
    if page.stem == "gpu":
        request.getfixturevalue("fake")
    monkeypatch.chdir(tmp_path)  # pages write files
    monkeypatch.delenv("GRAPHFW_JIT", raising=False)  # pages show what is compiled
    text = page.read_text("utf-8")
    module = ModuleType(f"docs_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look for it
    names = vars(module)
    source = ""
    for block in BLOCK.finditer(text):
        # Blocks go on where the one before ended, inside its `with` if they are indented.
        if block[1].startswith((" ", "\t")):
            source += block[1]
            continue
        run(source, page, names)
        line = text.count("\n", 0, block.start(1))
        source = "\n" * line + block[1]
    run(source, page, names)


@pytest.mark.parametrize("page", sorted(DOCS.glob("adding-*.md")), ids=lambda page: page.stem)
def test_what_is_added_needs_nothing_private(page):
    text = page.read_text("utf-8").partition("## In graphfw itself")[0]
    found = set(re.findall(r"^(?:from|import) (graphfw\S*)", text, re.MULTILINE))
    assert found <= {"graphfw", "graphfw.extend"}
    assert not re.search(r"\bself\._|\bdef _", "".join(BLOCK.findall(text)))


@pytest.mark.parametrize("name", ["moving_average.py", "native.py"])
def test_the_page_on_ops_shows_the_files_of_the_example(name):
    file = DOCS.parent / "examples" / "graphfw_extras" / "src" / "graphfw_extras" / name
    code = file.read_text("utf-8").partition("annotations\n")[2].strip()
    code = re.sub(r"^(import graphfw as gf|from graphfw_extras.*)\n", "", code, flags=re.MULTILINE)
    page = (DOCS / "adding-an-op.md").read_text("utf-8")
    assert code.replace("extras.moving_average", "mylib.moving_average") in page


@pytest.mark.usefixtures("_registries_restored")
@pytest.mark.parametrize(
    "page", [page for page in WITH_CODE if page in INTERNALS], ids=lambda page: page.stem
)
def test_output_is_what_the_code_prints(page, monkeypatch, capsys):
    monkeypatch.delenv("GRAPHFW_JIT", raising=False)
    names: dict[str, object] = {"__name__": "page"}
    text = page.read_text("utf-8")
    for block in BLOCK.finditer(text):
        run(block[1], page, names)
        shown = SHOWN.match(text, block.end())
        assert capsys.readouterr().out.strip() == (shown[1].strip() if shown else "")


def test_tests_that_are_named_are_there():
    """Invariants name the test that holds them: `tests/path.py::test_name`."""
    for page in INTERNALS:
        for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text("utf-8")):
            file = DOCS.parent / path
            assert file.exists(), f"{page.name} names {path}"
            assert f"def {name}(" in file.read_text("utf-8") or not name, (
                f"{page.name} names {name}"
            )


def test_files_that_are_named_are_there():
    root = DOCS.parent
    files = [f"/{path.relative_to(root).as_posix()}" for path in root.glob("*/**/*.*")]
    for page in INTERNALS:
        for path in re.findall(r"`((?:\.\./)?[\w/]+\.(?:py|ll|cuh))`", page.read_text("utf-8")):
            found = any(file.endswith(f"/{path.removeprefix('../')}") for file in files)
            assert found, f"{page.name} names {path}"


def files_of(section):
    """Return the files that the overview lists in a section, in order."""
    text = (DOCS / "internals/overview.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {section}\n(.*?)^## ", text, re.M | re.S)
    assert found
    return re.findall(r"^\d\. `(\S+\.py)`", found[1], re.M)


def files_through(call):
    """Return the package's files whose functions a call runs, in order."""
    found = {}

    def profile(frame, event, arg):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            found[path.relative_to(PACKAGE).as_posix()] = None

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(found)


def test_a_feed_goes_through_the_files_of_the_overview(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8), name="x")
        y = gf.softmax(x @ gf.Variable(np.ones((8, 3), np.float32), name="w"), axis=-1)
    with gf.Session(g) as session:
        session.run(y, {x: np.ones((4, 8), np.float32)})
        files = files_through(lambda: session.run(y, {x: np.ones((4, 8), np.float32)}))
    assert [f for f in files if f.startswith("runtime/")] == files_of("One feed")


def test_an_error_is_made_in_the_files_of_the_overview():
    def call():
        with pytest.raises(gf.ShapeError, match="contracting dims differ") as caught:
            gf.matmul(x, weight)
        str(caught.value)

    with gf.Graph():
        x, weight = gf.placeholder(("n", 4), name="x"), gf.ones((3, 5))
        assert set(files_of("One error")) <= set(files_through(call))


def test_every_pass_is_described_in_the_order_in_which_they_run():
    text = (DOCS / "internals" / "ir.md").read_text("utf-8")
    described = re.findall(r"^\| `([\w-]+)` \|", text[text.index("## The passes") :], re.M)
    names = [*dict.fromkeys([each.name for each in passes.passes()])]
    assert described[: len(names)] == names


def test_the_glossary_is_short_and_defines_each_word_once():
    text = (DOCS / "internals" / "glossary.md").read_text("utf-8")
    rows = re.findall(r"^\| (.*?) \|", text[: text.index("## Words to avoid")], re.M)
    words = [word for row in rows if row != "word" for word in row.split(", ")]
    assert len(words) == len({*words})
    assert len(words) <= 60, "merge or drop words that mean what they mean everywhere"


def run(source: str, page: Path, names: dict[str, object]) -> None:
    exec(compile(source, str(page), "exec"), names)


def test_links_lead_somewhere():
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
