"""Support vector machines: the domain ai.onnx.ml.

The operators' description says little; what is written here is what LIBSVM computes, and labels and
scores are laid out as ONNX Runtime does it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import ModelNode, Value
from graphfw.onnx.optional.features import ML, POST_TRANSFORMS, labelled, paired, transformed
from graphfw.onnx.table import reads

Array: TypeAlias = np.ndarray[Any, Any]

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_LEAST = 1e-7
"""The least probability of one class against another, as in LIBSVM."""
_MOST = 1 << 27
"""The most vectors times pairs of classes."""
_ITERATIONS, _ERROR = 100, 0.005
"""The most iterations by which LIBSVM couples probabilities, and the error at which it ends."""


@reads("SVMRegressor", domain=ML)
def _regressor(node: ModelNode, x: Tensor) -> Tensor:
    """Return a number for each row, or with one_class its sign.  x: [N, F] -> [N, 1]

    ONNX Runtime ignores the post_transform, which is applied here as to other regressors.
    """
    rows = _rows(x)
    count = node.attr("n_supports", 0)
    weights = _floats(node, "coefficients")
    rho = _floats(node, "rho")
    node.require(len(rho) > 0, "it has no rho")
    if count:
        node.require(
            len(weights) == count, f"{counted(len(weights), 'coefficient')}, {count} n_supports"
        )
        rows = _kernel(node, rows, _vectors(node, count))
    made = rows @ gf.constant(weights.reshape(-1, 1)) + float(rho[0])
    if node.attr("one_class", 0):
        return gf.where(made > 0, 1.0, -1.0)
    return transformed(made, node.choice("post_transform", "NONE", POST_TRANSFORMS))


@reads("SVMClassifier", domain=ML)
def _classifier(node: ModelNode, x: Tensor) -> tuple[Value, Tensor]:
    """Return labels and scores.  x: [N, F] -> [N], [N, classes or pairs of classes]

    With a row of coefficients for each class and no vectors, the label is that of the largest
    score, as in ONNX's reference. (ONNX Runtime takes the second of two wherever one is positive.)
    """
    labels = node.attr("classlabels_strings", ()) or node.attr("classlabels_ints", ())
    node.require(labels, "it has no labels")
    transform = node.choice("post_transform", "NONE", POST_TRANSFORMS)
    counts = node.attr("vectors_per_class", ())
    if not sum(counts):
        scores = _linear(node, _rows(x), len(labels))
        return labelled(node, gf.argmax(scores, axis=-1), labels), transformed(scores, transform)
    node.require(
        len(counts) == len(labels) > 1,
        f"{len(counts)} of {counted(len(labels), 'class', 'classes')}",
    )
    scores = _against(node, _rows(x), counts)
    pairs = list(itertools.combinations(range(len(counts)), 2))
    chosen = labelled(node, gf.argmax(_votes(scores, pairs), axis=-1), labels)
    if node.attr("prob_a", ()):
        return chosen, transformed(_probabilities(node, scores, pairs, len(counts)), transform)
    if len(pairs) == 1:
        node.require(transform != "PROBIT", "PROBIT of one score for two classes is not defined")
        return chosen, paired(scores[:, 0], transform, adds_up=transform != "NONE")
    return chosen, transformed(scores, transform)


def _rows(x: Tensor) -> Tensor:
    return gf.astype(gf.reshape(x, (1, -1)) if x.ndim == 1 else x, gf.float32)


def _floats(node: ModelNode, name: str) -> Array:
    return np.asarray(node.attr(name, ()), np.float32)


def _vectors(node: ModelNode, count: int) -> Array:
    """Return the support vectors.  -> [count, F]"""
    values = _floats(node, "support_vectors")
    node.require(len(values) and not len(values) % count, f"they are not {count} support_vectors")
    return values.reshape(count, -1)


def _kernel(node: ModelNode, x: Tensor, vectors: Array) -> Tensor:
    """Compare rows with vectors.  x: [N, F], vectors: [V, F] -> [N, V]"""
    kind = node.choice("kernel_type", "LINEAR", _KERNELS)
    gamma, shift, degree = node.numbers("kernel_params", (0.0, 0.0, 0.0))
    if kind == "RBF":
        apart = gf.expand_dims(x, 1) - gf.constant(vectors)
        return gf.exp(gf.sum(gf.square(apart), axis=-1) * -gamma)
    made = x @ gf.constant(vectors.T.copy())
    if kind == "POLY":
        return gf.pow(made * gamma + shift, degree)
    return gf.tanh(made * gamma + shift) if kind == "SIGMOID" else made


def _linear(node: ModelNode, x: Tensor, count: int) -> Tensor:
    """Return the scores of a model that has a row of coefficients for each class."""
    weights, rho = _floats(node, "coefficients"), _floats(node, "rho")
    node.require(len(rho) > 0, "it has no rho")
    node.require(
        len(weights) and not len(weights) % count,
        f"its coefficients aren't {counted(count, 'row')}",
    )
    return x @ gf.constant(weights.reshape(count, -1).T.copy()) + float(rho[0])


def _against(node: ModelNode, x: Tensor, counts: Sequence[int]) -> Tensor:
    """Return for each pair of classes by how much the first one is more likely.  -> [N, pairs]

    The coefficients are [classes - 1, V]: the vectors of a class have one for each other class, in
    order.
    """
    total, classes = sum(counts), len(counts)
    node.require(min(counts) >= 0, f"vectors_per_class {counts} are negative")
    coefficients = _floats(node, "coefficients")
    right = len(coefficients) == (classes - 1) * total
    node.require(
        right,
        f"{counted(len(coefficients), 'coefficient')}, not {classes - 1} for "
        f"{counted(total, 'vector')}",
    )
    rho, pairs = _floats(node, "rho"), classes * (classes - 1) // 2
    node.require(len(rho) == pairs, f"{len(rho)} rho, {pairs} pairs of classes")
    node.require(total * pairs <= _MOST, f"{total:,} vectors for {pairs:,} pairs are too many")
    coefficients = coefficients.reshape(classes - 1, total)
    ends = np.cumsum([0, *counts])
    columns = []
    for i, j in itertools.combinations(range(classes), 2):
        column = np.zeros(total, np.float32)
        column[ends[i] : ends[i + 1]] = coefficients[j - 1, ends[i] : ends[i + 1]]
        column[ends[j] : ends[j + 1]] = coefficients[i, ends[j] : ends[j + 1]]
        columns.append(column)
    kernel = _kernel(node, x, _vectors(node, total))
    return kernel @ gf.constant(np.stack(columns, axis=1)) + gf.constant(rho)


def _votes(scores: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Return how many other classes each one beats.  scores: [N, pairs] -> [N, classes]"""
    first, second = np.asarray(pairs).T
    classes = np.arange(len(np.unique(pairs)))
    wins = gf.expand_dims(scores > 0, -1)
    to = gf.where(wins, gf.constant(first[:, None] == classes), second[:, None] == classes)
    return gf.sum(gf.astype(to, gf.int64), axis=1)


def _probabilities(
    node: ModelNode, scores: Tensor, pairs: Sequence[tuple[int, int]], classes: int
) -> Tensor:
    """Return each class's probability.  scores: [N, pairs] -> [N, classes]

    Platt's sigmoids say how likely a class is against another; Wu, Lin and Weng's second way
    (Probability Estimates for Multi-class Classification by Pairwise Coupling, 2004) joins these,
    iterated as in LIBSVM.
    """
    a, b = _floats(node, "prob_a"), _floats(node, "prob_b")
    node.require(len(a) == len(b) == len(pairs), f"prob_a and prob_b are not {len(pairs)} each")
    one = gf.sigmoid(-(scores * gf.constant(a) + gf.constant(b)))
    one = gf.clip(one, _LEAST, 1 - _LEAST)
    indices = np.zeros((classes, classes), np.int64)  # row: of which class, column: against which
    for number, (i, j) in enumerate(pairs):
        indices[i, j], indices[j, i] = number, len(pairs) + number
    both = gf.concat([one, 1 - one], axis=1)[:, gf.constant(indices)]
    apart = gf.constant(~np.eye(classes, dtype=bool))
    other = gf.where(apart, gf.swapaxes(both, 1, 2), 0.0)
    squares = gf.sum(gf.square(other), axis=2, keepdims=True)
    return _coupled(gf.where(apart, -other * both, squares), classes)


def _coupled(q: Tensor, classes: int) -> Tensor:
    """Return the p that minimise p q p, each row's with the sum 1.  q: [N, C, C] -> [N, C]"""
    rows = (gf.swapaxes(q, 0, 1), gf.constant(np.eye(classes, dtype=bool)))

    def products(p: Tensor) -> tuple[Tensor, Tensor]:
        qp = gf.sum(q * gf.expand_dims(p, 1), axis=2)
        return qp, gf.sum(p * qp, axis=1, keepdims=True)

    def is_open(p: Tensor) -> Tensor:
        qp, total = products(p)
        return gf.max(gf.abs(qp - total), axis=1, keepdims=True) >= _ERROR / classes

    def step(carry: Any, row: Any) -> tuple[Any, None]:
        p, qp, total = carry
        line, is_here = row  # one class: a line of q for each row of scores
        own, here = (gf.sum(gf.where(is_here, v, 0.0), axis=1, keepdims=True) for v in (line, qp))
        more = (total - here) / own
        whole = 1 + more
        total = (total + more * (more * own + 2 * here)) / whole / whole
        p = (p + gf.where(is_here, more, 0.0)) / whole
        return (p, (qp + more * line) / whole, total), None

    def iteration(state: Any) -> Any:
        number, p = state
        (made, _, _), _ = gf.scan(step, (p, *products(p)), rows)
        return number + 1, gf.where(is_open(p), made, p)

    def goes_on(state: Any) -> Tensor:
        number, p = state
        return gf.logical_and(number < max(_ITERATIONS, classes), gf.any(is_open(p)))

    start = gf.zeros((q.shape[0], classes)) + 1 / classes
    p: Tensor = gf.while_loop(goes_on, iteration, (gf.asarray(0), start))[1]
    return p
