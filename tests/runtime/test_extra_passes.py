"""`Session(passes=[…])`: passes of users and of other packages."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest

import graphfw as gf
from graphfw.extend import OptimiseBodies, Pass, RuleSet, lookup, rebuild, rule


@rule(lookup("sin"), before="sin(x)", after="cos(x)")
def cosine_for_sine(node, inputs):
    """sin(x) -> cos(x): not equal, so it can be seen whether it was applied."""
    return gf.cos(inputs[0])


MINE = RuleSet("mine", (cosine_for_sine,))


@dataclass(frozen=True)
class Returns(Pass):
    """A pass that returns what a function makes of the graph."""

    function: object
    name: str = "returns"

    def run(self, graph, hits):
        return self.function(graph)


@pytest.fixture
def graph():
    with gf.Graph() as g:
        gf.sin(gf.placeholder(("n",), name="x")) + 1
        g.outputs = (g.nodes[-1].outputs[0],)
    return g


def run(graph, verify="each", **options):
    # Not at the level that CI may ask for: these passes change numbers.
    with gf.Session(graph, verify=verify, **options) as session:
        return session.run(graph.outputs[0], {"x": np.zeros(2, np.float32)}).tolist()


def test_passes_rewrite_what_is_described(graph):
    assert run(graph) == [1, 1]
    assert run(graph, passes=[MINE]) == [2, 2]
    assert run(graph) == [1, 1]  # also where compiled code is kept on disk
    assert run(graph, passes=[]) == [1, 1]


def test_their_reports_come_first(graph):
    with gf.Session(graph, passes=[MINE], precision="mixed-bf16", verify="each") as session:
        plan = session.compile(graph.outputs[0], feeds=["x"])
    assert plan.program.reports[0].name == "mine"
    assert plan.program.reports[0].hits == {"cosine_for_sine": 1}
    assert "mine" in plan.explain()
    assert "precision mixed-bf16" in plan.explain()


def test_debug_runs_what_is_described(graph):
    assert run(graph, passes=[MINE], debug=True) == [1, 1]


def test_gradients_updates_and_bodies():
    with gf.Graph() as g:
        w = gf.Variable([0.0, 0.0], name="w")
        step = gf.update(w, w + gf.sin(w))
        looped = gf.fori_loop(0, 2, lambda i, c: c + gf.sin(c), gf.asarray(0.0) * w)
    with gf.Session(g, passes=[MINE], verify="each") as session:
        session.run(step)
        assert session[w].tolist() == [1, 1]
    with gf.Session(g, passes=[OptimiseBodies((MINE,))], verify="each") as session:
        np.testing.assert_allclose(session.run(looped), 1 + np.cos(1), rtol=1e-6)


@pytest.mark.parametrize("verify", ["values", "first-run"])
def test_a_pass_that_changes_a_number_is_named_where_values_are_compared(graph, verify):
    with pytest.raises(gf.PassError, match="mine"):
        run(graph, passes=[MINE], verify=verify)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda graph: None, "the pass returns failed: it returned a NoneType"),
        (lambda graph: 1 / 0, "the pass returns failed: ZeroDivisionError"),
        (
            lambda graph: fewer_outputs(graph),
            r"it changed the outputs from \(float32\[n\]\) to \(\)",
        ),
    ],
)
def test_a_pass_that_breaks_the_graph_is_named(graph, function, message):
    with pytest.raises(gf.PassError, match=message):
        run(graph, passes=[Returns(function)])


def fewer_outputs(graph):
    made = rebuild(graph)
    made.outputs = ()
    return made


@pytest.mark.parametrize(
    ("passes", "message", "fix"),
    [
        (MINE, "is no list of passes", r"write passes=\[…\]"),
        ("mine", "passes='mine' is no list of passes", r"write passes=\[…\]"),
        ([cosine_for_sine], "passes has a RewriteRule, which is no pass", "RuleSet"),
        ([Returns], "which is no pass", r"make one: Returns\(\)"),
        (["no-such-pass"], 'there is no pass named "no-such-pass"', "there are|pass the pass"),
        ([None], "passes has a NoneType", "derive a class from gf.extend.Pass"),
    ],
)
def test_what_is_no_pass_is_refused(graph, passes, message, fix):
    for debug in (False, True):
        with pytest.raises(gf.ArgumentError, match=message) as caught:
            gf.Session(graph, passes=passes, debug=debug)
        assert caught.match(fix)


def test_passes_of_installed_packages(graph, tmp_path, monkeypatch):
    (tmp_path / "some_passes.py").write_text(
        "import graphfw as gf\n"
        "from graphfw.extend import Pass, RuleSet, rule\n"
        "@rule(gf.extend.lookup('sin'), before='sin(x)', after='cos(x)')\n"
        "def cosine(node, inputs):\n"
        "    return gf.cos(inputs[0])\n"
        "made = RuleSet('theirs', (cosine,))\n"
        "class Idle(Pass):\n"
        "    name = 'idle'\n"
        "    def run(self, graph, hits):\n"
        "        return graph\n"
    )
    info = tmp_path / "some_passes-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-passes\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[graphfw.passes]\ntheirs = some_passes:made\nidle = some_passes:Idle\n"
        "gone = some_passes:missing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert run(graph, passes=["idle", "theirs"]) == [2, 2]
        with pytest.raises(gf.ArgumentError, match='no pass named "their"') as caught:
            gf.Session(graph, passes=["their"])
        assert caught.value.fix == 'did you mean "theirs"?'
        with pytest.raises(gf.ArgumentError, match='the pass "gone", some_passes:missing of some-'):
            gf.Session(graph, passes=["gone"])
    finally:
        sys.modules.pop("some_passes", None)
