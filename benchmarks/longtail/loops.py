"""Loops whose bodies have linear algebra, complex numbers, or updates of what they carry."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import ALL, contest, each, largest, name_of, normal
from benchmarks.workload import Contest

Step = Callable[[Any, Any], Any]


def _scan(xp: Any, step: Step, init: Any, xs: Any) -> Any:
    """Return the last carry and the stacked results, as a library's users loop over rows."""
    if name_of(xp) == "graphfw":
        return xp.scan(step, init, xs)
    if name_of(xp) == "jax":
        import jax

        return jax.lax.scan(step, init, xs)
    carry, ys = init, []
    for x in xs:
        carry, y = step(carry, x)
        ys.append(y)
    return carry, None if ys[0] is None else xp.stack(ys)


def _repeat(xp: Any, iterations: int, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """Return what a body of (number, carry) makes of a carry in so many trips."""
    if name_of(xp) == "graphfw":
        return xp.fori_loop(0, iterations, body, init)
    if name_of(xp) == "jax":
        import jax

        return jax.lax.fori_loop(0, iterations, body, init)
    for number in range(iterations):
        init = body(number, init)
    return init


# A Kalman filter: the states that measurements tell.  seen: [steps, m], state: [n]


def _kalman_inputs(steps: int, n: int, m: int, dtype: str) -> Arrays:
    rng = np.random.default_rng(0)
    moved = np.eye(n) + 0.05 * np.triu(np.ones((n, n)), 1)
    arrays = [rng.standard_normal((steps, m)), moved, rng.standard_normal((m, n)) / n**0.5]
    arrays += [0.01 * np.eye(n), 0.5 * np.eye(m), np.zeros(n), np.eye(n)]
    return [a.astype(dtype) for a in arrays]


def _kalman(
    xp: Any, seen: Any, moved: Any, shown: Any, drift: Any, noise: Any, state: Any, spread: Any
) -> Any:
    def step(carry: Any, measured: Any) -> Any:
        state, spread = carry
        state, spread = moved @ state, moved @ spread @ moved.T + drift
        gain = spread @ shown.T @ xp.linalg.inv(shown @ spread @ shown.T + noise)
        state = state + gain @ (measured - shown @ state)
        return (state, spread - gain @ shown @ spread), state

    return _scan(xp, step, (state, spread), seen)[1]


def kalman_filter(draw: Draw) -> Contest:
    steps, n, m = draw.size(100, 1000, least=8), draw.size(4, 12, least=2), draw.size(2, 4)
    dtype = draw.choice("float32", "float64")
    formula = Formula(functools.partial(_kalman_inputs, steps, n, m, dtype), **each(_kalman))
    title = f"a Kalman filter of {steps} steps, {n} states, {m} measurements, {dtype}"
    return contest(title, formula, dtype=dtype, rtol=1e-3, atol=1e-3)


# Modified Gram-Schmidt: the columns of a matrix made orthonormal, one after the other.  a: [n, k]


def _orthonormal_in_place(xp: Any, a: Any) -> Any:
    a = xp.asarray(a) + 0.0
    for i in range(a.shape[1]):
        a[:, i] /= (a[:, i] @ a[:, i]) ** 0.5
        a[:, i + 1 :] -= a[:, i, None] * (a[:, i] @ a[:, i + 1 :])
    return a


def _orthonormal(xp: Any, a: Any) -> Any:
    indices = xp.arange(a.shape[1])

    def body(i: Any, a: Any) -> Any:
        column = a[:, i]
        column = column / xp.sqrt(xp.sum(column * column))
        a = a - column[:, None] * xp.where(indices > i, column @ a, 0.0)
        return a.at[:, i].set(column)

    return _repeat(xp, a.shape[1], body, a)


def gram_schmidt(draw: Draw) -> Contest:
    n, k = draw.size(128, 1024), draw.size(16, 128)
    functions = each(_orthonormal, ("graphfw", "jax"))
    functions |= each(_orthonormal_in_place, ("numpy", "torch"))
    formula = Formula(functools.partial(normal, (n + k, k)), **functions)
    title = f"{k} vectors of {n + k} made orthonormal one after the other"
    return contest(title, formula, rtol=1e-2, atol=1e-3)


# A recurrence that fills an array: y[i] = a y[i - 1] + b y[i - 2] + x[i].  x: [trips], y: [n]


def _filled(xp: Any, x: Any, y: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return y.at[i + 2].set(0.5 * y[i + 1] - 0.25 * y[i] + x[i])

    return _repeat(xp, x.shape[0], body, y)


def _filled_in_place(xp: Any, x: Any, y: Any) -> Any:
    y = xp.asarray(y) + 0.0
    for i in range(x.shape[0]):
        y[i + 2] = 0.5 * y[i + 1] - 0.25 * y[i] + x[i]
    return y


def _filled_numba() -> Any:
    import numba

    @numba.njit
    def filled(x: Array, y: Array) -> Array:
        y = y.copy()
        for i in range(len(x)):
            y[i + 2] = 0.5 * y[i + 1] - 0.25 * y[i] + x[i]
        return y

    return filled


def _to_fill(iterations: int, n: int) -> Arrays:
    return [*normal((iterations,)), np.zeros(n, np.float32)]


def fill_array(draw: Draw) -> Contest:
    iterations, n = draw.size(500, 5000), draw.size(10_000, 1_000_000)
    functions = each(_filled, ("graphfw", "jax"))
    functions |= each(_filled_in_place, ("numpy", "torch"))
    inputs = functools.partial(_to_fill, iterations, max(n, iterations + 2))
    formula = Formula(inputs, **functions, numba=_filled_numba)
    return contest(f"{iterations} elements of {n:,} set one by one in a loop", formula)


# A linear recurrence of complex numbers, as in state spaces.  x: [steps, batch, width]


def _complex_inputs(steps: int, batch: int, width: int) -> Arrays:
    rng = np.random.default_rng(0)
    decay = 0.98 * np.exp(1j * rng.uniform(0, np.pi, width))
    return [*normal((steps, batch, width)), decay.astype(np.complex64)]


def _complex_states(xp: Any, x: Any, decay: Any) -> Any:
    def step(state: Any, given: Any) -> Any:
        state = decay * state + given
        return state, xp.real(state)

    return _scan(xp, step, xp.zeros(x.shape[1:], dtype=decay.dtype), x)[1]


def complex_states(draw: Draw) -> Contest:
    steps, batch, width = draw.size(200, 1000, least=8), draw.size(1, 16), draw.size(64, 1024)
    inputs = functools.partial(_complex_inputs, steps, batch, width)
    formula = Formula(inputs, **each(_complex_states))
    title = f"{steps} steps of complex states, batch {batch}, width {width}"
    return contest(title, formula, rtol=1e-3, atol=1e-4)


# The longest common subsequence of two texts, row by row.  a: [n], b: [m], of 4 letters


def _texts(n: int, m: int) -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 4, size).astype(np.int32) for size in (n, m)]


def _largest_so_far(xp: Any, x: Any) -> Any:
    name = name_of(xp)
    if name == "numpy":
        return np.maximum.accumulate(x)
    if name == "torch":
        return xp.cummax(x, 0).values
    if name == "jax":
        import jax

        return jax.lax.cummax(x)
    return xp.cumulative_max(x)


def _common(xp: Any, a: Any, b: Any) -> Any:
    def step(row: Any, letter: Any) -> Any:
        found = xp.where(b == letter, row[:-1] + 1, row[1:])
        found = _largest_so_far(xp, xp.maximum(found, row[1:]))
        return xp.concat([row[:1], found]), None

    return _scan(xp, step, xp.zeros(b.shape[0] + 1, dtype=b.dtype), a)[0][-1]


def _common_numba() -> Any:
    import numba

    @numba.njit
    def common(a: Array, b: Array) -> Any:
        row = np.zeros(len(b) + 1, np.int32)
        for letter in a:
            diagonal = row[0]
            for j in range(len(b)):
                above = row[j + 1]
                found = diagonal + 1 if b[j] == letter else max(above, row[j])
                diagonal, row[j + 1] = above, found
        return np.asarray(row[-1])

    return common


def common_subsequence(draw: Draw) -> Contest:
    n, m = draw.size(200, 2000), draw.size(200, 4000)
    formula = Formula(functools.partial(_texts, n, m), **each(_common), numba=_common_numba)
    return contest(f"the longest common subsequence of texts of {n} and {m} letters", formula)


# Viterbi's algorithm: the best path's score in a hidden Markov model.  seen: [steps, states]


def _viterbi(xp: Any, seen: Any, moves: Any) -> Any:
    def step(score: Any, given: Any) -> Any:
        reached = score[:, None] + moves
        last = xp.argmax(reached, axis=0)
        return largest(xp, reached, 0) + given, last

    score, last = _scan(xp, step, seen[0], seen)
    return [score, last]


def viterbi(draw: Draw) -> Contest:
    steps, states = draw.size(100, 1000, least=8), draw.size(8, 128)
    inputs = functools.partial(normal, (steps, states), (states, states))
    formula = Formula(inputs, **each(_viterbi))
    title = f"Viterbi's algorithm, {steps} steps, {states} states"
    return contest(title, formula, rtol=1e-3, atol=1e-3)


# Heat that spreads over a plate, whose rim is cold.  x: [n, m]


def _spread(x: Any) -> Any:
    return x[1:-1, 1:-1] + 0.2 * (
        x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]
    )


def _heat(xp: Any, x: Any, *, steps: int) -> Any:
    return _repeat(xp, steps, lambda _, x: x.at[1:-1, 1:-1].set(_spread(x)), x)


def _heat_in_place(xp: Any, x: Any, *, steps: int) -> Any:
    x = xp.asarray(x) + 0.0
    for _ in range(steps):
        x[1:-1, 1:-1] = _spread(x)
    return x


def _heat_numba(steps: int) -> Any:
    import numba

    @numba.njit
    def spread(x: Array) -> Array:
        y = x.copy()
        for i in range(1, x.shape[0] - 1):
            for j in range(1, x.shape[1] - 1):
                around = x[i + 1, j] + x[i - 1, j] + x[i, j + 1] + x[i, j - 1]
                y[i, j] = x[i, j] + np.float32(0.2) * (around - 4 * x[i, j])
        return y

    def heated(x: Array) -> Array:
        for _ in range(steps):
            x = spread(x)
        return x

    return heated


def heat(draw: Draw) -> Contest:
    n, m, steps = draw.size(64, 512, least=4), draw.size(64, 512, least=4), draw.size(50, 200)
    functions = each(_heat, ("graphfw", "jax"), steps=steps)
    functions |= each(_heat_in_place, ("numpy", "torch"), steps=steps)
    numba = functools.partial(_heat_numba, steps)
    formula = Formula(functools.partial(normal, (n, m)), **functions, numba=numba)
    return contest(f"{steps} steps of heat on {n}×{m} places", formula)


# Conjugate gradients.  a: [n, n], b: [n]


def _system(n: int) -> Arrays:
    x, b = normal((n, n), (n,))
    return [(x @ x.T / n + np.eye(n)).astype(np.float32), b]


def _conjugate(xp: Any, a: Any, b: Any, *, steps: int) -> Any:
    def body(_: Any, carry: Any) -> Any:
        x, rest, way, square = carry
        pushed = a @ way
        length = square / (way @ pushed)
        x, rest = x + length * way, rest - length * pushed
        now = rest @ rest
        return x, rest, rest + (now / square) * way, now

    return _repeat(xp, steps, body, (xp.zeros_like(b), b, b, b @ b))[0]


def conjugate_gradients(draw: Draw) -> Contest:
    n, steps = draw.size(64, 1024), draw.size(10, 40)
    formula = Formula(functools.partial(_system, n), **each(_conjugate, ALL, steps=steps))
    title = f"{steps} steps of conjugate gradients, {n}×{n}"
    return contest(title, formula, rtol=1e-2, atol=1e-3)


# How often each number occurs, counted in a loop.  x: [n], counts: [k]


def _to_count(n: int, k: int) -> Arrays:
    return [np.random.default_rng(0).integers(0, k, n), np.zeros(k, np.int32)]


def _counted(xp: Any, x: Any, counts: Any) -> Any:
    return _repeat(xp, x.shape[0], lambda i, counts: counts.at[x[i]].add(1), counts)


def _counted_in_place(xp: Any, x: Any, counts: Any) -> Any:
    counts = xp.asarray(counts) + 0
    for number in x:
        counts[number] += 1
    return counts


def _counted_numba() -> Any:
    import numba

    @numba.njit
    def counted(x: Array, counts: Array) -> Array:
        counts = counts.copy()
        for number in x:
            counts[number] += 1
        return counts

    return counted


def count_in_loop(draw: Draw) -> Contest:
    n, k = draw.size(500, 20_000), draw.size(10, 10_000)
    functions = each(_counted, ("graphfw", "jax"))
    functions |= each(_counted_in_place, ("numpy", "torch"))
    formula = Formula(functools.partial(_to_count, n, k), **functions, numba=_counted_numba)
    return contest(f"{n:,} numbers below {k:,} counted one by one in a loop", formula)


# The cheapest way down or right through a grid, cell by cell.  costs: [n, m]


def _cheapest(xp: Any, costs: Any, table: Any) -> Any:
    n, m = costs.shape

    def cell(i: Any, j: Any, table: Any) -> Any:
        before = xp.minimum(table[i, j + 1], table[i + 1, j])
        return table.at[i + 1, j + 1].set(costs[i, j] + before)

    def row(i: Any, table: Any) -> Any:
        return _repeat(xp, m, lambda j, table: cell(i, j, table), table)

    return _repeat(xp, n, row, table)


def _cheapest_in_place(xp: Any, costs: Any, table: Any) -> Any:
    table = xp.asarray(table) + 0.0
    for i in range(costs.shape[0]):
        for j in range(costs.shape[1]):
            before = min(table[i, j + 1], table[i + 1, j])
            table[i + 1, j + 1] = costs[i, j] + before
    return table


def _cheapest_numba() -> Any:
    import numba

    @numba.njit
    def cheapest(costs: Array, table: Array) -> Array:
        table = table.copy()
        for i in range(costs.shape[0]):
            for j in range(costs.shape[1]):
                before = min(table[i, j + 1], table[i + 1, j])
                table[i + 1, j + 1] = costs[i, j] + before
        return table

    return cheapest


def _grid(n: int, m: int) -> Arrays:
    table = np.full((n + 1, m + 1), 1e9, np.float32)
    table[0, 1] = 0
    return [np.random.default_rng(0).random((n, m), np.float32), table]


def cheapest_path(draw: Draw) -> Contest:
    n, m = draw.size(16, 200), draw.size(16, 200)
    functions = each(_cheapest, ("graphfw", "jax"))
    functions |= each(_cheapest_in_place, ("numpy", "torch"))
    formula = Formula(functools.partial(_grid, n, m), **functions, numba=_cheapest_numba)
    return contest(f"the cheapest way through {n}×{m} cells, one by one in loops", formula)


# A walk through a table until its end, as finite automata make.  table: [n]


def _until(xp: Any, holds: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """Return the carry of a body when a condition is false."""
    if name_of(xp) == "graphfw":
        return xp.while_loop(holds, body, init)
    if name_of(xp) == "jax":
        import jax

        return jax.lax.while_loop(holds, body, init)
    while holds(init):
        init = body(init)
    return init


def _walked(xp: Any, table: Any, *, steps: int) -> Any:
    first = (table[0] * 0, table[0])
    return _until(xp, lambda c: c[0] < steps, lambda c: (c[0] + 1, table[c[1]]), first)[1]


def table_walk(draw: Draw) -> Contest:
    n, steps = draw.size(16, 10_000), draw.size(200, 10_000)
    inputs = functools.partial(_table, n)
    formula = Formula(inputs, **each(_walked, steps=steps))
    return contest(
        f"a walk of {steps:,} steps through a table of {n:,}, until a condition", formula
    )


def _table(n: int) -> Arrays:
    return [np.random.default_rng(0).integers(0, n, n).astype(np.int32)]


# A recurrent network of few units.  x: [steps, batch, width], state: [batch, width]


def _units(steps: int, batch: int, width: int) -> Arrays:
    x, state, weights = normal((steps, batch, width), (batch, width), (width, width))
    return [x, state, weights / np.float32(2 * width**0.5)]  # larger ones multiply rounding errors


def _recurrence(xp: Any, x: Any, state: Any, weights: Any) -> Any:
    def step(state: Any, given: Any) -> Any:
        state = xp.tanh(state @ weights + given)
        return state, state

    return _scan(xp, step, state, x)[1]


def small_recurrence(draw: Draw) -> Contest:
    steps, batch, width = draw.size(100, 1000, least=4), draw.size(1, 64), draw.size(2, 16)
    formula = Formula(functools.partial(_units, steps, batch, width), **each(_recurrence))
    title = f"{steps} steps of a recurrent network, {batch} rows of {width} units"
    return contest(title, formula, rtol=1e-2, atol=1e-3)


FAMILIES = {
    kalman_filter: 1,
    gram_schmidt: 1,
    fill_array: 1,
    complex_states: 1,
    common_subsequence: 1,
    viterbi: 1,
    heat: 1,
    conjugate_gradients: 1,
    count_in_loop: 1,
    cheapest_path: 1,
    table_walk: 1,
    small_recurrence: 1,
}
"""Each with how many workloads a run draws from it."""
