"""The result of `plan.casts()`: the conversions that mixed precision has put in, as a table."""

from __future__ import annotations

from graphfw.ir.shape import shape_text
from graphfw.passes.mixed import Cast
from graphfw.runtime.locations import location_of


class Casts(tuple[Cast, ...]):
    """The conversions of a plan, in the order in which they are made; print it for a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self:
            return "no casts"
        rows = [("tensor", "from", "to", "because", "for", "made at"), *map(_row, self)]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        return "\n".join(
            "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]).rstrip()
            for row in rows
        )


def _row(cast: Cast) -> tuple[str, ...]:
    tensor = cast.tensor
    what = f"{tensor.node.op.name} {tensor.name}".rstrip()
    return (
        f"{what} {shape_text(tensor.shape)}",
        cast.source.name,
        cast.to.name,
        cast.reason,
        cast.reader.short(),
        location_of(tensor.node),
    )
