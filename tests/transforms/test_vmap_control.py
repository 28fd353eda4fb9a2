"""`vmap` of loops and branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from tests.support.mapped import check, floats, looped


def test_scan(rng: np.random.Generator):
    x, h, w = floats(rng, 4, 5, 3), floats(rng, 4, 3), floats(rng, 4, 3, 3)

    def cell(x: gf.Tensor, h: gf.Tensor, w: gf.Tensor) -> Any:
        def step(carry: Any, row: gf.Tensor) -> Any:
            number, state = carry
            state = gf.tanh(w @ state + row * gf.astype(number, "float32"))
            return (number + 1, state), (state, number)

        (count, last), (states, numbers) = gf.scan(step, (0, h), x)
        return last, states, numbers, count

    check(cell, x, h, w)


def test_products_with_shared_matrices(rng: np.random.Generator):
    w, v = floats(rng, 4, 3), floats(rng, 5, 3, 2)
    check(lambda x: w @ x, floats(rng, 6, 3))
    check(lambda x: w @ x, floats(rng, 6, 3, 2))
    check(lambda x: x @ v, floats(rng, 6, 3))
    x = floats(rng, 6, 3)
    slope = gf.grad(gf.sum(gf.vmap(lambda x: w @ x)(x) ** 2), w)
    expected = 2 * w.numpy() @ x.numpy().T @ x.numpy()
    np.testing.assert_allclose(slope.numpy(), expected, rtol=1e-4, atol=1e-5)
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), name="x")
        gf.vmap(lambda x: x @ gf.zeros((3, 4)))(x)
    (product,) = [node for node in g.nodes if node.op.name == "matmul"]
    assert str(product.types[0]) == "float32[batch, 4]"


def test_a_scan_with_nothing_that_differs_is_made_once():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.vmap(lambda v: v * gf.scan(lambda c, _: (c * 2, c), gf.asarray(1.0), None, 4)[0])(x)
    (scan,) = [node for node in g.nodes if node.op.name == "scan"]
    assert scan.types[0].shape == ()
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session.run(y, {x: [1.0, 2.0]}), [16, 32])


@pytest.mark.parametrize("iterations", [[3], [0], [2, 0, 5, 1], []])
def test_lanes_make_different_numbers_of_trips(iterations: list[int], rng: np.random.Generator):
    table = floats(rng, 5)

    def function(x: gf.Tensor, n: gf.Tensor) -> Any:
        def body(state: Any) -> Any:
            i, v = state
            return i + 1, gf.sin(v) * 1.5 + table[i]  # i = 5 would be out of range

        return gf.while_loop(lambda state: state[0] < n, body, (gf.asarray(0), x))

    x, n = floats(rng, len(iterations)), gf.asarray(np.array(iterations, "int64"))
    if iterations:
        check(function, x, n)
        second = gf.vmap(lambda a, b: gf.grad(gf.grad(function(a, b)[1], a), a, missing="zeros"))
        expected = looped(
            lambda a, b: gf.grad(gf.grad(function(a, b)[1], a), a, missing="zeros"), x, n
        )
        np.testing.assert_allclose(second(x, n).numpy(), expected[0], rtol=1e-4, atol=1e-5)
    else:
        assert [t.numpy().shape for t in gf.vmap(function)(x, n)] == [(0,), (0,)]


def test_nested_loops_in_nested_lanes(rng: np.random.Generator):
    table = floats(rng, 6)

    def inner(x: gf.Tensor, n: gf.Tensor) -> gf.Tensor:
        def body(state: Any) -> Any:
            i, v = state
            odd = gf.cond(i % 2 == 1, lambda: v * table[i], lambda: gf.sin(v) + 1)
            return i + 1, gf.scan(lambda c, t: (c * 0.5 + t, None), odd, table[:2])[0]

        return gf.while_loop(lambda state: state[0] < n, body, (gf.asarray(0), x))[1]

    x, n = floats(rng, 3, 4), gf.asarray(rng.integers(0, 7, size=(3, 4)))

    def rows(xs: gf.Tensor, ns: gf.Tensor) -> gf.Tensor:
        return gf.vmap(inner)(xs, ns)

    check(rows, x, n)
    expected = [looped(inner, x[i], n[i])[0] for i in range(3)]
    np.testing.assert_allclose(gf.vmap(rows)(x, n).numpy(), np.stack(expected), rtol=1e-5)


def test_a_loop_whose_condition_is_shared_stays_one_loop(rng: np.random.Generator):
    steps = gf.asarray(3)

    def function(x: gf.Tensor) -> gf.Tensor:
        return gf.fori_loop(0, steps, lambda i, v: gf.sin(v) + gf.astype(i, "float32"), x)

    check(function, floats(rng, 4, 2))
    with gf.Graph() as g:
        gf.vmap(function)(gf.placeholder(("n", 2), name="x"))
    (loop,) = [node for node in g.nodes if node.op.name == "loop"]
    assert loop.op.condition.outputs[0].node.op.name == "less"


def test_branches(rng: np.random.Generator):
    table = floats(rng, 4)

    def function(i: gf.Tensor, x: gf.Tensor) -> Any:
        lookup = gf.cond(i < 4, lambda v: gf.sin(v) * table[i], lambda v: v * 2, x)
        cheap = gf.switch(i, [lambda: x * 3, lambda: gf.exp(x), lambda: -x])
        return lookup, cheap

    check(function, gf.asarray([0, 9, 3, -2]), floats(rng, 4, 3))
    check(function, gf.asarray([7, 7]), floats(rng, 2, 3))  # a branch that nobody takes
    shared = gf.asarray(1)
    check(
        lambda x: gf.switch(shared, [lambda: x * 3, lambda: x @ gf.ones((2, 2))]), floats(rng, 3, 2)
    )
    empty = gf.vmap(function)(gf.zeros(0, dtype="int64"), gf.zeros((0, 3)))
    assert [t.numpy().shape for t in empty] == [(0, 3), (0, 3)]


def test_checkpoints_and_maps(rng: np.random.Generator):
    w = floats(rng, 3)
    check(lambda x: gf.checkpoint(lambda v: gf.exp(gf.sin(v * w)))(x), floats(rng, 4, 3))
    check(lambda x: gf.map(lambda row: gf.sum(row * w), x), floats(rng, 4, 2, 3))
    check(lambda x: gf.associative_scan(lambda a, b: a * b, x), floats(rng, 3, 5))


def test_control_flow_in_a_session(rng: np.random.Generator):
    with gf.Graph() as g:
        x = gf.placeholder(("batch",), name="x")

        def halved(v: gf.Tensor) -> gf.Tensor:
            return gf.while_loop(lambda s: s > 1, lambda s: s / 2, v)

        y = gf.vmap(halved)(x)
        slope = gf.grad(gf.sum(y), x)
    a = np.array([0.5, 9, 3, 100], "float32")
    with gf.Session(g) as session:
        value, gradient = session.run([y, slope], {x: a})
    iterations = np.maximum(np.ceil(np.log2(a)), 0)
    np.testing.assert_allclose(value, a / 2**iterations, rtol=1e-5)
    np.testing.assert_allclose(gradient, 1 / 2**iterations, rtol=1e-5)
