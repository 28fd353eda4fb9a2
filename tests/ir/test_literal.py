"""`Literal`: arrays that compare by content, and those that are computed of others."""

import math

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import DTypeError
from graphfw.ir.arrays import number
from graphfw.ir.dtype import as_dtype, bool_, complex64, float32, int8, int32
from graphfw.ir.literal import Literal, Scaling

SIZES = (0, 1, 7, 1000, 32_767, 32_768, 40_961, 100_003)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_equal_contents_have_equal_digests(rng, size, dtype):
    array = rng.integers(-100, 100, size).astype(as_dtype(dtype).dtype)
    one, other = Literal(array), Literal(array.copy())
    assert one.digest == other.digest
    assert one == other
    assert hash(one) == hash(other)
    assert one.digest != Literal(array.reshape(1, -1)).digest


@pytest.mark.parametrize("size", SIZES[1:])
def test_each_element_counts(rng, size):
    array = rng.standard_normal(size, np.float32)
    whole = Literal(array)
    indices = {0, size - 1, *rng.integers(0, size, 20).tolist()}
    found = {whole.digest}
    for index in indices:
        changed = array.copy()
        changed[index] = np.nextafter(changed[index], np.float32(9))
        found.add(Literal(changed).digest)
        assert whole != Literal(changed)
    assert len(found) == len(indices) + 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signs_count(rng, dtype):
    """Signs of two numbers count as well: the highest bits of words meet each other often."""
    array = rng.standard_normal(1 << 17).astype(dtype)
    found = {Literal(array).digest, Literal(-array).digest}
    for distance in 1 << np.arange(17):
        changed = array.copy()
        first = int(rng.integers(0, len(array) - distance)) | 1
        changed[[first, min(first + distance, len(array) - 1)]] *= -1
        found.add(Literal(changed).digest)
    assert len(found) == 19


def test_order_counts_and_layout_does_not(rng):
    array = rng.standard_normal((300, 250), np.float32)
    transposed = Literal(np.asfortranarray(array))
    assert Literal(array) == transposed
    assert hash(Literal(array)) == hash(transposed)
    assert Literal(array).digest != Literal(array[::-1]).digest
    swapped = array.copy()
    swapped[[3, 200]] = array[[200, 3]]
    assert Literal(array).digest != Literal(swapped).digest


def test_the_array_is_the_graphs_own(rng):
    array = rng.standard_normal(5)
    view = array[:]
    view.flags.writeable = False
    literals = Literal(array), Literal(view)
    array[2] = 7
    assert all(literal.array[2] != 7 for literal in literals)
    for literal in literals:
        with pytest.raises(ValueError, match="read-only"):
            literal.array[0] = 1
    own = rng.standard_normal(5)
    assert Literal.taken(own).array is own
    assert not own.flags.writeable


@pytest.mark.parametrize(("shape", "axis"), [((5, 3, 2, 2), 0), ((4, 6), 1), ((0, 3), 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaled(rng, shape, axis, dtype):
    source, factor = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape[axis])
    scaling = Scaling(Literal(source), factor, axis)
    wide = factor.reshape(-1, *[1] * (len(shape) - 1 - axis)) * source
    made = Literal.of(scaling)
    assert (made.dtype, made.shape) == (dtype, shape)
    assert made.nbytes_to_compute == source.nbytes
    memory = np.empty(source.nbytes, np.uint8)
    lent = made.lent(memory)
    assert np.shares_memory(lent, memory) or not memory.size
    np.testing.assert_allclose(lent, wide, rtol=2 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(made.array, lent)
    assert made.array.dtype == dtype
    assert not made.array.flags.writeable
    assert made.nbytes_to_compute == 0
    assert made == Literal(lent.copy())
    assert scaling.is_finite()


def test_factors_that_the_dtype_does_not_hold(rng):
    source = (rng.standard_normal((3, 4)) * 1e38).astype(np.float32)
    scaling = Scaling(Literal(source), np.array([1e-41, 0.0, 1e-60]), 0)
    expected = (source * scaling.factor[:, None]).astype(np.float32)
    np.testing.assert_array_equal(scaling.array(), expected)
    tiny = Scaling(Literal((source * 1e-38).astype(np.float32)), np.full(1, 1e40), 0)
    assert np.isinf(tiny.array()).any()
    assert not tiny.is_finite()


@pytest.mark.parametrize("index", [0, 70_000, -1])
def test_one_number_that_is_not_finite_is_seen(rng, index):
    source = rng.standard_normal((7, 20_001), np.float32)
    assert Scaling(Literal(source.copy()), np.ones(7), 0).is_finite()
    source.reshape(-1)[index] = np.inf
    assert not Scaling(Literal(source), np.ones(7), 0).is_finite()
    assert not Scaling(Literal(source), np.ones(20_001), 1).is_finite()


def test_equal_scalars_of_other_kinds_keep_their_bits():
    """Literals of Python's numbers are kept, and 0.0 == -0.0 == False == 0."""
    values = (0, False, 0.0, -0.0, np.float64(0.0), np.float64(-0.0), 1, True, 1.0, math.inf)
    for value in (*values, -math.inf, math.nan, -math.nan):
        array = number(value, float32).value.array
        assert array.tobytes() == np.array(value, np.float32).tobytes()
        assert array.dtype == np.float32
    for dtype in (int32, bool_):
        for value in (0, False, 1, True):
            assert number(value, dtype).value.dtype == dtype.dtype
            assert number(value, dtype).value.array == value
    assert number(1 - 2j, complex64).value.array == 1 - 2j
    with pytest.raises(DTypeError, match="does not fit"):
        number(300, int8)


def test_a_scalar_without_a_dtype_has_the_default_dtype_of_the_moment():
    assert number(2.5, None).value.dtype == np.float32
    with gf.default_dtype(gf.float64):
        assert number(2.5, None).value.dtype == np.float64
