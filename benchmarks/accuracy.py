"""The errors of networks in float32, from their results in float64 and relative to their scale.

The reference is the same network with all its numbers in float64, computed node by node. A softmax
at the end is left out: it would hide errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.machine import installed
from benchmarks.workloads.models import NETWORKS, image_of, model, onnxruntime_session

LIMIT = 1e-4
"""The largest error that is accepted, as a part of the largest result."""


def main(arguments: list[str]) -> None:
    """Compute some networks, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks accuracy", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="network", help=", ".join(NETWORKS))
    options = parser.parse_args(arguments)
    for name in options.networks:
        if name not in NETWORKS:
            parser.error(f"no network is named {name!r}: there are {', '.join(NETWORKS)}")
    contenders: dict[str, Callable[[Any, Any], Any]] = {
        "graphfw": graphfw,
        "winograd=False": lambda proto, image: graphfw(proto, image, winograd=False),
    }
    if installed("onnxruntime"):
        contenders["onnxruntime"] = _onnxruntime
    print(f"{'':14}{''.join([f'{name:>16}' for name in contenders])}")
    for name in options.networks or NETWORKS:
        proto = without_softmax(model(name))
        image = image_of(proto)
        wanted = reference(proto, image)
        errors = [error(compute(proto, image), wanted) for compute in contenders.values()]
        print(f"{NETWORKS[name]:14}{''.join([f'{e:>16.1e}' for e in errors])}", flush=True)


def error(found: Any, wanted: Any) -> float:
    """Return the largest difference, as a part of the largest result."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def without_softmax(proto: Any) -> Any:
    """Return a network whose result is what it ends in before a softmax, if it has one there."""
    last = proto.graph.node[-1]
    if last.op_type == "Softmax":
        proto.graph.output[0].name = last.input[0]
        proto.graph.output[0].type.tensor_type.ClearField("shape")
        del proto.graph.node[-1]
    return proto


def graphfw(proto: Any, image: Any, **options: Any) -> Any:
    """Return a network's first result."""
    import graphfw as gf

    graph = gf.onnx.load(proto)
    feed = graph.find(proto.graph.input[0].name)
    return gf.Session(graph, **options).run(graph.outputs[0], {feed: image})


def reference(proto: Any, image: Any) -> Any:
    """Return a network's first result, computed in float64, node by node."""
    return graphfw(_doubled(proto), image.astype(np.float64), debug=True)


def _onnxruntime(proto: Any, image: Any) -> Any:
    session = onnxruntime_session(proto.SerializeToString())
    return session.run(None, {proto.graph.input[0].name: image})[0]


def _doubled(proto: Any) -> Any:
    """Return a copy of a model with float64 wherever it has float32."""
    from onnx import ModelProto, TensorProto, numpy_helper

    made = ModelProto()
    made.CopyFrom(proto)
    for tensor in made.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return made
