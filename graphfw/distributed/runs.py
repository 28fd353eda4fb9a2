"""The runs of a session on a mesh: all processes make those that have collectives together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from graphfw.distributed.connection import Connection
from graphfw.distributed.grid import Grid
from graphfw.distributed.partition import Shards, partitioned
from graphfw.errors import ArgumentError, counted
from graphfw.ir.build import emit
from graphfw.ir.dim import symbols_of
from graphfw.ir.dim_text import evaluate
from graphfw.ir.graph import Graph
from graphfw.ir.mesh import AbstractMesh, Reduction
from graphfw.ir.op import COLLECTIVE
from graphfw.ir.printer import graph_text
from graphfw.ir.rebuild import rebuild
from graphfw.ir.splits import split_dims
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ops.collectives.collective import Collective, Connected
from graphfw.ops.collectives.kinds import AxisIndex
from graphfw.passes.base import Pass
from graphfw.runtime.executor import Executable
from graphfw.runtime.feeding import label
from graphfw.runtime.hosting import to_numpy
from graphfw.runtime.program import Program
from graphfw.runtime.running import RunDescription, Runs
from graphfw.runtime.state import State
from graphfw.utils.records import record


class MeshRuns(Runs):
    """The runs of a session on a mesh.

    Args:
        mesh: The mesh.
        grid: Its processes.
        state: The session's contents.
        check_finite: Whether outputs that are not finite are errors.
        reduction: The order of sums.
        shards: The number of shards of a split dim, if that is fixed.
    """

    def __init__(
        self,
        mesh: AbstractMesh,
        grid: Grid,
        state: State,
        check_finite: bool,
        reduction: Reduction,
        shards: int | None,
    ) -> None:
        super().__init__(state, check_finite)
        self._mesh = mesh
        self._shards = None if reduction == "fast" else shards
        self._split: frozenset[str] = frozenset()
        self._connection = Connection(grid, reduction)
        self.passes = (Connect(self._connection),)
        self._words: dict[tuple[str, tuple[int, ...]], tuple[bytes, str]] = {}

    def partitioned(self, whole: RunDescription) -> RunDescription:
        dims = split_dims(whole.graph)
        if not dims:
            return whole
        axis_name = next(iter(dims.values())).axis_name
        count = self._mesh.size_of(axis_name)
        self._split |= frozenset(dims)
        if self._shards is None:
            return partitioned(whole, Shards(dims, axis_name, count, count, False))
        check_shards(self._shards, axis_name, count)
        return partitioned(whole, Shards(dims, axis_name, count, self._shards, True))

    def agree_on(self, program: Program) -> None:
        if program.has_collectives:
            # Numbers of 64 bits: seeds may be negative.
            seed, step = self.state.snapshot.seed, self.state.snapshot.step
            head = f"seed {seed}, step {step}, reduction {self._connection.reduction}\n"
            with self._connection.failing():
                word = _digest((head + program.digest).encode())
                self._connection.compare(word, lambda: head + graph_text(program.source))

    def failed(self, program: Program | None, error: BaseException) -> None:
        if program is None or program.has_collectives:
            self._connection.fail(error)

    def execute(
        self, program: Program, run: Executable, fed: Sequence[Any], sizes: tuple[int, ...]
    ) -> list[Any]:
        if not program.has_collectives:
            return super().execute(program, run, fed, sizes)
        word, text = self._word(program, sizes)
        if not self._split.isdisjoint(program.symbols):
            text = "\n".join([*self._fed_to_all(program, fed), text])
            word = _digest(text.encode())
        with self._connection.run(word, lambda: text):
            found = super().execute(program, run, fed, sizes)
            if not program.updated:
                self._connection.vote()
            return found

    def _looks_before(self, program: Program) -> bool:
        return self.check_finite or program.has_collectives

    def _agree(self, program: Program) -> None:
        if program.has_collectives:
            self._connection.vote()

    def _word(self, program: Program, sizes: tuple[int, ...]) -> tuple[bytes, str]:
        """Return a digest, and a text, of what must be equal in the runs of all processes."""
        known = self._words.get((program.digest, sizes))
        if known is None:
            named = dict(zip(program.symbols, sizes, strict=True))
            lines = [
                f"{_shape(node.outputs[0], named)} of {node.op.title}, {node.loc.short()}"
                for node in program.source.nodes
                if COLLECTIVE in node.op.traits
            ]
            rows = [f"{named[name]} for `{name}`" for name in sorted(self._split & named.keys())]
            text = "\n".join([*rows, *lines, f"program {program.digest}"])
            known = _digest(text.encode()), text
            self._words[program.digest, sizes] = known
        return known

    def _fed_to_all(self, program: Program, fed: Sequence[Any]) -> Iterator[str]:
        """Yield a line for each feed of which the processes don't have rows, but the same."""
        for tensor, array in zip(program.feeds, fed, strict=True):
            if self._split.isdisjoint(frozenset().union(*map(symbols_of, tensor.shape))):
                yield f"{_contents(array)} fed to {label(tensor)}, which is not split"


def _contents(array: Any) -> str:
    """Return a number, or a word for several; of an executor that has only types, the type."""
    if isinstance(array, TensorType):
        return str(array)
    values = to_numpy(array)
    return str(values) if values.size == 1 else _digest(values.tobytes()).hex()


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def check_shards(shards: int, axis_name: str, count: int) -> None:
    """See that processes along an axis have the same number of shards each.

    Raises:
        ArgumentError: They can't.
    """
    if shards % count:
        raise ArgumentError(
            f'{counted(shards, "shard")} don\'t divide among {count} processes along "{axis_name}"',
            fix="start as many processes as divide them, or choose another number of shards "
            "for Session(shards=…)",
        )


def _shape(tensor: Tensor, sizes: Mapping[str, int]) -> str:
    dims = ", ".join([str(evaluate(dim, sizes)) for dim in tensor.shape])
    return f"{tensor.dtype.name}[{dims}]"


@record
class Connect(Pass):
    """Connects the collectives of a program to the other processes, and numbers them.

    Each has the result of the one before as an input, so that all processes do them in one order.

    Attributes:
        connection: The connection of the session.
    """

    connection: Connection
    name = "connect"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        earlier: list[Tensor] = []

        def connected(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if not isinstance(node.op, Collective):
                return None
            hits[node.op.name] += 1
            op = Connected(node.op, self.connection, sum(hits.values()))
            if isinstance(node.op, AxisIndex):  # it waits for nobody
                return emit(op)
            made = emit(op, *inputs, *earlier)
            earlier[:] = [made]
            return made

        return rebuild(graph, connected)
