"""Native code writes nothing beside its outputs, whatever is computed together."""

import math

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor import buffer_pool

ROOM = 256
"""Bytes before and behind each output, more than a block of vectors."""

KINDS = {
    "bools": lambda x: [gf.sum(x, axis=0), gf.any(x > 0, axis=0)],
    "many bools": lambda x: [gf.max(x, axis=0), gf.any(x > 0, axis=0), gf.min(x, axis=0)],
    "of NaN": lambda x: [gf.mean(x, axis=0), gf.any(gf.isnan(x), axis=0)],
    "bools first": lambda x: [gf.all(x > 0, axis=0), gf.sum(x, axis=0)],
    "narrow": lambda x: [gf.sum(x, axis=0), gf.max(gf.astype(x, "int8"), axis=0)],
    "elementwise": lambda x: [x * 2, x > 0, gf.astype(x, "uint8"), gf.astype(x, "float32")],
    "rows": lambda x: [gf.sum(x, axis=1), gf.any(x > 0, axis=1), gf.softmax(x, axis=1) > 0.5],
}


@pytest.fixture
def guarded(monkeypatch):
    """Have outputs lie between bytes that are known; returns what says that these are as before."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    made = []

    def maker(pool_of_outputs, shape, nbytes):
        def make():
            memory = np.full(nbytes + 2 * ROOM, 0xA5, np.uint8)
            made.append((memory, nbytes))
            return memory[ROOM : ROOM + nbytes].view(pool_of_outputs.dtype).reshape(shape)

        return make

    monkeypatch.setattr(buffer_pool.OutputPool, "maker", maker)

    def check():
        assert made
        for memory, nbytes in made:
            beside = np.delete(memory, slice(ROOM, ROOM + nbytes))
            assert (beside == 0xA5).all()
        made.clear()

    return check


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(3, 11), ("m", "n")], ids=["known", "symbolic"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int16"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_beside_outputs(kind, dtype, shape, guarded, rng):
    """AVX-512 compared eight bytes as sixteen, and stores of bytes wrote all of them."""
    if kind == "rows" and not dtype.startswith("float"):
        pytest.skip("softmax takes floats")
    with gf.Graph() as g:
        x = gf.placeholder(shape, dtype, name="x")
        outputs = KINDS[kind](x)
    with gf.Session(g) as session:
        for m, n in [(3, 11)] if shape == (3, 11) else [(3, 11), (1, 1), (2, 8), (5, 37), (9, 130)]:
            fed = rng.integers(-2, 3, (m, n)).astype(dtype)
            found = session.run(outputs, {x: fed})
            assert math.prod(found[0].shape) > 0
            guarded()
