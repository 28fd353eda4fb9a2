"""Symbolic sizes: normal form, bounds, evaluation, printing."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import graphfw as gf
from graphfw.errors import ConcreteValueError
from graphfw.ir.dim import (
    Dim,
    DimLike,
    always_ge,
    always_le,
    dim_max,
    dim_min,
    divisible,
    exact_div,
    is_symbol,
    lower_bound,
    substitute,
    symbol,
    symbols_of,
    upper_bound,
)
from graphfw.ir.dim_text import evaluate, parse_dim

NAMES = ("batch", "k", "n")
batch, k, n, m = symbol("batch"), symbol("k"), symbol("n"), symbol("m")

# A tree is an int, a name, or (op, left, right). "/c" and "%c" divide by max(right, 0) + 1.
OPS = ("+", "-", "*", "//", "%", "max", "min")
LEAVES = st.integers(-9, 9) | st.sampled_from(NAMES)
TREES = st.recursive(LEAVES, lambda sub: st.tuples(st.sampled_from(OPS), sub, sub), max_leaves=9)
ENVS = st.fixed_dictionaries({name: st.integers(0, 13) for name in NAMES})
POSITIVE_ENVS = st.fixed_dictionaries({name: st.integers(1, 13) for name in NAMES})


def build(tree: Any) -> DimLike:
    """The tree in symbolic arithmetic."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return symbol(tree)
    op, left, right = tree[0], build(tree[1]), build(tree[2])
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // (dim_max(right, 0) + 1)
        case "%":
            return left % (dim_max(right, 0) + 1)
        case "max":
            return dim_max(left, right)
    return dim_min(left, right)


def plain(tree: Any, env: Mapping[str, int]) -> int:
    """The tree in plain Python arithmetic."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    op, left, right = tree[0], plain(tree[1], env), plain(tree[2], env)
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // (max(right, 0) + 1)
        case "%":
            return left % (max(right, 0) + 1)
        case "max":
            return max(left, right)
    return min(left, right)


@given(TREES, ENVS)
def test_normal_form_keeps_the_value(tree: Any, env: dict[str, int]) -> None:
    d = build(tree)
    expected = plain(tree, env)
    assert evaluate(d, env) == expected
    assert substitute(d, env) == expected
    low, high = lower_bound(d), upper_bound(d)
    assert low is None or low <= expected
    assert high is None or expected <= high


@given(TREES)
@example(("//", 1, ("%", ("//", 1, "batch"), ("-", "batch", ("%", -2, "batch")))))
def test_text_round_trip(tree: Any) -> None:
    d = build(tree)
    again = parse_dim(str(d))
    assert again == d
    assert hash(again) == hash(d)
    assert str(again) == str(d)
    assert substitute(d, {}) == d


@given(TREES, ENVS)
def test_text_is_python(tree: Any, env: dict[str, int]) -> None:
    assert eval(str(build(tree)), {}, dict(env)) == plain(tree, env)


@given(LEAVES, LEAVES, TREES, POSITIVE_ENVS)
def test_symbolic_divisors(first: Any, second: Any, tree: Any, env: dict[str, int]) -> None:
    divisor = build(first) * build(second)
    value = evaluate(divisor, env)
    if value == 0:
        with pytest.raises(ZeroDivisionError):
            build(tree) // divisor
        return
    d, top = build(tree), plain(tree, env)
    assert evaluate(d // divisor, env) == top // value
    assert evaluate(d % divisor, env) == top % value
    assert parse_dim(str(d // divisor)) == d // divisor
    assert parse_dim(str(d % divisor)) == d % divisor
    quotient = exact_div(d, divisor)
    assert quotient is None or evaluate(quotient, env) * value == top
    assert divisible(d, divisor) in (None, top % value == 0)
    assert exact_div(d * divisor, divisor) == d


@given(TREES, TREES, ENVS)
def test_proved_order_holds(left: Any, right: Any, env: dict[str, int]) -> None:
    a, b = build(left), build(right)
    if always_le(a, b):
        assert plain(left, env) <= plain(right, env)
    if always_ge(a, b):
        assert plain(left, env) >= plain(right, env)
    if a == b:
        assert plain(left, env) == plain(right, env)


@given(TREES, TREES, TREES)
def test_sums_and_products_commute(x: Any, y: Any, z: Any) -> None:
    a, b, c = build(x), build(y), build(z)
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) * c == c * b + c * a
    assert str(a + b) == str(b + a)
    assert dim_max(a, b) == dim_max(b, a)
    assert dim_min(a, b) == dim_min(b, a)
    assert (a + b) // 3 == (b + a) // 3


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("(n + 2*3 - 7)//2 + 1", "(n - 1)//2 + 1"),
        ("(7*n + 6)//7", "n"),
        ("(n//2)//3", "n//6"),
        ("(n//2 + 1)//3", "(n + 2)//6"),
        ("(n//m)//k", "n//(k*m)"),
        ("(2*n + 1)//4", "n//2"),
        ("n//(-2)", "(-n)//2"),
        ("(8*n)//n", "8"),
        ("(n*m + 1)//m", "n + 1//m"),
        ("(batch*n)//(2*batch)", "n//2"),
        ("(n + m)//(m + n)", "1"),
        ("(n*m + n)//(m + 1)", "n"),
        ("n % 1", "0"),
        ("(n + 4) % 4", "n % 4"),
        ("(n % 3)//3", "0"),
        ("(n % 3) % 3", "n % 3"),
        ("(3*n + 2) % 3", "2"),
        ("max(n, 0)", "n"),
        ("max(n, n + 2)", "n + 2"),
        ("min(n, n + 2)", "n"),
        ("max(max(n, 5), m)", "max(n, m, 5)"),
        ("max(max(n, 5) + 1, m)", "max(m, n + 1, 6)"),
        ("max(n - 1, 0) + 1", "max(n, 1)"),
        ("min(n, 5) + 2", "min(n + 2, 7)"),
        ("max(min(n, 5), 5)", "5"),
        ("max(n, min(n, 5))", "n"),
        ("max(n//2, n)", "n"),
        ("n - n", "0"),
    ],
)
def test_equal_normal_forms(left: str, right: str) -> None:
    assert parse_dim(left) == parse_dim(right)


@pytest.mark.parametrize(
    "text",
    [
        "n",
        "8*batch",
        "-n",
        "n*n",
        "batch*n + batch + n + 1",
        "(n + 1)//2",
        "2*((n + 1)//2)",
        "-(n//2)",
        "n % 2",
        "n % m",
        "(m + n) % 3",
        "m - n//2",
        "max(n - 1, 0)",
        "max(n, 1)",
        "min(n, 5)",
        "min(n, 5)//2",
        "max(m, n, 5)",
        "7//n",
        "(-7)//n",
        "n//(m + 1)",
    ],
)
def test_text(text: str) -> None:
    assert str(parse_dim(text)) == repr(parse_dim(text)) == text


def test_unequal() -> None:
    assert n != m
    assert n + 1 != n
    assert n != 5
    assert 5 != n
    assert n != "n"
    assert len({n, symbol("n"), n + 0, m, 2 * n}) == 3


def test_constants_collapse_to_int() -> None:
    for d in (n - n + 4, 0 * n + 4, (4 * n) // n, dim_max(3, 4), dim_min(n, 4) * 0 + 4):
        assert type(d) is int
        assert d == 4


def test_reflected_and_index_operands() -> None:
    assert np.int64(3) + n == n + np.int64(3) == n + 3
    assert 3 - n == -(n - 3)
    assert 7 // n == parse_dim("7//n")
    assert 7 % n == parse_dim("7 % n")
    assert 3 * n == n * 3
    with pytest.raises(TypeError, match="unsupported operand"):
        n + 1.5  # type: ignore[operator]  # the mistake


def test_other_types_get_their_reflected_operator() -> None:
    class Other:
        def answer(self, left: object) -> str:
            return "other"

        __radd__ = __rsub__ = __rmul__ = __rfloordiv__ = __rmod__ = __gt__ = __eq__ = answer  # type: ignore[assignment]  # for all

    other: Any = Other()
    results = [n + other, n - other, n * other, n // other, n % other, n < other, n == other]
    assert results == ["other"] * 7


def test_exact_div() -> None:
    assert exact_div(12 * batch, 3 * batch) == 4
    assert exact_div(batch * n * 8, 2 * n) == 4 * batch
    assert exact_div(batch * n + batch, n + 1) == batch
    assert exact_div(n * n - m * m, n - m) == n + m
    assert exact_div(0, n) == 0
    assert exact_div(12, 5) is None
    assert exact_div(n, 2) is None
    assert exact_div(n, m) is None
    assert exact_div(n + 1, n) is None
    assert exact_div(n, 0) is None


def test_divisible() -> None:
    assert divisible(12, 4) is True
    assert divisible(12, 5) is False
    assert divisible(6 * n, 3) is True
    assert divisible(6 * n + 1, 3) is False
    assert divisible(4 * n + 2, 8) is False
    assert divisible(n, 2) is None
    assert divisible(n, m) is None
    assert divisible(n, 0) is False


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("n", 0, None),
        ("-n", None, 0),
        ("3*n + 2", 2, None),
        ("n - m", None, None),
        ("n % 3", 0, 2),
        ("n % m", 0, None),
        ("n - n//2", 0, None),
        ("batch*n - 2*batch*(n//2)", 0, None),
        ("min(n, 5)", 0, 5),
        ("min(n, 5)*min(m, 2)", 0, 10),
        ("max(n, 5) - n", 0, 5),
        ("n - min(n, m)", 0, None),
        ("n//(m + 1) - n", None, None),
        ("(min(n, 9) - 20)//4", -5, -3),
        ("7", 7, 7),
    ],
)
def test_bounds(text: str, low: int | None, high: int | None) -> None:
    d = parse_dim(text)
    assert (lower_bound(d), upper_bound(d)) == (low, high)


def test_bound_search_is_bounded() -> None:
    # Many composite atoms in one polynomial: a search through all orders would never end.
    d = parse_dim("(k % min(batch, 7) - batch % 9)*(n % batch + batch)*(k//3 + max(n, k) % 5)")
    low, high = lower_bound(d), upper_bound(d)
    value = evaluate(d, {"k": 5, "batch": 4, "n": 7})
    assert value == (5 % 4 - 4 % 9) * (7 % 4 + 4) * (5 // 3 + max(7, 5) % 5)
    assert low is None or low <= value
    assert high is None or high >= value


def test_order_proofs() -> None:
    assert always_le(n, n)
    assert always_le(n // 2, n)
    assert always_ge(n + 1, 1)
    assert always_ge(dim_max(n, m), n)
    assert always_le(dim_min(n, m), m)
    assert not always_le(n, 5)
    assert not always_ge(n, 5)


def test_order_truth_and_int_are_refused() -> None:
    for compare in (lambda: n < 5, lambda: n <= 5, lambda: n > m, lambda: 5 >= n):
        with pytest.raises(ConcreteValueError, match="not known until the graph runs") as caught:
            compare()
        assert isinstance(caught.value, TypeError)
        assert "gf.dim_size(x, axis) is a tensor, to compare" in caught.value.fix
    with pytest.raises(TypeError, match=r"cannot decide `n \+ 1 < 5`: the size is"):
        n + 1 < 5  # noqa: B015  comparing is the mistake
    with pytest.raises(TypeError, match="cannot use the size `n` as a truth value"):
        bool(n)
    with pytest.raises(TypeError, match=r"cannot turn the size `2\*n` into an int"):
        int(2 * n)
    with pytest.raises(ConcreteValueError, match="cannot use the size `n` as an int") as caught:
        range(n)  # type: ignore[arg-type]  # the mistake
    assert "loop with gf.scan or gf.fori_loop" in caught.value.fix
    assert "test_dim.py" in str(caught.value)


def test_refused_sizes_say_where_they_come_from() -> None:
    with gf.Graph():
        x = gf.placeholder(("n", 3), name="x")
        y = gf.placeholder((None,), name="y")
        with pytest.raises(ConcreteValueError) as caught:
            _ = x.shape[0] > 4
        assert caught.value.why.startswith('`n` is dim 0 of "x", test_dim.py:')
        with pytest.raises(ConcreteValueError) as caught:
            _ = x.shape[0] < y.shape[0] * 2
        assert '; `n` is dim 0 of "x"' in caught.value.why
        assert '`y.shape[0]` is dim 0 of "y"' in caught.value.why
        with pytest.raises(ConcreteValueError, match='`n` is dim 0 of "x"'):
            gf.scan(lambda c, row: (c, range(x.shape[0])), 0.0, x)
    with pytest.raises(ConcreteValueError) as caught:
        bool(x.shape[0])  # no graph is open
    assert caught.value.why == ""


def test_division_by_zero() -> None:
    for divide in (lambda: n // 0, lambda: n % 0, lambda: n // (m - m), lambda: (n + 1) % (n * 0)):
        with pytest.raises(ZeroDivisionError, match="by 0"):
            divide()
    d = n // m + 1
    message = r"the size `n//m \+ 1` divides by 0 where "
    with pytest.raises(ZeroDivisionError, match=message):
        evaluate(d, {"n": 3, "m": 0})
    assert evaluate((8 * n) // n, {"n": 0}) == 8


def test_evaluate_missing_symbol() -> None:
    with pytest.raises(KeyError, match="m"):
        evaluate(n + m, {"n": 1})


def test_substitute() -> None:
    assert substitute(n // 2 + m, {"n": 2 * k}) == k + m
    assert substitute(n + 2 * m, {"n": m, "m": n}) == m + 2 * n
    assert substitute(dim_max(n, m), {"m": n}) == n
    assert substitute(5, {"n": 3}) == 5
    with pytest.raises(ZeroDivisionError):
        substitute(n // m, {"m": 0})
    with pytest.raises(TypeError, match="a size is an int or a Dim, not str"):
        substitute(n, {"n": "m"})  # type: ignore[dict-item]  # the mistake


def test_symbols() -> None:
    assert symbols_of(7) == frozenset()
    assert symbols_of(n * m + (batch + 1) // k) == {"n", "m", "batch", "k"}
    assert is_symbol(n) == "n"
    assert type(is_symbol(n)) is str
    assert [is_symbol(d) for d in (2 * n, n + 1, n * n, n // 2, 5, dim_max(n, 5))] == [None] * 6


@pytest.mark.parametrize("name", ["", "2n", "a b", "for", "None", "n//2", "ﬁ"])
def test_symbol_names(name: str) -> None:
    with pytest.raises(ValueError, match="needs a Python identifier"):
        symbol(name)


@pytest.mark.parametrize(
    "text",
    [
        "", "n +", "n/2", "n**2", "1.5", "True", "None", "'n'", "f(n)", "max(n)", "max(n, m=1)",
        "max(*n, 2)", "n.real", "n[0]", "n if n else 1", "+n", "~n", "n//0", "n % 0", "n < 2",
        "lambda: 1", "(n, m)", "x := 2", "\0", "-" * 100000 + "n",
    ],
)  # fmt: skip
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read the size"):
        parse_dim(text)


def test_parse_spaces() -> None:
    assert parse_dim(" 2*n ") == 2 * n


def test_copies() -> None:
    d = (n + 1) // 2 * m
    assert isinstance(d, Dim)
    for again in (pickle.loads(pickle.dumps(d)), copy.copy(d), copy.deepcopy(d)):
        assert again == d
        assert hash(again) == hash(d)


def test_a_size_is_no_index() -> None:
    for use in (range, lambda d: [1, 2][d], lambda d: np.zeros((d, 2)), operator.index):
        with pytest.raises(TypeError, match="cannot use the size `n` as an int: the size is not"):
            use(n)
