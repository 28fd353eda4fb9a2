"""Indices are checked where what they name is empty: in loops and branches, and on a GPU, too."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError


def zero():
    return gf.asarray(0, dtype=gf.int64)


NAMED = {
    "take": lambda x, i: gf.take(x, i, axis=0),
    "sum": lambda x, i: gf.sum(gf.exp(x[i])),
    "map": lambda x, i: gf.map(lambda k: x[k], i),
    "scan": lambda x, i: gf.scan(lambda c, k: (c + 1, gf.sum(x[k])), 0.0, i)[1],
    "fori_loop": lambda x, i: gf.fori_loop(0, 2, lambda n, c: c + gf.sum(x[i[n]]), 0.0),
    "while_loop": lambda x, i: gf.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + gf.sum(x[i[c[0]]])), (zero(), 0.0)
    )[1],
    "cond": lambda x, i: gf.cond(i[0] == 0, lambda: x[i] + 0, lambda: x[i] + 1),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("executor", ["numpy", "cupy"])
@pytest.mark.parametrize("how", NAMED)
def test_indices_of_nothing_are_checked(fake, monkeypatch, executor, how):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x = gf.placeholder(("rows", "columns"), name="x")
        i = gf.placeholder((2,), gf.int64, name="i")
        y = NAMED[how](x, i)
    with gf.Session(g, executor=executor) as session:
        for shape in ((3, 0), (3, 2)):
            feeds = {x: np.zeros(shape, np.float32), i: np.array([0, -3])}
            found = session.run(y, feeds, host=True)
            with pytest.raises(ExecutionError, match="index 5 is out of range for dim 0 of size 3"):
                session.run(y, {**feeds, i: np.array([0, 5])}, host=True)
        assert found is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: gf.zeros((0, 2**62)) * 3,
        lambda: gf.zeros((2**63, 0)),
        lambda: gf.broadcast_to(gf.zeros((0, 1)), (0, 2**62)),
    ],
    ids=["zeros", "a long dim", "broadcast_to"],
)
def test_empty_arrays_that_numpy_has_not(make, monkeypatch):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" finds no inputs to evaluate it on
    with pytest.raises(gf.MemoryLimitError, match="not even empty ones"):
        make().numpy()
    with gf.Graph() as g:
        y = gf.identity(make())
    for options in ({}, {"debug": True}):
        with pytest.raises(gf.MemoryLimitError, match="not even empty ones"):
            gf.Session(g, **options).run(y)
