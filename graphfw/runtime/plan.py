"""`Plan`: a compiled run, called by position; it can say everything about itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from operator import index
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, TypeAlias

import numpy as np

from graphfw.errors import (
    ArgumentError,
    CallError,
    ExecutionError,
    FeedError,
    counted,
    did_you_mean,
)
from graphfw.hints.calls import explained
from graphfw.hints.names import Answering
from graphfw.ir import time_limits
from graphfw.ir.dim import DimLike, static, substitute
from graphfw.ir.dim_text import evaluate
from graphfw.ir.literal import Array
from graphfw.ir.shape import int_or_none
from graphfw.ir.tensor import Tensor
from graphfw.passes.manager import table
from graphfw.runtime import feeding
from graphfw.runtime.executor import Executable, Executor
from graphfw.runtime.fetch_types import ResultT_co
from graphfw.runtime.limits import byte_count, is_int
from graphfw.runtime.locations import node_table
from graphfw.runtime.memory import MemoryReport
from graphfw.runtime.profile import Profile
from graphfw.runtime.program import Program
from graphfw.runtime.running import Runs
from graphfw.utils.reports import Report
from graphfw.utils.uncopied import Uncopied

if TYPE_CHECKING:
    from graphfw.runtime.casts import Casts

ShapeOrSizes: TypeAlias = "Sequence[int] | Array"
"""A shape, or an array of that shape."""

_KNOWN_SHAPES = 1024


@contextmanager
def _without_arithmetic() -> Iterator[None]:
    """Make errors of sizes that no native code takes graphfw's."""
    try:
        yield
    except ZeroDivisionError as error:
        raise ExecutionError("a size divides by 0 for these shapes", fix="pass others") from error
    except OverflowError as error:
        raise ExecutionError(
            "numbers of more than 64 bits, such as a stride, have no native code",
            fix="runs compute them node by node, as gf.Session(g, debug=True) does",
        ) from error


class PlanCost(NamedTuple):
    """The cost of one run, as declared by the ops: numbers for given sizes, else symbolic."""

    flops: DimLike
    read_bytes: DimLike
    write_bytes: DimLike
    parameters: int
    parameter_bytes: int


@explained
class Plan(Answering, Uncopied, Generic[ResultT_co]):
    """A compiled run, from `session.compile(fetches, feeds=[…])` or from `function.plan(…)`.

    Call it with the feeds' values by position; it returns the fetches, or the function's result, in
    their structure. It is compiled once for all sizes of the symbolic dims, and may be called from
    many threads at once.

    Attributes:
        program: What the executor runs.
        feed_names: The names of the feeds: those of their placeholders, or of the arguments of a
            `gf.function`. Feeds without a name have "".
    """

    _answers_as = "Plan"
    instead = "pickle the graph, and compile the plan with a Session there: compiled code is cached"

    def __init__(
        self,
        runs: Runs,
        executor: Executor,
        timeout: float | None,
        program: Program,
        run: Executable,
        slots: Sequence[int | None],
        pack: Callable[[Iterator[Any]], Any],
    ) -> None:
        self.program = program
        self.feed_names = tuple([t.name for t in program.feeds])
        self._runs = runs
        self._executor = executor
        self._unsettled = runs.state.unsettled
        self._timeout = timeout
        self._run = run
        self._return_in(slots, pack)
        self._sizes: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}
        # An array of the feed's dtype is taken as it is.
        dtypes = [t.dtype.dtype if self._executor.is_host else None for t in program.feeds]
        self._taken = [*enumerate(dtypes)]

    def _return_in(self, slots: Sequence[int | None], pack: Callable[[Iterator[Any]], Any]) -> None:
        """Set the structure of results.

        Args:
            slots: For each leaf its index among the values that are computed, which come in order;
                None for one without a value.
            pack: Puts the leaves into the structure.
        """
        self._slots = tuple(slots)
        self._pack = pack
        self._are_in_order = None not in self._slots
        self._returns_first = pack is next and self._slots == (0,)

    def __call__(
        self, *arrays: Any, host: bool = False, timeout: float | None = None, **unknown: Never
    ) -> ResultT_co:
        """Run with values for the feeds, in their order.

        Args:
            arrays: The values.
            host: As for `Session.run`.
            timeout: As for `Session.run`.
            unknown: Nothing: other names are errors.

        Raises:
            CallError: A value is given by a name.
            FeedError: A value does not fit its placeholder, or there are too few or too many.
            ExecutionError: An operation failed; the variables are as they were before.
            RunTimeoutError: The run takes longer than the timeout.
            ArgumentError: The timeout is no positive number.
            ExecutorError: The executor can't end runs, and there is a timeout.
            SessionError: The session is closed.
        """
        if unknown:
            names = ", ".join([f"{name}=" for name in unknown])
            raise CallError(
                f"a plan takes values by position, and is given {names}",
                fix=f"give, in this order: {self._order()}",
            )
        try:
            fed, sizes = self._fed(arrays)
        except BaseException as error:
            self._runs.failed(self.program, error)
            raise
        if timeout is None and self._timeout is None:
            found = self._runs.execute(self.program, self._run, fed, sizes)
        else:
            found = self._computed(fed, sizes, self._executor.checked_timeout(timeout))
        if host:
            found = self._executor.to_hosts(found)
            self._unsettled.settle()
        result: ResultT_co = self._packed(found)
        return result

    def checked(self, *arrays: Any) -> list[Any]:
        """Return values for the feeds as a call takes them: converted, and their shapes checked.

        Args:
            arrays: The values, in the order of the feeds.

        Raises:
            FeedError: A value does not fit its placeholder, or there are too few or too many.

        >>> import graphfw as gf
        >>> with gf.Graph() as g:
        ...     x = gf.placeholder((2,), name="x")
        ...     y = x + 1
        >>> with gf.Session(g) as session:
        ...     session.compile(y, feeds=[x]).checked([1, 2])
        [array([1., 2.], dtype=float32)]
        """
        return self._fed(arrays)[0]

    def _computed(
        self, fed: Sequence[Any], sizes: tuple[int, ...], timeout: float | None = None
    ) -> list[Any]:
        """Run on what `_fed` returns, and return the values of the fetched tensors, in order."""
        execute = self._runs.execute
        limit = self._timeout if timeout is None else timeout
        if limit is None:
            return execute(self.program, self._run, fed, sizes)
        return time_limits.limited(limit, execute, self.program, self._run, fed, sizes)

    def _fed(self, arrays: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
        """Check and convert values for the feeds, and find what the symbols stand for."""
        if len(arrays) != len(self._taken):
            raise FeedError(
                f"this plan takes {counted(len(self._taken), 'value')} and got {len(arrays)}",
                fix=f"give, in this order: {self._order()}",
            )
        fed = list(arrays)
        found = []
        for number, dtype in self._taken:
            array = fed[number]
            if type(array) is not np.ndarray or array.dtype is not dtype:
                if isinstance(array, Mapping) and self._are_feeds(array):
                    raise FeedError(
                        "a plan takes values by position, and is given a dict",
                        fix=f"give, in this order: {self._order()}",
                    )
                array = fed[number] = self._executor.feed(self.program.feeds[number], array)
            found.append(array.shape)
        shapes = tuple(found)
        sizes = self._sizes.get(shapes)
        if sizes is None:
            sizes = feeding.bind_sizes(self.program, shapes)
            if len(self._sizes) < _KNOWN_SHAPES:
                self._sizes[shapes] = sizes
        return fed, sizes

    def _are_feeds(self, feeds: Mapping[Any, Any]) -> bool:
        """Return whether a dict has placeholders, or their names, for keys, as `run` takes them."""
        return any(isinstance(key, Tensor) or key in self.feed_names for key in feeds)

    def _order(self) -> str:
        named = zip(self.feed_names, self.program.feeds, strict=True)
        return ", ".join([name or str(tensor.type) for name, tensor in named]) or "nothing"

    def _packed(self, fetched: Sequence[Any]) -> Any:
        """Return the result, from the values of the fetched tensors."""
        if self._returns_first:
            return fetched[0]
        if self._are_in_order:
            return self._pack(iter(fetched))
        return self._pack(iter([None if s is None else fetched[s] for s in self._slots]))

    def cost(self, *shapes: ShapeOrSizes) -> PlanCost:
        """Return the cost of one run by the ops' own declarations.

        Args:
            shapes: The feeds' shapes, or the arrays, by position; without them it is symbolic.

        >>> import graphfw as gf
        >>> with gf.Graph() as g:
        ...     x = gf.placeholder(("batch", 64), name="x")
        ...     y = x @ gf.Variable(gf.nn.init.zeros, shape=(64, 10), name="w")
        >>> with gf.Session(g, executor="meta") as session:
        ...     plan = session.compile(y, feeds=[x])
        >>> plan.cost().flops, plan.cost((2, 64)).flops
        (1280*batch, 2560)
        """
        totals: list[DimLike] = [0, 0, 0]
        for node in self.program.graph.nodes:
            own = node.op.cost(node.types, *[t.type for t in node.inputs])
            totals = [total + cost for total, cost in zip(totals, own, strict=True)]
        if shapes:
            env = dict(zip(self.program.symbols, self._sizes_of(shapes), strict=True))
            value = substitute if self.program.is_staged else evaluate
            totals = [value(total, env) for total in totals]
        parameters = [v.type for v in self.program.variables if v.trainable]
        return PlanCost(
            totals[0],
            totals[1],
            totals[2],
            sum(static(kind.size) for kind in parameters),
            sum(static(kind.nbytes) for kind in parameters),
        )

    def explain(self, *shapes: ShapeOrSizes) -> str:
        """Return a text: what each pass did, then each step of the compiled run.

        A step is shown with the ops inside, their source lines, its flops and bytes, the least time
        that this machine needs for it, and why it holds no more ops.

        Args:
            shapes: The feeds' shapes, or the arrays, by position; without them costs are symbolic.
        """
        sizes = self._sizes_of(shapes) if shapes or not self.program.symbols else None
        with _without_arithmetic():
            text = self._run.explain(sizes) or node_table(self.program.graph)
        # Of stages, each tells of its passes itself.
        passes = [] if self.program.is_staged else [table(self.program.reports)]
        return Report("\n\n".join([*passes, *self._precision(), text]))

    def casts(self) -> Casts:
        """Return the conversions that mixed precision has put in, each with its reason.

        Print it for a table. Passes that come later may merge, move or drop some.

        >>> import graphfw as gf
        >>> with gf.Graph() as g:
        ...     x = gf.placeholder((2, 3), name="x")
        ...     y = x @ gf.Variable([[1.0], [2.0], [3.0]], name="w")
        >>> with gf.Session(g, precision="mixed-bf16") as session:
        ...     plan = session.compile(y, feeds=[x])
        >>> [(cast.tensor.name, cast.to.name, cast.reason) for cast in plan.casts()][0]
        ('x', 'bfloat16', 'matmul computes in bfloat16')
        """
        # Not at the top: few ask for it, and it needs the pass.
        found: Casts = import_module("graphfw.runtime.casts").Casts(self.program.casts)
        return found

    def _precision(self) -> list[str]:
        """Return a report's lines on mixed precision: none where there is none."""
        if not self.program.mixing:
            return []
        *_, mixed = self.program.mixing
        low = {dtype: count for dtype, count in mixed.hits.items() if dtype != "casts"}
        nodes = ", ".join(
            [f"{counted(count, 'operation')} in {dtype}" for dtype, count in low.items()]
        )
        casts = f"{counted(len(self.program.casts), 'cast')}: plan.casts() lists them"
        return [f"precision {mixed.name}: {nodes or 'all operations as described'}, {casts}"]

    def source(self) -> str:
        """Return the generated kernels, in their readable form, each with the steps that use it.

        Raises:
            ExecutorError: The executor generates no code.
        """
        return Report(self._run.source())

    def memory(self, *shapes: ShapeOrSizes) -> MemoryReport:
        """Return the memory that a run takes: print it for a table, plot its `timeline()`.

        Args:
            shapes: The feeds' shapes, or the arrays, by position; not needed where all sizes are
                known.

        Raises:
            ExecutorError: The executor does not plan its memory.
            ExecutionError: A run can't take these shapes.
            FeedError: The shapes don't fit the placeholders.
        """
        sizes = self._sizes_of(shapes)
        with _without_arithmetic():
            return self._run.memory(sizes)

    def max_dim(self, name: str, memory_limit: int | str, /, **sizes: int) -> int:
        """Return the largest size of a symbolic dim that runs take and that keeps within a limit.

        Sizes that a run would refuse are passed over: those that don't divide where a reshape needs
        it, or of which `assert_shape` says otherwise. It counts what the session's own
        `memory_limit` makes a run compute again; for that, give the same limit here.

        Args:
            name: The dim, such as "batch".
            memory_limit: As for `Session`: "2GiB", or bytes.
            sizes: What the other symbolic dims stand for.

        Raises:
            ArgumentError: There is no such dim, others have no size or one that is none, not even
                size 1 fits, or of those that fit a run takes none.
            ExecutorError: The executor does not plan its memory.
        """
        limit = byte_count(memory_limit)
        if limit is None:
            raise ArgumentError("max_dim: it needs a limit", fix='write "2GiB", or bytes')
        symbols = self.program.symbols
        self._check_dims(name, sizes)

        def memory(sizes: Mapping[str, int]) -> int:
            return self._run.memory(tuple([sizes[symbol] for symbol in symbols])).peak

        # Not at the top: few ask for it.
        largest = import_module("graphfw.runtime.max_dim")
        found: int = largest.largest_dim(self.program, name, sizes, memory, limit)
        return found

    def _check_dims(self, name: str, sizes: Mapping[str, int]) -> None:
        """See that a dim and sizes are those of this plan, and that no other dim lacks one."""
        symbols = self.program.symbols
        known = f"its symbolic dims are: {', '.join(symbols) or 'none'}"
        for dim in (name, *sizes):
            if dim not in symbols:
                near = did_you_mean(str(dim), symbols)  # of a dim itself, its name
                message = f"max_dim: this plan has no dim {dim!r}"
                raise ArgumentError(message, fix=f"{near} {known}".lstrip())
        missing = [s for s in symbols if s != name and s not in sizes]
        if missing:
            raise ArgumentError(f"max_dim: the sizes of {', '.join(missing)} are needed", fix=known)
        for other, size in sizes.items():
            if other == name:
                raise ArgumentError(f"max_dim: {name} is what is looked for", fix="give it no size")
            if not is_int(size) or size < 0:
                raise ArgumentError(f"max_dim: {other}={size!r} is no size", fix="pass an int")

    def digest(self) -> str:
        """Return a word of 32 signs for what the plan computes.

        It is the same in each process and on each machine, and another one where an operation, a
        constant, a shape, a dtype or a variable's name is another. Versions of graphfw may have
        different ones. The contents of variables don't count.

        >>> import graphfw as gf
        >>> with gf.Graph() as g:
        ...     x = gf.placeholder((2,), name="x")
        ...     same, others = [x * 2, x * 2], x * 3
        >>> with gf.Session(g) as session:
        ...     found = [session.compile(y, feeds=[x]).digest() for y in (*same, others)]
        >>> len(found[0]), found[0] == found[1], found[0] == found[2]
        (32, True, False)
        """
        return self.program.digest

    def profile(self, *arrays: Any) -> Profile:
        """Run once with values for the feeds and return where the time went, changing nothing.

        Print the result for a table by step, ops and source line; `profile(…).trace("run.json")`
        writes a trace for Perfetto or Chrome.

        Raises:
            ExecutorError: The executor does not time its steps.
        """
        fed, sizes = self._fed(arrays)
        with _without_arithmetic():
            return self._runs.profile(self.program, self._run, fed, sizes)

    def _sizes_of(self, shapes: Sequence[ShapeOrSizes]) -> tuple[int, ...]:
        """Return the numbers of the symbols, given the feeds' shapes, or arrays of these shapes."""
        if not shapes and not self.program.symbols:
            return ()
        found = []
        for shape in shapes:
            own = getattr(shape, "shape", shape)
            if not isinstance(own, Sequence) or None in map(int_or_none, own):
                raise FeedError(
                    f"{shape!r} is neither a shape nor an array",
                    fix="give one shape a feed: (32, 4)",
                )
            found.append(tuple([index(n) for n in own]))
        return feeding.bind_sizes(self.program, found)

    def __repr__(self) -> str:
        program = self.program
        values = len(self._slots) - self._slots.count(None)
        return (
            f"<Plan of {counted(len(program.graph.nodes), 'node')}: {self._order()} -> "
            f"{counted(values, 'value')}, {counted(len(program.updated), 'update')}>"
        )
