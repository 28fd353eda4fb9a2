"""Triangular masks, seen without running anything."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import constant
from graphfw.ops.nn.triangular_masks import is_triangle

TRUE_BELOW, FALSE_BELOW = (True, False), (False, True)


def ordered(rows, columns):
    return gf.expand_dims(gf.arange(rows), axis=1), gf.arange(columns)


@pytest.mark.parametrize("sizes", [(5, 7), (7, 5), (4, 4), (1, 6), ("n", "m"), ("n", "n")])
def test_comparisons(sizes):
    with gf.Graph():
        x = gf.placeholder(sizes, name="x")
        row, column = ordered(*x.shape)
        seen = {
            TRUE_BELOW: [row >= column, column <= row, row + 1 > column, column < row + 1],
            FALSE_BELOW: [row < column, column > row, row + 1 <= column, column >= row + 1],
        }
        seen[FALSE_BELOW] += [~mask for mask in seen[TRUE_BELOW]]
        for expected, masks in seen.items():
            for mask in masks:
                assert is_triangle(mask, x.shape, *expected)
                assert not is_triangle(mask, x.shape, *expected[::-1])
                assert is_triangle(gf.expand_dims(mask, axis=0), x.shape, *expected) is False
        for mask in (row > column, row >= column + 1, row + 1 >= column, row == column, x > 0):
            assert not is_triangle(mask, x.shape, True, False)
        assert not is_triangle(column >= row, x.shape[::-1], True, False) or x.shape[0] == 1


def test_what_is_made_of_them():
    ones = gf.ones((5, 7))
    inf = float("inf")
    for made, expected in (
        (gf.tril(ones), (1, 0)),
        (gf.tril(ones) == 0, (0, 1)),
        (gf.tril(ones).astype(gf.bool), (1, 0)),
        (gf.triu(ones, k=1) * 3 - 1, (-1, 2)),
        (gf.triu(gf.full((5, 7), -inf), k=1), (0, -inf)),
        (gf.log(gf.tril(ones)), (0, -inf)),
        ((1 - gf.tril(ones)) * -1e9, (0, -1e9)),
        (constant(np.tri(5, 7)[None, None]), (1, 0)),
        (gf.where(constant(np.tri(5, 7, dtype=bool)), 0.0, -inf), (0, -inf)),
    ):
        assert is_triangle(made, (5, 7), *expected)
        assert not is_triangle(made, (5, 7), expected[1], expected[0])
        assert not is_triangle(made, (7, 5), *expected)


def test_what_is_none():
    for other in (
        np.tri(5, 7, 1),
        np.tri(5, 7, -1),
        np.ones((5, 7)),
        np.arange(35.0).reshape(5, 7),
        np.zeros((2, 5, 7)) + np.tri(5, 7),
    ):
        assert not is_triangle(constant(other), (5, 7), 1, 0)
    assert not is_triangle(constant(np.zeros((0, 7))), (0, 7), 1, 0)
    # A comparison of floats counted in steps, and of what starts elsewhere.
    row, column = ordered(5, 7)
    assert not is_triangle(row >= 2 * column, (5, 7), True, False)
    assert not is_triangle(row >= gf.arange(1, 8), (5, 7), True, False)
    assert is_triangle(row >= gf.arange(1, 8) - 1, (5, 7), True, False) is False
    assert is_triangle(row + 1 >= gf.arange(1, 8), (5, 7), True, False)


def test_random_draws_are_no_numbers():
    with gf.Graph():
        mask = gf.where(gf.random.bernoulli(0.5, (5, 7)), constant(np.tri(5, 7)), 0.0)
        assert not is_triangle(mask, (5, 7), 1, 0)
