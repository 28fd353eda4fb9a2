"""graphfw in one file: describe first, run later.

    python examples/tiny_graphfw.py

Read it from top to bottom. A graph is described (1, 2), differentiated (3), rewritten (4),
compiled (5) and run (6); at the end a small network learns XOR (7). Each part is what the folder of
graphfw that its heading names does, without the cases that make graphfw long: here tensors have at
most two axes, numbers are float32, and kernels use one thread and no vectors of their own.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import llvmlite.binding as llvm
import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]
Dim = int | str
"""A size, or the name of one that is known when arrays are fed."""
Shape = tuple[Dim, ...]


# 1. Nodes (graphfw/ir): immutable, and made after their inputs. Nothing is computed here.


class ShapeError(Exception):
    """Shapes do not fit: raised on the line that describes the node, before anything runs."""


@dataclass(frozen=True)
class Op:
    """Every fact about an operation, so that no other part has to know its name.

    Attributes:
        name: In messages.
        shape: Returns the shape of the result from those of the inputs; raises ShapeError.
        eval: Returns the result from the sizes of named dims and the inputs' arrays.
        vjp: Returns the gradients of the inputs, as nodes, from the node and its own gradient.
        llvm: For elementwise ops the instruction, with {0} and {1} for the operands.
    """

    name: str
    shape: Callable[..., Shape]
    eval: Callable[..., Array]
    vjp: Callable[[Node, Node], Sequence[Node]] = lambda node, g: ()
    llvm: str = ""


@dataclass(frozen=True, eq=False)
class Node:
    """An operation on other nodes; it stands for its result, a tensor.

    Nodes are numbered as they are made, so sorting by number is a topological order.
    """

    op: Op
    inputs: tuple[Node, ...]
    shape: Shape
    line: str
    name: str = ""
    value: Array | None = None
    serial: int = field(default_factory=itertools.count().__next__)

    def __add__(self, other: Node | float) -> Node:
        return emit(ADD, self, constant(other))

    def __mul__(self, other: Node | float) -> Node:
        return emit(MULTIPLY, self, constant(other))

    def __sub__(self, other: Node | float) -> Node:
        return self + constant(other) * -1.0

    def __matmul__(self, other: Node) -> Node:
        return emit(MATMUL, self, other)

    def __str__(self) -> str:
        return f"{self.op.name} {self.name}{self.shape}  {self.line}"


def users_line() -> str:
    """Return the line that describes a node: of the first frame that is no function from here."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_code.co_name != "<module>":
        frame = frame.f_back or frame
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def emit(op: Op, *inputs: Node) -> Node:
    """Make a node. This is the one place where shapes are checked."""
    try:
        shape = op.shape(*[x.shape for x in inputs])
    except ShapeError as error:
        lines = [f"{op.name}: {error}", *[str(x) for x in inputs], f"at {users_line()}"]
        raise ShapeError("\n  ".join(lines)) from None
    if op.llvm:  # elementwise: broadcasts are nodes of their own, so no such op has to know them
        inputs = tuple([broadcast_to(x, shape) for x in inputs])
    return Node(op, inputs, shape, users_line())


def sized(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape in which named dims are replaced by their sizes in this run."""
    return tuple([sizes[dim] if isinstance(dim, str) else dim for dim in shape])


# 2. Ops (graphfw/ops): a record each, or a function that composes others.


def no_value(sizes: Mapping[str, int]) -> Array:
    """Say that a run lacks a value, which no operation computes."""
    raise ValueError("a placeholder is not fed")


PLACEHOLDER, VARIABLE, CONSTANT = [
    Op(name, lambda: (), no_value) for name in ("placeholder", "variable", "constant")
]


def placeholder(name: str, shape: Shape) -> Node:
    """Return an input: each run is given its value."""
    return Node(PLACEHOLDER, (), shape, users_line(), name)


def variable(name: str, initial: Any) -> Node:
    """Return a tensor whose value a session keeps from run to run."""
    value = np.asarray(initial, np.float32)
    return Node(VARIABLE, (), value.shape, users_line(), name, value)


def constant(value: Node | float) -> Node:
    """Return a scalar that never changes; a node stays what it is."""
    if isinstance(value, Node):
        return value
    return Node(CONSTANT, (), (), users_line(), str(value), np.array(value, np.float32))


def broadcast_shape(*shapes: Shape) -> Shape:
    """Return the shape of an elementwise result, by NumPy's rule."""
    dims = []
    for column in itertools.zip_longest(*[shape[::-1] for shape in shapes], fillvalue=1):
        sizes = set(column) - {1}
        if len(sizes) > 1:
            raise ShapeError(f"sizes {' and '.join(map(str, column))} differ")
        dims.append(sizes.pop() if sizes else 1)
    return tuple(dims[::-1])


def elementwise(name: str, function: Callable[..., Array], llvm: str, vjp: Any) -> Op:
    """Return an elementwise op: this row is all that eval, gradients, fusion and code need."""
    return Op(name, broadcast_shape, lambda sizes, *xs: function(*xs), vjp, llvm)


def product_vjp(node: Node, g: Node) -> Sequence[Node]:
    """Return g * b and g * a, for a * b."""
    a, b = node.inputs
    return g * b, g * a


def tanh_vjp(node: Node, g: Node) -> Sequence[Node]:
    """Return g * (1 - tanh(x) ** 2), for tanh(x)."""
    return (g * (constant(1.0) - node * node),)


ADD = elementwise("add", np.add, "fadd float {0}, {1}", lambda node, g: (g, g))
MULTIPLY = elementwise("multiply", np.multiply, "fmul float {0}, {1}", product_vjp)
TANH = elementwise("tanh", np.tanh, "call float @tanhf(float {0})", tanh_vjp)


def product_shape(a: Shape, b: Shape) -> Shape:
    """Return the shape of a product of matrices."""
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise ShapeError("the first needs as many columns as the second has rows")
    return a[0], b[1]


def matmul_vjp(node: Node, g: Node) -> Sequence[Node]:
    """Return g @ b.T and a.T @ g, for a @ b."""
    a, b = node.inputs
    return g @ emit(TRANSPOSE, b), emit(TRANSPOSE, a) @ g


MATMUL = Op("matmul", product_shape, lambda sizes, a, b: a @ b, matmul_vjp)
TRANSPOSE = Op(
    "transpose", lambda s: s[::-1], lambda sizes, x: x.T, lambda node, g: (emit(TRANSPOSE, g),)
)


@functools.cache
def broadcast_op(small: Shape, large: Shape) -> Op:
    """Return the op that repeats elements along axes that are missing in front, or of size 1."""

    def repeated(sizes: Mapping[str, int], x: Array) -> Array:
        return np.broadcast_to(x, sized(large, sizes))

    return Op("broadcast", lambda s: large, repeated, lambda node, g: (sum_to(g, small),))


@functools.cache
def sum_op(large: Shape, small: Shape) -> Op:
    """Return the op that adds up what a broadcast repeats: each is the other's gradient."""
    front = len(large) - len(small)
    axes = tuple([i for i, d in enumerate(large) if i < front or d != small[i - front]])

    def total(sizes: Mapping[str, int], x: Array) -> Array:
        return x.sum(axes).reshape(sized(small, sizes))

    return Op("sum", lambda s: small, total, lambda node, g: (broadcast_to(g, large),))


def broadcast_to(x: Node, shape: Shape) -> Node:
    """Return x with another shape, by repeating elements."""
    return x if x.shape == shape else emit(broadcast_op(x.shape, shape), x)


def sum_to(x: Node, shape: Shape) -> Node:
    """Return x with another shape, by adding up elements."""
    return x if x.shape == shape else emit(sum_op(x.shape, shape), x)


def tanh(x: Node) -> Node:
    """Return the hyperbolic tangent of each element."""
    return emit(TANH, x)


# 3. Gradients (graphfw/transforms): more nodes of the same graph.


def topological(fetches: Sequence[Node]) -> list[Node]:
    """Return the nodes that fetches need, inputs first: what else there is, is pruned."""
    found, todo = set(), list(fetches)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(node.inputs)
    return sorted(found, key=lambda node: node.serial)


def grad(loss: Node, xs: Sequence[Node]) -> list[Node]:
    """Return the gradients of a scalar: the chain rule, from the loss backwards."""
    gradients = {loss: constant(1.0)}
    for node in reversed(topological([loss])):
        if node in gradients:
            for x, g in zip(node.inputs, node.op.vjp(node, gradients[node]), strict=True):
                gradients[x] = gradients[x] + g if x in gradients else g
    return [gradients.get(x) or broadcast_to(constant(0.0), x.shape) for x in xs]


# 4. Passes (graphfw/passes): a graph becomes a smaller one, with the same results.


def is_constant(x: Node, number: float) -> bool:
    """Whether all elements are this number."""
    while x.op.name == "broadcast":
        x = x.inputs[0]
    return x.op is CONSTANT and x.value == number


def simplified(node: Node) -> Node:
    """Return a node that has the same value, and less to do."""
    for one, other in (node.inputs, node.inputs[::-1]) if len(node.inputs) == 2 else ():
        if (node.op is MULTIPLY and is_constant(other, 1)) or (
            node.op is ADD and is_constant(other, 0)
        ):
            return one
    if node.shape == () and node.inputs and all(x.op is CONSTANT for x in node.inputs):
        value = node.op.eval({}, *[x.value for x in node.inputs])
        return replace(node, op=CONSTANT, inputs=(), value=value)
    if node.op is TRANSPOSE and node.inputs[0].op is TRANSPOSE:  # x.T.T
        return node.inputs[0].inputs[0]
    return node


def optimised(fetches: Sequence[Node]) -> list[Node]:
    """Simplify each node, and compute what is there twice once."""
    new: dict[Node, Node] = {}
    known: dict[Any, Node] = {}
    for node in topological(fetches):
        inputs = tuple(new[x] for x in node.inputs)
        made = simplified(replace(node, inputs=inputs) if inputs != node.inputs else node)
        new[node] = known.setdefault((made.op, made.inputs) if made.inputs else made, made)
    return [new[node] for node in fetches]


def partition(fetches: Sequence[Node]) -> list[list[Node]]:
    """Return groups of nodes that are computed together: elementwise ops, each other op alone.

    A node joins the group of its users if that is one group: then its value is never stored.
    """
    users: dict[Node, set[Node]] = {}
    for node in topological(fetches):
        for x in node.inputs:
            users.setdefault(x, set()).add(node)
    group: dict[Node, Node] = {}  # each node's group is named by the node that is its result
    for node in reversed(topological(fetches)):
        groups = {group[user] for user in users.get(node, ()) if user.op.llvm}
        together = node.op.llvm and node not in fetches and len(groups) == 1
        alone = not together or any(not user.op.llvm for user in users[node])
        group[node] = node if alone else groups.pop()
    members: dict[Node, list[Node]] = {}
    for node in topological(fetches):
        members.setdefault(group[node], []).append(node)
    return sorted(members.values(), key=lambda nodes: nodes[-1].serial)


# 5. Code (graphfw/runtime): a group becomes two loops in LLVM's language, and those machine code.

KERNEL = """
declare float @tanhf(float)
define void @kernel(i64 %rows, i64 %columns, {arguments}) {{
entry:
  br label %row
row:
  %i = phi i64 [0, %entry], [%i1, %next]
  %more = icmp slt i64 %i, %rows
  br i1 %more, label %column, label %end
column:
  %j = phi i64 [0, %row], [%j1, %element]
  %inside = icmp slt i64 %j, %columns
  br i1 %inside, label %element, label %next
element:
{element}
  %j1 = add i64 %j, 1
  br label %column
next:
  %i1 = add i64 %i, 1
  br label %row
end:
  ret void
}}
"""
ADDRESS = """  %row{0} = mul i64 %i, %down{0}
  %column{0} = mul i64 %j, %along{0}
  %place{0} = add i64 %row{0}, %column{0}
  %p{0} = getelementptr i8, ptr %array{0}, i64 %place{0}"""


def outside(nodes: Sequence[Node]) -> list[Node]:
    """Return the operands of a group, which it does not compute itself."""
    return list(dict.fromkeys(x for node in nodes for x in node.inputs if x not in nodes))


def source(nodes: Sequence[Node]) -> str:
    """Return a group's kernel: load each operand, compute, store the last value.

    Sizes and strides are arguments, so one kernel serves all sizes; a broadcast has strides of 0.
    """
    reads, result = outside(nodes), nodes[-1]
    names = {x: f"%x{number}" for number, x in enumerate(reads)}
    lines = [ADDRESS.format(number) for number in range(len(reads) + 1)]
    lines += [f"  %x{number} = load float, ptr %p{number}" for number in range(len(reads))]
    for node in nodes:
        names[node] = f"%r{node.serial}"
        operation = node.op.llvm.format(*[names[x] for x in node.inputs])
        lines.append(f"  {names[node]} = {operation}")
    lines.append(f"  store float {names[result]}, ptr %p{len(reads)}")
    arguments = [f"ptr %array{k}, i64 %down{k}, i64 %along{k}" for k in range(len(reads) + 1)]
    return KERNEL.format(arguments=", ".join(arguments), element="\n".join(lines))


class Kernel:
    """The machine code of a group, called with arrays."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(opt=3)
        self._code = llvm.create_mcjit_compiler(llvm.parse_assembly(source(nodes)), machine)
        sizes, pointer = [ctypes.c_int64] * 2, ctypes.c_void_p
        parameters = [*sizes, *[pointer, *sizes] * (len(outside(nodes)) + 1)]
        address = self._code.get_function_address("kernel")
        self._call = ctypes.CFUNCTYPE(None, *parameters)(address)

    def __call__(self, shape: tuple[int, ...], *operands: Array) -> Array:
        """Return a new array of this shape, computed from operands that broadcast to it."""
        result = np.empty(shape, np.float32)
        arrays = [*[np.broadcast_to(x, shape) for x in operands], result]
        matrices = [np.atleast_2d(x) for x in arrays]
        addresses = [(x.ctypes.data, *x.strides) for x in matrices]
        self._call(*matrices[-1].shape, *itertools.chain(*addresses))
        return result


# 6. Runs (graphfw/runtime): a session compiles once, and keeps the values of variables.


Plan = tuple[list[Node], list[tuple[list[Node], Kernel | None]]]


class Session:
    """Runs graphs. A run reads variables as they were at its start, and updates them at its end."""

    def __init__(self) -> None:
        self.contents: dict[Node, Array] = {}
        self._plans: dict[Any, Plan] = {}

    def run(
        self, fetches: Sequence[Node], feeds: Mapping[Node, Any], updates: Mapping[Node, Node] = {}
    ) -> list[Array]:
        """Return the values of fetches; then give variables the new values that updates name."""
        key = (*fetches, *updates.items())
        if key not in self._plans:
            self._plans[key] = compiled([*fetches, *updates.values()])
        wanted, steps = self._plans[key]
        sizes, values = bound(feeds)
        for nodes, kernel in steps:
            node = nodes[-1]
            if kernel is not None:
                operands = [values[x] for x in outside(nodes)]
                values[node] = kernel(sized(node.shape, sizes), *operands)
            elif node.value is not None:
                values[node] = self.contents.get(node, node.value)
            elif node not in values:
                values[node] = node.op.eval(sizes, *[values[x] for x in node.inputs])
        results = [values[node] for node in wanted]
        self.contents.update(zip(updates, results[len(fetches) :], strict=True))
        return results[: len(fetches)]


def compiled(fetches: Sequence[Node]) -> Plan:
    """Return the fetches of an optimised graph, and what to run for them, in order."""
    wanted = optimised(fetches)
    groups = partition(wanted)
    return wanted, [(nodes, Kernel(nodes) if nodes[-1].op.llvm else None) for nodes in groups]


def bound(feeds: Mapping[Node, Any]) -> tuple[dict[str, int], dict[Node, Array]]:
    """Return the sizes that fed arrays give to named dims, and the arrays."""
    sizes: dict[str, int] = {}
    values = {x: np.asarray(array, np.float32) for x, array in feeds.items()}
    for x, array in values.items():
        if len(x.shape) == array.ndim:
            named = [(d, n) for d, n in zip(x.shape, array.shape, strict=True) if d != n]
            if all([isinstance(d, str) and sizes.setdefault(d, n) == n for d, n in named]):
                continue
        raise ShapeError(f"an array of shape {array.shape} does not fit\n  {x}")
    return sizes, values


# 7. A network of two layers learns XOR.

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x, y = placeholder("x", ("batch", 2)), placeholder("y", ("batch", 1))
    w1, b1 = variable("w1", rng.normal(size=(2, 8))), variable("b1", np.zeros(8))
    w2, b2 = variable("w2", rng.normal(size=(8, 1))), variable("b2", np.zeros(1))
    guess = tanh(tanh(x @ w1 + b1) @ w2 + b2)
    loss = sum_to((guess - y) * (guess - y), ())
    parameters = [w1, b1, w2, b2]
    steps = {w: w - g * 0.1 for w, g in zip(parameters, grad(loss, parameters), strict=True)}

    session = Session()
    corners = {x: [[0, 0], [0, 1], [1, 0], [1, 1]], y: [[0], [1], [1], [0]]}
    for number in range(201):
        (now,) = session.run([loss], corners, steps)
        if number % 50 == 0:
            print(f"step {number:3}  loss {now:.4f}")
    print(session.run([guess], corners)[0].round(2).ravel())

    try:
        x @ w2
    except ShapeError as error:
        print(error)
