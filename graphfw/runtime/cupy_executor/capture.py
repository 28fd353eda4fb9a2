"""CUDA graphs: launches that are recorded once, and then made by a single call.

A graph has addresses in it. So a program at some sizes, on some stream, has an `Instance`: memory
that stays its own, into which feeds are copied and out of which fetched values are. The memory is
shared by all instances of a stream, which use it one after the other.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from graphfw.runtime.cupy_executor.bound_plan import Native, Segment, Wave, launches_of
from graphfw.runtime.cupy_executor.bound_steps import BoundCudnn, BoundKernel, BoundProduct
from graphfw.runtime.cupy_executor.build import GpuProgram
from graphfw.runtime.cupy_executor.failures import cuda_version
from graphfw.runtime.cupy_executor.layouts import GpuLayout
from graphfw.runtime.cupy_executor.regions.common import BoundRegion
from graphfw.runtime.cupy_executor.runs import RunMemory
from graphfw.runtime.cupy_executor.streams import PER_THREAD, Key, key_of
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.limits import shown_bytes, switched_off
from graphfw.utils import locks

RUNS = 2
"""After so many runs of some sizes their launches are recorded: what is not there by then, such as
code that CUDA loads at its first launch, could not be had while it records. What writes variables
over is recorded at the first run, and rehearsed before: see `Worker.rehearse`."""

USELESS = 8
"""The most instances in a row that only one run uses: because variables are elsewhere then, or
because there are more sizes than instances are kept."""

_INSTANCES = 32
"""The most instances that a session keeps: a launch takes some kilobytes of the GPU in a graph."""

_BESIDE = 7
"""The most streams that are recorded besides the first one."""

_LAUNCH = 8e-6
"""Seconds that the host takes for a launch by itself, roughly."""

_COPY = 4e-6
"""Seconds that it takes to begin a copy."""

_BYTES = 1e12
"""Bytes that a GPU copies in a second, at least."""

_OLDEST = 11040
"""The driver from which on graphs have all that is used here: CUDA 11.4."""


def unavailable(cupy: Any) -> str:
    """Return why there are no CUDA graphs here; empty where there are."""
    if not hasattr(cupy.cuda.Stream, "begin_capture") or not hasattr(cupy.cuda, "Graph"):
        return f"CuPy {cupy.__version__} has none"
    driver = cupy.cuda.runtime.driverGetVersion()
    if driver < _OLDEST:
        return f"the driver knows CUDA {cuda_version(driver)}, they need 11.4"
    return ""


class Worth(NamedTuple):
    """The gain of recording a run at some sizes.

    Attributes:
        recorded: For each segment whether it becomes a graph, if it is worth it.
        launches: How many launches are saved.
        copied: The bytes that are copied into the instance's memory and out of it.
        copies: In how many copies.
    """

    recorded: tuple[bool, ...]
    launches: int
    copied: int
    copies: int

    @property
    def pays(self) -> bool:
        """Whether the launches that are saved take longer than the copies."""
        return self.launches * _LAUNCH > self.copies * _COPY + 2 * self.copied / _BYTES

    def __str__(self) -> str:
        return f"{self.launches} launches for {shown_bytes(self.copied)} in {self.copies} copies"


def worth(
    layout: GpuLayout,
    build: GpuProgram,
    slot_of: Mapping[Storage, int],
    on_device: Collection[int] = (),
) -> Worth:
    """Return the gain of recording a run.

    Args:
        layout: At which sizes.
        build: Of which program.
        slot_of: Its slots.
        on_device: The slots of feeds that are on the GPU already; others have to be copied anyhow.
    """
    steps = [launches_of(segment) for segment in layout.segments]
    recorded = tuple([count > 1 for count in steps])
    saved = sum([count - 1 for count in steps if count > 1])
    outside = {slot_of[s] for s in build.outside}
    fetched = {slot_of[s] for s in build.fetched} - outside
    copied = [*on_device, *(outside & read_by(layout.segments)), *fetched]
    return Worth(recorded, saved, sum([layout.nbytes[slot] for slot in copied]), len(copied))


def read_by(segments: Sequence[Segment]) -> set[int]:
    """Return the slots whose addresses launches are given."""
    waves = [wave for segment in segments if isinstance(segment, list) for wave in segment]
    steps = [one for wave in waves for one in wave]
    return {address.slot for one in steps for address in getattr(one, "operands", ())} - {-1}


def _divided(wave: Wave) -> list[Wave]:
    """Share the launches of a wave out among streams; those that use scratch memory go together."""
    together = [one for one in wave if _uses_scratch(one)]
    separate = [one for one in wave if not _uses_scratch(one)]
    count = min(len(separate), _BESIDE + (not together))
    groups = [separate[k::count] for k in range(count)]
    return [together, *groups] if together else groups


def _uses_scratch(one: Native) -> bool:
    if isinstance(one, BoundKernel):
        return bool(one.launch.scratch or one.launch.counters)
    if isinstance(one, BoundRegion):
        return True  # what it hands from iteration to iteration lies where that of others does
    if isinstance(one, BoundCudnn):
        return one.plan.workspace > 0
    return isinstance(one, BoundProduct) and one.product is not None and one.product.workspace > 0


class Workspace:
    """Memory that all instances of a stream share, each until it has launched everything.

    Attributes:
        memory: The bytes.
        stream: The stream, which is kept: another one could get its address.
    """

    def __init__(self, memory: Any, stream: Any) -> None:
        self.memory = memory
        self.stream = stream
        self._user: dict[None, object] = {}

    def take(self, user: object) -> bool:
        """Claim it for a run in one step, as threads need; return whether it was free."""
        return self._user.setdefault(None, user) is user

    def give_back(self, user: object) -> None:
        """End `take`, or do nothing where another has it."""
        if self._user.get(None) is user:
            self._user.clear()


class Instance:
    """A program at some sizes on some stream, with memory that stays where it is.

    Args:
        run: Has the addresses of everything but what is fed.
        workspace: Where its memory is.
        variables: The arrays of the variables.
        updated: Those of them that runs write new contents to.
        worth: What it brings.

    Attributes:
        graphs: The recorded graphs, by segment.
        final: What has been recorded of what writes new contents over the old ones.
    """

    def __init__(
        self,
        run: RunMemory,
        workspace: Workspace,
        variables: Sequence[Any],
        updated: Sequence[Any],
        worth: Worth,
    ) -> None:
        self.run = run
        self.workspace = workspace
        self.variables = variables
        self.updated = updated
        self.worth = worth
        self.graphs: dict[int, Any] = {}
        self.final: Any = None

    def records(self, number: int) -> bool:
        """Return whether a segment is to become a graph."""
        return self.worth.pays and self.worth.recorded[number]

    def knows(self, variables: Sequence[Any]) -> bool:
        """Return whether these are the arrays of the variables that it has been made for."""
        return all(map(is_, variables, self.variables))

    def __str__(self) -> str:
        main = len([graph for graph in self.graphs.values() if graph is not None])
        segments = [f"{main}, which save {self.worth}"] if main else []
        if self.final is not None:
            segments.append("one that writes variables over")
        return "; ".join(segments) or "none yet"


class Capturing:
    """Records launches, and keeps instances: those of the last runs.

    Args:
        cupy: The module.
    """

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._lock = locks.reentrant()
        self._streams: list[Any] = []
        self._instances: OrderedDict[tuple[GpuLayout, Key], Instance] = OrderedDict()
        self._workspaces: dict[Key, Workspace] = {}

    def why_not(self, stream: Any) -> str:
        """Return why nothing can be recorded for a stream; empty where it can."""
        if stream.ptr == PER_THREAD:
            return "the current stream is each thread's own default one"
        return switched_off("GRAPHFW_CUDA_GRAPHS") or self._unavailable

    @cached_property
    def _unavailable(self) -> str:
        return unavailable(self._cupy)

    def record(self, waves: Iterable[Wave], launch: Callable[[Wave], None]) -> Any:
        """Return a CUDA graph of launches, in which those of a wave go on side by side.

        They are made on streams of its own: others go on, and what they do is not recorded.

        Args:
            waves: What is launched.
            launch: Launches on the current stream.
        """
        with self._lock:
            streams = self._streams or [
                self._cupy.cuda.Stream(non_blocking=True) for _ in range(_BESIDE + 1)
            ]
            self._streams = []  # those on which recording has failed are not used again
            first = streams[0]
            with first:
                first.begin_capture()
                try:
                    for wave in waves:
                        self._side_by_side(_divided(wave), launch, streams)
                except BaseException:
                    with contextlib.suppress(Exception):
                        first.end_capture()
                    raise
                graph = first.end_capture()
            self._streams = streams
            return graph

    def _side_by_side(
        self, groups: Sequence[Wave], launch: Callable[[Wave], None], streams: Sequence[Any]
    ) -> None:
        """Launch each lane on a stream, the first of which begins before all and ends after all."""
        first, *others = streams
        beside = [*zip(groups[1:], others, strict=False)]
        if beside:
            begin = self._event(first)
        for lane, stream in beside:
            stream.wait_event(begin)
            with stream:
                launch(lane)
        launch(groups[0])
        for _, stream in beside:
            first.wait_event(self._event(stream))

    def _event(self, stream: Any) -> Any:
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def find(self, layout: GpuLayout, key: Key) -> Instance | None:
        """Return the instance of a layout on a stream, if there is one."""
        with self._lock:
            found = self._instances.get((layout, key))
            if found is not None:
                self._instances.move_to_end((layout, key))
            return found

    def add(self, layout: GpuLayout, key: Key, instance: Instance) -> None:
        """Keep an instance; the one that has not been used for the longest time goes."""
        with self._lock:
            self._instances[layout, key] = instance
            self._instances.move_to_end((layout, key))
            while len(self._instances) > _INSTANCES:
                self._instances.popitem(last=False)
            used = {entry[1] for entry in self._instances}
            for unused in self._workspaces.keys() - used:
                del self._workspaces[unused]

    def instances_of(self, layout: GpuLayout) -> list[Instance]:
        """Return the instances of a layout, on all streams."""
        with self._lock:
            return [found for (own, _), found in self._instances.items() if own is layout]

    def workspace(self, nbytes: int, stream: Any) -> Workspace:
        """Return the memory of a stream's instances: so many bytes or more."""
        key = key_of(stream)
        with self._lock:
            found = self._workspaces.get(key)
            if found is None or found.memory.nbytes < nbytes:
                self._drop(key)  # let the smaller one go before
                found = Workspace(self._cupy.empty(nbytes, np.uint8), stream)
                self._workspaces[key] = found
            return found

    def forget_variables(self) -> None:
        """Drop the instances that know where variables are, because these are elsewhere now."""
        with self._lock:
            known = self._instances.items()
            self._instances = OrderedDict([entry for entry in known if not entry[1].variables])

    def drop(self) -> bool:
        """Drop everything, where memory is needed; says whether there was anything."""
        with self._lock:
            found = bool(self._workspaces)
            self._instances.clear()
            self._workspaces.clear()
            return found

    def _drop(self, key: Key) -> None:
        for entry in [entry for entry in self._instances if entry[1] == key]:
            del self._instances[entry]
        self._workspaces.pop(key, None)
