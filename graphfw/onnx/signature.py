"""The check of a node's inputs and attributes against ONNX's schema of its operator.

So that what builds an operator needs no checks of its own for inputs that are missing, sequences
where tensors are wanted, and attributes that are unknown or of another type.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, NodeProto

from graphfw.errors import counted, did_you_mean
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.node import Map, Strings, Value

_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic
_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


def newest(domain: str) -> int | None:
    """Return the newest opset of a domain that the package onnx knows; None if it knows none."""
    return _newest().get(domain) if domain else onnx.defs.onnx_opset_version()


@functools.cache
def _newest() -> dict[str, int]:
    found: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found[schema.domain] = max(found.get(schema.domain, 0), schema.since_version)
    return found


@functools.cache
def schema_of(domain: str, name: str, version: int) -> Any:
    """Return ONNX's schema of an operator in an opset, or None."""
    try:
        return onnx.defs.get_schema(name, max_inclusive_version=version, domain=domain)
    except onnx.defs.SchemaError:
        return None


@functools.cache
def default_of(domain: str, operator: str, version: int, name: str) -> Any:
    """Return an attribute's default in an opset; None if it has none, `...` if it is required.

    An operator that is newer than the opset has the defaults of its newest version.
    """
    schema = schema_of(domain, operator, version)
    schema = schema or schema_of(domain, operator, newest(domain) or version)
    attribute = schema.attributes[name]
    if attribute.required:
        return ...
    if not attribute.default_value.type:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


def check(node: NodeProto, domain: str, version: int, inputs: Sequence[Value]) -> None:
    """Check a node of a domain of ONNX's.

    Raises:
        OnnxError: An input or attribute is missing, unknown or of another kind.
    """
    rules = _rules(domain, node.op_type, version)
    if rules is None:
        return
    count = len(rules.inputs)
    if len(inputs) < rules.fewest or (len(inputs) > count and not rules.is_variadic):
        least = rules.fewest
        wanted = str(least) if least == count else f"{least} to {count}"
        wanted = f"{least} or more" if rules.is_variadic else wanted
        raise OnnxError(f"{node.op_type}: it has {counted(len(inputs), 'input')}, not {wanted}")
    for index, value in enumerate(inputs):
        name, kinds, is_optional = rules.inputs[min(index, count - 1)]
        if not node.input[index]:
            if not is_optional:
                raise OnnxError(f"{node.op_type}: its input {name!r} is missing")
        elif kind_of(value) not in kinds:
            raise OnnxError(
                f"{node.op_type}: its input {name!r} is {_WORDS[kind_of(value)]}, "
                f"not {' or '.join(_WORDS[k] for k in sorted(kinds))}"
            )
    _check_dtypes(node, rules, inputs)
    _check_attributes(node, rules.attributes, rules.required)


def _check_dtypes(node: NodeProto, rules: _Rules, inputs: Sequence[Value]) -> None:
    """Check that inputs have one dtype where ONNX has one letter for their types."""
    firsts: dict[str, tuple[str, Tensor]] = {}
    for index, value in enumerate(inputs):
        number = min(index, len(rules.inputs) - 1)
        letter = rules.letters[number]
        if not letter or not isinstance(value, Tensor):
            continue
        name = rules.inputs[number][0]
        other, first = firsts.setdefault(letter, (name, value))
        if value.dtype is not first.dtype:
            raise OnnxError(
                f"{node.op_type}: its input {name!r} is {value.dtype}, and {other!r} is "
                f"{first.dtype}: they must be of one dtype"
            )


def _check_attributes(node: NodeProto, known: Mapping[str, int], required: frozenset[str]) -> None:
    for attribute in node.attribute:
        wanted = known.get(attribute.name)
        if wanted is None:
            raise OnnxError(
                f"{node.op_type}: it has no attribute {attribute.name!r}",
                fix=did_you_mean(attribute.name, list(known)),
            )
        if attribute.type != wanted:
            name = AttributeProto.AttributeType.Name
            raise OnnxError(
                f"{node.op_type}: the attribute {attribute.name!r} is {name(attribute.type)}, "
                f"not {name(wanted)}"
            )
    missing = required.difference(a.name for a in node.attribute)
    if missing:
        raise OnnxError(f"{node.op_type}: the attribute {min(missing)!r} is missing")


def kind_of(value: Value) -> str:
    """Return the kind of a value: "tensor", "strings", "sequence", "map" or "none"."""
    if isinstance(value, Tensor):
        return "tensor"
    if isinstance(value, Strings):
        return "strings"
    if isinstance(value, Map):
        return "map"
    return "none" if value is None else "sequence"


_WORDS = {
    "tensor": "a tensor",
    "strings": "a tensor of strings",
    "sequence": "a sequence",
    "map": "a map",
    "none": "an optional without a value",
}


class _Rules:
    """The facts of an operator's schema that are checked."""

    def __init__(self, schema: Any) -> None:
        self.inputs = [(p.name, _kinds(p.types), p.option == _OPTIONAL) for p in schema.inputs]
        self.letters = [p.type_str if p.is_homogeneous else "" for p in schema.inputs]
        self.fewest = schema.min_input
        self.is_variadic = any(p.option == _VARIADIC for p in schema.inputs)
        self.attributes = {n: int(a.type.value) for n, a in schema.attributes.items()}
        self.required = frozenset(n for n, a in schema.attributes.items() if a.required)


@functools.cache
def _rules(domain: str, name: str, version: int) -> _Rules | None:
    schema = schema_of(domain, name, version)
    return None if schema is None else _Rules(schema)


def _kinds(types: Sequence[str]) -> frozenset[str]:
    return frozenset(kind for text in types for kind in _kinds_of_type(text))


def _kinds_of_type(text: str) -> Iterator[str]:
    if text.startswith("optional("):  # the optional itself, or the value in it
        yield "none"
        yield from _kinds_of_type(text.removeprefix("optional(")[:-1])
    elif text.startswith("seq("):
        yield "sequence"
    elif text.startswith("map("):
        yield "map"
    else:
        yield "strings" if text == "tensor(string)" else "tensor"


def check_count(node: NodeProto, build: Callable[..., Any]) -> None:
    """Check the inputs of a node by the function that builds it: ONNX says nothing of its operator.

    Raises:
        OnnxError: One is missing, or there are too many.
    """
    needed, most = _parameters(build)
    if len(node.input) > most:
        raise OnnxError(
            f"{node.op_type}: it has {counted(len(node.input), 'input')}, not {most} at most"
        )
    for index, (name, is_needed) in enumerate(needed):
        if index >= len(node.input) or (is_needed and not node.input[index]):
            raise OnnxError(f"{node.op_type}: its input {index} ({name}) is missing")


@functools.cache
def _parameters(build: Callable[..., Any]) -> tuple[list[tuple[str, bool]], float]:
    """Return a function's inputs and whether each needs a value, and the most that it takes."""
    parameters = list(inspect.signature(build).parameters.values())[1:]  # the node is the first
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = [(p.name, "None" not in p.annotation) for p in positional if p.default is p.empty]
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return needed, float("inf") if takes_more else len(positional)
