"""Loading: a graph is built from a model's protobuf."""

from __future__ import annotations

import json
import keyword
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, ValueInfoProto

import graphfw as gf
from graphfw.errors import ArgumentError, GraphfwError, a_type
from graphfw.hints.calls import explained
from graphfw.ir.ambient import name_scope
from graphfw.ir.build import constant
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import as_dtype
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array, Literal
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.onnx import functions, given, rules, signature
from graphfw.onnx.equations import with_equal_sizes
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.facts import Facts
from graphfw.onnx.node import Chosen, Maps, ModelNode, Strings, Value, tensors_of
from graphfw.onnx.reader import Model, opsets, read_model
from graphfw.onnx.rewriting import pruned
from graphfw.onnx.table import find_reader
from graphfw.onnx.types import dtype_of
from graphfw.utils.collecting import without_collection
from graphfw.utils.signal_handlers import is_of_handler

Shapes = Mapping[str, Sequence[DimLike | str | None]]
Trainable = bool | Callable[[str], bool]

_MOST_VERSION = 1 << 16
"""The newest opset of a domain that ONNX does not know."""

_DEEPEST = 64
"""The most functions and bodies inside of one another."""


@explained
def load(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    shapes: Shapes | None = None,
    values: Mapping[str, Any] | None = None,
    trainable: Trainable = False,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """Read a model in ONNX's format.

    Its inputs are placeholders and its outputs tensors of the same names, so `session.run` takes
    and gives them by name; `graph.outputs` has the outputs in order. Nodes' names are the layer
    paths in errors. Sizes that the model names or leaves open are symbolic dims.

    Args:
        source: A path, a file's bytes, or a `ModelProto`. External data is read from the folder of
            the path, and from nowhere else.
        shapes: Shapes of inputs, where the model's own should be narrower or are not given.
        values: Values of inputs that are strings or sequences, and of those that decide about
            shapes, where runs need not find them out. They become part of the graph.
        trainable: Make variables of the weights, so that they can be trained and saved; or a
            function that says it of a weight's name. Others are constants.
        outputs: Names of values inside the model that should be its outputs: only what they need
            is read. By default the model's own outputs.

    Raises:
        OnnxError: The file is broken, or has operators that graphfw doesn't know: all are named.
        ValueNeeded: A number must be known that runs can't find out, and `values` lacks it.
        ShapeError, DTypeError: The model's nodes don't fit one another or the given shapes.
        ArgumentError: There is no such input or output, or a value is not of the input's dtype.
    """
    with without_collection():
        return Import(read_model(source), shapes or {}, values or {}, trainable, outputs).graph


@dataclass(frozen=True)
class Context:
    """The surroundings of a list of nodes: opsets, a function's attributes, the depth."""

    opsets: Mapping[str, int]
    attributes: Mapping[str, AttributeProto]
    depth: int

    def inside(self) -> Context:
        """Return the location of a graph inside of a node of this one."""
        if self.depth >= _DEEPEST:
            raise OnnxError(f"functions and bodies are nested more than {_DEEPEST} deep")
        return Context(self.opsets, self.attributes, self.depth + 1)


class Import:
    """The graph of a model.

    Attributes:
        graph: The graph.
        inputs: The placeholders by name.
        outputs: The outputs' values by name.
    """

    def __init__(
        self,
        model: Model,
        shapes: Shapes,
        values: Mapping[str, Any],
        trainable: Trainable = False,
        outputs: Sequence[str] | None = None,
        measures: bool = True,
    ) -> None:
        self._model = model
        self._functions = functions.own_functions(model.proto)
        self._facts = Facts(measures)
        if not callable(trainable) and not isinstance(trainable, bool):
            raise ArgumentError(
                f"load: trainable is {a_type(trainable)}",
                fix="give True, or a function that says it of a weight's name",
            )
        self._trainable = trainable if callable(trainable) else lambda _: trainable
        self._nodes = 0
        self._dims: dict[str, str] = {}
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Value] = {}
        _check_text(model.proto.graph.name, *[info.name for info in model.proto.graph.input])
        self.graph = Graph(_identifier(model.proto.graph.name) or "model")
        try:
            self._build(model.proto.graph, shapes, values, outputs)
        except Exception as error:  # what a broken file runs into, which may be anything
            if isinstance(error, GraphfwError) or is_of_handler(error):
                raise
            raise OnnxError(f"the model is broken: {type(error).__name__}: {error}") from error

    def _build(
        self,
        proto: GraphProto,
        shapes: Shapes,
        values: Mapping[str, Any],
        outputs: Sequence[str] | None,
    ) -> None:
        nodes: Sequence[NodeProto] = proto.node
        if outputs is None:
            outputs = [info.name for info in proto.output]
        else:
            given.check_outputs(outputs, nodes, proto)
            nodes = pruned(nodes, set(outputs))
        self._check_known(nodes)
        functions.check_count(functions.least_nodes(nodes, self._functions, _DEEPEST))
        given.check_names("shapes", shapes, proto)
        given.check_names("values", values, proto)
        with self.graph:
            scope = self._initial(proto, self._model.initializers())
            for info in proto.input:
                if info.name not in scope or info.name in values:
                    scope[info.name] = self._input(info, shapes, values)
            position = Context(self._model.opsets, {}, 0)
            self._run(nodes, scope, position)
            self.graph.metadata = {p.key: p.value for p in self._model.proto.metadata_props}
            self._name_outputs(outputs, scope)

    # Inputs and outputs.

    def _initial(self, proto: GraphProto, arrays: Iterable[tuple[str, Array]]) -> dict[str, Value]:
        scope = {name: self._weight(array, name) for name, array in arrays}
        for sparse in proto.sparse_initializer:
            scope[sparse.values.name] = self.dense(sparse)
        return scope

    def _weight(self, array: Array, name: str) -> Value:
        if array.dtype == object:
            return Strings(array)
        if array.dtype.kind in "fV" and array.ndim and self._trainable(name):
            return Variable(array, name=name)
        return constant(Literal.taken(array))

    def dense(self, sparse: onnx.SparseTensorProto) -> Tensor:
        """Return a sparse tensor with its zeros, for which no memory is taken yet."""
        what = f"the sparse tensor {sparse.values.name!r}"
        values, positions = self._model.array(sparse.values), self._model.array(sparse.indices)
        dims = tuple(sparse.dims)
        if min(dims, default=0) < 0 or math.prod(dims) >= 1 << 62:
            raise OnnxError(f"{what} has the dims {list(dims)}")
        if values.ndim != 1 or values.dtype == object or positions.dtype != np.int64:
            raise OnnxError(f"{what} wants numbers in one dim, and indices of int64")
        if positions.shape == values.shape:  # they count through all elements
            if len(positions) and not 0 <= positions.min() <= positions.max() < math.prod(dims):
                raise OnnxError(f"{what} has indices outside of its dims {list(dims)}")
            positions = np.stack(np.unravel_index(positions, dims), axis=-1)
        if positions.shape != (len(values), len(dims)):
            raise OnnxError(f"{what} has indices of shape {positions.shape}")
        if (positions < 0).any() or (positions >= dims).any():
            raise OnnxError(f"{what} has indices outside of its dims {list(dims)}")
        zeros = gf.zeros(dims, dtype=as_dtype(values.dtype))
        key = tuple([gf.constant(column) for column in positions.T.copy()])
        return gf.index_set(zeros, key, gf.constant(values))

    def _input(self, info: ValueInfoProto, shapes: Shapes, values: Mapping[str, Any]) -> Value:
        kind = info.type
        if info.name in values:
            return given.value_of(info, values[info.name])
        if kind.WhichOneof("value") == "optional_type":
            kind = kind.optional_type.elem_type
        if kind.WhichOneof("value") != "tensor_type":
            raise OnnxError(
                f"the input {info.name!r} is no tensor but a {kind.WhichOneof('value')}",
                fix=f"give its value when you load: values={{{info.name!r}: …}}",
            )
        if kind.tensor_type.elem_type == onnx.TensorProto.STRING:
            raise OnnxError(
                f"the input {info.name!r} has strings, of which a graph can't compute",
                fix=f"give its value when you load: values={{{info.name!r}: array}}",
            )
        if info.name in shapes:
            shape: Sequence[DimLike | str | None] = given.shape_of(info, shapes[info.name])
        elif kind.tensor_type.HasField("shape"):
            shape = [self._dim(d) for d in kind.tensor_type.shape.dim]
        else:
            raise OnnxError(
                f"the model doesn't say what shape the input {info.name!r} has",
                fix=f"say it when you load: shapes={{{info.name!r}: (…)}}",
            )
        dtype = dtype_of(kind.tensor_type.elem_type)
        made: Tensor = gf.placeholder(tuple(shape), dtype, info.name)
        self.inputs[info.name] = made
        return made

    def _dim(self, dim: onnx.TensorShapeProto.Dimension) -> DimLike | str | None:
        if dim.HasField("dim_value"):
            return dim.dim_value if dim.dim_value >= 0 else None
        _check_text(dim.dim_param)
        if not _identifier(dim.dim_param):  # "?", "-1": whoever wrote it didn't know
            return None
        if dim.dim_param not in self._dims:
            self._dims[dim.dim_param] = _free(dim.dim_param, self._dims.values())
        return self._dims[dim.dim_param]

    def _name_outputs(self, names: Sequence[str], scope: Mapping[str, Value]) -> None:
        tensors: list[Tensor] = []
        taken = set(self.inputs)
        for name in names:
            value = _looked_up(name, scope)
            if isinstance(value, Tensor) and name not in taken:
                value = gf.identity(value, name=name)
                taken.add(name)
            elif isinstance(value, (Chosen, Maps)) and name not in taken:
                value = value.of(gf.identity(value.tensor, name=name))
                self.graph.metadata[f"{name}.labels"] = json.dumps(value.labels)
                taken.add(name)
            self.outputs[name] = value
            tensors.extend(tensors_of(value))
        self.graph.outputs = tuple(tensors)

    # Nodes.

    def _run(self, nodes: Sequence[NodeProto], scope: dict[str, Value], context: Context) -> None:
        for node in nodes:
            self._nodes += 1
            functions.check_count(self._nodes)
            try:
                if self._holds_weight(node, context) and self._trainable(node.output[0]):
                    array = self._model.array(node.attribute[0].t)
                    results: Sequence[Value] = [self._weight(array, node.output[0])]
                else:
                    with name_scope(_layer(node)):
                        results = self._built(node, scope, context)
            except GraphfwError as error:
                _explain(error, node)
                raise
            except Exception as error:  # of attributes and inputs that make no sense
                if is_of_handler(error):
                    raise
                message = f"{_title(node)} can't be built: {type(error).__name__}: {error}"
                raise OnnxError(message) from error
            for name, value in zip(node.output, results, strict=False):
                if name and name in scope:
                    raise OnnxError(f"{_title(node)} makes {name!r}, which was made before")
                scope[name] = value

    def _holds_weight(self, node: NodeProto, context: Context) -> bool:
        """Return whether a node of the model itself is an array: some exporters keep weights so."""
        only = node.attribute[0] if len(node.attribute) == 1 else None
        return (
            context.depth == 0
            and node.op_type == "Constant"
            and only is not None
            and only.name == "value"
            and len(node.output) == 1
            and node.output[0] != ""
        )

    def _built(self, node: NodeProto, scope: dict[str, Value], context: Context) -> Sequence[Value]:
        if any(a.ref_attr_name for a in node.attribute):
            node = self._resolved(node, context)
        inputs = [_looked_up(name, scope) if name else None for name in node.input]
        domain = "" if node.domain == "ai.onnx" else node.domain
        own = self._functions.get((domain, node.op_type, node.overload))
        if own is not None:
            return self._expanded(own, node, inputs, context, opsets(own))
        version = context.opsets.get(domain)
        if version is None:
            raise OnnxError(f"the model doesn't say which opset of {domain or 'ai.onnx'!r} it uses")
        signature.check(node, domain, version, inputs)
        call = self._call(node, version, scope, context)
        inputs = [*with_equal_sizes(call, inputs)]
        reader = find_reader(domain, node.op_type)
        if reader is not None:
            signature.check_count(node, reader)
            made = reader(call, *inputs)
            return made if isinstance(made, tuple) else (made,)
        found = functions.standard_function(node, version, inputs)
        if found is None:
            raise OnnxError(f"{_title(node)} is of a kind that graphfw doesn't know")
        versions = {"": onnx.defs.onnx_opset_version(), **context.opsets, **found[1]}
        return self._expanded(found[0], node, inputs, context, versions)

    def _call(
        self, node: NodeProto, version: int, scope: dict[str, Value], context: Context
    ) -> ModelNode:
        def subgraph(graph: GraphProto, inputs: Sequence[Value]) -> list[Value]:
            inner = dict(scope)  # a body sees what is around it
            arrays = [(t.name, self._model.array(t)) for t in graph.initializer]
            inner.update(self._initial(graph, arrays))
            for info, value in zip(graph.input, inputs, strict=False):
                inner[info.name] = value
            for made in (name for each in graph.node for name in each.output):
                inner.pop(made, None)  # and may use its names again
            self._run(graph.node, inner, context.inside())
            return [_looked_up(info.name, inner) for info in graph.output]

        attributes = {a.name: self._attribute(a) for a in node.attribute}
        return ModelNode(
            node, version, attributes, self._facts, subgraph, lambda name: _looked_up(name, scope)
        )

    def _expanded(
        self,
        function: FunctionProto,
        node: NodeProto,
        inputs: Sequence[Value],
        context: Context,
        versions: Mapping[str, int],
    ) -> list[Value]:
        attributes = {a.name: a for a in function.attribute_proto}
        attributes.update({a.name: a for a in node.attribute})
        inner = Context(versions, attributes, context.inside().depth)
        scope: dict[str, Value] = dict.fromkeys(function.input)
        scope.update(zip(function.input, inputs, strict=False))
        self._run(function.node, scope, inner)
        wanted = dict(zip(function.output, node.output, strict=False))
        return [_looked_up(n, scope) if wanted.get(n) else scope.get(n) for n in function.output]

    def _resolved(self, node: NodeProto, context: Context) -> NodeProto:
        """Return a function's node with the attributes that the function was given."""
        made = NodeProto()
        made.CopyFrom(node)
        del made.attribute[:]
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                made.attribute.append(attribute)
            elif attribute.ref_attr_name in context.attributes:
                made.attribute.append(context.attributes[attribute.ref_attr_name])
                made.attribute[-1].name = attribute.name
        return made

    def _attribute(self, attribute: AttributeProto) -> Any:
        kind = attribute.type
        if kind == AttributeProto.TENSOR:
            return self._model.array(attribute.t)
        if kind == AttributeProto.SPARSE_TENSOR:
            return self.dense(attribute.sparse_tensor)
        if kind == AttributeProto.TENSORS:
            return tuple([self._model.array(t) for t in attribute.tensors])
        if kind == AttributeProto.GRAPH:
            return attribute.g
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, TypeProto):
            return value
        if isinstance(value, (int, float)):
            return value
        if value is None:
            raise OnnxError(f"the attribute {attribute.name!r} has no type")
        items = tuple(value)
        return tuple([v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in items])

    # Unknown operators.

    def _check_known(self, own: Sequence[NodeProto]) -> None:
        """Raise one error that names all operators which can't be built."""
        unknown: dict[tuple[str, str, int], list[str]] = {}
        bodies: list[tuple[Sequence[NodeProto], Mapping[str, int]]] = [(own, self._model.opsets)]
        bodies += [(f.node, opsets(f)) for f in self._functions.values()]
        while bodies:
            nodes, versions = bodies.pop()
            _check_versions(versions)
            for node in nodes:
                _check_text(node.name, node.op_type, node.domain, *node.input, *node.output)
                domain = "" if node.domain == "ai.onnx" else node.domain
                version = versions.get(domain, 0)
                if not self._is_known(domain, node, version):
                    unknown.setdefault((domain, node.op_type, version), []).append(node.name)
                bodies.extend(
                    (graph.node, versions)
                    for a in node.attribute
                    for graph in (a.g, *a.graphs)
                    if graph.node
                )
        if unknown:
            raise OnnxError(
                "graphfw doesn't know these operators: "
                + "; ".join(_unknown_text(*key, names) for key, names in sorted(unknown.items()))
            )

    def _is_known(self, domain: str, node: NodeProto, version: int) -> bool:
        if (domain, node.op_type, node.overload) in self._functions:
            return True
        if find_reader(domain, node.op_type) is not None:
            return True
        return functions.has_standard_function(domain, node.op_type, version)


def _check_text(*names: str | bytes) -> None:
    for name in names:
        if isinstance(name, bytes):  # as protobuf gives what is no UTF-8
            raise OnnxError(f"the name {name!r} is no text")


def _check_versions(versions: Mapping[str, int]) -> None:
    for domain, version in versions.items():
        newest = signature.newest(domain)
        most = _MOST_VERSION if newest is None else newest
        if not 0 < version <= most:
            raise OnnxError(
                f"the model is written in opset {version} of {domain or 'ai.onnx'}, and the "
                f"package onnx {onnx.__version__} knows those from 1 to {most}",
                fix="pip install -U onnx"
                if version > most
                else "the file is broken, as opsets are numbered from 1: export the model again",
            )


def _looked_up(name: str, scope: Mapping[str, Value]) -> Value:
    if name not in scope:
        raise OnnxError(
            f"nothing makes the value {name!r} before it is used",
            fix="the file is broken, or its nodes are in a circle or out of order",
        )
    return scope[name]


def _layer(node: NodeProto) -> str:
    return re.sub(r"\s+", "_", node.name) or node.op_type


def _title(node: NodeProto) -> str:
    if node.name or not node.output:
        return f"{node.op_type} {node.name!r}"
    return f"{node.op_type} that makes {node.output[0]!r}"


_THE_NODE = "it is the model's node"


def _explain(error: GraphfwError, node: NodeProto) -> None:
    """Say which node of the model it was; the innermost says it."""
    if _THE_NODE not in error.why:
        location = f"{_THE_NODE} {_title(node)}"
        error.why = f"{error.why}; {location}" if error.why else location


def _unknown_text(domain: str, op_type: str, version: int, names: Sequence[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{domain + '.' if domain else ''}{op_type} of opset {version} (nodes {shown}{more})"


def _identifier(name: str) -> str:
    made = re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_")
    return f"d{made}" if made[:1].isdigit() or keyword.iskeyword(made) else made


def _free(name: str, taken: Any) -> str:
    made = wanted = _identifier(name) or "dim"
    number = 2
    while made in taken:
        made = f"{wanted}_{number}"
        number += 1
    return made


__all__ = ["Import", "load", "rules"]
