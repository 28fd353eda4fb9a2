"""Arrays known to have no elements, beside dims that are not known: nothing is computed."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf

FUNCTIONS = {
    "a + b": lambda a, b: a + b,
    "a[:, :0] * 2": lambda a, b: a[:, :0] * 2,
    "a.at[:, :0].add(b)": lambda a, b: a.at[:, :0].add(b[:, :0]),
    "sin(b) as complex": lambda a, b: gf.astype(gf.sin(b), "complex64") * 2,
    "sum over rows": lambda a, b: gf.sum(b * 2, axis=1),
    "sum over columns": lambda a, b: gf.sum(b * 2, axis=0),
    "any": lambda a, b: gf.any(b > 0, axis=1),
    "softmax": lambda a, b: gf.softmax(b + 1, axis=1),
    "concat": lambda a, b: gf.concat([b, a, b * 2], axis=1),
    "roll": lambda a, b: gf.roll(b, 1, axis=1) + b,
    "flip": lambda a, b: gf.flip(b, axis=1) * a,
    "transpose": lambda a, b: gf.permute_dims(b, (1, 0)) + 1,
    "product": lambda a, b: b @ gf.zeros((0, 3)),
    "split": lambda a, b: gf.split(a + 1, [0], axis=1)[0] * 2,
}


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_empty(name, rows, monkeypatch):
    arrays = np.ones((rows, 1), np.float32), np.ones((rows, 0), np.float32)
    with gf.Graph() as g:
        a, b = gf.placeholder(("n", 1)), gf.placeholder(("n", 0))
        y = FUNCTIONS[name](a, b)
    found = []
    for jit in ("1", "0"):
        monkeypatch.setenv("GRAPHFW_JIT", jit)
        with gf.Session(g) as session:
            found.append(session.compile(y, [a, b])(*arrays))
    np.testing.assert_array_equal(*found)
    assert found[0].dtype == found[1].dtype
