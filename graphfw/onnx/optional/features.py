"""Operators of the domain ai.onnx.ml on features and maps, and linear models.

The scores and labels of classifiers are made here for all modules of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.tensor import Tensor
from graphfw.onnx.fitting import sized
from graphfw.onnx.node import Map, Maps, ModelNode, Strings, Value, as_value
from graphfw.onnx.table import reads

ML = "ai.onnx.ml"

POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The post-transforms, in the order of the numbers that opset 5 has for them."""

_MOST_KEYS = 1 << 20

_ZERO = 1e-7
"""The number that SOFTMAX_ZERO takes for zero, in ONNX's reference and in ONNX Runtime."""


# Features


@reads("ArrayFeatureExtractor", domain=ML, moves=True)
def _extract(node: ModelNode, x: Tensor, indices: Tensor) -> Tensor:
    made = gf.take(x, gf.reshape(indices, (-1,)), axis=-1)
    return gf.reshape(made, (1, -1)) if x.ndim == 1 else made


@reads("Binarizer", domain=ML)
def _binarize(node: ModelNode, x: Tensor) -> Tensor:
    return gf.astype(x > node.attr("threshold", 0.0), x.dtype)


@reads("FeatureVectorizer", domain=ML)
def _vectorize(node: ModelNode, *xs: Tensor) -> Tensor:
    sizes = node.attr("inputdimensions", ())
    node.require(
        len(sizes) == len(xs),
        f"it has {len(sizes)} inputdimensions for {counted(len(xs), 'input')}",
    )
    rows = [gf.reshape(x, (1, -1)) if x.ndim == 1 else x for x in xs]
    columns = [gf.astype(x[:, :size], gf.float32) for x, size in zip(rows, sizes, strict=True)]
    return gf.concat(columns, axis=1)


@reads("Imputer", domain=ML)
def _impute(node: ModelNode, x: Tensor) -> Tensor:
    kind = "floats" if x.dtype.is_floating else "int64s"
    values = np.asarray(node.attr(f"imputed_value_{kind}", ()), x.dtype.dtype)
    node.require(len(values), f"it has no imputed_value_{kind}")
    if kind == "floats":
        replaced = node.attr("replaced_value_float", 0.0)
    else:
        replaced = node.attr("replaced_value_int64", 0)
    lacks = gf.isnan(x) if np.isnan(replaced) else gf.equal(x, replaced)
    return gf.where(lacks, gf.constant(values), x)


@reads("Normalizer", domain=ML)
def _normalise(node: ModelNode, x: Tensor) -> Tensor:
    x = gf.astype(x, gf.float32)
    kind = node.choice("norm", "MAX", ("L1", "L2", "MAX"))
    if kind == "MAX":
        norm = gf.max(x, axis=-1, keepdims=True)
    elif kind == "L1":
        norm = gf.sum(gf.abs(x), axis=-1, keepdims=True)
    else:
        norm = gf.sqrt(gf.sum(gf.square(x), axis=-1, keepdims=True))
    return gf.where(norm == 0, x, x / norm)


@reads("OneHotEncoder", domain=ML)
def _one_hot(node: ModelNode, x: Value) -> Tensor:
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


@reads("Scaler", domain=ML)
def _scale(node: ModelNode, x: Tensor) -> Tensor:
    offset, scale = (np.asarray(node.attr(n, ()), np.float32) for n in ("offset", "scale"))
    node.require(len(offset) == len(scale) > 0, "offset and scale have different lengths")
    x = x if len(scale) == 1 else sized(x, x.ndim - 1, len(scale))
    return (gf.astype(x, gf.float32) - gf.constant(offset)) * gf.constant(scale)


# Maps


@reads("ZipMap", domain=ML)
def _zip_map(node: ModelNode, x: Tensor) -> Maps:
    labels = node.attr("classlabels_strings", ()) or node.attr("classlabels_int64s", ())
    row = gf.reshape(x, (1, -1)) if x.ndim == 1 else x
    fits = row.ndim == 2 and (not isinstance(row.shape[1], int) or row.shape[1] == len(labels))
    node.require(labels and fits, f"its {counted(len(labels), 'label')} don't fit x, {x.shape}")
    return Maps(labels, row)


@reads("DictVectorizer", domain=ML)
def _vectorize_map(node: ModelNode, x: Map) -> Value:
    """Lay out the values in the order of a vocabulary.  -> [1, words]"""
    keys = node.attr("string_vocabulary", ()) or node.attr("int64_vocabulary", ())
    unknown = [key for key in x.items if key not in keys]
    node.require(not unknown, f"the map's key {unknown[:1]} is not in its vocabulary")
    return as_value(np.asarray([[x.items.get(key, x.empty) for key in keys]], x.dtype))


@reads("CastMap", domain=ML)
def _cast_map(node: ModelNode, x: Map) -> Value:
    """Lay out the values in the order of their keys, or each at its key.  -> [1, values]"""
    if node.choice("map_form", "DENSE", ("DENSE", "SPARSE")) == "DENSE":
        row = [x.items[key] for key in sorted(x.items)]
    else:
        count = node.attr("max_map", 1)
        node.require(0 <= count <= _MOST_KEYS, f"max_map is not from 0 to {_MOST_KEYS}")
        inside = 0 <= min(x.items, default=0) and max(x.items, default=0) < count
        node.require(inside, f"a key of the map is not from 0 to max_map - 1, {count - 1}")
        row = [x.items.get(key, x.empty) for key in range(count)]
    to = node.choice("cast_to", "TO_FLOAT", ("TO_FLOAT", "TO_INT64", "TO_STRING"))
    if to == "TO_STRING":
        return Strings([[v if isinstance(v, str) else f"{v:f}" for v in row]])
    numbers = np.asarray([[float(v or 0) for v in row]], np.float32)
    return gf.constant(numbers if to == "TO_FLOAT" else numbers.astype(np.int64))


# Linear models


@reads("LinearRegressor", domain=ML)
def _linear_regressor(node: ModelNode, x: Tensor) -> Tensor:
    made = _linear(node, x, node.attr("targets", 1))
    return transformed(made, node.choice("post_transform", "NONE", POST_TRANSFORMS))


@reads("LinearClassifier", domain=ML)
def _linear_classifier(node: ModelNode, x: Tensor) -> tuple[Value, Tensor]:
    labels = node.attr("classlabels_strings", ()) or node.attr("classlabels_ints", ())
    count = len(node.attr("intercepts", ())) or len(labels)
    scores = _linear(node, x, count)
    transform = node.choice("post_transform", "NONE", POST_TRANSFORMS)
    if count == 1 and len(labels) == 2:
        node.require(transform != "PROBIT", "PROBIT of one score for two classes is not defined")
        return two_classes(node, scores[:, 0], labels, transform, 0.0, adds_up=True)
    return labelled(node, gf.argmax(scores, axis=-1), labels), transformed(scores, transform)


def _linear(node: ModelNode, x: Tensor, count: int) -> Tensor:
    """Return products with the coefficients.  x: [N, F] -> [N, count]"""
    weights = np.asarray(node.attr("coefficients"), np.float32)
    node.require(
        count > 0 and not len(weights) % count,
        f"its coefficients don't fit {counted(count, 'row')}",
    )
    row = gf.reshape(x, (1, -1)) if x.ndim == 1 else x
    row = sized(row, row.ndim - 1, len(weights) // count)
    made = gf.astype(row, gf.float32) @ gf.constant(weights.reshape(count, -1).T.copy())
    shift = np.asarray(node.attr("intercepts", ()), np.float32)
    node.require(
        len(shift) in (0, count),
        f"it has {counted(len(shift), 'intercept')} for {counted(count, 'row')}",
    )
    return made + gf.constant(shift) if len(shift) else made


# What classifiers and regressors share


def labelled(node: ModelNode, indices: Tensor, labels: Sequence[Any]) -> Value:
    """Return the labels at indices."""
    node.require(len(labels), "it has no labels")
    if isinstance(labels[0], str):
        return node.strings(labels, indices)
    return gf.constant(np.asarray(labels, np.int64))[indices]


def two_classes(
    node: ModelNode,
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
    indices = gf.astype(score > threshold, gf.int64)
    return labelled(node, indices, labels), paired(score, transform, adds_up=adds_up)


def paired(score: Tensor, transform: str, *, adds_up: bool) -> Tensor:
    """Return the scores of two classes of which one has this score.  [N] -> [N, 2]"""
    if transform == "LOGISTIC":
        pair = [gf.sigmoid(-score), gf.sigmoid(score)]
    elif adds_up:
        pair = [1 - score, score]
    else:
        pair = [-score, score]
    return gf.stack(pair, axis=-1)


def transformed(x: Tensor, kind: str) -> Tensor:
    """Return scores as a model's `post_transform` has them.  x: [N, classes]"""
    if kind == "SOFTMAX":
        return gf.softmax(x, axis=-1)
    if kind == "LOGISTIC":
        return gf.sigmoid(x)
    if kind == "PROBIT":
        return gf.erfinv(2 * x - 1) * float(np.sqrt(2))
    if kind == "SOFTMAX_ZERO":
        most = gf.max(x, axis=-1, keepdims=True)
        powers = gf.where(gf.abs(x) <= _ZERO, x * gf.exp(-most), gf.exp(x - most))
        total = gf.sum(powers, axis=-1, keepdims=True)
        return gf.where(total == 0, 0.5, powers / total)
    return x
