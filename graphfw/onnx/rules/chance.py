"""Random numbers: each node has a stream of its own, from the session's seed."""

from __future__ import annotations

import graphfw as gf
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import Call
from graphfw.onnx.table import reads
from graphfw.onnx.types import dtype_of


@reads("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def _random(node: Call, like: Tensor | None = None) -> Tensor:
    shape = node.attr("shape") if like is None else like.shape
    default = gf.float32 if like is None or not like.dtype.is_floating else like.dtype
    dtype = dtype_of(node.attr("dtype")) if "dtype" in node.attributes else default
    if node.op_type.startswith("RandomNormal"):
        mean, scale = node.attr("mean", 0.0), node.attr("scale", 1.0)
        return gf.random.normal(shape, mean, scale, dtype=dtype)
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    return gf.random.uniform(shape, low, high, dtype=dtype)


@reads("Bernoulli")
def _bernoulli(node: Call, x: Tensor) -> Tensor:
    dtype = dtype_of(node.attr("dtype")) if "dtype" in node.attributes else x.dtype
    return gf.astype(gf.random.uniform(x.shape, dtype=x.dtype) < x, dtype)


@reads("Multinomial")
def _multinomial(node: Call, x: Tensor) -> Tensor:
    count = node.attr("sample_size", 1)
    logits = gf.expand_dims(x, 1)  # by the Gumbel-max trick
    noise = gf.random.uniform((x.shape[0], count, x.shape[1]), dtype=x.dtype)
    noise = -gf.log(-gf.log(gf.maximum(noise, gf.finfo(x.dtype).smallest_normal)))
    return gf.astype(gf.argmax(logits + noise, axis=-1), dtype_of(node.attr("dtype", 6)))


@reads("Dropout")
def _dropout(
    node: Call, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None
) -> tuple[Tensor, ...]:
    trains = training is not None and bool(node.known(training, "training_mode").reshape(-1)[0])
    rate = 0.5 if ratio is None else ratio
    if node.version < 12:
        trains, rate = False, 0.0
    if not trains:
        return x, gf.ones_like(x, dtype=gf.bool if node.version >= 10 else x.dtype)
    kept = gf.random.uniform(x.shape, dtype=x.dtype) >= rate
    return gf.where(kept, x / (1 - rate), gf.zeros_like(x)), kept
