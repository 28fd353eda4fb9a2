"""The native steps of `fft`: one for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.signal.fft_ops import FFT
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.target import Processor, host
from graphfw.runtime.numpy_executor.fourier.code import Place
from graphfw.runtime.numpy_executor.fourier.groups import Columns, End, Rows
from graphfw.runtime.numpy_executor.fourier.plan import radices_of
from graphfw.runtime.numpy_executor.fourier.sequence import INPUT, OUTPUT, Direction, StageSequence
from graphfw.runtime.numpy_executor.fourier.stages import Way
from graphfw.runtime.planning.collapse import collapsed_to_3d
from graphfw.runtime.planning.copies import in_a_row


def fft_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the steps of an `fft`; none where an axis has no form that is native."""
    if why_no_fft(node):
        return []
    op, (x,), (output,) = node.op, inputs, outputs
    assert isinstance(op, FFT)
    axes = sorted({axis % len(x.shape) for axis in op.axes}, reverse=True)
    steps: list[Step] = []
    for number, axis in enumerate(axes):
        is_last = number == len(axes) - 1
        scale = _scale(op, [x.shape[axis] for axis in axes]) if is_last else 1.0
        to = output
        if not is_last:
            temp = Temp(output.storage.dtype, size_of(output.shape), "a transform along some axes")
            to = in_a_row(temp, output.shape)
        steps += _along_axis(node, x, to, axis, Direction(op.inverse, scale))
        x = to
    return steps


def why_no_fft(node: Node) -> str:
    """Say why an `fft` has no native code; "" where it has."""
    op = node.op
    assert isinstance(op, FFT)
    shape = node.inputs[0].shape
    sizes = [shape[axis] for axis in op.axes]
    if not all([isinstance(size, int) for size in sizes]):
        return "the length is no number"
    if any([radices_of(size, 16) is None for size in sizes if isinstance(size, int)]):
        return "the length has a prime factor above 13"
    return ""


def _scale(op: FFT, sizes: Sequence[DimLike]) -> float:
    """Return the factor of the results."""
    total = prod([size for size in sizes if isinstance(size, int)])
    if op.norm == "ortho":
        return 1 / sqrt(total)
    return 1 / total if (op.norm == "backward") == op.inverse else 1.0


def _along_axis(node: Node, x: View, output: View, axis: int, direction: Direction) -> list[Step]:
    source, copies = collapsed_to_3d(node, x, axis, axis + 1, KernelCode)
    target, _ = collapsed_to_3d(node, output, axis, axis + 1, KernelCode)
    dtype, processor = output.storage.dtype.real, host()._replace(large=0)
    lanes = processor.vector_bytes // dtype.itemsize
    before, n, after = source.shape
    assert isinstance(n, int)
    first = _first_radix(n, lanes) if after == 1 else 0
    if after == 1 and not first:
        # Each row is a column of one matrix: vectors run across rows.
        source, target = _beside(source), _beside(target)
        before, _, after = source.shape
    rest = radices_of(n // max(first, 1), _registers(processor))
    assert rest is not None
    groups = Rows(n, before) if first else Columns(before, n, after, lanes)
    transform = StageSequence(groups, dtype, processor, direction)
    along = 1 if first else 2
    ends = _end(source, INPUT, along), _end(target, OUTPUT, along)
    transform.run((first, *rest) if first else rest, *ends)
    return [*copies, transform.step(node, source, target)]


def _registers(processor: Processor) -> int:
    return 32 if processor.masked else 16


def _first_radix(n: int, lanes: int) -> int:
    """Return the radix of the first stage along rows, whose results fill vectors; 0 if none."""
    for radix in (16, 8) if lanes == 16 else (8, 4) if lanes <= 4 else (8,):
        if n % radix == 0 and n // radix >= max(lanes, 2):
            return radix
    return 0


def _beside(view: View) -> View:
    """Return rows as the columns of one matrix."""
    before, n, _ = view.shape
    row, along, _ = view.strides
    return View(view.storage, view.offset, (1, n, before), (0, along, row))


def _end(view: View, operand: int, vectors: int) -> End:
    """Return a view of complex numbers as what stages read or write.

    Args:
        view: The view.
        operand: Of the step.
        vectors: The dim that vectors run along.
    """
    size = view.storage.dtype.real.itemsize
    begin = 2 * size * view.offset
    a, b, c = [2 * stride for stride in view.strides]
    way: Way = "complex" if view.strides[vectors] == 1 else "apart"
    return End(way, (Place(operand, begin), Place(operand, begin + size)), (a, b, c))
