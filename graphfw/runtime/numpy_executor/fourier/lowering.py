"""The native steps of `fft`, `rfft` and `irfft`: one for each axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.signal.fft_ops import FFT, IRFFT, RFFT
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.target import Processor, host
from graphfw.runtime.numpy_executor.fourier.code import BufferAddress
from graphfw.runtime.numpy_executor.fourier.groups import Columns, End, Groups, Rows
from graphfw.runtime.numpy_executor.fourier.plan import convolution_length, cut_in_two, radices_of
from graphfw.runtime.numpy_executor.fourier.sequence import (
    INPUT,
    OUTPUT,
    Direction,
    StageSequence,
)
from graphfw.runtime.numpy_executor.fourier.stages import Way
from graphfw.runtime.planning.collapse import collapsed_to_3d
from graphfw.runtime.planning.copies import in_a_row

_LONG = 1 << 15
"""Numbers of a row that several threads divide among them."""


def fourier_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the steps of a transform; none where an axis has no form that is native."""
    if why_no_fourier(node):
        return []
    op, (x,), (output,) = node.op, inputs, outputs
    if isinstance(op, RFFT | IRFFT):
        axis = op.axis % len(x.shape)
        n = x.shape[axis] if isinstance(op, RFFT) else op.n
        inverse = isinstance(op, IRFFT)
        direction = Direction(inverse, _scale(op.norm, [n], inverse=inverse))
        return _Axis(node, x, output, axis, direction).steps()
    assert isinstance(op, FFT)
    axes = sorted({axis % len(x.shape) for axis in op.axes}, reverse=True)
    steps: list[Step] = []
    for number, axis in enumerate(axes):
        scale, to = 1.0, output
        if number == len(axes) - 1:
            scale = _scale(op.norm, [x.shape[axis] for axis in axes], inverse=op.inverse)
        else:
            temp = Temp(output.storage.dtype, size_of(output.shape), "a transform along some axes")
            to = in_a_row(temp, output.shape)
        steps += _Axis(node, x, to, axis, Direction(op.inverse, scale)).steps()
        x = to
    return steps


def why_no_fourier(node: Node) -> str:
    """Return why a transform has no native code; "" where it has."""
    op, shape = node.op, node.inputs[0].shape
    if isinstance(op, FFT):
        sizes: list[DimLike] = [shape[axis] for axis in op.axes]
    else:
        assert isinstance(op, RFFT | IRFFT)
        sizes = [op.n if isinstance(op, IRFFT) else shape[op.axis]]
    if not all([isinstance(size, int) for size in sizes]):
        return "the length is no number"
    return ""


def _scale(norm: str, sizes: Sequence[DimLike], *, inverse: bool) -> float:
    """Return the factor of the results."""
    total = prod([size for size in sizes if isinstance(size, int)])
    if norm == "ortho":
        return 1 / sqrt(total)
    return 1 / total if (norm == "backward") == inverse else 1.0


class _Axis:
    """The transform along an axis.

    An array of an even number of real numbers is taken as one of half as many complex ones.
    """

    def __init__(self, node: Node, x: View, output: View, axis: int, direction: Direction) -> None:
        self._node = node
        self._source, self._copies = collapsed_to_3d(node, x, axis, axis + 1, KernelCode)
        self._target, _ = collapsed_to_3d(node, output, axis, axis + 1, KernelCode)
        self._dtype = output.storage.dtype.real
        self._processor = host()._replace(large=0)
        self._direction = direction

    def steps(self) -> list[Step]:
        """Return the steps."""
        lanes = self._processor.vector_bytes // self._dtype.itemsize
        is_real = isinstance(self._node.op, RFFT | IRFFT)
        real = self._target if isinstance(self._node.op, IRFFT) else self._source
        before, n, after = real.shape
        assert isinstance(n, int)
        cut = None
        if n >= _LONG and after == 1 and not is_real and radices_of(n, 16):
            cut = cut_in_two(n, lanes)
        if cut is not None:
            return [*self._copies, *self._long_steps(*cut, lanes)]
        is_odd = is_real and n % 2 == 1
        count = n // 2 if is_real and not is_odd else n
        # A length with a large prime factor is transformed by convolutions.
        length, chirp = count, radices_of(count, 16) is None
        if chirp:
            length = convolution_length(count, 16 * lanes if after == 1 else 1)
        first = _first_radix(length, lanes, masked=self._processor.masked) if after == 1 else 0
        is_beside = after == 1 and not first
        if is_beside:
            # Each row is a column of one matrix: vectors run across rows.
            self._source, self._target = _beside(self._source), _beside(self._target)
            before, after = 1, before
        rest = radices_of(length // max(first, 1), _registers(self._processor))
        assert rest is not None
        radices = (first, *rest) if first else rest
        groups: Groups = Rows(length, before) if first else Columns(before, length, after, lanes)
        direction = self._direction
        if isinstance(self._node.op, RFFT) and not is_odd:  # whose kernel computes twice the result
            direction = direction._replace(scale=direction.scale / 2)
        sequence = StageSequence(groups, self._dtype, self._processor, direction)
        if is_beside and self._source.strides[1] == 1:
            source = sequence.rows_in(
                _across(self._source), pairs=not is_odd or self._source.storage.dtype.is_complex
            )
        else:
            source = _end(self._source, INPUT, 1 if first else 2, pairs=not is_odd)
        target = None
        if not is_beside:
            target = _end(self._target, OUTPUT, 1 if first else 2, pairs=not is_odd)

        def transform(source: End, target: End | Callable[[], End]) -> End:
            if not chirp:
                return sequence.run(radices, source, target)
            return sequence.convolved(radices, source, target, count)

        if is_odd and isinstance(self._node.op, RFFT):
            spectrum = transform(sequence.widened(source, n), sequence.scratch)
            result = sequence.copied(spectrum, target or sequence.beside(), n // 2 + 1)
        elif is_odd:
            whole = transform(sequence.mirrored(source, n), sequence.scratch)
            to = target or sequence.beside(pairs=False)
            result = sequence.copied(whole, to, n, writes_real=True)
        elif not is_real:
            result = transform(source, target or sequence.beside)
        elif isinstance(self._node.op, RFFT):
            spectrum = transform(source, sequence.scratch)
            result = sequence.halves(spectrum, target or sequence.beside(), n)
        else:
            halved = sequence.halves(source, None, n)
            result = transform(halved, target or sequence.beside)
        if is_beside:
            sequence.rows_out(result, _across(self._target))
        return [*self._copies, sequence.step(self._node, self._source, self._target)]

    def _long_steps(self, first: int, second: int, lanes: int) -> list[Step]:
        """Return the steps of rows that are taken as matrices of so many rows and columns.

        The columns are transformed, and their results turned; then the columns of the transposed
        matrix, which are the rows. So several threads divide one row among them.
        """
        (before, n, _), (row, along, _) = self._source.shape, self._source.strides
        matrix = View(
            self._source.storage,
            self._source.offset,
            (before, first, second),
            (row, second * along, along),
        )
        temp = Temp(self._target.storage.dtype, before * n, "half of a long transform")
        middle = in_a_row(temp, (before, second, first))
        groups = Columns(before, first, second, lanes)
        sequence = StageSequence(
            groups, self._dtype, self._processor, self._direction._replace(scale=1.0)
        )
        sizes = [radices_of(size, _registers(self._processor)) for size in (first, second)]
        assert sizes[0] is not None
        assert sizes[1] is not None
        source = _end(matrix, INPUT, 2)
        result = sequence.run(sizes[0], source, sequence.beside, columns=second)
        sequence.rows_out(result, middle)
        steps = [sequence.step(self._node, matrix, middle)]
        groups = Columns(before, second, first, lanes)
        sequence = StageSequence(groups, self._dtype, self._processor, self._direction)
        target = in_a_row(self._target.storage, middle.shape)
        sequence.run(sizes[1], _end(middle, INPUT, 2), _end(target, OUTPUT, 2))
        return [*steps, sequence.step(self._node, middle, target)]


def _registers(processor: Processor) -> int:
    return 32 if processor.masked else 16


def _first_radix(n: int, lanes: int, *, masked: bool) -> int:
    """Return the radix of the first stage along rows, whose results fill vectors; 0 if none."""
    # The next stage has rows as long as the radix: those of one vector take long without masks.
    sizes: tuple[int, ...] = (16, 8) if lanes >= 8 else (8, 4)
    if lanes == 8 and masked:
        sizes = (8,)
    for radix in sizes:
        if n % radix == 0 and n // radix >= max(lanes, 2):
            return radix
    return 0


def _beside(view: View) -> View:
    """Return rows as the columns of one matrix."""
    before, n, _ = view.shape
    row, along, _ = view.strides
    return View(view.storage, view.offset, (1, n, before), (0, along, row))


def _across(view: View) -> View:
    """Return the columns of matrices as rows."""
    batch, n, columns = view.shape
    apart, along, position = view.strides
    return View(view.storage, view.offset, (batch, columns, n), (apart, position, along))


def _end(view: View, operand: int, vectors: int, *, pairs: bool = True) -> End:
    """Return a view as an array of numbers that stages read or write.

    Args:
        view: The view.
        operand: Of the step.
        vectors: The dim that vectors run along.
        pairs: Whether of real numbers those at odd positions are imaginary parts.
    """
    size, width = view.storage.dtype.real.itemsize, 2 if view.storage.dtype.is_complex else 1
    begin = size * width * view.offset
    before, along, after = [width * stride for stride in view.strides]
    odd = 1 if width == 2 else along
    if width == 1 and not pairs:
        odd = 0
    strides = (before, 2 * along if width == 1 and pairs else along, after)
    way: Way = "apart"
    if strides[vectors] == 2 and odd == 1:
        way = "complex"
    elif strides[vectors] == 1:
        way = "planes"
    return End(
        way, (BufferAddress(operand, begin), BufferAddress(operand, begin + size * odd)), strides
    )
