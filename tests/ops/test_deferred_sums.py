"""Gradients of weights of a scan, summed after the loop where that is worth it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ops.control import scan_op

Step = Callable[[gf.Tensor, gf.Tensor, gf.Tensor], tuple[gf.Tensor, gf.Tensor]]
ITERATIONS, BATCH, SIZE = 5, 2, 40


def once(w: gf.Tensor, c: gf.Tensor, x: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    c = gf.tanh(c @ w + x)
    return c, c


def twice(w: gf.Tensor, c: gf.Tensor, x: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    c = gf.tanh(c @ w + gf.sin(x) @ w)
    return c, c * c


def transposed(w: gf.Tensor, c: gf.Tensor, x: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    c = gf.tanh((w @ c.T).T + x @ w.T)
    return c, c


def of_elements(w: gf.Tensor, c: gf.Tensor, x: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    return gf.tanh(c + x), x @ w


def also_elementwise(w: gf.Tensor, c: gf.Tensor, x: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
    c = gf.tanh(c @ w + x + gf.sum(w * w, axis=0))
    return c, c


def gradients(step: Step, symbolic: bool, reverse: bool, order: int) -> Any:
    """Return the graph's feeds, and gradients of a function of all outputs."""
    dims = ("iterations", "batch") if symbolic else (ITERATIONS, BATCH)
    feeds = [
        gf.placeholder((SIZE, SIZE), gf.float64),
        gf.placeholder((dims[1], SIZE), gf.float64),
        gf.placeholder((*dims, SIZE), gf.float64),
    ]
    w, c, x = feeds
    last, ys = gf.scan(lambda c, x: step(w, c, x), c, x, reverse=reverse)
    loss = gf.sum(gf.sin(last)) + gf.sum(ys * ys)
    found = gf.grad(loss, feeds)
    if order == 2:
        found = gf.grad(gf.sum(gf.stack([gf.sum(gf.sin(g)) for g in found])), feeds)
    return feeds, found


STEPS = [once, twice, transposed, of_elements, also_elementwise]


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("order", [1, 2])
def test_equals_sums_in_the_loop(
    step: Step,
    symbolic: bool,
    reverse: bool,
    order: int,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of no iterations, and of a batch of none."""
    monkeypatch.setattr("graphfw.ops.control.deferred_sums._TYPICAL", 1)
    with gf.Graph() as graph:
        feeds, late = gradients(step, symbolic, reverse, order)
        outside = [n for n in graph.nodes if n.op.name == "matmul"]
        monkeypatch.setattr(scan_op, "deferred", lambda *_: None)
        others, here = gradients(step, symbolic, reverse, order)
        assert len([n for n in graph.nodes if n.op.name == "matmul"]) == len(outside)
    assert outside
    sizes = [(ITERATIONS, BATCH), (0, 2), (1, 1), (3, 0)] if symbolic else [(ITERATIONS, BATCH)]
    with gf.Session(graph) as session:
        for iterations, batch in sizes:
            shapes = [(SIZE, SIZE), (batch, SIZE), (iterations, batch, SIZE)]
            arrays = [0.3 * rng.standard_normal(shape) for shape in shapes]
            got = session.run(late, dict(zip(feeds, arrays, strict=True)))
            expected = session.run(here, dict(zip(others, arrays, strict=True)))
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a, b, 1e-9, 1e-11)


def test_large_operands_stay_in_the_loop() -> None:
    """The sum is no larger than what would be stacked."""
    with gf.Graph() as graph:
        w, c = gf.zeros((4, 4)), gf.zeros((64, 4))
        last = gf.scan(lambda c, _: (gf.tanh(c @ w), None), c, length=9)[0]
        gf.grad(gf.sum(last), w)
        names = [n.op.name for n in graph.nodes]
    assert "matmul" not in names


def test_what_is_stacked_anyway_is_read_from_there() -> None:
    """The gradients of what a product is added to: larger than what would be stacked for a sum."""
    with gf.Graph() as graph:
        w, c, x = gf.zeros((64, 256)), gf.zeros((16, 64)), gf.zeros((9, 16, 256))

        def step(c: gf.Tensor, x: gf.Tensor) -> tuple[gf.Tensor, None]:
            return gf.sum(gf.reshape(gf.tanh(c @ w + x), (16, 64, 4)), axis=-1), None

        last = gf.scan(step, c, x)[0]
        gf.grad(gf.sum(last), w)
        names = [n.op.name for n in graph.nodes]
    assert "matmul" in names
