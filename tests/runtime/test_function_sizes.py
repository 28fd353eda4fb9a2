"""Builds of functions for the sizes of short products, which compile to faster code."""

import numpy as np
import pytest

import graphfw as gf


def counted(fn):
    """Return a function, and the list of its arguments' shapes at each call of the Python one."""
    calls = []

    def call(*args):
        calls.append([tuple(a.shape) for a in args])
        return fn(*args)

    return gf.function(call), calls


def test_a_build_serves_the_sizes_of_short_products(rng):
    product, calls = counted(lambda x, y: x @ y)

    def check(*shapes):
        a, b = (rng.standard_normal(shape) for shape in shapes)
        np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-10, atol=1e-12)
        return str(calls[-1])

    assert check((7, 3, 3), (7, 3, 3)).count("3") == 4  # the batch has any size
    assert len(calls) == 2
    check((9, 3, 3), (9, 3, 3))
    assert len(calls) == 2
    assert check((9, 4, 4), (9, 4, 4)).count("4") == 4
    assert len(calls) == 4
    check((9, 40, 40), (9, 40, 40))
    check((9, 41, 41), (9, 41, 41))
    assert len(calls) == 5
    check((7, 3, 3), (7, 3, 3))
    assert len(calls) == 5


def test_the_size_of_a_batch_is_not_one_of_them():
    slope, calls = counted(lambda x, y: gf.matmul(x.mT, y))
    for batch in (4, 5, 6):
        x, y = np.ones((batch, 40)), np.ones((batch, 7))
        np.testing.assert_array_equal(slope(x, y), np.full((40, 7), batch))
    assert len(calls) == 1


def test_a_body_has_products_too(rng):
    def chained(x, ms):
        return gf.scan(lambda c, m: (c @ m, None), x, ms)[0]

    chain, calls = counted(chained)
    x, ms = rng.standard_normal((5, 3)), rng.standard_normal((4, 3, 3))
    np.testing.assert_allclose(chain(x, ms), x @ ms[0] @ ms[1] @ ms[2] @ ms[3], rtol=1e-9)
    assert calls[-1][1][1:] == (3, 3)


@pytest.mark.slow
def test_after_many_builds_one_serves_all_further_sizes(rng):
    product, calls = counted(lambda x, y: x @ y)
    for columns in range(2, 8):
        for terms in range(2, 9):
            a, b = rng.standard_normal((9, 20, terms)), rng.standard_normal((9, terms, columns))
            np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-9, atol=1e-12)
    assert len(calls) < 2 * 16 + 5  # two for each build that knows sizes, of 42
