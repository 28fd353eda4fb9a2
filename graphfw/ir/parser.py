"""Reading the text of a graph: what `printer` writes, and describes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from graphfw.errors import GraphError, GraphfwError, ParseError, counted, did_you_mean
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.body import Body
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DType, as_dtype
from graphfw.ir.fields import op_of, refuse_unknown
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array, Literal
from graphfw.ir.op import RANDOM, Op
from graphfw.ir.opset import OPSET
from graphfw.ir.shape import Requirement
from graphfw.ir.sources import ConstantOp
from graphfw.ir.syntax import (
    STRING,
    array_of,
    call,
    loc_of,
    mask,
    reference,
    shown,
    split_comment,
    string,
    types_of,
    value_of,
)
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.variable import INITIALIZERS, Initializer, Update, Variable
from graphfw.ir.verify import verify
from graphfw.loc import Loc
from graphfw.utils.records import record

FILE = "<graph text>"
"""The file of nodes whose line has no location."""


@explained
def parse(
    text: str,
    *,
    constants: Mapping[str, Array] | None = None,
    initializers: Mapping[str, Callable[..., Any]] | None = None,
) -> Graph:
    r"""Build a graph from its text, as `str(graph)` gives it.

    Every node is checked as when it was built: its type is inferred and must be the written one.

    Args:
        text: The text.
        constants: The arrays that it names by digest: `graph.constants()`.
        initializers: What `initializer("…")` names, such as `{"Sparse": Sparse}`, besides those of
            `gf.nn.init`. Others are kept as text, and are a GraphError where a session needs one.

    Raises:
        ParseError: A line can't be read; the error shows it.

    >>> import graphfw as gf
    >>> with gf.Graph("double") as g:
    ...     x = gf.placeholder(("n",), name="x")
    ...     g.outputs = (x + x,)
    >>> again = gf.parse(str(g), constants=g.constants())
    >>> str(again) == str(g)
    True
    >>> gf.parse('graph "g" opset 2 {\n  output %0\n}')
    Traceback (most recent call last):
    graphfw.errors.ParseError: %0 is not defined above this line
      at   line 2:   output %0
    """
    return _Parser(constants or {}, initializers or {}).parse(text)


@record
class Line:
    """A line of the text, as the location of an error."""

    line: int
    text: str
    file: str = FILE

    def describe(self) -> str:
        """Return `line 5:   %3 = matmul(%0, %1)…`."""
        return f"{self.short()}:   {self.text.strip()}"

    def short(self) -> str:
        """Return `line 5`."""
        return f"line {self.line}"


@record
class NamedInitializer:
    """An initialiser of which the text alone is known."""

    text: str

    def __call__(self, shape: Sequence[int], dtype: DType) -> NoReturn:
        """Refuse: what the text stands for is not known here."""
        raise GraphError(
            f"the initialiser {self.text} is known by name only",
            fix="pass initializers={…} to parse, or load the variable's value",
        )

    def __repr__(self) -> str:
        return self.text


_HEADER = re.compile(rf"graph\s+({STRING})\s+opset\s+(\d+)(\s+derived)?\s*\{{")
_NODE = re.compile(r"(?:(%\d+(?:\s*,\s*%\d+)*)\s*=\s*)?([\w.]+)\s*\((.*)\)\s*:\s*(.+)")
_CARRIED = " carried by "
_UPDATE = re.compile(rf"\s*({STRING})\s*=\s*(%\w+)\s*(,|$)")
_HEADER_FIX = f'begin with graph "name" opset {OPSET} {{'


@dataclass
class _Open:
    """A body that is being read.

    Attributes:
        name: Its name.
        graph: What it stands in.
        tensors: The tensors there, by number.
        takes: Its parameters.
        yields: Its outputs.
    """

    name: str
    graph: Graph
    tensors: dict[str, Tensor]
    takes: tuple[Tensor, ...] | None = None
    yields: tuple[Tensor, ...] | None = None


class _Parser:
    """Reads one text, statement by statement."""

    def __init__(
        self, constants: Mapping[str, Array], initializers: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.constants = constants
        self.initializers = initializers
        self.graph = Graph()
        self.tensors: dict[str, Tensor] = {}
        self.bodies: dict[str, Body] = {}
        self.open: list[_Open] = []
        self.variables: dict[str, Variable] = {}

    def parse(self, text: str) -> Graph:
        lines = [Line(number, line) for number, line in enumerate(text.split("\n"), 1)]
        statements = [(line, *split_comment(line.text)) for line in lines]
        statements = [item for item in statements if item[1]]
        if not statements:
            raise ParseError("the text has no graph in it", at=lines[0], fix=_HEADER_FIX)
        first, *body = statements
        with _errors_at(first[0]):
            self.header(first[1])
        if not body or body[-1][1] != "}":
            raise ParseError("the graph's closing } is missing", at=statements[-1][0])
        # Names in the text are full names: an open scope adds nothing to them.
        with self.graph, ambient.override(ambient.current_scope, ""):
            for line, code, comment in body[:-1]:
                with _errors_at(line):
                    self.statement(code, loc_of(comment) or Loc(FILE, line.line, "<module>"))
            if self.open:
                raise ParseError("the closing } of a body is missing", at=body[-1][0])
        verify(self.graph)
        return self.graph

    def header(self, code: str) -> None:
        if (match := _HEADER.fullmatch(code)) is None:
            raise ParseError("the text does not begin with a graph", fix=_HEADER_FIX)
        self.graph.name = string(match[1])
        self.graph.opset = int(match[2])
        self.graph.is_derived = match[3] is not None
        if not 1 <= self.graph.opset <= OPSET:
            raise ParseError(
                f"the graph has opset {match[2]}, this version reads up to {OPSET}",
                fix="read it with a newer version",
            )

    def statement(self, code: str, loc: Loc) -> None:
        keyword, _, rest = code.partition(" ")
        if keyword == "body":
            self.begin(rest)
        elif self.open and code == "}":
            self.end()
        elif self.open and keyword in ("takes", "yields"):
            setattr(self.open[-1], keyword, self.references(rest) if rest else ())
        elif keyword == "update" and not self.open:
            self.update(rest, loc)
        elif keyword == "happens" and not self.open:
            self.graph.effects += self.references(rest)
        elif keyword == "output" and self.open:
            raise ParseError("a body has no line `output`", fix="write yields %n")
        elif keyword == "output" and self.graph.outputs:
            raise ParseError("there is a line with outputs already")
        elif keyword == "output":
            self.graph.outputs = self.references(rest)
        else:
            self.node(code, loc)

    # Bodies.

    def begin(self, text: str) -> None:
        name, brace, rest = text.partition("{")
        if not name.strip().isidentifier() or not brace or rest.strip():
            raise ParseError("this begins no body", fix="write body b0 {")
        self.open.append(_Open(name.strip(), self.graph, self.tensors))
        self.graph, self.tensors = Graph(opset=self.graph.opset), {}
        self.graph.is_derived = True

    def end(self) -> None:
        own = self.open.pop()
        if own.takes is None or own.yields is None:
            raise ParseError("the body has no lines `takes` and `yields`")
        if any(t.node.op.name != "placeholder" for t in own.takes):
            raise ParseError("a body takes placeholders")
        self.bodies[own.name] = Body(own.takes, own.yields)
        self.graph, self.tensors = own.graph, own.tensors

    def value(self, value: ast.expr) -> Any:
        """Return the value of a field, which may be a body or a tuple of bodies."""
        match value:
            case ast.Attribute(ast.Name("body"), name):
                if name not in self.bodies:
                    raise ParseError(f"body {name} is not above this line")
                return self.bodies[name]
            case ast.Tuple(items):
                return tuple([self.value(item) for item in items])
        return value_of(value)

    # Nodes.

    def node(self, code: str, loc: Loc) -> None:
        if (match := _NODE.fullmatch(mask(code))) is None:
            raise ParseError(
                "this is no statement",
                fix="write %n = op(%a, field=value) : dtype[dims], or `update`, `output`, `}`",
            )
        name, arguments, written = (code[match.start(i) : match.end(i)] for i in (2, 3, 4))
        targets = [target.strip() for target in (match[1] or "").split(",") if target]
        types = types_of(written)
        positional, fields = call(arguments)
        if name == "variable":
            outputs: tuple[Tensor, ...] = (self.variable(positional, fields, types, loc),)
        else:
            node = self.applied(name, positional, fields, types, loc)
            with self.graph:
                outputs = self.graph.append(node)
            _reserve(self.graph, node.name)
        if len(targets) != len(types):
            raise ParseError(f"{counted(len(types), 'result')} for {counted(len(targets), 'name')}")
        for target, tensor in zip(targets, outputs, strict=True):
            if target in self.tensors:
                raise ParseError(f"{target} is defined twice")
            self.tensors[target] = tensor

    def applied(
        self,
        name: str,
        positional: list[ast.expr],
        fields: dict[str, ast.expr],
        types: tuple[TensorType, ...],
        loc: Loc,
    ) -> Node:
        label = value_of(fields.pop("name")) if "name" in fields else ""
        if not isinstance(label, str):
            raise ParseError(f"name={label!r} is no string")
        inputs: tuple[Tensor, ...] = ()
        if name == "placeholder":
            op: Op = _placeholder(positional, fields, types)
            for symbol in op.symbols:
                _reserve(self.graph, symbol)
        elif name == "constant":
            op = self.constant(positional, fields, types)
        else:
            inputs = tuple([self.operand(argument) for argument in positional])
            values = {field: self.value(value) for field, value in fields.items()}
            op = op_of(name, values)
            if RANDOM in op.traits and "key" in values:
                _reserve(self.graph, str(values["key"]))
        inferred = _infer(op, inputs)
        if inferred != types:
            raise ParseError(
                f"the line says {_types_text(types)}, {name} gives {_types_text(inferred)}"
            )
        return Node(op, inputs, types, loc, label, self.graph)

    def operand(self, argument: ast.expr) -> Tensor:
        word = reference(argument)
        if not word.startswith("%"):
            raise ParseError(
                f"{shown(argument)} stands where a tensor should",
                fix="write tensors as %n, and fields as name=value",
            )
        return self.tensor(word)

    def tensor(self, word: str) -> Tensor:
        if word not in self.tensors:
            raise ParseError(f"{word} is not defined above this line")
        return self.tensors[word]

    def references(self, text: str) -> tuple[Tensor, ...]:
        return tuple([self.tensor(entry.strip()) for entry in text.split(",")])

    def constant(
        self,
        positional: list[ast.expr],
        fields: dict[str, ast.expr],
        types: tuple[TensorType, ...],
    ) -> Op:
        refuse_unknown("constant", fields, "name")
        if len(positional) != 1 or len(types) != 1:
            raise ParseError("a constant has one value and one type")
        return ConstantOp(self.literal(positional[0], types[0]))

    def literal(self, value: ast.expr, kind: TensorType) -> Literal:
        word = reference(value)
        if not word:
            return Literal(array_of(value, kind))
        digest = word.removeprefix("@")
        if digest not in self.constants:
            raise ParseError(
                f"{word} is not among the constants",
                fix="pass constants=graph.constants() of the graph that was printed",
            )
        literal = Literal(self.constants[digest])
        found = TensorType(as_dtype(literal.array.dtype), literal.array.shape)
        if found != kind:
            raise ParseError(f"the line says {kind}, {word} is {found}")
        if literal.digest != digest:
            raise ParseError(f"the array given for {word} has other contents")
        return literal

    # Variables.

    def variable(
        self,
        positional: list[ast.expr],
        fields: dict[str, ast.expr],
        types: tuple[TensorType, ...],
        loc: Loc,
    ) -> Variable:
        if len(positional) != 1 or len(types) != 1:
            raise ParseError("a variable has one name and one type")
        name = value_of(positional[0])
        trainable = value_of(fields.pop("trainable")) if "trainable" in fields else True
        initial = self.initial(fields.pop("initial"), types[0]) if "initial" in fields else None
        refuse_unknown("variable", fields, "trainable", "initial")
        if not isinstance(name, str) or not isinstance(trainable, bool):
            raise ParseError('write it like variable("weight", trainable=False)')
        shape: Any = types[0].shape  # it may have symbols: Variable refuses them with its own error
        with self.graph.located(loc):
            variable = Variable(initial, name, trainable, shape=shape, dtype=types[0].dtype)
        self.variables[name] = variable
        _reserve(self.graph, name)
        return variable

    def initial(self, value: ast.expr, kind: TensorType) -> Array | Tensor | Initializer:
        match value:
            case ast.Call(func=ast.Name("initializer"), args=[ast.Constant(str(text))]):
                return self.initializer(text)
        if not reference(value).startswith("%"):
            return self.literal(value, kind).array
        tensor = self.operand(value)
        if tensor.type != kind:
            raise ParseError(f"the line says {kind}, its initial value is {tensor.type}")
        return tensor

    def initializer(self, text: str) -> Initializer:
        """Return the initialiser of `HeNormal(mode='fan_in')`; without parentheses, a function."""
        name, parenthesis, arguments = text.partition("(")
        found = self.initializers.get(name) or INITIALIZERS.get(name)
        if found is None:
            return NamedInitializer(text)
        if not parenthesis:
            return found
        try:
            args, fields = call(arguments.removesuffix(")"))
            values = [value_of(value) for value in args]
            options = {key: value_of(value) for key, value in fields.items()}
            if any(isinstance(value, Dim) for value in (*values, *options.values())):
                return NamedInitializer(text)  # a repr such as inf reads as a dim of that name
            made: Initializer = found(*values, **options)
        except (TypeError, ValueError) as error:
            if name not in self.initializers:
                return NamedInitializer(text)  # somebody's own, with the name of one of graphfw's
            raise ParseError(f"can't make the initialiser {text}: {error}") from error
        return made

    def update(self, text: str, loc: Loc) -> None:
        split = mask(text).find(_CARRIED)
        code, carriers = (text, "") if split < 0 else (text[:split], text[split + len(_CARRIED) :])
        pairs: list[tuple[Variable, Tensor]] = []
        position = 0
        while position < len(code):
            match = _UPDATE.match(code, position)
            if match is None:
                raise ParseError("can't read this update", fix='write update "name" = %n, …')
            pairs.append(self.pair(string(match[1]), self.tensor(match[2])))
            position = match.end()
        update = Update(pairs, self.graph, loc)
        if carriers:
            self.graph.carried += [(update, tensor) for tensor in self.references(carriers)]

    def pair(self, name: str, value: Tensor) -> tuple[Variable, Tensor]:
        if name not in self.variables:
            near = did_you_mean(name, self.variables)
            raise ParseError(f'there is no variable "{name}"', fix=near)
        variable = self.variables[name]
        if variable.type != value.type:
            raise ParseError(f'the variable "{name}" is {variable.type}, the value {value.type}')
        return variable, value


# Statements.


@contextmanager
def _errors_at(line: Line) -> Iterator[None]:
    """Turn every mistake in a line into a ParseError that shows the line."""
    try:
        yield
    except GraphfwError as error:
        if isinstance(error.at, Line):
            raise
        raise ParseError(
            error.summary, operands=error.operands, why=error.why, at=line, fix=error.fix
        ) from None


def _types_text(types: tuple[TensorType, ...]) -> str:
    return str(types[0]) if len(types) == 1 else f"({', '.join(map(str, types))})"


def _reserve(graph: Graph, name: str) -> None:
    """Keep the names and keys that the graph makes when it is extended off a parsed one."""
    stem, _, number = name.rpartition("_")
    if stem and number.isdecimal():
        graph._counts[stem] = max(graph._counts.get(stem, 0), int(number) + 1)
    graph._counts.setdefault(name, 1)


# Ops.


def _placeholder(
    positional: list[ast.expr], fields: dict[str, ast.expr], types: tuple[TensorType, ...]
) -> Op:
    refuse_unknown("placeholder", fields.keys() - {"split"}, "name", "split")
    if positional or len(types) != 1:
        raise ParseError("a placeholder has a name and one type")
    if any(isinstance(dim, int) and dim < 0 for dim in types[0].shape):
        raise ParseError(f"a dim of {types[0]} is negative")
    own = {field: value_of(value) for field, value in fields.items()}
    return op_of("placeholder", {"dims": types[0].shape, "to": types[0].dtype, **own})


def _infer(op: Op, inputs: tuple[Tensor, ...]) -> tuple[TensorType, ...]:
    rule = inspect.signature(op.shape)
    try:
        rule.bind(*inputs)
    except TypeError:
        takes, given = ", ".join(rule.parameters) or "no tensors", counted(len(inputs), "tensor")
        raise ParseError(f"{op.name} takes {takes}; the line has {given}") from None
    try:
        types = op.infer(*[t.type for t in inputs])
        str(types), op.symbols  # which no field of a wrong kind survives
        return types
    except Requirement as failed:
        raise ParseError(f"{op.name}: {failed.message}", fix=failed.fix) from None
    except GraphfwError:
        raise
    except Exception as error:  # a rule trusts its fields, and these may hold anything
        raise ParseError(f"{op.name}: its fields make no sense: {error}") from error
