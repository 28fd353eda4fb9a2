"""`gf.function`: a Python function of arrays, which is built into a graph and run by a session."""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from graphfw.errors import (
    ArgumentError,
    CallError,
    GraphfwError,
    SessionError,
    a_type,
    counted,
)
from graphfw.hints.calls import explained
from graphfw.hints.names import Answering
from graphfw.ir import ambient
from graphfw.ir.build import emit
from graphfw.ir.dtype import as_dtype
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.model_graph import ModelGraph
from graphfw.ir.modes import modes_key
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Tensor
from graphfw.runtime import feeding
from graphfw.runtime.builds import Copies, FunctionGraph, MadeVariables, close_or_release
from graphfw.runtime.call_keys import call_key
from graphfw.runtime.captured import Captured
from graphfw.runtime.executor import Executor
from graphfw.runtime.fetch_types import ResultT_co
from graphfw.runtime.frozen_statistics import warn_of_frozen_statistics
from graphfw.runtime.function_calls import (
    FunctionCall,
    Ready,
    TracedFunction,
    flatten,
    static_key,
    unbound_fix,
)
from graphfw.runtime.function_types import P, TypedFunction
from graphfw.runtime.lost_variables import keeping_variables
from graphfw.runtime.plan import Plan
from graphfw.runtime.session import Session
from graphfw.runtime.tracing import flat_results, warn_of_large_constants
from graphfw.utils import forks
from graphfw.utils.nest import packer
from graphfw.utils.signal_handlers import is_of_handler

_KNOWN_CALLS = 1024
"""The number of kinds of calls whose plans a function remembers."""

_MANY_BUILDS = 16
"""After so many builds a function is probably called with ever new static values."""

_building = forks.renewed_lock()
"""Held while a function is built: functions may share a session, whose graph one thread extends."""


@overload
def function(fn: Callable[P, ResultT_co], /) -> Function[P, ResultT_co]: ...
@overload
def function(
    fn: None = None,
    /,
    *,
    session: Session | None = None,
    executor: str | Executor | None = None,
    seed: int | None = None,
) -> Callable[[Callable[P, ResultT_co]], Function[P, ResultT_co]]: ...
@explained
def function(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    session: Session | None = None,
    executor: str | Executor | None = None,
    seed: int | None = None,
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Make a function of tensors a function of arrays: compiled, with NumPy arrays in and out.

    The first call with arguments of a kind calls `fn` once with placeholders, compiles the graph
    that it builds, and runs it; later calls only run. Arrays may be nested in tuples, lists and
    dicts, in the arguments and in the result.

    A build serves arrays of the same dtypes and ranks, with the same dims equal and the same dims 1
    (they broadcast), the same layers in training, and the same values of all other arguments, which
    must be hashable. It serves all sizes. Only if `fn` needs to know a size, because the dim meets
    that of a weight or Python branches on it, or a product has few columns and terms, the build
    serves that size of that dim.

    Updates that `fn` makes take effect at each call, and so do its `gf.host_call`s. Variables that
    it makes are made once, and are the same in all builds. With tensors as arguments, or inside of
    `with graph:`, a call is that of `fn` itself.

    Args:
        fn: The function. Its other effects, such as prints, happen while it is built: once or more
            often.
        session: The session that runs it. `fn` may then use the variables and layers of this
            session's graph, and several functions may share them. By default it is that of the
            layers that `fn` uses, if these were made outside of graphs, or else one of its own,
            which is closed at exit.
        executor: The executor, as for `Session`; not with `session`.
        seed: The seed of random numbers and initial values; not with `session`. By default it comes
            from `gf.set_seed`, and differs between functions.

    Raises:
        ArgumentError: `fn` can't be called, or `executor` or `seed` is given with a session. When
            called: an argument is neither array nor hashable, a result no tensor, a variable lost.

    >>> import graphfw as gf
    >>> import numpy as np
    >>> @gf.function
    ... def distance(x, y):
    ...     return gf.sqrt(gf.sum((x - y) ** 2))
    >>> float(distance(np.array([0.0, 3.0]), np.array([4.0, 0.0])))
    5.0
    """
    if session is not None and (executor is not None or seed is not None):
        raise ArgumentError(
            "function: the session has an executor and a seed of its own",
            fix="leave executor= and seed= out, or session=",
        )
    if session is not None and not isinstance(session, Session):
        raise ArgumentError(
            f"function: session is {a_type(session)}, no Session", fix="pass gf.Session(graph)"
        )

    def made(fn: Callable[..., Any]) -> Function:
        chosen = ambient.scoped_executor() if executor is None else executor
        return Function(fn, session, chosen, seed, ambient.session_options.get())

    return made if fn is None else made(fn)


class Function(TypedFunction[P, ResultT_co], Answering):
    """A Python function that runs on arrays: the result of `gf.function`.

    Attributes:
        fn: The Python function.
    """

    _answers_as = "Function"

    def __init__(
        self,
        fn: Callable[..., Any],
        session: Session | None,
        executor: str | Executor | None,
        seed: int | None,
        options: Mapping[str, Any],
    ) -> None:
        if not callable(fn):
            raise ArgumentError(
                f"function: {fn!r} is no function",
                fix="write @gf.function above it, or @gf.function(session=…)",
            )
        functools.update_wrapper(self, fn)
        self.fn = fn
        self._name = getattr(fn, "__qualname__", repr(fn)).rpartition("<locals>.")[2]
        self._signature = inspect.signature(fn)
        self._session_argument = session
        self._executor = executor
        self._seed = seed
        self._options = options
        self._graph: ModelGraph | None = None
        self._closing: Callable[[], object] | None = None
        self._captured: Captured | None = None
        self._parameter_index = {name: i for i, name in enumerate(self._signature.parameters)}
        self._ready: dict[Hashable, list[Ready]] = {}
        self._known_calls: dict[Hashable, tuple[Ready, tuple[int, ...]]] = {}
        self._fixed: dict[Hashable, list[tuple[int, ...]]] = {}
        self._made = MadeVariables()
        self._copied: list[weakref.ref[Tensor]] = []
        self._identity = object()  # for builds, which should not keep the function alive
        self._warned: set[str] = set()
        self._kinds: set[Hashable] = set()

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])  # as a Python function: by its name

    @property
    def session(self) -> Session:
        """The session that runs the function: for its variables, `save` and `restore`."""
        if self._session_argument is not None:
            return self._session_argument
        session: Session = self._own_graph().session
        return session

    def _main(self) -> Graph:
        """Return the graph of the session."""
        session = self._session_argument
        return self._own_graph() if session is None else session.graph

    def _own_graph(self) -> ModelGraph:
        with _building:
            if self._graph is None:
                own = ModelGraph(self._name, self._executor, self._seed, self._options)
                own.functions.add(self)
                self._closing = weakref.finalize(
                    self, close_or_release, weakref.ref(own), self._made.references, self._copied
                )  # also at exit
                self._graph = own
            return self._graph.current

    def _begin_anew(self) -> None:
        """Forget the builds with layers or functions whose names stand for others now."""
        captured, self._captured = self._captured, None
        self._forget_builds()
        if captured is not None and captured.has_other_state() and self._session_argument is None:
            self._made, self._copied = MadeVariables(), []
            if self._closing is not None:
                self._closing()
            self._graph = None

    def _forget_builds(self) -> None:
        """Let the next call build again, with the variables that the function has made."""
        self._ready = {}
        self._fixed = {}
        self._known_calls = {}
        self._made.renamed()

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays; with tensors, or while a graph is open, call the Python function."""
        key, arrays = call_key(args, kwargs)
        try:
            known = self._known_calls.get(key)
        except TypeError:  # what can't be hashed is refused below
            known = None
        captured = self._captured
        if known is not None and known[0].modes.hold() and (captured is None or captured.hold()):
            ready, sizes = known
            try:
                return ready.plan._packed(ready.plan._computed(arrays, sizes))
            except SessionError:
                if not ready.is_joined():
                    raise
        call = self._call(args, kwargs)
        if call is None:
            return self.fn(*args, **kwargs)
        while True:
            ready = self._planned(call)
            fed, sizes = ready.plan._fed(call.arrays)
            try:
                result = ready.plan._packed(ready.plan._computed(fed, sizes))
                break
            except SessionError:
                if not ready.is_joined():
                    raise
                self._forget_builds()
        if key is not None and self._is_seen_whole(arrays, fed, kwargs):
            self._known_calls[key] = ready, sizes
        return result

    def _captured_hold(self) -> bool:
        return self._captured is None or self._captured.hold()

    if not TYPE_CHECKING:  # which takes these two to be as `TypedFunction` declares them
        __call__ = _run

        def plan(self, *args: Any, **kwargs: Any) -> Plan:
            """Return the `Plan` that a call with these arguments runs: to explain, measure, …

            It takes the arrays by position, and returns what the function returns, with None for an
            update. Arguments that are no arrays are those of this call.

            Raises:
                ArgumentError: There are tensors among the arguments, or a graph is open.

            >>> import graphfw as gf
            >>> import numpy as np
            >>> double = gf.function(lambda x: x + x)
            >>> double.plan(np.ones((2, 3))).cost((2, 3)).flops
            6
            >>> sums = gf.function(lambda x: {"rows": gf.sum(x, axis=1), "all": gf.sum(x)})
            >>> sums.plan(np.ones((2, 3)))(np.ones((2, 3)))["rows"]
            array([3., 3.])
            """
            return self._built_for("plan", args, kwargs).plan

    def _is_seen_whole(
        self, arrays: Sequence[Any], fed: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bool:
        """Return whether a call may run on the arrays of `call_key` as they are."""
        indices = [self._parameter_index.get(name, len(self._parameter_index)) for name in kwargs]
        return (
            len(self._known_calls) < _KNOWN_CALLS
            and len(arrays) == len(fed)  # there may be arrays among the defaults
            and indices == sorted(indices)
            and all(type(a) is np.ndarray for a in fed)
            and [a.dtype for a in arrays] == [a.dtype for a in fed]
        )

    def result_types(self, *args: Any, **kwargs: Any) -> Any:
        """Return the types of the results of a call with these arguments, and run nothing.

        They are in the structure of the result, with None for an update. Dims are symbolic where
        one build serves all sizes.

        Raises:
            ArgumentError: There are tensors among the arguments, or a graph is open.

        >>> import graphfw as gf
        >>> import numpy as np
        >>> sums = gf.function(lambda x: {"rows": gf.sum(x, axis=1), "all": gf.sum(x)})
        >>> sums.result_types(np.ones((2, 3)))
        {'rows': float64[_x_0], 'all': float64[]}
        """
        plan = self._built_for("result_types", args, kwargs).plan
        return plan._packed([tensor.type for tensor in plan.program.source.outputs])

    def _built_for(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Ready:
        call = self._call(args, kwargs)
        if call is None:
            raise ArgumentError(
                f"{self._name}.{method}: with tensors, and inside of a graph, there is nothing to "
                "run",
                fix="call it with arrays, outside of `with graph:`",
            )
        return self._planned(call)

    def __repr__(self) -> str:
        builds = sum(map(len, self._ready.values()))
        return f"<gf.function {self._name}: {counted(builds, 'build')}>"

    # Arguments.

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> FunctionCall | None:
        """Return the sorted arguments; None if the Python function is to be called."""
        if not current_graph().is_ambient:
            return None
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            fix = unbound_fix(self._signature, args)
            raise CallError(f"{self._name}: {error}", fix=fix) from None
        bound.apply_defaults()
        arguments = bound.arguments
        leaves: list[tuple[str, Any]] = []
        structure = tuple([flatten(value, name, leaves) for name, value in arguments.items()])
        if any(isinstance(value, Tensor) for _, value in leaves):
            return None
        kinds: list[Hashable] = [structure]
        names: list[str] = []
        arrays: list[Any] = []
        sorted_out: list[tuple[Any, bool]] = []
        for name, value in leaves:
            array = self._array(name, value)
            sorted_out.append((value, array is not None))
            if array is None:
                kinds.append(static_key(f"{self._name}: the argument {name}", value))
            else:
                kinds.append(as_dtype(array.dtype).name)
                names.append(name)
                arrays.append(array)
        numbers: dict[int, int] = {}
        dims = tuple(
            [
                tuple([None if n == 1 else numbers.setdefault(n, len(numbers)) for n in a.shape])
                for a in arrays
            ]
        )
        # What decides besides the arguments how the graph is built.
        context = (
            ambient.get_default_dtype().name,
            ambient.is_for_training(),
            ambient.grad_enabled.get(),
            modes_key(),
        )
        key = (tuple(kinds), dims, context)
        return FunctionCall(key, key[0], bound, sorted_out, names, arrays, dims, tuple(numbers))

    def _array(self, name: str, value: Any) -> Any:
        """Return an argument as an array; None where it is none."""
        if hasattr(value, "__cuda_array_interface__"):  # for the executor to take as it is
            return value
        is_array = hasattr(value, "__array__") or hasattr(value, "__dlpack__")
        if isinstance(value, type) or not is_array:
            return None
        try:
            return feeding.array_of(value)
        except GraphfwError as error:
            error.summary = f"{self._name}: the argument {name}: {error.summary}"
            raise

    # Building.

    def _planned(self, call: FunctionCall) -> Ready:
        """Return the plan of a call; it is built if there is none."""
        ready = self._known(call) if self._captured_hold() else None
        if ready is None:
            with _building:
                if not self._captured_hold():
                    self._begin_anew()
                ready = self._known(call) or self._built(call)
        return ready

    def _known(self, call: FunctionCall) -> Ready | None:
        for fixed in self._fixed.get(call.key, ()):
            for ready in self._ready.get((call.key, fixed, call.sizes_of(fixed)), ()):
                if ready.modes.hold():
                    return ready
        return None

    def _built(self, call: FunctionCall) -> Ready:
        with keeping_variables(self.fn, self._name, call.bound.arguments):
            build = self._traced(call)
        warn_of_large_constants(build.graph, self._warned)
        ready = self._compiled(build)
        if self._captured is None:
            self._captured = Captured.of(self.fn)
        key = call.key, build.fixed, call.sizes_of(build.fixed)
        self._ready.setdefault(key, []).append(ready)
        known = self._fixed.setdefault(call.key, [])
        if build.fixed not in known:
            known.append(build.fixed)
        self._warn_of_many_builds(call)
        return ready

    def _traced(self, call: FunctionCall) -> TracedFunction:
        """Build the graph with as many symbolic dims as the function bears.

        Mostly no size must be known. If some must, attempts with and without each find which.
        """
        every = tuple(range(len(call.sizes)))
        try:
            build = self._attempt(call, ())
            fast = call.sizes_to_know(build) if len(self._ready) < _MANY_BUILDS else ()
            return self._attempt(call, fast) if fast else build
        except Exception as error:
            if not every or is_of_handler(error):
                raise
        # If it fails with known sizes as well, that is the error to show: it has the user's sizes.
        build = self._attempt(call, every)
        for number in every:
            fewer = tuple([n for n in build.fixed if n != number])
            if fewer:  # without any it has failed already
                try:
                    build = self._attempt(call, fewer)
                except Exception as error:  # this size must be known
                    if is_of_handler(error):
                        raise
        return build

    def _attempt(self, call: FunctionCall, fixed: tuple[int, ...]) -> TracedFunction:
        """Call the Python function with placeholders, of known sizes at the indices `fixed`."""
        graph = FunctionGraph(self._identity, self._name, self._main(), self._made)
        with graph, ambient.override(ambient.current_scope, ""):
            dims = call.dims_in(graph, fixed)
            feeds = [
                emit(
                    Placeholder(
                        tuple([1 if d is None else dims[d] for d in own]), as_dtype(array.dtype)
                    ),
                    name=name,
                )
                for name, array, own in zip(call.names, call.arrays, call.dims, strict=True)
            ]
            try:
                returned = call.applied(self.fn, feeds)
            except (TypeError, AttributeError) as error:
                for name in call.lists_of_numbers():
                    error.add_note(f'"{name}" is a list, a structure: pass np.asarray({name})')
                raise
            results = flat_results(returned, self._name)
        return TracedFunction(graph, fixed, feeds, returned, results)

    def _compiled(self, build: TracedFunction) -> Ready:
        """Copy what has been built to the session's graph, and compile it there."""
        session = self.session
        warn_of_frozen_statistics(build.graph, build.graph.own_updates())
        if isinstance(session.graph, ModelGraph):
            session.graph.drop_released()
        with forks.uncut():
            copies = Copies(build.graph, session.graph, self._made)
            self._copied += copies.references()
        fetches: list[Any] = [copies.of(leaf) for leaf in build.results if leaf is not None]
        plan = session.compile(
            [*fetches, *copies.happening()], [copies.tensor(t) for t in build.feeds]
        )
        plan.feed_names = tuple([t.name for t in build.feeds])  # builds after the first lose them
        plan._return_in(build.slots, packer(build.returned))
        return Ready(plan, build.graph.modes)

    def _warn_of_many_builds(self, call: FunctionCall) -> None:
        """Say once that values of arguments lead to ever new builds."""
        self._kinds.add(call.kinds)
        if len(self._kinds) == _MANY_BUILDS:
            warnings.warn(
                f"{self._name} has been built for {_MANY_BUILDS} different values of arguments "
                "that are no arrays: pass numbers that vary as arrays, such as np.float32(x)",
                UserWarning,
                stacklevel=5,
            )
