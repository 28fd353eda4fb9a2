"""SizeTexts of many terms, and their texts: the time and the room that they take."""

from __future__ import annotations

import cProfile
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfw.ir import dim as dim_module
from graphfw.ir.dim import (
    DimLike,
    dim_max,
    dim_min,
    dim_sum,
    exact_div,
    substitute,
    symbol,
)
from graphfw.ir.dim_text import SizeTexts, evaluate, evaluator, parse_dim, written
from graphfw.ir.syntax import types_of
from tests.ir.test_dim import ENVS, NAMES, TREES, build

k, n = symbol("k"), symbol("n")


def test_long_polynomials_take_time_in_proportion_to_their_terms():
    """Products, divisions and texts: calls are counted, for some symbols and for twice as many."""
    calls = []
    for n in (20, 40):  # four times as many terms of the square
        names = [f"s{i}" for i in range(n)]
        with cProfile.Profile() as counted:
            total = dim_sum([symbol(name) for name in names])
            square = total * total
            assert exact_div(square, 1) == square
            assert exact_div(square, total) == total
            assert parse_dim(str(square)) == square
            assert substitute(square, {"s0": symbol("t")}) != square
        calls.append(sum(entry.callcount for entry in counted.getstats()))
    assert calls[1] < 6 * calls[0]


@pytest.mark.slow
def test_the_text_of_a_sum_of_thousands_is_read_and_evaluated():
    names = [f"s{i}" for i in range(100)]
    total = dim_sum([symbol(name) for name in names]) - 7
    square = total * total - 3 * symbol("s1") // symbol("s0")
    assert parse_dim(str(square)) == square
    assert parse_dim(str(-square)) == -square
    values = list(range(1, 101))
    (found,) = evaluator(written([square], names))(*values)
    assert found == (sum(values) - 7) ** 2 - 3 * 2
    assert parse_dim(" + ".join(f"2*s{i}*s{i}" for i in range(700))) == dim_sum(
        [2 * symbol(f"s{i}") * symbol(f"s{i}") for i in range(700)]
    )


def doubled(times: int) -> DimLike:
    """A size whose text, written out, doubles each time."""
    size: DimLike = symbol("t0")
    for _ in range(times):
        size = size + dim_min(size, 1)
    return size


@pytest.mark.slow
def test_a_subexpression_that_recurs_is_written_once():
    size = doubled(30)
    text = str(size)
    assert len(text) < 30_000
    assert "(t1 := min(" in text, "t0 is a symbol"
    assert parse_dim(text) == size
    assert str(pickle.loads(pickle.dumps(size))) == text
    assert doubled(29) != size
    assert evaluate(size, {"t0": 5}) == substitute(size, {"t0": 5}) == 35
    assert substitute(substitute(size, {"t0": n}), {"n": symbol("t0")}) == size
    (found,) = evaluator(written([size], ["t0"]))(5)
    assert found == 35
    kinds = f"(float32[{size}, 4], int64[{size}])"
    assert f"({', '.join(map(str, types_of(kinds)))})" == kinds


@pytest.mark.parametrize(
    "text",
    [
        "(a := n*n, b := a*a, b*b)[-1]",
        "(a := 2, a)[-1]",
        "(a := max(n, 1))[-1]",
        "(max(n, 1), n)[-1]",
        "(a := max(n, 1), a)[0]",
        "(a := max(n, 1)) + a",
    ],
)
def test_names_stand_for_atoms_alone_and_are_defined_first(text: str):
    with pytest.raises(ValueError, match="is not allowed"):
        parse_dim(text)
    assert parse_dim("(a := max(n, 1), b := a//2, a*b)[-1]") == dim_max(n, 1) * (dim_max(n, 1) // 2)


@pytest.mark.slow
@given(st.lists(TREES, max_size=6), ENVS)
def test_texts_that_share_subexpressions_keep_the_values(
    trees: list[Any], env: dict[str, int]
) -> None:
    dims = [build(tree) for tree in trees]
    dims += [64 * (-d // 64) for d in dims] + [dim_max(d, n) for d in dims]
    sizes = written(dims, NAMES)
    sizes.check()
    assert evaluator(sizes)(*[env[name] for name in NAMES]) == tuple(
        [evaluate(d, env) for d in dims]
    )


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(-3, 3), min_size=24, max_size=24), min_size=1, max_size=6))
def test_texts_of_long_sums_keep_the_values(rows: list[list[int]]) -> None:
    names = [f"a{i}" for i in range(24)]
    symbols = [symbol(name) for name in names]
    dims: list[DimLike] = []
    for row in rows:
        total = dim_sum([coef * one for coef, one in zip(row, symbols, strict=True)])
        dims += [total, total + symbols[0], 4 * total, 4 * total + 3, dim_max(total, 0) // 8]
    sizes = written(dims, names)
    sizes.check()
    env = {name: (7 * i) % 11 for i, name in enumerate(names)}
    assert evaluator(sizes)(*env.values()) == tuple([evaluate(d, env) for d in dims])


def test_symbols_may_have_the_names_that_texts_use():
    names = ["t0", "max", "t1"]
    first, second, third = map(symbol, names)
    dims = [dim_max(first - second, third), (first + third) // 2]
    assert evaluator(written(dims, names))(7, 2, 4) == (5, 5)


@pytest.mark.parametrize("text", ["t1", "t0 + 1", "x", "n = 1", "n\nn", "__import__('os')", "n.n"])
def test_texts_that_say_no_size_are_refused(text: str):
    SizeTexts(("n",), ("n", "2*t0", "max(t0, t1)"), (2, 0)).check()
    with pytest.raises(ValueError, match="is no size"):
        SizeTexts(("n",), (text, "n"), (0,)).check()
    with pytest.raises(ValueError, match="are no symbols"):
        SizeTexts(("t0",), ("t0",), (0,)).check()


@pytest.mark.slow
def test_texts_of_nested_and_of_long_sizes_take_room_in_proportion():
    count = 300
    symbols = [symbol(f"a{i}") for i in range(count)]
    sums = [dim_sum(symbols[: i + 1]) for i in range(count)]
    nested: list[DimLike] = [n]
    for _ in range(count):
        nested.append(dim_max(nested[-1] - k, 0))
    dims = [d for one in (*sums, *nested) for d in (one, 4 * one, 64 * (one // 64))]
    names = [*map(str, symbols), "k", "n"]
    sizes = written(dims, names)
    assert sum(map(len, sizes.texts)) < 60 * count * 6
    found = evaluator(sizes)(*range(count), 2, 500)
    assert found[:3] == (0, 0, 0)
    assert found[3 * count - 3 : 3 * count] == (44850, 179400, 44800)
    assert found[-3:] == (0, 0, 0)
    assert found[3 * count + 3 : 3 * count + 6] == (498, 1992, 448)


@pytest.mark.slow
def test_sizes_that_are_nested_deeply_are_compared():
    def nested() -> DimLike:
        made: DimLike = n
        for i in range(600):
            made = dim_max(made - k, i % 3) + (i % 2)
        return made

    first = nested()
    for known in (dim_module._extreme, dim_module._low, dim_module._quotient):
        known.cache_clear()  # so that no part of the second one is of the first
    second = nested()
    assert first == second
    assert {first} == {second}
    assert first * second == second * first
