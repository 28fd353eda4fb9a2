"""The forms in which the threads of a GPU go through a kernel: see `nest`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from graphfw.ir.dtype import DType
from graphfw.runtime.cupy_executor.codegen.values import Varying
from graphfw.runtime.kernels.ir import (
    Access,
    Accumulate,
    Axis,
    BoundsCheck,
    Carry,
    InnerLoop,
    Keep,
    Kernel,
    Load,
    Reduce,
    Size,
    Store,
)
from graphfw.runtime.kernels.walk import postorder, roots, statements

Form: TypeAlias = Literal["elements", "rows", "columns", "items", "sums"]

_VECTOR = 16
"""The bytes that a thread reads or writes at once."""

TILE = 32
"""The number of rows, and of columns, of a tile."""

_TILES = 4
"""The number of tiles for which a block's memory has room."""

PARTIAL = 16
"""Bytes of what a block has found of a row that others share with it."""


def form_of(kernel: Kernel) -> Form:
    """Return in which way the threads of a GPU go through a kernel."""
    found = list(statements(kernel))
    is_flat = all(isinstance(item, InnerLoop) for item in kernel.body)
    if any(isinstance(s, Accumulate) for s in found):
        only_sums = is_flat and all(
            isinstance(s, Store | BoundsCheck) or (isinstance(s, Accumulate) and s.inner)
            for s in found
        )
        is_whole = kernel.form == "rows" and kernel.split is None
        return "sums" if only_sums and is_whole else "items"
    if kernel.form == "columns":
        return "columns"
    return (
        "elements" if is_flat and all(isinstance(s, Store | BoundsCheck) for s in found) else "rows"
    )


def has_carries(kernel: Kernel) -> bool:
    """Return whether positions must be gone through one after the other."""
    return any(isinstance(s, Carry) for s in statements(kernel))


def can_split(kernel: Kernel) -> bool:
    """Return whether several blocks may share a row: it is gone through once, and reduced."""
    if form_of(kernel) not in ("rows", "columns"):
        return False
    loops = [item for item in kernel.body if isinstance(item, InnerLoop)]
    if len(loops) != 1:
        return False
    before = kernel.body[: kernel.body.index(loops[0])]
    within = loops[0].body
    return (
        all(isinstance(s, BoundsCheck) for s in before)
        and any(isinstance(s, Reduce) for s in within)
        and all(isinstance(s, Reduce | BoundsCheck | Store) for s in within)
    )


class WideAccess(NamedTuple):
    """An access that takes several elements in a row at once.

    Attributes:
        buffer: Of which buffer.
        multiples: Sizes that must be multiples of their number, so that the first one lies well.
    """

    buffer: int
    multiples: tuple[Size, ...]


def rows_of(kernel: Kernel) -> list[WideAccess]:
    """Return the accesses of a kernel that may take several elements at once."""
    varying = Varying(kernel, kernel.inner[-1:])
    found = []
    for number, access in _accesses(kernel):
        if is_row(access, kernel, varying):
            last = kernel.inner[-1].name
            sizes = [stride for axis, stride in access.strides if axis != last]
            sizes += [access.offset, *[term.stride for term in access.terms]]
            found.append(WideAccess(number, tuple(sizes)))
    return found


class TransposedLoads(NamedTuple):
    """Loads of an elementwise kernel that take neighbours from far apart, as transposes do.

    Attributes:
        axis: Along which axis their neighbours are contiguous.
        loads: What is loaded, each once: of which buffer, and where.
    """

    axis: Axis
    loads: tuple[tuple[int, Access], ...]


def tiled(kernel: Kernel) -> TransposedLoads | None:
    """Return the loads that are better made tile by tile; None where there are none."""
    if form_of(kernel) != "elements" or len(kernel.body) != 1:
        return None
    last = kernel.inner[-1].name
    found: dict[tuple[int, Access], str] = {}
    for number, access in _loads(kernel):
        strides = dict(access.strides)
        axis = next((name for name, stride in strides.items() if stride == 1), last)
        if strides.get(last, 0) not in (0, 1) and axis != last and not access.terms:
            found[number, access] = axis
    if len({*found.values()}) != 1 or len(found) > _TILES:
        return None
    axes = {axis.name: axis for axis in (*kernel.outer, *kernel.inner)}
    return TransposedLoads(axes[next(iter(found.values()))], tuple(found))


def vector_width(kernel: Kernel) -> int:
    """Return how many elements in a row a thread takes at once; 1: no more."""
    form = form_of(kernel)
    if form not in ("elements", "rows", "items") or kernel.form == "columns" or has_carries(kernel):
        return 1
    sizes = [kernel.buffers[row.buffer].dtype.itemsize for row in rows_of(kernel)]
    return _VECTOR // max(sizes) if sizes and max(sizes) < _VECTOR else 1


def kept_bytes(kernel: Kernel) -> int:
    """Return how much memory a group of threads needs for each inner position."""
    return sum([kept_size(s) for s in statements(kernel) if isinstance(s, Keep)])


def kept_size(keep: Keep) -> int:
    """Return the bytes of a kept value."""
    return _in_registers(keep.value.dtype)


def joined_size(s: Reduce | Accumulate) -> int:
    """Return the bytes of what one thread has found for a reduction; of some, with its position."""
    return PARTIAL if s.kind in ("argmax", "argmin") else _in_registers(s.value.dtype)


def _in_registers(dtype: DType) -> int:
    return 4 if dtype.is_low_precision else dtype.itemsize


def _loads(kernel: Kernel) -> Iterator[tuple[int, Access]]:
    for expr in postorder([root for s in statements(kernel) for root in roots(s)]):
        if isinstance(expr, Load) and not kernel.is_packed(expr):
            yield expr.buffer, expr.access


def _accesses(kernel: Kernel) -> Iterator[tuple[int, Access]]:
    yield from _loads(kernel)
    for s in statements(kernel):
        if isinstance(s, Store):
            yield s.buffer, s.access


def is_row(access: Access, kernel: Kernel, varying: Varying) -> bool:
    """Return whether an access takes elements in a row along the last inner axis."""
    strides = dict(access.strides)
    return strides.get(kernel.inner[-1].name) == 1 and not varying.terms(access)
