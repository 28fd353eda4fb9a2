"""Factorisations and substitutions of matrices in scratch memory; see `matrices.py`.

Each works on rows `0 ... size` of a matrix, and right-hand sides that lie after it in the rows, up
to a column `end`.
"""

from __future__ import annotations

from graphfw.runtime.numpy_executor.linalg.matrices import MatrixWriter


def eliminate(f: MatrixWriter, size: str, end: str) -> None:
    """Make a matrix upper triangular, and do the same to its right-hand sides.

    By Gaussian elimination with partial pivoting: the largest of a column comes up, the first of
    equal ones. A matrix is refused where that is 0.
    """
    zero = f.lanes.one.constant(0)
    with f.loop("0", size) as step:
        k = step.index
        after = f.add(k, "1")
        bring_up(f, k, size, end)
        pivot = f.get(k, k)
        f.refuse(f.compare("oeq", pivot, zero))
        with f.loop(after, size) as below:
            factor = f.divide(f.get(below.index, k), pivot)
            f.subtract_row(below.index, k, after, end, factor)


def bring_up(f: MatrixWriter, k: str, size: str, end: str) -> None:
    """Let row k change places with the one below that has the largest element in column k."""
    after = f.add(k, "1")
    first = f.size_of(f.get(k, k))
    carried = [(f.lanes.one.kind, first), (f.number_kind, f.number(k))]
    with f.loop(after, size, carried=carried) as below:
        largest, which = below.values
        here = f.size_of(f.get(below.index, k))
        larger = f.compare("ogt", here, largest)
        number = f.number(below.index)
        below.following = [
            f.choose(larger, here, largest),
            f.choose_number(larger, number, which),
        ]
    which = below.values[1]
    with f.loop(after, size) as below:
        found = f.same(which, f.number(below.index))
        with f.when_any(found):
            f.exchange_rows(k, below.index, k, end, found)


def substitute(
    f: MatrixWriter, size: str, end: str, *, upper: bool, unit: bool, checks: bool
) -> None:
    """Solve for right-hand sides with a triangle.

    Args:
        f: The writer.
        size: Of the matrix.
        end: After the last right-hand side.
        upper: Whether the triangle is the upper one.
        unit: Whether its diagonal is taken as ones.
        checks: Whether a matrix with a 0 on its diagonal is refused.
    """
    with f.loop("0", size) as step:
        k = f.sub(f.sub(size, "1"), step.index) if upper else step.index
        if not unit:
            pivot = f.get(k, k)
            if checks:
                f.refuse(f.compare("oeq", pivot, f.lanes.one.constant(0)))
            f.divide_row(k, size, end, pivot)
        begin, stop = ("0", k) if upper else (f.add(k, "1"), size)
        with f.loop(begin, stop) as other:
            f.subtract_row(other.index, k, size, end, f.get(other.index, k))


def cholesky(f: MatrixWriter, size: str) -> None:
    """Make of the upper triangle of a positive definite matrix the U with U^T U = x.

    A matrix is refused where a square on the diagonal is not above 0; NaN goes on.
    """
    with f.loop("0", size) as step:
        k = step.index
        square = f.get(k, k)
        f.refuse(f.compare("ole", square, f.lanes.one.constant(0)))
        root = f.sqrt(square)
        f.put(k, k, root)
        after = f.add(k, "1")
        f.divide_row(k, after, size, root)
        with f.loop(after, size) as below:
            f.subtract_row(below.index, k, below.index, size, f.get(k, below.index))
