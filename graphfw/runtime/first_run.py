"""`verify="first-run"`: compare a plan's first run with the graph as it was before the passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphfw.errors import ExecutionError, GraphfwError, VerifyError
from graphfw.ir import concrete
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.ir.rebuild import derive
from graphfw.passes.bisect_passes import RealRun, blamed_pass, difference, values_of
from graphfw.passes.manager import chosen_passes
from graphfw.passes.values import SampleInputs, Unknown, Value, warn_of_unknown
from graphfw.runtime.executor import Claim, Executable, Executor, Replayed
from graphfw.runtime.locations import locations_of
from graphfw.runtime.memory import MemoryReport
from graphfw.runtime.profile import Profile
from graphfw.runtime.program import Program
from graphfw.utils.signal_handlers import is_of_handler

_ITERATIONS = 100_000
"""The most iterations of a loop in the comparison, which take some seconds."""


class FirstRun(Executable):
    """An executable whose first run is compared before anything is committed.

    Args:
        run: What computes.
        program: Of which program.
        source: The program's graph as it was before the passes.
        executor: Whose arrays they are.
    """

    def __init__(
        self, run: Executable, program: Program, source: Graph, executor: Executor
    ) -> None:
        self._run = run
        self._program = program
        self._source: Graph | None = source
        self._executor = executor

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        source = self._source
        if source is None:
            return self._run(inputs, sizes, rng, version, claim)
        outputs = self._run(inputs, sizes, rng, version, None)
        program = self._program
        tensors = (*program.feeds, *program.variables)
        trial = RealRun(
            SampleInputs(
                {t.node: self._host(a) for t, a in zip(tensors, inputs, strict=True)},
                dict(zip(program.symbols, sizes, strict=True)),
                rng,
                iterations=_ITERATIONS,
            )
        )
        found = [self._host(array) for array in outputs]
        wanted = _wanted(source, trial)
        warn_of_unknown(wanted)
        output = trial.first_difference(source, wanted, found)
        if output is not None:
            replayed = self._run.replay(inputs, sizes, rng, version)
            raise blamed_pass(source, chosen_passes(program.passes()), trial) or _blamed_step(
                program, replayed, output, trial
            )
        self._source = None
        return outputs

    def _host(self, array: Any) -> Array:
        return np.asarray(array) if self._executor.is_host else self._executor.to_host(array)

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        return self._run.explain(sizes)

    def source(self) -> str:
        return self._run.source()

    def memory(self, sizes: tuple[int, ...]) -> MemoryReport:
        return self._run.memory(sizes)

    def profile(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Profile:
        return self._run.profile(inputs, sizes, rng, version)

    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        return self._run.blame(inputs, sizes, rng)


def _wanted(source: Graph, trial: RealRun) -> list[Value]:
    try:
        return trial.values(source)
    except Exception as error:
        if is_of_handler(error):
            raise
        known = error if isinstance(error, GraphfwError) else None
        what = known.summary if known else f"{type(error).__name__}: {error}"
        raise VerifyError(
            f"the run gives values, and the graph before the passes can't be computed: {what}",
            fix='run it with verify="each"',
        ) from error


def _blamed_step(
    program: Program, replayed: Iterator[Replayed], output: int, trial: RealRun
) -> VerifyError:
    """Return an error that names the first step which does not give what its nodes do."""
    graph = program.graph
    everything = [t for node in graph.nodes for t in node.outputs]
    wanted = values_of(graph, everything, trial.draw)
    for one in replayed:
        for tensor, array in one.values:
            value = wanted[tensor]
            if isinstance(value, Unknown):
                continue
            found = array.reshape(value.shape)
            own = derive(graph, [tensor])
            if trial.first_difference(own, [value], [found]) is None:
                continue
            names = ", ".join(dict.fromkeys([node.op.name for node in one.nodes]))
            return VerifyError(
                f"the step of {names} gives another value than these operations do: "
                f"{difference(value, found)}",
                operands=[concrete.describe("made", tensor)],
                why=f"it computes what is made at {locations_of(one.nodes)}",
                at=tensor.node.loc,
                fix="GRAPHFW_JIT=0 computes without native code",
            )
    tensor = graph.outputs[output]
    return VerifyError(
        f"output {output} of the compiled run is not what the graph gives, though each step by "
        "itself is right: they are in the wrong order, or write over one another",
        operands=[concrete.describe("output", tensor)],
        at=tensor.node.loc,
        fix="GRAPHFW_JIT=0 computes without native code",
    )
