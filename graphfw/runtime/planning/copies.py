"""Steps that copy, and one that marks the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from graphfw.ir.affine import LoopVariable
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import int64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.elements import (
    Element,
    ElementAddress,
)
from graphfw.runtime.kernels.ir import Access, Axis, Buffer, Const, InnerLoop, Kernel, Store
from graphfw.runtime.kernels.kernel_target import KernelTarget
from graphfw.runtime.kernels.lower_loops import Draft, Stored
from graphfw.runtime.kernels.lower_narrow import turn_if_narrow
from graphfw.runtime.kernels.lower_steps import finished, step
from graphfw.runtime.kernels.steps import Code, Item, Step, Storage, Temp, View
from graphfw.runtime.kernels.views import is_whole


def copied(
    view: View, nodes: tuple[Node, ...], why: str, code: Callable[[Kernel], Code]
) -> tuple[Step, Temp]:
    """Return a step that copies a view, and where the copy is, in a row.

    Args:
        view: What is copied.
        nodes: What made it, for reports.
        why: What reports call the copy.
        code: What the step's code is made by.
    """
    target = Temp(view.storage.dtype, size_of(view.shape), why)
    return _copy(view, in_a_row(target, view.shape), nodes, code), target


def copied_whole(storage: Storage, why: str, code: Callable[[Kernel], Code]) -> tuple[Step, Temp]:
    """Return a step that copies all of a storage, and where the copy is; see `copied`."""
    nodes = (storage.node,) if isinstance(storage, Tensor) else ()
    return copied(View(storage, 0, (storage.size,), (1,)), nodes, why, code)


def put(
    source: Storage, view: View, nodes: tuple[Node, ...], code: Callable[[Kernel], Code]
) -> Step:
    """Return a step that copies what is contiguous to where a view is; see `copied`."""
    return _copy(in_a_row(source, view.shape), view, nodes, code)


def in_a_row(storage: Storage, shape: tuple[DimLike, ...]) -> View:
    """Return a storage as a view of a shape whose elements are contiguous."""
    return View(storage, 0, shape, contiguous(shape))


def laid_out(view: View, tensor: Tensor, target: KernelTarget) -> Step:
    """Return a step that copies a view to where a tensor is, in C order; see `copied`."""
    draft = copying(view, in_a_row(tensor, tensor.shape))
    turn_if_narrow(draft, target.narrow)
    return step(finished(draft, target), (tensor.node,), target)


def copying(source: View, target: View) -> Draft:
    """Return the loops that copy a view to where another is."""
    axes = [LoopVariable(f"i{number}", dim) for number, dim in enumerate(source.shape)]
    read, written = [
        ElementAddress(view.storage, view.offset, tuple(zip(axes, view.strides, strict=True)))
        for view in (source, target)
    ]
    stored = Stored(written, Element(source.storage.dtype, read))
    return Draft("rows", axes, None, loops=[[stored]])


def _copy(
    source: View, target: View, nodes: tuple[Node, ...], code: Callable[[Kernel], Code]
) -> Step:
    done = finished(copying(source, target))
    # Not in place, even where that would do: who wants a copy wants another array.
    return Step(
        nodes=nodes,
        code=code(done.kernel),
        operands=done.operands,
        written=tuple([buffer.written for buffer in done.kernel.buffers]),
        params=done.params,
        work_items=done.work_items,
    )


def held(
    outputs: Iterable[tuple[Node, View]],
    free: set[Storage],
    items: list[Item],
    why: str,
    code: Callable[[Kernel], Code],
) -> list[Storage]:
    """Return for each output a storage of its own that holds it, in its order.

    Args:
        outputs: By what each is made, and where it is.
        free: Storages that may be handed out; who wants one that another has gets a copy.
        items: What a run does; steps that copy are added.
        why: What reports call a copy.
        code: What a step's code is made by.
    """
    free = set(free)
    found: list[Storage] = []
    for node, view in outputs:
        if is_whole(view) and view.storage in free:
            free.remove(view.storage)
            found.append(view.storage)
        else:
            made, temp = copied(view, (node,), why, code)
            items.append(made)
            found.append(temp)
    return found


def whole(
    node: Node, view: View, items: list[Item], why: str, code: Callable[[Kernel], Code]
) -> Storage:
    """Return a storage that holds the elements of a view and no others, in their order.

    Args:
        node: What has made it.
        view: The view.
        items: What a run does; a step that copies is added.
        why: What reports call a copy.
        code: What a step's code is made by.
    """
    if is_whole(view):
        return view.storage
    made, temp = copied(view, (node,), why, code)
    items.append(made)
    return temp


def marked(code: Callable[[Kernel], Code]) -> tuple[Step, Temp]:
    """Return a step that writes a 1, and where."""
    kernel = Kernel(
        form="rows",
        outer=(),
        inner=(Axis("i", 1),),
        per_item=1,
        split=None,
        buffers=(Buffer(int64, True),),
        params=0,
        body=(InnerLoop((Store(0, Access(0, (("i", 1),)), Const(int64, 1)),)),),
    )
    mark = Temp(int64, 1, "the mark that everything is written")
    return Step((), code(kernel), (mark,), (True,), (), 1), mark
