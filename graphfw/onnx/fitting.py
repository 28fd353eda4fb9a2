"""Sizes that a model takes for equal, and that symbols alone don't show to be.

A model that halves an image five times and doubles it again adds tensors whose heights are
(h + 15) // 16 and 2 * ((h + 31) // 32): equal for the heights that it is meant for. Such an
equation becomes an assertion, which each run checks before it computes.
"""

from __future__ import annotations

from collections.abc import Sequence

import graphfw as gf
from graphfw.errors import ShapeError
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.tensor import Tensor


def fitted(*xs: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors with sizes that broadcast."""
    rank = max([x.ndim for x in xs], default=0)
    wanted: list[DimLike] = []
    for back in range(rank, 0, -1):
        sizes = [x.shape[x.ndim - back] for x in xs if x.ndim >= back]
        wanted.append(_meant([d for d in sizes if d != 1]))
    return tuple([_asserted(x, wanted[rank - x.ndim :], stays=1) for x in xs])


def joined(xs: Sequence[Tensor], axis: int) -> tuple[Tensor, ...]:
    """Return tensors of one rank with equal sizes but for one axis."""
    rank = xs[0].ndim
    if any(x.ndim != rank for x in xs):
        return tuple(xs)  # the op tells it best
    wanted = [_meant([x.shape[i] for x in xs]) for i in range(rank)]
    made = []
    for x in xs:
        sizes = list(wanted)
        sizes[axis] = x.shape[axis]
        made.append(_asserted(x, sizes))
    return tuple(made)


def reshaped(x: Tensor, dims: Sequence[DimLike]) -> Tensor:
    """Reshape a tensor, also where its number of elements is not shown to be right."""
    try:
        return gf.reshape(x, dims)
    except ShapeError:
        if -1 in dims:
            raise
        for place, dim in enumerate(dims):
            if isinstance(dim, Dim):
                try:
                    made = gf.reshape(x, [*dims[:place], -1, *dims[place + 1 :]])
                except ShapeError:
                    continue
                return gf.assert_shape(made, dims)
        raise


def expanded(x: Tensor, shape: Sequence[DimLike]) -> Tensor:
    """Broadcast a tensor to a shape that may itself be broadcast to the tensor's."""
    rank = max(x.ndim, len(shape))
    wanted = [1] * (rank - len(shape)) + list(shape)
    before = rank - x.ndim
    sizes = [
        _meant([d for d in (s, w) if d != 1]) for s, w in zip(x.shape, wanted[before:], strict=True)
    ]
    return gf.broadcast_to(_asserted(x, sizes, stays=1), [*wanted[:before], *sizes])


def _meant(sizes: Sequence[DimLike]) -> DimLike:
    """Return what sizes should all be: a number if there is one, else what is said shortest."""
    known = [d for d in sizes if not isinstance(d, Dim)]
    return known[0] if known else min(sizes, key=lambda d: len(str(d)), default=1)


def _asserted(x: Tensor, wanted: Sequence[DimLike], stays: int | None = None) -> Tensor:
    """Return x with the wanted sizes, asserted where they are not those of x.

    Two numbers that differ are left to the op, which tells it best; so is the size that stays.
    """
    sizes = [
        size if size == stays or (not isinstance(size, Dim) and not isinstance(want, Dim)) else want
        for size, want in zip(x.shape, wanted, strict=True)
    ]
    return x if tuple(sizes) == tuple(x.shape) else gf.assert_shape(x, sizes)
