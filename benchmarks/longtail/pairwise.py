"""All pairs: forces of bodies, distances, kernels, the nearest."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula, by_path
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import contest, each, name_of, normal
from benchmarks.workload import Contest

# Bodies that attract each other, some steps.  places, speeds: [n, 3], masses: [n]

_SOFT, _STEP = 1e-2, 1e-3


def _bodies(n: int, dtype: str) -> Arrays:
    positions, speeds = normal((n, 3), (n, 3), dtype=dtype)
    masses = np.random.default_rng(1).uniform(0.5, 1.5, n).astype(dtype)
    return [positions, speeds, masses / n]


def _attracted(xp: Any, positions: Any, speeds: Any, masses: Any, *, steps: int) -> Any:
    for _ in range(steps):
        apart = positions[None, :, :] - positions[:, None, :]
        squares = xp.sum(apart * apart, axis=-1) + _SOFT
        pulls = masses[None, :] / (squares * xp.sqrt(squares))
        speeds = speeds + _STEP * xp.sum(apart * pulls[..., None], axis=1)
        positions = positions + _STEP * speeds
    return [positions, speeds]


def _attracted_numba(steps: int) -> Any:
    import numba

    @numba.njit(parallel=True, fastmath=True)
    def step(positions: Array, speeds: Array, masses: Array) -> None:
        for i in numba.prange(len(positions)):
            x, y, z = positions[i, 0], positions[i, 1], positions[i, 2]
            a, b, c = x * 0, x * 0, x * 0
            for j in range(len(positions)):
                p, q, r = positions[j, 0] - x, positions[j, 1] - y, positions[j, 2] - z
                square = p * p + q * q + r * r + _SOFT
                pull = masses[j] / (square * np.sqrt(square))
                a, b, c = a + p * pull, b + q * pull, c + r * pull
            speeds[i, 0] += _STEP * a
            speeds[i, 1] += _STEP * b
            speeds[i, 2] += _STEP * c

    def attracted(positions: Array, speeds: Array, masses: Array) -> Arrays:
        positions, speeds = positions.copy(), speeds.copy()
        for _ in range(steps):
            step(positions, speeds, masses)
            positions += positions.dtype.type(_STEP) * speeds
        return [positions, speeds]

    return attracted


def n_body(draw: Draw) -> Contest:
    n, steps = draw.size(100, 2000), draw.size(1, 5)
    dtype = draw.choice("float64", "float64", "float32")
    formula = Formula(
        functools.partial(_bodies, n, dtype),
        **each(_attracted, steps=steps),
        numba=functools.partial(_attracted_numba, steps),
    )
    title = f"{steps} steps of {n} bodies that attract each other, {dtype}"
    return contest(title, formula, dtype=dtype, compiled=True, rtol=1e-3, atol=1e-4)


# Distances.  x: [n, d], y: [m, d]


def _two_sets(draw: Draw) -> tuple[tuple[int, int], tuple[int, int]]:
    d = draw.choice(2, 3, 8, 32, 128)
    return (draw.size(200, 3000), d), (draw.size(200, 3000), d)


def _text(shapes: tuple[tuple[int, int], ...]) -> str:
    return f"{shapes[0][0]} and {shapes[1][0]} points in {shapes[0][1]} dims"


def _distances(xp: Any, x: Any, y: Any) -> Any:
    if name_of(xp) == "torch":
        return xp.cdist(x, y)
    squares = xp.sum(x * x, axis=1)[:, None] + xp.sum(y * y, axis=1)[None, :]
    return xp.sqrt(xp.maximum(squares - 2 * (x @ y.T), _zero(xp)))


def _zero(xp: Any) -> Any:
    return xp.zeros(()) if name_of(xp) == "torch" else 0.0


def distances(draw: Draw) -> Contest:
    shapes = _two_sets(draw)
    formula = Formula(functools.partial(normal, *shapes), **each(_distances))
    return contest(f"distances of {_text(shapes)}", formula, rtol=1e-2, atol=1e-3)


def _absolute(xp: Any, x: Any, y: Any) -> Any:
    if name_of(xp) == "torch":
        return xp.cdist(x, y, p=1.0)
    return xp.sum(xp.abs(x[:, None, :] - y[None, :, :]), axis=-1)


def _absolute_numba() -> Any:
    import numba

    @numba.njit(parallel=True, fastmath=True)
    def absolute(x: Array, y: Array) -> Array:
        out = np.empty((len(x), len(y)), x.dtype)
        for i in numba.prange(len(x)):
            for j in range(len(y)):
                total = x[0, 0] * 0
                for d in range(x.shape[1]):
                    total += abs(x[i, d] - y[j, d])
                out[i, j] = total
        return out

    return absolute


def city_distances(draw: Draw) -> Contest:
    shapes = _two_sets(draw)
    functions = each(_absolute)
    functions["numpy"] = by_path("scipy.spatial.distance:cdist", "cityblock")
    formula = Formula(functools.partial(normal, *shapes), **functions, numba=_absolute_numba)
    title = f"sums of absolute differences of {_text(shapes)}"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


# A kernel's matrix times a vector, which needs no matrix.  weights: [m]


def _kernel_sums(xp: Any, x: Any, y: Any, weights: Any) -> Any:
    squares = xp.sum(x * x, axis=1)[:, None] + xp.sum(y * y, axis=1)[None, :] - 2 * (x @ y.T)
    return xp.exp(squares * (-0.5 / x.shape[1])) @ weights


def _weighted(shapes: tuple[tuple[int, int], ...]) -> Arrays:
    return normal(*shapes, shapes[1][:1])


def kernel_sums(draw: Draw) -> Contest:
    shapes = _two_sets(draw)
    formula = Formula(functools.partial(_weighted, shapes), **each(_kernel_sums))
    title = f"a Gaussian kernel's sums, {_text(shapes)}"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-3)


def _nearest(xp: Any, x: Any, y: Any) -> Any:
    products = x @ y.T
    return xp.argmin(xp.sum(y * y, axis=1)[None, :] - 2 * products, axis=1)


def nearest(draw: Draw) -> Contest:
    shapes = _two_sets(draw)
    formula = Formula(functools.partial(normal, *shapes), **each(_nearest))
    return contest(f"the nearest of others, {_text(shapes)}", formula, compiled=True)


# Distances on the globe.  a, b: [n, 2] and [m, 2], latitudes and longitudes


def _points(n: int, m: int) -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.uniform((-1.5, -3), (1.5, 3), (k, 2)).astype(np.float32) for k in (n, m)]


def _haversine(xp: Any, a: Any, b: Any) -> Any:
    latitude, longitude = b[None, :, 0] - a[:, None, 0], b[None, :, 1] - a[:, None, 1]
    cosines = xp.cos(a[:, 0])[:, None] * xp.cos(b[:, 0])[None, :]
    squared_sine = xp.sin(latitude / 2) ** 2 + cosines * xp.sin(longitude / 2) ** 2
    return 12742 * xp.asin(xp.sqrt(squared_sine))


def globe_distances(draw: Draw) -> Contest:
    n, m = draw.size(200, 3000), draw.size(200, 3000)
    formula = Formula(functools.partial(_points, n, m), **each(_haversine))
    title = f"distances of {n} and {m} places on the globe"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


FAMILIES = {
    n_body: 1,
    distances: 1,
    city_distances: 1,
    kernel_sums: 1,
    nearest: 1,
    globe_distances: 1,
}
"""Each with how many workloads a run draws from it."""
