"""`Session`: an executor and the contents of a graph's variables; it compiles and runs plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from graphfw.errors import (
    ArgumentError,
    ExecutionError,
    GraphError,
    GraphfwError,
    a_type,
)
from graphfw.hints.calls import explained
from graphfw.hints.names import Answering
from graphfw.ir.body import within_recursion_limit
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.mesh import AbstractMesh, Reduction, mesh_for
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update
from graphfw.loc import trim_traceback
from graphfw.passes.base import Pass
from graphfw.passes.manager import Level, checked_level
from graphfw.runtime import feeding, lookup
from graphfw.runtime.debugging import Hook, checked_debug
from graphfw.runtime.executor import Executor, checked_options, find_executor
from graphfw.runtime.extra_passes import checked_passes
from graphfw.runtime.fetch_types import FedT, Fetches, FetchT, KeyT
from graphfw.runtime.frozen_statistics import warn_of_frozen_statistics
from graphfw.runtime.limits import Precision, checked_mixed, checked_switch
from graphfw.runtime.plan import Plan
from graphfw.runtime.program import Program, lower
from graphfw.runtime.ready import ready
from graphfw.runtime.running import RunDescription, Runs
from graphfw.runtime.session_contents import SessionContents
from graphfw.runtime.state import State, checked_seed
from graphfw.utils import forks, nest
from graphfw.utils.collecting import without_collection
from graphfw.utils.uncopied import Uncopied

if TYPE_CHECKING:
    from graphfw.passes.mixed_policy import MixedName

_PLANS = 256


@explained
class Session(SessionContents, Answering, Uncopied):
    """Runs a graph, and keeps the contents of its variables from run to run.

    Safe to use from many threads: runs without updates go on side by side, runs with updates queue.
    Updates take effect together at the end of a run; a run that fails, or is interrupted at any
    moment, changes nothing.

    Args:
        graph: What to run; it may be extended later.
        executor: `"numpy"`, `"cupy"`, `"cupy:1"`, `"meta"`, an installed one's name, or an
            `Executor`; the default executor when there is none.
        seed: What random numbers and initial values are drawn from.
        verify: How much the compiler checks itself: "off", "ends", "each", "values" or "first-run".
            At the last, each plan's first run is computed by the unoptimised graph, too; where they
            differ the error names the pass, or the native step, before any variable changes.
        check_finite: Look at fetched values and updates; on NaN or infinity raise an error that
            names the operation it comes from, before any variable changes.
        threads: How many threads a run may use; by default all the cores of this process.
        memory_limit: The most memory that a run may take besides its feeds, in bytes or as
            `"2GiB"`, `"500MB"`. A run that would need more computes tensors of its forward graph
            again where its gradients read them; if that is not enough it is an error before it
            begins.
        matmul_precision: `"high"` lets products of float32, in convolutions too, be less exact
            where that is quicker: on CPUs with AMX tiles, by up to 2^-14 of each |a b|; elsewhere
            it changes nothing. `"highest"` permits neither that nor Winograd's convolutions.
        precision: "mixed-bf16" or "mixed-fp16" computes in 16 bits what gains by it, though it is
            described in float32: products, and what goes along with them. Variables, optimisers,
            losses, feeds and what is fetched stay float32. `plan.casts()` lists what is converted.
        precision_overrides: Where to compute otherwise: "float32" or the 16-bit dtype, by names of
            tensors or layers in which `*` stands for anything: `{"decoder.*": "float32"}`.
        winograd: Whether convolutions may be computed by Winograd's algorithms, where these should
            be faster; their errors are about 1e-5 of the output's scale.
        tune: Measure the ways to compute convolutions of known sizes as plans are compiled, instead
            of estimating which is the fastest. The choice is kept on disk for later such sessions.
        passes: Passes of your own, or the names under which installed packages have them. They
            are run on what is described, in this order, before the compiler's; the graph is
            checked after each. Not with `debug`, which runs what is described.
        mesh: The mesh of processes that run the graph together; by default the graph's own.
        reduction: "ordered" adds over processes in an order of graphfw's own; "fast" in that of the
            library that connects them, which may be another for another number of processes.
        shards: The number of shards of a split dim, in all processes together: see
            `placeholder(split=…)`. With `reduction="ordered"` each is computed by itself, so that
            any number of processes that divides it gives the same bits. By default each process
            has one.
        timeout: How many seconds a run may take, unless it is given another timeout; see `run`.
        debug: Run node by node with NumPy, as the graph is described, without the compiler: slower,
            and errors name the line of the node. A function is called with each node, its inputs
            and its outputs, also with those inside of loops and branches.

    Raises:
        ExecutorError: There is no such executor, or it can't run here, or not with `debug`.
        ArgumentError: One of the other arguments is not what it has to be.
        GraphErrors: The graph has mistakes that `collect_errors` has collected.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("n",), name="x")
    ...     total = gf.sum(x)
    >>> with gf.Session(g) as session:
    ...     session.run({"total": total}, {x: [1.0, 2.0]})
    {'total': array(3., dtype=float32)}
    """

    _answers_as = "Session"
    instead = (
        "save its variables with session.save(path), or take session.state_dict(); pickle the "
        "graph, and make a Session of it there"
    )

    def __init__(
        self,
        graph: Graph,
        executor: str | Executor | None = None,
        seed: int = 0,
        *,
        verify: Level | None = None,
        check_finite: bool = False,
        threads: int | None = None,
        memory_limit: int | str | None = None,
        matmul_precision: Precision | None = None,
        precision: MixedName | None = None,
        precision_overrides: Mapping[str, DTypeLike] | None = None,
        winograd: bool = True,
        tune: bool = False,
        passes: Sequence[Pass | str] = (),
        mesh: AbstractMesh | None = None,
        reduction: Reduction = "ordered",
        shards: int | None = None,
        timeout: float | None = None,
        debug: bool | Hook = False,
    ) -> None:
        if not isinstance(graph, Graph):
            message = f"Session: {a_type(graph)} is not a Graph"
            raise ArgumentError(message, fix="pass the graph: gf.Session(g)")
        graph.check()
        graph.check_names()
        self.graph = graph
        self.executor = find_executor(executor)
        self._verify = None if verify is None else checked_level(verify)
        finite = checked_switch("check_finite", check_finite) and self.executor.holds_values
        self.options = checked_options(
            threads, memory_limit, matmul_precision, winograd=winograd, tune=tune
        )
        self.precision = checked_mixed(precision, precision_overrides)
        checked_debug(debug, self.executor, self.options)
        own = checked_passes(passes)
        self.timeout = self.executor.checked_timeout(timeout)
        state, mesh = State(checked_seed(seed)), mesh_for(graph.mesh, mesh)
        self._runs: Runs
        if mesh is not None:
            self._runs = mesh.runs(state, finite, reduction, shards)
        elif shards is None:
            self._runs = Runs(state, finite)
        else:
            raise ArgumentError(
                "Session: shards are those of the processes of a mesh, and there is none",
                fix="make the graph for one: gf.Graph(mesh=gf.distributed.Mesh(data=-1))",
            )
        self._passes, self._debug = (*(() if debug else own), *self._runs.passes), debug
        self._plans: dict[Any, Plan] = {}
        self._compiling = forks.renewed_lock()

    @property
    def _state(self) -> State:
        return self._runs.state

    @property
    def seed(self) -> int:
        """The seed of random numbers and initial values."""
        return self._state.snapshot.seed

    # Running.

    @overload
    def run(
        self,
        fetches: Tensor | str,
        feeds: Mapping[FedT, Any] | None = None,
        *,
        host: bool = False,
        timeout: float | None = None,
    ) -> Array: ...
    @overload
    def run(
        self,
        fetches: Update,
        feeds: Mapping[FedT, Any] | None = None,
        *,
        host: bool = False,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    def run(
        self,
        fetches: list[FetchT],
        feeds: Mapping[FedT, Any] | None = None,
        *,
        host: bool = False,
        timeout: float | None = None,
    ) -> list[Array]: ...
    @overload
    def run(
        self,
        fetches: dict[KeyT, FetchT],
        feeds: Mapping[FedT, Any] | None = None,
        *,
        host: bool = False,
        timeout: float | None = None,
    ) -> dict[KeyT, Array]: ...
    @overload
    def run(
        self,
        fetches: NamedTuple,
        feeds: Mapping[FedT, Any] | None = None,
        *,
        host: bool = False,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def run(
        self,
        fetches: tuple[Tensor | str, ...],
        feeds: Mapping[FedT, Any] | None = None,
        *,
        host: bool = False,
        timeout: float | None = None,
    ) -> tuple[Array, ...]: ...
    @overload
    def run(
        self,
        fetches: Fetches,
        feeds: Mapping[FedT, Any] | None = None,
        *,
        host: bool = False,
        timeout: float | None = None,
    ) -> Any: ...
    def run(
        self,
        fetches: Fetches,
        feeds: Mapping[FedT, Any] | None = None,
        *,
        host: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Compute fetches, make the fetched updates happen, and return values in the same form.

        The plan for these fetches and feeds is kept; of many different ones, the last 256.

        Args:
            fetches: A tensor, a variable, an update (whose value is None), a name, or any nesting
                of lists, tuples, named tuples and dicts of these.
            feeds: Values for placeholders, by tensor or by name: NumPy arrays, lists, scalars, or
                anything with `__array__` or `__dlpack__`.
            host: Return NumPy arrays, whatever the executor: those on a GPU are copied home
                together, and waited for once.
            timeout: How many seconds the run may take; by default the session's `timeout`. It ends
                a moment later, or when what it calls returns (a library, `gf.host_call`), and the
                variables are as they were before. Once it writes to variables, it is finished and
                its results are returned. Compiling does not count.

        Returns:
            Arrays that belong to the caller, in the form of `fetches`.

        Raises:
            FetchError: Something in `fetches` can't be fetched from this graph.
            FeedError: A feed is missing, unknown, or does not fit.
            ExecutionError: An operation failed; the variables are as they were before.
            RunTimeoutError: The run takes longer than the timeout.
            ArgumentError: The timeout is no positive number.
            ExecutorError: The executor can't end runs, and there is a timeout.
            SessionError: The session is closed.
        """
        if feeds is None:
            feeds = {}
        key: tuple[Any, ...] = ()
        try:
            for t in (fetches, *feeds):  # in Python 3.11 a comprehension would be a call of its own
                key += (id(t) if isinstance(t, Tensor) else nest.key(t, self._named),)
        except TypeError:
            feeding.demand_dict(feeds)
            raise
        plan = self._plans.get(key) or self._planned(key, fetches, feeds)
        if host or timeout is not None:
            return plan(*feeds.values(), host=host, timeout=timeout)
        return plan(*feeds.values())  # Python calls by position alone in less time

    def _named(self, name: str) -> Any:
        """Return the key of what a name means now: variables are renamed as models are joined."""
        try:
            return id(self.graph.find(name))
        except GraphError:
            return name  # compiling says what is wrong

    def _planned(self, key: Any, fetches: Fetches, feeds: Mapping[Any, Any]) -> Plan:
        """Compile a run, once for all threads that ask for it, and keep the plan.

        The key holds ids: of tensors and updates, which the graph keeps alive as long as itself.
        """
        self._runs.check_open()
        feeding.demand_dict(feeds)
        with self._compiling:
            plan = self._plans.get(key)
            if plan is None:
                plan = self.compile(fetches, list(feeds))
                while len(self._plans) >= _PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[key] = plan
        return plan

    @overload
    def compile(self, fetches: Tensor | str, feeds: Sequence[Tensor | str] = ()) -> Plan[Array]: ...
    @overload
    def compile(self, fetches: Update, feeds: Sequence[Tensor | str] = ()) -> Plan[None]: ...
    @overload
    def compile(
        self, fetches: list[FetchT], feeds: Sequence[Tensor | str] = ()
    ) -> Plan[list[Array]]: ...
    @overload
    def compile(
        self, fetches: dict[KeyT, FetchT], feeds: Sequence[Tensor | str] = ()
    ) -> Plan[dict[KeyT, Array]]: ...
    @overload
    def compile(self, fetches: NamedTuple, feeds: Sequence[Tensor | str] = ()) -> Plan: ...
    @overload
    def compile(
        self, fetches: tuple[Tensor | str, ...], feeds: Sequence[Tensor | str] = ()
    ) -> Plan[tuple[Array, ...]]: ...
    @overload
    def compile(self, fetches: Fetches, feeds: Sequence[Tensor | str] = ()) -> Plan: ...
    def compile(self, fetches: Fetches, feeds: Sequence[Tensor | str] = ()) -> Plan[Any]:
        """Compile a run ahead of time; the result is called with the feeds' values by position.

        Args:
            fetches: As in `run`.
            feeds: The placeholders (or their names) that are given values, in order.

        Raises:
            FetchError, FeedError: As in `run`.
            PassError: A compiler pass failed.
            MemoryLimitError: The variables alone are more than `memory_limit`.

        >>> import graphfw as gf
        >>> with gf.Graph() as g:
        ...     x = gf.placeholder((), name="x")
        ...     y = x * x
        >>> with gf.Session(g) as session:
        ...     square = session.compile(y, feeds=[x])
        ...     float(square(3.0))
        9.0
        """
        self._runs.check_open()
        try:
            return self._compiled(fetches, feeds)
        except BaseException as error:
            self._runs.failed(None, error)
            raise

    def _compiled(self, fetches: Fetches, feeds: Sequence[Tensor | str]) -> Plan[Any]:
        self.graph.check()
        placeholders = lookup.placeholders_of(self.graph, feeds)
        tensors, updates, slots = lookup.all_fetched(self.graph, nest.leaves(fetches))
        warn_of_frozen_statistics(self.graph, updates)
        with self._compiling, within_recursion_limit(self.graph):
            with without_collection():
                # In a context of its own: an interrupt must not leave the compiler's graphs open.
                whole = RunDescription(self.graph, tensors, updates, placeholders)
                program = copy_context().run(self._lowered, whole)
            with without_collection():
                self._runs.agree_on(program)
                late = None if self._runs.check_finite else self._state.unsettled
                loaded = ready(program, self.executor, self.options, self._debug, late)
            # Now: what can't keep its memory limit is refused before variables take memory.
            self._start(self.graph.variables)
            own = self._runs, self.executor, self.timeout
            return Plan(*own, program, loaded, slots, nest.packer(fetches))

    def _lowered(self, whole: RunDescription) -> Program:
        graph, fetches, updates, feeds = self._runs.partitioned(whole)
        how = self._verify, self.executor.passes, self.precision, self._passes
        return lower(fetches, updates, feeds, graph, *how)

    def wait(self) -> None:
        """Wait for all runs: one on a GPU may return before it is done, and fail later.

        So does each use of the session that looks at variables or brings results to the host.

        Raises:
            ExecutionError: A run has failed; it and those after it have changed no variable.
            SessionError: The session is closed.
        """
        self._runs.wait()

    # Closing.

    def close(self) -> None:
        """Let go of plans and variables; every later use is an error.

        Runs that are going on in other threads come to their end.

        Raises:
            ExecutionError: A run that had returned has failed; the session is closed all the same.
        """
        unsettled = self._state.unsettled
        self._runs.is_closed = True
        self._plans.clear()
        self._runs.state = State(self.seed)
        self.executor.release()
        unsettled.settle()

    def __enter__(self) -> Session:
        self._runs.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except ExecutionError as late:
            if error is None:
                raise
            error.add_note(f"a run before it has failed: {late.summary}")
        if isinstance(error, GraphfwError):
            trim_traceback(traceback)

    def __repr__(self) -> str:
        state = "closed" if self._runs.is_closed else f"step {self._state.snapshot.step}"
        return f"<Session of {self.graph!r} on {self.executor.name}, {state}>"
