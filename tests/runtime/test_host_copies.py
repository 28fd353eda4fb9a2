"""Copies of what users assign and load: C-contiguous, and in memory of their own."""

import ml_dtypes
import numpy as np
import pytest

from graphfw.runtime.numpy_executor.contiguous import contiguous_copy


@pytest.mark.parametrize("shape", [(512, 512), (513, 640), (1700, 1025), (2, 900_000), (0, 5)])
@pytest.mark.parametrize("dtype", [np.complex64, np.float32, ml_dtypes.bfloat16, np.bool_])
def test_a_transposed_matrix(rng, shape, dtype):
    array = rng.standard_normal(shape[::-1]).astype(dtype).T
    copy = contiguous_copy(array)
    assert copy.flags.c_contiguous
    assert copy.flags.owndata
    np.testing.assert_array_equal(copy, array)


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[::2].T,
        lambda a: a.T[::-1],
        lambda a: a[:, 1:].T,
        lambda a: np.broadcast_to(a[0], (600, 600)).T,
        lambda a: a.reshape(6, 100, 600).T,
        lambda a: a.reshape(6, 100, 600).transpose(1, 2, 0),
        lambda a: a.view(np.float32).T[1:],
        lambda a: np.frombuffer(bytes(1) + a.tobytes(), np.float64, offset=1).reshape(a.shape).T,
        lambda a: a.astype(">f8").T,
        lambda a: a[0],
        lambda a: a[0, 0],
    ],
)
def test_other_layouts(rng, make):
    array = make(rng.standard_normal((600, 600)))
    copy = contiguous_copy(np.asarray(array))
    assert copy.flags.c_contiguous
    np.testing.assert_array_equal(copy, array)
    assert not np.shares_memory(copy, array)
