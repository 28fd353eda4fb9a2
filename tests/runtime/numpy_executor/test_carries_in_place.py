"""Carries are written over what they were, where nothing reads that any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import as_dtype
from tests.runtime.numpy_executor.special_runs import same

SIZE = 37
"""More than would be lanes of their own."""


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, bodies_have_steps: None) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def session_of(function: Callable[..., Any], *arrays: Any) -> tuple[gf.Graph, Any, list[Any]]:
    with gf.Graph() as g:
        feeds = [gf.placeholder(a.shape, a.dtype.name) for a in arrays]
        return g, function(*feeds), feeds


def checked(function: Callable[..., Any], *arrays: Any) -> Any:
    """Compare a function with what its ops' `eval` computes; return the plan."""
    g, made, feeds = session_of(function, *arrays)
    plan = gf.Session(g).compile(made, feeds)
    given = [a.copy() for a in arrays]
    fed = dict(zip(feeds, arrays, strict=True))
    wanted = gf.Session(g, debug=True).run(made, fed)
    for _ in range(2):
        for got, right in zip(leaves(plan(*arrays)), leaves(wanted), strict=True):
            assert got.dtype == right.dtype
            np.testing.assert_allclose(got, right, rtol=1e-5)  # sums may be in another order
    for array, before in zip(arrays, given, strict=True):
        same(array, before)  # what a loop begins with is nobody's to change
    return plan


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for one in value:
            yield from leaves(one)
    else:
        yield np.asarray(value)


def in_place(plan: Any) -> list[frozenset[int]]:
    """Return for the bodies of a plan's loops which carries are in place."""
    found = []
    for region in plan._run.build.regions.values():
        found += [body.in_place for body in region.bodies]
    return found


def filled(x: Any, y: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return y.at[i + 2].set(y[i + 1] / 2 - y[i] / 4 + x[i])

    return gf.fori_loop(0, x.shape[0], body, y)


def test_elements_are_set_where_they_are():
    x, y = np.arange(5, dtype=np.float32), np.zeros(9, np.float32)
    assert in_place(checked(filled, x, y)) == [{0}]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64"])
@pytest.mark.parametrize("put", ["set", "add", "slice"])
def test_all_dtypes(put, dtype):
    def changed(i: Any, y: Any) -> Any:
        if put == "slice":
            return y.at[2:4].set(gf.where(i > 2, y[:1], y[1:2]))
        return (y.at[i % 3].set if put == "set" else y.at[i % 3].add)(y[i % 5])

    y = (np.arange(SIZE) % 5).astype(dtype)
    if put == "add" and dtype == "bool":
        return
    assert in_place(checked(lambda y: gf.fori_loop(0, 6, changed, y), y))[0] == {0}


def test_a_reader_of_the_old_array_comes_first():
    def body(i: Any, carry: Any) -> Any:
        y, total = carry
        return y.at[i].set(-1.0), total + gf.sum(y)  # the sum waits for nothing but the old y

    def function(y: Any) -> Any:
        return gf.fori_loop(0, SIZE, body, (y, gf.zeros(())))

    assert 0 in in_place(checked(function, np.ones(SIZE, np.float32)))[0]


def test_what_needs_old_and_new_at_once_is_not_in_place():
    def body(i: Any, carry: Any) -> Any:
        y, total = carry
        new = gf.cumulative_sum(y).at[i].set(2.0)
        return new, total + gf.sum(gf.flip(new) * y)

    def function(y: Any) -> Any:
        return gf.fori_loop(0, SIZE, body, (y, gf.zeros(())))

    assert 0 not in in_place(checked(function, np.ones(SIZE, np.float32)))[0]


def test_two_that_change_by_one_another():
    """Each would have to wait for the other: one of them is written elsewhere."""

    def body(i: Any, carry: Any) -> Any:
        a, b = carry
        return a.at[i].set(b[SIZE - 1 - i]), b.at[i].add(gf.flip(a)[i] + 1)

    def function(a: Any, b: Any) -> Any:
        return gf.fori_loop(0, SIZE, body, (a, b))

    a, b = np.arange(2 * SIZE, dtype=np.float32).reshape(2, SIZE)
    checked(function, a, b)

    def exchanged(i: Any, carry: Any) -> Any:
        a, b = carry
        return b.at[i].set(0.0), a.at[i].set(1.0)

    plan = checked(lambda a, b: gf.fori_loop(0, SIZE, exchanged, (a, b)), a, b)
    assert in_place(plan) == [frozenset()]


def test_several_changes_in_a_row():
    def body(i: Any, y: Any) -> Any:
        for offset in range(3):
            y = y.at[(i + offset) % SIZE].add(y[(i + 2 * offset) % SIZE])
        return y.at[1:3].set(y[i % SIZE])

    plan = checked(lambda y: gf.fori_loop(0, 9, body, y), np.arange(SIZE, dtype=np.float64))
    assert in_place(plan) == [{0}]


def test_a_carry_that_is_stacked_is_kept():
    def step(y: Any, i: Any) -> Any:
        new = y.at[i].set(gf.sum(y))
        return new, (y, new)

    def function(y: Any) -> Any:
        return gf.scan(step, y, gf.arange(SIZE))

    checked(function, np.ones(SIZE, np.float32))


def test_while_and_nested_loops_of_any_number_of_trips():
    def inner(state: Any) -> Any:
        i, y = state
        return i + 1, y.at[i].set(y[SIZE - 1 - i] + 1.0)

    def outer(count: Any, y: Any) -> Any:
        _, y = gf.while_loop(lambda s: s[0] < count, inner, (gf.asarray(0), y))
        return gf.fori_loop(0, 3, lambda i, y: y.at[count].add(y[i]), y.at[count].set(0.5))

    def function(y: Any, iterations: Any) -> Any:
        _, first = gf.while_loop(lambda s: s[0] < iterations, inner, (gf.asarray(0), y))
        return first, gf.fori_loop(0, 4, outer, y)

    for iterations in (0, 1, 2, 5):
        checked(function, np.arange(SIZE, dtype=np.float32), np.asarray(iterations))


def test_gradients_keep_what_they_read():
    def loss(x: Any, y: Any) -> Any:
        return gf.sum(filled(x, y) ** 2)

    def function(x: Any, y: Any) -> Any:
        return [loss(x, y), *gf.grad(loss(x, y), [x, y])]

    x, y = np.arange(5, dtype=np.float64), np.ones(9)
    checked(function, x, y)


def test_an_error_half_way_leaves_variables_as_they_were():
    def set_all(y: Any, indices: Any) -> Any:
        return gf.fori_loop(0, indices.shape[0], lambda i, y: y.at[indices[i]].set(5.0), y)

    with gf.Graph() as g:
        indices = gf.placeholder((3,), gf.int64)
        v = gf.Variable(np.zeros(SIZE, np.float32), name="v")
        update = gf.update(v, set_all(v, indices))
    session = gf.Session(g)
    for wrong in ([0, 1, SIZE], [0, -SIZE - 1, 2]):
        with pytest.raises(gf.ExecutionError, match="out of range"):
            session.run(update, {indices: np.array(wrong)})
        assert not session[v].any()
    session.run(update, {indices: np.array([0, 2, -1])})
    assert [*np.flatnonzero(session[v] == 5)] == [0, 2, SIZE - 1]


CHANGES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "set": lambda i, x, y: x.at[i % SIZE].set(y[(i + 1) % SIZE]),
    "add many": lambda i, x, y: x.at[(i + gf.arange(4)) % 3].add(y[:4]),
    "slice": lambda i, x, y: x.at[1:-2].set(y[2:-1]),
    "steps": lambda i, x, y: x.at[::3].set(y[i % SIZE]),
    "scale": lambda i, x, y: x * 0.5 + y,
    "flip": lambda i, x, y: gf.flip(x) + y,
    "running": lambda i, x, y: gf.cumulative_sum(x) * 0.25,
    "shift": lambda i, x, y: gf.roll(x, 1) - y,
    "sum": lambda i, x, y: x.at[i % SIZE].set(gf.sum(y)),
    "same": lambda i, x, y: x,
    "other": lambda i, x, y: y,
    "copies": lambda i, x, y: gf.concat([y[:3], x[3:]]),
}


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("seed", range(40))
def test_any_changes_of_several_carries(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 4))
    names = list(CHANGES)
    drawn = [
        (str(rng.choice(names)), int(rng.integers(count)), int(rng.integers(count)))
        for _ in range(int(rng.integers(1, 7)))
    ]
    asks = bool(rng.integers(2))
    stacks = bool(rng.integers(2))

    def body(i: Any, carry: Any) -> Any:
        old, new = list(carry), list(carry)
        for name, target, source in drawn:
            pool = old if rng_of[(name, target, source)] else new
            new[target] = CHANGES[name](i, new[target], pool[source])
        return tuple(new)

    rng_of = {key: bool(rng.integers(2)) for key in drawn}

    def function(*carry: Any) -> Any:
        if asks:
            return gf.while_loop(
                lambda s: s[0] < 6,
                lambda s: (s[0] + 1, *body(s[0], s[1:])),
                (gf.asarray(0), *carry),
            )

        def step(carry: Any, i: Any) -> Any:
            new = body(i, carry)
            return new, (new[0], gf.sum(carry[-1])) if stacks else None

        return gf.scan(step, tuple(carry), gf.arange(6))[: 2 if stacks else 1]

    checked(function, *rng.integers(-3, 4, (count, SIZE)).astype(np.float64))


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(50_000,), (40_000, 3), (3, 20_000), (300, 70)])
def test_large_arrays_of_which_little_changes(shape, dtype):
    """In place one work item does it; in the first iteration it copies all of the array, too."""

    def body(i: Any, y: Any) -> Any:
        last = shape[-1]
        y = y.at[i % shape[0]].add(y[(i + 1) % shape[0]])
        y = y.at[..., i % last].set(y[..., (i + 2) % last])
        return y.at[[1, 2, 1]].add(y[i % shape[0]])

    y = (np.arange(np.prod(shape)).reshape(shape) % 7).astype(as_dtype(dtype).dtype)
    plan = checked(lambda y: gf.fori_loop(0, 5, body, y), y)
    assert in_place(plan) == [{0}]
