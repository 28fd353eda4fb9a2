"""cuDNN, by NVIDIA's own Python package: what it computes if it has a way at given sizes.

`nvidia-cudnn-frontend` is asked for ways to compute a graph of given sizes, of which those are left
that give the same results in each run and are as exact as a session wants them.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from operator import add
from typing import Any, NamedTuple

from graphfw.errors import ExecutorError, counted, first_line
from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node
from graphfw.runtime.cache import Cache, folder
from graphfw.runtime.kernels.steps import Step, Storage
from graphfw.runtime.limits import switched_off
from graphfw.utils import locks
from graphfw.utils.recent import Recent

WORKSPACE = 256 << 20
"""The most workspace of a graph, in bytes."""

ALIGNED = 16
"""The number that addresses must be multiples of: cuDNN takes no other alignment."""

KINDS = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE"}
"""cuDNN's names of dtypes."""

OLDEST = 90100
"""cuDNN 9.1; before, it knows less of what graphs may be."""

_PLANS = 1024
"""The number of plans that are kept."""

_NEVER = (
    "NONDETERMINISTIC",  # another order of sums in another run
    "DOWN_CONVERT_INPUTS",
    "REDUCED_PRECISION_REDUCTION",
)

_LEAVE = "GRAPHFW_CUDNN=0 has all computed by graphfw's own kernels"
INSTALL = (
    'pip install nvidia-cudnn-frontend, and "nvidia-cudnn-cu12>=9.1" for CUDA 12 or '
    '"nvidia-cudnn-cu13>=9.12" for CUDA 13'
)


def why_not() -> str:
    """Return why cuDNN is not used; empty where it is."""
    off = switched_off("GRAPHFW_CUDNN")
    if off:
        return off
    try:
        import_module("cudnn")
    except ModuleNotFoundError:
        return "nvidia-cudnn-frontend is not installed"
    except Exception:  # what is wrong is said by `load`
        return ""
    return ""


def load() -> Any:
    """Return NVIDIA's package, which is installed, with a library that it works with.

    Raises:
        ExecutorError: The library is missing or too old.
    """
    try:
        module = import_module("cudnn")
        version: int = module.backend_version()
    except Exception as error:
        raise ExecutorError(
            f"nvidia-cudnn-frontend is installed, but finds no cuDNN: {first_line(error)}",
            fix=f"{INSTALL}; {_LEAVE}",
        ) from error
    if version < OLDEST:
        raise ExecutorError(
            f"cuDNN {shown_version(version)} is installed, and graphfw needs "
            f"{shown_version(OLDEST)}",
            fix=f"{INSTALL}; {_LEAVE}",
        )
    return module


def shown_version(number: int) -> str:
    """Write a version for people.

    >>> shown_version(91002)
    '9.10.2'
    """
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


class CudnnRequest(NamedTuple):
    """A computation that cuDNN is asked for, at given sizes.

    Attributes:
        graph: Makes the graph, of the package and of what graphs are made with besides. The numbers
            of its operands are those of the code's, from 1.
        offsets: Where each operand begins in its storage, in bytes.
        barred: The notes of ways that are not taken.
        since: Older libraries are not asked it.
        slices: Where the graph computes one slice and is run for one after the other: how far after
            `offsets` each begins.
        smaller: What may be asked where there is no way: the same in more slices.
        kept: All that the graph is made of, as a text, where cuDNN compiles for it: then its plan
            is kept on disk. Other plans are made sooner than they would be read.
    """

    graph: Callable[[Any, Mapping[str, Any]], Any]
    offsets: tuple[int, ...]
    barred: tuple[str, ...] = ()
    since: int = OLDEST
    slices: tuple[tuple[int, ...], ...] = ()
    smaller: tuple[CudnnRequest, ...] = ()
    kept: str = ""


class CudnnCode(ABC):
    """A step of cuDNN, if it has a way at given sizes, and otherwise of graphfw's own kernels.

    A step's operands are those of the graph, then what else `epilogue` and `fallback` read and
    write.

    Attributes:
        epilogue: What follows what cuDNN computes.
        fallback: What does all of it where cuDNN does not.
    """

    epilogue: tuple[Step, ...]
    fallback: tuple[Step, ...]

    @property
    def key(self) -> str:
        """All of it."""
        return repr(self)

    @property
    @abstractmethod
    def title(self) -> str:
        """The step's name in reports."""

    @abstractmethod
    def request(self, params: Sequence[int]) -> CudnnRequest | str:
        """Return the request to cuDNN; or why there can be none."""


def cudnn_step(
    nodes: tuple[Node, ...],
    code: CudnnCode,
    operands: Sequence[Storage],
    written: Sequence[bool],
    params: tuple[DimLike, ...],
) -> Step:
    """Return a step for which cuDNN is asked.

    Args:
        nodes: What it computes.
        code: What is asked.
        operands: The storages of the graph's operands, in order.
        written: Which of them it makes.
        params: See the code.
    """
    steps, own, needed = (
        (*code.epilogue, *code.fallback),
        frozenset(operands),
        dict[Storage, bool](),
    )
    for step in steps:
        for storage, is_new in zip(step.operands, step.written, strict=True):
            if storage not in own:
                needed[storage] = needed.get(storage, False) or is_new
    return Step(
        nodes=nodes,
        code=code,
        operands=(*operands, *needed),
        written=(*written, *needed.values()),
        params=params,
        work_items=1,
        can_fail=any([step.can_fail for step in steps]),
        nonzero=tuple([size for step in steps for size in step.nonzero]),
    )


class CudnnPlan(NamedTuple):
    """A graph that is ready to run.

    Attributes:
        graph: What cuDNN has made of it.
        offsets: Where each operand begins in its storage, in bytes.
        workspace: The bytes that it needs besides.
        slices: See `CudnnRequest`.
    """

    graph: Any
    offsets: tuple[int, ...]
    workspace: int
    slices: tuple[tuple[int, ...], ...] = ()


class Cudnn:
    """The library, for one GPU, which must be the current one.

    Args:
        module: What `load` returns.
        gpu: All of the GPU that plans depend on; where it is empty, none is kept on disk.
        where: For which GPU: what graphs are made with besides; a handle where nothing is said.
    """

    def __init__(self, module: Any, gpu: str = "", **where: Any) -> None:
        self._cudnn = module
        self._gpu = gpu
        self._cache = Cache(folder() if gpu else None)
        self._lock = locks.reentrant()
        self._known: Recent[tuple[CudnnCode, tuple[int, ...]], CudnnPlan | str] = Recent(_PLANS)
        self._where = where
        if not where:
            try:
                self._where = {"handle": module.create_handle()}
            except Exception as error:
                raise ExecutorError(
                    f"cuDNN refuses this GPU: {first_line(error)}",
                    fix=f"python -m graphfw doctor; {_LEAVE}",
                ) from error

    def plan(self, code: CudnnCode, params: Sequence[int]) -> CudnnPlan | str:
        """Return how cuDNN computes something of these sizes; or why it does not."""
        key = (code, tuple(params))
        with self._lock:
            if key not in self._known:
                self._known.keep(key, self._planned(code, params))
            self._known.move_to_end(key)
            return self._known[key]

    def run(self, plan: CudnnPlan, operands: Sequence[int], workspace: int, stream: int) -> None:
        """Launch a graph; all memory is given by address."""
        handle = self._where["handle"]
        with self._lock:  # the handle's stream is the same for all who run something
            try:
                self._cudnn.set_stream(handle=handle, stream=stream)
                begin = [*map(add, operands, plan.offsets)]
                for slice_offsets in plan.slices or ([0 for _ in begin],):
                    at = dict(enumerate(map(add, begin, slice_offsets), 1))
                    plan.graph.execute(at, workspace, handle=handle)
            except Exception as error:
                raise ExecutorError(
                    f"cuDNN does not compute what it has planned: {first_line(error)}",
                    fix=f"python -m graphfw doctor; {_LEAVE}",
                ) from error

    def _planned(self, code: CudnnCode, params: Sequence[int]) -> CudnnPlan | str:
        asked = code.request(params)
        if isinstance(asked, str):
            return asked
        version = self._cudnn.backend_version()
        if version < asked.since:
            return f"cuDNN {shown_version(version)} is older than {shown_version(asked.since)}"
        first = self._built(asked)
        if isinstance(first, str):
            for one in asked.smaller:
                plan = self._built(one)
                if isinstance(plan, CudnnPlan):
                    return plan
                first = f"{first}; in {counted(len(one.slices), 'slice')}: {plan}"
        return first

    def _built(self, asked: CudnnRequest) -> CudnnPlan | str:
        try:
            graph = asked.graph(self._cudnn, self._where)
            graph.validate()
            graph.build_operation_graph()
            name = self._name(graph, asked) if asked.kept else ""
            recalled = self._recalled(name) if name else None
            if recalled is None:
                self._compile(graph, asked)
            else:
                graph = recalled
            workspace: int = graph.get_workspace_size()
        except (AttributeError, TypeError) as error:
            raise ExecutorError(
                f"nvidia-cudnn-frontend does not take what it is told: {first_line(error)}",
                fix=_LEAVE,
            ) from error
        except Exception as error:
            return f"cuDNN has no way that is allowed: {first_line(error)}"
        if getattr(graph, "selected_engine", None) is not None:  # one in Python
            return "the package has a kernel of its own for it, about which it says too little"
        if name and recalled is None:
            self._keep(name, graph)
        return CudnnPlan(graph, asked.offsets, workspace, asked.slices)

    def _compile(self, graph: Any, asked: CudnnRequest) -> None:
        """Have a graph be planned by one of the ways that are allowed."""
        modes, notes = self._cudnn.heur_mode, self._cudnn.numerical_note
        graph.create_execution_plans([modes.A, modes.FALLBACK])
        graph.deselect_numeric_notes([getattr(notes, name) for name in (*_NEVER, *asked.barred)])
        graph.deselect_workspace_greater_than(WORKSPACE)
        graph.check_support()
        graph.build_plans()

    def _name(self, graph: Any, asked: CudnnRequest) -> str:
        """Return under what name a graph's plan is kept: a hash of all that it depends on."""
        versions = self._cudnn.__version__, self._cudnn.backend_version()
        allowed = _NEVER, asked.barred, WORKSPACE
        settings = sorted([pair for pair in os.environ.items() if pair[0].startswith("CUDNN_")])
        # NVIDIA's key is one number; it changes with what else graphs are described with.
        text = repr((self._gpu, versions, settings, allowed, asked.kept, graph.key()))
        return hashlib.sha256(text.encode()).hexdigest()

    def _recalled(self, name: str) -> Any | None:
        """Return a graph that is ready to run; None where its plan is not on disk."""
        plan = self._cache.load(name)
        if plan is None:
            return None
        graph = self._cudnn.pygraph(**self._where)
        try:
            graph.deserialize([*zlib.decompress(plan)])
        except Exception:  # it is made anew
            return None
        return graph

    def _keep(self, name: str, graph: Any) -> None:
        """Write a graph's plan to the disk."""
        try:
            plan = bytes(graph.serialize())
        except Exception:  # not all libraries can write all plans
            return
        self._cache.store(name, zlib.compress(plan))
