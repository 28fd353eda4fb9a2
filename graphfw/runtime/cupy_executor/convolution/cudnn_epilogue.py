"""The functions that follow a convolution, where cuDNN knows a convolution that ends so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType, float32
from graphfw.ir.shape import size_of
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.ir import Access, Call, Expr, InnerLoop, Load, Size, Store
from graphfw.runtime.kernels.steps import Epilogue, Storage


class CudnnEpilogue(NamedTuple):
    """An epilogue that adds a bias, and perhaps an image.

    Attributes:
        extras: See `CudnnConv`.
        read: What these read, in order.
        result: Where the result goes.
    """

    extras: tuple[str, ...]
    read: tuple[Storage, ...]
    result: Storage


def cudnn_epilogue(
    epilogue: Epilogue, shape: Sequence[DimLike], *, by_pixel: bool
) -> CudnnEpilogue | None:
    """Return what an epilogue is, if cuDNN has convolutions that end so.

    It has those to which a bias is added, before it perhaps another image, and which perhaps end
    with a ReLU; but few of its ways to do that say that they keep NaN, which a ReLU must. Floats of
    16 bits are rounded once, at the end, and not after each addition.

    Args:
        epilogue: The epilogue.
        shape: [N, O, *positions], of the convolution's result.
        by_pixel: Whether the outputs of a position lie side by side.
    """
    kernel = epilogue.kernel
    body = kernel.body[0] if len(kernel.body) == 1 else None
    if not isinstance(body, InnerLoop) or len(body.body) != 1 or epilogue.sections != 1:
        return None
    store, dtypes = body.body[0], {buffer.dtype for buffer in kernel.buffers}
    rows = 1 if by_pixel or shape[0] == 1 else 2
    has_axes = len(kernel.outer) == rows and len(kernel.inner) == 1
    if not isinstance(store, Store) or not has_axes or len(dtypes) != 1:
        return None
    images, outputs, output_sizes = shape[0], shape[1], size_of(shape[2:])
    sizes = (images * output_sizes, outputs) if by_pixel else (images, outputs, output_sizes)
    reader = _Reader(epilogue, sizes, (0, 1) if by_pixel else (0, 1, 0), dtypes.pop())
    found: dict[str, Storage | None] = {}
    for term in reader.added(store.value):
        role = reader.role(term)
        if role in ("", *found):
            return None
        assert isinstance(term, Load)
        found[role] = epilogue.operands[term.buffer]
    result = epilogue.operands[store.buffer]
    if not {"product", "bias"} <= found.keys() or not reader.is_whole(store.access):
        return None
    assert result is not None
    extras = tuple([name for name in ("residual", "bias") if name in found])
    read = [storage for name in extras if (storage := found[name]) is not None]
    return CudnnEpilogue(extras, tuple(read), result)


class _Reader:
    """Says what the expressions of an epilogue are.

    Args:
        epilogue: The epilogue.
        sizes: The dims that a kernel for the convolution's result has at most.
        channel: How values for each channel lie along them.
        dtype: Of all buffers.
    """

    def __init__(
        self,
        epilogue: Epilogue,
        sizes: Sequence[DimLike],
        channel: Sequence[DimLike],
        dtype: DType,
    ) -> None:
        axes = [axis.name for axis in (*epilogue.kernel.outer, *epilogue.kernel.inner)]
        steps = contiguous(sizes)
        self._epilogue = epilogue
        self._whole = dict(zip(axes, steps[-len(axes) :], strict=True))
        self._channel = dict(zip(axes, channel[-len(axes) :], strict=True))
        self._roundings = {dtype, float32} if dtype.is_low_precision else set()

    def added(self, value: Expr) -> list[Expr]:
        """Return what is added up."""
        value = self._exact(value)
        if isinstance(value, Call) and value.function == "add":
            return [term for arg in value.args for term in self.added(arg)]
        return [value]

    def role(self, term: Expr) -> str:
        """Return what one of those is that are added up; empty where it is nothing known."""
        if not isinstance(term, Load):
            return ""
        if term.buffer == self._epilogue.product:
            return "product"
        if self.is_whole(term.access):
            return "residual"
        return "bias" if self._strides(term.access) == self._channel else ""

    def is_whole(self, access: Access) -> bool:
        """Return whether it goes through all of a contiguous image."""
        return self._strides(access) == self._whole

    def _exact(self, value: Expr) -> Expr:
        """Return a value before it was rounded to 16 bits."""
        while isinstance(value, Call) and value.function == "cast":
            if value.dtype not in self._roundings:
                break
            (value,) = value.args
        return value

    def _strides(self, access: Access) -> dict[str, DimLike] | None:
        """Return the strides by axis; None where they are not all that there is."""
        if access.terms or self._value(access.offset) != 0:
            return None
        strides = {axis: self._value(stride) for axis, stride in access.strides}
        return {**dict.fromkeys(self._whole, 0), **strides}

    def _value(self, size: Size) -> DimLike:
        return size if isinstance(size, int) else self._epilogue.params[size.number]
