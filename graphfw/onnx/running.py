"""One run of a model on arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from graphfw.errors import FeedError, ShapeError, a_type, did_you_mean
from graphfw.hints.calls import explained
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import ValueNeeded
from graphfw.onnx.fitting import holds
from graphfw.onnx.importer import Import
from graphfw.onnx.node import Chosen, Map, Maps, Strings, Value
from graphfw.onnx.reader import Model, read_model
from graphfw.runtime.session import Session


@explained
def run(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    feeds: Mapping[str, Any],
    *,
    executor: str | None = None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """Run a model once.  -> its outputs by name

    Inputs whose values decide about shapes, strings and sequences are made part of the graph, which
    `load(values=…)` does for you to do once for many runs.

    Args:
        source: See `load`.
        feeds: Arrays by the inputs' names; strings as arrays of dtype object, sequences as lists.
        executor: See `Session`.
        timeout: How many seconds the run may take, see `Session.run`; reading the model and
            compiling do not count.

    Raises:
        RunTimeoutError: The run takes longer than the timeout.
        OnnxError: See `load`.
        FeedError: An input is missing, or its array has another dtype or shape, or there is no such
            input.
    """
    model = read_model(source)
    names = [info.name for info in model.proto.graph.input]
    if not isinstance(feeds, Mapping):
        fix = "give arrays by the inputs' names: {" + ", ".join([f"{n!r}: …" for n in names]) + "}"
        raise FeedError(f"feeds is {a_type(feeds)}, not a dict", fix=fix)
    for name in feeds:
        if name not in names:
            fix = did_you_mean(name, names) or f"its inputs are {', '.join(names)}"
            raise FeedError(f"{name!r} is no input of the model", fix=fix)
    imported = specialised(model, feeds)
    fed: dict[Tensor | str, Any] = {name: feeds[name] for name in imported.inputs if name in feeds}
    missing = [name for name in imported.inputs if name not in feeds]
    if missing:
        raise FeedError(f"the model wants {missing[0]!r}", fix=f"feeds={{{missing[0]!r}: array}}")
    with Session(imported.graph, executor=executor, timeout=timeout) as session:
        arrays = iter(session.run(list(imported.graph.outputs), fed))
        return {name: given(value, arrays) for name, value in imported.outputs.items()}


def specialised(model: Model, feeds: Mapping[str, Any]) -> Import:
    """Return the graph of a model that runs on these feeds.

    It is as general as it can be: the values of those inputs become part of it that it can't do
    without, and the inputs' sizes where the model's own symbols don't fit.
    """
    inputs = model.proto.graph.input
    values = {
        i.name: feeds.get(i.name) for i in inputs if not _is_numbers(i.type, feeds.get(i.name))
    }
    weights = {each.name for each in model.proto.graph.initializer}
    values.update({n: v for n, v in feeds.items() if n in weights})  # in place of its default
    undeclared = _sizes([i for i in inputs if not _has_shape(i.type)], feeds, values)
    shapes: dict[str, tuple[int, ...]] = {}
    measures = False
    while True:
        try:
            imported = Import(model, undeclared | shapes, values, measures=measures)
            if shapes or _fits(imported, feeds):
                return imported
            shapes = _sizes(inputs, feeds, values)
        except ShapeError:
            if shapes:
                raise
            shapes = _sizes(inputs, feeds, values)
        except ValueNeeded as error:
            found = [name for name in error.inputs if name in feeds and name not in values]
            if found:
                values.update({name: feeds[name] for name in found})
            elif not shapes:  # it depends on sizes
                shapes = _sizes(inputs, feeds, values)
            elif not measures:  # that a run finds out
                measures = True
            else:
                raise


def _fits(imported: Import, feeds: Mapping[str, Any]) -> bool:
    """Return whether sizes that the model takes for equal are equal for these feeds."""
    shapes = {x: np.shape(feeds[name]) for name, x in imported.inputs.items() if name in feeds}
    return holds(imported.graph, shapes)


def _sizes(
    inputs: Iterable[onnx.ValueInfoProto], feeds: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what is fed."""
    names = [i.name for i in inputs if i.name in feeds and i.name not in values]
    return {name: np.shape(feeds[name]) for name in names}


def _has_shape(kind: onnx.TypeProto) -> bool:
    """Return whether the model tells an input's shape, or at least how many dims it has."""
    if kind.HasField("optional_type"):
        return _has_shape(kind.optional_type.elem_type)
    is_said: bool = kind.tensor_type.HasField("shape")
    return is_said


def _is_numbers(kind: onnx.TypeProto, fed: Any) -> bool:
    if kind.HasField("optional_type"):
        return fed is not None and _is_numbers(kind.optional_type.elem_type, fed)
    return kind.HasField("tensor_type") and kind.tensor_type.elem_type != onnx.TensorProto.STRING


def given(value: Value, arrays: Iterator[Any]) -> Any:
    """Return an output in the form that the user gets.

    Args:
        value: The output.
        arrays: What a run has computed of the outputs' tensors, in order: takes as many as it has.
    """
    if isinstance(value, Tensor):
        return next(arrays)
    if isinstance(value, (Chosen, Maps)):
        return value.decoded(next(arrays))
    if isinstance(value, Strings):
        return value.array
    if isinstance(value, Map):
        return value.items
    return value if value is None else [given(v, arrays) for v in value]
