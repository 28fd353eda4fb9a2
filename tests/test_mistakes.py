"""The mistakes that people make, and what graphfw says to each.

They are listed in `tests/mistakes`. The test asserts an error's class and text, that it points at
the faulty line, which operands it shows with their own lines, and the fix. Those in `BUILD` are
found while the graph is described.
"""

from __future__ import annotations

import inspect
import re
import traceback
from pathlib import Path

import pytest

import graphfw as gf
from tests.mistakes import graphs, sessions, shapes  # noqa: F401 - they fill the lists
from tests.mistakes.matrix import BUILD, RUN, Mistake


def check(made: Mistake, error: gf.GraphfwError) -> None:
    """Compare an error with what is expected."""
    assert isinstance(error, made.error)
    assert isinstance(error, made.builtin)
    assert made.text in error.summary
    assert made.fix in error.fix
    assert error.fix
    text = str(error)
    assert error.summary in text
    assert len(text.splitlines()) <= 7
    assert error.at.file == made.file
    assert error.at.line == made.marked("here")
    assert f"{Path(made.file).name}:{error.at.line}" in text
    shown = {o.name: o for o in error.operands}
    for name in made.operands:
        assert shown[name].loc.file == made.file
        assert shown[name].loc.line == made.marked(name)
        assert f'"{name}"' in text


@pytest.mark.parametrize("made", BUILD, ids=lambda m: m.make.__name__)
def test_found_while_building(made):
    with pytest.raises(made.error) as caught, gf.Graph():
        made.make()
    check(made, caught.value)


@pytest.mark.parametrize("made", RUN, ids=lambda m: m.make.__name__)
def test_found_when_running(made):
    with pytest.raises(made.error) as caught:
        made.make()
    check(made, caught.value)


def test_there_are_enough():
    assert len(BUILD) + len(RUN) >= 40
    assert len(BUILD) > len(RUN)


def test_all_independent_mistakes_of_one_build_at_once():
    with pytest.raises(gf.GraphErrors) as caught, gf.Graph(collect_errors=True):
        x = gf.placeholder(("batch", 4), name="x")
        h = x @ gf.ones((5, 2))
        after = gf.exp(h) + 1.0  # follows from the first: not reported
        gf.concat([x, gf.ones((3, 3))], axis=0)
        gf.where(after, 1.0, 0.0)  # follows too: would be a mistake of its own
        x + gf.placeholder((3, 4), name="y")
    errors = caught.value.errors
    assert [type(e) for e in errors] == [gf.ShapeError] * 3
    assert [re.match(r"\w+", e.summary)[0] for e in errors] == ["matmul", "concat", "add"]
    first = inspect.getsourcelines(test_all_independent_mistakes_of_one_build_at_once)[1]
    assert [e.at.line - first for e in errors] == [3, 5, 7]
    assert str(caught.value).startswith("3 mistakes in this graph\n[1] ShapeError: matmul")


def test_a_session_refuses_a_graph_with_mistakes():
    g = gf.Graph(collect_errors=True)
    with pytest.raises(gf.GraphErrors), g:
        gf.ones((2, 3)) @ gf.ones((2, 3))
    with pytest.raises(gf.GraphErrors, match="1 mistake in this graph"):
        gf.Session(g)


def test_a_traceback_ends_at_the_users_line():
    """graphfw's own frames and the requirement that failed inside are not shown."""
    with pytest.raises(gf.ShapeError) as caught, gf.Graph():
        gf.ones((2, 3)) @ gf.ones((2, 3))
    text = "".join(traceback.format_exception(caught.value))
    assert "During handling" not in text
    assert "graphfw/ir" not in text.replace("\\", "/")


def test_all_frames_can_be_kept(monkeypatch):
    monkeypatch.setenv("GRAPHFW_ERRORS", "full")
    with pytest.raises(gf.ShapeError) as caught, gf.Graph():
        gf.ones((2, 3)) @ gf.ones((2, 3))
    assert "ir/build.py" in "".join(traceback.format_exception(caught.value)).replace("\\", "/")
