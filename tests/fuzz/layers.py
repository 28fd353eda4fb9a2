"""Forms of what networks are made of: windows, attention, segments, loops and branches.

As in `forms`, each is drawn for an operand of so many dims. All are smooth nearly everywhere, and
their results stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphfw as gf
from tests.fuzz.forms import Draw, drawn_axis, text

Drawn = tuple[str, Callable[..., Any], int]


def _images(rng: np.random.Generator, ndim: int) -> tuple[str, Callable[..., Any], int, int]:
    """Return how images are made of an operand, their spatial dims, and their channels.

    The channels are functions of the operand; its first dim, or one of size 1, is the batch.
    """
    if not 1 <= ndim <= 4:
        raise ValueError("as many dims as images have")
    spatial = ndim if ndim == 1 or (ndim < 4 and rng.random() < 0.4) else ndim - 1
    channels = int(rng.integers(1, 6))

    def images(xp: Any, x: Any) -> Any:
        x = x if spatial == ndim - 1 else x[None]
        made = [xp.sin(x * (1 + c)) for c in range(channels)]
        return xp.stack(made, axis=1)

    return f"{channels} channels of {spatial}-d images", images, spatial, channels


def _each(rng: np.random.Generator, count: int, low: int, high: int) -> tuple[int, ...]:
    return tuple([int(i) for i in rng.integers(low, high + 1, size=count)])


def _groups(rng: np.random.Generator, channels: int) -> int:
    return int(rng.choice([g for g in range(1, channels + 1) if channels % g == 0]))


def _flattened(xp: Any, y: Any, spatial: int) -> Any:
    """Return volumes as a sum over channels, as values have at most 4 dims."""
    return xp.sum(y, axis=1) if spatial == 3 else y


def conv(rng: np.random.Generator, ndim: int) -> Drawn:
    """A convolution whose weight depends on another operand."""
    of, images, spatial, channels = _images(rng, ndim)
    groups = _groups(rng, channels)
    outputs = groups * int(rng.integers(1, 4))
    weight = rng.standard_normal((outputs, channels // groups, *_each(rng, spatial, 1, 3))) / 3
    options = {
        "stride": _each(rng, spatial, 1, 3) if rng.random() < 0.5 else (1,) * spatial,
        "dilation": _each(rng, spatial, 1, 2) if rng.random() < 0.3 else (1,) * spatial,
        "padding": tuple([_each(rng, 2, 0, 2) for _ in range(spatial)]),
        "groups": groups,
    }

    def call(xp: Any, x: Any, y: Any) -> Any:
        kernels = xp.asarray(weight, dtype=x.dtype) * (1 + xp.sin(xp.sum(y)) / 2)
        return _flattened(xp, xp.conv(images(xp, x), kernels, **options), spatial)

    return f"conv {weight.shape} {options} of {of}", call, 2


def conv_transpose(rng: np.random.Generator, ndim: int) -> Drawn:
    of, images, spatial, channels = _images(rng, ndim)
    groups = _groups(rng, channels)
    shape = (channels, int(rng.integers(1, 4)), *_each(rng, spatial, 1, 3))
    weight = rng.standard_normal(shape) / 3
    options = {
        "stride": _each(rng, spatial, 1, 3),
        "padding": _each(rng, spatial, 0, 1),
        "dilation": _each(rng, spatial, 1, 2),
        "groups": groups,
    }

    def call(xp: Any, x: Any, y: Any) -> Any:
        kernels = xp.asarray(weight, dtype=x.dtype) * (1 + xp.sin(xp.sum(y)) / 2)
        return _flattened(xp, xp.conv_transpose(images(xp, x), kernels, **options), spatial)

    return f"conv_transpose {shape} {options} of {of}", call, 2


def pool(rng: np.random.Generator, ndim: int) -> Drawn:
    of, images, spatial, _ = _images(rng, ndim)
    name = str(rng.choice(["max_pool", "avg_pool"]))
    sizes = _each(rng, spatial, 1, 3)
    options = {
        "stride": _each(rng, spatial, 1, 3),
        "padding": tuple([int(rng.integers(0, size // 2 + 1)) for size in sizes]),
    }

    def call(xp: Any, x: Any) -> Any:
        return _flattened(xp, getattr(xp, name)(images(xp, x), sizes, **options), spatial)

    return f"{name} {sizes} {options} of {of}", call, 1


def attention(rng: np.random.Generator, ndim: int) -> Drawn:
    if ndim < 2:
        raise ValueError("queries have two dims")
    causal = bool(rng.random() < 0.4)
    kind = str(rng.choice(["no", "bool", "float", "learned"]))
    heads = int(rng.integers(1, 4)) if ndim < 4 else 1

    def call(xp: Any, x: Any, y: Any) -> Any:
        q, k, v = xp.tanh(x), xp.tanh(y), xp.sin(y)
        if heads > 1:
            q, k, v = (xp.stack([t * (1 + h) for h in range(heads)], axis=-3) for t in (q, k, v))
        mask = None
        if kind != "no":
            mask = xp.matmul(q, xp.matrix_transpose(k)) * 0.5
        if kind == "bool":  # each query sees the first key
            first = xp.cumulative_sum(xp.ones_like(mask), axis=-1) < 1.5
            mask = xp.logical_or(mask > 0.01, first)
        elif kind == "float":
            mask = xp.where(mask > 0.01, mask * 0, mask * 0 - 3)
        return xp.scaled_dot_product_attention(q, k, v, mask, causal=causal)

    return f"attention of {heads} heads, {kind} mask, causal={causal}", call, 2


def einsum(rng: np.random.Generator, ndim: int) -> Drawn:
    first = [str(c) for c in rng.permutation(list("abcde"))[:ndim]]
    second = [str(c) for c in rng.permutation([*first, *"xy"])[: rng.integers(1, 4)]]
    every = list(dict.fromkeys([*first, *second]))
    kept = [str(c) for c in rng.permutation(every)[: rng.integers(0, min(len(every), 3) + 1)]]
    equation = f"{''.join(first)},{''.join(second)}->{''.join(kept)}"
    return f"einsum {equation}", lambda xp, x, y: xp.einsum(equation, x, y) / 9, 2


def put(rng: np.random.Generator, ndim: int) -> Drawn:
    """Values put in some places of an operand."""
    axis = drawn_axis(rng, ndim) % ndim
    how = str(rng.choice(["set", "add"]))
    keys: list[Any] = [slice(1, None), slice(None, None, 2), slice(None, -1), 0, -1, slice(None, 1)]
    if how == "add":
        keys.append(np.array([0, -1, 0]))
    chosen = keys[rng.integers(len(keys))]
    key = (*[slice(None)] * axis, chosen)
    same_shape = key if rng.random() < 0.6 else None  # of values of the same shape, or one number

    def call(xp: Any, x: Any) -> Any:
        values = xp.sin(x)[key] if same_shape is not None else xp.sum(xp.sin(x)) / 9
        return xp.put(x, key, values, how)

    return f"{how} {'the same shape' if same_shape else 'a number'} at {key}", call, 1


def segments(rng: np.random.Generator, ndim: int) -> Drawn:
    if not ndim:
        raise ValueError("no rows")
    name = str(rng.choice(["sum", "scatter", "max"])) if ndim == 1 else "sum"

    def call(xp: Any, x: Any) -> Any:
        keys = xp.sum(x, axis=tuple(range(1, ndim))) if ndim > 1 else x
        ids = xp.astype(keys > -0.13, xp.int64) + xp.astype(keys > 0.57, xp.int64)
        if name == "scatter":
            return xp.scatter_add(x * 0.5, ids % x.shape[0], xp.sin(x), axis=0)
        return xp.segment_sum(xp.sin(x), ids, 3)

    return f"segments: {name}", call, 1


BODIES: Sequence[Callable[[Any, Any, Any, int], Any]] = (
    lambda xp, c, x, axis: xp.tanh(c) + x * 0.1,
    lambda xp, c, x, axis: xp.flip(c, axis=axis) * 0.5 + x,
    lambda xp, c, x, axis: c * 0.5 - xp.mean(c, axis=axis, keepdims=True),
    lambda xp, c, x, axis: xp.roll(xp.sin(c), 1, axis=axis),
    lambda xp, c, x, axis: xp.where(c > 0.1, c * 0.5, c + 0.3),
    lambda xp, c, x, axis: xp.concat([c[1:], xp.sin(c[:1])], axis=0),
    lambda xp, c, x, axis: c * 0.5 + xp.sin(c[:1]),
    lambda xp, c, x, axis: c * 0.5 + xp.cos(c[-1:]) * x,
    lambda xp, c, x, axis: xp.put(c, 0, xp.sin(c[-1]), "set"),
    lambda xp, c, x, axis: xp.put(c * 0.5, slice(1, None), xp.sin(c[1:]), "add"),
    lambda xp, c, x, axis: xp.softmax(c, axis=axis) + x * 0.1,
    lambda xp, c, x, axis: xp.cumulative_sum(c * 0.2, axis=axis) - x,
    lambda xp, c, x, axis: xp.sin(c) + xp.sum(c * x) * 0.01,
)
"""A trip's next carry, of the carry and of tensors around the loop: the same shape again."""

ROWS: Sequence[Callable[[Any, Any, Any], Any]] = (
    lambda xp, c, r: c,
    lambda xp, c, r: xp.sum(c),
    lambda xp, c, r: c[:-1],
    lambda xp, c, r: c[1:],
    lambda xp, c, r: xp.concat([c[:1], r[:1]], axis=0),
    lambda xp, c, r: xp.stack([c, -c], axis=-1),
    lambda xp, c, r: xp.flip(c, axis=0) * r,
    lambda xp, c, r: xp.sin(c[None]) + r,
)
"""A trip's outputs, of its carry and its row."""


def loop(rng: np.random.Generator, ndim: int) -> Drawn:
    """A loop of a number of trips that is known, or not, or that the values decide."""
    axis, number, kind = drawn_axis(rng, ndim), int(rng.integers(len(BODIES))), rng.integers(3)
    body, iterations = BODIES[number], int(rng.choice([0, 1, 2, 5, 17]))
    name = ("fori_loop", "counted while_loop", "while_loop")[kind]

    def call(xp: Any, x: Any) -> Any:
        if kind == 0:
            return xp.fori_loop(0, iterations, lambda i, c: body(xp, c, x, axis), x)
        if kind == 1:
            return xp.while_loop(
                lambda v: v[1] < iterations, lambda v: (body(xp, v[0], x, axis), v[1] + 1),
                # Of 16 bits a sum of x itself may be infinite, and the count NaN.
                (x, xp.sum(xp.tanh(x) * 1e-3) * 0)
            )[0]  # fmt: skip
        return xp.while_loop(
            lambda v: xp.sum(v[1] * v[1]) > 0.01,
            lambda v: (body(xp, v[0], x, axis), v[1] * 0.7 + xp.sin(v[0]) * 1e-6),
            (x, xp.tanh(x)),
        )[0]

    return f"{name} of {iterations} trips, body {number}, axis {axis}", call, 1


def updates(rng: np.random.Generator, ndim: int) -> Drawn:
    """A loop whose iterations put values where the numbers of the iterations say."""
    if not ndim:
        raise ValueError("nothing to put values into")
    how, iterations = str(rng.choice(["set", "add"])), int(rng.choice([1, 4, 17]))
    factors, offsets = (_each(rng, 3, 0, 6) for _ in range(2))
    counted, again = bool(rng.random() < 0.5), bool(rng.random() < 0.3)

    def call(xp: Any, x: Any) -> Any:
        rows = x.shape[0]
        if isinstance(rows, int) and not rows:
            raise gf.ArgumentError("nothing to put values into")

        def body(i: Any, c: Any) -> Any:
            a, b, d = [(i * f + o) % rows for f, o in zip(factors, offsets, strict=True)]
            made = xp.put(c, a, xp.sin(c[b]) * 0.5 + x[d] * 0.1, how)
            return xp.put(made, d, made[b] * 0.5, "set") if again else made

        if counted:
            return xp.fori_loop(0, iterations, body, x)
        start = xp.astype(xp.sum(xp.tanh(x)) * 0, xp.int64)
        return xp.while_loop(
            lambda v: v[1] < iterations, lambda v: (body(v[1], v[0]), v[1] + 1), (x, start)
        )[0]

    name = "fori_loop" if counted else "while_loop"
    return f"{name} of {iterations} trips, {how}s at {factors} {offsets} {again}", call, 1


def scan(rng: np.random.Generator, ndim: int) -> Drawn:
    """A scan over rows, the first of which is the first carry."""
    if ndim < 2:
        raise ValueError("no rows")
    axis, number = drawn_axis(rng, ndim - 1), int(rng.integers(len(BODIES)))
    yields = [int(i) for i in rng.integers(len(ROWS), size=rng.integers(1, 4))]
    given = int(rng.integers(len(yields)))
    options: dict[str, Any] = {"reverse": bool(rng.random() < 0.3)}
    options |= {"checkpoint_every": 3} if rng.random() < 0.2 else {}
    options |= {"unroll": 2} if rng.random() < 0.2 else {}

    def call(xp: Any, x: Any) -> Any:
        def iteration(c: Any, row: Any) -> Any:
            made = BODIES[number](xp, c, row, axis)
            return made, tuple([ROWS[y](xp, c, row) for y in yields])

        last, rows = xp.scan(iteration, x[0], x, **options)
        totals = [xp.sum(xp.sin(array)) for array in rows]
        return rows[given] + xp.sum(last) * 0.1 + sum(totals) * 0.1

    return f"scan body {number} axis {axis} yields {yields}, {given} {options}", call, 1


LAYERS: list[Draw] = [
    conv, conv, conv_transpose, pool, attention, attention, einsum, einsum, put, segments,
    loop, loop, scan, scan, updates, updates,
    *[text(expression) for expression in (
        "xp.real(xp.fft.fft(x, axis=axis)) / 9", "xp.imag(xp.fft.rfft(x, axis=axis)) / 9",
        "xp.real(xp.fft.ifft(x * x + 1j * x, axis=axis))", "xp.real(xp.exp(1j * x) * (x + 2j))",
        "xp.fft.irfft(xp.fft.rfft(xp.sin(x), axis=axis) * 2, n=x.shape[axis], axis=axis)",
        "xp.cond(xp.sum(x) > 0.01, lambda v: xp.sin(v), lambda v: v * v, x)",
        "xp.checkpoint(lambda v: xp.sin(xp.exp(-v * v)) * xp.mean(x))(x)",
        "xp.checkpoint(lambda v: xp.cumulative_sum(xp.tanh(v), axis=axis) + xp.sum(v))(x)",
        "xp.take(x, xp.asarray([0, -1, 0]), axis=axis)",
        "xp.take_along_axis(x, xp.argsort(x, axis=axis), axis=axis)",
        "xp.cumulative_prod(xp.tanh(x), axis=axis)", "xp.sort(x, axis=axis)",
        "xp.max(x, axis=axis)", "xp.min(x, axis=axis, keepdims=True)",
        "xp.diff(x, axis=axis)", "xp.clip(x, -0.7, 1.1)", "xp.diagonal(x)", "xp.trace(x)",
        "xp.tile(x, (2, 1))", "xp.sum(xp.where(x > 0.2, x, 0.5), axis=axis)",
    )],
]  # fmt: skip
"""Layers, loops and what else is smooth nearly everywhere, but where values tie."""
