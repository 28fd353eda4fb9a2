"""The CUDA printer: a kernel of the tile IR as a function of CUDA C++.

Parallel loops are blocks and thread loops are threads: all statements are those of one thread. A
tile is variables, one for each element; a loop between fences is carried out by all threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from spikes.tile_ir.indices import Axis, IndexLike, Quotient, Var, index
from spikes.tile_ir.ir import (
    Apply,
    Block,
    Const,
    Contract,
    Expr,
    Fence,
    ForTile,
    Load,
    Pack,
    Set,
    Statement,
    Store,
    Tile,
    When,
)
from spikes.tile_ir.kernel import Kernel
from spikes.tile_ir.llvm import work_items

_TYPES = {"float32": "float", "int32": "int", "int8": "signed char"}
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_CALLS = {"max": "fmaxf", "exp": "expf", "fma": "fmaf", "f32": "(float)", "greater": "fmaxf"}


class CudaText:
    """Writes a kernel.

    Attributes:
        grid: The number of blocks, of run-time integers.
        threads: The threads of a block.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.grid, self.threads = index(1), 1
        self._names: dict[Var, str] = {}
        self._tiles: dict[Tile, str] = {}

    def text(self) -> str:
        """Return the function."""
        kernel, lines = self.kernel, []
        for buffer in kernel.scratch:
            space = "__shared__ " if buffer.space == "shared" else ""
            lines.append(f"{space}{_TYPES[buffer.dtype]} {buffer.name}[{buffer.size}];")
        lines += [*self._places("parallel", "blockIdx"), *self._places("thread", "threadIdx")]
        lines += self._many(self._body())
        given = [
            f"{'const ' if b.readonly else ''}{_TYPES[b.dtype]}* {b.name}" for b in kernel.buffers
        ]
        given += [f"long long {size.name}" for size in kernel.sizes]
        bound = f"__launch_bounds__({self.threads})"
        head = f'extern "C" __global__ void {bound} {kernel.name}({", ".join(given)})'
        # Variables of tiles are known in all statements after they are first given a value.
        tiles = [
            f"{_TYPES[t.dtype]} {n};" for t, name in self._tiles.items() for n in _all(t, name)
        ]
        body = [lines[i] for i in range(len(kernel.scratch))] + tiles + lines[len(kernel.scratch) :]
        return "\n".join([head + " {", *[f"    {line}" for line in body], "}", ""])

    def _nest(self) -> tuple[list[ForTile], Sequence[Statement]]:
        loops, body = [], self.kernel.body
        while len(body) == 1 and isinstance(body[0], ForTile) and body[0].kind != "serial":
            loops.append(body[0])
            body = body[0].body
        return loops, body

    def _body(self) -> Sequence[Statement]:
        return self._nest()[1]

    def _places(self, kind: str, name: str) -> Iterator[str]:
        """The variables of blocks or of threads; the innermost loop goes fastest."""
        loops = [loop for loop in self._nest()[0] if loop.kind == kind]
        rest = f"{name}.x"
        for i, loop in enumerate(reversed(loops)):
            count = work_items(loop)
            own = f"{rest} % ({self._integer(count)})" if i < len(loops) - 1 else rest
            yield f"const long long {self._name(loop.var)} = ({own}) * {loop.step}LL;"
            rest = f"({rest} / ({self._integer(count)}))"
            if kind == "parallel":
                self.grid = self.grid * count
            else:
                number = count.number
                assert number is not None, "a block has a fixed number of threads"
                self.threads *= number

    def _name(self, var: Var) -> str:
        return self._names.setdefault(var, f"{var.name}_{len(self._names)}")

    def _many(self, body: Sequence[Statement]) -> Iterator[str]:
        for s in body:
            match s:
                case Set():
                    for at in _coordinates(s.tile.axes):
                        yield f"{self._element(s.tile, at)} = {self._value(s.value, at)};"
                case Store():
                    for at in _coordinates(s.axes):
                        condition = self._inside(s.to, at)
                        place = f"{s.to.buffer.name}[{self._integer(s.to.at.at(at))}]"
                        line = f"{place} = {self._value(s.value, at)};"
                        yield f"if ({condition}) {line}" if condition else line
                case ForTile():
                    name = self._name(s.var)
                    begin, end = self._integer(s.begin), self._integer(s.end)
                    yield f"for (long long {name} = {begin}; {name} < {end}; {name} += {s.step}) {{"
                    yield from [f"    {line}" for line in self._many(s.body)]
                    yield "}"
                case When():
                    yield f"if ({self._integer(s.x)} < {self._integer(s.y)}) {{"
                    yield from [f"    {line}" for line in self._many(s.then)]
                    yield "} else {"
                    yield from [f"    {line}" for line in self._many(s.otherwise)]
                    yield "}"
                case Contract() | Pack():
                    yield from self._many([s.lowered()])
                case Block():
                    yield from self._many(s.body)
                case Fence():
                    yield "__syncthreads();"
                case _:
                    raise TypeError(f"not for a GPU: {s}")

    def _element(self, tile: Tile, at: Mapping[Var, int]) -> str:
        name = self._tiles.setdefault(tile, f"{tile.name}{len(self._tiles)}")
        return "_".join([name, *[str(at[a.var]) for a in tile.axes]])

    def _value(self, x: Expr, at: Mapping[Var, int]) -> str:
        match x:
            case Load():
                text = f"{x.buffer.name}[{self._integer(x.at.at(at))}]"
                condition = self._inside(x, at)
                return f"({condition} ? {text} : {float(x.outside)!r}f)" if condition else text
            case Const():
                return f"{float(x.value)!r}f"
            case Tile():
                return self._element(x, at)
            case Apply():
                args = [self._value(one, at) for one in x.args]
                if x.name in _OPERATORS:
                    return f"({args[0]} {_OPERATORS[x.name]} {args[1]})"
                if x.name == "muladd":
                    return f"({args[0]} * {args[1]} + {args[2]})"
                return f"{_CALLS[x.name]}({', '.join(args)})"
        raise TypeError(x)

    def _inside(self, load: Load, at: Mapping[Var, int]) -> str:
        parts = []
        for i, size in load.inside:
            here = self._integer(i.at(at))
            parts.append(f"0 <= {here} && {here} < {self._integer(size)}")
        return " && ".join(parts)

    def _integer(self, value: IndexLike) -> str:
        parts = []
        for monomial, factor in index(value).terms:
            names = [self._atom(atom) for atom in monomial]
            if factor != 1 or not names:
                names.append(f"{factor}LL")
            parts.append(" * ".join(names))
        return f"({' + '.join(parts)})" if len(parts) > 1 else "".join(parts) or "0LL"

    def _atom(self, atom: object) -> str:
        if isinstance(atom, Var):
            return self._name(atom)
        if isinstance(atom, Quotient):
            x, y = self._integer(atom.x), self._integer(atom.y)
            sign = {"div": "/", "rem": "%"}.get(atom.name)
            return f"({x} {sign} {y})" if sign else f"{atom.name}<long long>({x}, {y})"
        name = getattr(atom, "name", "")
        assert isinstance(name, str)
        return name


def _coordinates(axes: Sequence[Axis]) -> Iterator[dict[Var, int]]:
    for at in itertools.product(*[range(a.size) for a in axes]):
        yield dict(zip([a.var for a in axes], at, strict=True))


def _all(tile: Tile, name: str) -> Iterator[str]:
    for at in itertools.product(*[range(a.size) for a in tile.axes]):
        yield "_".join([name, *map(str, at)])
