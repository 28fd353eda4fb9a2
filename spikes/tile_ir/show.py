"""The printer for people: a kernel of the tile IR as lines of text.

python -m spikes.tile_ir.show "matmul 512x512x512"
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from spikes.tile_ir.indices import Axis, IndexLike, Quotient, index
from spikes.tile_ir.ir import (
    Apply,
    Block,
    Const,
    Contract,
    Expr,
    Fence,
    Fold,
    ForTile,
    Load,
    Pack,
    Prefetch,
    Set,
    Statement,
    Store,
    Tile,
    When,
)
from spikes.tile_ir.kernel import Kernel

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def show(kernel: Kernel) -> str:
    """Return a kernel as text."""
    sizes = "".join(f", {size.name}" for size in kernel.sizes)
    names = ", ".join(f"{b.name}: {b.dtype}" for b in kernel.buffers)
    lines = [f"kernel {kernel.name}({names}{sizes})"]
    lines += [f"  {b.space} {b.name}: {b.dtype}[{b.size}]" for b in kernel.scratch]
    return "\n".join([*lines, *_lines(kernel.body, "  ")])


def _lines(body: Sequence[Statement], indent: str) -> Iterator[str]:
    more = indent + "  "
    for s in body:
        match s:
            case ForTile():
                step = f" step {s.step}" if s.step > 1 else ""
                kind = "" if s.kind == "serial" else f" {s.kind}"
                yield f"{indent}for {s.var.name} in {text(s.begin)}..{text(s.end)}{step}{kind}:"
                yield from _lines(s.body, more)
            case When():
                yield f"{indent}when {text(s.x)} < {text(s.y)}:"
                yield from _lines(s.then, more)
                if s.otherwise:
                    yield f"{indent}otherwise:"
                    yield from _lines(s.otherwise, more)
            case Set():
                yield f"{indent}{_tile(s.tile)} = {value(s.value)}"
            case Store():
                past = " past the caches" if s.streaming else ""
                yield f"{indent}store {value(s.to)} = {value(s.value)} over {_axes(s.axes)}{past}"
            case Contract():
                over = ", ".join(f"{var.name} < {text(n)}" for var, n in s.over)
                how = f" by {s.engine}" + ", written out" * s.flat
                product = f"{value(s.a)} * {value(s.b)}"
                yield f"{indent}contract {_tile(s.tile)} += {product} over {over}{how}"
            case Pack():
                loops = [
                    f"{var.name} < {text(n)}" + f" step {step}" * (step > 1)
                    for var, n, step in s.loops
                ]
                over = ", ".join([*loops, _axes(s.tile)])
                order = f"{s.written.name} contiguous"
                yield f"{indent}pack {value(s.to)} = {value(s.source)} over {over}, {order}"
            case Block():
                yield from _lines(s.body, indent)
            case Prefetch():
                yield f"{indent}prefetch {value(s.at)}"
            case Fence():
                yield f"{indent}fence"


def text(at: IndexLike) -> str:
    """Return an index as text."""
    parts = []
    for monomial, factor in index(at).terms:
        names = [_atom(atom) for atom in monomial]
        if factor != 1 or not names:
            names.insert(0, str(factor))
        parts.append("*".join(names))
    return " + ".join(parts).replace("+ -1*", "- ").replace("+ -", "- ") or "0"


def _atom(atom: object) -> str:
    if isinstance(atom, Quotient):
        x, y = text(atom.x), text(atom.y)
        sign = {"div": "//", "rem": "%"}.get(atom.name)
        return f"(({x}) {sign} {y})" if sign else f"{atom.name}({x}, {y})"
    name = getattr(atom, "name", "")
    assert isinstance(name, str)
    return name


def value(x: Expr) -> str:
    """Return an expression as text."""
    match x:
        case Load():
            inside = ", ".join(f"0 <= {text(i)} < {text(n)}" for i, n in x.inside)
            rest = f" else {x.outside:g}" if x.outside else ""
            return f"{x.buffer.name}[{text(x.at)}]" + f" where {inside}{rest}" * bool(inside)
        case Const():
            return f"{x.value:g}"
        case Tile():
            return x.name
        case Fold():
            return f"{x.name} of all {x.tile.name}"
        case Apply():
            args = [value(one) for one in x.args]
            sign = _OPERATORS.get(x.name)
            return f"({args[0]} {sign} {args[1]})" if sign else f"{x.name}({', '.join(args)})"
    raise TypeError(x)


def _tile(tile: Tile) -> str:
    return f"{tile.name}[{_axes(tile.axes)}]" if tile.axes else tile.name


def _axes(axes: Sequence[Axis]) -> str:
    return ", ".join(
        f"{a.var.name}: {a.size // a.lanes} x {a.lanes} lanes"
        if a.lanes > 1
        else f"{a.var.name}: {a.size}"
        for a in axes
    )


def main() -> None:
    """Print the kernels of workloads."""
    import numpy as np

    from spikes.tile_ir.cases import cases
    from spikes.tile_ir.target import here

    found = cases(here())
    for name in sys.argv[1:] or found:
        for call in found[name](np.random.default_rng()).program().calls:
            print(show(call.kernel), end="\n\n")


if __name__ == "__main__":
    main()
