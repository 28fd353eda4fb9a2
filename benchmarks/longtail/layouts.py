"""Arrays that lie otherwise: transposed, strided, reversed, parts of larger ones."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula, Function
from benchmarks.longtail import formulas
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import contest, each, name_of, normal, permuted
from benchmarks.workload import Contest

_PLAIN = "C order"
_STRANGE = (
    *("transposed", "transposed", "rows of a wider array", "every other row", "every other column"),
    *("rows reversed", "columns reversed"),
)
"""Layouts of a matrix; one that is there twice is drawn twice as often."""


def laid(array: Array, layout: str) -> Array:
    """Return a matrix of the same numbers that lies in memory as a layout says."""
    rows, columns = array.shape
    if layout == "transposed":
        return np.ascontiguousarray(array.T).T
    if layout == "rows of a wider array":
        view = np.zeros((rows, columns + 24), array.dtype)[:, 8 : 8 + columns]
    elif layout == "every other row":
        view = np.zeros((2 * rows, columns), array.dtype)[::2]
    elif layout == "every other column":
        view = np.zeros((rows, 2 * columns), array.dtype)[:, ::2]
    elif layout == "rows reversed":
        view = np.zeros_like(array)[::-1]
    elif layout == "columns reversed":
        view = np.zeros_like(array)[:, ::-1]
    else:
        return array
    view[:] = array
    return view


def _laid_inputs(shapes: tuple[tuple[int, int], ...], layouts: tuple[str, ...]) -> Arrays:
    return [laid(a, layout) for a, layout in zip(normal(*shapes), layouts, strict=True)]


def _matrix(draw: Draw) -> tuple[int, int]:
    """Return rows and columns of 200,000 to 16 million numbers."""
    return draw.size(400, 4000), draw.size(500, 4000)


def _contest(draw: Draw, what: str, function: Function, count: int = 1, **more: Any) -> Contest:
    """Return the contest of a function of matrices of one shape, of which one lies strangely."""
    shape = _matrix(draw)
    layouts = [draw.choice(*_STRANGE), *[draw.choice(_PLAIN, *_STRANGE) for _ in range(count - 1)]]
    inputs = functools.partial(_laid_inputs, (shape,) * count, tuple(layouts))
    formula = Formula(inputs, **each(function, **more))
    title = f"{what}, {shape[0]}×{shape[1]} ({'; '.join(layouts)})"
    return contest(title, formula, compiled=True, lies=True, rtol=1e-3, atol=1e-4)


def _add(xp: Any, x: Any, y: Any) -> Any:
    return x + y


def add(draw: Draw) -> Contest:
    return _contest(draw, "x + y", _add, 2)


def _chain(xp: Any, x: Any, y: Any) -> Any:
    return xp.tanh(x * 0.5 + y) * xp.exp(-x * x)


def chain(draw: Draw) -> Contest:
    return _contest(draw, "tanh(x / 2 + y) exp(-x²)", _chain, 2)


def _total(xp: Any, x: Any, *, axis: int) -> Any:
    return xp.sum(x * x, axis=axis)


def sum_of_squares(draw: Draw) -> Contest:
    axis = draw.choice(0, 1)
    return _contest(draw, f"the sum of squares along axis {axis}", _total, axis=axis)


def softmax(draw: Draw) -> Contest:
    axis = draw.choice(0, 1, 1)
    return _contest(draw, f"softmax along axis {axis}", formulas.softmax, axis=axis)


def _norm(xp: Any, x: Any) -> Any:
    if name_of(xp) == "graphfw":
        return xp.layer_norm(x)
    if name_of(xp) == "torch":
        return xp.nn.functional.layer_norm(x, x.shape[-1:])
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def layer_norm(draw: Draw) -> Contest:
    return _contest(draw, "layer norm", _norm)


def _standard(xp: Any, x: Any) -> Any:
    correction = {"correction": 0.0} if name_of(xp) in ("graphfw", "torch") else {"ddof": 0}
    return (x - xp.mean(x, axis=0)) / xp.std(x, axis=0, **correction)


def standardise(draw: Draw) -> Contest:
    return _contest(draw, "columns minus their means over their deviations", _standard)


def _sums(xp: Any, x: Any) -> Any:
    return xp.cumsum(x, 0) if name_of(xp) != "graphfw" else xp.cumulative_sum(x, axis=0)


def cumulative_sum(draw: Draw) -> Contest:
    return _contest(draw, "running sums of columns", _sums)


# Products


def _product(xp: Any, x: Any, y: Any) -> Any:
    return x @ y


def product(draw: Draw) -> Contest:
    m, k, n = draw.size(64, 1024), draw.size(64, 1024), draw.size(64, 1024)
    layouts = (draw.choice(*_STRANGE), draw.choice(_PLAIN, *_STRANGE))
    inputs = functools.partial(_laid_inputs, ((m, k), (k, n)), layouts)
    title = f"a product of {m}×{k} and {k}×{n} ({'; '.join(layouts)})"
    formula = Formula(inputs, **each(_product))
    return contest(title, formula, lies=True, rtol=1e-3, atol=1e-4)


# Copies in another order


def _copy(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> Contest:
    inputs = functools.partial(normal, shape, dtype=dtype)
    formula = Formula(inputs, **each(permuted, axes=axes))
    title = f"{'×'.join(map(str, shape))} {dtype} copied with the axes {axes}"
    return contest(title, formula, dtype=dtype, compiled=True)


def transposed_copy(draw: Draw) -> Contest:
    return _copy(_matrix(draw), (1, 0), draw.choice("float32", "float32", "float64", "int16"))


def permuted_copy(draw: Draw) -> Contest:
    shape = (draw.size(2, 16), draw.size(16, 128), draw.size(8, 64), draw.size(16, 128))
    axes = draw.choice((0, 2, 1, 3), (0, 3, 1, 2), (0, 2, 3, 1), (3, 0, 2, 1), (2, 3, 0, 1))
    return _copy(shape, axes, draw.choice("float32", "float32", "float64", "int8"))


# Channels last: images as cameras and OpenCV have them, fed to what has channels first


def _channels_last(batch: int, channels: int, size: int) -> Arrays:
    (x,) = normal((batch, size, size, channels))
    scale, shift = normal((channels,), (channels,), seed=1)
    return [x.transpose(0, 3, 1, 2), scale, shift]


def _scaled(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    zero = 0.0 if name_of(xp) in ("numpy", "jax", "graphfw") else xp.zeros(())
    return xp.maximum(x * scale[:, None, None] + shift[:, None, None], zero)


def channels_last(draw: Draw) -> Contest:
    batch, channels, size = draw.size(1, 16), draw.choice(3, 16, 64, 37), draw.size(32, 256)
    inputs = functools.partial(_channels_last, batch, channels, size)
    formula = Formula(inputs, **each(_scaled))
    title = f"{batch} images of {channels}×{size}×{size}, fed channels last, scaled and cut at 0"
    return contest(title, formula, compiled=True, lies=True)


FAMILIES = {
    add: 1,
    chain: 1,
    sum_of_squares: 1,
    softmax: 1,
    layer_norm: 1,
    standardise: 1,
    cumulative_sum: 1,
    product: 1,
    transposed_copy: 1,
    permuted_copy: 1,
    channels_last: 1,
}
"""Each with how many workloads a run draws from it."""
