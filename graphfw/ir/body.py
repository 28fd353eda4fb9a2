"""Bodies: graphs that an op owns, such as a loop's, with parameters for what they take.

A body is built by calling the user's function inside a `BodyGraph`. What the function uses of the
graphs around it becomes a parameter too: a capture, which is an ordinary input of the node that
owns the body. So a body depends on nothing outside, and gradients and passes see every edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

from graphfw.errors import GraphError, counted
from graphfw.ir import concrete, pickled, time_limits
from graphfw.ir.build import admitted, emit_all
from graphfw.ir.dim import Dim, symbols_of
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.op import EFFECT, LOOSE, PURE, RANDOM, Op, Rng, nested
from graphfw.ir.rebuild import derive
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Variable
from graphfw.ir.walk import NestedGraph, ancestors
from graphfw.loc import Loc

_UPDATING = ("checkpoint", "cond", "fori_loop", "map", "scan", "switch", "while_loop")
"""The functions whose bodies may update variables: see `ops/control/variable_updates.py`."""


class BodyGraph(Graph):
    """A body while it is built.

    Args:
        what: The function that it is built for, `scan`, as errors name it.
    """

    def __init__(self, what: str) -> None:
        self.outer: Graph = current_graph()
        super().__init__(self.outer.name, opset=self.outer.opset)
        self.what = what
        self.captured: dict[Tensor, Tensor] = {}

    @property
    def root(self) -> Graph:
        """The graph around it that is no body."""
        graph = self.outer
        while isinstance(graph, BodyGraph):
            graph = graph.outer
        return graph

    def parameter(self, kind: TensorType, loc: Loc | None = None) -> Tensor:
        """Add a parameter of a type."""
        op = Placeholder(dims=kind.shape, to=kind.dtype)
        return self.append(Node(op, (), (kind,), loc or self.location(), "", self))[0]

    def take(self, tensor: Tensor, what: str) -> Tensor:
        """Return the parameter that stands for a tensor of a graph around this one."""
        source = admitted(tensor, self.outer, what)
        if source not in self.captured:
            node = source.node
            # A float may be what someone differentiates with respect to: it stays outside.
            if node.op.name == "constant" and not source.dtype.is_inexact:
                copied = Node(node.op, (), node.types, node.loc, "", self)
                self.captured[source] = self.append(copied)[0]
            else:
                self.captured[source] = self.parameter(source.type, node.loc)
        return self.captured[source]

    def standing_for(self, tensor: Tensor) -> Tensor | None:
        """Return this graph's tensor for one of the graph around all bodies, or None."""
        source = self.outer.standing_for(tensor)
        return None if source is None else self.captured.get(source)

    @property
    def captures(self) -> dict[Tensor, Tensor]:
        """The tensors taken from around the body, constants aside, with its parameters."""
        return {t: p for t, p in self.captured.items() if p.node.op.name != "constant"}

    def check_update(self, variable: Variable, loc: Loc) -> None:
        """See that variables may be updated here: where it is clear how often that happens.

        Raises:
            GraphError: They may not.
        """
        if self.what not in _UPDATING:
            is_vmap = self.what == "vmap"
            raise GraphError(
                f'update: each example of a vmap would give "{variable.name}" another value'
                if is_vmap
                else f'update: "{variable.name}" would be updated in a {self.what}, which may be '
                "computed any number of times",
                operands=[concrete.describe("variable", variable)],
                at=loc,
                fix="return the value from the function, reduce it over the examples, and update "
                "outside; a layer that keeps statistics of batches sees no batch here: apply it to "
                "all examples outside, or write model(x, training=False)"
                if is_vmap
                else "return the value from the function, and update outside",
            )
        self.outer.check_update(variable, loc)

    def unique(self, name: str) -> str:
        """Return a name that nothing in the graphs around has, either."""
        return self.outer.unique(name)

    def symbol_origin(self, name: str) -> str:
        """Return where a symbolic dim comes from."""
        return self.outer.symbol_origin(name)


class Body(NestedGraph):
    """A graph with parameters; immutable. Equal bodies compute the same.

    Attributes:
        parameters: What it is given, in order: placeholders of its own.
        outputs: What it computes.
        sizes: What its symbolic dims stand for, once they are bound.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        outputs: Sequence[Tensor],
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.parameters = tuple(parameters)
        self.outputs = tuple(outputs)
        self.sizes = sizes

    def __reduce__(self) -> tuple[Any, ...]:
        nodes = [*[t.node for t in self.parameters], *self.nodes]
        records = pickled.records_of(nodes)
        count = len(self.parameters)
        return _body_of_records, (records, count, self.output_key, self.sizes)

    @cached_property
    def graph(self) -> Graph:
        """The nodes that the outputs need, as a graph for passes and executors."""
        owner = self.outputs[0].graph if self.outputs else Graph()
        return derive(owner, self.outputs)

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes, in the order in which they are computed."""
        sources = {t.node for t in self.parameters}
        return [node for node in ancestors(self.outputs) if node not in sources]

    @cached_property
    def key(self) -> Any:
        """A key that is equal for bodies that compute the same: types, ops, and who feeds whom."""
        return (*self.computation, *self.output_key)

    @cached_property
    def computation(self) -> tuple[Any, ...]:
        """The parameters' types, and the ops with where their inputs come from."""
        return (
            tuple([t.type for t in self.parameters]),
            tuple([(node.op, *map(self._reference, node.inputs)) for node in self.nodes]),
            None if self.sizes is None else tuple(sorted(self.sizes.items())),
        )

    @cached_property
    def output_key(self) -> tuple[Any, ...]:
        """The origins of the outputs, in terms that depend on `computation` only."""
        return tuple(map(self._reference, self.outputs))

    @cached_property
    def _numbers(self) -> dict[Node, int]:
        nodes = [*[t.node for t in self.parameters], *self.nodes]
        return {node: number for number, node in enumerate(nodes)}

    def tensor_at(self, reference: tuple[int, int]) -> Tensor:
        """Return the tensor of an entry of `output_key`, of this body's or of an equal one's."""
        number, index = reference
        count = len(self.parameters)
        node = self.parameters[number].node if number < count else self.nodes[number - count]
        return node.outputs[index]

    def _reference(self, tensor: Tensor) -> tuple[int, int]:
        return self._numbers[tensor.node], tensor.index

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Body) and self.key == other.key)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        kinds = ", ".join(str(t.type) for t in self.parameters)
        return f"Body(({kinds}), {counted(len(self.nodes), 'node')})"

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names of the symbolic dims inside, as far as they are not bound."""
        if self.sizes is not None:
            return frozenset()
        found: set[str] = set()
        for node in (*[t.node for t in self.parameters], *self.nodes):
            found |= node.op.symbols
            for kind in node.types:
                for dim in kind.shape:
                    if isinstance(dim, Dim):
                        found |= symbols_of(dim)
        return frozenset(found)

    def bind(self, sizes: Mapping[str, int]) -> Body:
        """Return the body with numbers in the place of its symbolic dims."""
        own = {name: sizes[name] for name in self.symbols}
        return Body(self.parameters, self.outputs, own)

    @cached_property
    def is_random(self) -> bool:
        """Whether it draws random numbers."""
        return any(RANDOM in node.op.traits for node in self.nodes)

    @cached_property
    def is_pure(self) -> bool:
        """Whether all in it is: random draws are."""
        return all(PURE in node.op.traits for node in self.nodes)

    @cached_property
    def has_effect(self) -> bool:
        """Whether something in it must happen although nothing uses its result."""
        return any(EFFECT in node.op.traits for node in self.nodes)

    @cached_property
    def is_loose(self) -> bool:
        """Whether something in it may differ from its `eval`: see `Trait.LOOSE`."""
        return any(LOOSE in node.op.traits for node in self.nodes)

    def inline(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Make its nodes again in the current graph, on `inputs`, and return its outputs."""
        values = dict(zip(self.parameters, inputs, strict=True))
        return tuple(copied(self.outputs, values))

    def evaluate(self, xp: Any, arrays: Sequence[Any], rng: Rng | None) -> list[Any]:
        """Compute the outputs by each op's reference `eval`.

        Raises:
            ExecutionError: A node fails.
        """
        values: list[Any] = [None] * self._steps.total
        values[: len(arrays)] = arrays
        if not self.nodes:
            time_limits.check()
        for node, step in zip(self.nodes, self._steps.steps, strict=True):
            time_limits.check(node)
            inputs = [values[i] for i in step.inputs]
            try:
                result = step.op.eval(xp, *inputs, **({"rng": rng} if step.is_random else {}))
            except Exception as error:
                raise concrete.failed(node, inputs, error) from error
            values[step.slot : step.slot + step.width] = result if step.op.multiple else (result,)
        return [values[i] for i in self._steps.outputs]

    @cached_property
    def _steps(self) -> _Steps:
        slots: dict[Node, int] = {}
        count = 0
        for node in (*[t.node for t in self.parameters], *self.nodes):
            slots[node] = count
            count += len(node.types)
        steps = [
            _Step(
                node.op if self.sizes is None else node.op.bind(self.sizes),
                [slots[t.node] + t.index for t in node.inputs],
                slots[node],
                len(node.types),
                RANDOM in node.op.traits,
            )
            for node in self.nodes
        ]
        return _Steps(steps, [slots[t.node] + t.index for t in self.outputs], count)


def _body_of_records(
    records: Sequence[pickled.NodeRecord],
    parameters: int,
    outputs: Sequence[pickled.Position],
    sizes: Mapping[str, int] | None,
) -> Body:
    """Return the body that `pickle` has taken apart."""
    graph = Graph()
    graph.is_derived = True  # as bodies that `gf.parse` reads
    pickled.add_nodes(graph, records)
    first = [node.outputs[0] for node in graph.nodes[:parameters]]
    return Body(first, [graph.nodes[number].outputs[index] for number, index in outputs], sizes)


class _Step(NamedTuple):
    """One node of a body, ready to be evaluated."""

    op: Op
    inputs: list[int]
    slot: int
    width: int
    is_random: bool


class _Steps(NamedTuple):
    steps: list[_Step]
    outputs: list[int]
    total: int


class Traced(NamedTuple):
    """The result of calling a function to make its body.

    Attributes:
        graph: The body's graph.
        parameters: Those for the function's arguments; captures come after them.
        outputs: What the function returned.
    """

    graph: BodyGraph
    parameters: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def trace(
    what: str,
    function: Callable[..., Sequence[Tensor]],
    kinds: Sequence[TensorType],
) -> Traced:
    """Call a function with parameters of the types, and keep what it builds.

    The function returns tensors: of the body, or of the graphs around it.
    """
    graph = BodyGraph(what)
    with graph:
        parameters = tuple([graph.parameter(kind) for kind in kinds])
        try:
            outputs = tuple([admitted(t, graph, what) for t in function(*parameters)])
        except RecursionError:
            around = graph.outer
            depth = 1
            while isinstance(around, BodyGraph):
                around, depth = around.outer, depth + 1
            if depth < _DEEP:  # the function calls itself
                raise
            raise _nested_too_deep(what, depth, graph.location()) from None
    return Traced(graph, parameters, outputs)


_DEEP = 20
"""The depth of nested bodies at which they may be why Python's recursion limit is reached."""


def _nested_too_deep(what: str, depth: int, at: Loc) -> GraphError:
    return GraphError(
        f"{what}: {depth} bodies inside of each other are too many for Python's recursion limit",
        at=at,
        fix="choose among many with gf.switch, repeat with gf.while_loop or gf.scan; "
        "or raise the limit: sys.setrecursionlimit",
    )


@contextmanager
def within_recursion_limit(graph: Graph) -> Iterator[None]:
    """Say so where bodies are nested too deep for what is done with a graph.

    Raises:
        GraphError: Python's recursion limit is reached, and bodies are nested deep.
    """
    try:
        yield
    except RecursionError:
        depth, node = _deepest(graph.nodes)
        if node is None or depth < _DEEP:  # other calls have reached the limit
            raise
        raise _nested_too_deep(node.op.name, depth, node.loc) from None


def _deepest(nodes: Sequence[Node]) -> tuple[int, Node | None]:
    """Return how deep bodies are nested, and one of the nodes where they are nested most."""
    level = [(node, node) for node in nodes]
    seen: set[int] = set()
    depth, found = -1, None
    while level:
        depth, found = depth + 1, level[0][1]
        inside = []
        for node, outer in level:
            for body in nested(node.op.values):
                if id(body) not in seen:
                    seen.add(id(body))
                    inside += [(inner, outer) for inner in body.nodes]
        level = inside
    return max(depth, 0), found


def closed(*traced: Traced) -> tuple[tuple[Body, ...], tuple[Tensor, ...]]:
    """Return bodies that all take the same captures, and these: tensors of the graph around."""
    captures = tuple(dict.fromkeys(t for one in traced for t in one.graph.captures))
    bodies = []
    for one in traced:
        own = one.graph.captures
        with one.graph:
            taken = [own[t] if t in own else one.graph.parameter(t.type) for t in captures]
        bodies.append(Body((*one.parameters, *taken), one.outputs))
    return tuple(bodies), captures


def body_of(what: str, function: Callable[..., Sequence[Tensor]], *kinds: TensorType) -> Body:
    """Return the body of a function that uses nothing from around it."""
    traced = trace(what, function, kinds)
    return Body(traced.parameters, traced.outputs)


def copied(outputs: Sequence[Tensor], values: Mapping[Tensor, Tensor]) -> list[Tensor]:
    """Make the nodes that outputs need again in the current graph.

    Args:
        outputs: What to make again.
        values: What stands for some tensors; nothing above these is made.
    """
    graph = current_graph()
    new: dict[tuple[Node, int], Tensor] = {(t.node, t.index): x for t, x in values.items()}
    whole = {
        node
        for node in {t.node for t in values}
        if all((node, index) in new for index in range(len(node.types)))
    }
    for node in ancestors(outputs, stop=whole.__contains__):
        if node in whole:
            continue
        inputs = [new[t.node, t.index] for t in node.inputs]
        with graph.located(graph.provenance or node.loc):
            made = emit_all(node.op, *inputs)
        for index, tensor in enumerate(made):
            new.setdefault((node, index), tensor)
    return [new[t.node, t.index] for t in outputs]


def rewired(value: Tensor, new: Mapping[Tensor, Tensor]) -> Tensor:
    """Return a tensor as it is computed with others in place of some, in the current graph."""
    return all_rewired([value], new)[0]


def all_rewired(values: Sequence[Tensor], new: Mapping[Tensor, Tensor]) -> list[Tensor]:
    """Return tensors as `rewired` returns each; what several need is made once."""
    made: dict[tuple[Node, int], Tensor] = {(t.node, t.index): x for t, x in new.items()}
    replaced = {t.node for t in new}
    for node in ancestors(values, stop=replaced.__contains__):
        inputs = [made.get((t.node, t.index), t) for t in node.inputs]
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            made.update({(node, i): t for i, t in enumerate(emit_all(node.op, *inputs))})
    return [made.get((t.node, t.index), t) for t in values]
