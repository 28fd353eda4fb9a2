"""Operators that are written as graphs of others: a model's own functions and ONNX's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import FunctionProto, NodeProto, TypeProto

from graphfw.ir.dim import Dim
from graphfw.ir.tensor import Tensor
from graphfw.onnx.signature import schema_of

Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def own_functions(proto: onnx.ModelProto) -> dict[Key, FunctionProto]:
    """Return the functions that a model brings along."""
    return {(f.domain, f.name, f.overload): f for f in proto.functions}


_OWN_ONLY = frozenset(["SequenceMap"])
"""Operators on sequences: ONNX's own functions for them crash where types are not known."""


def has_standard_function(domain: str, name: str, version: int) -> bool:
    """Say whether ONNX defines an operator by others."""
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
    given = {a.name for a in body.attribute_proto}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name and name not in given:
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
    """Return what ONNX says of an operator that it defines by others, else None."""
    schema = schema_of(domain, name, version)
    if schema is None:
        return None
    has = schema.has_function or schema.has_context_dependent_function
    return schema if has else None
