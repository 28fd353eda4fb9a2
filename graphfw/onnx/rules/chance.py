"""Random numbers: each node has a stream of its own, from the session's seed."""

from __future__ import annotations

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.dtype import float32, int64
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx.builder import Builder, Val, fields
from graphfw.onnx.errors import Unsupported
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import reads, writes
from graphfw.onnx.types import dtype_of


@reads("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def _random(node: ModelNode, like: Tensor | None = None) -> Tensor:
    shape = node.attr("shape") if like is None else like.shape
    default = gf.float32 if like is None or not like.dtype.is_floating else like.dtype
    dtype = dtype_of(node.attr("dtype")) if "dtype" in node.attributes else default
    if node.op_type.startswith("RandomNormal"):
        mean, scale = node.attr("mean", 0.0), node.attr("scale", 1.0)
        return gf.random.normal(shape, mean, scale, dtype=dtype)
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    return gf.random.uniform(shape, low, high, dtype=dtype)


@reads("Bernoulli")
def _bernoulli(node: ModelNode, x: Tensor) -> Tensor:
    dtype = dtype_of(node.attr("dtype")) if "dtype" in node.attributes else x.dtype
    return gf.astype(gf.random.uniform(x.shape, dtype=x.dtype) < x, dtype)


@reads("Multinomial")
def _multinomial(node: ModelNode, x: Tensor) -> Tensor:
    count = node.attr("sample_size", 1)
    node.require(x.ndim == 2, f"its input has {counted(x.ndim, 'dim')}, not [batch, classes]")
    logits = gf.expand_dims(x, 1)  # by the Gumbel-max trick
    noise = gf.random.uniform((x.shape[0], count, x.shape[1]), dtype=x.dtype)
    noise = -gf.log(-gf.log(gf.maximum(noise, gf.finfo(x.dtype).smallest_normal)))
    return gf.astype(gf.argmax(logits + noise, axis=-1), dtype_of(node.attr("dtype", 6)))


@reads("Dropout")
def _dropout(
    node: ModelNode, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None
) -> tuple[Tensor, ...]:
    trains = training is not None and bool(node.known(training, "training_mode").reshape(-1)[0])
    rate = 0.5 if ratio is None else ratio
    if node.version < 12:
        trains, rate = False, 0.0
    if not trains:
        return x, gf.ones_like(x, dtype=gf.bool if node.version >= 10 else x.dtype)
    kept = gf.random.uniform(x.shape, dtype=x.dtype) >= rate
    return gf.where(kept, x / (1 - rate), gf.zeros_like(x)), kept


@writes("random_bits")
def _write_random_bits(b: Builder, node: Node) -> Val:
    """Put bits together from numbers below 2^16, which floats hold."""
    op = fields(node)
    if not b.draws:
        raise Unsupported("")

    def draw() -> Val:
        like = b("Expand", b.scalar(0, float32), b.shape(op.dims))
        total: Val | None = None
        for _ in range(2 * op.words):
            number = b("RandomUniformLike", like, low=0.0, high=65536.0)
            digit = b.cast(b("Min", b("Floor", number), b.scalar(65535, float32)), int64)
            total = (
                digit if total is None else b("Add", b("Mul", total, b.scalar(65536, int64)), digit)
            )
        assert total is not None
        return b.cast(total, node.types[0].dtype)

    return b.drawn(op, draw)
