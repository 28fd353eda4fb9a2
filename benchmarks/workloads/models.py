"""Whole networks in ONNX's format, beside ONNX Runtime, and their convolutions beside PyTorch.

The networks are those that the package `onnx` has for its tests. Their weights are recipes there,
one number repeated; here they are random numbers of a trained network's scale.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula
from benchmarks.machine import cores
from benchmarks.workload import Case, Contest, Target

NETWORKS = {
    "resnet50": "ResNet-50",
    "vgg19": "VGG-19",
    "densenet121": "DenseNet-121",
    "inception_v1": "Inception-v1",
    "inception_v2": "Inception-v2",
    "shufflenet": "ShuffleNet",
    "squeezenet": "SqueezeNet",
    "bvlc_alexnet": "AlexNet",
    "zfnet512": "ZFNet",
}

LAYERS = (
    (64, 64, 56, 3, 1),
    (128, 128, 28, 3, 1),
    (256, 256, 14, 3, 1),
    (512, 512, 7, 3, 1),
    (256, 64, 56, 1, 1),
    (1024, 256, 14, 1, 1),
    (128, 128, 56, 3, 2),
    (3, 64, 224, 7, 2),
)
"""Channels in and out, height and width, the kernel's size, the stride."""


def model(name: str) -> Any:
    """Return a network with random weights, as a `ModelProto`."""
    import onnx
    from onnx import numpy_helper

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    proto = onnx.load(folder / f"light_{name}.onnx")
    graph = proto.graph
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    rng = np.random.default_rng(0)
    made, nodes = [], []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            value = float(numpy_helper.to_array(node.attribute[0].t)[0])
            weight = _weight(rng, tuple(int(d) for d in shapes[node.input[0]]), value)
            made.append(numpy_helper.from_array(weight, node.output[0]))
        else:
            nodes.append(node)
    used = {i for node in nodes for i in node.input}
    kept = [t for t in graph.initializer if t.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*kept, *made])
    inputs = [i for i in graph.input if i.name not in shapes]
    del graph.input[:]
    graph.input.extend(inputs)
    return proto


def _weight(rng: np.random.Generator, shape: tuple[int, ...], value: float) -> Any:
    """Return numbers that keep the scale of what goes through them; vectors stay positive."""
    if len(shape) < 2:
        return (value * (1 + 0.2 * rng.random(shape))).astype(np.float32)
    scale = np.float32(math.sqrt(2 / math.prod(shape[1:])))
    return rng.standard_normal(shape, np.float32) * scale


def image_of(proto: Any) -> Any:
    """Return a random input of a network."""
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def _graphfw_network(name: str) -> Case:
    import graphfw as gf

    proto = model(name)
    image = image_of(proto)
    graph = gf.onnx.load(proto)
    session = gf.Session(graph)
    plan = session.compile(graph.outputs[0], feeds=[graph.find(proto.graph.input[0].name)])
    return Case(lambda: plan(image))


def _onnxruntime_network(name: str) -> Case:
    proto = model(name)
    image = image_of(proto)
    session = onnxruntime_session(proto.SerializeToString())
    feeds = {proto.graph.input[0].name: image}
    return Case(lambda: session.run(None, feeds)[0])


def onnxruntime_session(source: str | bytes) -> Any:
    """Return ONNX Runtime's session of a model, with as many threads as this process has cores."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(cores())
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(source, options)


def _network(name: str, title: str) -> Contest:
    makers = {
        "graphfw": functools.partial(_graphfw_network, name),
        "onnxruntime": functools.partial(_onnxruntime_network, name),
    }
    target = Target(0.55 if name == "vgg19" else 0.9, "onnxruntime")
    return Contest(f"onnx-{name}", f"{title}, one image", makers, (target,), atol=1e-4)


# Layers: a convolution with a bias, and a ReLU behind it


def _layer_inputs(layer: tuple[int, ...]) -> Arrays:
    channels, outputs, size, kernel, _ = layer
    rng = np.random.default_rng(0)
    scale = np.float32((channels * kernel * kernel) ** -0.5)
    return [
        rng.standard_normal((1, channels, size, size), np.float32),
        rng.standard_normal((outputs, channels, kernel, kernel), np.float32) * scale,
        rng.standard_normal(outputs, np.float32),
    ]


def _layer_graphfw(x: Any, w: Any, b: Any, *, stride: int) -> Any:
    import graphfw as gf

    return gf.relu(gf.conv(x, w, b, stride=stride, padding=w.shape[-1] // 2))


def _layer_torch(x: Any, w: Any, b: Any, *, stride: int) -> Any:
    import torch

    y = torch.nn.functional.conv2d(x, w, b, stride, w.shape[-1] // 2)
    return torch.nn.functional.relu(y, inplace=True)


def _layer_jax(x: Any, w: Any, b: Any, *, stride: int) -> Any:
    import jax

    pad = w.shape[-1] // 2
    y = jax.lax.conv_general_dilated(x, w, (stride, stride), ((pad, pad), (pad, pad)))
    return jax.nn.relu(y + b[:, None, None])


def _layer(layer: tuple[int, ...]) -> Contest:
    channels, outputs, size, kernel, stride = layer
    formula = Formula(
        functools.partial(_layer_inputs, layer),
        functools.partial(_layer_graphfw, stride=stride),
        torch=functools.partial(_layer_torch, stride=stride),
        jax=functools.partial(_layer_jax, stride=stride),
        constants=2,
    )
    name = f"conv-{kernel}x{kernel}-{channels}-{outputs}-{size}" + ("-s2" if stride == 2 else "")
    title = f"{kernel}×{kernel} convolution + ReLU, {channels} to {outputs} channels at {size}²"
    return Contest(name, title, formula.makers(), (Target(0.9),), atol=1e-4)


WORKLOADS = [*map(_layer, LAYERS), *(_network(n, t) for n, t in NETWORKS.items())]
