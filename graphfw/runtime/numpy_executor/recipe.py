"""`Recipe`: what the runs of a compiled program need to know, in numbers and texts.

It refers to no graph, so that it can be kept on disk: as JSON, and the constants' bytes behind it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from graphfw.ir.dim_text import Sizes
from graphfw.ir.dtype import as_dtype
from graphfw.ir.literal import Array
from graphfw.ir.tensor import Node
from graphfw.runtime.numpy_executor.arena import Block

_Row = TypeVar("_Row")

_LENGTH = 8
_CONSTANTS = 1 << 20
"""How many bytes of constants are worth keeping."""


class Part(NamedTuple):
    """A native step.

    Attributes:
        function: The number of its function.
        operands: For each the number of its address; for those in the arena `~block`.
        params: How many run-time integers it has.
    """

    function: int
    operands: tuple[int, ...]
    params: int


class PreparedPart(NamedTuple):
    """A native step that computes a prepared operand, once.

    Attributes:
        result: The number of the operand's address.
        nbytes: Its size.
        function: The number of the step's function.
        operands: The numbers of their addresses.
        params: The run-time integers.
        cells: How many cells it has.
        scratch: How many bytes of scratch memory each thread needs.
    """

    result: int
    nbytes: int
    function: int
    operands: tuple[int, ...]
    params: tuple[int, ...]
    cells: int
    scratch: int


class Stretch(NamedTuple):
    """Levels that run in one native call, and the nodes outside of native code after them.

    Attributes:
        first: The first level with native steps.
        waves: How many such levels.
        nodes: What follows.
    """

    first: int
    waves: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Recipe:
    """What the runs of a compiled program need to know.

    Addresses are numbered: first those that stay, which are the arena (0), constants, prepared
    operands and what nodes outside of native code make; then those of the arrays of a call.

    Attributes:
        functions: The functions' names, as the engine finds them.
        levels: The native steps of each level that has some.
        stretches: The levels, cut where Python has something to do.
        blocks: When each block of the arena is needed.
        symbols: The names of the symbolic dims.
        sizes: The blocks' bytes; the outputs' shapes, each with its bytes; each step's params,
            cells and scratch; what must not be 0.
        ranks: The outputs' numbers of dims.
        dtypes: The names of the outputs' dtypes.
        fixed: How many addresses stay from call to call.
        arrays: How many come with each call.
        constants: What lies at addresses that stay.
        prepared: What computes the prepared operands.
        overwritten: For each update the place of the variable among the arrays.
        direct: The numbers of the outputs that native steps write for the caller.
        drawn: The keys of the streams that random nodes draw from.
    """

    functions: tuple[str, ...]
    levels: tuple[tuple[Part, ...], ...]
    stretches: tuple[Stretch, ...]
    blocks: tuple[Block, ...]
    symbols: tuple[str, ...]
    sizes: Sizes
    ranks: tuple[int, ...]
    dtypes: tuple[str, ...]
    fixed: int
    arrays: int
    constants: Mapping[int, Array]
    prepared: tuple[PreparedPart, ...]
    overwritten: tuple[int, ...]
    direct: tuple[int, ...]
    drawn: tuple[str, ...]

    @property
    def is_plain(self) -> bool:
        """Whether it is native as a whole and updates nothing."""
        is_native = len(self.stretches) == 1 and not self.stretches[0].nodes
        return is_native and not self.overwritten

    def stored(self) -> bytes | None:
        """Return it as bytes; None where it has nodes or many constants, which are not stored."""
        total = sum(array.nbytes for array in self.constants.values())
        if total > _CONSTANTS or any(stretch.nodes for stretch in self.stretches):
            return None
        constants = {
            number: (as_dtype(array.dtype).name, array.shape)
            for number, array in self.constants.items()
        }
        facts = {**vars(self), "stretches": [s[:2] for s in self.stretches], "constants": constants}
        text = json.dumps(facts, separators=(",", ":")).encode()
        return b"".join(
            [
                len(text).to_bytes(_LENGTH, "little"),
                text,
                *[array.tobytes() for array in self.constants.values()],
            ]
        )


def restored(content: bytes) -> Recipe:
    """Return a recipe from its bytes.

    Raises:
        ValueError, KeyError, TypeError: They are of no recipe.
    """
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    facts: dict[str, Any] = json.loads(content[_LENGTH:end])
    parameters, texts, places = map(tuple, facts["sizes"])
    sizes = Sizes(parameters, texts, places)
    sizes.check()
    constants: dict[int, Array] = {}
    for number, (name, shape) in facts["constants"].items():
        array = np.zeros(shape, as_dtype(name).dtype)  # an array of its own is aligned
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(content, np.uint8, array.nbytes, end)
        end += array.nbytes
        constants[int(number)] = array
    return Recipe(
        functions=tuple(facts["functions"]),
        levels=tuple([tuple([_row(Part, part) for part in level]) for level in facts["levels"]]),
        stretches=tuple([Stretch(first, waves, ()) for first, waves in facts["stretches"]]),
        blocks=tuple([_row(Block, block) for block in facts["blocks"]]),
        symbols=tuple(facts["symbols"]),
        sizes=sizes,
        ranks=tuple(facts["ranks"]),
        dtypes=tuple(facts["dtypes"]),
        fixed=facts["fixed"],
        arrays=facts["arrays"],
        constants=constants,
        prepared=tuple([_row(PreparedPart, part) for part in facts["prepared"]]),
        overwritten=tuple(facts["overwritten"]),
        direct=tuple(facts["direct"]),
        drawn=tuple(facts["drawn"]),
    )


def _row(kind: Callable[..., _Row], values: list[Any]) -> _Row:
    """Return a named tuple of what JSON has made of it."""
    return kind(*[tuple(value) if isinstance(value, list) else value for value in values])
