"""Graphs of a hundred thousand nodes: nothing recurses, nothing is quadratic."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf

LENGTH = 100_000


@pytest.fixture(scope="module")
def chain():
    """Return a chain of additions, each twice used, with its input and its end."""
    with gf.Graph() as g:
        x = gf.placeholder(("n",), gf.float64, name="x")
        y = x
        for _ in range(LENGTH // 2):
            y = (y + x) * 0.5
        loss = gf.sum(y)
    return g, x, loss


@pytest.mark.slow
def test_build_verify_differentiate_compile_and_run(chain):
    g, x, loss = chain
    assert len(g.nodes) >= LENGTH
    gf.verify(g)
    with g:
        gradient = gf.grad(loss, x)
    with gf.Session(g, verify="ends") as session:
        value, slope = session.run([loss, gradient], {x: [1.0, 2.0]})
    assert value == pytest.approx(3.0)
    np.testing.assert_allclose(slope, 1.0)


@pytest.mark.slow
def test_text_and_views(chain):
    g, _, _ = chain
    text = str(g)
    assert str(gf.parse(text, constants=g.constants())) == text
    assert "placeholder" in g.summary()
    assert g.to_networkx().number_of_nodes() == len(g.nodes)


def test_long_chains_outside_a_graph_are_dropped_without_recursion():
    x = gf.asarray(1.0)
    for _ in range(LENGTH // 10):
        x = x + 1.0
    assert float(x) == LENGTH // 10 + 1
    del x
