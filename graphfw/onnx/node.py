"""What an operator is given, and the table of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

import graphfw as gf
from graphfw.errors import a_type, did_you_mean
from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError, ValueNeeded
from graphfw.onnx.facts import Facts

if TYPE_CHECKING:
    import onnx

Value: TypeAlias = "Tensor | Strings | list[Value] | None"
"""What a name in a model stands for. A list is a sequence; None is an optional without a value."""

Build: TypeAlias = Callable[..., Any]
"""Called with a `Call` and its inputs; returns the outputs' values, or the only one's."""

F = TypeVar("F", bound=Build)

_TABLE: dict[tuple[str, str], Build] = {}


class Strings:
    """A tensor of strings. They are known when a model is loaded: no kernel computes with them.

    Attributes:
        array: Of Python's str, of dtype object.
    """

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array, dtype=object)

    def shaped(self, shape: Any) -> Strings:
        """Return them in another shape."""
        return Strings(self.array.reshape(shape))


def as_value(value: Any) -> Value:
    """Return what a value that the user gives stands for: an array, strings, a list, None."""
    if value is None or isinstance(value, (Tensor, Strings)):
        return value
    if isinstance(value, list):
        return [as_value(v) for v in value]
    array = np.asarray(value)
    if array.dtype.kind in "OUST":
        return Strings(array)
    return gf.constant(array)


def operator(*names: str, domain: str = "") -> Callable[[F], F]:
    """Register a function as what builds the operators of these names."""

    def register(build: F) -> F:
        for name in names:
            _TABLE[domain, name] = build
        return build

    return register


def find(domain: str, name: str) -> Build | None:
    """Return what builds an operator, or None if graphfw has no form of its own for it."""
    return _TABLE.get((domain, name))


class Call:
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
        self.require(len(value) == count, f"{name} has {len(value)} elements, not {count}")
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
        """Whether the node has that output and it has a name."""
        return output < len(self.outputs) and bool(self.outputs[output])

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
        return tuple([int(v) for v in self.known(x, what).reshape(-1)])

    def integer(self, x: Tensor, what: str) -> int:
        """Return the element of a known tensor that has one."""
        return int(self._only(self.known(x, what), what))

    def real(self, x: Tensor, what: str) -> float:
        """Return the element of a known tensor that has one."""
        return float(self._only(self.known(x, what), what))

    def dim(self, x: Tensor, what: str) -> DimLike:
        """Return a size; it may be a symbolic dim."""
        size: DimLike = self._only(np.asarray(self.dims(x, what), object), what)
        return size

    def _only(self, values: np.ndarray[Any, Any], what: str) -> Any:
        self.require(values.size == 1, f"{what} has {values.size} elements, not one")
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
        return tuple([v if value.dtype == object else int(v) for v in value.reshape(-1)])
