"""Transforms of n real numbers by those of n/2 complex ones, whose components are neighbours.

With z_j = x_2j + i x_(2j+1), Z its transform, h = n/2, and w = exp(-2 pi i / n), the transform of x
at k, 0 < k < h, is E + w^k D, where E = (Z_k + Z*_(h-k)) / 2 and D = (Z_k - Z*_(h-k)) / 2i. Both
kernels here compute twice that: `joined`, what the numbers x have for a transform, and `parted`,
the Z that have the transform x. At 0 and h, which are one number of Z, the kernels are others.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.complex_numbers import Components
from graphfw.runtime.kernels.ir import (
    Access,
    Const,
    Load,
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
from graphfw.runtime.numpy_executor.fourier.lines import (
    LineSizes,
    factor_of_line,
    line_kernel,
    line_strides,
)
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
        dtype: Of the components.
        makes: The transform of real numbers of that of half as many complex ones, or the other way
            around.
        ends: Whether it computes what is at 0 and h, else the others.
        reads: How the numbers lie that it reads, along vectors, and
        writes: those that it writes.
        across: Whether vectors run across the axis: then one row of them has one k.
        cut: Whether a work item has a range of them.
    """

    dtype: DType
    makes: Literal["joined", "parted"]
    ends: bool
    reads: Way
    writes: Way
    across: bool
    cut: bool


def halves(kind: HalvesKind, sizes: LineSizes) -> StageKernel:
    """Return the kernel; what it writes begins at the first k that it computes.

    Args:
        kind: Which it is.
        sizes: Of the n/2 complex numbers.
    """
    params = StageParams()
    step, last = sizes.reads[1], sizes.length * sizes.reads[1]
    offsets = (0, last) if kind.ends else (step, last - step)
    near, far = [
        _read(kind, sizes, params, name, offset, sign)
        for name, offset, sign in (("near", offsets[0], 1), ("far", offsets[1], -1))
    ]
    far = Components(far.real, _K.neg(far.imag))
    if kind.ends:
        results = _ends(kind, near, far)
    else:
        factor = factor_of_line(params, kind.dtype, sizes.length - 1, across=kind.across)
        results = [_between(kind, near, far, factor)]
    strides = line_strides(params, "write", sizes.writes, kind.writes, across=kind.across)
    if kind.writes == "planes":
        stores = [
            Store(FACTORS + 1 + 2 * number + component, Access(0, strides), result[component])
            for number, result in enumerate(results)
            for component in (REAL, IMAG)
        ]
    else:
        stores = [
            Store(FACTORS + 1 + number, Access(component, strides), result[component])
            for number, result in enumerate(results)
            for component in (REAL, IMAG)
        ]
    written = len({store.buffer for store in stores})
    return line_kernel(params, kind.dtype, sizes.loops, stores, written, cut=kind.cut)


def _read(
    kind: HalvesKind, sizes: LineSizes, params: StageParams, name: str, offset: DimLike, sign: int
) -> Components:
    strides = line_strides(params, name, sizes.reads, kind.reads, sign, across=kind.across)
    access = Access(params(f"{name} begin", offset), strides)
    return Components(*[Load(kind.dtype, component, access) for component in (REAL, IMAG)])


def _between(kind: HalvesKind, near: Components, far: Components, factor: Components) -> Components:
    even, odd = plus(near, far), minus(near, far)
    if kind.makes == "joined":
        return minus_rotated(even, multiplied(odd, factor))
    return plus_rotated(even, multiplied(odd, Components(factor.real, _K.neg(factor.imag))))


def _ends(kind: HalvesKind, near: Components, far: Components) -> list[Components]:
    """Return the numbers at 0 and at h, which are one end of Z, or that of these."""
    if kind.makes == "parted":
        return [Components(_K.add(near.real, far.real), _K.sub(near.real, far.real))]
    total, difference = _K.add(near.real, near.imag), _K.sub(near.real, near.imag)
    nothing = Const(kind.dtype, 0.0)
    return [Components(_K.add(x, x), nothing) for x in (total, difference)]
