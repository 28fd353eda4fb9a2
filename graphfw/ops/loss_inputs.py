"""Warnings of losses that are given probabilities for scores, or scores for probabilities."""

from __future__ import annotations

import warnings

from graphfw.ir.concrete import value_to_check
from graphfw.ir.tensor import Tensor
from graphfw.loc import capture
from graphfw.ops.movement import Movement

_SUMS = {"add", "subtract"}
_PRODUCTS = {"matmul", "conv"}


def warn_of_softmax(name: str, x: Tensor, fix: str) -> None:
    """Warn where a loss takes scores or logarithms, and x is the result of a softmax."""
    if _is_softmax(_seen_through(x)):
        _warn(f"{name}: its input is the result of a softmax, made at {_place(x)}: {fix}")


def warn_of_sigmoid(name: str, x: Tensor, fix: str) -> None:
    """Warn where a loss takes scores, and x is the result of a sigmoid."""
    if _seen_through(x).node.op.name == "sigmoid":
        _warn(f"{name}: its input is the result of a sigmoid, made at {_place(x)}: {fix}")


def warn_of_scores(name: str, x: Tensor, fix: str) -> None:
    """Warn where a loss takes probabilities, and x may be anything: sums of products, or values."""
    if _is_score(x):
        what = f"its input is no probability, but what {_place(x)} computes"
        _warn(f"{name}: {what}: {fix}")
    else:
        values = value_to_check(x)
        if values is not None and values.size and not (values.min() >= 0 and values.max() <= 1):
            what = f"its input is outside of [0, 1]: from {values.min():.4g} to {values.max():.4g}"
            _warn(f"{name}: {what}: {fix}")


def _seen_through(x: Tensor) -> Tensor:
    """Return the tensor that x is a view or a conversion of."""
    while x.node.op.name == "astype" or isinstance(x.node.op, Movement):
        x = x.node.inputs[0]
    return x


def _is_softmax(x: Tensor) -> bool:
    """Say whether x is exp(…) / sum(exp(…)), whatever guards the sum against 0."""
    if x.node.op.name != "divide":
        return False
    part, total = x.node.inputs
    while total.node.op.name in ("where", "add", "maximum"):
        total = next((t for t in reversed(total.node.inputs) if t.shape == total.shape), total)
        if total.node.op.name == "constant":
            return False
    is_sum = total.node.op.name == "sum" and total.node.inputs[0] is part
    return is_sum and part.node.op.name == "exp"


def _is_score(x: Tensor) -> bool:
    """Say whether x is a product of matrices or a convolution, with or without a bias."""
    x = _seen_through(x)
    if x.node.op.name in _SUMS:
        return any(_seen_through(t).node.op.name in _PRODUCTS for t in x.node.inputs)
    return x.node.op.name in _PRODUCTS


def _place(x: Tensor) -> str:
    loc = _seen_through(x).node.loc
    return f"{loc.short()}, layer {loc.layer}" if loc.layer else loc.short()


def _warn(message: str) -> None:
    here = capture()
    warnings.warn_explicit(message, UserWarning, here.file, here.line)
