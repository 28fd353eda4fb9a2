"""Operators on strings. These are computed when a model is loaded."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.node import ModelNode, Strings, Value
from graphfw.onnx.optional.regex import Pattern, PatternError
from graphfw.onnx.table import reads


@reads("StringConcat")
def _concat(node: ModelNode, a: Strings, b: Strings) -> Strings:
    return Strings(np.asarray(a.array + b.array, object))


@reads("StringSplit")
def _split(node: ModelNode, x: Strings) -> tuple[Strings, Tensor]:
    delimiter = node.attr("delimiter", "") or None
    most = node.attr("maxsplit", -1)
    substrings = [v.split(delimiter, most) for v in x.array.ravel()]
    width = max([len(p) for p in substrings], default=0)
    made = np.asarray([p + [""] * (width - len(p)) for p in substrings], object)
    counts = np.asarray([len(p) for p in substrings], np.int64).reshape(x.array.shape)
    return Strings(made.reshape(*x.array.shape, width)), gf.constant(counts)


@reads("StringNormalizer")
def _normalise(node: ModelNode, x: Strings) -> Strings:
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(node.attr("case_change_action", "NONE"))
    stops = set(node.attr("stopwords", ()))
    is_sensitive = bool(node.attr("is_case_sensitive", 0))
    if not is_sensitive:
        stops = {s.lower() for s in stops}
    kept = [v for v in x.array.ravel() if (v if is_sensitive else v.lower()) not in stops]
    made = [change(v) if change else v for v in kept] or [""]
    array = np.asarray(made, object)
    return Strings(array.reshape(1, -1) if x.array.ndim == 2 else array)


@reads("RegexFullMatch")
def _match(node: ModelNode, x: Strings) -> Tensor:
    try:
        pattern = Pattern(node.attr("pattern"))
        found = [pattern.matches(text) for text in x.array.ravel()]
    except PatternError as error:
        raise OnnxError(f"RegexFullMatch: the pattern {node.attr('pattern')!r}: {error}") from None
    return gf.constant(np.asarray(found, bool).reshape(x.array.shape))


_MOST_COUNTS = 1 << 20


@reads("TfIdfVectorizer")
def _tf_idf(node: ModelNode, x: Value) -> Tensor:
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
        pool_slice = pool[begin:end]
        for at in range(0, len(pool_slice), size):
            grams[tuple(pool_slice[at : at + size])] = number
            number += 1
    node.require(number <= len(indexes), f"{number} n-grams have {len(indexes)} ngram_indexes")
    array = x.array if isinstance(x, Strings) else node.known(node.tensor(x, "x"), "x")
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
