"""The epilogues of convolutions that cuDNN can compute."""

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
        read: Their operands, in order.
        result: The storage of the result.
    """

    extras: tuple[str, ...]
    read: tuple[Storage, ...]
    result: Storage


def cudnn_epilogue(
    epilogue: Epilogue, shape: Sequence[DimLike], *, by_pixel: bool
) -> CudnnEpilogue | None:
    """Return an epilogue as cuDNN describes it; None if cuDNN does not have it.

    cuDNN can add another image and a bias, and apply a ReLU at the end. But few of its engines say
    that their ReLU keeps NaN, as it must. Floats of 16 bits are rounded once, at the end, and not
    after each addition.

    Args:
        epilogue: The epilogue.
        shape: The shape of the convolution's result, [N, O, *positions].
        by_pixel: Whether the result is channels-last.
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
    """Recognises the expressions of an epilogue.

    Args:
        epilogue: The epilogue.
        sizes: The dims of the convolution's result.
        channel: The strides along them of values for each channel.
        dtype: The dtype of all buffers.
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
        """Return the summands of an expression."""
        value = self._exact(value)
        if isinstance(value, Call) and value.function == "add":
            return [term for arg in value.args for term in self.added(arg)]
        return [value]

    def role(self, term: Expr) -> str:
        """Return the role of a summand; "" if it is unknown."""
        if not isinstance(term, Load):
            return ""
        if term.buffer == self._epilogue.product:
            return "product"
        if self.is_whole(term.access):
            return "residual"
        return "bias" if self._strides(term.access) == self._channel else ""

    def is_whole(self, access: Access) -> bool:
        """Return whether a summand is a whole contiguous image."""
        return self._strides(access) == self._whole

    def _exact(self, value: Expr) -> Expr:
        """Return a value before it was rounded to 16 bits."""
        while isinstance(value, Call) and value.function == "cast":
            if value.dtype not in self._roundings:
                break
            (value,) = value.args
        return value

    def _strides(self, access: Access) -> dict[str, DimLike] | None:
        """Return the strides by axis; None if the access has an offset or terms."""
        if access.terms or self._value(access.offset) != 0:
            return None
        strides = {axis: self._value(stride) for axis, stride in access.strides}
        return {**dict.fromkeys(self._whole, 0), **strides}

    def _value(self, size: Size) -> DimLike:
        return size if isinstance(size, int) else self._epilogue.params[size.number]
