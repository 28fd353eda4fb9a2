"""Steps that copy, and one that marks the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphfw.ir.dim import DimLike, dim_max
from graphfw.ir.dtype import int64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.ir import (
    Access,
    Axis,
    Buffer,
    Const,
    Kernel,
    Load,
    Loop,
    Param,
    Size,
    Store,
)
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.numpy_executor.codegen import KernelCode

_CELL = 8192
"""Elements that are copied by one claim."""


def copied(view: View, nodes: tuple[Node, ...], why: str) -> tuple[Step, Temp]:
    """Return a step that copies a view, and where the copy lies, in a row."""
    dtype = view.storage.dtype
    target = Temp(dtype, size_of(view.shape), why)
    shape, strides = view.shape, view.strides
    if strides == contiguous(shape):
        shape, strides = (target.size,), (1,)
    params: list[DimLike] = []

    def size(dim: DimLike) -> Size:
        if isinstance(dim, int) and dim in (0, 1):
            return dim
        params.append(dim)
        return Param(len(params) - 1)

    if not shape:
        shape, strides = (1,), (1,)
    axes = tuple(Axis(f"i{number}", size(dim)) for number, dim in enumerate(shape))
    read = Access(size(view.offset), _along(axes, map(size, strides)))
    written = Access(0, _along(axes, map(size, contiguous(shape))))
    *outer, width = shape
    per_cell = dim_max(1, _CELL // dim_max(1, width))
    kernel = Kernel(
        form="rows",
        outer=axes[:-1],
        inner=axes[-1:],
        per_cell=size(per_cell),
        split=size(_CELL),
        buffers=(Buffer(dtype, False), Buffer(dtype, True)),
        params=len(params),
        body=(Loop((Store(1, written, Load(dtype, 0, read)),)),),
    )
    rows = size_of(outer)
    step = Step(
        nodes=nodes,
        code=KernelCode(kernel),
        operands=(view.storage, target),
        written=(False, True),
        params=tuple(params),
        cells=_pieces(rows, per_cell) * _pieces(width, _CELL),
    )
    return step, target


def marked() -> tuple[Step, Temp]:
    """Return a step that writes a 1, and where."""
    kernel = Kernel(
        form="rows",
        outer=(),
        inner=(Axis("i", 1),),
        per_cell=1,
        split=None,
        buffers=(Buffer(int64, True),),
        params=0,
        body=(Loop((Store(0, Access(0, (("i", 1),)), Const(int64, 1)),)),),
    )
    mark = Temp(int64, 1, "the mark that everything is written")
    return Step((), KernelCode(kernel), (mark,), (True,), (), 1), mark


def _along(axes: Sequence[Axis], strides: Iterable[Size]) -> tuple[tuple[str, Size], ...]:
    return tuple(
        (axis.name, stride) for axis, stride in zip(axes, strides, strict=True) if stride != 0
    )


def _pieces(count: DimLike, size: DimLike) -> DimLike:
    return -(-count // size)
