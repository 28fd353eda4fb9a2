"""Arrays of any shape as arrays of three dims: what is before an axis, it, and what is after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.reduce.cumulative import Cumulative, Recurrence
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Code, Step, Storage, View
from graphfw.runtime.kernels.views import is_whole
from graphfw.runtime.planning.copies import copied


def collapsed_to_3d(
    node: Node, x: View, first: int, last: int, code: Callable[[Kernel], Code]
) -> tuple[View, list[Step]]:
    """Return a view with three dims: those before `first`, from there to `last`, and after.

    And the step that copies it, where dims that become one are not contiguous, whose code is made
    by `code`.
    """
    cuts = (slice(0, first), slice(first, last), slice(last, None))
    shape = tuple([size_of(x.shape[cut]) for cut in cuts])
    strides = [joint_stride(x.shape[cut], x.strides[cut]) for cut in cuts]
    known = tuple([stride for stride in strides if stride is not None])
    if len(known) == len(cuts):
        return View(x.storage, x.offset, shape, known), []
    step, temp = copied(x, (node,), "what does not lie in a row", code)
    return View(temp, 0, shape, contiguous(shape)), [step]


class ScanLayout(NamedTuple):
    """The operands of a node that goes along an axis, as views of three dims.

    Attributes:
        sizes: What is before the axis, it, and what is after.
        operands: The output and the inputs.
        params: Of each input where it begins, and its strides.
        in_place: As of a `Step` with these operands.
        reverse: Whether it walks from the end.
        exclusive: Whether each result leaves out the element at its own position.
        copies: What comes before.
    """

    sizes: tuple[DimLike, ...]
    operands: tuple[Storage, ...]
    params: list[DimLike]
    in_place: tuple[tuple[int, int], ...]
    reverse: bool
    exclusive: bool
    copies: list[Step]


def scan_layout_of(
    node: Node, inputs: Sequence[View], output: View, code: Callable[[Kernel], Code]
) -> ScanLayout:
    """Return how a `cumulative_sum`, a `cumulative_prod` or a `recurrence` walks.

    The code of steps that copy is made by `code`.
    """
    op = node.op
    assert isinstance(op, Cumulative | Recurrence)
    axis = op.axis % len(output.shape)
    copies: list[Step] = []
    params: list[DimLike] = []
    whole: list[tuple[int, int]] = []
    operands = [output.storage]
    for number, x in enumerate(inputs, 1):
        collapsed, more = collapsed_to_3d(node, x, axis, axis + 1, code)
        copies += more
        params += [collapsed.offset, *collapsed.strides]
        operands.append(collapsed.storage)
        if isinstance(collapsed.storage, Tensor) and is_whole(collapsed):
            whole.append((0, number))
    return ScanLayout(
        sizes=collapsed_to_3d(node, output, axis, axis + 1, code)[0].shape,
        operands=tuple(operands),
        params=params,
        # Over an input that is read a second time as another, or not as a whole, it would be wrong.
        in_place=tuple(whole) if len({*operands}) == len(operands) else (),
        reverse=op.reverse,
        exclusive=isinstance(op, Cumulative) and op.exclusive,
        copies=copies,
    )


def joint_stride(dims: Sequence[DimLike], strides: Sequence[DimLike]) -> DimLike | None:
    """Return the stride of dims taken as one; None where they are not contiguous."""
    found: DimLike | None = None
    span: DimLike = 0
    for dim, stride in zip(reversed(dims), reversed(strides), strict=True):
        if dim == 1:
            continue
        if found is None:
            found = stride
        elif stride != span:
            return None
        span = stride * dim
    return 0 if found is None else found
