"""Graphs as plain data: for `pickle`, and for copies of whole graphs.

Nodes refer to each other and to their graph, so a graph is turned into a list of records whose
inputs are numbers. A tensor, a variable or an update becomes its graph and a number. So objects
that are pickled together share one graph, and a long chain of nodes needs no deep recursion.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from graphfw.errors import GraphError
from graphfw.ir.evaluation import Evaluation
from graphfw.ir.op import Op
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.loc import Loc

if TYPE_CHECKING:
    from graphfw.ir.graph import Graph

Position: TypeAlias = tuple[int, int]
"""The number of a node in its graph, and of one of its outputs."""


class NodeRecord(NamedTuple):
    """A node without references to its graph.

    Attributes:
        op: The operation.
        inputs: The positions of the inputs.
        types: The outputs' types.
        loc: The line that made it.
        name: The name the user gave it, or "".
        outputs: The classes and the own state, tensors as positions, of outputs that are no plain
            tensors.
    """

    op: Op
    inputs: tuple[Position, ...]
    types: tuple[TensorType, ...]
    loc: Loc
    name: str
    outputs: tuple[tuple[type[Tensor], Any], ...] = ()


class GraphState(NamedTuple):
    """The contents of a graph; tensors as positions, updates as numbers.

    Attributes:
        nodes: The nodes.
        attributes: The attributes without tensors.
        variables: The positions of the variables.
        updates: For each update its class, its pairs and the line that made it.
        carried: The updates that layers ask for, with the tensors that they belong to.
        positions: The attributes that hold tensors, with positions in their place.
        names: The tensors' names.
    """

    nodes: list[NodeRecord]
    attributes: dict[str, Any]
    variables: list[Position]
    updates: list[tuple[type[Any], tuple[tuple[Position, Position], ...], Loc]]
    carried: list[tuple[int, Position]]
    positions: dict[str, Any]
    names: dict[str, Position]


_ATTRIBUTES = ("name", "opset", "metadata", "collect_errors", "calls", "_counts")
_WITH_TENSORS = ("outputs", "effects", "gradients", "measured")


def state_of(graph: Graph) -> GraphState:
    """Return a graph as plain data.

    Raises:
        GraphErrors: The graph has collected mistakes.
        GraphError: A pass made it.
    """
    graph.check()
    if graph.is_derived:
        raise GraphError(
            "a graph that passes made can't be copied or pickled",
            fix="copy or pickle the graph that it was made of",
        )
    position = _positions(graph.nodes)

    updates = [
        (type(u), tuple([(position(v), position(t)) for v, t in u.pairs]), u.loc)
        for u in graph.updates
    ]
    counted = {update: number for number, update in enumerate(graph.updates)}
    carried = [(counted[update], position(t)) for update, t in graph.carried]
    held = {name: getattr(graph, name) for name in _WITH_TENSORS}
    held["evaluations"] = [tuple(one) for one in graph.evaluations]
    return GraphState(
        nodes=records_of(graph.nodes),
        attributes={name: copy.copy(getattr(graph, name)) for name in _ATTRIBUTES},
        variables=[position(variable) for variable in graph.variables],
        updates=updates,
        carried=carried,
        positions=_mapped(_without_tensors(graph, position), held),
        names={name: position(tensor) for name, tensor in graph._names.items()},
    )


def fill(graph: Graph, state: GraphState) -> None:
    """Make the nodes, variables and updates of `state_of` in an empty graph."""
    vars(graph).update(state.attributes)
    add_nodes(graph, state.nodes)

    def tensor(position: Position) -> Any:
        number, index = position
        return graph.nodes[number].outputs[index]

    graph.variables = [tensor(position) for position in state.variables]
    for variable in graph.variables:
        graph._name_variable(variable)
    for update_kind, pairs, loc in state.updates:
        made: Any = object.__new__(update_kind)
        made.pairs = tuple([(tensor(variable), tensor(value)) for variable, value in pairs])
        made.graph, made.loc = graph, loc
        graph.updates.append(made)
    held = _mapped(_with_tensors(graph), state.positions)
    held["evaluations"] = [Evaluation(*one) for one in held["evaluations"]]
    vars(graph).update(held)
    graph.carried = [
        (graph.updates[number], tensor(position)) for number, position in state.carried
    ]
    graph._names = {name: tensor(position) for name, position in state.names.items()}


def records_of(nodes: Sequence[Node]) -> list[NodeRecord]:
    """Return nodes as records; each is after those that it uses."""
    position = _positions(nodes)
    return [_record(node, position) for node in nodes]


def add_nodes(graph: Graph, records: Sequence[NodeRecord]) -> None:
    """Make the nodes of records in an empty graph."""
    for record in records:
        inputs = tuple([graph.nodes[number].outputs[i] for number, i in record.inputs])
        node = Node(record.op, inputs, record.types, record.loc, record.name, graph)
        outputs = tuple([kind.__new__(kind) for kind, _ in record.outputs])
        for index, (output, (_, own)) in enumerate(zip(outputs, record.outputs, strict=True)):
            output._restore(node, index, _mapped(_with_tensors(graph), own))
        outputs = outputs or tuple([Tensor(node, i) for i in range(len(node.types))])
        node.adopt_outputs(outputs)
        graph.nodes.append(node)


def number_of(node: Node) -> int:
    """Return the number of a node in its graph.

    Raises:
        GraphError: It is in the body of a loop or the like.
    """
    nodes = node.graph.nodes
    number = bisect_left(nodes, node.serial, key=lambda one: one.serial)
    if number < len(nodes) and nodes[number] is node and node.graph.root is node.graph:
        return number
    raise GraphError(
        f"a tensor of the body of a {node.graph.what} can't be copied or pickled by itself",
        at=node.loc,
        fix="copy or pickle the graph, or a tensor outside of the body",
    )


def tensor_of(graph: Graph, number: int, index: int) -> Tensor:
    """Return an output of the node of a number."""
    return graph.nodes[number].outputs[index]


def _positions(nodes: Sequence[Node]) -> Callable[[Tensor], Position]:
    """Return a function from tensors to their positions."""
    numbers = {node: number for number, node in enumerate(nodes)}
    return lambda tensor: (numbers[tensor.node], tensor.index)


class _TensorAt(NamedTuple):
    number: int
    output: int


class _NodeAt(NamedTuple):
    number: int


def _without_tensors(graph: Graph, position: Callable[[Tensor], Position]) -> Callable[[Any], Any]:
    """Return a function that puts positions in the place of a graph's tensors and nodes.

    A tensor of another graph stays: a variable may begin with one.
    """

    def replaced(value: Any) -> Any:
        if isinstance(value, Tensor) and value.node.graph is graph:
            return _TensorAt(*position(value))
        return _NodeAt(position(value.outputs[0])[0]) if isinstance(value, Node) else value

    return replaced


def _with_tensors(graph: Graph) -> Callable[[Any], Any]:
    """Return the inverse of `_without_tensors` for the nodes of a graph."""

    def replaced(value: Any) -> Any:
        if isinstance(value, _TensorAt):
            return graph.nodes[value.number].outputs[value.output]
        return graph.nodes[value.number] if isinstance(value, _NodeAt) else value

    return replaced


def _record(node: Node, position: Callable[[Tensor], Position]) -> NodeRecord:
    outputs: Sequence[Tensor] = node.outputs
    special = any([type(t) is not Tensor for t in outputs])
    without = _without_tensors(node.graph, position)
    return NodeRecord(
        node.op,
        tuple([position(t) for t in node.inputs]),
        node.types,
        node.loc,
        node.name,
        tuple([(type(t), _mapped(without, t._own_state())) for t in outputs]) if special else (),
    )


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return nested lists, tuples and dicts with a function applied to what is in them."""
    if type(value) is dict:
        return {_mapped(function, k): _mapped(function, v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_mapped(function, item) for item in value])
    return function(value)
