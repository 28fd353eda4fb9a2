"""Building blocks of random graphs: functions of an array library, the same for NumPy, PyTorch and
graphfw.

A form is called as `form(xp, *arrays)`; see `libraries` for `xp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Form(NamedTuple):
    """A function with drawn arguments."""

    text: str
    call: Callable[..., Any]
    arity: int


Draw = Callable[[np.random.Generator, int], tuple[str, Callable[..., Any], int]]
"""Makes a form of random numbers and the number of dims that its first operand has."""


def drawn_axis(rng: np.random.Generator, ndim: int) -> int:
    if not ndim:
        raise ValueError("no axis")
    return int(rng.integers(-ndim, ndim))


def _named(*names: str, arity: int = 1) -> list[Draw]:
    def one(name: str) -> Draw:
        return lambda rng, ndim: (name, lambda xp, *xs: getattr(xp, name)(*xs), arity)

    return [one(name) for name in names]


def _along(*names: str, kept: bool = False, **options: Any) -> list[Draw]:
    """Functions of an axis, with `kept` of `keepdims` as well."""

    def one(name: str) -> Draw:
        def draw(rng: np.random.Generator, ndim: int) -> tuple[str, Callable[..., Any], int]:
            arguments = {"axis": drawn_axis(rng, ndim), **options}
            if kept and rng.random() < 0.5:
                arguments["keepdims"] = True
            text = f"{name} {arguments}"
            return text, lambda xp, x: getattr(xp, name)(x, **arguments), 1

        return draw

    return [one(name) for name in names]


def text(expression: str, arity: int = 1) -> Draw:
    """A function written as an expression of `xp`, `x`, `y` and `z`; `axis` is drawn."""
    code = compile(expression, expression, "eval")

    def draw(rng: np.random.Generator, ndim: int) -> tuple[str, Callable[..., Any], int]:
        given: dict[str, Any] = {"axis": drawn_axis(rng, ndim)} if "axis" in expression else {}
        if "order" in expression:
            given["order"] = tuple(int(i) for i in rng.permutation(ndim))
        if "number" in expression:
            given["number"] = int(rng.integers(-3, 4))

        def call(xp: Any, *xs: Any) -> Any:
            return eval(code, {"xp": xp, **given, **dict(zip("xyz", xs, strict=False))})

        return f"{expression} {given or ''}", call, arity

    return draw


SMOOTH: list[Draw] = [
    *_named("sin", "cos", "tanh", "atan", "asinh", "sigmoid", "softplus", "silu", "gelu", "erf"),
    *_named("add", "subtract", "multiply", "hypot", "logaddexp", arity=2),
    # Libraries differ in the sign of a sum of nothing, and so of its products.
    text("xp.atan2(x + 0.0, y + 0.0)", 2),
    *_along("sum", "mean", kept=True),
    *_along("softmax", "log_softmax", "logsumexp"),
    *_along("cumulative_sum", "flip"),
    *[text(expression) for expression in (
        "xp.log(x * x + 1)", "xp.sqrt(x * x + 1)", "xp.exp(-x * x)", "xp.log1p(x * x)",
        "xp.expm1(xp.tanh(x))", "1 / (x * x + 1)", "-x", "(x * x + 1) ** -1.5", "xp.tan(x / 9)",
        "xp.sinh(xp.tanh(x))", "xp.cosh(xp.tanh(x))", "xp.acos(xp.sin(x) * 0.9)", "x * 0.5 - 2",
        "xp.permute_dims(x, order)", "xp.reshape(x, (-1,))", "xp.expand_dims(x, axis=axis)",
        "xp.roll(x, number, axis=axis)", "x[0]", "x[1:]", "x[:-1]", "xp.flip(x, axis=0)",
        "x[..., ::2]", "x[:, 1:]", "x[..., None]", "x[None]", "xp.tril(x)", "xp.triu(x, k=1)",
        "xp.var(x, axis=axis)", "xp.std(x * x + xp.cumulative_sum(x * x + 1, axis=axis))",
        "xp.matmul(x, xp.matrix_transpose(x)) / 9", "xp.sum(x * x)",
        "x - xp.mean(x, axis=-1, keepdims=True)", "xp.concat([x, -x], axis=axis)",
        "xp.stack([x, x * 2], axis=axis)", "xp.repeat(x, 2, axis=axis)", "xp.moveaxis(x, axis, 0)",
        "xp.where(x > 0.125, x * x, xp.sin(x))", "xp.prod(xp.tanh(x) + 2, axis=axis) / 99",
    )],
    *[text(expression, 2) for expression in (
        "x / (y * y + 1)", "xp.matmul(x, y) / 9", "xp.matmul(xp.matrix_transpose(x), y) / 9",
        "xp.matmul(x, xp.matrix_transpose(y)) / 9", "(x * x + 1) ** xp.tanh(y)",
        "xp.concat([x, y], axis=axis)", "xp.stack([x, y], axis=axis)", "xp.where(x > y, x, y * 2)",
        "xp.einsum('...i,...i->...', x, y)", "xp.sum(x * y, axis=axis)",
        "xp.softmax(xp.matmul(x, xp.matrix_transpose(y)), axis=-1)",
        "xp.tensordot(x, y, axes=1) / 9", "xp.vecdot(x, y)",
    )],
    *[text(expression, 3) for expression in (
        "x * y + z", "xp.where(x > 0.25, y, z)", "xp.matmul(xp.tanh(xp.matmul(x, y)), z) / 9",
        "xp.matmul(xp.softmax(xp.matmul(x, xp.matrix_transpose(y)), axis=-1), z)",
    )],
]  # fmt: skip
"""Functions whose derivatives exist nearly everywhere, and whose results stay small."""


def _put(rng: np.random.Generator, ndim: int) -> tuple[str, Callable[..., Any], int]:
    """Values put in some places of an operand: of another one, or a number."""
    axis = drawn_axis(rng, ndim) % ndim
    how = str(rng.choice(["set", "add", "multiply", "max", "min"]))
    keys: list[Any] = [slice(1, None), slice(None, None, -2), slice(None, -1), 0, -1]
    if how != "set":
        keys.append(np.array([0, -1, 0]))
    key = (*[slice(None)] * axis, keys[rng.integers(len(keys))])
    if rng.random() < 0.5:
        return f"{how} 3 at {key}", lambda xp, x: xp.put(x, key, 3, how), 1
    return f"{how} at {key}", lambda xp, x, y: xp.put(x, key, y, how), 2


ANY: list[Draw] = [
    *[_put] * 4,
    *_named("real", "imag", "conj", "bitwise_invert", "square", "cos", "atan", "sinh"),
    *_named("bitwise_and", "bitwise_or", "bitwise_xor", arity=2),
    *_along("var", "std", kept=True),
    *[text(expression) for expression in (
        "xp.segment_sum(x, xp.astype(x.reshape((x.shape[0], -1))[:, 0] > 1, 'int64'), 2)",
        "xp.cumulative_sum(x[::-1], axis=0)[::-1]", "x[::2, None]", "-x[..., ::-1]", "x[..., 0]",
        "xp.unstack(x)[-1]" , "xp.sum(x, axis=axis) * x", "xp.abs(x) + 1", "xp.sum(x[::2])",
        "xp.conv(x.reshape((1, 1, -1)), x.reshape((1, 1, -1))[..., :3], stride=(2,),"
        " padding=((1, 2),), dilation=(1,), groups=1)", "xp.max_pool(x[None, None], (2,) * x.ndim,"
        " stride=(1,) * x.ndim, padding=(0,) * x.ndim)", "x * x * x", "x - x[..., :1]",
    )],
    *_named("abs", "negative", "square", "floor", "ceil", "trunc", "round", "sign", "positive"),
    *_named("isnan", "isinf", "isfinite", "signbit", "logical_not", "relu", "nan_to_num"),
    *_named("exp", "log", "sqrt", "log2", "log10", "log1p", "expm1", "sin", "tanh"),
    *_named("maximum", "minimum", "add", "subtract", "multiply", "divide", "copysign", arity=2),
    *_named("less", "less_equal", "greater", "equal", "not_equal", "logical_and", arity=2),
    *_named("logical_or", "logical_xor", "pow", "nextafter", "hypot", "atan2", arity=2),
    *_along("sum", "max", "min", "prod", "mean", "any", "all", "argmax", "argmin", kept=True),
    *_along("sort", "flip", "cumulative_sum", "cumulative_prod", "diff", "count_nonzero"),
    *_along("cumulative_max", "cumulative_min", "median"),
    *_along("argsort", stable=True),
    *[text(expression) for expression in (
        "x[::-1, ...]", "x[..., ::-2]", "x[2:]", "x[-1]", "xp.roll(x, number, axis=axis)",
        "xp.permute_dims(x, order)", "xp.reshape(x, (-1,))", "xp.expand_dims(x, axis=axis)",
        "xp.clip(x, -1, 1)", "xp.tril(x, k=number)", "xp.triu(x, k=number)", "xp.tile(x, (2, 1))",
        "xp.repeat(x, 3, axis=axis)", "xp.where(x > 0, x, -x)", "xp.concat([x, x[:1]], axis=0)",
        "xp.take(x, xp.asarray([0, -1, 0]), axis=axis)", "x > number", "x * number", "x + x",
        "xp.take_along_axis(x, xp.argsort(x, axis=axis, stable=True), axis=axis)",
        "xp.astype(x, 'int32') if x.dtype == 'bool' else x", "xp.diagonal(x)", "xp.rot90(x)",
        "xp.trace(x)", "xp.matrix_transpose(x)", "xp.swapaxes(x, 0, axis)", "x % 3", "x // 2",
    )],
    *[text(expression, 2) for expression in (
        "xp.matmul(x, y)", "xp.where(x > y, x, y)", "xp.concat([x, y], axis=axis)", "x % y",
        "xp.stack([x, y], axis=axis)", "xp.outer(x, y)", "xp.einsum('...ij,...kj->...ik', x, y)",
        "xp.searchsorted(xp.sort(x), y)", "xp.isin(x, y)", "xp.vecdot(x, y)",
    )],
    *[text(expression, 3) for expression in (
        "x * y + z", "xp.where(x > y, y, z)", "xp.where(x == y, x, z)",
    )],
]  # fmt: skip
"""Functions of any numbers, compared one by one."""
