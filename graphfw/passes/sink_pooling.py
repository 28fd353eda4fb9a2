"""Pooling moves towards the input: the ops before it then compute fewer elements.

max(relu(x + b)) is relu(max(x) + b), to the last bit: rounding keeps an order, too. So nothing
stands between a convolution and what pools it. A sum moves before a convolution whose kernels have
one element: sum(conv(x, w)) is conv(sum(x), w), as much as numbers that are added in another order
are the same. And a window that sees a whole plane is a reduction like others. Where nothing can
move, what stands between a convolution and its pooling becomes part of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from graphfw.ir.build import constant, emit
from graphfw.ir.constants import constant_array
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.op import Op
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import users
from graphfw.ops.elementwise.arithmetic import Add, Maximum, Minimum, Subtract
from graphfw.ops.nn.activations import Relu
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.ops.nn.pooling_ops import (
    WindowArgmax,
    WindowMax,
    WindowPut,
    WindowReduction,
    WindowReluSum,
    WindowRoute,
    WindowSum,
)
from graphfw.passes.base import Pass
from graphfw.utils.records import record

_RISING: Mapping[type[Op], tuple[int, ...]] = {
    Add: (0, 1),
    Maximum: (0, 1),
    Minimum: (0, 1),
    Relu: (0,),
    Subtract: (0,),
}
"""Ops that keep the order of an input, and of which: the other is the same in a whole plane."""


@record
class GlobalPoolToReduction(Pass):
    """Replace pooling over whole planes by reductions, which can be fused with other operations."""

    name = "global-pool-to-reduction"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if not _is_whole(node):
                return None
            hits["reduced"] += 1
            (x,), op = inputs, node.op
            assert isinstance(op, WindowReduction)
            reduce = F.sum if isinstance(op, WindowSum) else F.max
            return reduce(x, axis=tuple(range(x.ndim - len(op.window), x.ndim)), keepdims=True)

        return rebuild(graph, rewrite) if any(map(_is_whole, live_nodes(graph))) else graph


class _Readers:
    """The readers of each node of a graph."""

    def __init__(self, graph: Graph, nodes: Sequence[Node]) -> None:
        self._of = users(nodes)
        self._kept = {t.node for t in graph.outputs}

    def is_one(self, node: Node) -> bool:
        """Return whether one node alone reads another one, which is no output."""
        return len(self._of[node]) == 1 and node not in self._kept


_Found = TypeVar("_Found")


def _replaced(
    graph: Graph,
    op: type[Op],
    find: Callable[[Node, _Readers], _Found | None],
    make: Callable[[Op, tuple[Tensor, ...], _Found], Tensor],
    hit: Callable[[], None],
) -> Graph:
    """Return a graph with other tensors in place of the results of an op.

    Args:
        graph: The graph.
        op: The op's class.
        find: What of a node decides how it is replaced, or None where it stays.
        make: The tensor, of the node's op, its inputs in the new graph, and what was found.
        hit: Called for each of them.
    """
    nodes = live_nodes(graph)
    candidates = [node for node in nodes if isinstance(node.op, op)]
    if not candidates:
        return graph
    readers = _Readers(graph, nodes)
    found = {n: what for n in candidates if (what := find(n, readers)) is not None}
    if not found:
        return graph

    def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
        if node not in found:
            return None
        hit()
        return make(node.op, inputs, found[node])

    return rebuild(rebuild(graph, rewrite))  # twice: what was read before goes


@record
class SinkElementwiseBelowPool(Pass):
    """Pool the result of a convolution before a constant is added to it and it is clipped.

    Attributes:
        is_worth: Returns whether this is faster for a convolution and the pooling of its result.
    """

    is_worth: Callable[[Node, Node], bool]
    name = "sink-elementwise-below-pool"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        def find(pool: Node, readers: _Readers) -> list[int] | None:
            steps, node = _steps(pool, readers)
            return (
                steps if steps and isinstance(node.op, Conv) and self.is_worth(node, pool) else None
            )

        return _replaced(graph, WindowMax, find, _before_steps, partial(hits.update, ["moved"]))


@record
class SinkConvBelowPool(Pass):
    """Move sums over windows before a convolution whose own windows have one element.

    Attributes:
        is_worth: Returns whether this is faster for a convolution and the sums of its result.
    """

    is_worth: Callable[[Node, Node], bool]
    name = "sink-conv-below-pool"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        def find(pool: Node, readers: _Readers) -> bool | None:
            conv = pool.inputs[0].node
            is_sole = readers.is_one(conv) and _sees_itself(conv, pool)
            return True if is_sole and self.is_worth(conv, pool) else None

        def make(op: Op, inputs: tuple[Tensor, ...], _: bool) -> Tensor:
            conv = inputs[0].node
            x, weight = conv.inputs
            x = emit(op, x)
            return emit(Conv(x.shape[2:], *conv.op.values[1:]), x, weight)

        return _replaced(graph, WindowSum, find, make, partial(hits.update, ["moved"]))


@record
class FuseConvReluPool(Pass):
    """Make one operation of the bias, the ReLU and the sum over windows after a convolution.

    Attributes:
        is_worth: Returns whether this is faster for a convolution and the sums of its result.
    """

    is_worth: Callable[[Node, Node], bool]
    name = "fuse-conv-relu-pool"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        def find(pool: Node, readers: _Readers) -> Array | None:
            conv, added = _activated(pool, readers) or (None, None)
            return added if conv is not None and self.is_worth(conv, pool) else None

        def make(op: Op, inputs: tuple[Tensor, ...], added: Array) -> Tensor:
            x = inputs[0].node.inputs[0]
            if isinstance(x.node.op, Add):
                x = next(t for t in x.node.inputs if isinstance(t.node.op, Conv))
            return emit(WindowReluSum(*op.values), x, constant(added))

        return _replaced(graph, WindowSum, find, make, partial(hits.update, ["joined"]))


@record
class FuseMaxPoolBackward(Pass):
    """Find the largest elements of windows and add their gradients in one pass over the image.

    Attributes:
        is_worth: Returns whether this is faster for a `window_put`.
    """

    is_worth: Callable[[Node], bool]
    name = "fuse-max-pool-backward"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        def find(put: Node, readers: _Readers) -> bool | None:
            argmax = put.inputs[1].node
            is_sole = readers.is_one(argmax) and _is_of(argmax, put)
            return True if is_sole and self.is_worth(put) else None

        def make(_op: Op, inputs: tuple[Tensor, ...], _: bool) -> Tensor:
            cotangent, number = inputs
            return emit(WindowRoute(*number.node.op.values), cotangent, number.node.inputs[0])

        return _replaced(graph, WindowPut, find, make, partial(hits.update, ["routed"]))


def _before_steps(op: Op, inputs: tuple[Tensor, ...], sides: list[int]) -> Tensor:
    """Apply an op before the steps that lead to its input, each by one of its own inputs."""
    (x,), steps = inputs, []
    for side in sides:
        steps.append((x.node, side))
        x = x.node.inputs[side]
    x = emit(op, x)
    for step, side in reversed(steps):
        operands = list(step.inputs)
        operands[side] = x
        x = emit(step.op, *operands)
    return x


def _activated(pool: Node, readers: _Readers) -> tuple[Node, Array] | None:
    """Return the convolution, and what is added for each output, of which a pool sums the ReLUs."""
    relu = pool.inputs[0].node
    if not isinstance(relu.op, Relu):
        return None
    x, between = relu.inputs[0], [relu]
    added: Array | None = None
    if isinstance(x.node.op, Add):
        between.append(x.node)
        sides = x.node.inputs
        x, other = sides if isinstance(sides[0].node.op, Conv) else sides[::-1]
        added = constant_array(other)
        if added is None:
            return None
    between.append(x.node)
    are_sole = all(map(readers.is_one, between))
    if not isinstance(x.node.op, Conv) or not are_sole or not isinstance(x.shape[1], int):
        return None
    dims = (x.shape[1], *[1] * (x.ndim - 2))
    if added is None:
        added = np.zeros(dims, x.dtype.dtype)
    return (x.node, added.reshape(-1)) if added.shape in (dims, (1, *dims)) else None


def _is_of(argmax: Node, put: Node) -> bool:
    """Return whether numbers are those of the elements that a `window_put` means."""
    if not isinstance(argmax.op, WindowArgmax):
        return False
    (x,), op = argmax.inputs, put.op
    return op.values == (*argmax.op.values, x.shape[x.ndim - len(argmax.op.values[0]) :])


def _is_whole(node: Node) -> bool:
    """Return whether there is one window, which sees all of a plane of floats and nothing else."""
    op = node.op
    if not isinstance(op, WindowReduction) or not node.types[0].dtype.is_floating:
        return False
    rank = len(op.window)
    is_all = op.window == node.inputs[0].shape[-rank:]
    return is_all and set(op.dilations) == {1} and not op.reaches


def _sees_itself(conv: Node, pool: Node) -> bool:
    """Return whether positions of a convolution read the image's own, and all dims are pooled."""
    op = conv.op
    assert isinstance(pool.op, WindowReduction)
    if not isinstance(op, Conv) or len(op.output_sizes) != len(pool.op.window):
        return False
    x, weight = conv.inputs
    steps = {*weight.shape[2:], *op.strides, *op.input_dilations}
    return steps == {1} and set(op.before) == {0} and op.output_sizes == x.shape[2:]


def _steps(pool: Node, readers: _Readers) -> tuple[list[int], Node]:
    """Return by which input to go from step to step, up from a pool, and where that ends."""
    steps: list[int] = []
    (x,) = pool.inputs
    assert isinstance(pool.op, WindowMax)
    rank, node = len(pool.op.window), x.node
    while readers.is_one(node):
        sides = _RISING.get(type(node.op), ())
        rising = [side for side in sides if node.inputs[side].type == x.type]
        side = next((side for side in rising if _is_plain(node, side, rank)), None)
        if side is None:
            return steps, node
        steps.append(side)
        x = node.inputs[side]
        node = x.node
    return [], node


def _is_plain(node: Node, side: int, rank: int) -> bool:
    """Return whether all inputs but one are constants that are finite, the same in a whole plane.

    Infinite ones may make NaNs of what is not the largest.
    """
    for other, tensor in enumerate(node.inputs):
        if other == side:
            continue
        array = constant_array(tensor)
        if array is None or set(tensor.shape[-rank:]) - {1} or not np.isfinite(array).all():
            return False
    return True
