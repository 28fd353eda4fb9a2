"""The stand-in for CuPy refuses what CuPy refuses, and gives what NumPy gives otherwise."""

import numpy as np
import pytest

from tests.strict_xp import StrictArray, plain_array, strict, strict_array


@pytest.fixture
def x(rng: np.random.Generator) -> StrictArray:
    return strict_array(rng.normal(size=(3, 4)))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: strict.sum(x, axis=1, keepdims=True),
        lambda x: x.sum(),
        lambda x: x[0, 0],
        lambda x: x @ x.T,
        lambda x: 2 * x + strict.asarray(np.arange(4.0)),
        lambda x: strict.where(x > 0, x, 0),
        lambda x: strict.linalg.inv(x[:3, :3]),
        lambda x: strict.concatenate([x, x], axis=1),
        lambda x: strict.add.reduce(x),
        lambda x: x.astype(strict.float32),
    ],
)
def test_results_stay_on_the_device(x: StrictArray, call):
    result = call(x)
    assert type(result) is StrictArray
    assert plain_array(result).size


def test_values(x: StrictArray):
    plain = plain_array(x)
    np.testing.assert_array_equal(plain_array(x + x), plain + plain)
    np.testing.assert_array_equal(plain_array(strict.sort(x, axis=0)), np.sort(plain, axis=0))
    assert float(x[1, 2]) == plain[1, 2]
    quotient, rest = strict.divmod(x, 0.25)
    np.testing.assert_array_equal(plain_array(quotient), plain // 0.25)
    np.testing.assert_array_equal(plain_array(rest), plain % 0.25)


def test_writes_go_through(x: StrictArray):
    before = plain_array(x).copy()
    strict.add.at(x, (strict.asarray([0, 0]), strict.asarray([1, 1])), 1.0)
    x[2] = 0
    x *= 2
    assert type(x) is StrictArray
    before[0, 1] += 2
    before[2] = 0
    np.testing.assert_array_equal(plain_array(x), 2 * before)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: np.sum(x), "np.sum is called on a GPU array"),
        (lambda x: np.add.reduce(x), "np.add.reduce is called on a GPU array"),
        (lambda x: x + np.ones(4), "a NumPy array meets a GPU array"),
        (lambda x: strict.add(x, np.ones(4)), "a NumPy array meets a GPU array"),
        (lambda x: strict.sum(x, where=x > 0), "cupy.sum has no keyword where"),
        (lambda x: x.max(initial=0.0), "cupy.max has no keyword initial"),
        (lambda x: strict.add(x, x, where=x > 0), "cupy.add has no keyword where"),
        (lambda x: strict.vecdot(x, x), "cupy has no vecdot"),
        (lambda x: strict.errstate(all="ignore"), "cupy has no errstate"),
        (lambda x: strict.linalg.vector_norm(x), "cupy has no vector_norm"),
        (lambda x: strict.maximum.reduce(x), "cupy.maximum has no reduce"),
        (lambda x: strict.multiply.at(x, 0, 1.0), "cupy.multiply has no at"),
        (lambda x: x.setflags(write=False), "a CuPy array has no setflags"),
        (lambda x: plain_array(np.zeros(3)), "ndarray is no GPU array"),
    ],
)
def test_refuses_what_cupy_refuses(x: StrictArray, call, match: str):
    with pytest.raises((AssertionError, AttributeError), match=match):
        call(x)


@pytest.mark.gpu
def test_names_are_those_of_cupy():
    import cupy

    missing = [name for name in vars(strict) if not hasattr(cupy, name)]
    missing += [name for name in vars(strict.linalg) if not hasattr(cupy.linalg, name)]
    assert not missing
