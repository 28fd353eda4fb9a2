"""`Tuner`: measures the ways to compute a node, and keeps what it has found on disk.

What is kept is the time that each strategy took, under a hash of all that they run: the functions'
names, which change with the code that generates them and with the processor, their integers, the
sizes of their operands, and how many threads there are.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property

import numpy as np

from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import float32
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.runtime.kernels.steps import Choice, Step, Storage, Temp, View
from graphfw.runtime.numpy_executor.buffer_pool import aligned
from graphfw.runtime.numpy_executor.choice import Strategy, by_estimate, chosen, estimated
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.engine import compile_codes, disk
from graphfw.runtime.numpy_executor.names import name_of
from graphfw.runtime.numpy_executor.recipe import Measured
from graphfw.runtime.numpy_executor.runner import Run, StepCall, Tables, Wave
from graphfw.runtime.planning.blocks import nbytes
from graphfw.runtime.planning.copies import copied
from graphfw.utils.hashing import blake2b

_SECONDS = 0.05
"""The time for which a strategy is measured, about; at least one run is."""

_RUNS = 9
"""The most runs of a strategy."""

_LARGEST = 1 << 30
"""With more bytes of operands nothing is measured."""

_LEAST, _CACHES = 4 << 20, 64 << 20
"""The bytes that a run goes through to leave nothing else in a core's own caches, or in any."""

_known: dict[str, Mapping[str, float]] = {}
"""The measurements that have been made, or read, in this process."""


class Tuner:
    """Chooses by measured times.

    Args:
        threads: How many threads a run may use.
        graph: What is computed.
        measured: Times that are known, which come before those on disk.

    Attributes:
        found: The times that choices were made by.
    """

    def __init__(self, threads: int, graph: Graph, measured: Measured | None = None) -> None:
        self._threads = threads
        self._graph = graph
        self._measured = measured or {}
        self.found: dict[str, Mapping[str, float]] = {}

    def choose(self, strategies: Sequence[Strategy]) -> list[Step]:
        """Return the steps of the strategy that takes least."""
        if len(strategies) == 1:
            return by_estimate(strategies)
        ways = {one.name: one.make() for one in strategies}
        if not all([_is_known(step) for steps in ways.values() for step in steps]):
            return estimated(strategies, "by estimate, as its sizes are not known")
        if _total(ways) > _LARGEST:
            return estimated(strategies, "by estimate, as it is too large to be measured")
        key = self._key(ways)
        how = "measured before"
        times = self._measured.get(key) or _known.get(key) or _read(key, ways)
        if times is None:
            how = "measured now"
            times = _Trial(ways, self._threads, self._between).times()
            disk().store(key, json.dumps(times).encode())
        _known[key] = self.found[key] = times
        best = min(times, key=times.__getitem__)
        estimates = {one.name: one.seconds for one in strategies}
        return chosen(ways[best], Choice(best, how, estimates, times))

    @cached_property
    def weights(self) -> int:
        """The bytes that last from run to run."""
        outputs = [t for node in self._graph.nodes for t in node.outputs if _lasts(t)]
        return sum([_bytes(tensor) for tensor in outputs])

    @cached_property
    def _between(self) -> int:
        """The bytes that a run reads and writes from one use of a weight to the next."""
        # A power of two, so that the same layers in similar networks are measured once.
        return min(max(1 << self.weights.bit_length(), _LEAST), _CACHES)

    def _key(self, ways: Mapping[str, Sequence[Step]]) -> str:
        """Return the key that the times of some strategies are kept under."""
        lines = [f"{self._threads} threads {self._between} bytes"]
        for name, steps in ways.items():
            lines.append(name)
            numbers: dict[Storage, int] = {}
            for step in steps:
                operands = [
                    (numbers.setdefault(s, len(numbers)), s.dtype.name, s.size)
                    for s in step.operands
                ]
                lines.append(f"{name_of(step.code)} {operands} {step.params} {step.work_items}")
        return "gt_" + blake2b("\n".join(lines).encode(), digest_size=20).hexdigest()


def _read(key: str, names: Iterable[str]) -> dict[str, float] | None:
    """Return the times that are kept, if they are those of these strategies."""
    content = disk().load(key)
    if content is None:
        return None
    try:
        times = json.loads(content)
    except ValueError:
        return None
    if not isinstance(times, dict) or list(times) != list(names):
        return None
    is_sound = all([isinstance(t, float) and math.isfinite(t) and t > 0 for t in times.values()])
    return times if is_sound else None


def _is_known(step: Step) -> bool:
    """Return whether nothing of a step depends on symbolic sizes."""
    sizes = (*step.params, step.work_items, step.scratch, *[s.size for s in step.operands])
    return all([isinstance(size, int) for size in sizes])


def _total(ways: Mapping[str, Sequence[Step]]) -> int:
    """Return how many bytes all operands take."""
    steps = [step for way in ways.values() for step in way]
    return sum(map(_bytes, {storage for step in steps for storage in step.operands}))


def _bytes(storage: Storage) -> int:
    return evaluate(nbytes(storage), {})


class _Trial:
    """Strategies on random operands.

    Args:
        ways: The steps of each.
        threads: How many threads may work.
        between: How many bytes a run of the plan goes through before it comes back.
    """

    def __init__(self, ways: Mapping[str, Sequence[Step]], threads: int, between: int) -> None:
        self._threads = threads
        every = [step for steps in ways.values() for step in steps]
        before = _before(every, between)
        steps = [*[step for some in before for step in some], *every]
        addresses = compile_codes([step.code for step in steps])
        self._addresses = dict(zip(steps, addresses, strict=True))
        operands = dict.fromkeys([storage for step in steps for storage in step.operands])
        self._numbers = {storage: number for number, storage in enumerate(operands)}
        self._arrays = [_filled(storage) for storage in operands]
        prepacking = [[step] for step in every if step.prepacks]
        if prepacking:
            self._run(prepacking).stretch(0, len(prepacking), hold=False)(())
        ways = {name: [s for s in steps if not s.prepacks] for name, steps in ways.items()}
        runs = {name: self._run([*before, *[[s] for s in way]]) for name, way in ways.items()}
        first = len(before)
        self._runs = {
            name: (
                run.stretch(0, first, hold=False),
                run.stretch(first, len(ways[name]), hold=False),
            )
            for name, run in runs.items()
        }

    def times(self) -> dict[str, float]:
        """Return each strategy's seconds: of its runs, a quarter take less.

        The median would be what others leave to it, on a machine that has more to do.
        """
        taken: dict[str, list[float]] = {name: [] for name in self._runs}
        end = time.perf_counter() + _SECONDS * len(self._runs)
        # In turns, so that what else the machine does meets all of them. The first run also looks
        # for its pages.
        for number in range(_RUNS + 1):
            for name, (before, run) in self._runs.items():
                before(())
                begin = time.perf_counter()
                run(())
                taken[name].append(time.perf_counter() - begin)
            if number and time.perf_counter() > end:
                break
        return {name: sorted(times[1:])[len(times) // 4] for name, times in taken.items()}

    def _run(self, levels: Sequence[Sequence[Step]]) -> Run:
        """Return a run of the steps, level by level, those of a level together."""
        waves = [Wave([self._call(step) for step in steps]) for steps in levels]
        run = Run(Tables(waves, len(self._arrays), 0), self._threads)
        run.bases[:] = [array.ctypes.data for array in self._arrays]
        return run

    def _call(self, step: Step) -> StepCall:
        return StepCall(
            self._addresses[step],
            [(self._numbers[storage], 0) for storage in step.operands],
            [evaluate(param, {}) for param in step.params],
            evaluate(step.work_items, {}),
            evaluate(step.scratch, {}),
        )


def _before(steps: Sequence[Step], between: int) -> list[list[Step]]:
    """Return steps that leave in the caches what a plan leaves there.

    They write what other nodes have just made, on all threads, and copy so much else before that
    what stays from run to run, as weights do, has left the caches that can't hold all of it.
    """
    made = {
        s for step in steps for s, is_new in zip(step.operands, step.written, strict=True) if is_new
    }
    read = dict.fromkeys([s for step in steps for s in step.operands if s not in made])
    other, _ = _copy(Temp(float32, between // 8, "something else"))
    found = []
    for storage in read:
        if not _lasts(storage):
            copy, temp = _copy(Temp(storage.dtype, storage.size, "random numbers"))
            found.append(
                replace(copy, operands=tuple([storage if s is temp else s for s in copy.operands]))
            )
    return [[other], found]


def _copy(source: Temp) -> tuple[Step, Temp]:
    return copied(View(source, 0, (source.size,), (1,)), (), source.why, KernelCode)


def _lasts(storage: Storage) -> bool:
    """Return whether a storage holds the same from run to run."""
    if isinstance(storage, Tensor):
        return isinstance(storage, Variable) or isinstance(storage.node.op, ConstantOp)
    return False


def _filled(storage: Storage) -> Array:
    """Return memory for a storage: random numbers, where it is one of floats, else zeros."""
    memory = aligned(-(-_bytes(storage) // 8) * 8, np.zeros)
    dtype = storage.dtype.dtype
    if storage.dtype.is_floating:
        array = memory[: _bytes(storage)].view(dtype)
        array[...] = np.resize(_numbers().astype(dtype), array.shape)
    return memory


@cache
def _numbers() -> Array:
    # Not at the top: few tune, and all would import NumPy's generators.
    return np.random.default_rng(0).standard_normal(4099)
