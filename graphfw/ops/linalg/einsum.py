"""`einsum`: sums of products, written as labels of dims."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from graphfw.errors import ShapeError, counted
from graphfw.ir.concrete import describe
from graphfw.ir.dim import DimLike, is_symbol
from graphfw.ir.functions import F, public
from graphfw.ir.shape import one_name, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, promoted
from graphfw.ops.composed import demand

__all__ = ["einsum"]

Labels = tuple[str, ...]
"""A name for each dim: a letter, or `...0`, `...1` for those of an ellipsis, from the last on."""


class _Term(NamedTuple):
    """A tensor whose dims have names."""

    tensor: Tensor
    labels: Labels


_MOST_SEARCHED = 5
"""The most operands that are tried in every order; each further one takes ten times as long."""


@public
def einsum(equation: str, /, *xs: TensorLike) -> Tensor:
    """Sum products of elements, as the equation says.

    Each operand's dims are named by letters; those that are not in the output are summed over, and
    those with one name run together. Without `->` the output has the names that stand once, in
    alphabetical order. `...` stands for any further dims, which broadcast. A name that an operand
    has twice takes a diagonal. Operands are multiplied two at a time: up to five in the
    order that takes the fewest operations, more in a good one.
    Numeric dtypes, promoted; sums of float16 and bfloat16 are made in float32.

    Args:
        equation: For example "bij,bjk->bik", "ii", "...i,i->...".
        xs: The operands.

    Raises:
        ArgumentError: The equation can't be read, or is for another number of operands.
        ShapeError: An operand has other dims than its names, or dims of one name differ in size.

    >>> import graphfw as gf
    >>> gf.einsum("ij,kj->ik", gf.ones((2, 3)), gf.ones((4, 3))).shape
    (2, 4)
    >>> float(gf.einsum("ii", gf.asarray([[1.0, 2.0], [3.0, 4.0]])))
    5.0
    """
    inputs, output = _read(equation, len(xs))
    tensors = promoted("einsum", *xs)
    terms = [
        _Term(x, _labels(equation, number, subscripts, x))
        for number, (subscripts, x) in enumerate(zip(inputs, tensors, strict=True), 1)
    ]
    wanted = _output_labels(equation, output, [term.labels for term in terms])
    sizes = _sizes(equation, terms)
    terms = [_diagonal(_without_broadcast(term, sizes)) for term in terms]
    for numbers in _order(terms, wanted, sizes):
        chosen = [terms[i] for i in numbers]
        terms = [term for i, term in enumerate(terms) if i not in numbers]
        kept = set(wanted).union(*(term.labels for term in terms))
        terms.append(_contract(chosen, kept))
    return _arranged(terms[0], wanted)


# The equation.


def _read(equation: str, count: int) -> tuple[list[str], str | None]:
    """Split an equation into the operands' subscripts and the output's, which may be missing."""
    demand(
        isinstance(equation, str),
        f"einsum: the equation must be a string, not {equation!r}",
        fix='write gf.einsum("ij,jk->ik", a, b)',
    )
    left, arrow, right = "".join(equation.split()).partition("->")
    inputs = left.split(",")
    for subscripts in (*inputs, right):
        _check_subscripts(equation, subscripts)
    message = (
        f'einsum: "{equation}" is for {counted(len(inputs), "operand")}, and {count} are given'
    )
    demand(len(inputs) == count, message, fix="name the dims of each operand, between commas")
    return inputs, right if arrow else None


def _check_subscripts(equation: str, subscripts: str) -> None:
    names = subscripts.replace("...", "", 1)
    strange = next((c for c in names if c not in string.ascii_letters), "")
    message = f'einsum: "{equation}" has {strange!r}, which is no letter'
    demand(not strange, message, fix="write letters, commas, one ... an operand, and ->")


def _labels(equation: str, number: int, subscripts: str, x: Tensor) -> Labels:
    """Name an operand's dims; those of an ellipsis are counted from the last."""
    before, dots, after = subscripts.partition("...")
    rest = x.ndim - len(before) - len(after)
    names = (
        f'operand {number} of "{equation}" has {counted(x.ndim, "dim")}, and "{subscripts}" names'
    )
    count = f"{len(before) + len(after)} or more" if dots else len(before)
    fits = rest >= 0 if dots else rest == 0
    fix = "write a letter for each dim, or ... for further ones"
    demand(fits, f"einsum: {names} {count}", {"x": x}, fix=fix, error=ShapeError)
    return (*before, *(f"...{i}" for i in reversed(range(rest))), *after)


def _output_labels(equation: str, output: str | None, labels: Sequence[Labels]) -> Labels:
    counts = Counter(name for names in labels for name in names)
    extra = max(sum(len(name) > 1 for name in names) for names in labels)
    dots = tuple(f"...{i}" for i in reversed(range(extra)))
    if output is None:
        return (*dots, *sorted(name for name in counts if counts[name] == 1 and len(name) == 1))
    before, has_dots, after = output.partition("...")
    for name in before + after:
        known = ", ".join(sorted(n for n in counts if len(n) == 1)) or "none"
        message = f'einsum: the output of "{equation}" has "{name}", which no operand has'
        demand(name in counts, message, fix=f"the operands' names are: {known}")
        message = f'einsum: the output of "{equation}" has "{name}" twice'
        demand((before + after).count(name) == 1, message, fix="write each name once")
    message = f'einsum: the output of "{equation}" needs ..., as the operands have further dims'
    demand(bool(has_dots) or not dots, message, fix="write ... in the output, or sum first")
    return (*before, *dots, *after)


def _sizes(equation: str, terms: Sequence[_Term]) -> dict[str, DimLike]:
    """The size of each name, which all its dims must have; of an ellipsis' dims, 1 broadcasts."""
    sizes: dict[str, DimLike] = {}
    owners: dict[str, tuple[int, Tensor]] = {}
    for number, (x, labels) in enumerate(terms, 1):
        for name, size in zip(labels, x.shape, strict=True):
            stretches = len(name) > 1
            if name not in sizes or (stretches and sizes[name] == 1):
                sizes[name], owners[name] = size, (number, x)
            elif size != sizes[name] and not (stretches and size == 1):
                raise _two_sizes(equation, name, (*owners[name], sizes[name]), (number, x, size))
    return sizes


def _two_sizes(
    equation: str, name: str, a: tuple[int, Tensor, DimLike], b: tuple[int, Tensor, DimLike]
) -> ShapeError:
    shown = f'"{name}"' if len(name) == 1 else "a dim of ..."
    sizes = f"{a[2]} in operand {a[0]}, {b[2]} in operand {b[0]}"
    symbol = is_symbol(a[2]) or is_symbol(b[2])
    fix = f"{one_name(a[2], b[2])}use gf.assert_shape"
    if isinstance(a[2], int) or isinstance(b[2], int):  # one that maybe is an array's
        fix = f"if {symbol} always has that size, say so with gf.assert_shape"
    return ShapeError(
        f'einsum: {shown} of "{equation}" has two sizes: {sizes}',
        operands=[describe(f"operand {number}", x) for number, x, _ in (a, b)],
        fix=fix if symbol else "give dims that differ different letters",
    )


# The work.


def _without_broadcast(term: _Term, sizes: dict[str, DimLike]) -> _Term:
    """Drop an ellipsis' dims of size 1 that are broadcast: multiplying brings them back."""
    x, labels = term
    drop = [i for i, name in enumerate(labels) if x.shape[i] == 1 and sizes[name] != 1]
    if not drop:
        return term
    return _Term(F.squeeze(x, axis=drop), tuple(n for i, n in enumerate(labels) if i not in drop))


def _diagonal(term: _Term) -> _Term:
    """Make one dim of those that have one name."""
    x, labels = term
    while len(set(labels)) < len(labels):
        name = next(n for n in labels if labels.count(n) > 1)
        first = labels.index(name)
        second = labels.index(name, first + 1)
        x = F.diagonal(x, axis1=first, axis2=second)
        labels = (*(n for i, n in enumerate(labels) if i not in (first, second)), name)
    return _Term(x, labels)


def _order(terms: Sequence[_Term], output: Labels, sizes: dict[str, DimLike]) -> list[list[int]]:
    """Return the numbers of the terms to multiply in turn; each product goes to the end."""
    letters = dict(zip(sizes, string.ascii_letters, strict=False))
    if len(terms) < 3 or len(sizes) > len(letters):
        return [list(range(len(terms)))]
    # Sizes that are not known are taken to be middling ones; these arrays use no memory.
    extents = {name: size if isinstance(size, int) else 64 for name, size in sizes.items()}
    arrays = [np.broadcast_to(0.0, [extents[n] for n in term.labels]) for term in terms]
    subscripts = ["".join(letters[n] for n in term.labels) for term in terms]
    equation = f"{','.join(subscripts)}->{''.join(letters[n] for n in output)}"
    search = "optimal" if len(terms) <= _MOST_SEARCHED else "greedy"
    path = np.einsum_path(equation, *arrays, optimize=search)[0]
    return [list(numbers) for numbers in path[1:]]


def _contract(terms: Sequence[_Term], kept: set[str]) -> _Term:
    """Multiply terms, two at a time, and sum over the names that are not kept."""
    result = terms[0]
    for i, term in enumerate(terms[1:], 1):
        later = kept.union(*(t.labels for t in terms[i + 1 :]))
        result = _multiply(
            _summed(result, later | set(term.labels)),
            _summed(term, later | set(result.labels)),
            later,
        )
    return _summed(result, kept)


def _summed(term: _Term, kept: set[str]) -> _Term:
    axes = tuple(i for i, name in enumerate(term.labels) if name not in kept)
    if not axes:
        return term
    total = F.sum(term.tensor, axis=axes, dtype=term.tensor.dtype)
    return _Term(total, tuple(name for name in term.labels if name in kept))


def _multiply(a: _Term, b: _Term, kept: set[str]) -> _Term:
    """Multiply two terms: as matrices, where there is a name to sum over."""
    both = [name for name in a.labels if name in b.labels]
    batch = tuple(name for name in both if name in kept)
    summed = tuple(name for name in both if name not in kept)
    rows = tuple(name for name in a.labels if name not in both)
    columns = tuple(name for name in b.labels if name not in both)
    left = _grouped(a, batch, rows, summed)
    right = _grouped(b, batch, summed, columns)
    # With nothing to sum over it is a product that broadcasts: [*B, M, 1] and [*B, 1, N].
    product = left @ right if summed else left * right
    dims = dict(zip((*a.labels, *b.labels), (*a.tensor.shape, *b.tensor.shape), strict=True))
    labels = (*batch, *rows, *columns)
    return _Term(F.reshape(product, tuple(dims[name] for name in labels)), labels)


def _grouped(term: _Term, batch: Labels, first: Labels, second: Labels) -> Tensor:
    """Lay a term out as matrices: [*batch, product of first, product of second]."""
    x = _arranged(term, (*batch, *first, *second))
    middle = len(batch) + len(first)
    dims = x.shape
    return F.reshape(
        x, (*dims[: len(batch)], size_of(dims[len(batch) : middle]), size_of(dims[middle:]))
    )


def _arranged(term: _Term, labels: Labels) -> Tensor:
    """Put a term's dims in the order of the labels."""
    if term.labels == labels:
        return term.tensor
    order = tuple(term.labels.index(name) for name in labels)
    return F.permute_dims(term.tensor, order)
