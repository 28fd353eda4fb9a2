"""The kernels that make C-contiguous copies of arrays.

A kernel knows which axes are contiguous, reversed or short; sizes and other strides are run-time
parameters. So a few kernels copy all arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.dim import DimLike, symbol
from graphfw.ir.dim_text import evaluator, written
from graphfw.ir.dtype import DType, uint8, uint16, uint32, uint64
from graphfw.ir.shape import size_of
from graphfw.runtime.kernels.lower_narrow import turn_if_narrow
from graphfw.runtime.kernels.lower_steps import finished, step
from graphfw.runtime.kernels.steps import Temp, View
from graphfw.runtime.numpy_executor.codegen.strided import NEAR
from graphfw.runtime.numpy_executor.contiguous import ArrayLayout
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.runner import StepCall
from graphfw.runtime.numpy_executor.target import CpuTarget
from graphfw.runtime.planning.copies import copying, in_a_row
from graphfw.runtime.planning.draws import Draws

_UNITS: dict[int, DType] = {1: uint8, 2: uint16, 4: uint32, 8: uint64}
"""The dtypes that elements are copied as, by their bytes."""


def call_of(layout: ArrayLayout) -> StepCall:
    """Return the call that copies an array, whose address is base 0, to base 1."""
    # Channels of images and coordinates of points are few, and near one another.
    form = _Form(
        layout.itemsize,
        tuple([n if n <= NEAR else None for n in layout.shape]),
        tuple([n if abs(n) <= NEAR else None for n in layout.strides]),
    )
    return _kernel(form).call(layout, form)


class _Form(NamedTuple):
    """The numbers of a layout that are in a kernel; None where one is a run-time integer."""

    itemsize: int
    dims: tuple[int | None, ...]
    strides: tuple[int | None, ...]


class _Kernel:
    """A kernel that copies, for all sizes."""

    def __init__(self, form: _Form) -> None:
        dims = _sizes("d", form.dims)
        strides = _sizes("s", form.strides)
        source = Temp(_UNITS[form.itemsize], 0, "an array that is fed")
        copy = in_a_row(Temp(source.dtype, size_of(dims), "a contiguous copy"), dims)
        draft = copying(View(source, 0, dims, strides), copy)
        target = CpuTarget(Draws(()))
        turn_if_narrow(draft, target.narrow)
        made = step(finished(draft, target), (), target)
        (self.address,) = compile_codes([made.code])
        self.array_numbers = [0 if storage is source else 1 for storage in made.operands]
        sizes = [*made.params, made.work_items, made.scratch]
        self._evaluate = evaluator(written(sizes, _names("d", dims) + _names("s", strides)))

    def call(self, layout: ArrayLayout, form: _Form) -> StepCall:
        """Return the call of the kernel for an array."""
        sizes = [n for n, known in zip(layout.shape, form.dims, strict=True) if known is None]
        sizes += [n for n, known in zip(layout.strides, form.strides, strict=True) if known is None]
        *params, work_items, scratch = self._evaluate(*sizes)
        refs = [(array, 0) for array in self.array_numbers]
        return StepCall(self.address, refs, params, work_items, scratch)


def _sizes(prefix: str, known: Sequence[int | None]) -> tuple[DimLike, ...]:
    return tuple([symbol(f"{prefix}{i}") if n is None else n for i, n in enumerate(known)])


def _names(prefix: str, sizes: Sequence[DimLike]) -> list[str]:
    return [f"{prefix}{i}" for i, size in enumerate(sizes) if not isinstance(size, int)]


@functools.lru_cache(maxsize=256)
def _kernel(form: _Form) -> _Kernel:
    return _Kernel(form)
