"""A user's own additions to a model: shapes and values of inputs, names of outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto

from graphfw.errors import ArgumentError, ShapeError, a_type, counted, did_you_mean
from graphfw.onnx.node import Value, as_value
from graphfw.onnx.types import dtype_of
from graphfw.runtime import feeding


def check_names(what: str, given: Mapping[str, Any], proto: GraphProto) -> None:
    """Demand that names are inputs of a model.

    Raises:
        ArgumentError: One is not.
    """
    names = [info.name for info in proto.input]
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"load: {what} is {a_type(given)}, not a dict", fix=f"its inputs are {', '.join(names)}"
        )
    for name in given:
        if name not in names:
            raise ArgumentError(
                f"load: {what} has {name!r}, which is no input of the model",
                fix=did_you_mean(name, names) or f"its inputs are {', '.join(names)}",
            )


def check_outputs(wanted: Iterable[str], nodes: Sequence[NodeProto], proto: GraphProto) -> None:
    """Demand that there are values of these names in a model.

    Raises:
        ArgumentError: There is none.
    """
    if isinstance(wanted, str):
        raise ArgumentError("load: outputs is a str, not a list", fix=f"write outputs=[{wanted!r}]")
    made = {name for node in nodes for name in node.output}
    made |= {each.name for each in (*proto.input, *proto.initializer)}
    made |= {sparse.values.name for sparse in proto.sparse_initializer}
    for name in wanted:
        if name not in made:
            raise ArgumentError(
                f"load: outputs has {name!r}, and the model has no such value",
                fix=did_you_mean(name, sorted(made)),
            )


def shape_of(info: ValueInfoProto, shape: Sequence[Any]) -> Sequence[Any]:
    """Return the shape that is given for an input.

    Raises:
        ShapeError: It has not as many dims as the model says.
    """
    _check_rank(info, "shapes", len(shape))
    return shape


def value_of(info: ValueInfoProto, value: Any) -> Value:
    """Return the value that is given for an input: numbers get the dtype that the model wants.

    Raises:
        ArgumentError: They can't without loss.
        ShapeError: They have not as many dims as the model says.
    """
    if value is None or not _is_numbers(info.type):
        return as_value(value, info.type)
    wanted = dtype_of(info.type.tensor_type.elem_type)
    array = feeding.array_of(value)
    found = feeding.converted(value, array, wanted)
    if found is None:
        what, fix = feeding.refusal(value, array, wanted, "is given")
        raise ArgumentError(f"load: {info.name!r} {what}", fix=fix)
    _check_rank(info, "values", found.ndim)
    return as_value(found)


def _is_numbers(kind: TypeProto) -> bool:
    return kind.HasField("tensor_type") and kind.tensor_type.elem_type != onnx.TensorProto.STRING


def _check_rank(info: ValueInfoProto, what: str, rank: int) -> None:
    kind = info.type.tensor_type
    if kind.HasField("shape") and len(kind.shape.dim) != rank:
        said = [
            d.dim_param or (d.dim_value if d.HasField("dim_value") else "?") for d in kind.shape.dim
        ]
        raise ShapeError(
            (
                f"load: {what} has {counted(rank, 'dim')} for {info.name!r}, and the "
                f"model says {len(said)}"
            ),
            fix=f"the model's are [{', '.join(map(str, said))}]",
        )
