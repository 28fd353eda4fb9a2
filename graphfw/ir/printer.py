"""The text of a graph, which `parse` reads back.

One line a node:

    graph "mlp" opset 2 {
      %0 = placeholder(name="x") : float32[batch, 64]        # model.py:12 in build
      %1 = variable("fc.weight", initial=@9c0e…) : float32[64, 128]
      %2 = matmul(%0, %1) : float32[batch, 128]              # model.py:13 in build, layer fc
      %3 = constant([1.0, 2.0]) : float32[2]
      %4, %5 = topk(%2, k=2, axis=1) : (float32[batch, 2], int64[batch, 2])
      update "fc.weight" = %1
      output %4
    }

`%n` is a tensor, `@…` an array that is too large to be shown, by the digest of its contents. Values
of fields are Python expressions over ints, strings, tuples, `slice(…)`, dims (`batch//2 + 1`; long
subexpressions have names: `(t0 := max(n, 1), t0*t0)[-1]`),
`dtype.float32`, `float.inf`, `float.nan`, `complex(re, im)`, `True`, `False` and `None`. `name="…"`
is the node's name; no op has a field of that name. A variable's `initial` is an array, a tensor, or
`initializer("HeNormal(mode='fan_in')")`.

A comment holds the location in the user's code. For a node that differentiation made, `| grad`
follows (`| grad of …` where the forward node is elsewhere), and `| also …` for each node that was
merged into it. A quoted word in a location is one with unusual signs.

The bodies of loops and branches stand before the line that they belong to, with numbers of their
own:

      body b0 {
        %0 = placeholder() : int64[]
        %1 = placeholder() : float32[8]
        %2 = tanh(%1) : float32[8]
        takes %0, %1
        yields %2
      }
      %6 = scan(%5, body=body.b0, length=10, carries=1, sequences=0, backwards=False) : float32[8]

`derived` after the opset marks a graph that passes made of another: it has the same variables, but
their initial values belong to the graph it was made of and are not shown.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfw.ir import concrete
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DType, as_dtype
from graphfw.ir.literal import Array, Literal
from graphfw.ir.op import nested
from graphfw.ir.sources import ConstantOp, Placeholder, VariableOp
from graphfw.ir.walk import NestedGraph
from graphfw.loc import Loc, display_path

if TYPE_CHECKING:
    from graphfw.ir.graph import Graph
    from graphfw.ir.tensor import Node, Tensor
    from graphfw.ir.variable import Update, Variable

INLINE_SIZE = 16
"""Arrays of at most so many elements are written out."""

_COMMENT_COLUMN = 64


def graph_text(graph: Graph, locations: bool = True) -> str:
    """Return a graph as text: `print → parse → print` is the identity.

    Args:
        graph: What to print.
        locations: Whether to write each line's location in the user's code, as a comment.
    """
    return "\n".join(_Printer(graph, locations).lines())


def large_constants(graph: Graph) -> dict[str, Array]:
    """Return the arrays that the text names only by their digest, for `parse`."""
    found: dict[str, Array] = {}
    todo = list(graph.nodes)
    while todo:
        node = todo.pop()
        if isinstance(node.op, ConstantOp):
            _collect(node.op.value, found)
        todo += [inner for body in nested(node.op.values) for inner in body.nodes]
    for variable in [] if graph.is_derived else graph.variables:
        literal = _initial_literal(variable, graph)
        if literal is not None:
            _collect(literal, found)
    return found


def _collect(literal: Literal, found: dict[str, Array]) -> None:
    if _inline(literal.array) is None:
        found[literal.digest] = literal.array


class _Printer:
    """Prints one graph; knows the number of each tensor printed so far."""

    def __init__(self, graph: Graph, locations: bool, numbers: Iterator[int] | None = None) -> None:
        self.graph = graph
        self.body_numbers = numbers or itertools.count()
        self.names: dict[int, str] = {}
        self.locations = locations
        self.numbers: dict[tuple[Node, int], int] = {}
        self.variables = {variable.node: variable for variable in graph.variables}

    def lines(self) -> Iterator[str]:
        graph = self.graph
        derived = " derived" if graph.is_derived else ""
        yield f"graph {quoted(graph.name)} opset {graph.opset}{derived} {{"
        for node in graph.nodes:
            for body in nested(node.op.values):
                yield from self.body(body)
            yield self.located(self.statement(node), node.loc)
        for update in graph.updates:
            yield self.located(self.update(update), update.loc)
        if graph.effects:
            yield f"  happens {', '.join(map(self.tensor, graph.effects))}"
        if graph.outputs:
            yield f"  output {', '.join(map(self.tensor, graph.outputs))}"
        yield "}"

    def body(self, body: NestedGraph) -> Iterator[str]:
        """Print a body, with numbers of its own, and remember its name."""
        inner = _Printer(self.graph, self.locations, self.body_numbers)
        name = self.names[id(body)] = f"b{next(self.body_numbers)}"
        lines: list[str] = []
        for node in (*[t.node for t in body.parameters], *body.nodes):
            for deeper in nested(node.op.values):
                lines += inner.body(deeper)
            lines.append(inner.located(inner.statement(node), node.loc))
        yield f"  body {name} {{"
        yield from [f"  {line}" for line in lines]
        yield f"    takes {', '.join(map(inner.tensor, body.parameters))}"
        yield f"    yields {', '.join(map(inner.tensor, body.outputs))}"
        yield "  }"

    def located(self, line: str, loc: Loc) -> str:
        if not self.locations:
            return f"  {line}"
        return f"{f'  {line}':<{_COMMENT_COLUMN}}  # {loc_text(loc)}"

    def statement(self, node: Node) -> str:
        # The arguments come first: a broken node that uses its own result has no number for it yet.
        call = f"{node.op.name}({', '.join(self.arguments(node))})"
        targets = []
        for index in range(len(node.types)):
            number = self.numbers[node, index] = len(self.numbers)
            targets.append(f"%{number}")
        left = f"{', '.join(targets)} = " if targets else ""
        types = ", ".join(map(str, node.types))
        return f"{left}{call} : {types if len(node.types) == 1 else f'({types})'}"

    def arguments(self, node: Node) -> Iterator[str]:
        match node.op:
            case Placeholder(split=split):  # its other fields are its type
                if split:
                    yield f"split={value_text(split, self.names)}"
            case ConstantOp(value=literal):
                yield literal_text(literal)
            case VariableOp():
                yield from self.variable(self.variables[node])
            case op:
                yield from map(self.tensor, node.inputs)
                for field in op.fields:
                    yield f"{field}={value_text(getattr(op, field), self.names)}"
        if node.name:
            yield f"name={quoted(node.name)}"

    def variable(self, variable: Variable) -> Iterator[str]:
        yield quoted(variable.name)
        if not variable.trainable:
            yield "trainable=False"
        if variable.initial is None or self.graph.is_derived:
            return
        initial: Any = variable.initial
        literal = _initial_literal(variable, self.graph)
        if literal is not None:
            yield f"initial={literal_text(literal)}"
        elif _is_tensor(initial):
            yield f"initial={self.tensor(initial)}"
        else:
            yield f"initial=initializer({quoted(_initializer_text(initial))})"

    def update(self, update: Update) -> str:
        pairs = ", ".join(f"{quoted(v.name)} = {self.tensor(t)}" for v, t in update.pairs)
        carriers = [self.tensor(t) for carried, t in self.graph.carried if carried is update]
        return f"update {pairs}" + (f" carried by {', '.join(carriers)}" if carriers else "")

    def tensor(self, tensor: Tensor) -> str:
        # A broken graph is printed too, to find what is wrong with it; `parse` refuses `%?`.
        return f"%{self.numbers.get((tensor.node, tensor.index), '?')}"


def _is_tensor(value: object) -> bool:
    """Return whether an initial value is a tensor, whose class this module can't import."""
    return hasattr(value, "node")


def _initial_literal(variable: Variable, graph: Graph) -> Literal | None:
    """Return a variable's initial value where it is known now and no tensor of the graph."""
    initial: Any = variable.initial
    if isinstance(initial, np.ndarray):
        return Literal(initial)
    if _is_tensor(initial) and initial.node.graph is not graph and concrete.is_concrete(initial):
        return Literal(concrete.value_of(initial, "the text"))
    return None


def _initializer_text(initial: Any) -> str:
    """Return `HeNormal(mode='fan_in')`; of a function its name, since its repr has an address."""
    name = getattr(initial, "__qualname__", None)
    return name if isinstance(name, str) else repr(initial)


# Values.


def quoted(text: str) -> str:
    """Return a string as a Python literal in double quotes, on one line and printable."""
    escaped = "".join('\\"' if c == '"' else c if c == "'" else repr(c)[1:-1] for c in text)
    return f'"{escaped}"'


def value_text(value: object, names: Mapping[int, str] | None = None) -> str:
    """Return a field's value as text; `opaque("…")` for what `parse` can't read.

    Args:
        value: The value.
        names: Of bodies, by their `id`: equal ones are printed twice.
    """
    if isinstance(value, NestedGraph) and names:
        return f"body.{names[id(value)]}"
    if value is None or isinstance(value, (bool, int, Dim)):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, complex):
        return f"complex({_float_text(value.real)}, {_float_text(value.imag)})"
    if isinstance(value, DType):
        return f"dtype.{value.name}"
    if isinstance(value, slice):
        return f"slice({', '.join(map(value_text, (value.start, value.stop, value.step)))})"
    if isinstance(value, tuple):
        inside = ", ".join([value_text(item, names) for item in value])
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return f"opaque({quoted(repr(value))})"


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    return f"{sign}float.{'nan' if math.isnan(value) else 'inf'}"


def literal_text(literal: Literal) -> str:
    """Return a small array as nested lists, a large one as `@digest`."""
    text = _inline(literal.array)
    return f"@{literal.digest}" if text is None else text


def _inline(array: Array) -> str | None:
    """Return an array as nested lists, or None where it is large or they would lose a bit of it."""
    if array.size > INLINE_SIZE:
        return None
    values = [_shortest(value, array.dtype) for value in array.ravel().tolist()]
    if np.array(values, array.dtype).tobytes() != array.tobytes():
        return None  # a NaN with a payload
    if not values:
        return "[]"
    return _nested([value_text(value) for value in values], array.shape)


def _shortest(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the element's value as the Python scalar that its shortest text stands for."""
    kind = as_dtype(dtype)
    if kind.is_complex:
        real = kind.real.dtype
        return complex(_shortest(value.real, real), _shortest(value.imag, real))
    if not kind.is_floating:
        return value  # of floats for storage, too: 450.0 would be read as 448.0, but not by people
    value = float(value)
    if math.isnan(value):
        return math.copysign(math.nan, value)
    # The float32 that is 0.10000000149011612 is also what 0.1 is read as.
    with np.errstate(over="ignore"):
        for digits in range(1, 17):
            short = float(f"{value:.{digits}g}")
            if float(dtype.type(short)) == value:
                return short
    return value


def _nested(texts: list[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return texts[0]
    step = len(texts) // shape[0]
    rows = [_nested(texts[i : i + step], shape[1:]) for i in range(0, len(texts), step)]
    return f"[{', '.join(rows)}]"


# Locations.

_PLAIN_FILE = re.compile(r"(?!.*:\d)[\w.<~/\\](?:[\w./\\<>\[\]()+~@: -]*[\w.>/\\)\]])?")
_PLAIN_WORD = re.compile(r"[\w.<>\[\]:/-]+")


def loc_text(loc: Loc) -> str:
    """Return a location on one line; `parse` reads it back."""
    texts = [_location_with_gradient(loc)]
    texts += [f"also {_location_with_gradient(other)}" for other in loc.merged]
    return " | ".join(texts)


def _location_with_gradient(loc: Loc) -> str:
    location = _location(loc)
    if loc.grad_of is None:
        return location
    forward = _location(loc.grad_of)
    return f"{location} | grad" if forward == location else f"{location} | grad of {forward}"


def _location(loc: Loc) -> str:
    file = display_path(loc.file)
    text = f"{file if _PLAIN_FILE.fullmatch(file) else quoted(file)}:{loc.line}"
    if loc.function != "<module>":
        text += f" in {_word(loc.function)}"
    return f"{text}, layer {_word(loc.layer)}" if loc.layer else text


def _word(text: str) -> str:
    return text if _PLAIN_WORD.fullmatch(text) else quoted(text)
