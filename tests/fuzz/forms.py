"""What random graphs are made of: functions of an array library, the same for NumPy, PyTorch and
graphfw.

A form is called as `form(xp, *arrays)`. Where the libraries differ, `NUMPY` and `torch_space` have
the name and the arguments that graphfw has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Form(NamedTuple):
    """A function with drawn arguments."""

    text: str
    call: Callable[..., Any]
    arity: int


Draw = Callable[[np.random.Generator, int], tuple[str, Callable[..., Any], int]]
"""Makes a form of random numbers and the number of dims that its first operand has."""


class Space(SimpleNamespace):
    """An array library, with some functions in place of its own."""

    def __init__(self, library: Any, **functions: Any) -> None:
        super().__init__(**functions)
        self.library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["library"], name)


def _softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _logsumexp(x: Array, axis: int) -> Array:
    m = x.max(axis=axis, keepdims=True)
    return (m + np.log(np.exp(x - m).sum(axis=axis, keepdims=True))).squeeze(axis)


def _cumulative(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, axis: function(x, axis=axis)


_ERF = np.vectorize(math.erf, otypes=[np.float64])

NUMPY = Space(
    np,
    softmax=_softmax,
    log_softmax=lambda x, axis: x - np.expand_dims(_logsumexp(x, axis), axis),
    logsumexp=_logsumexp,
    sigmoid=lambda x: 1 / (1 + np.exp(-x)),
    softplus=lambda x: np.logaddexp(x, np.zeros_like(x)),
    silu=lambda x: x / (1 + np.exp(-x)),
    gelu=lambda x: x * (1 + _ERF(x / math.sqrt(2))).astype(x.dtype) / 2,
    erf=lambda x: _ERF(x).astype(x.dtype),
    cumulative_max=_cumulative(np.maximum.accumulate),
    cumulative_min=_cumulative(np.minimum.accumulate),
    relu=lambda x: np.maximum(x, np.zeros_like(x)),
    # As in the Array API's `linalg`, matrices are the last two dims.
    diagonal=lambda x: np.diagonal(x, axis1=-2, axis2=-1),
    trace=lambda x: np.trace(x, axis1=-2, axis2=-1),
)


def torch_space() -> Space:
    """Return PyTorch; there must be one."""
    import array_api_compat.torch as compat
    import torch

    torch.set_num_threads(1)  # arrays are small, and the threads would wait by turning in a loop
    f = torch.nn.functional
    return Space(
        compat,
        softmax=lambda x, axis: torch.softmax(x, axis),
        log_softmax=lambda x, axis: torch.log_softmax(x, axis),
        logsumexp=lambda x, axis: torch.logsumexp(x, axis),
        sigmoid=torch.sigmoid,
        softplus=f.softplus,
        silu=f.silu,
        gelu=f.gelu,
        erf=torch.erf,
        relu=torch.relu,
        einsum=torch.einsum,
    )


def _axis(rng: np.random.Generator, ndim: int) -> int:
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
            arguments = {"axis": _axis(rng, ndim), **options}
            if kept and rng.random() < 0.5:
                arguments["keepdims"] = True
            text = f"{name} {arguments}"
            return text, lambda xp, x: getattr(xp, name)(x, **arguments), 1

        return draw

    return [one(name) for name in names]


def _text(expression: str, arity: int = 1) -> Draw:
    """A function written as an expression of `xp`, `x`, `y` and `z`; `axis` is drawn."""
    code = compile(expression, expression, "eval")

    def draw(rng: np.random.Generator, ndim: int) -> tuple[str, Callable[..., Any], int]:
        given: dict[str, Any] = {"axis": _axis(rng, ndim)} if "axis" in expression else {}
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
    *_named("add", "subtract", "multiply", "atan2", "hypot", "logaddexp", arity=2),
    *_along("sum", "mean", kept=True),
    *_along("softmax", "log_softmax", "logsumexp"),
    *_along("cumulative_sum", "flip"),
    *[_text(text) for text in (
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
    *[_text(text, 2) for text in (
        "x / (y * y + 1)", "xp.matmul(x, y) / 9", "xp.matmul(xp.matrix_transpose(x), y) / 9",
        "xp.matmul(x, xp.matrix_transpose(y)) / 9", "(x * x + 1) ** xp.tanh(y)",
        "xp.concat([x, y], axis=axis)", "xp.stack([x, y], axis=axis)", "xp.where(x > y, x, y * 2)",
        "xp.einsum('...i,...i->...', x, y)", "xp.sum(x * y, axis=axis)",
        "xp.softmax(xp.matmul(x, xp.matrix_transpose(y)), axis=-1)",
        "xp.tensordot(x, y, axes=1) / 9", "xp.vecdot(x, y)",
    )],
    *[_text(text, 3) for text in (
        "x * y + z", "xp.where(x > 0.25, y, z)", "xp.matmul(xp.tanh(xp.matmul(x, y)), z) / 9",
        "xp.matmul(xp.softmax(xp.matmul(x, xp.matrix_transpose(y)), axis=-1), z)",
    )],
]  # fmt: skip
"""Those whose derivatives exist nearly everywhere, and whose results stay small."""

ANY: list[Draw] = [
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
    *[_text(text) for text in (
        "x[::-1, ...]", "x[..., ::-2]", "x[2:]", "x[-1]", "xp.roll(x, number, axis=axis)",
        "xp.permute_dims(x, order)", "xp.reshape(x, (-1,))", "xp.expand_dims(x, axis=axis)",
        "xp.clip(x, -1, 1)", "xp.tril(x, k=number)", "xp.triu(x, k=number)", "xp.tile(x, (2, 1))",
        "xp.repeat(x, 3, axis=axis)", "xp.where(x > 0, x, -x)", "xp.concat([x, x[:1]], axis=0)",
        "xp.take(x, xp.asarray([0, -1, 0]), axis=axis)", "x > number", "x * number", "x + x",
        "xp.take_along_axis(x, xp.argsort(x, axis=axis, stable=True), axis=axis)",
        "xp.astype(x, 'int32') if x.dtype == 'bool' else x", "xp.diagonal(x)", "xp.rot90(x)",
        "xp.trace(x)", "xp.matrix_transpose(x)", "xp.swapaxes(x, 0, axis)", "x % 3", "x // 2",
    )],
    *[_text(text, 2) for text in (
        "xp.matmul(x, y)", "xp.where(x > y, x, y)", "xp.concat([x, y], axis=axis)", "x % y",
        "xp.stack([x, y], axis=axis)", "xp.outer(x, y)", "xp.einsum('...ij,...kj->...ik', x, y)",
        "xp.searchsorted(xp.sort(x), y)", "xp.isin(x, y)", "xp.vecdot(x, y)",
    )],
    *[_text(text, 3) for text in ("x * y + z", "xp.where(x > y, y, z)", "xp.where(x == y, x, z)")],
]  # fmt: skip
"""Functions of any numbers, compared one by one."""
