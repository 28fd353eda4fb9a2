"""Tensors as sets: the distinct elements, and which elements are among others.

How many distinct elements there are is a symbolic dim that each run finds out: see
`ops/data_dependent/measuring_ops.py`. `isin` keeps the shape.
"""

from __future__ import annotations

from typing import NamedTuple

from graphfw.ir.dtype import uint8
from graphfw.ir.functions import F, public
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, converted, promoted
from graphfw.ops.data_dependent.measuring_ops import Unique, measure
from graphfw.ops.shape.axes import expand_dims, flatten
from graphfw.ops.sorting.sort_search import searchsorted, sort

__all__ = [
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "isin",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]


class UniqueAll(NamedTuple):
    """The result of `unique_all`.

    Attributes:
        values: The K distinct elements, in order.  [K]
        indices: Where each stands first in the flattened tensor.  [K] int64
        inverse_indices: Which of the values each element is.  [*A] int64
        counts: How often each stands in the tensor.  [K] int64
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`: see `UniqueAll`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`: see `UniqueAll`."""

    values: Tensor
    inverse_indices: Tensor


@public
def unique_all(x: TensorLike, /) -> UniqueAll:
    """Find the distinct elements, where they stand and how often.  x: [*A] -> see `UniqueAll`

    Every NaN is distinct; 0.0 and -0.0 are not.

    Raises:
        ConcreteValueError: It is in the body of a loop, a vmap, ….

    >>> import graphfw as gf
    >>> gf.unique_all(gf.asarray([3, 1, 3])).inverse_indices
    Tensor([1, 0, 1], dtype=int64)
    """
    return _unique(x)


@public
def unique_counts(x: TensorLike, /) -> UniqueCounts:
    """Find the distinct elements and how often each stands in x: see `unique_all`.

    Raises:
        ConcreteValueError: It is in the body of a loop, a vmap, ….
    """
    found = _unique(x)
    return UniqueCounts(found.values, found.counts)


@public
def unique_inverse(x: TensorLike, /) -> UniqueInverse:
    """Find the distinct elements and which of them each element is: see `unique_all`.

    Raises:
        ConcreteValueError: It is in the body of a loop, a vmap, ….
    """
    found = _unique(x)
    return UniqueInverse(found.values, found.inverse_indices)


@public
def unique_values(x: TensorLike, /) -> Tensor:
    """Find the distinct elements, in order.  x: [*A] -> [K]; see `unique_all`.

    Raises:
        ConcreteValueError: It is in the body of a loop, a vmap, ….

    >>> import graphfw as gf
    >>> gf.unique_values(gf.asarray([[3, 1], [1, 3]]))
    Tensor([1, 3], dtype=int64)
    """
    return _unique(x).values


def _unique(x: TensorLike) -> UniqueAll:
    return UniqueAll(*measure(Unique, ["unique"], as_tensor(x)))


@public
def isin(x1: TensorLike, x2: TensorLike, /, *, invert: bool = False) -> Tensor:
    """Return whether each element of x1 is among those of x2.  x1: [*A], x2: [*B] -> [*A] bool

    NaN is equal to nothing.

    Args:
        x1: What to look for.
        x2: Where to look.
        invert: True says which are not.

    Raises:
        DTypeError: No dtype holds both (uint64 with a signed integer).

    >>> import graphfw as gf
    >>> gf.isin(gf.asarray([1, 2, 3]), [3, 1, 5])
    Tensor([ True, False,  True], dtype=bool)
    """
    needles, haystack = promoted("isin", x1, x2)
    many = flatten(haystack)
    if needles.dtype.is_complex:  # which have no order
        found = F.any(expand_dims(needles, axis=-1) == many, axis=-1)
    else:
        found = _is_in_sorted(needles, many)
    result: Tensor = ~found if invert else found
    return result


def _is_in_sorted(needles: Tensor, many: Tensor) -> Tensor:
    """Return a mask of those that are there: whose first and last positions in order differ."""
    if needles.dtype.is_bool:
        return _is_in_sorted(converted(needles, uint8), converted(many, uint8))
    ordered = sort(many, stable=False)
    first = searchsorted(ordered, needles, side="left")
    end = searchsorted(ordered, needles, side="right")
    return (first < end) & (needles == needles)
