"""`Piece`: a function that the work items of many products call, compiled once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal, TypeAlias

from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.numpy_executor.codegen import FunctionText, module
from graphfw.runtime.numpy_executor.matmul.dots import dots
from graphfw.runtime.numpy_executor.matmul.elements import declarations
from graphfw.runtime.numpy_executor.matmul.packing import Layout, packing, rounding, widening
from graphfw.runtime.numpy_executor.matmul.pairs import pair_left, pair_right
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction
from graphfw.runtime.numpy_executor.matmul.streams import stream
from graphfw.runtime.numpy_executor.matmul.tile import TileShape, tile
from graphfw.utils.records import record

Kind: TypeAlias = Literal[
    "tile", "pack", "dots", "stream", "widen", "round", "pair_left", "pair_right"
]

_WRITERS: dict[Kind, Callable[..., str | FunctionText]] = {
    "tile": tile,
    "pack": packing,
    "dots": dots,
    "stream": stream,
    "widen": widening,
    "round": rounding,
    "pair_left": pair_left,
    "pair_right": pair_right,
}

_TYPES: dict[Kind, str] = {
    "tile": "ptr, i64, i64, ptr, i64, ptr, i64, i64, i1, i64, i64",
    "pack": "ptr, i64, i64, ptr, i64, i64, i64",
    "dots": "ptr, i64, ptr, i64, ptr, i64, i64",
    "stream": "ptr, i64, i64, ptr, i64, ptr, i64, i64, i64",
    "widen": "ptr, i64, i64, ptr, i64, i64",
    "round": "ptr, i64, ptr, i64, i64, i64",
    "pair_left": "ptr, i64, i64, ptr, i64, i64",
    "pair_right": "ptr, i64, i64, ptr, i64, i64, i64",
}
"""The types of their arguments."""

_COMPUTED = {
    "dots": "ptr, i64, ptr, ptr, i64, i64, ptr, i64, i64",
    "stream": "ptr, i64, i64, ptr, ptr, i64, i64, ptr, i64, i64, i64",
}
"""The same where a prologue computes the right operand."""


@record
class Piece(SharedFunction):
    """A function that the work items of many products call.

    Attributes:
        kind: The kind of function; see the modules that write the text.
        shape: The tiles.
        choices: The options that select one of its kind.
        operand: The prologue that computes the right operand in registers; None if it is read.
    """

    kind: Kind
    shape: TileShape
    choices: tuple[int | str, ...]
    operand: Kernel | None = None

    @cached_property
    def key(self) -> str:
        text = f"{self.kind} {self.shape.key} {self.choices}"
        return text if self.operand is None else f"{text} of\n{show(self.operand)}"

    @property
    def types(self) -> str:
        return _TYPES[self.kind] if self.operand is None else _COMPUTED[self.kind]

    def llvm(self, symbol: str) -> str:
        own = () if self.operand is None else (self.operand,)
        made = _WRITERS[self.kind](symbol, self.shape, *self.choices, *own)
        function = made if isinstance(made, FunctionText) else FunctionText(made, {}, ())
        declared = declarations(self.shape) | function.declarations
        return module([function._replace(declarations=declared)])


def packs(shape: TileShape, layout: Layout) -> Piece:
    """Return the functions that pack panels of a right operand."""
    return Piece("pack" if shape.k_pack == 1 else "pair_right", shape, (layout,))
