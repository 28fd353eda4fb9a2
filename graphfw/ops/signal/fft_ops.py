"""The ops of the discrete Fourier transform.

With y = M x for a matrix M, the cotangent of x is M* ct, and M* is the transform in the other
direction. `norm` says which direction is divided by the number of elements; turned around it means
the same factor in the other direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from graphfw.errors import DTypeError, ExecutionError, counted
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike, always_le, symbol
from graphfw.ir.dtype import BY_NAME, DType
from graphfw.ir.functions import F
from graphfw.ir.op import Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import normalize_axes, normalize_axis, require
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.batching import along_axes
from graphfw.ops.dtypes import complex_of

OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The `norm` that gives the same factor in the other direction."""


EMPTY_FIX = "give it one element or more, or pass n= to fill it up with zeros"


def _require_elements(x: Shape, axes: Sequence[int]) -> None:
    for axis in axes:
        require(x[axis] != 0, "nothing to transform", [(0, axis)], EMPTY_FIX)


def _check_elements(name: str, sizes: Iterable[DimLike]) -> None:
    """Check what the rule can't of symbolic dims."""
    if any(size < 1 for size in sizes):
        raise ExecutionError(f"{name}: nothing to transform: a dim has size 0", fix=EMPTY_FIX)


def _require_precise(dtype: DType, kind: str) -> DType:
    fits = dtype.kind == kind and not dtype.is_low_precision
    names = "complex64 or complex128" if kind == "complex" else "float32 or float64"
    fix = f"convert it first: gf.astype(x, gf.{names.split()[0]})"
    require(fits, f"wants {names}, not {dtype.name}", fix=fix, error=DTypeError)
    return dtype


class FourierTransform(Op):
    """The base of the transforms: their time is n log n, here with 16 for the logarithm."""

    linear = "jointly"
    batch = along_axes

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return super().cost(outputs, *inputs)._replace(flops=5 * 16 * inputs[0].size)


def _require_norm(norm: str) -> None:
    require(norm in OPPOSITE, f"norm={norm!r} is none", fix=f"use one of {', '.join(OPPOSITE)}")


@op("fft")
class FFT(FourierTransform):
    """The Fourier transform over axes.  x: [*A] complex  ->  [*A]"""

    axes: tuple[int, ...]
    inverse: bool = False
    norm: str = "backward"

    def shape(self, x: Shape) -> Shape:
        _require_norm(self.norm)
        _require_elements(x, normalize_axes(self.axes, len(x)))
        return x

    def dtype(self, x: DType) -> DType:
        return _require_precise(x, "complex")

    def eval(self, xp: Any, x: Any) -> Any:
        _check_elements("fft", [x.shape[axis] for axis in self.axes])
        if x.size == 0:  # which FFT libraries refuse
            return xp.zeros_like(x)
        transform = xp.fft.ifftn if self.inverse else xp.fft.fftn
        return transform(x, axes=self.axes, norm=self.norm).astype(x.dtype, copy=False)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: emit(FFT(self.axes, not self.inverse, OPPOSITE[self.norm]), ct),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("complex64[3, 5]", axes=(1,))
        yield ok("complex64[3, 4]", axes=(0,), inverse=True)
        yield ok("complex64[m, 2, n]", sizes={"m": 4, "n": 5}, axes=(0, 2), norm="ortho")
        yield ok("complex64[2, n]", axes=(1, 0), inverse=True, norm="forward")
        yield ok("complex128[0, 4]", axes=(1,))
        yield bad("complex64[3]", axes=(1,), match="axis 1 is out of range for 1 dim")
        yield bad("complex64[2, 0]", axes=(1,), match="nothing to transform: x\\[1\\] = 0")
        yield bad("float32[3]", axes=(0,), match="wants complex64 or", error=DTypeError)


@op("rfft")
class RFFT(FourierTransform):
    """The Fourier transform of real numbers along an axis.  [*A, n, *B] -> [*A, n//2 + 1, *B]"""

    axis: int
    norm: str = "backward"

    def shape(self, x: Shape) -> Shape:
        _require_norm(self.norm)
        axis = normalize_axis(self.axis, len(x))
        _require_elements(x, (axis,))
        return (*x[:axis], x[axis] // 2 + 1, *x[axis + 1 :])

    def dtype(self, x: DType) -> DType:
        return complex_of(_require_precise(x, "float"))

    def eval(self, xp: Any, x: Any) -> Any:
        dtype = complex_of(BY_NAME[x.dtype.name]).name
        _check_elements("rfft", x.shape[self.axis : self.axis + 1])
        if x.size == 0:
            size = x.shape[self.axis] // 2 + 1
            return xp.zeros((*x.shape[: self.axis], size, *x.shape[self.axis + 1 :]), dtype=dtype)
        return xp.fft.rfft(x, axis=self.axis, norm=self.norm).astype(dtype, copy=False)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            size = x.shape[self.axis]
            halved = ct * _weights(size, self.axis, ct, 0.5)
            return emit(IRFFT(size, self.axis, OPPOSITE[self.norm]), halved)

        return (gradient,)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 5]", axis=1)
        yield ok("float32[4, 3]", axis=0, norm="ortho")
        yield ok("float32[2, n, 2]", axis=1, norm="forward")
        yield ok("float64[0, 4]", axis=1)
        yield bad("float32[3]", axis=1, match="axis 1 is out of range for 1 dim")
        yield bad("float32[0]", axis=0, match="nothing to transform: x\\[0\\] = 0")
        yield bad("complex64[3]", axis=0, match="wants float32 or float64", error=DTypeError)


@op("irfft")
class IRFFT(FourierTransform):
    """The inverse of rfft, of n real numbers.  x: [*A, n//2 + 1, *B] complex  ->  [*A, n, *B]

    Of element 0, and of element n/2 for an even n, the imaginary part counts for nothing.
    """

    n: DimLike
    axis: int
    norm: str = "backward"

    def shape(self, x: Shape) -> Shape:
        _require_norm(self.norm)
        axis = normalize_axis(self.axis, len(x))
        fix = "pass n=, the number of real elements wanted: 1 or more"
        require(not always_le(self.n, 0), "nothing to transform to", [(0, axis)], fix)
        message = f"for n = {self.n} it needs {counted(self.n // 2 + 1, 'element')}"
        require(x[axis] == self.n // 2 + 1, message, [(0, axis)], fix)
        return (*x[:axis], self.n, *x[axis + 1 :])

    def dtype(self, x: DType) -> DType:
        return _require_precise(x, "complex").real

    def eval(self, xp: Any, x: Any) -> Any:
        dtype = BY_NAME[x.dtype.name].real.name
        _check_elements("irfft", [self.n])
        if x.size == 0:
            return xp.zeros((*x.shape[: self.axis], self.n, *x.shape[self.axis + 1 :]), dtype=dtype)
        result = xp.fft.irfft(x, n=self.n, axis=self.axis, norm=self.norm)
        return result.astype(dtype, copy=False)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            back = emit(RFFT(self.axis, OPPOSITE[self.norm]), ct)
            doubled: Tensor = back * _weights(self.n, self.axis, back, 2)
            return doubled

        return (gradient,)

    @staticmethod
    def cases() -> Iterator[Case]:
        n = symbol("n")
        yield ok("complex64[3, 5]", n=8, axis=1)
        yield ok("complex64[3, 2]", n=5, axis=0, norm="ortho")
        yield ok("complex64[2, n//2 + 1]", n=n, axis=1, norm="forward")
        yield ok("complex64[n]", sizes={"n": 4}, n=2 * n - 2, axis=0)
        yield ok("complex64[0, 3]", n=4, axis=1)
        yield bad("complex64[3]", n=4, axis=1, match="axis 1 is out of range for 1 dim")
        yield bad("complex64[3]", n=6, axis=0, match="for n = 6 it needs 4 elements: x\\[0\\] = 3")
        yield bad("complex64[1]", n=0, axis=0, match="nothing to transform to")
        yield bad("float32[3]", n=4, axis=0, match="wants complex64 or", error=DTypeError)


def _weights(size: DimLike, axis: int, like: Tensor, inner: float) -> Tensor:
    """Return `inner` for the elements of rfft that stand for two, and 1 for the others.

    Those of frequencies 0 and size/2 stand for themselves; others for their conjugates, too.
    """
    position = F.positions(like.shape[axis])
    unpaired = F.logical_or(position == 0, 2 * position == size)
    weights = F.where(unpaired, 1, F.full((), inner, dtype=like.dtype.real))
    return F.reshape(weights, (-1, *(1,) * (like.ndim - 1 - axis)))


@op("resize")
class Resize(Op):
    """Cut off at the end, or filled up with zeros, along axes.  x: [*A]  ->  [*A with lengths]"""

    lengths: tuple[DimLike, ...]
    axes: tuple[int, ...]
    linear = "jointly"
    batch = along_axes

    def shape(self, x: Shape) -> Shape:
        normalize_axes(self.axes, len(x))
        result = list(x)
        for axis, length in zip(self.axes, self.lengths, strict=True):
            result[axis] = length
        return tuple(result)

    def dtype(self, x: DType) -> DType:
        return x

    def eval(self, xp: Any, x: Any) -> Any:
        shape = self.shape(x.shape)
        result = xp.zeros(shape, dtype=x.dtype)
        common = tuple([slice(0, min(old, new)) for old, new in zip(x.shape, shape, strict=True)])
        result[common] = x[common]
        return result

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: resized(ct, tuple([x.shape[axis] for axis in self.axes]), self.axes),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 5]", lengths=(7, 2), axes=(0, 1))
        yield ok("complex64[m]", lengths=(symbol("n"),), axes=(0,))
        yield ok("int32[2, 0]", lengths=(3,), axes=(1,))
        yield bad("float32[3]", lengths=(3,), axes=(1,), match="axis 1 is out of range for 1 dim")


def resized(x: Tensor, sizes: Sequence[DimLike], axes: Sequence[int]) -> Tensor:
    """Cut x off, or fill it up with zeros, where it has not these sizes."""
    others = []
    for i, axis in enumerate(axes):
        have, wanted = x.shape[axis], sizes[i]
        if not (isinstance(have, int) and isinstance(wanted, int)):
            if have != wanted:
                others.append(i)
            continue
        if wanted < have:
            x = x[(slice(None),) * (axis % x.ndim) + (slice(0, wanted),)]
        elif wanted > have:
            widths = [(0, 0)] * x.ndim
            widths[axis] = (0, wanted - have)
            x = F.pad(x, widths)
    if not others:
        return x
    return emit(Resize(tuple([sizes[i] for i in others]), tuple([axes[i] for i in others])), x)
