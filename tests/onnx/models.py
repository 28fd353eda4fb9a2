"""Small models for tests, written by `onnx.helper`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str | None] | None


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str] | Mapping[str, Shape],
    weights: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    dtype: int = TensorProto.FLOAT,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """Return a model of these nodes."""
    shapes = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(n, dtype, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in shapes.items()],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(f.domain, 1) for f in functions]
    return helper.make_model(graph, opset_imports=opsets, functions=functions)


def classifier(rng: np.random.Generator) -> onnx.ModelProto:
    """Return a convolutional network that computes the shape which it reshapes to."""
    f32 = np.float32
    weights = {
        "w1": rng.standard_normal((4, 1, 3, 3)).astype(f32),
        "b1": rng.standard_normal(4).astype(f32),
        "w2": rng.standard_normal((36, 5)).astype(f32),
        "first": np.array([0]),
        "rest": np.array([-1]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["s"], "shape"),
        helper.make_node("Gather", ["s", "first"], ["n"], "batch"),
        helper.make_node("Concat", ["n", "rest"], ["to"], "join", axis=0),
        helper.make_node("Reshape", ["p", "to"], ["flat"], "flatten"),
        helper.make_node("MatMul", ["flat", "w2"], ["scores"], "fc"),
    ]
    return model(nodes, {"x": ("batch", 1, 6, 6)}, {"scores": ("batch", 5)}, weights)
