"""Matrix products with epilogues that cuBLASLt can compute: the op `fused_product`.

These are a bias, another matrix that is added, GELU by the hyperbolic tangent, which also leaves
what its gradient needs, that gradient, and sums of columns, the gradients of biases. All else that
follows a product is done by a kernel after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from graphfw.ir.build import emit_all, rewire
from graphfw.ir.constants import constant_array
from graphfw.ir.dim import always_ge
from graphfw.ir.dtype import DType, bfloat16, float16, float32
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.op import COMMUTATIVE
from graphfw.ir.rebuild import derive, live_nodes
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.args import converted
from graphfw.ops.creation.inputs import placeholder
from graphfw.ops.elementwise.arithmetic import Add
from graphfw.ops.elementwise.cast import AsType
from graphfw.ops.linalg.fused_matmul import FusedProduct
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.reduce.reductions import Sum
from graphfw.ops.shape.movement import Reshape
from graphfw.passes.base import Pass
from graphfw.passes.pipelines import DEFAULT

_DTYPES = (float16, bfloat16, float32)


@dataclass(eq=False)
class _Unit:
    """A product and what it takes up.

    Attributes:
        node: The product.
        factors: The op's first inputs.
        others: Its other inputs, by their names.
        fields: The op's fields.
        results: What the op's outputs take the place of, by their names.
    """

    node: Node
    factors: tuple[Tensor, ...]
    others: dict[str, Tensor]
    fields: dict[str, Any]
    results: dict[str, Tensor]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The nodes that are computed before."""
        return (*self.factors, *self.others.values())


_Work: TypeAlias = "Node | _Unit"


@dataclass(frozen=True)
class FuseEpilogues(Pass):
    """Replace products, along with what cuBLASLt computes besides, by the op `fused_product`."""

    name = "fuse-epilogues"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        units = _Finder(graph).units()
        order = _ordered(graph, units)
        if order is None:  # a sum is needed for the very product that it was to come from
            units = [unit for unit in units if "sums" not in unit.results]
            order = _ordered(graph, units)
            assert order is not None
        if not units:
            return graph
        hits["fused_product"] += len(units)
        return _rebuilt(graph, order)


class _Finder:
    """Finds products that take up something; of what they take up, others read the last only."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = live_nodes(graph)
        self._order = {node: index for index, node in enumerate(self._nodes)}
        self._demanded = set(graph.outputs)
        self._readers: dict[Tensor, list[Node]] = {}
        for node in self._nodes:
            for tensor in dict.fromkeys(node.inputs):
                self._readers.setdefault(tensor, []).append(node)
        self._taken: set[Node] = set()
        self._gelus = {found.leaves[0]: found for found in self._found("gelu")}
        self._slopes = {found.leaves[0]: found for found in self._found("gelu_grad")}

    def units(self) -> list[_Unit]:
        """Return the products that take up something."""
        found = [self._unit(node) for node in self._nodes if _is_product(node)]
        return [unit for unit in found if unit.fields]

    def _unit(self, node: Node) -> _Unit:
        (product,) = node.outputs
        unit = _Unit(node, node.inputs, {}, {}, {"result": product})
        slope = self._slopes.get(product)
        if slope is not None and self._is_closed(slope):
            self._take(unit, slope.root.node, activation="gelu_grad")
            unit.others["at"] = slope.leaves[1]
            return unit
        self._widen(unit)
        self._add_sums(unit)
        if "sums" not in unit.fields:
            self._add_bias(unit)
            self._add_residual(unit)
            self._activate(unit)
        return unit

    def _take(self, unit: _Unit, node: Node, **fields: Any) -> None:
        """Let a product take up a node, whose output is the result then."""
        self._taken.add(node)
        unit.fields |= fields
        unit.results["result"] = node.outputs[0]

    def _reader(self, unit: _Unit) -> Node | None:
        """Return the only reader of the result so far."""
        result = unit.results["result"]
        readers = self._readers.get(result, ())
        if result in self._demanded or len(readers) != 1 or readers[0] in self._taken:
            return None
        return readers[0]

    def _widen(self, unit: _Unit) -> None:
        """Take up a cast to float32 of what is small beside the factors: gradients of weights.

        Others are better left in 16 bits, and cast by what reads them.
        """
        reader = self._reader(unit)
        if (
            reader is None
            or not isinstance(reader.op, AsType)
            or reader.types[0].dtype is not float32
        ):
            return
        result, factors = reader.types[0], unit.factors
        if all([isinstance(dim, int) for dim in result.shape]):
            sizes = [x.size for x in factors]
            if not all([isinstance(size, int) and size < result.size for size in sizes]):
                self._take(unit, reader, widens=True)

    def _add_sums(self, unit: _Unit) -> None:
        """Let a product leave the sums of its second factor's columns, if something wants them.

        Only of 16-bit floats, of which it is known that cuBLASLt takes it; without it, a kernel
        adds up while it computes what is added up.
        """
        rows, b = unit.results["result"].shape[:-1], unit.factors[1]
        is_there = all([isinstance(dim, int) and dim > 0 for dim in rows])
        if not b.dtype.is_low_precision or not is_there:
            return
        for source in self._same_rows(b):
            if source.dtype is not b.dtype and "widens" not in unit.fields:
                continue
            for node in self._readers[source]:
                if isinstance(node.op, Sum) and node not in self._taken:
                    if node.op.axes == tuple(range(source.ndim - 1)):
                        self._taken.add(node)
                        unit.fields["sums"] = True
                        unit.results["sums"] = node.outputs[0]
                        return

    def _same_rows(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors with a matrix's rows, in whatever shape, also those in float32."""
        found = [tensor]
        if isinstance(tensor.node.op, Reshape):
            found += [x for x in tensor.node.inputs if x.shape[-1:] == tensor.shape[-1:]]
        casts = [
            node.outputs[0]
            for source in found
            for node in self._readers[source]
            if isinstance(node.op, AsType) and node.types[0].dtype is float32
        ]
        return [*found, *[cast for cast in casts if cast in self._readers]]

    def _add_bias(self, unit: _Unit) -> None:
        reader, result = self._reader(unit), unit.results["result"]
        bias = _other_addend(reader, result)
        if reader is None or bias is None or bias.ndim == 0:
            return
        *lead, columns = bias.shape
        is_row = columns == result.shape[-1] != 1 and all([dim == 1 for dim in lead])
        if is_row and reader.types[0].shape == result.shape:
            self._take(unit, reader, bias=True)
            unit.others["bias"] = bias

    def _add_residual(self, unit: _Unit) -> None:
        reader, result = self._reader(unit), unit.results["result"]
        residual = _other_addend(reader, result)
        # Where there is nothing to add up, cuBLASLt is not called.
        if reader is None or residual is None or not always_ge(unit.factors[0].shape[-1], 1):
            return
        if residual.shape == result.shape:
            self._take(unit, reader, residual=True)
            unit.others["residual"] = residual

    def _activate(self, unit: _Unit) -> None:
        before = unit.results["result"]
        gelu = self._gelus.get(before)
        if gelu is not None:
            self._take(unit, gelu.root.node, activation="gelu")
            unit.results["before"] = before

    def _found(self, kind: str) -> Iterator[_Found]:
        """Yield where a composition stands in the graph."""
        for node in self._nodes:
            dtype = node.types[0].dtype
            if dtype not in _DTYPES:
                continue
            pattern = _pattern(kind, dtype)
            if node.op != pattern.root.node.op:
                continue
            found: dict[Tensor, Tensor] = {}
            if _matches(pattern.root, node.outputs[0], found):
                leaves = [found[leaf] for leaf in pattern.leaves]
                if all([leaf.shape == node.types[0].shape for leaf in leaves]):
                    inner = {tensor.node for tensor in found.values()}
                    inner -= {leaf.node for leaf in leaves}
                    yield _Found(node.outputs[0], leaves, frozenset(inner))

    def _is_closed(self, found: _Found) -> bool:
        """Return whether nothing but the root of a composition shows anything of its first leaf."""
        reached = {found.leaves[0]}
        for node in sorted(found.inner, key=self._order.__getitem__):
            if not reached.isdisjoint(node.inputs):
                reached.update(node.outputs)
        reached.discard(found.root)
        readers = [node for tensor in reached for node in self._readers.get(tensor, ())]
        return reached.isdisjoint(self._demanded) and found.inner.issuperset(readers)


def _is_product(node: Node) -> bool:
    is_float = node.types[0].dtype in _DTYPES
    return isinstance(node.op, MatMul) and is_float and node.inputs[1].ndim == 2


def _other_addend(node: Node | None, tensor: Tensor) -> Tensor | None:
    """Return the tensor that a node adds to another one, if it adds two."""
    if node is None or not isinstance(node.op, Add):
        return None
    a, b = node.inputs
    return None if a is b else b if a is tensor else a


# Compositions: made as users' are, and looked for in graphs.


class _Found(NamedTuple):
    """A composition: as `_pattern` makes it, or in a graph.

    Attributes:
        root: Its result.
        leaves: What it is computed from.
        inner: Its nodes, constants too.
    """

    root: Tensor
    leaves: list[Tensor]
    inner: frozenset[Node]


@cache
def _pattern(kind: str, dtype: DType) -> _Found:
    """Return GELU by the hyperbolic tangent, or its gradient, as passes leave it."""
    with Graph() as graph:
        ct, x = [placeholder(("m", "n"), dtype, name=name) for name in ("ct", "x")]
        root, leaves = F.gelu(x, approximate="tanh"), [x]
        if kind == "gelu_grad":
            (root,), leaves = F.cotangents([root], [x], [ct]), [ct, x]
    graph = derive(graph, [root, *leaves])
    for one in DEFAULT:
        graph = one(graph)
    root, *leaves = graph.outputs
    return _Found(root, leaves, frozenset(graph.nodes))


def _matches(pattern: Tensor, tensor: Tensor, found: dict[Tensor, Tensor]) -> bool:
    """Return whether a tensor matches the pattern; add what its variables stand for."""
    if pattern in found:
        return found[pattern] is tensor
    node, mine = pattern.node, tensor.node
    wanted = constant_array(pattern)
    if isinstance(node.op, Placeholder):
        is_like = tensor.dtype is pattern.dtype
    elif wanted is not None:
        array = constant_array(tensor)
        is_like = array is not None and (
            array.dtype == wanted.dtype and array.tobytes() == wanted.tobytes()
        )
    else:
        is_like = node.op == mine.op and _match_inputs(node, mine, found)
    if is_like:
        found[pattern] = tensor
    return is_like


def _match_inputs(pattern: Node, node: Node, found: dict[Tensor, Tensor]) -> bool:
    orders = [node.inputs]
    if COMMUTATIVE in node.op.traits:
        orders.append(node.inputs[::-1])
    for inputs in orders:
        trial = dict(found)
        pairs = zip(pattern.inputs, inputs, strict=True)
        if all(_matches(wanted, tensor, trial) for wanted, tensor in pairs):
            found.update(trial)
            return True
    return False


# Putting the units in the graph.


def _ordered(graph: Graph, units: Sequence[_Unit]) -> list[_Work] | None:
    """Return the work in order: that of the graph, but where a unit needs something.

    Units drop what they would keep and nothing reads. None if a unit needs what it makes.
    """
    unit_of = {tensor: unit for unit in units for tensor in unit.results.values()}
    read = set(graph.outputs)
    wanted: set[_Work] = set()
    left = [*graph.outputs]
    while left:
        tensor = left.pop()
        work = unit_of.get(tensor, tensor.node)
        if work not in wanted:
            wanted.add(work)
            read.update(work.inputs)
            left.extend(work.inputs)
    for unit in units:
        unit.results = {n: t for n, t in unit.results.items() if n != "before" or t in read}
    order: list[_Work] = []
    is_done: dict[_Work, bool] = {}
    for node in graph.nodes:
        works = [unit_of.get(tensor, node) for tensor in node.outputs]
        todo: list[_Work] = [work for work in works if work in wanted]
        while todo:
            work = todo[-1]
            if work not in is_done:
                is_done[work] = False
                sources = [unit_of.get(x, x.node) for x in work.inputs]
                if any([is_done.get(source) is False for source in sources]):
                    return None
                todo += [source for source in reversed(sources) if source not in is_done]
                continue
            todo.pop()
            if not is_done[work]:
                is_done[work] = True
                order.append(work)
    return order


def _rebuilt(graph: Graph, order: Iterable[_Work]) -> Graph:
    derived = derive(graph, ())
    new: dict[Tensor, Tensor] = {}
    with derived:
        for work in order:
            inputs = tuple([new[x] for x in work.inputs])
            if isinstance(work, _Unit):
                derived.provenance = work.node.loc
                new |= _emitted(work, inputs)
                continue
            is_same = all([a is b for a, b in zip(inputs, work.inputs, strict=True)])
            made = derived.share(work) if is_same else derived.append(rewire(work, inputs, derived))
            new |= zip(work.outputs, made, strict=True)
    derived.provenance = None
    derived.outputs = tuple([new[tensor] for tensor in graph.outputs])
    return derived


def _emitted(unit: _Unit, inputs: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """Emit a unit's op; return what takes the place of what."""
    op = FusedProduct(**unit.fields, keeps="before" in unit.results)
    a, b, *rest = inputs
    others = dict(zip(unit.others, rest, strict=True))
    if op.bias:
        others["bias"] = F.reshape(others["bias"], b.shape[1:])
    found = emit_all(op, a, b, *[others[name] for name in op.others])
    made = dict(zip(op.results, found, strict=True))
    if op.sums:
        old = unit.results["sums"]
        made["sums"] = F.reshape(converted(made["sums"], old.dtype), old.shape)
    return {old: made[name] for name, old in unit.results.items()}
