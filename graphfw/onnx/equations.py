"""Equal sizes among an operator's inputs, asserted where symbols leave them open.

In a model one input may say that a dim is `n` and another that it is 2, or `m`. Whoever computes
with sizes alone finds out in each run whether they fit; here they are asserted to be equal where an
operator wants that, and each run checks it before it computes (`fitting.py`). The operators on
elements, Concat and Reshape do so themselves: what they allow besides depends on more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.tensor import Tensor
from graphfw.onnx.fitting import matched
from graphfw.onnx.node import ModelNode, Value

Labels: TypeAlias = Sequence[Hashable]
"""A label for each dim of an input: dims with the same are equal; None: nothing is said of it."""

Labelling: TypeAlias = Callable[[ModelNode, Sequence[Tensor | None]], Sequence[Labels]]
"""Returns the labels of a node's inputs; of fewer, where nothing is said of the last ones."""


def with_equal_sizes(node: ModelNode, inputs: Sequence[Value]) -> Sequence[Value]:
    """Return a node's inputs, with assertions where their sizes are not known to be equal."""
    rule = _RULES.get((node.domain, node.op_type))
    tensors = [x if isinstance(x, Tensor) else None for x in inputs]
    if rule is None or not any(
        isinstance(d, Dim) for x in tensors if x is not None for d in x.shape
    ):
        return inputs
    labels = rule(node, tensors)
    fitted = matched(tensors[: len(labels)], labels)
    made = [x if new is None else new for x, new in zip(inputs, fitted, strict=False)]
    return [*made, *inputs[len(labels) :]]


def _written(spec: str, x: Tensor | None) -> Labels:
    """Return labels as they are written: a letter for each dim.

    A "." is a dim of which nothing is said, "*" any number of them; "+" are those dims that "+"
    stands for in another input. Where an input has not so many dims, nothing is said of any.
    """
    if x is None:
        return ()
    before, rest, after = spec.partition("+" if "+" in spec else "*")
    between = x.ndim - len(before) - len(after)
    if between < 0 or (between > 0 and not rest):
        return (None,) * x.ndim
    middle = [("+", i) if rest == "+" else None for i in range(between)]
    return [*before, *middle, *after]


def _lettered(*specs: str) -> Labelling:
    def rule(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
        return [_written(spec, x) for spec, x in zip(specs, xs, strict=False)]

    return rule


def _broadcast(x: Tensor | None, labels: Sequence[str]) -> Labels:
    """Return the labels of an input that broadcasts to dims with these."""
    if x is None or x.ndim > len(labels):
        return () if x is None else (None,) * x.ndim
    return _unless_one(x.shape, labels[len(labels) - x.ndim :])


def _product(first: int = 0, second: int = 1) -> Labelling:
    """Return the rule of a product of matrices, which are these inputs."""

    def rule(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
        labels: list[Labels] = [() if x is None else (None,) * x.ndim for x in xs]
        a, b = xs[first], xs[second]
        moved = node.attr("transBatchA", 0) or node.attr("transBatchB", 0)  # the FusedMatMul's
        if a is None or b is None or not a.ndim or not b.ndim or moved:
            return labels
        labels[first] = _factor(a, ["rows", "inner"], node.attr("transA", 0))
        labels[second] = _factor(b, ["inner", "columns"], node.attr("transB", 0))
        return labels

    return rule


def _factor(x: Tensor, labels: list[str], is_transposed: int) -> Labels:
    """Return the labels of a factor: those of its matrices, after dims that broadcast."""
    if x.ndim == 1:
        return ["inner"]
    outer = [f"batch {i}" for i in range(x.ndim - 2, 0, -1)]
    return [*_unless_one(x.shape[:-2], outer), *(labels[::-1] if is_transposed else labels)]


def _unless_one(sizes: Sequence[DimLike], labels: Labels) -> Labels:
    return [None if size == 1 else label for size, label in zip(sizes, labels, strict=True)]


def _gemm(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
    a = _written("km" if node.attr("transA", 0) else "mk", xs[0])
    b = _written("nk" if node.attr("transB", 0) else "kn", xs[1])
    return [a, b, *[_broadcast(x, "mn") for x in xs[2:]]]


def _convolution(x: int = 0, w: int = 1, bias: int = 2) -> Labelling:
    """Return the rule of a convolution, of which these are the inputs."""

    def rule(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
        labels: list[Labels] = [() if each is None else (None,) * each.ndim for each in xs]
        # With groups a weight sees some of the channels: `gf.conv` tells whether it fits.
        inner = "c" if node.attr("group", 1) == 1 else "."
        for index, spec in ((x, "nc*"), (w, f"m{inner}*"), (bias, "m")):
            if index < len(xs):
                labels[index] = _written(spec, xs[index])
        return labels

    return rule


def _trailing(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
    """A scale and a bias broadcast to the input."""
    x = xs[0]
    if x is None:
        return ()
    labels = [f"dim {i}" for i in range(x.ndim)]
    return [labels, *[_broadcast(each, labels) for each in xs[1:]]]


def _quantised(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
    """Scales and zero points may be one for each position along an axis."""
    x, *others = xs
    if x is None:
        return ()
    labels: list[str | None] = [None] * x.ndim
    axis = node.attr("axis", 1)
    if -x.ndim <= axis < x.ndim:
        labels[axis] = "a"
    return [labels, *[() if each is None else _broadcast(each, "a") for each in others]]


def _recurrent(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
    batch_first = bool(node.attr("layout", 0))
    state = "bdh" if batch_first else "dbh"
    x = "bti" if batch_first else "tbi"
    specs = (x, "dgi", "dgh", "d.", "b", state, state, "d.")
    return _lettered(*specs)(node, xs)


def _einsum(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
    terms = "".join(node.attr("equation").split()).partition("->")[0].split(",")
    if "..." in node.attr("equation") or len(terms) != len(xs):
        return ()
    labels = _lettered(*terms)(node, xs)
    return [
        () if x is None else _unless_one(x.shape, row) for x, row in zip(xs, labels, strict=True)
    ]


def _scatter_nd(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
    x, indices, updates = xs
    if x is None or indices is None or updates is None or not indices.ndim:
        return ()
    positions: list[Hashable] = [f"position {i}" for i in range(indices.ndim - 1)]
    dims: list[Hashable] = [f"dim {i}" for i in range(x.ndim)]
    count = indices.shape[-1]
    whole = [*positions, *dims[count:]] if isinstance(count, int) else []
    labels = whole if len(whole) == updates.ndim else [None] * updates.ndim
    return [dims, [*positions, None], labels]


def _scan(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
    count = node.attr("num_scan_inputs")
    if node.version < 9 or not 0 < count <= len(xs):
        return ()
    labels: list[Labels] = [() if x is None else (None,) * x.ndim for x in xs]
    axes = node.numbers("scan_input_axes", (0,) * count)
    for index, axis in zip(range(len(xs) - count, len(xs)), axes, strict=True):
        row = list(labels[index])
        if -len(row) <= axis < len(row):
            row[axis] = "trips"
        labels[index] = row
    return labels


def _reversed(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
    batch = node.attr("batch_axis", 1)
    return _lettered("b*" if batch == 0 else ".b*", "b")(node, xs)


def _group_norm(node: ModelNode, xs: Sequence[Tensor | None]) -> Sequence[Labels]:
    # Before opset 21 there was a scale for each group.
    return _lettered("nc*", *("cc" if node.version >= 21 else ".."))(node, xs)


_CONTRIB = "com.microsoft"

_RULES: dict[tuple[str, str], Labelling] = {
    ("", "BatchNormalization"): _lettered("nc*", "c", "c", "c", "c"),
    ("", "Conv"): _convolution(),
    ("", "ConvInteger"): _convolution(),
    ("", "ConvTranspose"): _lettered("nc*", "c*"),
    ("", "DeformConv"): _lettered("n*", "m*", "n*", "m", "n*"),
    ("", "DequantizeLinear"): _quantised,
    ("", "Det"): _lettered("*kk"),
    ("", "Einsum"): _einsum,
    ("", "GRU"): _recurrent,
    ("", "Gemm"): _gemm,
    ("", "GridSample"): _lettered("n*", "n*"),
    ("", "GroupNormalization"): _group_norm,
    ("", "InstanceNormalization"): _lettered("nc*", "c", "c"),
    ("", "LSTM"): _recurrent,
    ("", "LayerNormalization"): _trailing,
    ("", "MatMul"): _product(),
    ("", "MatMulInteger"): _product(),
    ("", "MaxUnpool"): _lettered("+", "+"),
    ("", "NegativeLogLikelihoodLoss"): _lettered("nc+", "n+", "c"),
    ("", "QLinearConv"): _convolution(0, 3, 8),
    ("", "QLinearMatMul"): _product(0, 3),
    ("", "QuantizeLinear"): _quantised,
    ("", "RMSNormalization"): _trailing,
    ("", "RNN"): _recurrent,
    ("", "ReverseSequence"): _reversed,
    ("", "RoiAlign"): _lettered("*", "r.", "r"),
    ("", "SimplifiedLayerNormalization"): _trailing,
    ("", "Scan"): _scan,
    ("", "Scatter"): _lettered("*", "+", "+"),
    ("", "ScatterElements"): _lettered("*", "+", "+"),
    ("", "ScatterND"): _scatter_nd,
    ("", "SoftmaxCrossEntropyLoss"): _lettered("nc+", "n+", "c"),
    (_CONTRIB, "Attention"): _lettered("btc", "cd", "d"),
    (_CONTRIB, "BiasGelu"): _trailing,
    (_CONTRIB, "FastGelu"): _trailing,
    (_CONTRIB, "FusedConv"): _convolution(),
    (_CONTRIB, "FusedGemm"): _gemm,
    (_CONTRIB, "FusedMatMul"): _product(),
    (_CONTRIB, "MultiHeadAttention"): _lettered("btd", "bsd", "bs."),
    (_CONTRIB, "SkipLayerNormalization"): _trailing,
    (_CONTRIB, "SkipSimplifiedLayerNormalization"): _trailing,
    (_CONTRIB, "TransposeMatMul"): _product(),
}
