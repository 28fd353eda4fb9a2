"""The values in a model, and a node with its inputs and attributes while it is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

import graphfw as gf
from graphfw.errors import a_type, counted, did_you_mean
from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError, ValueNeeded
from graphfw.onnx.facts import Facts
from graphfw.onnx.types import dtype_of

if TYPE_CHECKING:
    import onnx

Value: TypeAlias = "Tensor | Strings | Map | Maps | list[Value] | None"
"""The value of a name in a model.

A list is a sequence; None is an optional without a value.
"""


class Strings:
    """A tensor of strings. No kernel computes with them.

    Attributes:
        array: Of Python's str, of dtype object.
        shape: Its shape.
        table: [K] All strings that there are, of dtype object.
        indices: The index of each element in the table, int64.
    """

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array, dtype=object)

    @property
    def array(self) -> Any:
        """The strings, where they are known when the model is loaded."""
        return self._array

    @property
    def shape(self) -> tuple[DimLike, ...]:
        """The shape."""
        shape: tuple[int, ...] = self._array.shape
        return shape

    @property
    def table(self) -> Any:
        """All strings that there are."""
        return self._array.ravel()

    @property
    def indices(self) -> Tensor:
        """The index of each element in the table."""
        return gf.constant(np.arange(self._array.size).reshape(self._array.shape))


class Chosen(Strings):
    """Strings that each run chooses from a table: the labels of a classifier.

    Attributes:
        labels: The strings, as a list.
        tensor: Their indices, which a run computes in their stead.
    """

    def __init__(self, table: Any, indices: Tensor, facts: Facts) -> None:
        self.labels: list[str] = list(table)
        self.tensor = indices
        self._facts = facts

    @property
    def array(self) -> Any:
        """Refuse: the strings are not known.

        Raises:
            ValueNeeded: Always.
        """
        raise ValueNeeded(
            "an operator on strings wants to know them when the model is loaded, and they are "
            "labels that depend on what is fed",
            self._facts.inputs(self.tensor),
        )

    @property
    def shape(self) -> tuple[DimLike, ...]:
        """The shape."""
        return self.tensor.shape

    @property
    def table(self) -> Any:
        """All strings that there are."""
        return np.asarray(self.labels, object)

    @property
    def indices(self) -> Tensor:
        """The index of each element in the table."""
        return self.tensor

    def of(self, tensor: Tensor) -> Chosen:
        """Return the same choice by another tensor."""
        return Chosen(self.labels, tensor, self._facts)

    def decoded(self, array: Any) -> Any:
        """Return the strings of indices that a run has computed."""
        return self.table[array]


class Maps:
    """A sequence of maps with the same keys, as ZipMap makes them.

    Attributes:
        labels: The keys.
        tensor: [N, keys] Their values in each map, which a run computes.
    """

    def __init__(self, labels: Sequence[Any], tensor: Tensor) -> None:
        self.labels = list(labels)
        self.tensor = tensor

    def of(self, tensor: Tensor) -> Maps:
        """Return maps of the same keys, with the values of another tensor."""
        return Maps(self.labels, tensor)

    def decoded(self, array: Any) -> Any:
        """Return the maps of values that a run has computed."""
        return [dict(zip(self.labels, row, strict=True)) for row in array.tolist()]


@dataclass(frozen=True)
class Map:
    """A map whose values are known when the model is loaded.

    Attributes:
        items: Its values by its keys, which are all ints or all strings.
        dtype: That of the values; dtype object is strings.
    """

    items: dict[Any, Any]
    dtype: np.dtype[Any]

    @property
    def empty(self) -> Any:
        """The value that stands for an absent one."""
        return "" if self.dtype == object else 0


def as_value(value: Any, kind: onnx.TypeProto | None = None) -> Value:
    """Return the value that the user gives, as tensors, strings, lists and maps.

    Args:
        value: An array, strings, a list, a dict, None.
        kind: What the model says of its type; a map's values take theirs from it.

    Raises:
        OnnxError: It is a dict, and the model wants no map with such keys.
    """
    if value is None or isinstance(value, (Tensor, Strings)):
        return value
    if isinstance(value, list):
        return [as_value(v) for v in value]
    if isinstance(value, dict):
        return _as_map(value, kind)
    array = np.asarray(value)
    if array.dtype.kind in "OUST":
        return Strings(array)
    return gf.constant(array)


def _as_map(value: dict[Any, Any], kind: onnx.TypeProto | None) -> Map:
    if kind is None or not kind.HasField("map_type"):
        raise OnnxError("a dict is given for what is no map")
    of = kind.map_type
    key: Any = str if of.key_type == _STRING else (int, np.integer)
    if not all(isinstance(k, key) for k in value):
        raise OnnxError(f"the map's keys are not all {'strings' if key is str else 'ints'}")
    number = of.value_type.tensor_type.elem_type
    dtype = np.dtype(object) if number == _STRING else dtype_of(number).dtype
    items = {k: np.asarray(v, dtype)[()] for k, v in value.items()}
    if dtype.kind != "f" and any(items[k] != v for k, v in value.items()):
        raise OnnxError(f"the map's values are not all of dtype {dtype}")
    return Map(items, dtype)


_STRING = 8
"""ONNX's number for the type of strings."""


def tensors_of(value: Value) -> Iterator[Tensor]:
    """Yield the tensors that a run has to compute for a value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (Chosen, Maps)):
        yield value.tensor
    elif isinstance(value, list):
        for item in value:
            yield from tensors_of(item)


class ModelNode:
    """One node of a model, while it is built.

    Attributes:
        op_type: The operator's name.
        domain: The operator's domain; "" is ONNX's own.
        version: The opset of that domain which the model is written for.
        name: The node's name.
        attributes: Its attributes' values: ints, floats, strings, tuples of these, arrays, graphs.
        inputs: What its inputs are called, "" for those that are not given.
        outputs: What its outputs are called, "" for those that nobody wants.
        facts: What is known of values.
        subgraph: Builds a graph of an attribute with values for its inputs.
        named: Returns the value that a name stands for where the node is.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        version: int,
        attributes: dict[str, Any],
        facts: Facts,
        subgraph: Callable[[onnx.GraphProto, Sequence[Value]], list[Value]],
        named: Callable[[str], Any],
    ) -> None:
        self.op_type: str = proto.op_type
        self.domain: str = proto.domain
        self.version = version
        self.name: str = proto.name
        self.attributes = attributes
        self.inputs = tuple(proto.input)
        self.outputs = tuple(proto.output)
        self.facts = facts
        self.subgraph = subgraph
        self.named = named

    def attr(self, name: str, default: Any = ...) -> Any:
        """Return an attribute, or the default where the node has none.

        Raises:
            OnnxError: It is missing and has no default, or is of another type than the default.
        """
        value = self.attributes.get(name, default)
        if value is ...:
            raise OnnxError(f"{self.op_type}: the attribute {name!r} is missing")
        if default is ... or default is None or isinstance(value, type(default)):
            return value
        raise OnnxError(
            f"{self.op_type}: the attribute {name!r} is {a_type(value)}, not {a_type(default)}"
        )

    def choice(self, name: str, default: str, among: Iterable[str]) -> str:
        """Return an attribute that is one of a few words.

        Raises:
            OnnxError: It is another one.
        """
        value: str = self.attr(name, default)
        words = sorted(among)
        if value not in words:
            raise OnnxError(
                f"{self.op_type}: {name}={value!r} is none of {', '.join(words)}",
                fix=did_you_mean(value, words),
            )
        return value

    def numbers(self, name: str, default: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return an attribute that has as many elements as its default.

        Raises:
            OnnxError: It has more or less.
        """
        value: tuple[Any, ...] = self.attr(name, default)
        count = len(default)
        self.require(
            len(value) == count, f"{name} has {counted(len(value), 'element')}, not {count}"
        )
        return value

    def require(self, holds: Any, problem: str) -> None:
        """Raise an error that names the operator, unless something holds.

        Raises:
            OnnxError: It doesn't.
        """
        if not holds:
            raise OnnxError(f"{self.op_type}: {problem}")

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front.

        Raises:
            OnnxError: There is no such axis.
        """
        self.require(-rank <= axis < rank, f"there is no axis {axis} among {rank}")
        return axis % rank

    def wants(self, output: int) -> bool:
        """Return whether the node has that output and it has a name."""
        return output < len(self.outputs) and bool(self.outputs[output])

    def strings(self, table: Any, indices: Tensor) -> Strings:
        """Return the strings of a table at these indices."""
        known = self.facts.value(indices)
        if known is None or known.dtype == object:
            return Chosen(table, indices, self.facts)
        return Strings(np.asarray(table, object)[known])

    def tensor(self, x: Value, what: str) -> Tensor:
        """Return a value that has to be a tensor of numbers.

        Raises:
            OnnxError: It is none.
        """
        if not isinstance(x, Tensor):
            raise OnnxError(f"{self.op_type}: {what} is no tensor of numbers")
        return x

    def known(self, x: Tensor, what: str) -> np.ndarray[Any, Any]:
        """Return a value that must be known when the model is loaded.

        Raises:
            ValueNeeded: It depends on an input, a variable, or on a size that is not fixed.
        """
        value = self.facts.value(x)
        if value is None or value.dtype == object:
            raise ValueNeeded(
                f"{self.op_type}: {what} must be known when the model is loaded",
                self.facts.inputs(x),
            )
        return value

    def ints(self, x: Tensor, what: str) -> tuple[int, ...]:
        """Return the elements of a known tensor of integers."""
        return tuple([self._whole(v, what) for v in self.known(x, what).reshape(-1)])

    def integer(self, x: Tensor, what: str) -> int:
        """Return the element of a known tensor that has one."""
        return self._whole(self._only(self.known(x, what), what), what)

    def real(self, x: Tensor, what: str) -> float:
        """Return the element of a known tensor that has one."""
        value = self._only(self.known(x, what), what)
        self.require(not np.iscomplexobj(value), f"{what} is {value}, not a real number")
        return float(value)

    def dim(self, x: Tensor, what: str) -> DimLike:
        """Return a size; it may be a symbolic dim."""
        size: DimLike = self._only(np.asarray(self.dims(x, what), object), what)
        return size

    def _whole(self, value: Any, what: str) -> int:
        is_whole = not np.iscomplexobj(value) and float(value).is_integer()
        self.require(is_whole, f"{what} has {value}, which is no integer")
        return int(value)

    def _only(self, values: np.ndarray[Any, Any], what: str) -> Any:
        self.require(values.size == 1, f"{what} has {counted(values.size, 'element')}, not one")
        return values.reshape(-1)[0]

    def dims(self, x: Tensor, what: str) -> tuple[DimLike, ...]:
        """Return the elements of a tensor of sizes; these may be symbolic dims.

        Raises:
            ValueNeeded: They depend on values of an input or variable.
        """
        value = self.facts.value(x)
        if value is None:
            raise ValueNeeded(
                f"{self.op_type}: {what} depends on values, and must be known when the model is "
                "loaded",
                self.facts.inputs(x),
            )
        is_symbolic = value.dtype == object
        return tuple([v if is_symbolic else self._whole(v, what) for v in value.reshape(-1)])
