"""Assertions that sizes are equal where a model assumes it and symbols alone don't show it.

A model that halves an image five times and doubles it again adds tensors whose heights are
(h + 15) // 16 and 2 * ((h + 31) // 32): equal for the heights that it is meant for. Such an
equation becomes an assertion, which each run checks before it computes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import graphfw as gf
from graphfw.errors import ShapeError
from graphfw.ir.dim import Dim, DimLike, always_ge, is_symbol, substitute
from graphfw.ir.tensor import Tensor


def fitted(*xs: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors with sizes that broadcast."""
    rank = max([x.ndim for x in xs], default=0)
    wanted: list[DimLike] = []
    for back in range(rank, 0, -1):
        sizes = [x.shape[x.ndim - back] for x in xs if x.ndim >= back]
        wanted.append(_meant([d for d in sizes if d != 1]))
    return tuple([_asserted(x, wanted[rank - x.ndim :], stays=1) for x in xs])


def joined(xs: Sequence[Tensor], axis: int | None = None) -> tuple[Tensor, ...]:
    """Return tensors of one rank with equal sizes, but for one axis if it is given."""
    rank = xs[0].ndim
    if any(x.ndim != rank for x in xs):
        return tuple(xs)  # the op tells it best
    wanted = [_meant([x.shape[i] for x in xs]) for i in range(rank)]
    made = []
    for x in xs:
        sizes = list(wanted)
        if axis is not None:
            sizes[axis] = x.shape[axis]
        made.append(_asserted(x, sizes))
    return tuple(made)


def matched(
    xs: Sequence[Tensor | None], labels: Sequence[Sequence[Hashable]]
) -> tuple[Tensor | None, ...]:
    """Return tensors with equal sizes for dims that have the same label; None says nothing."""
    sizes: dict[Hashable, list[DimLike]] = {}
    for x, row in zip(xs, labels, strict=True):
        for size, label in zip(() if x is None else x.shape, row, strict=False):
            sizes.setdefault(label, []).append(size)
    meant = {label: _meant(found) for label, found in sizes.items()}
    made: list[Tensor | None] = []
    for x, row in zip(xs, labels, strict=True):
        if x is None or len(row) != x.ndim:
            made.append(x)
            continue
        dims = [s if label is None else meant[label] for s, label in zip(x.shape, row, strict=True)]
        made.append(_asserted(x, dims))
    return tuple(made)


def sized(x: Tensor, axis: int, size: DimLike) -> Tensor:
    """Return a tensor with the size of a dim that an operator wants."""
    if not 0 <= axis < x.ndim:
        return x  # the op tells it best
    return _asserted(x, [*x.shape[:axis], size, *x.shape[axis + 1 :]])


def alike(x: Tensor, like: Tensor) -> Tensor:
    """Return a tensor with the sizes of another one."""
    return _asserted(x, like.shape) if x.ndim == like.ndim else x


def reshaped(x: Tensor, dims: Sequence[DimLike]) -> Tensor:
    """Reshape a tensor, also where its number of elements is not shown to be right."""
    try:
        return gf.reshape(x, dims)
    except ShapeError:
        if -1 in dims or not any(isinstance(d, Dim) for d in (*x.shape, *dims)):
            raise
        for index in range(len(dims)):
            try:
                made = gf.reshape(x, [*dims[:index], -1, *dims[index + 1 :]])
                return gf.assert_shape(made, dims)
            except ShapeError:
                continue
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


def holds(graph: gf.Graph, shapes: Mapping[Tensor, Sequence[int]]) -> bool:
    """Return whether the assertions on sizes hold for inputs of these shapes, as far as is known.

    A symbol of which they don't tell is no reason to say no.
    """
    known: dict[str, DimLike] = {}
    for x, shape in shapes.items():
        for dim, size in zip(x.shape, shape, strict=False):
            name = is_symbol(dim)
            if name is not None:
                known.setdefault(name, size)
    for node in graph.nodes:
        if node.op.name == "assert_shape":
            said, actual = node.types[0].shape, node.inputs[0].shape
            pairs = [(a, b) for a, b in zip(said, actual, strict=True) if a != b]
            try:
                if any(_differ(substitute(a, known), substitute(b, known)) for a, b in pairs):
                    return False
            except ZeroDivisionError:
                return False
    return True


def _meant(sizes: Sequence[DimLike]) -> DimLike:
    """Return the size that all should have: a number if there is one, else the shortest text."""
    known = [d for d in sizes if not isinstance(d, Dim)]
    return known[0] if known else min(sizes, key=lambda d: len(str(d)), default=1)


def _asserted(x: Tensor, wanted: Sequence[DimLike], stays: int | None = None) -> Tensor:
    """Return x with the wanted sizes, asserted where they are not those of x.

    Sizes that always differ are left to the op, which tells it best; so is the size that stays.
    """
    sizes = [
        size if size == stays or _differ(size, want) else want
        for size, want in zip(x.shape, wanted, strict=True)
    ]
    return x if tuple(sizes) == tuple(x.shape) else gf.assert_shape(x, sizes)


def _differ(a: DimLike, b: DimLike) -> bool:
    return always_ge(a - 1, b) or always_ge(b - 1, a)
