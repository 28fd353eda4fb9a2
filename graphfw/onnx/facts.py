"""Values that are known when a model is loaded: constants, and sizes computed from shapes.

Models compute the shapes that they reshape to: Shape, Gather, Concat. In a graph these are ordinary
nodes on `dim_value`. Here such nodes are evaluated by their ops' own reference `eval` on arrays of
Python objects, whose elements are ints and symbolic dims; in floats, numbers and `Ratio`s.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from graphfw.errors import GraphfwError
from graphfw.ir.dim import Dim, DimLike, always_ge, dim_max, dim_min
from graphfw.ir.op import EFFECT, RANDOM, SOURCE
from graphfw.ir.sources import DimValue, Placeholder
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import ancestors
from graphfw.onnx.ratios import Ratio

Array = np.ndarray[Any, Any]

_MOST = 1 << 24
"""Elements of a value that is computed when a model is loaded."""

_KEPT = 1 << 12
"""Elements of a value that is kept when it is not the one that was asked for."""

_MOST_WORK = 1 << 36
"""Operations that are spent on values while a model is loaded."""

# Ops that mean the same of symbolic dims as of ints.
_PLAIN = frozenset(
    "add broadcast_to concat flip floor_divide gather identity index_set multiply negative "
    "permute_dims prod remainder reshape roll slice slice_set split stop_gradient subtract sum "
    "where".split()
)


def _decided(yes: bool, no: bool) -> bool:
    if yes or no:
        return yes
    raise TypeError("that depends on the sizes")


def _equal(a: DimLike, b: DimLike) -> bool:
    return _decided(a == b, always_ge(a - 1, b) or always_ge(b - 1, a))


def _less(a: DimLike, b: DimLike) -> bool:
    return _decided(always_ge(b - 1, a), always_ge(a, b))


# Those that NumPy would ask the elements' order for, or take as equal only what is equal always.
_DECIDED: dict[str, Callable[..., Any]] = {
    "equal": _equal,
    "not_equal": lambda a, b: not _equal(a, b),
    "less": _less,
    "less_equal": lambda a, b: not _less(b, a),
    "greater": lambda a, b: _less(b, a),
    "greater_equal": lambda a, b: not _less(a, b),
    "maximum": dim_max,
    "minimum": dim_min,
}


_OF_RATIOS: dict[str, Callable[..., Any]] = {
    "divide": operator.truediv,
    "reciprocal": lambda x: 1 / x,
    "floor": lambda x: x.floor() if isinstance(x, Ratio) else math.floor(x),
    "ceil": lambda x: x.ceil() if isinstance(x, Ratio) else math.ceil(x),
}


def _as_real(x: Any) -> Any:
    return Ratio(x, 1) if isinstance(x, Dim) else x


def _as_size(x: Any) -> DimLike:
    if isinstance(x, Dim):
        return x
    return x.integer() if isinstance(x, Ratio) else int(x)


class Facts:
    """The values that are known of a graph's tensors, each computed once.

    Attributes:
        measures: Whether runs may find out sizes that are not known.
    """

    def __init__(self, measures: bool = True) -> None:
        self.measures = measures
        self._values: dict[Node, tuple[Array | None, ...]] = {}
        self._work = 0

    def value(self, x: Tensor) -> Array | None:
        """Return a tensor's value; None if it depends on what is fed.

        An array of dtype object has symbolic dims among its elements, or `Ratio`s.
        """
        new = [n for n in ancestors([x], stop=self._values.__contains__) if n not in self._values]
        uses = Counter(t.node for node in new for t in node.inputs)
        fresh = set(new)
        for node in new:
            self._values[node] = self._evaluated(node)
            for source in {t.node for t in node.inputs}:
                uses[source] -= sum(t.node is source for t in node.inputs)
                if not uses[source] and source in fresh and self._is_large(source):
                    del self._values[source]  # computed again, if it should be asked for
        return self._values[x.node][x.index]

    def _is_large(self, node: Node) -> bool:
        return any(v is not None and v.size > _KEPT for v in self._values[node])

    def inputs(self, x: Tensor) -> tuple[str, ...]:
        """Return the names of the placeholders whose values a tensor depends on."""
        return tuple([n.name for n in ancestors([x]) if isinstance(n.op, Placeholder) and n.name])

    def _evaluated(self, node: Node) -> tuple[Array | None, ...]:
        unknown = (None,) * len(node.types)
        if isinstance(node.op, DimValue):
            dim = node.op.dim
            return (_objects(dim) if isinstance(dim, Dim) else np.asarray(dim, np.int64),)
        inputs = [self._values[t.node][t.index] for t in node.inputs]
        arrays = [x for x in inputs if x is not None]
        traits = node.op.traits
        if len(arrays) < len(inputs) or traits & {RANDOM, EFFECT} or _is_unknown(node):
            return unknown
        if not _is_small(node):
            return unknown
        operations = node.op.cost(node.types, *[t.type for t in node.inputs]).flops
        if isinstance(operations, Dim) or self._work + operations > _MOST_WORK:
            return unknown
        self._work += operations
        try:
            if any(x.dtype == object for x in arrays):
                return _symbolic(node, arrays)
            with np.errstate(all="ignore"):
                result = node.op.eval(np, *arrays)
        except (GraphfwError, TypeError, ValueError, ArithmeticError, LookupError, MemoryError):
            return unknown
        return tuple(result) if node.op.multiple else (result,)


def _is_unknown(node: Node) -> bool:
    """Return whether a node is a placeholder, a variable or a parameter."""
    return not node.inputs and SOURCE in node.op.traits and node.op.name != "constant"


def _is_small(node: Node) -> bool:
    for kind in node.types:
        size = 1
        for dim in kind.shape:
            if isinstance(dim, Dim):
                return False
            size *= dim
        if size > _MOST:
            return False
    return True


def _symbolic(node: Node, arrays: list[Array]) -> tuple[Array | None, ...]:
    name = node.op.name
    dtype = node.types[0].dtype
    if name == "astype":
        if not (dtype.is_integer or dtype.is_floating):
            return (None,)
        made = np.frompyfunc(_as_size if dtype.is_integer else _as_real, 1, 1)(arrays[0])
        return (_settled(np.asarray(made, object), dtype.dtype),)
    if name in _OF_RATIOS and dtype.is_floating:
        made = np.frompyfunc(_OF_RATIOS[name], len(arrays), 1)(*arrays)
        return (_settled(np.asarray(made, object), dtype.dtype),)
    if name in _DECIDED and not node.inputs[0].dtype.is_floating:
        made = np.frompyfunc(_DECIDED[name], 2, 1)(*arrays)
        return (_settled(np.asarray(made, object), dtype.dtype),)
    if name not in _PLAIN:
        return (None,) * len(node.types)
    numbers = "iuf" if dtype.is_floating else "iu"
    objects = [
        x.astype(object) if x.dtype.kind in numbers and name != "gather" else x for x in arrays
    ]
    result = node.op.eval(np, *objects)
    results = tuple(result) if node.op.multiple else (result,)
    kinds = zip(results, node.types, strict=True)
    return tuple([_settled(np.asarray(x, object), kind.dtype.dtype) for x, kind in kinds])


def _settled(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return values as numbers where none is a symbolic dim: a part of a shape may be known."""
    is_open = any(isinstance(v, (Dim, Ratio)) for v in values.flat)
    return values if is_open else values.astype(dtype)


def _objects(dim: Dim) -> Array:
    array = np.empty((), object)
    array[()] = dim
    return array
