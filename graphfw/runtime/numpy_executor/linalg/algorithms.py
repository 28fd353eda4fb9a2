"""Factorisations and substitutions of matrices in scratch memory; see `matrices.py`.

Each works on rows `0 ... size` of a matrix, and right-hand sides after it in the rows, up
to a column `end`.
"""

from __future__ import annotations

from collections.abc import Iterator

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


def factor(
    f: MatrixWriter, rows: str, columns: str, inner: str, multiples: str, order: str
) -> None:
    """Find the triangles that elimination makes of a matrix, whose columns are rows here.

    Its own rows become the columns of the upper triangle, up to the diagonal; what is after it is
    not to be read. Where a column has only zeros, its multiples are 0.

    Args:
        f: The writer.
        rows: Of the matrix.
        columns: Likewise.
        inner: The smaller number of the two.
        multiples: The row from which on the columns of the lower triangle go.
        order: Where the numbers of the rows are, which are exchanged as these are.
    """
    zero, unit = [f.lanes.one.constant(value) for value in (0, 1)]
    with f.loop("0", inner) as step:
        k = step.index
        vector = f.add(multiples, k)
        which = f.largest(k, k, rows)
        for other, found in _where_found(f, which, k, rows):
            f.exchange_columns(multiples, vector, k, other, found)
            f.exchange_columns(k, columns, k, other, found)
            positions = [f.add(order, r) for r in (k, other)]
            x, y = [f.get_number(position) for position in positions]
            f.put_number(positions[0], f.choose_number(found, y, x))
            f.put_number(positions[1], f.choose_number(found, x, y))
        pivot = f.get(k, k)
        divisor = f.choose(f.compare("oeq", pivot, zero), unit, pivot)
        f.divide_below(vector, k, k, rows, divisor)
        begin = f.aligned(k)
        for chunk in _some_rows(f, f.add(k, "1"), columns):
            factors = [f.get(row, k) for row in chunk]
            f.subtract_rows(chunk, vector, begin, rows, factors)
    with f.loop("0", inner) as step:
        f.put(f.add(multiples, step.index), step.index, unit)


def _where_found(f: MatrixWriter, which: str, k: str, size: str) -> Iterator[tuple[str, str]]:
    """Open branches for the row after row k that was found, if it is one, with where it was."""
    if not f.lanes.many:
        found = f.let(f"xor i1 {f.same(which, f.number(k))}, true")
        with f.when(found):
            yield f.index(which), found
        return
    with f.loop(f.add(k, "1"), size) as below:
        found = f.same(which, f.number(below.index))
        with f.when_any(found):
            yield below.index, found


def bring_up(f: MatrixWriter, k: str, size: str, end: str) -> None:
    """Exchange row k and the one below that has the largest element in column k, from there on."""
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
    for other, found in _where_found(f, below.values[1], k, size):
        f.exchange_rows(k, other, k, end, found)


def substitute(
    f: MatrixWriter, size: str, end: str, *, upper: bool, unit: bool, checks: bool
) -> None:
    """Solve for right-hand sides with a triangle.

    Args:
        f: The writer.
        size: Of the matrix.
        end: Behind the last right-hand side.
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


ROWS = 4
"""Rows that a reflection is applied to at once: as many sums that wait for themselves."""


def reflect(f: MatrixWriter, rows: str, end: str, inner: str, vectors: str) -> None:
    """Make the rows of a matrix a lower triangle, by reflections of the space of its rows.

    With row k, a vector v and a number tau are found so that I - tau v v^T takes what row k has
    after column k to its diagonal; row k and those below it are multiplied by that matrix. As in
    LAPACK v has a 1 in column k, a diagonal gets the sign that it had not, and where there is
    nothing to reflect tau is 0 and the diagonal stays. After column k, row k is not to be read.

    Args:
        f: The writer.
        rows: Of the matrix.
        end: Behind its last column.
        inner: The smaller number of the two.
        vectors: The row from which on the vectors go; those after them get the numbers, in one row.
    """
    one = f.lanes.one
    zero, unit = [one.constant(value) for value in (0, 1)]
    with f.loop("0", inner) as step:
        k = step.index
        vector = f.add(vectors, k)
        rest = f.copy_below(vector, k, k, end)
        alpha = f.get(k, k)
        size = f.larger(rest, f.size_of(alpha))
        # Scaled by the largest, so that no square is too large or too small.
        scale = f.choose(f.compare("oeq", size, zero), unit, size)
        begin = f.aligned(k)
        squares = f.scale_row(vector, begin, end, scale)
        scaled = f.divide(alpha, scale)
        norm = f.sqrt(one.add(f, one.multiply(f, scaled, scaled), squares))
        beta = f.negative(f.with_sign(norm, scaled))
        # With NaN among the rest `squares` is not 0, and everything becomes NaN.
        is_done = f.both(f.compare("oeq", rest, zero), f.compare("oeq", squares, zero))
        apart = f.choose(is_done, unit, f.subtract(scaled, beta))
        f.multiply_row(vector, begin, end, f.divide(unit, apart))
        f.put(vector, k, unit)
        tau = f.choose(is_done, zero, f.divide(f.subtract(beta, scaled), beta))
        f.put(f.add(vectors, inner), k, tau)
        f.put(k, k, f.choose(is_done, alpha, one.multiply(f, beta, scale)))
        _reflect_rows(f, vector, tau, f.add(k, "1"), rows, begin, end)


def _reflect_rows(
    f: MatrixWriter, vector: str, tau: str, first: str, last: str, begin: str, end: str
) -> None:
    """Multiply rows by I - tau v v^T."""
    for chunk in _some_rows(f, first, last):
        products = f.dot_rows(chunk, vector, begin, end)
        factors = [f.lanes.one.multiply(f, tau, product) for product in products]
        f.subtract_rows(chunk, vector, begin, end, factors)


def _some_rows(f: MatrixWriter, first: str, last: str) -> Iterator[list[str]]:
    """Open loops over rows, `ROWS` at a time, then one by one."""
    count = f.high(f.sub(last, first), "0")
    whole = f.add(first, f.let(f"and i64 {count}, {-ROWS}"))
    for begin, end, number in ((first, whole, ROWS), (whole, last, 1)):
        with f.loop(begin, end, number) as chunk:
            yield [f.add(chunk.index, str(i)) for i in range(number)]


def orthonormal(f: MatrixWriter, rows: str, end: str, inner: str, vectors: str) -> None:
    """Make the first rows those of a product of reflections.

    Row i gets column i of H_0 H_1 ..., each H_k = I - tau v v^T; see `reflect`.

    Args:
        f: The writer.
        rows: How many.
        end: Behind the last column.
        inner: The number of reflections.
        vectors: The row from which on the vectors are, and after them the numbers.
    """
    with f.loop("0", rows) as row:
        f.fill_row(row.index, "0", end)
        f.put(row.index, row.index, f.lanes.one.constant(1))
    with f.loop("0", inner) as step:
        k = f.sub(f.sub(inner, "1"), step.index)
        tau = f.get(f.add(vectors, inner), k)
        _reflect_rows(f, f.add(vectors, k), tau, k, rows, f.aligned(k), end)


def join_reflections(f: MatrixWriter, end: str, inner: str, vectors: str) -> None:
    """Find the triangle T for which all reflections together are I - V T V^T.

    Its columns go to the rows after the vectors and numbers; see `reflect`.

    Args:
        f: The writer.
        end: Behind the last column of the vectors.
        inner: The number of reflections.
        vectors: The row from which on the vectors are, and after them the numbers.
    """
    numbers = f.add(vectors, inner)
    columns = f.add(numbers, "1")
    with f.loop("0", inner) as step:
        k = step.index
        vector, here = f.add(vectors, k), f.add(columns, k)
        tau = f.get(numbers, k)
        f.fill_row(here, "0", inner)
        begin = f.aligned(k)
        for chunk in _some_rows(f, "0", k):
            others = [f.add(vectors, row) for row in chunk]
            products = f.dot_rows(others, vector, begin, end)
            for row, product in zip(chunk, products, strict=True):
                factor = f.lanes.one.multiply(f, tau, product)
                f.subtract_row(here, f.add(columns, row), "0", f.add(row, "1"), factor)
        f.put(here, k, tau)
