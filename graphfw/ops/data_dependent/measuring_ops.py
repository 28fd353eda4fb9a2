"""Results whose shapes depend on elements: what is not 0, distinct elements, sizes, boxes to keep.

How many there are is a symbol that only a run can tell; whatever comes after is described and
checked with it as with any other. A run computes in stages (`runtime/stages.py`): what such an op
is given, the op itself, and then, as sizes are known, what uses its results.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import numpy as np

from graphfw.errors import ConcreteValueError, ExecutionError, counted
from graphfw.ir import concrete
from graphfw.ir.build import constant, emit_all, rendered
from graphfw.ir.dim import Dim, DimLike, symbol
from graphfw.ir.dtype import DType, int64
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.op import MEASURES, NONDIFF, PURE, Op, op
from graphfw.ir.shape import Requirement, require, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.dtypes import compute_dtype, require_indices, require_one_dtype
from graphfw.ops.sorting.distinct import distinct


class Measuring(Op):
    """The base of ops whose results' shapes depend on elements.

    Attributes:
        dims: The sizes that a run finds out: symbols that no other node has.
        fix: What to do where there can be no stages.
    """

    dims: tuple[DimLike, ...]
    fix: ClassVar[str] = "use a mask, which keeps the shape: gf.where(mask, x, other)"
    traits = frozenset({PURE, MEASURES})
    vjp = NONDIFF

    def measured(self, *results: Any) -> tuple[int, ...]:
        """Return the sizes of `dims`, given the results' arrays."""
        return (len(results[0]),)

    def eval_some(self, wanted: Collection[int], *xs: Any) -> tuple[Any, ...]:
        """Return the results for NumPy's arrays; those that are not wanted may be None.

        The first result is there in any case: it has the sizes.
        """
        found = self.eval(np, *xs)
        return tuple(found) if self.multiple else (found,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the symbols, in order."""
        return tuple(map(str, self.dims))

    def most(self, *inputs: Shape) -> tuple[DimLike | None, ...]:
        """Return upper bounds of `dims`, given the inputs' shapes; None where nothing tells."""
        return (TensorType(int64, inputs[0]).size,)


def measure(
    kind: type[Measuring], hints: Sequence[str], *inputs: Tensor, **fields: Any
) -> tuple[Tensor, ...]:
    """Apply an op with symbols of its own, or at once where it depends on constants only.

    Args:
        kind: The op.
        hints: What the symbols' names begin with.
        inputs: What to apply it to.
        fields: The op's other fields.

    Raises:
        ConcreteValueError: It is in a body, of a loop, a vmap, …: of each iteration and each
            example, what is computed there has the same shape.
    """
    if all(map(concrete.is_concrete, inputs)):
        known = kind(dims=(0,) * len(hints), **fields)
        try:
            known.infer(*[t.type for t in inputs])
        except Requirement as failed:
            raise rendered(known, inputs, failed) from None
        made = known.eval(np, *[concrete.value_of(t, kind.name) for t in inputs])
        return tuple(map(constant, made if known.multiple else (made,)))
    graph = current_graph()
    if graph.root is not graph:
        what = fields.get("what", kind.name)
        raise ConcreteValueError(
            f"{what}: how large the result is depends on values, which can't be in the body of a "
            f"{graph.what}",
            operands=[concrete.describe("x", inputs[0])],
            fix=kind.fix,
        )
    # Of the same tensor once: x[mask] and y[mask] have a dim in common.
    key = (kind, *fields.values(), *[_what(t, _DEPTH) for t in inputs])
    found = graph.measured.get(key)
    if found is None:
        dims = tuple([_symbol(graph, hint) for hint in hints])
        found = graph.measured[key] = emit_all(kind(dims=dims, **fields), *inputs)
    return found


def _symbol(graph: Graph, hint: str) -> Dim:
    """Return a symbol that no other node has: `_nonzero`, `_nonzero2`.

    With an underscore before the number it would be that of a placeholder's dim: `_x_2`.
    """
    names = (f"_{hint}{number}" for number in itertools.chain([""], itertools.count(2)))
    return symbol(next(name for name in names if graph.unique(name) == name))


_DEPTH = 4
"""The depth to which one `x > 0` is compared with another, to see that they are equal."""


def _what(x: Tensor, depth: int) -> Any:
    """Return a key that is equal for tensors which are computed alike from the same ones."""
    node = x.node
    if not depth or PURE not in node.op.traits:
        return node, x.index
    return node.op, x.index, *[_what(t, depth - 1) for t in node.inputs]


@op("nonzero")
class NonZero(Measuring):
    """The indices of what is not 0, in order, a row for each dim.  x: [*A]  ->  [len(A), K]"""

    def shape(self, x: Shape) -> Shape:
        require(bool(x), "wants 1 dim or more, not 0", fix="of one number ask x != 0")
        return (len(x), *self.dims)

    def dtype(self, x: DType) -> DType:
        return int64

    def eval(self, xp: Any, x: Any) -> Any:
        found = xp.nonzero(x)
        rows = found[0][None] if len(found) == 1 else xp.stack(found)
        return rows.astype(xp.int64, copy=False)

    def measured(self, *results: Any) -> tuple[int, ...]:
        return (results[0].shape[1],)


@op("unique")
class Unique(Measuring):
    """The distinct elements in order, where each is first, which each element is, how many of each.

    x: [*A]  ->  [K], [K] int64, [*A] int64, [K] int64

    Every NaN is distinct; 0.0 and -0.0 are not.
    """

    multiple = True
    fix = (
        "gf.isin and gf.sort keep the shape; of a known number of classes "
        "gf.sum(gf.one_hot(x, classes), axis=0) counts each"
    )

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        return self.dims, self.dims, x, self.dims

    def dtype(self, x: DType) -> tuple[DType, ...]:
        return x, int64, int64, int64

    def eval(self, xp: Any, x: Any) -> tuple[Any, ...]:
        if xp is np:
            return self.eval_some((0, 1, 2, 3), x)
        values, indices, inverse, counts = xp.unique(
            x.astype(compute_dtype(xp, x.dtype), copy=False),
            return_index=True,
            return_inverse=True,
            return_counts=True,
            equal_nan=False,
        )
        return (
            values.astype(x.dtype, copy=False),
            indices.astype(xp.int64, copy=False),
            inverse.astype(xp.int64, copy=False).reshape(x.shape),
            counts.astype(xp.int64, copy=False),
        )

    def eval_some(self, wanted: Collection[int], *xs: Any) -> tuple[Any, ...]:
        (x,) = xs
        values, indices, inverse, counts = distinct(x, wanted)
        inverse = None if inverse is None else inverse.reshape(x.shape)
        return values, indices, inverse, counts


@op("sizes")
class Sizes(Measuring):
    """Integers that are sizes from here on.  x: [K]  ->  [K] int64, the same

    Attributes:
        what: What errors call them.
    """

    what: str
    fix = "compute the sizes from shapes, or outside of it"

    def shape(self, x: Shape) -> Shape:
        fits = x == (len(self.dims),)
        require(fits, f"wants {counted(len(self.dims), 'size')}", fix="pass integers in one dim")
        return x

    def dtype(self, x: DType) -> DType:
        require_indices(x)
        return int64

    def eval(self, xp: Any, x: Any) -> Any:
        if (x < 0).any():
            raise ExecutionError(
                f"{self.what}: {x.tolist()} are to be sizes, and one is negative",
                fix="see what computes them",
            )
        return x.astype(xp.int64)

    def measured(self, *results: Any) -> tuple[int, ...]:
        return tuple(results[0].tolist())

    def most(self, *inputs: Shape) -> tuple[DimLike | None, ...]:
        return (None,) * len(self.dims)


@op("non_max_suppression")
class NonMaxSuppression(Measuring):
    """The boxes that are kept, of each class by itself, as ONNX defines NonMaxSuppression.

    boxes: [B, N, 4]  scores: [B, C, N]  limit: []  overlap: []  lowest: []
    ->  [K, 3] the numbers of image, class and box

    The best box is kept, those that overlap it too much go, the best one of the others is kept, ….

    Attributes:
        centred: Whether a box is (x, y, width, height) around its centre, not (y, x, y, x) of any
            two corners that face each other.
    """

    centred: bool
    fix = "choose a fixed number of boxes: gf.topk"

    def shape(
        self, boxes: Shape, scores: Shape, limit: Shape, overlap: Shape, lowest: Shape
    ) -> Shape:
        shapes = f"boxes and scores are {shape_text(boxes)} and {shape_text(scores)}"
        fits = len(boxes) == len(scores) == 3 and boxes == (scores[0], scores[2], 4)
        require(fits, shapes, fix="give [images, boxes, 4] and [images, classes, boxes]")
        is_each_one = not (limit or overlap or lowest)
        require(is_each_one, "the limits are to be numbers", fix="give 0-d tensors")
        return (*self.dims, 3)

    def dtype(
        self, boxes: DType, scores: DType, limit: DType, overlap: DType, lowest: DType
    ) -> DType:
        require_one_dtype(boxes, scores, overlap, lowest)
        require_indices(limit)
        return int64

    def eval(self, xp: Any, boxes: Any, scores: Any, limit: Any, overlap: Any, lowest: Any) -> Any:
        corners = _corners(boxes, self.centred)
        chosen = [
            (image, kind, box)
            for image in range(scores.shape[0])
            for kind in range(scores.shape[1])
            for box in _kept_boxes(
                corners[image], scores[image, kind], int(limit), float(overlap), float(lowest)
            )
        ]
        return np.asarray(chosen, np.int64).reshape(-1, 3)

    def most(self, *inputs: Shape) -> tuple[DimLike | None, ...]:
        images, kinds, boxes = inputs[1]
        return (images * kinds * boxes,)


def _corners(boxes: Any, is_centred: bool) -> Any:
    """Return the low and the high corners: y1, x1, y2, x2."""
    if is_centred:
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], axis=-1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)


def _kept_boxes(boxes: Any, scores: Any, limit: int, overlap: float, lowest: float) -> list[int]:
    """Return the numbers of the boxes of one class that are kept, the best first."""
    numbers = np.flatnonzero(scores > lowest)
    numbers = numbers[np.argsort(-scores[numbers], kind="stable")]
    boxes = boxes[numbers]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    while len(numbers) and len(kept) < limit:
        kept.append(int(numbers[0]))
        low = np.maximum(boxes[0, :2], boxes[1:, :2])
        high = np.minimum(boxes[0, 2:], boxes[1:, 2:])
        common = np.prod(np.maximum(high - low, 0), axis=-1)
        stays = ~(common > overlap * (areas[0] + areas[1:] - common))
        numbers, boxes, areas = numbers[1:][stays], boxes[1:][stays], areas[1:][stays]
    return kept
