"""`emit`, the one way in which nodes come to be: infer the type, check, attach the location."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from graphfw.errors import DTypeError, GraphError, GraphfwError, Operand
from graphfw.ir import advice, ambient, concrete
from graphfw.ir.arrays import to_array
from graphfw.ir.dim import Dim, symbols_of
from graphfw.ir.dtype import as_dtype
from graphfw.ir.functions import F
from graphfw.ir.graph import AMBIENT, Graph, innermost_graph
from graphfw.ir.literal import PYTHON_SCALARS, Literal
from graphfw.ir.op import RANDOM, Op
from graphfw.ir.owners import owners
from graphfw.ir.shape import Requirement, ShapeMismatch
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.walk import ancestors
from graphfw.loc import capture


def emit(op: Op, *inputs: Tensor, shown: Sequence[Any] | None = None, name: str = "") -> Tensor:
    """Apply an op with one output and return that output.

    Args:
        op: What to do.
        inputs: The tensors to do it to.
        shown: What the user passed, where the inputs are conversions of it: for errors.
        name: A name for the result, or "".

    Raises:
        ShapeError, DTypeError, …: The type rule refuses the inputs.
        GraphError: The inputs are of another graph than the one that is open.
    """
    return applied(op, inputs, shown, name)[0]


def emit_all(
    op: Op, *inputs: Tensor, shown: Sequence[Any] | None = None, name: str = ""
) -> tuple[Tensor, ...]:
    """Apply an op and return all its outputs; otherwise as `emit`."""
    return applied(op, inputs, shown, name)


def applied(
    op: Op, inputs: tuple[Tensor, ...], shown: Sequence[Any] | None = None, name: str = ""
) -> tuple[Tensor, ...]:
    """Do as `emit_all` does, a call sooner: for functions that are called most."""
    graph = innermost_graph.get() or AMBIENT
    if not graph.is_derived:
        for tensor in inputs:
            if tensor.node.graph is not graph:
                inputs = tuple([admitted(t, graph, op.name) for t in inputs])
                break
    try:
        types = op._infer(tuple(map(_type, inputs)))
    except Requirement as failed:
        error = rendered(op, inputs if shown is None else shown, failed, graph)
        return graph.fail(error, op, inputs)
    except DTypeError as failed:
        return graph.fail(failed, op, inputs)
    loc = graph.provenance or capture(ambient.current_scope.get())
    stops = (
        op.vjp is not None
        and not ambient.grad_enabled.get()
        and any([t.dtype.is_inexact for t in types])
    )
    # Under no_grad the name is that of what the caller gets.
    own = ambient.join_scope(ambient.current_scope.get(), name) if name and not stops else ""
    node = Node(op, inputs, types, loc, own, graph)
    outputs = graph.append(node)
    if graph.errors:
        graph.spread_poison(node)
    if stops:
        return tuple([F.stop_gradient(t, name=name) if t.dtype.is_inexact else t for t in outputs])
    return outputs


_type = attrgetter("_type")


def constant(value: Any, name: str = "") -> Tensor:
    """Put an array into the current graph."""
    return emit(ConstantOp(value if isinstance(value, Literal) else Literal(value)), name=name)


def rewire(node: Node, inputs: tuple[Tensor, ...], graph: Graph) -> Node:
    """Return a copy of a node in another graph, on other inputs. Only for those that rebuild."""
    same = all(a.type == b.type for a, b in zip(node.inputs, inputs, strict=True))
    types = node.types if same else node.op.infer(*[t.type for t in inputs])
    return Node(node.op, inputs, types, node.loc, node.name, graph)


def admitted(tensor: Tensor, graph: Graph, what: str) -> Tensor:
    """Return the tensor as one of the graph that is open, or refuse it.

    Raises:
        GraphError: The tensor belongs to another graph.
    """
    owner = tensor.node.graph
    if owner is graph or graph.is_derived or graph.reads(tensor):
        return tensor
    if graph.root is not graph:
        return graph.take(tensor, what)
    if owner.root is not owner:
        raise GraphError(
            f"{what}: its operand lives inside the body of a {owner.what}",
            operands=[concrete.describe("x", tensor)],
            fix="return it from the body's function: what that returns is what leaves the body",
        )
    if owner.is_ambient:
        return _adopted(tensor, graph)
    operand = concrete.describe("x", tensor)
    if graph.is_ambient:
        contents = owner.contents_of(tensor)
        if contents is not None:
            return constant(contents)
        raise GraphError(
            f"{what}: this line makes a node outside the graph that its operand belongs to",
            operands=[operand],
            fix=owner.from_outside,
        )
    raise GraphError(
        f"{what}: its operand belongs to another graph than the one that is open",
        operands=[operand],
        why=owners(owner, graph),
        fix=owner.elsewhere,
    )


def _adopted(tensor: Tensor, graph: Graph) -> Tensor:
    """Copy a tensor that was made outside any graph into one.

    What it depends on is copied too, so that nothing is computed now; but a random draw made
    outside is a value, and becomes a constant.
    """
    nodes = ancestors([tensor])
    if tensor._value is not None or any(RANDOM in node.op.traits for node in nodes):
        literal = ConstantOp(Literal(concrete.value_of(tensor, "a graph")))
        return graph.append(Node(literal, (), (tensor.type,), tensor.node.loc, "", graph))[0]
    copies: dict[Node, tuple[Tensor, ...]] = {}
    for node in nodes:
        inputs = tuple([copies[t.node][t.index] for t in node.inputs])
        copies[node] = graph.append(Node(node.op, inputs, node.types, node.loc, "", graph))
    return copies[tensor.node][tensor.index]


def rendered(
    op: Op, operands: Sequence[Any], failed: Requirement, graph: Graph = AMBIENT
) -> GraphfwError:
    """Turn a requirement that failed into the error that the user sees."""
    labels = [_label(op, i) for i in range(len(operands))]
    types = [_type_of(x) for x in operands]
    values = []
    dims: list[Dim] = []
    for index, axis in failed.at:
        type_ = types[index] if index < len(types) else None
        if type_ is None:
            continue
        dim = type_.shape[axis]
        values.append(f"{labels[index]}[{axis}] = {dim}")
        if isinstance(dim, Dim):
            dims.append(dim)
    names = sorted(frozenset().union(*map(symbols_of, dims)))
    why = [text for name in names if (text := graph.symbol_origin(name))]
    summary = f"{op.name}: {failed.message}" + (f": {', '.join(values)}" if values else "")
    tensors = [
        concrete.describe(label, x)
        if isinstance(x, Tensor)
        else Operand(label, "", str(type_), type(x).__name__)
        for label, x, type_ in zip(labels, operands, types, strict=True)
        if type_ is not None
    ]
    # Two operands tell most mistakes; of a long list only those at fault are shown.
    if len(tensors) > 2:
        at_fault = {labels[i] for i, _ in failed.at if i < len(labels)}
        tensors = [o for o in tensors if o.label in at_fault][:3] or tensors[:2]
    fix = failed.fix
    if isinstance(failed, ShapeMismatch):
        fix = advice.to_broadcast(op, operands, labels, failed) or fix
    return failed.error(summary, operands=tensors, why="; ".join(why), fix=fix)


def _type_of(x: Any) -> TensorType | None:
    """Return the type of what the user passed; None for scalars, which fit everywhere."""
    if isinstance(x, Tensor):
        return x.type
    if x is None or isinstance(x, (*PYTHON_SCALARS, Dim)):
        return None
    array = to_array(x)
    return TensorType(as_dtype(array.dtype), array.shape)


def _label(op: Op, index: int) -> str:
    labels = op.labels
    if index < len(labels):
        return labels[index]
    return f"x{index}"
