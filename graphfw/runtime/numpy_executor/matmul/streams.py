"""Products of few rows with a `b` whose rows are contiguous: `b` streams through, row by row.

    @stream_r_p(ptr a, i64 rs, i64 ks, ptr b, i64 bs, ptr c, i64 cs, i64 more, i64 columns)

adds to r rows of the product what p places of k contribute, or with `more` = 0 sets them to it; the
strides are those of `tile`. Each of the p rows of `b` has load instructions of its own: so the
processor sees p streams, and guesses what comes next.
"""

from __future__ import annotations

from collections.abc import Callable

from graphfw.runtime.numpy_executor.matmul.packing import mask
from graphfw.runtime.numpy_executor.matmul.text import Body
from graphfw.runtime.numpy_executor.matmul.tile import Shape

MOST = 4
"""Up to so many rows."""

PLACES = {4: 4, 2: 8, 1: 8}
"""For each height how many rows of `b` stream at once; what is left of them, one by one."""


def stream(shape: Shape, rows: int, places: int) -> str:
    """Return the function for a number of rows and of places of k."""
    v, size, body = shape.vector, shape.size, Body()
    factors = {}
    for r in range(rows):
        row = body.at("%a", body.mul("%rs", r))
        for p in range(places):
            here = body.at(row, body.mul("%ks", p))
            one = body.let(f"load {shape.element}, ptr {here}, align {size}")
            first = body.let(f"insertelement {v} poison, {shape.element} {one}, i32 0")
            factors[r, p] = body.let(
                f"shufflevector {v} {first}, {v} poison, <{shape.lanes} x i32> zeroinitializer"
            )
    sources = [body.at("%b", body.mul("%bs", p)) for p in range(places)]
    targets = [body.at("%c", body.mul("%cs", r)) for r in range(rows)]

    def multiply(
        offset: str, load: Callable[[str], str], old: Callable[[str], str]
    ) -> list[tuple[str, str]]:
        """The new elements of each row, and where they go."""
        right = [load(body.at(source, offset)) for source in sources]
        results = []
        for r, target in enumerate(targets):
            place = body.at(target, offset)
            total = old(place)
            for p, value in enumerate(right):
                total = body.let(
                    f"call {v} @llvm.fmuladd.{shape.suffix}({v} {factors[r, p]}, {v} {value}, "
                    f"{v} {total})"
                )
            results.append((total, place))
        return results

    def load(place: str) -> str:
        return body.let(f"load {v}, ptr {place}, align {size}")

    whole = body.mul(body.div("%columns", shape.lanes), shape.lanes)
    adds = body.test("ne", "%more", 0)
    for bit, old in ((adds, load), (body.let(f"xor i1 {adds}, true"), lambda _: "zeroinitializer")):
        with body.where(bit), body.loop(0, whole, shape.lanes) as column:
            for total, place in multiply(body.mul(column, size), load, old):
                body.line(f"store {v} {total}, ptr {place}, align {size}")
    rest = body.sub("%columns", whole)
    with body.where(body.test("ne", rest, 0)):
        kept, bits = mask(body, shape, rest, 0), f"<{shape.lanes} x i1>"
        known = body.let(f"select i1 {adds}, {bits} {kept}, {bits} zeroinitializer")

        def some(place: str, lanes: str) -> str:
            return body.let(
                f"call {v} @llvm.masked.load.{shape.suffix}.p0(ptr {place}, i32 {size}, "
                f"{bits} {lanes}, {v} zeroinitializer)"
            )

        offset = body.mul(whole, size)
        for total, place in multiply(offset, lambda p: some(p, kept), lambda p: some(p, known)):
            body.line(
                f"call void @llvm.masked.store.{shape.suffix}.p0({v} {total}, ptr {place}, "
                f"i32 {size}, {bits} {kept})"
            )
    return body.function(
        f"define internal fastcc void @stream_{rows}_{places}(ptr %a, i64 %rs, i64 %ks, ptr %b, "
        "i64 %bs, ptr %c, i64 %cs, i64 %more, i64 %columns) noinline"
    )
