"""The launch of a kernel at given sizes: the variant, and the number of threads.

What is computed depends on the sizes only, never on the device: the number of threads that share a
row, and so the order of its sums, is chosen here, and blocks that do not fit at once wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from graphfw.ir.dim import DimLike, divisible
from graphfw.runtime.cupy_executor.codegen.forms import (
    PARTIAL,
    TILE,
    Form,
    can_split,
    form_of,
    has_carries,
    joined_size,
    kept_bytes,
    rows_of,
    tiled,
    vector_width,
)
from graphfw.runtime.cupy_executor.codegen.types import register
from graphfw.runtime.cupy_executor.codegen.values import number_of
from graphfw.runtime.kernels.handwritten_cuda import NOTHING, Launch
from graphfw.runtime.kernels.ir import (
    Access,
    Accumulate,
    Draw,
    Kernel,
    Load,
    Param,
    Reduce,
    Size,
    Store,
)
from graphfw.runtime.kernels.walk import postorder, roots, statements

NARROW = 1 << 30
"""Indices below it are computed in 32 bits; a step to the next one stays below 2^31 then."""

SHARED = 48 << 10
"""Bytes of memory of its own that any block may have, without having asked for more."""

_FEW_GROUPS = 2048
"""Groups that run at once, where each keeps its row in memory that must be given to it."""

BLOCKS = 1 << 16
"""More blocks than any GPU runs at once; threads then go on to further positions."""

_SHORT = 8
"""Rows up to this length are left to a thread each."""

_LONG = 1024
"""Rows from this length on are shared by a block."""

_FEW_ROWS = 256
"""The number of rows up to which a block shares each row that is longer than a warp."""

_MANY_COLUMNS = 8192
"""With so many columns, each is left to a thread."""

VECTOR = "_vector"
"""The suffix of the names of variants whose threads take several elements in a row at once."""

_THREADS = {
    "elements": 256,
    "vector": 256,
    "tile": 256,
    "single": 128,
    "warp": 256,
    "block": 512,
    "split": 512,
    "across": 256,
    "apart": 256,
    "items": 512,
    "sums": 256,
}


def threads(variant: str) -> int:
    """Return how many threads a block of a variant has at most."""
    return _THREADS[variant.removesuffix(VECTOR)]


def without_alignment(variant: str) -> str:
    """Return the variant that does the same wherever in memory elements lie.

    >>> without_alignment("vector"), without_alignment("warp_vector"), without_alignment("tile")
    ('elements', 'warp', 'tile')
    """
    return "elements" if variant == "vector" else variant.removesuffix(VECTOR)


_SHARED_ELEMENTS = {"block": 32, "items": 32, "across": 256}
"""The number of values for which a block's memory has room in joins: see prelude.cuh."""

SPLIT = ("split", f"split{VECTOR}", "apart")
"""The variants in which several blocks share rows."""

_ENOUGH = 512
"""With so many blocks a GPU is busy: rows need not be shared by several."""

_PIECE = 16
"""The least positions of each thread of blocks that share a row."""


def variants(kernel: Kernel) -> tuple[str, ...]:
    """Return the variants that a kernel's source has."""
    form = form_of(kernel)
    takes_vectors = vector_width(kernel) > 1
    if form == "elements":
        vector = ["vector"] if takes_vectors else []
        return ("elements", *vector, *(["tile"] if tiled(kernel) else []))
    if form in ("rows", "items") and kernel.form == "rows":
        groups = ["warp", "block", *(["split"] if can_split(kernel) else [])]
        groups = ["items"] if form == "items" else groups
        vectors = [f"{name}{VECTOR}" for name in groups] if takes_vectors else []
        return (*(["single"] if form == "rows" else []), *groups, *vectors)
    if form == "columns" and not has_carries(kernel):
        return ("single", "across", *(["apart"] if can_split(kernel) else []))
    return ("single",) if form == "columns" else (form,)


def possible(kernel: Kernel, params: Sequence[DimLike]) -> tuple[str, ...]:
    """Return the variants that launches may be, given what is known of the run-time integers."""

    def known(size: Size) -> DimLike:
        return params[size.number] if isinstance(size, Param) else size

    found = variants(kernel)
    width = vector_width(kernel)
    if width > 1:
        vectors = [name for name in found if name.endswith("vector")]
        divides = [divisible(known(size), width) for size in _multiples(kernel)]
        needless = vectors if False in divides else []
        needless = [without_alignment(name) for name in vectors] if all(divides) else needless
        found = tuple([name for name in found if name not in needless])
    inner = math.prod([known(axis.extent) for axis in kernel.inner])
    if form_of(kernel) != "rows" or not isinstance(inner, int):
        return found
    if inner <= 32:
        shares = ["single"] if inner <= _SHORT else ["warp"]
    else:
        shares = ["block", "split", *(["warp"] if inner < _LONG else [])]
    return tuple([name for name in found if without_alignment(name) in shares])


def launch(kernel: Kernel, params: Sequence[int], variant: str = "", pieces: int = 0) -> Launch:
    """Return how a kernel is launched.

    Args:
        kernel: The kernel.
        params: Its run-time integers.
        variant: Which variant it is to be; the best by default.
        pieces: How many blocks are to share a row, where some do; the best by default.
    """
    sizes = _Sizes(kernel, params)
    form = form_of(kernel)
    items = sizes.items()
    if items == 0 or (form == "elements" and sizes.inner == 0):
        return NOTHING
    chosen = variant or _chosen(kernel, form, sizes)
    per_group = kept_bytes(kernel) * sizes.inner
    block, groups, needed = _geometry(kernel, chosen, sizes, items)
    grid, count = min(-(-needed // groups), BLOCKS), 1
    shared = scratch = counters = 0
    if chosen in SPLIT:
        count = pieces or _pieces(chosen, sizes, grid)
        sums = sum([isinstance(s, Reduce) for s in statements(kernel)])
        scratch, counters = PARTIAL * sums * sizes.rows * count, grid
    elif per_group and per_group * groups + _joining(kernel, chosen) <= SHARED:
        shared = per_group * groups
    elif per_group:
        grid = min(grid, max(1, _FEW_GROUPS // groups))
        scratch = per_group * groups * grid
    return Launch(chosen, grid, count, block, shared, scratch, counters, sizes.is_wide())


def _joining(kernel: Kernel, variant: str) -> int:
    """Return how much of a block's memory joins take besides what a launch asks for."""
    elements = _SHARED_ELEMENTS.get(variant.removesuffix(VECTOR), 0)
    found = [s for s in statements(kernel) if isinstance(s, Reduce | Accumulate)]
    sizes = {(s.kind, register(s.value.dtype)): joined_size(s) for s in found}
    return elements * sum(sizes.values())


def _pieces(variant: str, sizes: _Sizes, blocks: int) -> int:
    """Return how many blocks share a row, where there are so many without that."""
    lanes = threads(variant) // 32 if variant == "apart" else threads(variant)
    return max(1, min(-(-_ENOUGH // blocks), sizes.inner // (lanes * _PIECE)))


def _chosen(kernel: Kernel, form: Form, sizes: _Sizes) -> str:
    if form == "elements":
        if _is_worth_tiles(kernel, sizes):
            return "tile"
        return "vector" if sizes.take_vectors() else "elements"
    if form in ("rows", "items") and kernel.form == "rows":
        name = _shared_by(kernel, sizes) if form == "rows" else "items"
        return f"{name}{VECTOR}" if name != "single" and sizes.take_vectors() else name
    if form == "columns":
        few = sizes.rows < _MANY_COLUMNS and sizes.inner >= 32
        if not few or has_carries(kernel):
            return "single"
        is_split = can_split(kernel) and _pieces("apart", sizes, -(-sizes.rows // 32)) > 1
        return "apart" if is_split else "across"
    return form


def _shared_by(kernel: Kernel, sizes: _Sizes) -> str:
    """Return which threads share a row."""
    if sizes.inner <= _SHORT:
        return "single"
    if sizes.inner < _LONG and (sizes.rows >= _FEW_ROWS or sizes.inner <= 32):
        return "warp"
    is_split = can_split(kernel) and _pieces("split", sizes, sizes.rows) > 1
    return "split" if is_split else "block"


def _is_worth_tiles(kernel: Kernel, sizes: _Sizes) -> bool:
    """Return whether tiles would not be mostly empty."""
    found = tiled(kernel)
    axes = [] if found is None else [found.axis, kernel.inner[-1]]
    return bool(axes) and all([sizes.number(axis.extent) >= TILE // 2 for axis in axes])


def _multiples(kernel: Kernel) -> list[Size]:
    """Return the sizes that must be multiples of a vector's width."""
    found = [kernel.inner[-1].extent, *[size for row in rows_of(kernel) for size in row.multiples]]
    return [*found, *([] if kernel.split is None else [kernel.split])]


def takes_vectors(kernel: Kernel, params: Sequence[int]) -> bool:
    """Return whether the variants for vectors can be launched."""
    return _Sizes(kernel, params).take_vectors()


def _geometry(
    kernel: Kernel, variant: str, sizes: _Sizes, items: int
) -> tuple[tuple[int, int], int, int]:
    """Return a block's threads, how many groups it has, and how many groups there is work for."""
    most, width = threads(variant), vector_width(kernel) if variant.endswith("vector") else 1
    variant = variant.removesuffix(VECTOR)
    if variant in ("elements", "vector"):
        return (most, 1), most, sizes.rows * sizes.inner // width
    if variant == "tile":
        found = tiled(kernel)
        assert found is not None
        sides = [sizes.number(axis.extent) for axis in (found.axis, kernel.inner[-1])]
        tiles = math.prod([-(-side // TILE) for side in sides])
        others = sizes.rows * sizes.inner // math.prod(sides)
        return (TILE, most // TILE), 1, others * tiles
    if variant == "single":
        return (most, 1), most, sizes.rows
    if variant == "warp":
        return (most, 1), most // 32, sizes.rows
    if variant in ("across", "apart"):
        return (32, most // 32), 32, sizes.rows
    if variant == "sums":
        return (32, most // 32), 1, items * -(-sizes.inner // 32)
    side_by_side = sizes.inner // width
    side_by_side = sizes.number(kernel.per_item) if kernel.form == "columns" else side_by_side
    count = max(32, min(most, -(-side_by_side // 32) * 32))
    if kernel.form == "columns":
        return (count, 1), count, items * count
    return (count, 1), 1, items if variant == "items" else sizes.rows


class _Sizes:
    """The values of a kernel's sizes in a launch."""

    def __init__(self, kernel: Kernel, params: Sequence[int]) -> None:
        self.kernel = kernel
        self.params = params
        self.extents = {
            axis.name: self.number(axis.extent) for axis in (*kernel.outer, *kernel.inner)
        }
        self.rows = math.prod([self.extents[axis.name] for axis in kernel.outer])
        self.inner = math.prod([self.extents[axis.name] for axis in kernel.inner])

    def number(self, size: Size) -> int:
        """Return the number of a size."""
        return number_of(size, self.params)

    def items(self) -> int:
        """Return how many items there are."""
        kernel, per_item = self.kernel, self.number(self.kernel.per_item)
        if self.rows == 0:
            return 0
        if kernel.form == "columns":
            last = self.extents[kernel.outer[-1].name] if kernel.outer else 1
            return self.rows // last * -(-last // per_item)
        pieces = 1 if kernel.split is None else -(-self.inner // self.number(kernel.split))
        return -(-self.rows // per_item) * pieces

    def take_vectors(self) -> bool:
        """Return whether all that is read and written several elements at once lies as it must."""
        width = vector_width(self.kernel)
        if width == 1:
            return False
        return all([self.number(size) % width == 0 for size in _multiples(self.kernel)])

    def is_wide(self) -> bool:
        """Return whether an index may be too large for 32 bits."""
        lines = any(isinstance(s, Accumulate) for s in statements(self.kernel))
        reach = [self._reach(access) for access in self._accesses()]
        lasts = [self.rows * self.inner, *([self.items() * (self.inner + 32)] if lines else [])]
        return max([*lasts, self.rows, *reach]) >= NARROW

    def _reach(self, access: Access) -> int:
        """Return how far from the first element an access may be."""
        strides = [abs(self.number(s)) * max(self.extents[a], 1) for a, s in access.strides]
        terms = [abs(self.number(t.stride)) * self.number(t.bound) for t in access.terms]
        return abs(self.number(access.offset)) + sum(strides) + sum(terms)

    def _accesses(self) -> Iterable[Access]:
        for expr in postorder([root for s in statements(self.kernel) for root in roots(s)]):
            if isinstance(expr, Load | Draw):
                yield expr.access
        for s in statements(self.kernel):
            if isinstance(s, Store | Accumulate):
                yield s.access
