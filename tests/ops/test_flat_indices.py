"""Places in flattened tensors, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf


@pytest.mark.parametrize("shape", [(3, 4, 5), (7,), (2, 1, 6)])
def test_they_are_numpys(shape, rng):
    indices = rng.integers(0, np.prod(shape), (2, 3))
    found = gf.unravel_index(indices, shape)
    for ours, theirs in zip(found, np.unravel_index(indices, shape), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs, strict=True)
    back = gf.ravel_multi_index(found, shape)
    np.testing.assert_array_equal(back.numpy(), indices, strict=True)
    assert gf.unravel_index(np.uint8(5), 7)[0].item() == 5


def test_symbolic_sizes_and_indices_out_of_range():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        i = gf.placeholder((), "int32", name="i")
        best = gf.unravel_index(gf.argmax(x), x.shape)
        made = [gf.ravel_multi_index((i, 0), x.shape), gf.unravel_index(i, x.shape)[0]]
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    with gf.Session(g) as session:
        assert [int(v) for v in session.run(best, {x: array})] == [1, 2]
        for y, wrong in ((made[0], 2), (made[0], -1), (made[1], 6), (made[1], -1)):
            with pytest.raises(gf.ExecutionError, match=f"an index is {wrong}, and the size"):
                session.run(y, {x: array, i: wrong})


def test_errors():
    with pytest.raises(gf.ShapeError, match="ravel_multi_index: 1 index for 2 dims"):
        gf.ravel_multi_index(([1],), (2, 3))
    with pytest.raises(gf.DTypeError, match="unravel_index: indices must be integers, not float32"):
        gf.unravel_index(1.0, (2, 3))
