"""`stage`: the kernel of one stage of a transform, by Stockham's algorithm.

A transform of n = r m numbers takes, for each p below m, the numbers p + m k (k = 0 … r - 1),
transforms these r, turns the k-th result by exp(-2 pi i p k / n), and writes it as the p-th of the
numbers of which what is left are r transforms of length m each. These r lie beside one another:
they are what the next stages have as vectors. So no stage exchanges elements within a vector, but
for the first of a transform whose numbers lie beside one another: its vectors run along p, and it
writes the r results of each p side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.complex_numbers import Components
from graphfw.runtime.kernels.ir import (
    Access,
    Axis,
    Buffer,
    InnerLoop,
    Kernel,
    Load,
    Param,
    Size,
    Store,
)
from graphfw.runtime.numpy_executor.fourier.butterflies import butterfly, multiplied, scaled

REAL, IMAG, FACTORS = 0, 1, 2
"""The buffers that a stage reads: the components of the numbers, and their factors. The buffers
that it writes follow: the components, or the results at each k, both components in turn."""


_VECTOR = 16
"""Elements of the longest vector: kernels that differ in larger factors would be the same code."""

Turns: TypeAlias = Literal["no", "rows", "positions", "each", "lines"]
"""The factors of results: none, one for each row and k but 0, for each position and k but 0, for
each row, position and k, or for each row and k."""

Way: TypeAlias = Literal["complex", "apart", "planes"]
"""The arrangement of neighbouring numbers: components in turn, or each component by itself."""


class StageKind(NamedTuple):
    """All that the code of a stage depends on.

    Attributes:
        dtype: Of the components.
        radix: How many numbers it transforms at a time.
        reads: How the numbers lie that it reads.
        writes: Likewise those that it writes; "woven": the components for themselves, the results
            of each p side by side.
        turns: What the results are multiplied by.
        scaled: Whether results are multiplied by a real number, before all.
        swapped: Whether it writes the imaginary part first.
        cut: Whether a work item has a range of the positions.
    """

    dtype: DType
    radix: int
    reads: Way
    writes: Way | Literal["woven"]
    turns: Turns
    scaled: bool = False
    swapped: bool = False
    cut: bool = False


class Strides(NamedTuple):
    """The distance of numbers, in elements of components."""

    batch: DimLike
    row: DimLike
    position: DimLike
    step: DimLike
    """Between numbers that are transformed, or between their results."""


class StageSizes(NamedTuple):
    """The loops of a stage and how its arrays lie, in elements of components.

    Attributes:
        batch: How many transforms there are, rows of the first axis.
        rows: How many p, rows of the second one.
        positions: How many vectors' elements.
        per_item: How many rows a work item has, and
        split: of how many positions.
        reads: The strides of `batch`, `rows`, positions and k of what is read.
        writes: Likewise what is written; where the components lie in turn, each k has a buffer of
            its own.
        turns: The strides of `rows`, k and components of the table, where these are no fixed
            numbers.
    """

    batch: DimLike
    rows: DimLike
    positions: DimLike
    per_item: DimLike
    split: DimLike
    reads: Strides
    writes: Strides
    turns: tuple[DimLike, DimLike, DimLike] = (0, 0, 0)


class StageKernel(NamedTuple):
    """A kernel and the run-time integers that it is called with."""

    kernel: Kernel
    params: tuple[DimLike, ...]


class StageParams:
    """The run-time integers of a kernel, by name: which there are depends on its kind alone."""

    def __init__(self) -> None:
        self.values: dict[str, DimLike] = {}

    def __call__(self, name: str, value: DimLike) -> Size:
        self.values.setdefault(name, value)
        return Param(list(self.values).index(name))


def stage(kind: StageKind, sizes: StageSizes) -> StageKernel:
    """Return the kernel of a stage."""
    params = StageParams()
    numbers = _read(kind, sizes, params)
    results = butterfly(numbers)
    if kind.scaled:
        factor = Load(kind.dtype, FACTORS, Access(0, ()))
        results = [scaled(x, factor) for x in results]
    if kind.turns != "no":
        first = 1 if kind.turns in ("rows", "positions") else 0
        rotated = [
            multiplied(results[k], _turn(kind, sizes, params, k)) for k in range(first, kind.radix)
        ]
        results = [*results[:first], *rotated]
    stores = _written(kind, sizes, params, results)
    written = 2 if kind.writes in ("planes", "woven") else kind.radix
    kernel = Kernel(
        form="rows",
        outer=(Axis("b", params("batch", sizes.batch)), Axis("p", params("rows", sizes.rows))),
        inner=(Axis("q", params("positions", sizes.positions)),),
        per_item=params("per_item", sizes.per_item),
        split=params("split", sizes.split) if kind.cut else None,
        buffers=tuple([Buffer(kind.dtype, n > FACTORS) for n in range(FACTORS + 1 + written)]),
        params=len(params.values),
        body=(InnerLoop(tuple(stores)),),
        multiple=multiple_of(sizes.positions, sizes.split if kind.cut else 0),
    )
    return StageKernel(kernel, tuple(params.values.values()))


def multiple_of(positions: DimLike, split: DimLike) -> int:
    """Return the largest power of two, up to a vector, that divides a kernel's positions.

    Args:
        positions: How many there are.
        split: Of how many a work item has a part; 0 where it has all.
    """
    if not isinstance(positions, int) or not isinstance(split, int):
        return 1
    return math.gcd(positions, split, _VECTOR)


def _read(kind: StageKind, sizes: StageSizes, params: StageParams) -> list[Components]:
    batch, rows, position, step = sizes.reads
    strides = (
        ("b", params("read batch", batch)),
        ("p", params("read row", rows)),
        ("q", _lane(kind.reads, params, "read position", position)),
    )
    offsets = [params(f"read {k}", k * step) if k else 0 for k in range(kind.radix)]
    return [
        Components(
            *[Load(kind.dtype, component, Access(at, strides)) for component in (REAL, IMAG)]
        )
        for at in offsets
    ]


def _lane(way: str, params: StageParams, name: str, value: DimLike) -> Size:
    return {"complex": 2, "planes": 1}.get(way) or params(name, value)


def _turn(kind: StageKind, sizes: StageSizes, params: StageParams, k: int) -> Components:
    """Return the factor of the k-th result.

    In the table of "rows" the numbers of a row lie in a row, the components in turn; in others the
    components are for themselves.
    """
    if kind.turns == "rows":
        width = 2 * (kind.radix - 1)
        at = [Access(2 * k - 2 + component, (("p", width),)) for component in (REAL, IMAG)]
    else:
        row, step, apart = sizes.turns
        strides: list[tuple[str, Size]] = [] if kind.turns == "lines" else [("q", 1)]
        if kind.turns != "positions":
            strides.insert(0, ("p", params("turn row", row)))
        offsets = [
            params(f"turn {k} {component}", k * step + component * apart)
            for component in (REAL, IMAG)
        ]
        at = [Access(offset, tuple(strides)) for offset in offsets]
    return Components(*[Load(kind.dtype, FACTORS, access) for access in at])


def _written(
    kind: StageKind, sizes: StageSizes, params: StageParams, results: Sequence[Components]
) -> list[Store]:
    batch, rows, position, step = sizes.writes
    lane = (
        kind.radix
        if kind.writes == "woven"
        else _lane(kind.writes, params, "write position", position)
    )
    strides = (
        ("b", params("write batch", batch)),
        ("p", params("write row", rows)),
        ("q", lane),
    )
    if kind.writes in ("planes", "woven"):
        return [
            Store(FACTORS + 1 + component, Access(_offset(kind, params, k, step), strides), value)
            for component in (REAL, IMAG)
            for k, value in enumerate([result[component] for result in results])
        ]
    order = (IMAG, REAL) if kind.swapped else (REAL, IMAG)
    return [
        Store(FACTORS + 1 + k, Access(offset, strides), result[component])
        for k, result in enumerate(results)
        for offset, component in enumerate(order)
    ]


def _offset(kind: StageKind, params: StageParams, k: int, step: DimLike) -> Size:
    if kind.writes == "woven":
        return k
    return params(f"write {k}", k * step) if k else 0
