"""Transforms of n real numbers by those of n/2 complex ones, whose parts are neighbours.

With z_j = x_2j + i x_(2j+1), Z its transform, h = n/2, and w = exp(-2 pi i / n), the transform of x
at k, 0 < k < h, is E + w^k D, where E = (Z_k + Z*_(h-k)) / 2 and D = (Z_k - Z*_(h-k)) / 2i. Both
kernels here compute twice that: `joined`, what the numbers x have for a transform, and `parted`,
the Z that have the transform x. At 0 and h, which are one number of Z, the kernels are others.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.complex_numbers import Parts
from graphfw.runtime.kernels.ir import (
    Access,
    Axis,
    Buffer,
    Const,
    InnerLoop,
    Kernel,
    Load,
    Size,
    Store,
)
from graphfw.runtime.kernels.primitives import PrimitiveCalls
from graphfw.runtime.numpy_executor.fourier.butterflies import (
    minus,
    minus_rotated,
    multiplied,
    plus,
    plus_rotated,
)
from graphfw.runtime.numpy_executor.fourier.groups import LineLoops
from graphfw.runtime.numpy_executor.fourier.stages import (
    FACTORS,
    IMAG,
    REAL,
    StageKernel,
    StageParams,
    Way,
)

_K = PrimitiveCalls()


class HalvesKind(NamedTuple):
    """All that the code of a kernel depends on.

    Attributes:
        dtype: Of the parts.
        makes: The transform of real numbers of that of half as many complex ones, or the other way
            around.
        ends: Whether it computes what is at 0 and h, else the others.
        reads: How the numbers lie that it reads, along vectors, and
        writes: those that it writes.
        across: Whether vectors run across the axis: then one row of them has one k.
        cut: Whether a work item has a part of them.
    """

    dtype: DType
    makes: Literal["joined", "parted"]
    ends: bool
    reads: Way
    writes: Way
    across: bool
    cut: bool


class HalvesSizes(NamedTuple):
    """The loops of a kernel and how its arrays lie, in elements of parts.

    Attributes:
        lines: The loops.
        half: n/2.
        reads: The strides of arrays, k, and positions of what is read.
        writes: Likewise what is written.
    """

    lines: LineLoops
    half: int
    reads: tuple[DimLike, DimLike, DimLike]
    writes: tuple[DimLike, DimLike, DimLike]


def halves(kind: HalvesKind, sizes: HalvesSizes) -> StageKernel:
    """Return the kernel; what it writes begins at the first k that it computes."""
    params = StageParams()
    step, last = sizes.reads[1], sizes.half * sizes.reads[1]
    offsets = (0, last) if kind.ends else (step, last - step)
    near, far = [
        _read(kind, sizes, params, name, offset, sign)
        for name, offset, sign in (("near", offsets[0], 1), ("far", offsets[1], -1))
    ]
    far = Parts(far.real, _K.neg(far.imag))
    if kind.ends:
        results = _ends(kind, near, far)
    else:
        results = [_between(kind, near, far, _factor(kind, sizes, params))]
    strides = _strides(kind, params, "write", sizes.writes, kind.writes, 1)
    if kind.writes == "planes":
        stores = [
            Store(FACTORS + 1 + 2 * number + part, Access(0, strides), result[part])
            for number, result in enumerate(results)
            for part in (REAL, IMAG)
        ]
    else:
        stores = [
            Store(FACTORS + 1 + number, Access(part, strides), result[part])
            for number, result in enumerate(results)
            for part in (REAL, IMAG)
        ]
    written = len({store.buffer for store in stores})
    lines = sizes.lines
    kernel = Kernel(
        form="rows",
        outer=(Axis("b", params("batch", lines.batch)), Axis("p", params("rows", lines.rows))),
        inner=(Axis("q", params("positions", lines.positions)),),
        per_item=params("per_item", lines.per_item),
        split=params("split", lines.split) if kind.cut else None,
        buffers=tuple([Buffer(kind.dtype, n > FACTORS) for n in range(FACTORS + 1 + written)]),
        params=len(params.values),
        body=(InnerLoop(tuple(stores)),),
    )
    return StageKernel(kernel, tuple(params.values.values()))


def _read(
    kind: HalvesKind, sizes: HalvesSizes, params: StageParams, name: str, offset: DimLike, sign: int
) -> Parts:
    strides = _strides(kind, params, name, sizes.reads, kind.reads, sign)
    access = Access(params(f"{name} begin", offset), strides)
    return Parts(*[Load(kind.dtype, part, access) for part in (REAL, IMAG)])


def _strides(
    kind: HalvesKind,
    params: StageParams,
    name: str,
    strides: tuple[DimLike, DimLike, DimLike],
    way: Way,
    sign: int,
) -> tuple[tuple[str, Size], ...]:
    batch, along, position = strides
    fixed = {"complex": 2, "planes": 1}.get(way)
    found: list[tuple[str, Size]] = [("b", params(f"{name} batch", batch))]
    if kind.across:
        found.append(("p", params(f"{name} row", sign * along)))
        found.append(("q", fixed or params(f"{name} position", position)))
    else:
        found.append(("q", sign * fixed if fixed else params(f"{name} position", sign * along)))
    return tuple(found)


def _factor(kind: HalvesKind, sizes: HalvesSizes, params: StageParams) -> Parts:
    """Return w^k, of a table of pairs or, along vectors, of all real parts before all others."""
    if kind.across:
        at = [Access(part, (("p", 2),)) for part in (REAL, IMAG)]
    else:
        at = [
            Access(params(f"factor {n}", n * (sizes.half - 1)), (("q", 1),)) for n in (REAL, IMAG)
        ]
    return Parts(*[Load(kind.dtype, FACTORS, access) for access in at])


def _between(kind: HalvesKind, near: Parts, far: Parts, factor: Parts) -> Parts:
    even, odd = plus(near, far), minus(near, far)
    if kind.makes == "joined":
        return minus_rotated(even, multiplied(odd, factor))
    return plus_rotated(even, multiplied(odd, Parts(factor.real, _K.neg(factor.imag))))


def _ends(kind: HalvesKind, near: Parts, far: Parts) -> list[Parts]:
    """Return the numbers at 0 and at h, which are one end of Z, or that of these."""
    if kind.makes == "parted":
        return [Parts(_K.add(near.real, far.real), _K.sub(near.real, far.real))]
    total, difference = _K.add(near.real, near.imag), _K.sub(near.real, near.imag)
    nothing = Const(kind.dtype, 0.0)
    return [Parts(_K.add(x, x), nothing) for x in (total, difference)]
