"""The table of operators: how each of ONNX's is read, and how each op of a graph is written.

An operator and an op that mean the same are one `Rule`, which goes both ways. What is not
symmetric is a function for its one direction, `reads` or `writes`: an operator that becomes several
ops, an op with several forms in ONNX. The modules of `rules/` fill the table, those of `optional/`
when a model has one of their operators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np

import graphfw as gf
from graphfw.ir.dtype import DType
from graphfw.ir.op import ELEMENTWISE
from graphfw.ir.shape import broadcast
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx import optional
from graphfw.onnx.fitting import fitted
from graphfw.onnx.node import ModelNode, Strings, Value
from graphfw.onnx.signature import default_of

Read: TypeAlias = Callable[..., Any]
"""Called with a `ModelNode` and its inputs; returns the outputs' values, or the only one's."""

Write: TypeAlias = Callable[..., Any]
"""Called with the `Builder`, a node and its inputs' values; returns those of its outputs."""

F = TypeVar("F", bound=Callable[..., Any])

_READERS: dict[tuple[str, str], Read] = {}
_WRITERS: dict[tuple[str, str], Write] = {}

OPERANDS: dict[str, Callable[[DType], bool]] = {
    "": lambda dtype: not dtype.is_complex,
    "bool": lambda dtype: dtype.is_bool,
    "integer": lambda dtype: dtype.is_integer,
    "complex": lambda dtype: dtype.is_complex,
}
"""Kinds of operands that an op is written for; those of "" are any real ones."""


def find_reader(domain: str, name: str) -> Read | None:
    """Return the function that reads an operator, or None if there is none."""
    optional.import_for(domain, name)
    return _READERS.get((domain, name))


def find_writer(op: str, dtype: DType) -> Write | None:
    """Return the function that writes an op on operands of a dtype, or None if there is none."""
    found = (_WRITERS.get((op, kind)) for kind, has in OPERANDS.items() if has(dtype))
    return next((write for write in found if write is not None), None)


def written() -> frozenset[str]:
    """Return the names of all ops that are written where no operand is complex."""
    return frozenset(op for op, kind in _WRITERS if kind != "complex")


def reads(*names: str, domain: str = "", moves: bool = False) -> Callable[[F], F]:
    """Register a function `(call, *inputs)` as what reads the operators of these names.

    Args:
        names: The operators.
        domain: Their domain.
        moves: Whether they only move elements: then they move strings, too.
    """

    def register(read: F) -> F:
        for name in names:
            _add(_READERS, (domain, name), _moving(read) if moves else read)
        return read

    return register


def writes(*ops: str, operands: str = "") -> Callable[[F], F]:
    """Register a function `(builder, node, *values)` as what writes the ops of these names.

    Args:
        ops: The ops.
        operands: The kind of operands for which it writes them.
    """

    def register(write: F) -> F:
        for op in ops:
            _add(_WRITERS, (op, operands), write)
        return write

    return register


def composes(*ops: str) -> Callable[[F], F]:
    """Register a function `(op, *tensors)` that computes what ops of these names do by others."""

    def register(compose: F) -> F:
        @writes(*ops)
        def write(b: Any, node: Node, *inputs: Any) -> Any:
            kinds = [t.type for t in node.inputs]
            return b.expand(lambda *xs: compose(node.op, *xs), inputs, kinds)

        return compose

    return register


def _add(table: dict[tuple[str, str], Any], key: tuple[str, str], function: Any) -> None:
    assert key not in table, f"{key} is registered twice"
    table[key] = function


# Rules


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Attribute:
    """An operator's attribute that stands for an argument of a function.

    A node that lacks it has the default that ONNX defines in the model's opset.

    Attributes:
        name: The attribute's name.
        read: Converts its value to the argument.
        write: Converts the op's field to its value.
    """

    name: str
    read: Callable[[Any], Any] = _same
    write: Callable[[Any], Any] = _same


def flag(name: str) -> Attribute:
    """Return an attribute that is 0 or 1 and stands for a bool."""
    return Attribute(name, bool, int)


@dataclass(frozen=True)
class Rule:
    """An operator of ONNX and a function of graphfw that mean the same.

    Its inputs are the function's tensors, which broadcast, and its output the function's result.
    An operator is written where the opset has it: ONNX's schemas know since when.

    Attributes:
        operator: The operator's name, in ONNX's own domain.
        function: The function; the op that it makes has its name.
        attributes: The operator's attributes by the function's keywords, which are the op's fields.
        operands: The kind of operands that it is for, where several operators are one op.
        result: The result's dtype where it is not the operands'.
        moves: Whether it only moves elements: then it moves strings, too.
    """

    operator: str
    function: Callable[..., Tensor]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    operands: str = ""
    result: DType | None = None
    moves: bool = False

    def read(self, call: ModelNode, *inputs: Tensor) -> Tensor:
        """Build a node of the operator."""
        for x in inputs if self.operands else ():
            call.require(
                OPERANDS[self.operands](x.dtype), f"it is for {self.operands} and not {x.dtype}"
            )
        arguments = {
            keyword: attribute.read(self._value(call, attribute.name))
            for keyword, attribute in self.attributes.items()
        }
        return self.function(*aligned(call, *inputs), **arguments)

    def _value(self, call: ModelNode, name: str) -> Any:
        return call.attr(name, default_of(call.domain, call.op_type, call.version, name))

    def write(self, b: Any, node: Node, *inputs: Any) -> Any:
        """Write a node of the op."""
        attributes = {
            attribute.name: attribute.write(getattr(node.op, keyword))
            for keyword, attribute in self.attributes.items()
        }
        operands = _without_broadcasts(b, node, inputs)
        return b(self.operator, *operands, dtype=self.result, **attributes)


def two_way(*rules: Rule) -> None:
    """Register rules that read and write."""
    read_only(*rules)
    write_only(*rules)


def read_only(*rules: Rule) -> None:
    """Register rules whose function makes other ops, or whose op is written otherwise."""
    for rule in rules:
        reads(rule.operator, moves=rule.moves)(rule.read)


def write_only(*rules: Rule) -> None:
    """Register rules whose operator means more than the op, and is read otherwise."""
    for rule in rules:
        writes(rule.function.__name__, operands=rule.operands)(rule.write)


def aligned(call: ModelNode, *xs: Tensor) -> tuple[Tensor, ...]:
    """Return operands with sizes that broadcast.

    Opsets before 7 broadcast where a node says so, the second operand along axes from one on.
    """
    axis = call.attr("axis", None)
    if axis is not None and len(xs) == 2:
        a, b = xs
        trailing = a.ndim - call.axis(axis, a.ndim) - b.ndim
        xs = a, gf.reshape(b, (*b.shape, *[1] * trailing))
    return fitted(*xs)


def _without_broadcasts(b: Any, node: Node, xs: Sequence[Any]) -> list[Any]:
    """Return operands as they were before they were broadcast, where the op broadcasts anyway."""
    shapes, made = [t.shape for t in node.inputs], list(xs)
    for index, tensor in enumerate(node.inputs if ELEMENTWISE in node.op.traits else ()):
        if tensor.node.op.name == "broadcast_to":
            source = tensor.node.inputs[0]
            others = [*shapes[:index], source.shape, *shapes[index + 1 :]]
            if broadcast(*others) == node.types[0].shape:
                shapes, made[index] = others, b.value(source)
    return made


def _moving(read: Read) -> Read:
    """Return a reader for strings as well: it moves their indices in a table."""

    @functools.wraps(read)
    def moved(node: ModelNode, *inputs: Value) -> Any:
        if not any(isinstance(x, Strings) for x in inputs):
            return read(node, *inputs)
        node.require(node.attr("reduction", "none") == "none", "strings can't be reduced")
        table = np.asarray([""], object)  # what a padding of zeros stands for
        coded: list[Value] = []
        for x in inputs:
            if isinstance(x, Strings):
                coded.append(x.indices + len(table))
                table = np.concatenate([table, x.table])
            else:
                coded.append(x)
        made = read(node, *coded)
        if isinstance(made, tuple):
            return tuple([node.strings(table, indices) for indices in made])
        return node.strings(table, made)

    return moved
