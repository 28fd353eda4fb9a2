"""`Recipe`: what the runs of a compiled program need to know, in numbers and texts.

It refers to no graph, so that it can be kept on disk: as JSON, and the constants' bytes after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from graphfw.ir.dim_text import SizeTexts
from graphfw.ir.dtype import as_dtype
from graphfw.ir.literal import Array, Literal, Scaling
from graphfw.ir.tensor import Node
from graphfw.runtime.planning.arena import Block
from graphfw.utils.records import record

_Row = TypeVar("_Row")

Measured: TypeAlias = "Mapping[str, Mapping[str, float]]"
"""The seconds that strategies took, by the keys of these times on disk."""

_LENGTH = 8
_CONSTANTS = 1 << 21
"""The most bytes of constants that are kept; the program's own don't count."""


class RecipeStep(NamedTuple):
    """A native step.

    Attributes:
        function: The number of its function.
        operands: For each the number of its address; for those in the arena `~block`.
        params: How many run-time integers it has.
        op: The name of the first operation that it computes.
        node: The number of a node of the program's source with that operation's line, or -1.
    """

    function: int
    operands: tuple[int, ...]
    params: int
    op: str
    node: int


class PreparedStep(NamedTuple):
    """A native step that computes a prepared operand, once.

    Attributes:
        result: The number of the operand's address.
        nbytes: Its size.
        function: The number of the step's function.
        operands: The numbers of their addresses.
        params: The run-time integers.
        work_items: How many work items it has.
        scratch: How many bytes of scratch memory each thread needs.
    """

    result: int
    nbytes: int
    function: int
    operands: tuple[int, ...]
    params: tuple[int, ...]
    work_items: int
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


@record(eq=False)
class Recipe:
    """The facts that the runs of a compiled program need.

    Addresses are numbered: first those that stay, which are the arena (0), constants, prepared
    operands and what nodes outside of native code make; then those of the arrays of a call.

    Attributes:
        functions: The functions' names, as the engine finds them.
        levels: The native steps of each level that has some.
        stretches: The levels, cut where Python has something to do.
        blocks: When each block of the arena is needed.
        symbols: The names of the symbolic dims.
        sizes: The blocks' bytes; the outputs' shapes, each with its bytes; each step's params,
            work items and scratch; what must not be 0.
        ranks: The outputs' numbers of dims.
        dtypes: The names of the outputs' dtypes.
        fixed: How many addresses stay from call to call.
        arrays: How many come with each call.
        constants: What lies at addresses that stay. What is computed of the program's own constants
            is computed again where it is needed again.
        prepared: What computes the prepared operands.
        overwritten: For each update the index of the variable among the arrays.
        direct: The numbers of the outputs that native steps write for the caller.
        carried: The numbers of the outputs that may lie where a loop gives the body what it makes
            them of: what lies there is read no more when they are written.
        drawn: The keys of the streams that random nodes draw from.
        measured: What its steps were chosen by, where strategies were measured.
    """

    functions: tuple[str, ...]
    levels: tuple[tuple[RecipeStep, ...], ...]
    stretches: tuple[Stretch, ...]
    blocks: tuple[Block, ...]
    symbols: tuple[str, ...]
    sizes: SizeTexts
    ranks: tuple[int, ...]
    dtypes: tuple[str, ...]
    fixed: int
    arrays: int
    constants: Mapping[int, Literal]
    prepared: tuple[PreparedStep, ...]
    overwritten: tuple[int, ...]
    direct: tuple[int, ...]
    carried: tuple[int, ...]
    drawn: tuple[str, ...]
    measured: Measured

    @property
    def is_plain(self) -> bool:
        """Whether it is native as a whole and updates nothing."""
        is_native = len(self.stretches) == 1 and not self.stretches[0].nodes
        return is_native and not self.overwritten

    @property
    def writes_from(self) -> int | None:
        """The first level that writes over variables; None where none does."""
        # The last arrays of a call are the variables' new contents, and the mark of the end.
        first = self.fixed + self.arrays - len(self.overwritten) - 1
        for number, level in enumerate(self.levels):
            if any(operand >= first for step in level for operand in step.operands):
                return number if self.overwritten else None
        return None

    def stored(self, own: Sequence[Literal]) -> bytes | None:
        """Return it as bytes; None where it has nodes or many constants, which are not stored.

        Args:
            own: The program's constants, of which it is enough to say which they are.
        """
        numbers = {id(literal): number for number, literal in enumerate(own)}
        sources: dict[int, _Source] = {}
        arrays: list[Array] = []
        for number, literal in self.constants.items():
            origin = literal.origin
            if id(literal) in numbers:
                sources[number] = _Source("own", numbers[id(literal)])
            elif origin is not None and id(origin.source) in numbers:
                count = origin.factor.size
                sources[number] = _Source("scaled", numbers[id(origin.source)], origin.axis, count)
                arrays.append(origin.factor)
            else:
                array = literal.array
                sources[number] = _Source("here", as_dtype(array.dtype).name, array.shape)
                arrays.append(array)
        total = sum(array.nbytes for array in arrays)
        if total > _CONSTANTS or any(stretch.nodes for stretch in self.stretches):
            return None
        facts = {**vars(self), "stretches": [s[:2] for s in self.stretches], "constants": sources}
        text = json.dumps(facts, separators=(",", ":")).encode()
        pieces = [len(text).to_bytes(_LENGTH, "little"), text]
        return b"".join([*pieces, *[array.tobytes() for array in arrays]])


class _Source(NamedTuple):
    """The origin of a constant of a stored recipe.

    Attributes:
        kind: "own": it is the program's constant of number `what`; "scaled": it is that times
            `numbers` numbers along `axis`, float64, which are stored; "here": it is stored, and of
            the dtype `what` and the shape `axis`.
    """

    kind: str
    what: Any
    axis: Any = 0
    numbers: int = 0


class _Arrays:
    """The arrays after a stored recipe's text, one after the other."""

    def __init__(self, content: bytes, begin: int) -> None:
        self._content = content
        self._begin = begin

    def take(self, dtype: str, shape: Sequence[int]) -> Array:
        array = np.zeros(shape, as_dtype(dtype).dtype)  # an array of its own is aligned
        here = np.frombuffer(self._content, np.uint8, array.nbytes, self._begin)
        array.reshape(-1).view(np.uint8)[:] = here
        self._begin += array.nbytes
        array.flags.writeable = False
        return array


def _constant(source: _Source, own: Sequence[Literal], arrays: _Arrays) -> Literal:
    if source.kind == "here":
        return Literal(arrays.take(source.what, source.axis))
    known: Literal = own[source.what]
    if source.kind == "own":
        return known
    factor = arrays.take("float64", (source.numbers,))
    return Literal.of(Scaling(known, factor, source.axis))


def in_row(constant: Literal, memory: Array | None = None) -> Array:
    """Return a constant's array as native steps read it.

    Args:
        constant: The constant.
        memory: Where it may be computed, if it has to be: `Literal.lent`.
    """
    array = constant.array if memory is None else constant.lent(memory)
    return np.require(array, requirements=["C", "A"])


def restored(content: bytes, own: Sequence[Literal]) -> Recipe:
    """Return a recipe from its bytes.

    Args:
        content: The bytes.
        own: The program's constants.

    Raises:
        ValueError, KeyError, TypeError, IndexError: They are of no recipe.
    """
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    facts: dict[str, Any] = json.loads(content[_LENGTH:end])
    parameters, texts, indices = map(tuple, facts["sizes"])
    sizes = SizeTexts(parameters, texts, indices)
    sizes.check()
    arrays = _Arrays(content, end)
    constants = {
        int(number): _constant(_row(_Source, source), own, arrays)
        for number, source in facts["constants"].items()
    }
    return Recipe(
        functions=tuple(facts["functions"]),
        levels=tuple(
            [tuple([_row(RecipeStep, step) for step in level]) for level in facts["levels"]]
        ),
        stretches=tuple([Stretch(first, waves, ()) for first, waves in facts["stretches"]]),
        blocks=tuple([_row(Block, block) for block in facts["blocks"]]),
        symbols=tuple(facts["symbols"]),
        sizes=sizes,
        ranks=tuple(facts["ranks"]),
        dtypes=tuple(facts["dtypes"]),
        fixed=facts["fixed"],
        arrays=facts["arrays"],
        constants=constants,
        prepared=tuple([_row(PreparedStep, step) for step in facts["prepared"]]),
        overwritten=tuple(facts["overwritten"]),
        direct=tuple(facts["direct"]),
        carried=tuple(facts["carried"]),
        drawn=tuple(facts["drawn"]),
        measured=facts["measured"],
    )


def _row(kind: Callable[..., _Row], values: list[Any]) -> _Row:
    """Return a named tuple of what JSON has made of it."""
    return kind(*[tuple(value) if isinstance(value, list) else value for value in values])
