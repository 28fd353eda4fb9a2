"""A pass that makes images of 16-bit convolutions channels-last, for cuDNN's fastest engines.

Otherwise cuDNN permutes images for each convolution, in scratch memory. The pass makes the images
of whole regions of a graph [N, *S, C], and permutes only images that enter or leave a region.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphfw.errors import counted
from graphfw.ir.build import emit, emit_all
from graphfw.ir.graph import Graph
from graphfw.ir.op import Op
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.shape import permuted
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import users
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.ops.elementwise.cast import AsType
from graphfw.ops.nn.channels_last import PixelCorrelation, channels_second, pixels_last
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.ops.reduce.reductions import Reduction
from graphfw.ops.shape.flip_roll import Flip
from graphfw.ops.shape.movement import PermuteDims
from graphfw.passes.base import Pass
from graphfw.runtime.cupy_executor import cudnn
from graphfw.runtime.cupy_executor.convolution.channels_last_ops import (
    CHANNELS,
    ChannelsLastForm,
    channels_last_form,
    is_matrix_product,
    keeps_order,
    moves,
    permuted_as_needed,
)
from graphfw.runtime.cupy_executor.convolution.cudnn_descriptor import CONVOLUTIONS
from graphfw.runtime.limits import switched_off


def why_not() -> str:
    """Return why images keep their layout; "" if they don't.

    Raises:
        ArgumentError: What the environment says is neither 0 nor 1.
    """
    off = switched_off("GRAPHFW_CHANNELS_LAST")
    return cudnn.why_not() or off


def said(graph: Graph) -> list[str]:
    """Return lines about a compiled graph: the layout of images, if cuDNN is asked."""
    if cudnn.why_not():
        return []
    lines = []
    count = sum([isinstance(node.op, PixelCorrelation) for node in graph.nodes])
    if count:
        lines.append(f"images are channels-last for {counted(count, 'convolution')}")
    for region in regions(graph):
        reason = why_not() or f"{len(region.edges)} would change layout for {region.wanting}"
        lines.append(f"images are channels-first for {region.convolutions} convolutions: {reason}")
    return lines


@dataclass(frozen=True)
class PropagateChannelsLast(Pass):
    """Let the images of regions that have more convolutions than edges be channels-last."""

    name = "propagate-channels-last"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        taken = [region for region in regions(graph) if region.is_worth]
        if not taken:
            return graph
        for region in taken:
            hits["convolutions"] += region.convolutions
            hits["permuted"] += len(region.edges)
        return rebuild(_Rewriting(graph, taken).result())  # without what is turned for nobody


class ChannelsLastRegion(NamedTuple):
    """Nodes that work on images, each of which shares an image with another.

    Attributes:
        nodes: The nodes, and their channels-last forms.
        edges: The images that have another layout outside: inputs, and outputs that are read there.
    """

    nodes: Mapping[Node, ChannelsLastForm]
    edges: Sequence[Tensor]

    @property
    def convolutions(self) -> int:
        """The number of convolutions and of their gradients."""
        return sum([isinstance(node.op, CONVOLUTIONS) for node in self.nodes])

    @property
    def wanting(self) -> int:
        """The number of convolutions for which cuDNN would permute images: not for products."""
        found = [node for node in self.nodes if isinstance(node.op, CONVOLUTIONS)]
        return sum([not is_matrix_product(node) for node in found])

    @property
    def is_worth(self) -> bool:
        """Whether `wanting` is more than the number of edges."""
        return self.wanting > len(self.edges)


def regions(graph: Graph) -> list[ChannelsLastRegion]:
    """Return the regions of a graph that have convolutions for which cuDNN is asked."""
    nodes = live_nodes(graph)
    if not any([isinstance(node.op, CONVOLUTIONS) for node in nodes]):
        return []
    carriers = {node: how for node in nodes if (how := channels_last_form(node)) is not None}
    groups: dict[Node, list[Node]] = {node: [node] for node in carriers}
    for node, how in carriers.items():
        for number in how.images:
            tensor = node.inputs[number]
            source = carriers.get(tensor.node)
            if source is not None and source.makes and moves(tensor.shape):
                _join(groups, groups[node], groups[tensor.node])
    edges, found = _Edges(nodes, {*graph.outputs}), list[ChannelsLastRegion]()
    for members in {id(group): {*group} for group in groups.values()}.values():
        if any([isinstance(node.op, CONVOLUTIONS) for node in members]):
            inside = {node: carriers[node] for node in nodes if node in members}
            edges.trim(inside)
            found.append(ChannelsLastRegion(inside, edges.of(inside)))
    return found


def _join(groups: dict[Node, list[Node]], one: list[Node], other: list[Node]) -> None:
    if one is other:
        return
    small, large = sorted((one, other), key=len)
    large.extend(small)
    for node in small:
        groups[node] = large


class _Edges:
    """Finds the images that are needed in another layout.

    Args:
        nodes: The nodes of the graph.
        demanded: The graph's outputs.
    """

    def __init__(self, nodes: Sequence[Node], demanded: set[Tensor]) -> None:
        self._readers = users(nodes)
        self._demanded = demanded

    def trim(self, inside: dict[Node, ChannelsLastForm]) -> None:
        """Remove nodes that are no convolutions and have more edges than they save."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for node, how in [*inside.items()]:
                if isinstance(node.op, CONVOLUTIONS):
                    continue
                around = {*node.inputs, *node.outputs}
                edges = sum([self.is_edge(tensor, inside) for tensor in around])
                del inside[node]
                if sum([self.is_edge(tensor, inside) for tensor in around]) < edges:
                    is_settled = False
                else:
                    inside[node] = how

    def of(self, inside: Mapping[Node, ChannelsLastForm]) -> list[Tensor]:
        """Return the edges of a region."""
        around = dict.fromkeys([t for node in inside for t in (*node.inputs, *node.outputs)])
        return [tensor for tensor in around if self.is_edge(tensor, inside)]

    def is_edge(self, tensor: Tensor, inside: Mapping[Node, ChannelsLastForm]) -> bool:
        """Return whether an image changes layout, for its readers or for the caller."""
        if not moves(tensor.shape):
            return False
        source = inside.get(tensor.node)
        if source is not None and source.makes:
            readers = self._readers[tensor.node]
            return tensor in self._demanded or any(
                [not _takes(node, tensor, inside) for node in readers if _reads(node, tensor)]
            )
        if _is_free(tensor):
            return False
        readers = [node for node in self._readers[tensor.node] if node in inside]
        return any([_takes(node, tensor, inside) for node in readers if _reads(node, tensor)])


def _reads(node: Node, tensor: Tensor) -> bool:
    """Return whether a node reads a tensor; a tensor that it only waits for may have any layout."""
    inputs = node.inputs[: node.op.count] if isinstance(node.op, Barrier) else node.inputs
    return any([x is tensor for x in inputs])


def _takes(node: Node, tensor: Tensor, inside: Mapping[Node, ChannelsLastForm]) -> bool:
    """Return whether a node takes an image channels-last, and only so."""
    how, op = inside.get(node), node.op
    if how is None:
        lying = permuted(tensor.shape, pixels_last(tensor.ndim))
        back = channels_second(tensor.ndim)
        return isinstance(op, PermuteDims) and keeps_order(lying, [back[a] for a in op.axes])
    return all([number in how.images for number, x in enumerate(node.inputs) if x is tensor])


def _is_free(tensor: Tensor) -> bool:
    """Return whether an image from outside is channels-last at no cost in runs."""
    op, order = tensor.node.op, pixels_last(tensor.ndim)
    if isinstance(op, PermuteDims):
        return keeps_order(tensor.node.inputs[0].shape, [op.axes[axis] for axis in order])
    return isinstance(op, ConstantOp)


def _written(tensor: Tensor) -> Tensor:
    """Return a tensor that is no permuted view, so that it is permuted once for all readers."""
    is_view = isinstance(tensor.node.op, PermuteDims)
    return emit(AsType(tensor.dtype), tensor) if is_view else tensor


class _Rewriting:
    """Makes a graph whose regions are channels-last.

    Args:
        graph: The graph as it was.
        taken: The regions.
    """

    def __init__(self, graph: Graph, taken: Sequence[ChannelsLastRegion]) -> None:
        self._graph = graph
        self._inside = {node: how for region in taken for node, how in region.nodes.items()}
        self._summed = self._from_sums()
        self._made: dict[Tensor, Tensor] = {}
        self._apart: dict[Tensor, Tensor] = {}
        self._laid: dict[Tensor, Tensor] = {}

    def result(self) -> Graph:
        """Return the graph, with all images of regions channels-first again for other readers."""
        return rebuild(self._graph, self._rewrite)

    def _rewrite(self, node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        how = self._inside.get(node)
        if how is None:
            if isinstance(node.op, PermuteDims) and isinstance(inputs[0].node.op, PermuteDims):
                return (permuted_as_needed(inputs[0], node.op.axes),)
            return None
        operands = [self._operand(node, how, n, x) for n, x in enumerate(inputs)]
        outputs = how.make(operands)
        if not how.makes:
            return outputs
        self._made.update(zip(node.outputs, outputs, strict=True))
        return tuple([permuted_as_needed(t, channels_second(t.ndim)) for t in outputs])

    def _operand(self, node: Node, how: ChannelsLastForm, number: int, tensor: Tensor) -> Tensor:
        """Return the operand of a region's node, for an input in either layout."""
        before = node.inputs[number]
        if number in how.images:
            if before not in self._made:
                self._made[before] = _written(permuted_as_needed(tensor, pixels_last(how.rank)))
            return self._made[before]
        if isinstance(node.op, Conv) and not is_matrix_product(node):
            return self._laid_out(tensor)
        if before.node not in self._summed or not how.makes:
            return tensor
        if before not in self._apart:
            (self._apart[before],) = emit_all(Barrier(1), tensor)
        return self._apart[before]

    def _laid_out(self, weights: Tensor) -> Tensor:
        """Return weights whose array is channels-last like images, for all that read it.

        If a cast makes the array, the cast writes it so; gradients of images read it reversed.
        """
        views, root = list[Op](), weights
        while isinstance(root.node.op, PermuteDims | Flip):
            views.append(root.node.op)
            (root,) = root.node.inputs
        if not moves(root.shape):
            return weights
        if root not in self._laid:
            cast, rank = root.node.op, root.ndim
            source = root.node.inputs[0] if isinstance(cast, AsType) else root
            made = emit(AsType(root.dtype), permuted_as_needed(source, pixels_last(rank)))
            self._laid[root] = permuted_as_needed(made, channels_second(rank))
        made = self._laid[root]
        for op in reversed(views):
            made = (
                permuted_as_needed(made, op.axes) if isinstance(op, PermuteDims) else emit(op, made)
            )
        return made

    def _from_sums(self) -> set[Node]:
        """Return the nodes outside that depend on sums over positions in regions.

        In batch norm, a kernel that sums all pixels of each channel, and then computes something
        for each channel, would have few columns: no work for many threads. So such nodes are
        separate from those that apply the results to images.
        """
        found: set[Node] = set()
        for node in live_nodes(self._graph):
            if node in self._inside:
                if isinstance(node.op, Reduction) and CHANNELS not in node.op.axes:
                    found.add(node)
            elif any([tensor.node in found for tensor in node.inputs]):
                found.add(node)
        return found
