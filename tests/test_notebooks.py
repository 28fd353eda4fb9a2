"""Cells of notebooks: what they show, how lines are named, and lines that are run again."""

from __future__ import annotations

import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import GraphError
from graphfw.utils.reports import Report


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Let this file be a cell, whose number is `execution_count`, of a shell like IPython's."""
    shell = SimpleNamespace(execution_count=1)
    named = lambda file: ("Cell", f"In[{shell.execution_count}]") if file == __file__ else None  # noqa: E731  # short
    shell.compile = SimpleNamespace(format_code_name=named)
    ipython = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]  # no module
    return shell


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> gf.Plan[Any]:
    monkeypatch.setenv("GRAPHFW_JIT", "1")  # only compiled plans have all reports
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = gf.exp(x) + 1
    return gf.Session(g).compile(y, [x])


def test_what_is_shown_is_what_is_printed(plan: gf.Plan[Any]):
    x = np.ones(2, np.float32)
    for shown in (
        plan.explain(),
        plan.source(),
        plan.program.graph.summary(),
        plan.profile(x),
        plan.memory(),
        plan.casts(),
    ):
        assert repr(shown) == str(shown)
        assert not repr(shown).startswith(("'", type(shown).__name__))
    assert isinstance(plan.explain(), str)
    assert repr(Report("a\nb") + "c") == "'a\\nbc'"  # a piece of a text is a text


def test_lines_of_cells(cells: SimpleNamespace):
    with gf.Graph():
        x = gf.placeholder((2, 3), name="x")
        assert repr(x).endswith(f"at Cell In[1], line {x.node.loc.line}>")
        with pytest.raises(
            gf.errors.ShapeError, match=r"at   Cell In\[1\], line \d+ in test_lines"
        ):
            x @ x
    assert x.node.loc._replace(file="model.py").short() == f"model.py:{x.node.loc.line}"


@pytest.mark.parametrize(
    "shell",
    [None, SimpleNamespace(), SimpleNamespace(execution_count="1", compile=SimpleNamespace())],
)
def test_other_shells_are_none(monkeypatch: pytest.MonkeyPatch, shell: Any):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]  # no module
    with gf.Graph():
        for _ in range(2):
            x, _ = gf.placeholder((2, 3)), gf.nn.Linear(3, 2)
    assert f"test_notebooks.py:{x.node.loc.line}" in repr(x)


def test_a_model_that_is_made_again(cells: SimpleNamespace):
    def cell(g: gf.Graph) -> list[gf.nn.Module]:
        with g:
            return [gf.nn.Sequential(gf.nn.Linear(3, 2), gf.nn.ReLU()) for _ in range(2)]

    g = gf.Graph()
    first = cell(g)  # twice in one run of the cell is no mistake
    cells.execution_count = 2
    cell(gf.Graph())  # nor is another graph
    with pytest.warns(
        UserWarning, match='has made "sequential_1" before, .*"sequential_2" is'
    ) as w:
        again = cell(g)
    assert len(w) == 1
    assert w[0].filename == __file__
    assert [m.path for m in (*first, *again)] == [
        "sequential",
        *[f"sequential_{n}" for n in (1, 2, 3)],
    ]
    cells.execution_count = 3
    with g, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            gf.nn.ReLU()  # has no variables
            cells.execution_count += 1


def test_a_name_that_is_given_again(cells: SimpleNamespace):
    def cell(what: str) -> None:
        gf.placeholder((2,), name="x") if what == "x" else gf.Variable(np.zeros(2), name="w")

    with gf.Graph():
        for what in ("x", "w"):
            cell(what)
            with pytest.raises(GraphError, match="a cell that is run again should make the graph"):
                cell(what)
        with pytest.raises(GraphError) as caught:
            gf.identity(gf.zeros(2), name="x")
        assert caught.value.fix == "give each its own name, or use gf.name_scope"


CELLS = [
    "import graphfw as gf; g = gf.Graph()",
    "with g:\n    model = gf.nn.Linear(3, 2)\n    y = model(gf.ones((1, 3)))",
    "with g:\n    model = gf.nn.Linear(3, 2)\n    z = model(gf.ones((1, 3)))",
    "y, z",
    "g.summary()",
    "gf.Session(g).compile(y).memory()",
]


@pytest.mark.slow
def test_ipython_itself():
    pytest.importorskip("IPython")
    run = "from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance(); "
    run += f"[s.run_cell(cell, store_history=True) for cell in {CELLS!r}]"
    command = [sys.executable, "-W", "ignore:Attempting", "-c", run]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'this line has made "linear" before' in ran.stderr
    assert "at Cell In[2], line 3>" in ran.stdout
    assert "at Cell In[3], line 3>" in ran.stdout
    assert "\nlinear_1.weight " in ran.stdout
    assert "\npeak " in ran.stdout
