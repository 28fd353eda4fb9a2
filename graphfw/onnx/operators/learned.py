"""Classical machine learning, the domain ai.onnx.ml: what prepares features, and linear models.

Trees have a module of their own, and so have strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import Call, Strings, Value, operator

ML = "ai.onnx.ml"

POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""By the numbers that opset 5 has for them."""


# Features


@operator("ArrayFeatureExtractor", domain=ML)
def _extract(node: Call, x: Value, places: Tensor) -> Value:
    if isinstance(x, Strings):
        found = x.array[..., node.known(places, "the places").reshape(-1)]
        return Strings(found.reshape(1, -1) if x.array.ndim == 1 else found)
    assert isinstance(x, Tensor)
    made = gf.take(x, gf.reshape(places, (-1,)), axis=-1)
    return gf.reshape(made, (1, -1)) if x.ndim == 1 else made


@operator("Binarizer", domain=ML)
def _binarize(node: Call, x: Tensor) -> Tensor:
    return gf.astype(x > node.attr("threshold", 0.0), x.dtype)


@operator("FeatureVectorizer", domain=ML)
def _vectorize(node: Call, *xs: Tensor) -> Tensor:
    sizes = node.attr("inputdimensions", ())
    node.require(len(sizes) == len(xs), f"it has {len(sizes)} inputdimensions for {len(xs)} inputs")
    rows = [gf.reshape(x, (1, -1)) if x.ndim == 1 else x for x in xs]
    parts = [gf.astype(x[:, :size], gf.float32) for x, size in zip(rows, sizes, strict=True)]
    return gf.concat(parts, axis=1)


@operator("Imputer", domain=ML)
def _impute(node: Call, x: Tensor) -> Tensor:
    kind = "floats" if x.dtype.is_floating else "int64s"
    values = np.asarray(node.attr(f"imputed_value_{kind}", ()), x.dtype.dtype)
    node.require(len(values), f"it has no imputed_value_{kind}")
    if kind == "floats":
        replaced = node.attr("replaced_value_float", 0.0)
    else:
        replaced = node.attr("replaced_value_int64", 0)
    lacks = gf.isnan(x) if np.isnan(replaced) else gf.equal(x, replaced)
    return gf.where(lacks, gf.constant(values), x)


@operator("Normalizer", domain=ML)
def _normalise(node: Call, x: Tensor) -> Tensor:
    x = gf.astype(x, gf.float32)
    kind = node.choice("norm", "MAX", ("L1", "L2", "MAX"))
    if kind == "MAX":
        norm = gf.max(x, axis=-1, keepdims=True)
    elif kind == "L1":
        norm = gf.sum(gf.abs(x), axis=-1, keepdims=True)
    else:
        norm = gf.sqrt(gf.sum(gf.square(x), axis=-1, keepdims=True))
    return gf.where(norm == 0, x, x / norm)


@operator("OneHotEncoder", domain=ML)
def _one_hot(node: Call, x: Value) -> Tensor:
    strings, numbers = node.attr("cats_strings", ()), node.attr("cats_int64s", ())
    is_lenient = bool(node.attr("zeros", 1))
    if isinstance(x, Strings):
        hot = x.array[..., None] == np.asarray(strings, object)
        node.require(is_lenient or hot.any(axis=-1).all(), "a string is none of cats_strings")
        return gf.constant(hot.astype(np.float32))
    assert isinstance(x, Tensor)
    node.require(is_lenient, "zeros=0 is not supported: an error would depend on values")
    return gf.astype(
        gf.equal(
            gf.expand_dims(gf.astype(x, gf.int64), -1), gf.constant(np.asarray(numbers, np.int64))
        ),
        gf.float32,
    )


@operator("Scaler", domain=ML)
def _scale(node: Call, x: Tensor) -> Tensor:
    offset, scale = (np.asarray(node.attr(n, ()), np.float32) for n in ("offset", "scale"))
    node.require(len(offset) == len(scale) > 0, "offset and scale have different lengths")
    return (gf.astype(x, gf.float32) - gf.constant(offset)) * gf.constant(scale)


@operator("ZipMap", domain=ML)
def _zip_map(node: Call, x: Tensor) -> Tensor:
    node.require(
        False,
        "it makes a dictionary for each example, which no graph has; load what it is made from, "
        f"outputs=[{node.inputs[0]!r}], or convert the model without it (zipmap=False)",
    )
    return x


# Linear models


@operator("LinearRegressor", domain=ML)
def _linear_regressor(node: Call, x: Tensor) -> Tensor:
    made = _linear(node, x, node.attr("targets", 1))
    return transformed(made, node.choice("post_transform", "NONE", POST_TRANSFORMS))


@operator("LinearClassifier", domain=ML)
def _linear_classifier(node: Call, x: Tensor) -> tuple[Value, Tensor]:
    labels = node.attr("classlabels_strings", ()) or node.attr("classlabels_ints", ())
    count = len(node.attr("intercepts", ())) or len(labels)
    scores = _linear(node, x, count)
    transform = node.choice("post_transform", "NONE", POST_TRANSFORMS)
    if count == 1 and len(labels) == 2:
        node.require(transform != "PROBIT", "PROBIT of one score for two classes is not defined")
        return two_classes(node, scores[:, 0], labels, transform, 0.0, adds_up=True)
    return labelled(node, gf.argmax(scores, axis=-1), labels), transformed(scores, transform)


def _linear(node: Call, x: Tensor, count: int) -> Tensor:
    """Return products with the coefficients.  x: [N, F] -> [N, count]"""
    weights = np.asarray(node.attr("coefficients"), np.float32)
    node.require(count > 0 and not len(weights) % count, f"its coefficients don't fit {count} rows")
    row = gf.reshape(x, (1, -1)) if x.ndim == 1 else x
    made = gf.astype(row, gf.float32) @ gf.constant(weights.reshape(count, -1).T.copy())
    shift = np.asarray(node.attr("intercepts", ()), np.float32)
    node.require(len(shift) in (0, count), f"it has {len(shift)} intercepts for {count} rows")
    return made + gf.constant(shift) if len(shift) else made


# What classifiers and regressors share


def labelled(node: Call, places: Tensor, labels: Sequence[Any]) -> Value:
    """Return the labels at places; strings only where the places are known."""
    node.require(len(labels), "it has no labels")
    if isinstance(labels[0], str):
        return Strings(np.asarray(labels, object)[node.known(places, "labels are strings: x")])
    return gf.constant(np.asarray(labels, np.int64))[places]


def two_classes(
    node: Call,
    score: Tensor,
    labels: Sequence[Any],
    transform: str,
    threshold: float,
    *,
    adds_up: bool,
) -> tuple[Value, Tensor]:
    """Return labels and scores where one score decides between two classes.  score: [N]

    As ONNX Runtime does it, for the operators' description leaves it open: the first class has the
    rest to 1 where scores are probabilities, and else the score's negative.
    """
    places = gf.astype(score > threshold, gf.int64)
    if transform == "LOGISTIC":
        pair = [gf.sigmoid(-score), gf.sigmoid(score)]
    elif adds_up:
        pair = [1 - score, score]
    else:
        pair = [-score, score]
    return labelled(node, places, labels), gf.stack(pair, axis=-1)


def transformed(x: Tensor, kind: str) -> Tensor:
    """Return scores as a model's `post_transform` has them.  x: [N, classes]"""
    if kind == "SOFTMAX":
        return gf.softmax(x, axis=-1)
    if kind == "LOGISTIC":
        return gf.sigmoid(x)
    if kind == "PROBIT":
        return gf.erfinv(2 * x - 1) * float(np.sqrt(2))
    if kind == "SOFTMAX_ZERO":
        zero = x == 0
        parts = gf.where(zero, gf.zeros_like(x), gf.exp(x - gf.max(x, axis=-1, keepdims=True)))
        total = gf.sum(parts, axis=-1, keepdims=True)
        return gf.where(total == 0, parts, parts / total)
    return x
