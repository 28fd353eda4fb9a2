"""The writer of a model's nodes: their names, constants, sizes and bodies."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from graphfw.ir.body import BodyGraph
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DType, as_dtype, float32, int32, int64
from graphfw.ir.op import EFFECT, PURE, RANDOM, Op, nested
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ir.walk import ancestors
from graphfw.loc import Loc
from graphfw.onnx import stored
from graphfw.onnx.errors import Unsupported
from graphfw.onnx.rewriting import pruned
from graphfw.onnx.table import find_writer
from graphfw.onnx.types import number_of


class Val(NamedTuple):
    """A value of the model."""

    name: str
    dtype: DType


LAST = np.iinfo(np.int64).min
"""The end of a slice that goes backwards through the first element."""


class Names:
    """Names that are taken, each once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def free(self, name: str) -> str:
        """Return the name, with a number where it is taken; it is taken then."""
        made = name
        while made in self._taken:
            self._counts[name] = self._counts.get(name, 0) + 1
            made = f"{name}_{self._counts[name]}"
        self._taken.add(made)
        return made


class Problem(NamedTuple):
    """A node that can't be said in ONNX."""

    op: str
    reason: str
    loc: Loc
    fix: str = ""

    @staticmethod
    def of(node: Node, error: Unsupported) -> Problem:
        """Return the problem of a node whose op, or whose dtypes, ONNX hasn't."""
        return Problem(node.op.name, str(error), node.loc, error.fix)


_WIDER = {
    "bfloat16": float32,
    **dict.fromkeys(("bool", "int8", "int16", "uint8", "uint16"), int32),
    **dict.fromkeys(("uint32", "uint64"), int64),
}
"""The dtype in the place of one that ONNX Runtime has no kernel of an operator for.

All keep the values; what overflows wraps around again when it is converted back.
"""

_SMALL = "int8 int16 uint8 uint16 uint32 uint64"
_WITHOUT_KERNEL = {
    "Abs": "",
    "Add": "",
    "ArgMax": "int16 uint16 uint32",
    "ArgMin": "int16 uint16 uint32",
    "Ceil": "",
    "Clip": "int16 uint16",
    "Cos": "",
    "CumSum": _SMALL,
    "Div": "",
    "Equal": "",
    "Erf": "",
    "Exp": "",
    "Expand": "",
    "Floor": "",
    "Greater": "bool",
    "GreaterOrEqual": "bool",
    "Less": "bool",
    "LessOrEqual": "bool",
    "Log": "",
    "MatMul": "int8 int16 uint8 uint16",
    "Max": "int16 uint16",
    "Min": "int16 uint16",
    "Mod": "",
    "Mul": "",
    "Neg": "uint8 uint16 uint32 uint64",
    "Pad": "int16 uint16",
    "Pow": _SMALL,
    "Reciprocal": "",
    "ReduceMax": "int16 uint16 uint32",
    "ReduceMin": "int16 uint16 uint32",
    "ReduceProd": _SMALL,
    "ReduceSum": _SMALL,
    "Relu": "int16 int64 uint8 uint16 uint32 uint64",
    "Round": "",
    "Sigmoid": "",
    "Sin": "",
    "Softplus": "",
    "Sqrt": "",
    "Sub": "",
    "Tanh": "",
    "TopK": "uint16 uint32",
    "Where": "bool int16 uint16 uint64",
    **dict.fromkeys("Acos Acosh Asin Asinh Atan Atanh Cosh Sinh Tan".split(), ""),
    **dict.fromkeys("AveragePool Col2Im Conv ConvTranspose MaxPool MaxUnpool".split(), ""),
}
"""Operators with the dtypes, besides bfloat16, that ONNX Runtime has no kernel for."""

_LITTLE = 1 << 14
"""Bytes that a constant may always have which is computed when the model is written."""

_BINARY = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Mod: "Mod"}


class Builder:
    """Writes the nodes of one model.

    Attributes:
        opset: The version of ONNX's operators.
        draws: Whether the runtime's own random numbers may stand for a session's.
        arrays: The constants and the variables' contents by name.
        nodes: The nodes of the graph or body that is being written.
        sizes: Nodes that compute sizes, of the inputs' shapes, and of what nodes find out.
        problems: Nodes that can't be written in ONNX.
    """

    def __init__(self, opset: int, names: Iterable[str], *, draws: bool = False) -> None:
        self.opset = opset
        self.draws = draws
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.nodes: list[NodeProto] = []
        self.sizes: list[NodeProto] = []
        self.problems: list[Problem] = []
        self._value_names = Names(names)
        self._node_names = Names()
        self._symbols: dict[str, Callable[[], Val]] = {}
        self._dims: dict[str, Val] = {}
        self._constants: dict[Any, Val] = {}
        self._drawn: dict[Op, Val] = {}
        self._depth = 0
        self._values: dict[tuple[Node, int], Val] = {}
        self._at: Node | None = None

    # Nodes.

    def __call__(
        self, kind: str, *inputs: Val | None, dtype: DType | None = None, **attributes: Any
    ) -> Val:
        """Write a node with one output, of its operands' dtype where no other is given.

        Where ONNX Runtime has no kernel for the dtype, a wider one is computed with.
        """
        index = 1 if kind == "Where" else 0  # its first is the condition
        operand = inputs[index]
        assert operand is not None
        lacked = operand.dtype
        if not self._lacks(kind, lacked):
            return self.many(kind, inputs, [dtype or lacked], **attributes)[0]
        wide = _WIDER[lacked.name]
        converted = [
            x if x is None or i < index or x.dtype is not lacked else self.cast(x, wide)
            for i, x in enumerate(inputs)
        ]
        if dtype is not None and dtype is not lacked:
            return self.many(kind, converted, [dtype], **attributes)[0]
        return self.cast(self.many(kind, converted, [wide], **attributes)[0], lacked)

    def _lacks(self, kind: str, dtype: DType) -> bool:
        missing = _WITHOUT_KERNEL.get(kind)
        return missing is not None and (dtype.name == "bfloat16" or dtype.name in missing.split())

    def many(
        self, kind: str, inputs: Sequence[Val | None], dtypes: Sequence[DType], **attributes: Any
    ) -> list[Val]:
        """Write a node with outputs of these dtypes."""
        input_dtypes = [None if x is None else x.dtype for x in inputs]
        stored.check_opset(kind, self.opset)
        stored.check_operator(kind, self.opset, input_dtypes, dtypes)
        name = self._node_name(kind)
        outputs = [Val(self.unique(f"{name}_out{i or ''}"), d) for i, d in enumerate(dtypes)]
        self.nodes.append(
            helper.make_node(
                kind,
                ["" if x is None else x.name for x in inputs],
                [y.name for y in outputs],
                name,
                **attributes,
            )
        )
        return outputs

    def _node_name(self, kind: str) -> str:
        layer = self._at.loc.layer if self._at is not None else ""
        last = layer.rpartition("/")[2]
        wanted = layer if last.startswith(kind) else f"{layer}/{kind}" if layer else kind
        return self._node_names.free(wanted)

    def unique(self, name: str) -> str:
        """Return a name that no other value has."""
        return self._value_names.free(name)

    def cast(self, x: Val, dtype: DType) -> Val:
        """Convert, where it is of another dtype."""
        if x.dtype is dtype:
            return x
        number = number_of(dtype)
        how: dict[str, Any] = {"saturate": 0} if dtype.name.startswith("float8") else {}
        if dtype.name == "float8_e8m0fnu":
            how["round_mode"] = "nearest"
        return self("Cast", x, dtype=dtype, to=number, **how)

    # Constants.

    def constant(self, array: Any, dtype: DType | None = None) -> Val:
        """Return a constant; equal small ones are one."""
        value = np.asarray(array) if dtype is None else np.asarray(array).astype(dtype.dtype)
        key = (value.dtype.name, value.shape, value.tobytes()) if value.size <= 64 else None
        found = self._constants.get(key) if key else None
        if found is None:
            layer = self._at.loc.layer if self._at is not None and not key else ""
            name = self.unique(f"{layer}.constant" if layer else "constant")
            self.arrays[name] = value
            found = Val(name, as_dtype(value.dtype))
            if key:
                self._constants[key] = found
        return found

    def scalar(self, value: float, dtype: DType) -> Val:
        """Return a number as a constant without dims."""
        return self.constant(value, dtype)

    def ints(self, values: Sequence[int]) -> Val:
        """Return integers as a constant of one dim."""
        return self.constant(np.asarray(values, np.int64).reshape(-1))

    # Sizes.

    def symbol(self, name: str, value: Callable[[], Val]) -> None:
        """Say how to compute what a symbol stands for, as one element of one dim."""
        self._symbols[name] = value

    def dim(self, dim: DimLike) -> Val:
        """Return a size as one element of one dim."""
        if not isinstance(dim, Dim):
            return self.ints([dim])
        text = str(dim)
        if text not in self._dims:
            self._dims[text] = self._in_front(lambda: self._computed(ast.parse(text, mode="eval")))
        return self._dims[text]

    def size(self, dim: DimLike) -> Val:
        """Return a size as a scalar."""
        if not isinstance(dim, Dim):
            return self.constant(dim, int64)
        text = f"{dim} as a scalar"
        if text not in self._dims:
            one = self.dim(dim)
            self._dims[text] = self._in_front(lambda: self("Reshape", one, self.ints([])))
        return self._dims[text]

    def shape(self, dims: Shape) -> Val:
        """Return sizes as a tensor of one dim."""
        if not any(isinstance(d, Dim) for d in dims):
            return self.ints([int(d) for d in dims])
        text = str(tuple(dims))
        if text not in self._dims:
            entries = [self.dim(d) for d in dims]
            self._dims[text] = self._in_front(
                lambda: self("Concat", *entries, axis=0) if len(entries) > 1 else entries[0]
            )
        return self._dims[text]

    def _in_front(self, write: Callable[[], Val]) -> Val:
        """Write nodes that bodies can read, too: outside of all."""
        outer, self.nodes = self.nodes, self.sizes
        at, self._at = self._at, None
        try:
            return write()
        finally:
            self.nodes, self._at = outer, at

    def _computed(self, text: ast.AST) -> Val:
        match text:
            case ast.Expression(body=body):
                return self._computed(body)
            case ast.Constant(value=int(value)):
                return self.ints([value])
            case ast.Name(id=name):
                return self._symbols[name]()
            case ast.UnaryOp(operand=operand):
                return self("Neg", self._computed(operand))
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                # Div drops fractions towards 0; of a multiple there is none.
                a, b = self._computed(left), self._computed(right)
                return self("Div", self("Sub", a, self("Mod", a, b)), b)
            case ast.BinOp(left=left, op=op, right=right):
                return self(_BINARY[type(op)], self._computed(left), self._computed(right))
            case ast.Call(func=ast.Name(id=name), args=args):
                return self(name.title(), *map(self._computed, args))
        raise AssertionError(ast.dump(text))

    # Forms that many writers share.

    def accumulated(self, x: Val) -> Val:
        """Return it in the dtype in which sums of it are accumulated."""
        return self.cast(x, float32) if x.dtype.is_low_precision else x

    def measure(self, dim: DimLike, x: Val, axis: int) -> None:
        """Say that a symbol is the size of a value along an axis."""
        self.symbol(str(dim), partial(self, "Shape", x, dtype=int64, start=axis, end=axis + 1))

    def reshape(self, x: Val, dims: Shape) -> Val:
        """Give the elements another shape."""
        symbolic = [axis for axis, d in enumerate(dims) if isinstance(d, Dim)]
        if len(symbolic) == 1 and 0 not in dims:
            known = [-1 if isinstance(d, Dim) else d for d in dims]
            return self("Reshape", x, self.ints(known))
        # A size that is 0 when the model is run is one, and not "as it was".
        return self("Reshape", x, self.shape(dims), allowzero=int(bool(symbolic) or 0 in dims))

    def expand(
        self, compose: Callable[..., Any], inputs: Sequence[Val], kinds: Sequence[TensorType]
    ) -> list[Val]:
        """Write what a function makes of tensors of these types."""
        assert self._at is not None
        graph = BodyGraph("onnx")
        with graph, graph.located(self._at.loc):
            parameters = [graph.parameter(kind) for kind in kinds]
            made = compose(*parameters)
        outputs = [made] if isinstance(made, Tensor) else list(made)
        return self.inline(parameters, outputs, inputs)

    def inline(
        self, parameters: Sequence[Tensor], outputs: Sequence[Tensor], inputs: Sequence[Val]
    ) -> list[Val]:
        """Write what outputs need, with values for the parameters; return the outputs' values."""
        values = {(t.node, t.index): v for t, v in zip(parameters, inputs, strict=True)}
        heads = {t.node for t in parameters}
        outer, self._values = self._values, values
        for node in ancestors(outputs, stop=heads.__contains__):
            if node not in heads:
                for index, made in enumerate(self._written(node)):
                    values[node, index] = made
        self._values = outer
        return [values[t.node, t.index] for t in outputs]

    def value(self, tensor: Tensor) -> Val:
        """Return the ONNX value of a tensor above the node that is being written."""
        return self._values[tensor.node, tensor.index]

    def _written(self, node: Node) -> Sequence[Val]:
        inputs = [self.value(t) for t in node.inputs]
        before, self._at = self._at, node
        try:
            for kind in (*node.types, *[t.type for t in node.inputs]):
                stored.check_dtype(kind.dtype, self.opset)
            dtypes = [*[x.dtype for x in inputs], *[kind.dtype for kind in node.types]]
            operand = next((dtype for dtype in dtypes if dtype.is_complex), dtypes[0])
            folded = None if operand.is_complex else self._folded(node, inputs)
            if folded is not None:
                return folded
            write = find_writer(node.op.name, operand)
            if write is None:
                raise Unsupported("complex numbers" if operand.is_complex else "")
            made = write(self, node, *inputs)
            return [made] if isinstance(made, Val) else made
        except Unsupported as error:
            self.problems.append(Problem.of(node, error))
            return [Val("", kind.dtype) for kind in node.types]
        finally:
            self._at = before

    def _folded(self, node: Node, inputs: Sequence[Val]) -> list[Val] | None:
        """Return constants for what constants alone are computed into, unless these are larger."""
        op = node.op
        arrays = [self.arrays[x.name] for x in inputs if x.name in self.arrays]
        if not arrays or len(arrays) < len(inputs) or PURE not in op.traits:
            return None
        # A loop may go on for ever: it is for whoever runs the model.
        if op.traits & {RANDOM, EFFECT} or any(True for _ in nested(op.values)) or op.symbols:
            return None
        if not all(kind.is_static for kind in node.types):
            return None
        if sum(kind.nbytes for kind in node.types) > max(_LITTLE, *[a.nbytes for a in arrays]):
            return None
        with np.errstate(all="ignore"):
            made = op.eval(np, *arrays)
        return [self.constant(a) for a in (made if op.multiple else [made])]

    def body(
        self,
        name: str,
        parameters: Sequence[tuple[Val, TensorType]],
        write: Callable[[], Sequence[Val]],
        kinds: Sequence[TensorType],
    ) -> GraphProto:
        """Return the graph of an attribute, whose nodes a function writes.

        Args:
            name: What to call it.
            parameters: Its inputs.
            write: Writes the nodes and returns the outputs.
            kinds: The outputs' types.
        """
        outer, self.nodes = self.nodes, []
        self._depth += 1
        try:
            outputs = [self("Identity", x) for x in write()]
            wanted = {x.name for x in outputs}
            return helper.make_graph(
                pruned(self.nodes, wanted),
                name,
                [described(x.name, kind) for x, kind in parameters],
                [described(x.name, kind) for x, kind in zip(outputs, kinds, strict=True)],
            )
        finally:
            self.nodes = outer
            self._depth -= 1

    def drawn(self, op: Op, draw: Callable[[], Val]) -> Val:
        """Return the value of a draw; equal ops draw the same.

        Raises:
            Unsupported: It is in a loop or a branch, where others can't see what is drawn.
        """
        if self._depth:
            raise Unsupported("in a loop or a branch")
        if op not in self._drawn:
            self._drawn[op] = draw()
        return self._drawn[op]

    def fresh(self, name: str, dtype: DType) -> Val:
        """Return a value that is an input of a body."""
        return Val(self.unique(name), dtype)


def described(name: str, kind: TensorType) -> ValueInfoProto:
    """Return a value's name with its type; symbolic sizes keep their names."""
    dims = [str(d) if isinstance(d, Dim) else d for d in kind.shape]
    return helper.make_tensor_value_info(name, number_of(kind.dtype), dims)


def fields(node: Node) -> Any:
    """Return a node's op, whose fields are read."""
    return node.op


def positions(b: Builder, count: DimLike, start: DimLike = 0, step: int = 1) -> Val:
    """Return start, start + step, …"""
    if not isinstance(count, Dim) and not isinstance(start, Dim) and count <= 64:
        return b.ints([start + step * i for i in range(count)])
    return b("Range", b.size(start), b.size(start + count * step), b.size(step), dtype=int64)
