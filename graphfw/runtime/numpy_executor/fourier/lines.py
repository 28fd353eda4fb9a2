"""`lines`: the kernel that goes along the axis once, number by number.

It copies numbers to where stages have them and back, or multiplies them by those of a table, for
transforms of any length n as convolutions
(Bluestein, IEEE Transactions on Audio and Electroacoustics 18, 1970, p. 451): since j k is
(j^2 + k^2 - (k - j)^2) / 2, the transform of x at k is c_k times the sum over j of x_j c_j times
c*_(k-j), where c_j = exp(-pi i j^2 / n). Transforms of a length that has stages make the sums.
"""

from __future__ import annotations

from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.complex_numbers import Components
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
from graphfw.runtime.numpy_executor.fourier.butterflies import multiplied
from graphfw.runtime.numpy_executor.fourier.groups import LineLoops
from graphfw.runtime.numpy_executor.fourier.stages import (
    FACTORS,
    IMAG,
    REAL,
    StageKernel,
    StageParams,
    Way,
    multiple_of,
)


class LineKind(NamedTuple):
    """All that the code of a kernel depends on.

    Attributes:
        dtype: Of the components.
        reads: How the numbers lie that it reads, along vectors; None where it writes zeros.
        writes: How those lie that it writes.
        across: Whether vectors run across the axis: then a row of them has one place.
        cut: Whether a work item has a range of a row.
        swapped: Whether it writes the imaginary part first.
        factors: Whether numbers are multiplied.
        mirrored: Whether it reads from the end, and conjugates.
        reads_real: Whether the numbers that it reads have no imaginary part.
        writes_real: Whether it writes none.
    """

    dtype: DType
    reads: Way | None
    writes: Way
    across: bool
    cut: bool
    swapped: bool = False
    factors: bool = False
    mirrored: bool = False
    reads_real: bool = False
    writes_real: bool = False


class LineSizes(NamedTuple):
    """The loops of a kernel and how its arrays lie, in elements of components.

    Attributes:
        loops: The loops.
        length: How many numbers a transform has along the axis.
        reads: The strides of what is read: from array to array, along the axis, and across it.
        writes: Likewise what is written.
    """

    loops: LineLoops
    length: int
    reads: tuple[DimLike, DimLike, DimLike]
    writes: tuple[DimLike, DimLike, DimLike]


def lines(kind: LineKind, sizes: LineSizes) -> StageKernel:
    """Return the kernel."""
    params = StageParams()
    nothing = Const(kind.dtype, 0.0)
    result = Components(nothing, nothing)
    if kind.reads:
        result = _read(kind, kind.reads, sizes, params)
    if kind.factors:
        factor = factor_of_line(params, kind.dtype, sizes.length, across=kind.across)
        result = multiplied(result, factor)
    strides = line_strides(params, "write", sizes.writes, kind.writes, across=kind.across)
    order = (IMAG, REAL) if kind.swapped else (REAL, IMAG)
    if kind.writes_real:
        stores = [Store(FACTORS + 1, Access(0, strides), result.real)]
    elif kind.writes == "planes":
        stores = [
            Store(FACTORS + 1 + component, Access(0, strides), result[component])
            for component in order
        ]
    else:
        stores = [
            Store(FACTORS + 1, Access(number, strides), result[component])
            for number, component in enumerate(order)
        ]
    written = len({store.buffer for store in stores})
    return line_kernel(params, kind.dtype, sizes.loops, stores, written, cut=kind.cut)


def _read(kind: LineKind, way: Way, sizes: LineSizes, params: StageParams) -> Components:
    sign = -1 if kind.mirrored else 1
    strides = line_strides(params, "read", sizes.reads, way, sign, across=kind.across)
    real, imag = [Load(kind.dtype, component, Access(0, strides)) for component in (REAL, IMAG)]
    if kind.reads_real:
        return Components(real, Const(kind.dtype, 0.0))
    return Components(real, PrimitiveCalls().neg(imag) if kind.mirrored else imag)


def line_kernel(
    params: StageParams,
    dtype: DType,
    loops: LineLoops,
    stores: list[Store],
    written: int,
    *,
    cut: bool,
) -> StageKernel:
    """Return the kernel of some stores, in so many buffers."""
    kernel = Kernel(
        form="rows",
        outer=(Axis("b", params("batch", loops.batch)), Axis("p", params("rows", loops.rows))),
        inner=(Axis("q", params("positions", loops.positions)),),
        per_item=params("per_item", loops.per_item),
        split=params("split", loops.split) if cut else None,
        buffers=tuple([Buffer(dtype, n > FACTORS) for n in range(FACTORS + 1 + written)]),
        params=len(params.values),
        body=(InnerLoop(tuple(stores)),),
        multiple=multiple_of(loops.positions, loops.split if cut else 0),
    )
    return StageKernel(kernel, tuple(params.values.values()))


def line_strides(
    params: StageParams,
    name: str,
    strides: tuple[DimLike, DimLike, DimLike],
    way: Way,
    sign: int = 1,
    *,
    across: bool,
) -> tuple[tuple[str, Size], ...]:
    """Return the strides of an access along the axis, or against it.

    Args:
        params: Of the kernel.
        name: Under which strides are params.
        strides: From array to array, along the axis, and across it.
        way: How numbers lie along vectors.
        sign: -1 for against it.
        across: See `LineKind`.
    """
    batch, along, position = strides
    fixed = {"complex": 2, "planes": 1}.get(way)
    found: list[tuple[str, Size]] = [("b", params(f"{name} batch", batch))]
    if across:
        found.append(("p", params(f"{name} row", sign * along)))
        found.append(("q", fixed or params(f"{name} position", position)))
    else:
        found.append(("q", sign * fixed if fixed else params(f"{name} position", sign * along)))
    return tuple(found)


def factor_of_line(params: StageParams, dtype: DType, length: int, *, across: bool) -> Components:
    """Return the number of a table: of pairs or, along vectors, of all real parts before others."""
    if across:
        at = [Access(component, (("p", 2),)) for component in (REAL, IMAG)]
    else:
        at = [
            Access(params(f"factor {component}", component * length), (("q", 1),))
            for component in (REAL, IMAG)
        ]
    return Components(*[Load(dtype, FACTORS, access) for access in at])
