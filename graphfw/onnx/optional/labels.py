"""Tables from labels to labels, of which either may be strings: LabelEncoder, CategoryMapper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import ModelNode, Strings, Value
from graphfw.onnx.optional.features import ML
from graphfw.onnx.table import reads


@reads("LabelEncoder", domain=ML)
def _encode(node: ModelNode, x: Tensor | Strings) -> Value:
    """Replace each key by its value."""
    if "classes_strings" in node.attributes:  # opset 1
        strings = node.attr("classes_strings")
        return _replaced(node, x, strings, np.arange(len(strings)))
    keys, values = _column(node, "keys"), _column(node, "values")
    node.require(
        len(keys) == len(values),
        f"it has {counted(len(keys), 'key')} for {counted(len(values), 'value')}",
    )
    if "default_tensor" in node.attributes:
        default: Any = node.attr("default_tensor").reshape(-1)[0]
    elif values.dtype == object:
        default = node.attr("default_string", "_Unused")
    elif values.dtype.kind == "i":
        default = node.attr("default_int64", -1)
    else:
        default = node.attr("default_float", -0.0)
    return _mapped(node, x, keys, values, default)


def _column(node: ModelNode, what: str) -> Any:
    """Return the keys or the values, in whichever attribute they are."""
    for kind, dtype in (("strings", object), ("int64s", np.int64), ("floats", np.float32)):
        if f"{what}_{kind}" in node.attributes:
            return np.asarray(node.attr(f"{what}_{kind}"), dtype)
    return node.attr(f"{what}_tensor").reshape(-1)


@reads("CategoryMapper", domain=ML)
def _category(node: ModelNode, x: Tensor | Strings) -> Value:
    strings, numbers = node.attr("cats_strings", ()), node.attr("cats_int64s", ())
    node.require(len(strings) == len(numbers), "cats_strings and cats_int64s differ in length")
    return _replaced(node, x, strings, np.asarray(numbers, np.int64))


def _replaced(node: ModelNode, x: Tensor | Strings, strings: Sequence[str], numbers: Any) -> Value:
    """Replace strings by their numbers, or numbers by their strings."""
    texts = np.asarray(strings, object)
    if isinstance(x, Strings):
        return _mapped(node, x, texts, numbers, node.attr("default_int64", -1))
    return _mapped(node, x, numbers, texts, node.attr("default_string", "_Unused"))


def _mapped(node: ModelNode, x: Tensor | Strings, keys: Any, values: Any, default: Any) -> Value:
    """Replace each key by its value, and what is no key by the default."""
    node.require(
        (keys.dtype == object) == isinstance(x, Strings), "its keys are not of the type of x"
    )
    row = {key: index for index, key in enumerate(keys.tolist())}
    if isinstance(x, Strings):
        rows = np.asarray([row.get(text, len(keys)) for text in x.table], np.int64)
        indices = gf.constant(rows)[x.indices]
    else:
        indices = _found(x, keys)
    table = np.asarray([*values.tolist(), default], values.dtype)
    if values.dtype == object:
        return node.strings(table, indices)
    return gf.constant(table)[indices]


def _found(x: Tensor, keys: Any) -> Tensor:
    """Return the last index of each number among the keys; where there is none, their count."""
    missing = np.isnan(keys)
    order = np.argsort(keys, kind="stable")[: len(keys) - missing.sum()]
    indices = gf.full(x.shape, len(keys), dtype=gf.int64)
    if len(order):
        ordered = gf.constant(keys[order])
        at = gf.maximum(gf.searchsorted(ordered, x, side="right") - 1, 0)
        indices = gf.where(gf.equal(ordered[at], x), gf.constant(order)[at], indices)
    if missing.any():
        indices = gf.where(gf.isnan(x), int(np.flatnonzero(missing)[-1]), indices)
    return indices
