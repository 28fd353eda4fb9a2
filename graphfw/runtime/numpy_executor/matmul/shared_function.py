"""`SharedFunction`: a function that other functions call, compiled once for all of them."""

from __future__ import annotations

from collections.abc import Iterable

from graphfw.runtime.numpy_executor.codegen import FunctionText, RecordCode, module
from graphfw.runtime.numpy_executor.matmul.elements import declarations
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.runtime.numpy_executor.names import name_of


class SharedFunction(RecordCode):
    """A `Code` whose symbol is a digest of its key."""

    tidy = True

    @property
    def types(self) -> str:
        """The types of its arguments: by default those of a work item."""
        return "ptr, ptr, i64, ptr, ptr"

    @property
    def name(self) -> str:
        """The name that it is called by."""
        return name_of(self)

    @property
    def declaration(self) -> dict[str, str]:
        """The line that a module needs for calling it, by its symbol."""
        return {self.name: f"declare fastcc void @{self.name}({self.types})"}


def calling(text: str, shape: TileShape, callees: Iterable[SharedFunction]) -> str:
    """Return the module of a function that calls others and the functions of `declarations`."""
    known = declarations(shape)
    for callee in callees:
        known |= callee.declaration
    return module([FunctionText(text, known, ())])
