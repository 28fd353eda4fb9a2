"""Cutting a program where runs find out sizes: `gf.nonzero`, `x[mask]`, …

A stage is an ordinary program. What is made of measured sizes is computed in a later stage than
what they are measured from, and takes results of earlier stages as feeds. So all that is done for
programs is done for stages: one compilation for all sizes, planned memory, threads, reports.

By example: `y, total = x[x[:, 0] > 0] @ w, gf.sum(x)`, where x is fed and w a variable.

    stage 0   feeds x               computes mask = x[:, 0] > 0 and total
    measures  mask                  rows = nonzero(mask), [1, _nonzero]: `_nonzero` is known
    stage 1   feeds x, rows; has w  computes y = gather(x, rows) @ w, [_nonzero, 2]

Updates of variables are the last stage's: nothing can fail after them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import copy_context
from typing import NamedTuple

from graphfw.ir.build import emit
from graphfw.ir.dim import is_symbol
from graphfw.ir.op import ALIAS, MEASURES, PURE, RANDOM, SOURCE
from graphfw.ir.rebuild import derive, rebuild
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.creation.inputs import AssertShape
from graphfw.ops.data_dependent.measuring_ops import Measuring
from graphfw.passes.base import no_ambient
from graphfw.runtime.program import Program, stage_program


class Measurement(NamedTuple):
    """A node that finds out sizes.

    Attributes:
        node: The node.
        op: Its op.
        names: The symbols that it finds out.
        takes: The slots of its inputs.
        gives: The slots of its outputs.
        wanted: The numbers of the outputs that are read.
    """

    node: Node
    op: Measuring
    names: tuple[str, ...]
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    wanted: frozenset[int]


class Stage(NamedTuple):
    """A subgraph of a program that is run in one go. Values have slots, numbered for the whole run.

    Attributes:
        program: The subgraph as a program of its own.
        takes: The slots of its feeds and variables.
        gives: The slots of its outputs.
        measurements: What is measured after it.
        drops: The slots that nothing needs any more then.
    """

    program: Program
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    measurements: tuple[Measurement, ...]
    drops: tuple[int, ...]


class Stages(NamedTuple):
    """A program, cut.

    Attributes:
        stages: The stages, in order.
        slots: How many slots there are; the first are those of the program's feeds and variables.
        outputs: The slots of the program's outputs.
    """

    stages: tuple[Stage, ...]
    slots: int
    outputs: tuple[int, ...]


def cut(program: Program) -> Stages:
    """Cut a program into stages."""
    # In a context of its own: an interrupt must not leave graphs open here.
    return copy_context().run(_cut, program)


def _cut(program: Program) -> Stages:
    with no_ambient():
        return _Cut(program).stages()


class _Cut:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._levels = _levels(program)
        outputs = program.source.outputs
        self._last = max([self._ready(t) for t in outputs])
        self._slots: dict[tuple[Node, int], int] = {}
        inputs = (*program.feeds, *program.variables)
        self._inputs = {t.node for t in inputs}
        self._rewritten = {v.node for v in program.updated}
        for tensor in inputs:
            self._slot(tensor)

    def stages(self) -> Stages:
        """Return the stages: found from the last one on, as each says what it needs of others."""
        program = self._program
        count = program.fetch_count
        fetches, updates = program.source.outputs[:count], program.source.outputs[count:]
        wanted: list[dict[Tensor, None]] = [{} for _ in range(self._last + 1)]
        for tensor in fetches:
            wanted[self._ready(tensor)][tensor] = None
        measured: dict[Node, set[int]] = {}
        found: list[tuple[Program, tuple[Tensor, ...], list[Tensor]]] = []
        for level in range(self._last, -1, -1):
            mine = [*wanted[level], *(updates if level == self._last else ())]
            own, sources = self._stage(level, mine)
            found.insert(0, (own, sources, mine))
            for tensor in sources:
                self._demand(tensor, wanted, measured)
        stages = [
            Stage(
                own,
                tuple(map(self._slot, (*sources, *own.variables))),
                tuple(map(self._yielded, mine)),
                tuple(
                    [self._measurement(*n) for n in measured.items() if self._levels[n[0]] == level]
                ),
                (),
            )
            for level, (own, sources, mine) in enumerate(found)
        ]
        return self._numbered(stages, fetches, updates)

    def _numbered(
        self, stages: list[Stage], fetches: Sequence[Tensor], updates: Sequence[Tensor]
    ) -> Stages:
        """Give the new contents of variables slots of their own, and say what is dropped when."""
        final = stages[-1]
        count = len(self._slots)
        new = tuple(range(count, count + len(updates)))
        kept = len(final.gives) - len(updates)
        stages[-1] = final._replace(gives=(*final.gives[:kept], *new))
        outputs = (*map(self._yielded, fetches), *new)
        needed = set(outputs)
        for level in range(len(stages) - 1, -1, -1):
            stage = stages[level]
            own = {*stage.takes, *stage.gives}
            for one in stage.measurements:
                own.update(one.takes, one.gives)
            stages[level] = stage._replace(drops=tuple(own - needed))
            needed |= own
        return Stages(tuple(stages), count + len(updates), outputs)

    def _stage(self, level: int, outputs: Sequence[Tensor]) -> tuple[Program, tuple[Tensor, ...]]:
        """Return a stage as a program, and what its feeds stand for."""
        program = self._program
        is_last = level == self._last
        updated = program.updated if is_last else ()
        source = {t.node: t for t in program.feeds}
        stands: dict[Tensor, Tensor] = {}

        def stand_in(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            """Return placeholders for what is computed elsewhere."""
            if self._is_inside(node, level):
                return None
            made = [emit(Placeholder(t.shape, t.dtype), name=t.name) for t in node.outputs]
            stands.update(zip(made, node.outputs, strict=True))
            return tuple(made)

        whole = rebuild(derive(program.source, outputs), stand_in)
        graph = derive(whole, whole.outputs)
        feeds = [n.outputs[0] for n in graph.nodes if isinstance(n.op, Placeholder)]
        sources = tuple([source[t.node] if t.node in source else stands[t] for t in feeds])
        return stage_program(program, graph, feeds, updated), sources

    def _is_inside(self, node: Node, level: int) -> bool:
        """Return whether a stage has a node itself."""
        traits = node.op.traits
        if MEASURES in traits:
            return False
        if node in self._rewritten and level < self._last:
            return False  # it is no variable yet: nothing that is made of it may be kept
        if self._levels[node] == level or SOURCE in traits:
            return True
        # Views and what is made of nothing cost nothing: no memory is held for them.
        return PURE in traits and RANDOM not in traits and (ALIAS in traits or not node.inputs)

    def _demand(
        self, tensor: Tensor, wanted: list[dict[Tensor, None]], measured: dict[Node, set[int]]
    ) -> None:
        """See that an earlier stage yields what a later one or a measurement takes."""
        node = tensor.node
        if node in self._inputs:
            return
        if MEASURES not in node.op.traits:
            wanted[self._levels[node]][tensor] = None
            return
        if node not in measured:
            measured[node] = set()
            for each in node.inputs:
                self._demand(each, wanted, measured)
        measured[node].add(tensor.index)

    def _measurement(self, node: Node, wanted: Collection[int]) -> Measurement:
        assert isinstance(node.op, Measuring)
        takes, gives = map(self._slot, node.inputs), map(self._slot, node.outputs)
        return Measurement(
            node, node.op, node.op.names, tuple(takes), tuple(gives), frozenset(wanted)
        )

    def _ready(self, tensor: Tensor) -> int:
        """Return the first stage that can yield a tensor."""
        return self._levels[tensor.node] + (MEASURES in tensor.node.op.traits)

    def _yielded(self, tensor: Tensor) -> int:
        """Return the slot of what a stage yields; of what is given, it yields copies."""
        if tensor.node not in self._inputs:
            return self._slot(tensor)
        return self._slots.setdefault((tensor.node, _COPY), len(self._slots))

    def _slot(self, tensor: Tensor) -> int:
        return self._slots.setdefault((tensor.node, tensor.index), len(self._slots))


_COPY = -1
"""In the place of an output's index."""


def _levels(program: Program) -> Mapping[Node, int]:
    """Return the first stage in which each node can be computed."""
    symbols: dict[str, int] = {}
    while True:
        levels: dict[Node, int] = {}
        before = dict(symbols)
        for node in program.source.nodes:
            needs = [levels[t.node] + (MEASURES in t.node.op.traits) for t in node.inputs]
            if MEASURES in node.op.traits:
                levels[node] = max(needs, default=0)
                symbols.update(dict.fromkeys(node.op.symbols, levels[node] + 1))
                continue
            if node.op.fields:
                needs += [symbols.get(name, 0) for name in node.op.symbols]
            levels[node] = max(needs, default=0)
            if isinstance(node.op, AssertShape):
                symbols.update(_introduced(node, levels[node], program.symbols))
        if symbols == before:
            return levels


def _introduced(node: Node, level: int, known: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield the symbols that an assertion gives a size, with the stage from which they have it."""
    for said, actual in zip(node.types[0].shape, node.inputs[0].shape, strict=True):
        name = is_symbol(said)
        if name is not None and name not in known and said != actual:
            yield name, level
