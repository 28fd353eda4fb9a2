"""Operators on strings. These are computed when a model is loaded."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.node import Call, Strings, Value, operator


@operator("StringConcat")
def _concat(node: Call, a: Strings, b: Strings) -> Strings:
    return Strings(np.asarray(a.array + b.array, object))


@operator("StringSplit")
def _split(node: Call, x: Strings) -> tuple[Strings, Tensor]:
    delimiter = node.attr("delimiter", "") or None
    most = node.attr("maxsplit", -1)
    parts = [v.split(delimiter, most) for v in x.array.ravel()]
    width = max([len(p) for p in parts], default=0)
    made = np.asarray([p + [""] * (width - len(p)) for p in parts], object)
    counts = np.asarray([len(p) for p in parts], np.int64).reshape(x.array.shape)
    return Strings(made.reshape(*x.array.shape, width)), gf.constant(counts)


@operator("StringNormalizer")
def _normalise(node: Call, x: Strings) -> Strings:
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(node.attr("case_change_action", "NONE"))
    stops = set(node.attr("stopwords", ()))
    is_sensitive = bool(node.attr("is_case_sensitive", 0))
    if not is_sensitive:
        stops = {s.lower() for s in stops}
    kept = [v for v in x.array.ravel() if (v if is_sensitive else v.lower()) not in stops]
    made = [change(v) if change else v for v in kept] or [""]
    array = np.asarray(made, object)
    return Strings(array.reshape(1, -1) if x.array.ndim == 2 else array)


@operator("RegexFullMatch")
def _match(node: Call, x: Strings) -> Tensor:
    try:
        pattern = re.compile(node.attr("pattern"))
    except re.error as error:
        raise OnnxError(f"RegexFullMatch: the pattern is broken: {error}") from None
    found = [bool(pattern.fullmatch(v)) for v in x.array.ravel()]
    return gf.constant(np.asarray(found, bool).reshape(x.array.shape))


@operator("LabelEncoder", domain="ai.onnx.ml")
def _encode(node: Call, x: Value) -> Value:
    """Replace each key by its value."""
    if "classes_strings" in node.attributes:  # opset 1
        return _mapped(node, x, node.attr("classes_strings"))
    keys = _either(node, "keys", ("strings", "int64s", "floats", "tensor"))
    values = _either(node, "values", ("strings", "int64s", "floats", "tensor"))
    if isinstance(values[0], str):
        default: Any = node.attr("default_string", "_Unused")
    elif "default_tensor" in node.attributes:
        default = node.attr("default_tensor").reshape(-1)[0]
    elif isinstance(values[0], int):
        default = node.attr("default_int64", -1)
    else:
        default = node.attr("default_float", -0.0)
    table = dict(zip(keys, values, strict=True))
    array = x.array if isinstance(x, Strings) else node.known(x, "x")  # type: ignore[arg-type]
    made = [table.get(v, default) for v in array.ravel().tolist()]
    if isinstance(values[0], str):
        return Strings(np.asarray(made, object).reshape(array.shape))
    typed = node.attributes.get("values_tensor")
    dtype = typed.dtype if typed is not None else np.asarray(values).dtype
    if "values_floats" in node.attributes:
        dtype = np.dtype(np.float32)
    return gf.constant(np.asarray(made, dtype).reshape(array.shape))


def _either(node: Call, what: str, kinds: tuple[str, ...]) -> list[Any]:
    for kind in kinds:
        value = node.attributes.get(f"{what}_{kind}")
        if value is not None:
            return list(np.asarray(value).ravel().tolist())
    raise OnnxError(f"LabelEncoder: it has no {what}")


@operator("CategoryMapper", domain="ai.onnx.ml")
def _category(node: Call, x: Value) -> Value:
    strings, numbers = node.attr("cats_strings", ()), node.attr("cats_int64s", ())
    node.require(len(strings) == len(numbers), "cats_strings and cats_int64s differ in length")
    return _mapped(node, x, strings, numbers)


def _mapped(
    node: Call, x: Value, strings: Sequence[str], numbers: Sequence[int] | None = None
) -> Value:
    """Replace strings by their numbers, or numbers by their strings; by default their places."""
    numbers = range(len(strings)) if numbers is None else numbers
    if isinstance(x, Strings):
        to_number = dict(zip(strings, numbers, strict=True))
        default = node.attr("default_int64", -1)
        made = [to_number.get(v, default) for v in x.array.ravel()]
        return gf.constant(np.asarray(made, np.int64).reshape(x.array.shape))
    assert isinstance(x, Tensor)
    to_string = dict(zip(numbers, strings, strict=True))
    array = node.known(x, "numbers become strings: x")
    fallback = node.attr("default_string", "_Unused")
    return Strings([to_string.get(v, fallback) for v in array.ravel().tolist()]).shaped(array.shape)


_MOST_COUNTS = 1 << 20


@operator("TfIdfVectorizer")
def _tf_idf(node: Call, x: Value) -> Tensor:
    """Count n-grams.  x: [C] or [N, C] -> [..., the largest index + 1]"""
    shortest, longest = node.attr("min_gram_length"), node.attr("max_gram_length")
    skips, starts = node.attr("max_skip_count"), [*node.attr("ngram_counts"), None]
    pool = node.attr("pool_strings", ()) or node.attr("pool_int64s", ())
    indexes = node.attr("ngram_indexes")
    node.require(
        0 <= min(indexes, default=0) and max(indexes, default=0) < _MOST_COUNTS,
        f"ngram_indexes are not from 0 to {_MOST_COUNTS - 1}",
    )
    grams: dict[tuple[Any, ...], int] = {}
    number = 0
    for size, (begin, end) in enumerate(itertools.pairwise(starts), 1):
        part = pool[begin:end]
        for at in range(0, len(part), size):
            grams[tuple(part[at : at + size])] = number
            number += 1
    node.require(number <= len(indexes), f"{number} n-grams have {len(indexes)} ngram_indexes")
    array = x.array if isinstance(x, Strings) else node.known(x, "x")  # type: ignore[arg-type]
    rows = np.atleast_2d(array)
    counts = np.zeros((len(rows), max(indexes, default=-1) + 1), np.float32)
    for row, items in zip(counts, rows.tolist(), strict=True):
        for size in range(max(shortest, 1), min(longest, len(items)) + 1):
            for skip in range(1, min(skips, len(items)) + 2 if size > 1 else 2):
                for at in range(len(items) - (size - 1) * skip):
                    found = grams.get(tuple(items[at : at + size * skip : skip][:size]))
                    if found is not None:
                        row[indexes[found]] += 1
    weights = np.ones(counts.shape[1], np.float32)
    for index, weight in zip(indexes, node.attr("weights", ()), strict=False):
        weights[index] = weight
    mode = node.choice("mode", "TF", ("IDF", "TF", "TFIDF"))
    made = (
        counts if mode == "TF" else (counts > 0) * (weights if mode == "IDF" else counts * weights)
    )
    return gf.constant(made.astype(np.float32).reshape(*array.shape[:-1], -1))
