"""Fourier transforms and what goes with them."""

from __future__ import annotations

import numpy as np

import graphfw as gf
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import int64
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx.builder import Builder, Val, fields
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.node import ModelNode
from graphfw.onnx.rules.pairs import pair_type
from graphfw.onnx.table import reads, writes
from graphfw.onnx.types import dtype_of


@reads("DFT")
def _dft(
    node: ModelNode, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None
) -> Tensor:
    """Transform along an axis.  x: [..., 1] real or [..., 2] complex"""
    along = node.attr("axis", 1 if node.version < 20 else -2)
    if axis is not None:
        along = node.integer(axis, "the axis")
    along = node.axis(along, x.ndim)
    count = None if length is None else node.integer(length, "the length")
    inverse, onesided = node.attr("inverse", 0), node.attr("onesided", 0)
    if inverse and onesided:
        return gf.expand_dims(gf.fft.irfft(_complex(x), n=count, axis=along), -1)
    if onesided:
        return _pairs(gf.fft.rfft(x[..., 0], n=count, axis=along))
    transform = gf.fft.ifft if inverse else gf.fft.fft
    return _pairs(transform(_complex(x), n=count, axis=along))


def _complex(x: Tensor) -> Tensor:
    """Return the complex tensor of pairs of reals, or of reals only."""
    if x.shape[-1] == 1:
        return gf.astype(x[..., 0], _complex_of(x))
    unit = gf.asarray(1j, dtype=_complex_of(x))
    return gf.astype(x[..., 0], _complex_of(x)) + gf.astype(x[..., 1], _complex_of(x)) * unit


def _complex_of(x: Tensor) -> gf.DType:
    return gf.complex128 if x.dtype == gf.float64 else gf.complex64


def _pairs(x: Tensor) -> Tensor:
    return gf.stack([gf.real(x), gf.imag(x)], axis=-1)


@reads("STFT")
def _stft(
    node: ModelNode,
    signal: Tensor,
    step: Tensor,
    window: Tensor | None = None,
    length: Tensor | None = None,
) -> Tensor:
    """Transform short pieces.  signal: [batch, samples, 1 or 2] -> [batch, frames, bins, 2]"""
    if signal.ndim == 2:  # as PyTorch writes real ones
        signal = gf.expand_dims(signal, -1)
    hop = node.integer(step, "the step")
    if length is not None:
        size: DimLike = node.integer(length, "the length")
    elif window is not None:
        size = window.shape[0]
    else:
        raise OnnxError(f"{node.op_type}: it has neither a window nor a length")
    node.require(hop > 0, f"the step is {hop}")
    frames = (signal.shape[1] - size) // hop + 1
    positions = gf.expand_dims(gf.arange(frames) * hop, -1) + gf.arange(size)
    pieces = gf.take(signal, positions, axis=1)  # [batch, frames, size, 1 or 2]
    if window is not None:
        pieces = pieces * gf.expand_dims(window, -1)
    if node.attr("onesided", 1) and pieces.shape[-1] == 1:
        return _pairs(gf.fft.rfft(pieces[..., 0], axis=2))
    return _pairs(gf.fft.fft(_complex(pieces), axis=2))


_MOST_BINS = 1 << 16


@reads("MelWeightMatrix")
def _mel_weight_matrix(
    node: ModelNode, bins: Tensor, length: Tensor, rate: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """Return the weights of frequencies in bins of the mel scale.  -> [length // 2 + 1, bins]"""
    count, size, hz = (node.integer(x, "a size") for x in (bins, length, rate))
    node.require(0 < count <= _MOST_BINS and 0 < size <= _MOST_BINS and hz > 0, "a size is wrong")
    edges = [node.real(x, "a frequency") for x in (low, high)]
    mel = 2595 * np.log10(1 + np.asarray(edges) / 700)
    steps = np.arange(count + 2) * (mel[1] - mel[0]) / (count + 2) + mel[0]
    positions = np.floor((size + 1) * (700 * (10 ** (steps / 2595) - 1)) / hz).astype(int)
    made = np.zeros((size // 2 + 1, count))
    for i in range(count):
        left, top, right = positions[i : i + 3]
        if top == left:
            made[top, i] = 1
        else:
            for j in range(left, top + 1):
                made[j, i] = (j - left) / (top - left)
        for j in range(top, right):
            made[j, i] = (right - j) / (right - top)
    return gf.constant(made.astype(dtype_of(node.attr("output_datatype", 1)).dtype))


# Transforms


def _transform(
    b: Builder, x: Val, axis: int, size: DimLike, norm: str, *, inverse: bool, onesided: int = 0
) -> Val:
    """Write a transform of pairs, or reals with one dim more.  x: [*A, 2 or 1] -> pairs, [*A, 2]"""
    back = int(inverse)
    if b.opset < 20:
        made = b("DFT", x, axis=axis, inverse=back, onesided=onesided)
    else:
        along = b.constant(np.array(axis))
        made = b("DFT", x, None, along, inverse=back, onesided=onesided)
    if norm == "backward":  # ONNX, too, divides by the size what is inverse
        return made
    count = b.cast(b.size(size), x.dtype)
    factor = b("Sqrt", count) if norm == "ortho" else count
    return b("Mul" if inverse else "Div", made, factor)


@writes("fft", operands="complex")
def _write_fft(b: Builder, node: Node, x: Val) -> Val:
    op, shape = fields(node), node.inputs[0].shape
    made = Val(x.name, x.dtype.real)
    for axis in op.axes:
        made = _transform(b, made, axis, shape[axis], op.norm, inverse=op.inverse)
    return Val(made.name, x.dtype)


@writes("rfft", operands="complex")
def _write_rfft(b: Builder, node: Node, x: Val) -> Val:
    op, shape = fields(node), node.inputs[0].shape
    last = b("Unsqueeze", x, b.ints([-1]))
    made = _transform(b, last, op.axis, shape[op.axis], op.norm, inverse=False, onesided=1)
    return Val(made.name, node.types[0].dtype)


@writes("irfft", operands="complex")
def _write_irfft(b: Builder, node: Node, x: Val) -> Val:
    """Write a transform of all frequencies: those that rfft leaves out are conjugates, reversed."""
    op = fields(node)
    more = op.n - op.n // 2

    def filled(pairs: Tensor) -> Tensor:
        key = (*[slice(None)] * op.axis, slice(1, more))
        others = gf.flip(pairs[key], axis=op.axis) * gf.asarray([1, -1], dtype=pairs.dtype)
        return gf.concat([pairs, others], axis=op.axis)

    real = Val(x.name, x.dtype.real)
    (whole,) = b.expand(filled, [real], [pair_type(node.inputs[0].type)])
    made = _transform(b, whole, op.axis, op.n, op.norm, inverse=True)
    return b("Gather", made, b.scalar(0, int64), axis=-1)
