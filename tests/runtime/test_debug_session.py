"""`Session(debug=…)`, and what `check_finite` says of loops and branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ExecutionError, ExecutorError, FeedError

X = np.array([[1, 2, 3], [4, 5, 6], [7, -1, 8], [1, 1, 1]], np.float32)


def failing(fetches: Any, feeds: Any, **options: Any) -> str:
    graph = next(iter(feeds)).graph
    with gf.Session(graph, **options) as session, pytest.raises(ExecutionError) as caught:
        session.run(fetches, feeds)
    return str(caught.value)


# debug.


def test_debug_computes_the_same_as_the_compiler():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        w = gf.Variable(np.ones(3, np.float32), name="w")
        noise = gf.random.normal((3,), name="noise")
        h, ys = gf.scan(lambda c, e: (gf.tanh(c + e), gf.sum(c)), w, x)
        iterations = gf.while_loop(lambda v: v < 10, lambda v: v * 2, gf.sum(h) + 5)
        loss = (
            gf.sum(ys) + gf.sum(noise) + gf.cond(iterations > 3, lambda: iterations, lambda: h[0])
        )
        slope = gf.grad(loss, w)
        step = gf.update(w, w - slope)
    plain, debug = gf.Session(g, seed=3), gf.Session(g, seed=3, debug=True)
    for _ in range(2):
        for a, b in zip(
            plain.run([loss, slope, ys, step], {x: X}),
            debug.run([loss, slope, ys, step], {x: X}),
            strict=True,
        ):
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(plain["w"], debug["w"], rtol=1e-5)


def test_debug_keeps_the_nodes_that_passes_would_change():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.exp(x * 1 + 0)
    seen: list[str] = []
    with gf.Session(g, debug=lambda node, inputs, outputs: seen.append(node.op.name)) as session:
        plan = session.compile(y, [x])
        np.testing.assert_allclose(plain := plan([0.0, 1.0]), np.exp([0, 1]), rtol=1e-6)
        assert plain.dtype == np.float32
        text = plan.explain()
    assert [name for name in seen if name != "constant"] == ["multiply", "add", "exp"]
    assert "no passes\n" in text
    assert "the debug path, node by node" in text
    assert "exp  " in text


def test_a_hook_sees_arrays_also_in_bodies():
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        last, _ = gf.scan(lambda c, e: (c + e * e, None), 0.0, x)
    seen: list[tuple[str, list[Any], list[Any]]] = []

    def hook(node, inputs, outputs):
        assert all(isinstance(a, np.ndarray) for a in (*inputs, *outputs))
        seen.append((node.op.name, [a.tolist() for a in inputs], [a.tolist() for a in outputs]))

    with gf.Session(g, debug=hook) as session:
        assert session.run(last, {x: [1.0, 2.0, 3.0]}) == 14
    squares = [(inputs, outputs) for name, inputs, outputs in seen if name == "multiply"]
    assert squares == [([v, v], [v * v]) for v in (1.0, 2.0, 3.0)]
    assert seen[-1][0] == "scan"


def test_an_error_of_a_hook_names_the_node():
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
        total, _ = gf.scan(lambda c, e: (c + gf.exp(e), None), 0.0, x)

    def hook(node, inputs, outputs):
        assert node.op.name != "exp" or inputs[0] < 3, "too large"

    text = failing(total, {x: [1.0, 2.0, 3.0]}, debug=hook)
    assert "the debug hook raised AssertionError: too large" in text
    assert "it is in iteration 2 of the scan" in text
    assert "in <lambda>" in text


@pytest.mark.parametrize("debug", [False, True])
def test_an_operation_that_fails_in_a_body_is_named_with_its_iteration(debug):
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
        table = gf.asarray([1.0, 2.0])

        def body(c, e):
            found = gf.take(table, gf.astype(e, gf.int64))  # here
            return c + found, found

        total, _ = gf.scan(body, 0.0, x)
    text = failing(total, {x: [0.0, 1.0, 5.0]}, debug=debug)
    assert "out of range" in text
    assert "found = gf.take(table, gf.astype(e, gf.int64))  # here" in text
    assert "it is in iteration 2 of the scan" in text


def test_what_debug_can_not_be():
    with gf.Graph() as g:
        gf.placeholder((), name="x")
    with pytest.raises(ArgumentError, match="debug is a str"):
        gf.Session(g, debug="yes")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ExecutorError, match='which the executor "meta" does not take'):
        gf.Session(g, "meta", debug=True)
    with pytest.raises(ExecutorError, match="debug=True does not plan its memory"):
        gf.Session(g, debug=True, memory_limit="1MiB")


# NaN in bodies.


@pytest.mark.parametrize("debug", [False, True])
def test_a_nan_in_a_scan_is_named_with_its_iteration(debug):
    with gf.Graph():
        x = gf.placeholder(("batch", 3), name="x")

        def body(c, e):
            root = gf.sqrt(e)  # the culprit
            return c + root, c

        last, ys = gf.scan(body, gf.zeros((3,)), x)
        slope = gf.grad(gf.sum(last), x)
    text = failing(last, {x: X}, check_finite=True, debug=debug)
    assert "sqrt gives nan at index (1,)\n" in text
    assert "float32[3] in [-1, 8]" in text
    assert "it is in iteration 2 of the scan" in text
    assert "root = gf.sqrt(e)  # the culprit" in text
    assert "nan at index (1,)" in failing(slope, {x: X}, check_finite=True, debug=debug)


def test_a_nan_in_nested_bodies():
    with gf.Graph():
        x = gf.placeholder(("batch", 3), name="x")
        start = gf.placeholder((), name="start")
        nested = gf.map(lambda row: gf.map(lambda v: gf.log(v), row), x)
        loop = gf.while_loop(lambda v: v > 0, lambda v: gf.log(v - 1), start)
        branch = gf.cond(
            start > 0, lambda v: gf.checkpoint(lambda u: gf.sqrt(-u))(v), gf.exp, start
        )
    feeds = {x: X, start: 3.0}
    text = failing(nested, feeds, check_finite=True)
    assert "log gives nan\n" in text
    assert "it is in iteration 1 of the scan" in text
    assert "; it is in iteration 2 of the scan" in text
    assert "it is in iteration 1 of the loop" in failing(loop, feeds, check_finite=True)
    text = failing(branch, feeds, check_finite=True)
    assert "sqrt gives nan" in text
    assert "the branch made at" in text


def test_a_nan_that_passes_fold_into_a_constant():
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
        folded = x + gf.log(gf.constant(np.float32(-1)))  # folded
        last, _ = gf.scan(lambda c, e: (gf.log(c - 1), e), gf.asarray(3.0), x)  # unrolled
    for fetch, mark in ((folded, "# folded"), (last, "# unrolled")):
        text = failing(fetch, {x: [1.0, 1.0, 1.0]}, check_finite=True)
        assert "log gives nan" in text
        assert mark in text


def test_the_gradient_of_a_loop_names_the_forward_line():
    with gf.Graph():
        x = gf.placeholder((3,), name="x")
        total, _ = gf.scan(lambda c, e: (c + gf.sqrt(e), None), 0.0, x)  # forward
        slope = gf.grad(total, x)
    text = failing(slope, {x: [1.0, 0.0, 2.0]}, check_finite=True)
    assert "gives inf" in text
    assert "it is the gradient of" in text
    assert "# forward" in text
    assert "it is in iteration 1 of the scan" in text


def test_the_row_of_the_feed():
    with gf.Graph():
        x = gf.placeholder(("batch", 3), name="x")
        t = gf.placeholder(("batch",), name="t")
        other = gf.placeholder(("rows",), name="other")
        y = gf.log(x) * t[:, None] + gf.sum(other)
        fixed = gf.log(gf.placeholder((2,), name="fixed"))
    feeds = {x: X, t: np.ones(4, np.float32), other: [1.0]}
    text = failing(y, feeds, check_finite=True)
    assert 'log gives nan at index (2, 1): row 2 of "x" and "t"\n' in text
    text = failing(fixed, {fixed.node.inputs[0]: [1.0, -1.0]}, check_finite=True)
    assert "log gives nan at index (1,)\n" in text


def test_blame_repeats_no_effects(capsys):
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        w = gf.Variable(1.0, name="w")
        gf.print("x {}", x)
        grow = gf.update(w, w + gf.sum(gf.log(x)))
    text = failing(grow, {x: [1.0, -1.0]}, check_finite=True)
    assert "log gives nan at index (1,)" in text
    assert capsys.readouterr().out == "x [ 1. -1.]\n"
    with gf.Session(g, check_finite=True) as session:
        with pytest.raises(ExecutionError):
            session.run(grow, {x: [1.0, -1.0]})
        assert session["w"] == 1


# Plans of arrays.


def test_plans_take_arrays_for_shapes(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")  # only compiled plans know their memory
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        y = gf.exp(x) + 1
    with gf.Session(g) as session:
        plan = session.compile(y, [x])
        assert plan.memory(X).peak == plan.memory((4, 3)).peak == plan.memory([4, 3]).peak
        assert plan.explain(X) == plan.explain((4, 3))
        assert plan.cost(X) == plan.cost((4, 3))
        for wrong in (4, "ab", (1.5, 2)):
            with pytest.raises(FeedError, match="is neither a shape nor an array"):
                plan.memory(wrong)
        with pytest.raises(FeedError, match="1 feed, and is given 0 shapes"):
            plan.memory()


def test_plans_of_static_feeds_need_no_shapes(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x = gf.placeholder((4, 3), name="x")
        y = gf.exp(x) + 1
    with gf.Session(g) as session:
        plan = session.compile(y, [x])
        assert plan.explain() == plan.explain((4, 3))
        assert plan.memory().peak == plan.memory((4, 3)).peak
