"""The example that says in one file how graphfw works computes what graphfw does."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import graphfw as gf

PATH = Path(__file__).parent.parent / "examples" / "tiny_graphfw.py"
RNG = np.random.default_rng(0)
W1, W2 = (RNG.standard_normal(size).astype(np.float32) for size in [(3, 5), (5, 1)])
X, Y = (RNG.standard_normal((7, width)).astype(np.float32) for width in (3, 1))


@pytest.fixture(scope="module")
def tiny() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tiny_graphfw", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their annotations up there
    spec.loader.exec_module(module)
    return module


def line() -> int:
    return sys._getframe(1).f_lineno


def test_training_beside_graphfw(tiny):
    x, y = tiny.placeholder("x", ("batch", 3)), tiny.placeholder("y", ("batch", 1))
    parameters = w1, b1, w2 = [
        tiny.variable(name, value) for name, value in [("w1", W1), ("b1", np.zeros(5)), ("w2", W2)]
    ]
    off = tiny.tanh(x @ w1 + b1) @ w2 - y
    loss = tiny.sum_to(off * off, ())
    gradients = tiny.grad(loss, parameters)
    steps = {w: w - g * 0.01 for w, g in zip(parameters, gradients, strict=True)}

    with gf.Graph() as graph:
        xs, ys = gf.placeholder(("batch", 3), name="x"), gf.placeholder(("batch", 1), name="y")
        values = [gf.Variable(W1), gf.Variable(np.zeros(5)), gf.Variable(W2)]
        wanted = gf.sum((gf.tanh(xs @ values[0] + values[1]) @ values[2] - ys) ** 2)
        derived = gf.grad(wanted, values)
        step = gf.optim.SGD(0.01).minimize(wanted, values)

    session = tiny.Session()
    with gf.Session(graph) as peer:
        for rows in (7, 1, 4, 7):
            got = session.run([loss, *gradients], {x: X[:rows], y: Y[:rows]}, steps)
            fetched, *_ = peer.run([[wanted, *derived], step], {xs: X[:rows], ys: Y[:rows]})
            for one, other in zip(got, fetched, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_kernels(tiny, rng):
    """Elementwise ops that only each other use are one kernel, for all sizes."""
    x, row = tiny.placeholder("x", ("n", 4)), tiny.placeholder("row", (4,))
    y = tiny.tanh((x + row) * 1.0 - 0.5) * x
    groups = tiny.partition(tiny.optimised([y]))
    computed = [nodes for nodes in groups if nodes[-1].op.llvm]
    assert [[node.op.name for node in nodes] for nodes in computed] == [
        ["add", "add", "tanh", "multiply"]
    ]
    session = tiny.Session()
    for n in (0, 1, 6):
        a, b = np.float32(rng.standard_normal((n, 4))), np.float32(rng.standard_normal(4))
        (got,) = session.run([y], {x: a, row: b})
        np.testing.assert_allclose(got, np.tanh(a + b - 0.5) * a, rtol=1e-5)
    assert len(session._plans) == 1


def test_shapes_are_checked_on_the_users_line(tiny):
    x = tiny.placeholder("x", ("n", 4))
    made = line() + 1
    w = tiny.variable("w", np.zeros((3, 2)))
    with pytest.raises(tiny.ShapeError) as caught:
        x @ w
    assert f"at {__file__}:{line() - 1}" in str(caught.value)
    assert f"variable w(3, 2)  {__file__}:{made}" in str(caught.value)
    with pytest.raises(tiny.ShapeError, match="sizes 3 and 4 differ"):
        tiny.placeholder("y", (3,)) + x


def test_feeds_are_checked(tiny):
    x, y = tiny.placeholder("x", ("n", 4)), tiny.placeholder("y", ("n",))
    session = tiny.Session()
    for feeds in ({x: np.zeros(4)}, {x: np.zeros((2, 3))}, {x: np.zeros((2, 4)), y: np.zeros(3)}):
        with pytest.raises(tiny.ShapeError, match="does not fit"):
            session.run([x * 2.0], feeds)
    with pytest.raises(ValueError, match="not fed"):
        session.run([x * 2.0], {})


def test_the_file_runs():
    done = subprocess.run([sys.executable, PATH], capture_output=True, text=True, check=True)
    assert "step 200  loss 0.0" in done.stdout
    assert "matmul: the first needs as many columns as the second has rows" in done.stdout
