"""`Program`: a graph made ready for an executor, with its inputs and outputs in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from graphfw.errors import FeedError, GraphError
from graphfw.ir import concrete
from graphfw.ir.body import Body
from graphfw.ir.dim import DimLike, is_symbol, substitute, symbol, symbols_of
from graphfw.ir.graph import Graph
from graphfw.ir.op import ALIAS, COLLECTIVE, MEASURES, RANDOM, SOURCE
from graphfw.ir.printer import graph_text
from graphfw.ir.rebuild import derive
from graphfw.ir.sources import Placeholder, VariableOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.updates import distinct_pairs
from graphfw.ir.variable import Update, Variable
from graphfw.ops.control.shape_checks import ShapeCheck, shape_checks
from graphfw.passes.base import Pass
from graphfw.passes.manager import Level, PassReport, PassResult, chosen_level, run_pipeline
from graphfw.runtime.effects import effects_in
from graphfw.runtime.feed_layouts import FeedLayout, RunTimeStride, strides_at
from graphfw.utils.collecting import without_collection
from graphfw.utils.hashing import blake2b
from graphfw.utils.records import record

if TYPE_CHECKING:
    from graphfw.passes.mixed import Cast
    from graphfw.passes.mixed_policy import Policy

Passes: TypeAlias = Callable[[], Sequence[Pass]]


class SizeSource(NamedTuple):
    """The source of a symbol's size: a fed dim that is `scale * symbol + offset`."""

    symbol: str
    feed: int
    axis: int
    scale: int
    offset: int


@record
class Program:
    """The program that an executor runs.

    Passes run when somebody asks for what they make: an executor that has the code of this program
    already need not.

    Attributes:
        source: What is described, in the session's precision, before the passes; its outputs are
            the fetches, the tokens of effects that happen along with them, then the updates'
            values.
        feeds: The placeholders that are fed, in the order of the arguments.
        variables: The variables that are read or updated, in the order of the arguments after the
            feeds.
        fetch_count: How many of the outputs are fetched, tokens included.
        updated: The variables that the remaining outputs are written to.
        symbols: The names of the symbolic dims, in the order of `sizes`; not those that runs
            measure.
        size_sources: Where the sizes come from, for those that `shape_checks` do not bring.
        shape_checks: The checks of sizes that come before all else.
        is_random: Whether it draws random numbers.
        level: How much of the passes' work is checked.
        passes: Returns the passes that the executor wants.
        is_iteration: Whether it is what a loop computes in each iteration.
        casts: What mixed precision converts.
        rewriting: The reports of the session's own passes.
        mixing: The reports of mixed precision's.
        is_staged: Whether some sizes are found out on the way: see `stages.py`.
        carried: Pairs of a feed and an output that a loop hands on: the numbers of both. The output
            may be written over the feed, when nothing reads that any more.
        layouts: For each feed its layout, or None where it is C-contiguous; empty where all are.
            What they measure are the last of `symbols`.
    """

    source: Graph
    feeds: tuple[Tensor, ...]
    variables: tuple[Variable, ...]
    fetch_count: int
    updated: tuple[Variable, ...]
    symbols: tuple[str, ...]
    size_sources: tuple[SizeSource, ...]
    shape_checks: tuple[ShapeCheck, ...]
    is_random: bool
    level: Level
    passes: Passes
    is_iteration: bool = False
    casts: tuple[Cast, ...] = ()
    rewriting: tuple[PassReport, ...] = ()
    mixing: tuple[PassReport, ...] = ()
    is_staged: bool = False
    carried: tuple[tuple[int, int], ...] = ()
    layouts: tuple[FeedLayout | None, ...] = ()

    @property
    def graph(self) -> Graph:
        """The optimised graph, with the outputs of `source`.

        Raises:
            PassError: A pass failed.
        """
        return self._result.graph

    @property
    def reports(self) -> tuple[PassReport, ...]:
        """The effect of each pass."""
        return (*self.rewriting, *self.mixing, *self._result.reports)

    @cached_property
    def digest(self) -> str:
        """A word for what it computes: see `Plan.digest`."""
        lines = [graph_text(self.source, locations=False), *[v.name for v in self.updated]]
        text = "\n".join(lines).encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=16).hexdigest()

    @cached_property
    def has_collectives(self) -> bool:
        """Whether processes of a mesh have to run it together."""
        return any(COLLECTIVE in node.op.traits for node in self.source.nodes)

    @cached_property
    def rewritten(self) -> frozenset[Variable]:
        """The variables that a run updates."""
        return frozenset(self.updated)

    @cached_property
    def kept(self) -> frozenset[Variable]:
        """The variables whose contents a run leaves as they are."""
        return frozenset(self.variables) - self.rewritten

    @cached_property
    def copied(self) -> tuple[bool, ...]:
        """Whether each output may share memory with an input or another output.

        It must be copied then before it is handed out.
        """
        return _copied(self.graph.outputs)

    @cached_property
    def strides(self) -> dict[Tensor, tuple[DimLike, ...]]:
        """The strides, in elements, of the feeds that are not C-contiguous."""
        pairs = zip(self.feeds, self.layouts, strict=False)
        fed = [(feed, layout) for feed, layout in pairs if layout is not None]
        names = [_measured_in(layout) for _, layout in fed]
        left = iter(self.symbols[len(self.symbols) - sum(names) :])
        return {
            feed: strides_at(layout, feed.shape, [next(left) for _ in range(count)])
            for (feed, layout), count in zip(fed, names, strict=True)
        }

    @property
    def _result(self) -> PassResult:
        found: PassResult | None = self.__dict__.get("_passed")
        if found is None:
            # Only now: who has the code already needs no passes.
            passes = self.passes()
            with without_collection():
                # In a context of its own: an interrupt must not leave the passes' graphs open here.
                made = copy_context().run(run_pipeline, self.source, passes, verify=self.level)
            # Where two threads have come here, both get the first one's.
            found = self.__dict__.setdefault("_passed", made)
        return found


def lower(
    fetches: Sequence[Tensor],
    updates: Sequence[Update],
    feeds: Sequence[Tensor],
    graph: Graph,
    verify: Level | None,
    passes: Passes,
    precision: Policy | None = None,
    first: Sequence[Pass] = (),
) -> Program:
    """Take what the fetches and updates need of a graph, and put its inputs in order.

    Args:
        fetches: The tensors that are fetched.
        updates: The updates that are made.
        feeds: The placeholders that are fed.
        graph: The graph.
        verify: How much of the passes' work is checked.
        passes: Returns the passes that the executor wants.
        precision: What is computed in 16 bits.
        first: Passes that come before all others: the session's own.

    Raises:
        GraphError: Two updates give one variable different values.
        FeedError: A fetch needs a placeholder that is not fed, or a dim whose size nothing tells.
        ArgumentError: The precision's overrides speak of something that there is not.
        PassError: One of the passes `first` failed.
    """
    with without_collection():
        program = _lowered(fetches, updates, feeds, graph, verify, passes)
        if first:
            program = _rewritten(program, first)
        if precision is None:
            return program
        precision.check(graph)
        return _mixed(program, precision)


def _rewritten(program: Program, first: Sequence[Pass]) -> Program:
    """Return a program whose source is what the session's own passes make of it.

    The graph is checked after each of them: they are somebody's own.
    """
    level: Level = "values" if program.level in ("values", "first-run") else "each"
    found = run_pipeline(program.source, first, verify=level, all_passes=True)
    return replace(program, source=found.graph, rewriting=found.reports)


def _mixed(program: Program, policy: Policy) -> Program:
    """Return a program in mixed precision.

    What the passes make later is compared with this, as they have to keep its numbers.
    """
    # Not at the top: few ask for it.
    mixed = import_module("graphfw.passes.mixed")
    first: tuple[Pass, ...] = import_module("graphfw.passes.pipelines").BEFORE_MIXED
    before = run_pipeline(program.source, first, verify=program.level, all_passes=True)
    casts: list[Cast] = []
    level: Level = "each" if program.level == "values" else program.level
    one = mixed.MixedPrecision(policy.name, policy, casts)
    found = run_pipeline(before.graph, [one], verify=level, all_passes=True)
    reports = (*before.reports, *found.reports)
    return replace(program, source=found.graph, casts=tuple(casts), mixing=reports)


def _lowered(
    fetches: Sequence[Tensor],
    updates: Sequence[Update],
    feeds: Sequence[Tensor],
    graph: Graph,
    verify: Level | None,
    passes: Passes,
) -> Program:
    pairs = distinct_pairs(updates)
    values = [value for _, value in pairs]
    along = effects_in(graph, [*fetches, *values], feeds)
    outputs = [*fetches, *along, *values]
    source = derive(graph, outputs)
    _check_fed(source, feeds)
    checks = shape_checks(source)
    symbols = _symbols(source, feeds, checks)
    sources = _size_sources(feeds)
    measuring = [node for node in source.nodes if MEASURES in node.op.traits]
    known = _known_sizes(sources, checks)
    everything = known
    if measuring:
        everything = _known_sizes({*known, *_measured(measuring)}, checks)
    finding = _finding(symbols - everything, graph)
    if finding:
        fetches = [*fetches, *finding]
        return _lowered(fetches, updates, feeds, graph, verify, passes)
    _check_sized(symbols, everything, graph)
    updated = tuple(variable for variable, _ in pairs)
    return Program(
        source=source,
        feeds=tuple(feeds),
        variables=_held(source, updated),
        fetch_count=len(fetches) + len(along),
        updated=updated,
        symbols=tuple(sorted(symbols & known if measuring else symbols)),
        size_sources=tuple(sources.values()),
        shape_checks=checks,
        is_random=_is_random(source),
        level=chosen_level(verify),
        passes=passes,
        is_staged=bool(measuring),
    )


def _held(graph: Graph, updated: Sequence[Variable]) -> tuple[Variable, ...]:
    """Return the variables that a graph reads, and those that are updated."""
    held = [node for node in graph.nodes if isinstance(node.op, VariableOp)]
    # An executor has tensors of its own in their place: see `Executor.with_kept_variables`.
    read = cast("list[Variable]", [t for node in held for t in node.outputs])
    return tuple(dict.fromkeys([*read, *updated]))


def _is_random(graph: Graph) -> bool:
    return any(RANDOM in node.op.traits for node in graph.nodes)


def stage_program(
    whole: Program, graph: Graph, feeds: Sequence[Tensor], updated: tuple[Variable, ...]
) -> Program:
    """Return a subgraph of a program as a program of its own.

    Args:
        whole: The program.
        graph: The subgraph; its last outputs are the new contents of variables.
        feeds: Its placeholders, those that stand for results of other subgraphs among them.
        updated: The variables that it updates.
    """
    checks = shape_checks(graph)
    return Program(
        source=graph,
        feeds=tuple(feeds),
        variables=_held(graph, updated),
        fetch_count=len(graph.outputs) - len(updated),
        updated=updated,
        symbols=tuple(sorted(_symbols(graph, feeds, checks))),
        size_sources=(),
        shape_checks=checks,
        is_random=_is_random(graph),
        level=whole.level,
        passes=whole.passes,
    )


def body_program(
    body: Body, lasting: int, *, is_iteration: bool, carried: Iterable[int] = ()
) -> Program:
    """Return the body of a loop or a branch, which passes have seen to, as a program.

    Args:
        body: The body.
        lasting: How many of its last parameters are the same in many runs, like variables.
        is_iteration: Whether a loop computes it in each iteration.
        carried: The numbers of the outputs that it hands on from iteration to iteration, in one
            array where that is possible. The parameter after the iteration's number and those of
            the outputs before is what it is given for it.
    """
    split = len(body.parameters) - lasting
    checks = shape_checks(body.graph)
    program = Program(
        source=body.graph,
        feeds=body.parameters[:split],
        variables=cast("tuple[Variable, ...]", body.parameters[split:]),  # nobody asks for names
        fetch_count=len(body.outputs),
        updated=(),
        symbols=tuple(sorted(_symbols(body.graph, body.parameters, checks))),
        size_sources=(),
        shape_checks=checks,
        is_random=body.is_random,
        level="off",
        passes=tuple,
        is_iteration=is_iteration,
        carried=tuple([(1 + number, number) for number in carried]),
    )
    return without_passes(program)


def without_passes(program: Program) -> Program:
    """Return a program whose graph is the source as it is."""
    program.__dict__["_passed"] = PassResult(program.source, ())
    return program


def with_layouts(program: Program, layouts: Sequence[FeedLayout | None]) -> Program:
    """Return a program, whose feeds are C-contiguous, for feeds of some layouts."""
    count = sum([_measured_in(layout) for layout in layouts if layout is not None])
    names: list[str] = []
    while len(names) < count:
        name = f"stride_{len(names)}"
        while name in program.symbols:
            name += "_"
        names.append(name)
    made = replace(program, symbols=(*program.symbols, *names), layouts=tuple(layouts))
    made.__dict__["_passed"] = program._result
    return made


def _measured_in(layout: FeedLayout) -> int:
    return sum([isinstance(stride, RunTimeStride) for stride in layout.strides])


def _check_fed(graph: Graph, feeds: Sequence[Tensor]) -> None:
    fed = {t.node for t in feeds}
    for node in graph.nodes:
        if isinstance(node.op, Placeholder) and node not in fed:
            shown = f'"{node.name}"' if node.name else "a placeholder without a name"
            key = shown if node.name else "x"
            raise FeedError(
                f"the value of {shown} is needed and nothing is fed for it",
                operands=[concrete.describe("missing", node.outputs[0])],
                fix=f"feed it: session.run(fetches, {{{key}: array}}), or for a plan "
                f"session.compile(fetches, feeds=[{key}])",
            )


def _symbols(graph: Graph, feeds: Sequence[Tensor], checks: Sequence[ShapeCheck]) -> set[str]:
    found: set[str] = set()
    # Types have no others: they follow from the fields and the inputs' types.
    for node in graph.nodes:
        if node.op.fields:
            found |= node.op.symbols
    for tensor in feeds:
        found.update(*map(symbols_of, tensor.shape))
    for check in checks:
        found |= symbols_of(check.said) | symbols_of(check.actual)
        found = found.union(*map(symbols_of, check.lengths))
    return found


def _size_sources(feeds: Sequence[Tensor]) -> dict[str, SizeSource]:
    """Find for each symbol the fed dim to read it from: one that is the symbol itself, if any."""
    dims = [(d, i, axis) for i, t in enumerate(feeds) for axis, d in enumerate(t.shape)]
    found: dict[str, SizeSource] = {}
    for dim, feed, axis in sorted(dims, key=lambda entry: is_symbol(entry[0]) is None):
        names = symbols_of(dim)
        if len(names) != 1 or names <= found.keys():
            continue
        (name,) = names
        scale = substitute(dim, {name: symbol(name) + 1}) - dim
        offset = dim - scale * symbol(name)
        if isinstance(scale, int) and isinstance(offset, int) and scale > 0:
            found[name] = SizeSource(name, feed, axis, scale, offset)
    return found


def _known_sizes(known: Iterable[str], checks: Sequence[ShapeCheck]) -> set[str]:
    """Return the symbols that are known, and those that `assert_shape` introduces for them."""
    found = set(known)
    for check in checks:
        if check.introduced is not None and symbols_of(check.actual) <= found:
            found.add(check.introduced)
    return found


def _measured(measuring: Sequence[Node]) -> set[str]:
    """Return the symbols that nodes find out, each by one of them.

    Raises:
        GraphError: Two nodes have the same one.
    """
    found: dict[str, Node] = {}
    for node in measuring:
        for name in node.op.symbols:
            other = found.setdefault(name, node)
            if other is not node:
                raise GraphError(
                    f"`{name}` is what a run finds out by two nodes",
                    operands=[
                        concrete.describe("first", other.outputs[0]),
                        concrete.describe("second", node.outputs[0]),
                    ],
                    fix="build what runs together in one graph",
                )
    return set(found)


def _finding(names: set[str], graph: Graph) -> list[Tensor]:
    """Return results of the nodes that find out symbols of which only the size is used."""
    if not names:
        return []
    measuring = [node for node in graph.nodes if MEASURES in node.op.traits]
    return [node.outputs[0] for node in measuring if not names.isdisjoint(node.op.symbols)]


def _check_sized(symbols: set[str], known: set[str], graph: Graph) -> None:
    for name in sorted(symbols - known):
        raise FeedError(
            f"the size of the dim `{name}` is needed, and nothing that is fed tells it",
            why=graph.symbol_origin(name),
            fix=f"feed a placeholder that has the dim `{name}`",
        )


def _copied(outputs: Sequence[Tensor]) -> tuple[bool, ...]:
    """Find the outputs that may share memory with something that lives on."""
    roots = [_memory_roots(t) for t in outputs]
    owners: dict[Node, int] = {}
    for mine in roots:
        for node in mine:
            owners[node] = owners.get(node, 0) + 1
    return tuple(
        any(SOURCE in node.op.traits or owners[node] > 1 for node in mine) for mine in roots
    )


def _memory_roots(tensor: Tensor) -> set[Node]:
    """Return the nodes whose memory a tensor may share: through views up to what computes."""
    roots: set[Node] = set()
    todo = [tensor.node]
    seen: set[Node] = set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if ALIAS in node.op.traits and node.inputs:
            todo.extend([t.node for t in node.inputs])
        else:
            roots.add(node)
    return roots
