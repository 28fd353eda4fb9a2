"""Scans of an associative function, in a number of steps that is logarithmic in the length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphfw.errors import ShapeError
from graphfw.ir.dim import Dim
from graphfw.ir.functions import F, public
from graphfw.ir.modes import as_called
from graphfw.ir.shape import normalize_axis, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import ruled
from graphfw.ops.composed import callback, demand
from graphfw.ops.structures import Structure, demand_equal

__all__ = ["associative_scan"]

Combine = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


@public
def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Combine the elements up to each along an axis.  elems: [*A, n, *B] -> [*A, n, *B]

    G. E. Blelloch, "Prefix sums and their applications", 1990. Where n is symbolic the elements are
    combined one after the other, by a `scan`.

    Args:
        fn: Takes two structures like `elems`, of slices along the axis, and combines them element
            by element: fn(fn(a, b), c) must equal fn(a, fn(b, c)).
        elems: A tensor, or a nested structure of tensors of one length along the axis.
        reverse: Combine from the last element to the first.
        axis: Along which.

    Raises:
        ShapeError, DTypeError: The lengths differ; `fn` changes a shape or a dtype.
        ArgumentError: There is no tensor; `fn` returns another structure than it takes.
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> gf.associative_scan(gf.maximum, gf.asarray([1, 3, 2, 5, 4]))
    Tensor([1, 3, 3, 5, 5], dtype=int64)
    """
    checked = callback("associative_scan", "fn", fn, "fn(a, b)")
    fn, elements = as_called(checked, "associative_scan"), Structure.of(elems)
    demand(bool(elements.tensors), "associative_scan: elems has no tensor", fix="pass at least one")
    axes = [ruled("associative_scan", t, normalize_axis, axis, t.ndim) for t in elements.tensors]
    tensors = [F.moveaxis(t, own, 0) for t, own in zip(elements.tensors, axes, strict=True)]
    length = tensors[0].shape[0]
    demand(
        all(t.shape[0] == length for t in tensors),
        "associative_scan: the tensors have different lengths",
        {f"elems[{i}]": t for i, t in enumerate(elements.tensors)},
        fix="give all the same length along the axis",
        error=ShapeError,
    )

    def combine(a: Sequence[Tensor], b: Sequence[Tensor]) -> Sequence[Tensor]:
        moved = [[F.moveaxis(t, 0, own) for t, own in zip(x, axes, strict=True)] for x in (a, b)]
        first, second = elements.pack(moved[0]), elements.pack(moved[1])
        taken, made = Structure.of(first), Structure.of(fn(first, second))
        sides = ("what fn takes", taken), ("what it returns", made)
        demand_equal("associative_scan", *sides, _one_shape)
        return [F.moveaxis(t, own, 0) for t, own in zip(made.tensors, axes, strict=True)]

    flipped = [F.flip(t, axis=0) for t in tensors] if reverse else tensors
    made = _sequential(combine, flipped) if isinstance(length, Dim) else _tree(combine, flipped)
    results = [F.flip(t, axis=0) for t in made] if reverse else made
    return elements.pack([F.moveaxis(t, 0, own) for t, own in zip(results, axes, strict=True)])


def _one_shape(taken: Tensor, returned: Tensor) -> str:
    return f"combine element by element: return the shape {shape_text(taken.shape)}"


def _tree(combine: Combine, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Combine pairs, scan these, and fill the gaps."""
    length = int(tensors[0].shape[0])
    if length < 2:
        return tensors
    pairs = combine([t[:-1:2] for t in tensors], [t[1::2] for t in tensors])
    odd = _tree(combine, pairs)
    before = [t[:-1] for t in odd] if length % 2 == 0 else odd
    even = combine(before, [t[2::2] for t in tensors]) if length > 2 else [t[2:] for t in tensors]
    return [_interleaved(t[:1], e, o) for t, e, o in zip(tensors, even, odd, strict=True)]


def _interleaved(first: Tensor, even: Tensor, odd: Tensor) -> Tensor:
    """Return first, odd[0], even[0], odd[1], even[1], …"""
    count = int(even.shape[0])
    rows = F.reshape(F.stack([odd[:count], even], axis=1), (2 * count, *odd.shape[1:]))
    return F.concat([first, rows, odd[count:]], axis=0)


def _sequential(combine: Combine, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Combine one element after the other; n is at least 1 where there is a first element."""

    def iteration(carry: Any, element: Any) -> tuple[Any, Any]:
        total, begun = carry
        rows = [F.expand_dims(t, axis=0) for t in element]
        both = combine(total, rows)
        new = [F.where(begun, t, row) for t, row in zip(both, rows, strict=True)]
        return (new, F.ones_like(begun)), [t[0] for t in new]

    start = [F.zeros((1, *t.shape[1:]), dtype=t.dtype) for t in tensors]
    _, stacked = F.scan(iteration, (start, F.asarray(False)), list(tensors))
    result: Sequence[Tensor] = stacked
    return result
