"""Linear algebra: decompositions and solutions of one matrix, of many small ones, and gradients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula, Function, by_path
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import NETWORKS, contest, each, name_of, normal
from benchmarks.workload import Contest

_DTYPES = ("float32", "float32", "float64")


def _linalg(xp: Any, *arrays: Any, name: str) -> Any:
    return getattr(xp.linalg, name)(*arrays)


def _all(name: str) -> dict[str, Function]:
    """Return a function of all libraries' `linalg`."""
    return each(_linalg, name=name)


def _few(draw: Draw, low: int, high: int) -> tuple[int, int]:
    """Return how many small matrices there are, and their size."""
    n = draw.size(low, high, least=2)
    return max(2, draw.size(100_000, 2_000_000) // (n * n)), n


_TRIANGULAR = {
    "graphfw": by_path("graphfw:linalg.solve_triangular"),
    "numpy": by_path("scipy.linalg:solve_triangular", lower=True),
    "torch": by_path("torch:linalg.solve_triangular", upper=False),
    "jax": by_path("jax.lax.linalg:triangular_solve", left_side=True, lower=True),
}


# Inputs


def _positive(shape: tuple[int, ...], dtype: str, columns: int = 0) -> Arrays:
    """Return positive definite matrices, and right sides where they are wanted."""
    (x,) = normal(shape, dtype=dtype)
    n = shape[-1]
    matrices = x @ np.swapaxes(x, -1, -2) / n + np.eye(n, dtype=dtype)
    sides = normal((*shape[:-1], columns), dtype=dtype, seed=1) if columns else []
    return [matrices.astype(dtype), *sides]


def _square(shape: tuple[int, ...], dtype: str, columns: int = 0) -> Arrays:
    """Return matrices that are well conditioned, and right sides where they are wanted."""
    (x,) = normal(shape, dtype=dtype)
    n = shape[-1]
    matrices = (x / np.sqrt(n) + 2 * np.eye(n)).astype(dtype)
    sides = normal((*shape[:-1], columns), dtype=dtype, seed=1) if columns else []
    return [matrices, *sides]


def _triangles(shape: tuple[int, ...], dtype: str, columns: int) -> Arrays:
    matrices, sides = _square(shape, dtype, columns)
    return [np.tril(matrices), sides]


def _symmetric(shape: tuple[int, ...], dtype: str) -> Arrays:
    (x,) = normal(shape, dtype=dtype)
    return [((x + np.swapaxes(x, -1, -2)) / np.sqrt(shape[-1])).astype(dtype)]


def _with_cotangent(inputs: Any, *shape: int, dtype: str) -> Arrays:
    return [*inputs(), *normal(shape, dtype=dtype, seed=2)]


# What is compared where signs are free: what is left without them, and the product


def _of_eigh(values: Array, vectors: Array) -> Arrays:
    return [values, (vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2)]


def _of_svd(left: Array, values: Array, right: Array) -> Arrays:
    return [values, (left * values[..., None, :]) @ right]


def _of_qr(q: Array, r: Array) -> Arrays:
    return [np.abs(r), q @ r]


def _contest(title: str, inputs: Any, functions: Any, dtype: str, **more: Any) -> Contest:
    tolerances: dict[str, Any] = {"rtol": 1e-3, "atol": 2e-4}
    wrt = more.pop("wrt", ())
    formula = Formula(inputs, **functions, wrt=wrt)
    return contest(f"{title} {dtype}", formula, dtype=dtype, **{**tolerances, **more})


def cholesky(draw: Draw) -> Contest:
    n, dtype = draw.size(192, 1536), draw.choice(*_DTYPES)
    inputs = functools.partial(_positive, (n, n), dtype)
    return _contest(f"Cholesky's triangle of {n}×{n}", inputs, _all("cholesky"), dtype)


def cholesky_batch(draw: Draw) -> Contest:
    (count, n), dtype = _few(draw, 4, 128), draw.choice(*_DTYPES)
    inputs = functools.partial(_positive, (count, n, n), dtype)
    return _contest(f"Cholesky's triangles of {count} {n}×{n}", inputs, _all("cholesky"), dtype)


def _likelihood(xp: Any, x: Any, y: Any, scale: Any) -> Any:
    """Return the negative logarithm of a Gaussian process's likelihood of values at points."""
    squares = xp.sum(x * x, axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * (x @ x.T)
    noise = 0.5 * xp.eye(y.shape[0], dtype=x.dtype)
    triangle = xp.linalg.cholesky(xp.exp(-0.5 * distances / (scale * scale)) + noise)
    solved = _TRIANGULAR[name_of(xp)](triangle, y[:, None])
    return 0.5 * xp.sum(solved * solved) + xp.sum(xp.log(xp.diagonal(triangle)))


def _process(n: int, dtype: str) -> Arrays:
    x, y = normal((n, 3), (n,), dtype=dtype)
    return [x, y, np.ones((), dtype), None]


def gaussian_process_grad(draw: Draw) -> Contest:
    n, dtype = draw.size(128, 768), draw.choice(*_DTYPES)
    functions = each(_likelihood, NETWORKS)
    inputs = functools.partial(_process, n, dtype)
    title = f"a Gaussian process's likelihood of {n} values, and its gradients,"
    return _contest(title, inputs, functions, dtype, wrt=(0, 1, 2), rtol=1e-2, atol=2e-3)


def lu(draw: Draw) -> Contest:
    n, dtype = draw.size(128, 1024), draw.choice(*_DTYPES)
    functions = {
        "graphfw": by_path("graphfw:linalg.lu"),
        "numpy": by_path("scipy.linalg:lu"),
        "torch": by_path("torch:linalg.lu"),
        "jax": by_path("jax.scipy.linalg:lu"),
    }
    inputs = functools.partial(_square, (n, n), dtype)
    return _contest(f"P, L and U of {n}×{n}", inputs, functions, dtype, atol=1e-3)


def solve(draw: Draw) -> Contest:
    n, columns, dtype = draw.size(128, 1280), draw.size(1, 256), draw.choice(*_DTYPES)
    inputs = functools.partial(_square, (n, n), dtype, columns)
    return _contest(f"{n}×{n} solved for {columns} columns", inputs, _all("solve"), dtype)


def solve_batch(draw: Draw) -> Contest:
    (count, n), columns, dtype = _few(draw, 3, 96), draw.size(1, 8), draw.choice(*_DTYPES)
    inputs = functools.partial(_square, (count, n, n), dtype, columns)
    title = f"{count} {n}×{n} solved for {columns} columns"
    return _contest(title, inputs, _all("solve"), dtype)


def solve_grad(draw: Draw) -> Contest:
    n, columns, dtype = draw.size(96, 768), draw.size(1, 64), draw.choice(*_DTYPES)
    inputs = functools.partial(_square, (n, n), dtype, columns)
    inputs = functools.partial(_with_cotangent, inputs, n, columns, dtype=dtype)
    functions = each(_linalg, NETWORKS, name="solve")
    title = f"{n}×{n} solved for {columns} columns, and its gradients,"
    return _contest(title, inputs, functions, dtype, wrt=(0, 1))


def solve_triangular(draw: Draw) -> Contest:
    n, columns, dtype = draw.size(128, 1536), draw.size(1, 512), draw.choice(*_DTYPES)
    inputs = functools.partial(_triangles, (n, n), dtype, columns)
    title = f"a triangle of {n}×{n} solved for {columns} columns"
    return _contest(title, inputs, _TRIANGULAR, dtype)


def solve_triangular_batch(draw: Draw) -> Contest:
    (count, n), columns, dtype = _few(draw, 4, 96), draw.size(1, 16), draw.choice(*_DTYPES)
    inputs = functools.partial(_triangles, (count, n, n), dtype, columns)
    title = f"{count} triangles of {n}×{n} solved for {columns} columns"
    return _contest(title, inputs, _TRIANGULAR, dtype)


def inverse(draw: Draw) -> Contest:
    n, dtype = draw.size(128, 1024), draw.choice(*_DTYPES)
    inputs = functools.partial(_square, (n, n), dtype)
    return _contest(f"the inverse of {n}×{n}", inputs, _all("inv"), dtype)


def inverse_batch(draw: Draw) -> Contest:
    (count, n), dtype = _few(draw, 2, 64), draw.choice(*_DTYPES)
    inputs = functools.partial(_square, (count, n, n), dtype)
    return _contest(f"the inverses of {count} {n}×{n}", inputs, _all("inv"), dtype)


def _svd(xp: Any, x: Any) -> Any:
    return xp.linalg.svd(x, full_matrices=False)


def svd(draw: Draw) -> Contest:
    rows, columns, dtype = draw.size(64, 512), draw.size(48, 256), draw.choice(*_DTYPES)
    inputs = functools.partial(normal, (rows, columns), dtype=dtype)
    title = f"the singular values and vectors of {rows}×{columns}"
    return _contest(title, inputs, each(_svd), dtype, shown=_of_svd)


def eigh(draw: Draw) -> Contest:
    n, dtype = draw.size(64, 512), draw.choice(*_DTYPES)
    inputs = functools.partial(_symmetric, (n, n), dtype)
    title = f"the eigenvalues and vectors of a symmetric {n}×{n}"
    return _contest(title, inputs, _all("eigh"), dtype, shown=_of_eigh)


def eigh_batch(draw: Draw) -> Contest:
    n, dtype = draw.size(3, 48, least=2), draw.choice(*_DTYPES)
    count = max(2, draw.size(20_000, 400_000) // (n * n))
    inputs = functools.partial(_symmetric, (count, n, n), dtype)
    title = f"the eigenvalues and vectors of {count} symmetric {n}×{n}"
    return _contest(title, inputs, _all("eigh"), dtype, shown=_of_eigh)


def qr(draw: Draw) -> Contest:
    rows, columns, dtype = draw.size(256, 2048), draw.size(32, 256), draw.choice(*_DTYPES)
    inputs = functools.partial(normal, (rows + columns, columns), dtype=dtype)
    title = f"Q and R of {rows + columns}×{columns}"
    return _contest(title, inputs, _all("qr"), dtype, shown=_of_qr)


FAMILIES = {
    cholesky: 1,
    cholesky_batch: 1,
    gaussian_process_grad: 1,
    lu: 1,
    solve: 1,
    solve_batch: 1,
    solve_grad: 1,
    solve_triangular: 1,
    solve_triangular_batch: 1,
    inverse: 1,
    inverse_batch: 1,
    svd: 1,
    eigh: 1,
    eigh_batch: 1,
    qr: 1,
}
"""Each with how many workloads a run draws from it."""
