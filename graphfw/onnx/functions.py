"""Operators that are written as graphs of others: a model's own functions and ONNX's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
from onnx import FunctionProto, NodeProto, TypeProto

from graphfw.ir.dim import Dim
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.signature import schema_of

Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def own_functions(proto: onnx.ModelProto) -> dict[Key, FunctionProto]:
    """Return the functions that a model brings along."""
    return {(f.domain, f.name, f.overload): f for f in proto.functions}


_MOST_NODES = 200_000
"""The most nodes of a model with its functions expanded: there are bombs."""


def check_count(nodes: int) -> None:
    """Refuse a model of too many nodes."""
    if nodes > _MOST_NODES:
        raise OnnxError(f"the model has more than {_MOST_NODES:,} nodes with its functions")


def least_nodes(nodes: Iterable[NodeProto], own: Mapping[Key, FunctionProto], deepest: int) -> int:
    """Return how many nodes there are at least once a model's own functions are expanded.

    They are counted, not expanded: each function is looked at once, however often it is called. Of
    an `If` one branch may be left out.

    Args:
        nodes: Of a graph.
        own: The model's functions.
        deepest: So many may be inside of one another: what is deeper, or calls itself, counts 0.
    """
    known: dict[Key, int] = {}

    def count(nodes: Iterable[NodeProto], depth: int) -> int:
        return sum([1 + inside(node, depth + 1) for node in nodes]) if depth <= deepest else 0

    def inside(node: NodeProto, depth: int) -> int:
        key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type, node.overload)
        if key in own:
            if key not in known:
                known[key] = 0
                known[key] = count(own[key].node, depth)
            return known[key]
        if key[:2] not in _WITH_BODIES:
            return 0
        return min([count(a.g.node, depth) for a in node.attribute if a.HasField("g")], default=0)

    return count(nodes, 0)


_WITH_BODIES = (("", "If"), ("", "Loop"), ("", "Scan"))
"""Operators of which at least one body is built."""

_OWN_ONLY = frozenset(["SequenceMap"])
"""Operators on sequences: ONNX's own functions for them crash where types are not known."""


def has_standard_function(domain: str, name: str, version: int) -> bool:
    """Return whether ONNX defines an operator by others."""
    schema = _schema(domain, name, version)
    return schema is not None and name not in _OWN_ONLY


def standard_function(
    node: NodeProto, version: int, inputs: Sequence[Any]
) -> tuple[FunctionProto, dict[str, int]] | None:
    """Return the graph by which ONNX defines an operator, and the opsets it is written in."""
    schema = _schema(node.domain, node.op_type, version)
    if schema is None or node.op_type in _OWN_ONLY:
        return None
    body = _body(schema, node, version, inputs)
    if body is None:
        return None
    attributes = {a.name for a in body.attribute_proto}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name and name not in attributes:
            body.attribute_proto.append(attribute.default_value)
    return body, {node.domain: version, **{o.domain: int(o.version) for o in body.opset_import}}


def _body(
    schema: Any, node: NodeProto, version: int, inputs: Sequence[Any]
) -> FunctionProto | None:
    """Return the newest body that is not newer than the model's opset."""
    plain = sorted(schema.function_opset_versions)
    if plain:
        at_most = [v for v in plain if v <= version] or plain[:1]
        body: FunctionProto = FunctionProto.FromString(
            schema.get_function_with_opset_version(at_most[-1])
        )
        return body
    by_types = sorted(schema.context_dependent_function_opset_versions)
    at_most = [v for v in by_types if v <= version] or by_types[:1]
    made = schema.get_context_dependent_function_with_opset_version(
        at_most[-1], node.SerializeToString(), [_type_of(x).SerializeToString() for x in inputs]
    )
    return FunctionProto.FromString(made) if made else None


def _type_of(x: Any) -> TypeProto:
    if not isinstance(x, Tensor):
        return TypeProto()
    elem = onnx.helper.np_dtype_to_tensor_dtype(x.dtype.dtype)
    shape = [str(d) if isinstance(d, Dim) else d for d in x.shape]
    return onnx.helper.make_tensor_type_proto(elem, shape)


def _schema(domain: str, name: str, version: int) -> Any:
    """Return ONNX's schema of an operator that it defines by others, else None."""
    schema = schema_of(domain, name, version)
    if schema is None:
        return None
    has = schema.has_function or schema.has_context_dependent_function
    return schema if has else None
