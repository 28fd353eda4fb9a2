"""Running a program in stages, between which sizes are found out: see `stages.py`."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import ExecutionError, ExecutorError
from graphfw.ir import concrete
from graphfw.ir.op import Rng
from graphfw.ops.control.effects import quiet
from graphfw.passes.manager import table
from graphfw.runtime import staged_reports
from graphfw.runtime.debugging import DebugExecutable
from graphfw.runtime.executor import Claim, Executable, Executor, Options
from graphfw.runtime.feeding import check_promises
from graphfw.runtime.locations import node_table
from graphfw.runtime.memory import MemoryReport
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.profile import Profile
from graphfw.runtime.program import Program, without_passes
from graphfw.runtime.stages import Measurement, Stages, cut
from graphfw.utils.side_by_side import allowed

_versions = itertools.count(-1, -1)
"""The version of runs that know none: no two are the same."""


def loaded(
    program: Program,
    load: Callable[[Program], Executable],
    executor: Executor,
    options: Options,
) -> Executable:
    """Make a program whose sizes are found out on the way ready to run.

    Args:
        program: The program.
        load: Makes a stage ready.
        executor: Whose arrays they are.
        options: The session's.

    Raises:
        ExecutorError: There is a memory limit.
    """
    if options.memory_limit is not None:
        raise ExecutorError(
            "this run finds out sizes as it goes, so it can't keep a memory_limit",
            fix="leave it out; plan.memory(…) says what it takes at most",
        )
    without_passes(program)  # stages have theirs
    stages = cut(program)
    return StagedExecutable(
        program,
        stages,
        [load(each.program) for each in stages.stages],
        executor,
        options.threads or default_threads(),
    )


class _Passed(NamedTuple):
    """The progress of a run in one stage.

    Attributes:
        run: What has run it.
        inputs: What it was given.
        sizes: Its sizes.
        outputs: What it has yielded.
        seconds: How long each measurement after it took.
    """

    run: Executable
    inputs: list[Any]
    sizes: tuple[int, ...]
    outputs: list[Any]
    seconds: list[float]


class StagedExecutable(Executable):
    """A program in stages; what a run knows is its own, so that many may go on at once."""

    def __init__(
        self,
        program: Program,
        stages: Stages,
        runs: Sequence[Executable],
        executor: Executor,
        threads: int,
    ) -> None:
        self.program = program
        self.stages = stages
        self._runs = runs
        self._threads = threads
        self._executor = executor
        outputs = stages.outputs
        self._again = [i for i, slot in enumerate(outputs) if slot in outputs[:i]]

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        values = self._values(inputs)
        # Without a name for what is yielded, which would keep memory that is free.
        deque(self._passing(values, sizes, rng, version, claim), maxlen=0)
        outputs = [values[slot] for slot in self.stages.outputs]
        for i in self._again:
            outputs[i] = outputs[i].copy()  # each belongs to whom it is handed to
        return outputs

    def _values(self, inputs: Sequence[Any]) -> list[Any]:
        return [*inputs, *[None] * (self.stages.slots - len(inputs))]

    def _passing(
        self,
        values: list[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> Iterator[_Passed]:
        """Run stage by stage."""
        env = dict(zip(self.program.symbols, sizes, strict=True))
        last = self.stages.stages[-1]
        for stage, run in zip(self.stages.stages, self._runs, strict=True):
            check_promises(stage.program, env)
            own = tuple([env[name] for name in stage.program.symbols])
            inputs = [values[slot] for slot in stage.takes]
            outputs = run(inputs, own, rng, version, claim if stage is last else None)
            for slot, array in zip(stage.gives, outputs, strict=True):
                values[slot] = array
            seconds = [self._measured(one, run, values, env) for one in stage.measurements]
            for slot in stage.drops:
                values[slot] = None
            yield _Passed(run, inputs, own, outputs, seconds)
            del inputs, outputs

    def _measured(
        self, one: Measurement, run: Executable, values: list[Any], env: dict[str, int]
    ) -> float:
        """Compute what tells sizes, on the host, and return how long it took."""
        begin = time.perf_counter()
        node, op = one.node, one.op
        arrays = self._executor.to_hosts([values[slot] for slot in one.takes])
        is_watched = isinstance(run, DebugExecutable)
        wanted = range(len(node.outputs)) if is_watched else one.wanted
        try:
            with np.errstate(all="ignore"), allowed(self._threads):
                results = op.eval_some(wanted, *arrays)
        except Exception as error:
            raise concrete.failed(node, arrays, error) from error
        if isinstance(run, DebugExecutable):
            run.watch(node, arrays, results)
        env.update(zip(one.names, op.measured(*results), strict=True))
        for slot, tensor, array in zip(one.gives, node.outputs, results, strict=True):
            if array is not None:
                values[slot] = self._executor.feed(tensor, array)
        return time.perf_counter() - begin

    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        passed: list[_Passed] = []
        with quiet():
            passed.extend(self._passing(self._values(inputs), sizes, rng, next(_versions), None))
        for is_bad in (np.isnan, lambda array: ~np.isfinite(array)):
            for one in passed:
                arrays = self._executor.to_hosts(list(one.outputs))
                if any(a.dtype.kind in "fcV" and is_bad(a).any() for a in arrays):
                    return one.run.blame(one.inputs, one.sizes, rng)
        return passed[-1].run.blame(passed[-1].inputs, passed[-1].sizes, rng)

    # Reports.

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        symbols = self.program.symbols
        env = dict(zip(symbols, sizes, strict=True)) if sizes is not None else {}
        texts = []
        for number, (stage, run) in enumerate(zip(self.stages.stages, self._runs, strict=True)):
            own = stage.program.symbols
            known = tuple([env[s] for s in own]) if env.keys() >= set(own) else None
            texts.append(staged_reports.title(self.stages, number))
            texts.append(table(stage.program.reports))
            texts.append(run.explain(known) or node_table(stage.program.graph))
        return "\n\n".join(texts)

    def source(self) -> str:
        titles = [staged_reports.title(self.stages, n) for n in range(len(self._runs))]
        pairs = zip(titles, self._runs, strict=True)
        return "\n\n".join([f"{title}\n\n{run.source()}" for title, run in pairs])

    def memory(self, sizes: tuple[int, ...]) -> MemoryReport:
        """Return the memory that a run takes at most: as if all that is counted were there."""
        env = dict(zip(self.program.symbols, sizes, strict=True))
        reports = []
        for stage, run in zip(self.stages.stages, self._runs, strict=True):
            for check in stage.program.shape_checks:
                staged_reports.introduce(check, env)
            reports.append(run.memory(tuple([env[name] for name in stage.program.symbols])))
            for one in stage.measurements:
                staged_reports.bound(one, env)
        return staged_reports.memory(self.stages, reports, env)

    def profile(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Profile:
        with quiet():
            passed = list(self._passing(self._values(inputs), sizes, rng, version, None))
            found = [one.run.profile(one.inputs, one.sizes, rng, version) for one in passed]
        return staged_reports.profile(self.stages, found, [one.seconds for one in passed])
