"""The CuPy executor on a GPU: its numbers are the CPU's. Without one see test_executors.py."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError

pytestmark = pytest.mark.gpu


@pytest.fixture
def model():
    """Return a small classifier with dropout, its feeds, loss and training step."""
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 8), name="x")
        y = gf.placeholder(("batch",), gf.int64, name="y")
        net = gf.nn.Sequential(
            gf.nn.Linear(8, 16), gf.nn.GELU(), gf.nn.Dropout(0.1), gf.nn.Linear(16, 3)
        )
        loss = gf.nn.cross_entropy(net(x), y)
        train = gf.optim.Adam(1e-2).minimize(loss)
    return g, x, y, loss, train


def test_training_gives_the_same_losses(model, rng):
    g, x, y, loss, train = model
    feeds = {x: rng.normal(size=(32, 8)).astype(np.float32), y: rng.integers(0, 3, 32)}
    losses = {}
    for name in ("numpy", "cupy"):
        with gf.Session(g, executor=name, seed=3) as session:
            losses[name] = [float(session.run([loss, train], feeds)[0]) for _ in range(10)]
    np.testing.assert_allclose(losses["cupy"], losses["numpy"], rtol=1e-4)


@pytest.mark.parametrize("x2", [np.ones((3, 1)), np.ones((2, 3, 1)), np.ones(3)], ids=np.shape)
def test_singular_matrices(x2):
    with gf.Graph() as g:
        x = gf.placeholder((3, 3), gf.float64, name="x")
        y = gf.linalg.solve(x, x2)
    with gf.Session(g, executor="cupy") as session:
        assert np.all(np.isfinite(session.run(y, {x: np.eye(3)}, host=True)))
        with pytest.raises(ExecutionError, match="a matrix is singular"):
            session.run(y, {x: np.zeros((3, 3))})


def test_streams_take_turns(rng):
    import cupy

    with gf.Graph() as g:
        x = gf.placeholder((5, 8), name="x")
        w = gf.Variable(rng.normal(size=(8, 8)).astype(np.float32), name="w")
        b = gf.Variable(np.zeros(8, np.float32), name="b")
        h = gf.tanh(gf.softmax(x * b + 1.0, axis=1) + gf.sum(w, axis=0) * x)
        train = gf.optim.Adam(1e-2).minimize(gf.mean(h * h))
    streams = [cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(), cupy.cuda.Stream.null]
    wanted, found = [], []
    with gf.Session(g, seed=3) as cpu, gf.Session(g, executor="cupy", seed=3) as gpu:
        for _ in range(60):
            feed = rng.normal(size=(5, 8)).astype(np.float32)
            with streams[rng.integers(3)]:
                match rng.integers(4):
                    case 0:
                        cpu[b] = gpu[b] = feed[0]
                    case 1:
                        cpu.run(train, {x: feed})
                        gpu.run(train, {x: feed})
                    case _:
                        wanted.append(cpu.run(h, {x: feed}))
                        found.append(gpu.run(h, {x: feed}))
            feed[:] = np.nan  # it is the caller's again
        cupy.cuda.runtime.deviceSynchronize()
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(cupy.asnumpy(ours), theirs, rtol=1e-3, atol=1e-5)


def test_random_bits_are_the_same():
    with gf.Graph() as g:
        draws = [
            gf.random.randint(0, 1000, (50,)),
            gf.random.uniform((50,)),
            gf.random.permutation(50),
        ]
    values = []
    for name in ("numpy", "cupy"):
        with gf.Session(g, executor=name, seed=5) as session:
            values.append(
                [
                    np.asarray(session.executor.to_host(v)) if name == "cupy" else v
                    for v in session.run(draws)
                ]
            )
    for ours, theirs in zip(*values, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_results_stay_on_the_device_and_device_feeds_are_taken(model, rng):
    import cupy

    g, x, y, loss, _ = model
    with gf.Session(g, executor="cupy") as session:
        fed = cupy.asarray(rng.normal(size=(4, 8)).astype(np.float32))
        value = session.run(loss, {x: fed, y: np.zeros(4, np.int64)})
        assert isinstance(value, cupy.ndarray)
        with pytest.raises(gf.FeedError, match="is fed float64"):
            session.run(loss, {x: fed.astype(cupy.float64), y: np.zeros(4, np.int64)})
