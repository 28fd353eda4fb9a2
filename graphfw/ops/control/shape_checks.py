"""The checks of shapes that a run makes before it computes anything, or before a body is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from graphfw.errors import ShapeError, counted
from graphfw.ir.concrete import describe
from graphfw.ir.dim import Dim, DimLike, always_le, is_symbol, symbols_of
from graphfw.ir.dim_text import evaluate
from graphfw.ir.graph import Graph
from graphfw.ir.shape import shape_text, size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.control.checkpoint_ops import Checkpoint
from graphfw.ops.control.scan_op import Scan
from graphfw.utils.records import record


@record
class FedSize:
    """The source of a symbol's size.

    Attributes:
        symbol: Its name.
        placeholder: The placeholder that has it as a dim.
        label: What messages call this placeholder.
        axis: Which of its dims that is.
        shape: The shape that is fed, as text.
    """

    symbol: str
    placeholder: Tensor
    label: str
    axis: int
    shape: str


@record
class ShapeCheck:
    """Two sizes that have to be equal.

    One is a dim that `assert_shape` promised, or how many elements a reshape makes whose -1 may not
    divide.

    Attributes:
        said: What it is said to be.
        actual: What it is computed from.
        node: The `assert_shape` or the `reshape`.
        lengths: The lengths of the loops around it: where one is 0, there is nothing to check.
        is_inside: Whether it is in the body of a loop or a checkpoint.
    """

    said: DimLike
    actual: DimLike
    node: Node
    lengths: tuple[DimLike, ...] = ()
    is_inside: bool = False

    @property
    def introduced(self) -> str | None:
        """The symbol that gets its size here, if it has none yet."""
        is_promise = self.node.op.name == "assert_shape" and not self.is_inside
        return is_symbol(self.said) if is_promise else None

    def fails(self, sizes: Mapping[str, int]) -> bool:
        """Return whether it does not hold; where a symbol is not known yet, nothing can be said.

        Raises:
            ZeroDivisionError: A size divides by 0.
        """
        actual, said = size_at(self.actual, sizes), size_at(self.said, sizes)
        if actual is None or said is None or actual == said:
            return False
        return 0 not in [size_at(length, sizes) for length in self.lengths]

    def error(self, sizes: Mapping[str, int], fed: Sequence[FedSize]) -> ShapeError:
        """Return the error of a check that fails.

        Args:
            sizes: What the symbols stand for.
            fed: Where these come from.
        """
        actual, said = size_at(self.actual, sizes), size_at(self.said, sizes)
        reasons = [
            f"`{one.symbol}` is dim {one.axis} of {one.label}, which is fed {one.shape}"
            for one in fed
        ]
        layer = self.node.loc.layer
        if layer:
            reasons.append(f"the layer {layer} relies on it")
        if self.node.op.name == "reshape":
            dims = [dim if dim == -1 else evaluate(dim, sizes) for dim in self.node.op.values[0]]
            rest = prod([dim for dim in dims if dim != -1])
            return ShapeError(
                f"reshape: {counted(actual, 'element')} don't divide into shape {shape_text(dims)}",
                operands=[describe("x", self.node.inputs[0])],
                why="; ".join(reasons),
                at=self.node.loc,
                fix=f"feed sizes that make the number of elements a multiple of {rest}",
            )
        shown = f"{self.said} = {said}" if isinstance(self.said, Dim) else str(said)
        fix = "feed arrays that agree"
        if len(fed) == 1 and is_symbol(self.actual) is not None:
            fix = f"feed {fed[0].label} an array with {said} at dim {fed[0].axis}"
        # Who uses a layer, or a model that was loaded, has not written what it relies on.
        who, fix = (layer, fix) if layer else ("assert_shape", f"{fix}, or drop the assertion")
        placeholders = dict.fromkeys([one.placeholder for one in fed])
        return ShapeError(
            f"{who}: the dim `{self.actual}` is {actual} in this run, not {shown}",
            operands=[describe("fed", placeholder) for placeholder in placeholders],
            why="; ".join(reasons),
            at=self.node.loc,
            fix=fix,
        )


def shape_checks(graph: Graph) -> tuple[ShapeCheck, ...]:
    """Collect the checks of what is computed in each run.

    The bodies of branches and of loops of unknown length have their own: whether these are computed
    is known only then.
    """
    return tuple(_checks(graph, (), is_inside=False))


def _checks(graph: Graph, lengths: tuple[DimLike, ...], *, is_inside: bool) -> Iterator[ShapeCheck]:
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Checkpoint):
            yield from _checks(op.body.graph, lengths, is_inside=True)
        elif isinstance(op, Scan):
            around = lengths if always_le(1, op.length) else (*lengths, op.length)
            yield from _checks(op.body.graph, around, is_inside=True)
        for said, actual in _unproved(node):
            yield ShapeCheck(said, actual, node, lengths, is_inside)


def is_checked(node: Node) -> bool:
    """Return whether a node relies on sizes that only a run can check."""
    return any(True for _ in _unproved(node))


def _unproved(node: Node) -> Iterator[tuple[DimLike, DimLike]]:
    """Yield sizes that have to be equal, and are not known to be: as said, and as they are."""
    if node.op.name in ("assert_shape", "reshape"):
        said, actual = node.types[0].shape, node.inputs[0].shape
        if node.op.name == "reshape":
            said, actual = (size_of(said),), (size_of(actual),)
        yield from [pair for pair in zip(said, actual, strict=True) if pair[0] != pair[1]]


def hold(checks: Sequence[ShapeCheck], symbols: Sequence[str], sizes: Sequence[int]) -> bool:
    """Return whether a body may run at some sizes: code that relies on them would read elsewhere.

    Args:
        checks: The body's.
        symbols: The names of its symbols.
        sizes: What they stand for.

    Raises:
        ZeroDivisionError: A size divides by 0.
    """
    known = dict(zip(symbols, sizes, strict=True)) if checks else {}
    return not any([check.fails(known) for check in checks])


def size_at(dim: DimLike, sizes: Mapping[str, int]) -> int | None:
    """Return a dim's size, or None where a symbol in it is not known yet.

    Raises:
        ZeroDivisionError: It divides by 0.
    """
    if isinstance(dim, int) or not symbols_of(dim) <= sizes.keys():
        return dim if isinstance(dim, int) else None
    return evaluate(dim, sizes)
